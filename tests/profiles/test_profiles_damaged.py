"""Profiles with fields that no profiler writes: one line or a figure, never a traceback, never an infinite one."""

import json
import math
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import run_cli
from tests.profiles.profiles_traces import FLASH, GEMM, kernel, mark, nsys, on_host, trace

from draftworth.errors import UsageError
from draftworth.profiles.base import Profile
from draftworth.profiles.read import read_profile

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63, 2**64 - 1, -1, 1e308, -1e308, 1e18, 3.7, "", "7", "x", "9" * 30]),
    st.text(max_size=4),
)
STEP = "execute_context_0(0)_generation_2(2)"


def steps() -> list[dict[str, Any]]:
    found = []
    for number in range(3):
        at = 1000.0 * (number + 1)
        found += [
            mark(0, 1, 1, at, 50),
            on_host("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=number),
            kernel(GEMM, at + 10, 400, correlation=number),
            kernel(FLASH, at + 500, 100, correlation=number),
        ]
    return found


def finite(found: Profile) -> bool:
    numbers = [found.span_ms, found.whole_ms, found.idle_ms, found.host_ms or 0.0, found.tokens or 0.0]
    numbers += [value for one in found.classes for value in (one.ms, one.share, one.busy_ms)]
    return all(map(math.isfinite, numbers))


@given(place=st.integers(0, 11), field=st.sampled_from(["ts", "dur", "pid", "tid", "name", "cat", "ph"]), value=ODD)
def test_a_field_of_an_event_may_hold_anything(place: int, field: str, value: Any) -> None:
    events = steps()
    events[place][field] = value
    _read(events)


@given(place=st.integers(0, 11), field=st.sampled_from(["stream", "device", "correlation", "name"]), value=ODD)
def test_an_argument_of_an_event_may_hold_anything(place: int, field: str, value: Any) -> None:
    events = steps()
    events[place].setdefault("args", {})[field] = value
    _read(events)


def _read(events: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = trace(Path(folder) / "a.json", events)
        try:
            found = read_profile([path])
        except UsageError:
            return
    assert finite(found)


@pytest.mark.parametrize("correlation", [2**64 - 1, 2**63, -5, 2**90])
def test_a_correlation_that_is_none_costs_no_kernel(tmp_path: Path, correlation: int) -> None:
    events = [kernel(GEMM, 1, 10, correlation=correlation), kernel(FLASH, 20, 10, correlation=3)]
    found = read_profile([trace(tmp_path / "a.json", events)])
    assert (found.of("matrix work"), found.of("attention")) == pytest.approx((0.01, 0.01))


def test_a_duration_without_an_end_is_left_out_and_told(tmp_path: Path) -> None:
    text = trace(tmp_path / "a.json", [kernel(GEMM, 1, 77, correlation=1), kernel(FLASH, 5, 10)]).read_text()
    path = tmp_path / "b.json"
    path.write_text(text.replace("77", "1e400"))
    found = read_profile([path])
    assert found.of("matrix work") == 0
    assert found.of("attention") == pytest.approx(0.01)
    assert "left out, their time or duration cannot be one: 1 of the events" in found.notes
    shown = run_cli("profile", "read", path)
    assert shown.code == 0
    assert "inf" not in shown.out
    assert "nan" not in shown.out


def test_events_and_remarks_nested_without_end_are_left_out(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    plain = json.dumps(kernel(GEMM, 1, 10))
    other = json.dumps(kernel(FLASH, 20, 10) | {"args": {"x": "deep"}}).replace('"deep"', deep)
    path = tmp_path / "a.json"
    path.write_text(f'{{"remark": {deep}, "traceEvents": [{plain}, {other}, {plain}]}}')
    found = read_profile([path])
    assert found.of("matrix work") > 0
    assert found.of("attention") == 0
    assert any("1 events are no JSON" in one for one in found.notes)


@given(
    table=st.sampled_from(["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"]),
    place=st.integers(0, 7),
    value=st.one_of(
        st.none(),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([1e308, -1.5, math.inf]),
        st.text(max_size=4),
        st.binary(max_size=3),
    ),
)
def test_a_cell_of_an_export_may_hold_anything(table: str, place: int, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        path.write_bytes(exported())
        with closing(sqlite3.connect(path)) as base:
            base.execute("PRAGMA synchronous = OFF")
            base.execute("PRAGMA journal_mode = MEMORY")
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
            column = columns[place % len(columns)]
            base.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = 1', (value,))
            base.commit()
        try:
            found = read_profile([path])
        except UsageError:
            return
        assert all(finite(one) for one in (found, *found.ranks))


@cache
def exported() -> bytes:
    """An export, written once."""
    with tempfile.TemporaryDirectory() as folder:
        return export(Path(folder) / "a.sqlite").read_bytes()


def export(path: Path) -> Path:
    kernels = [(GEMM, 1_000_000 * at + 1000, 1_000_000 * at + 400_000, 0, at) for at in range(1, 4)]
    return nsys(path, kernels, nvtx=[(STEP, 1_000_000 * at, 1_000_000 * at + 50_000) for at in range(1, 4)])


def test_rows_without_a_time_are_left_out_and_told(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon', end = 'later' WHERE rowid = 2")
        base.commit()
    assert any("no number: 1 rows of CUPTI_ACTIVITY_KIND_KERNEL" in one for one in read_profile([path]).notes)


@pytest.mark.parametrize("column", ["start", "end"])
def test_an_export_without_times_is_one_line(tmp_path: Path, column: str) -> None:
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as base:
        base.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN "{column}" TO "at"')
        base.commit()
    shown = run_cli("profile", "read", path)
    assert shown.code == 1
    assert f"CUPTI_ACTIVITY_KIND_KERNEL has no column `{column}`" in shown.err
