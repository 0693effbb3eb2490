"""Exports of nsys: kernels of several ranks in one file, ranges of the engine, graphs recorded as one piece."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.profiles.profiles_traces import FLASH, GEMM, nsys

from draftworth.errors import UsageError
from draftworth.profiles.read import read_profile

STEP = "execute_context_0(0)_generation_2(2)"


def test_steps_classes_and_idle_by_hand(tmp_path: Path) -> None:
    kernels = []
    for number in range(3):
        at = 1_000_000 * (number + 1)
        kernels += [
            (GEMM, at + 1000, at + 401_000, 0, 2 * number),
            (FLASH, at + 500_000, at + 600_000, 0, 2 * number + 1),
        ]
    ranges = [(STEP, 1_000_000 * (number + 1), 1_000_000 * (number + 1) + 50_000) for number in range(3)]
    found = read_profile([nsys(tmp_path / "a.sqlite", kernels, nvtx=ranges)])
    assert (found.steps, found.tokens, found.engine) == (2, 4.0, "vllm")
    assert found.span_ms == pytest.approx(2.0)
    assert found.of("matrix work") == pytest.approx(0.8)
    assert found.of("attention") == pytest.approx(0.2)
    # ranges of the host: 50 µs, 49 of which lie before the first kernel's end; the rest of a range is idle time of none
    assert found.idle_ms + (found.host_ms or 0) == pytest.approx(1.0)


def test_each_gpu_is_a_rank(tmp_path: Path) -> None:
    kernels = [(GEMM, 1000, 2000 + 500 * device, device, device) for device in range(2)]
    found = read_profile([nsys(tmp_path / "a.sqlite", kernels)])
    assert [(one.rank, one.device, round(one.of("matrix work"), 7)) for one in found.ranks] == [
        (0, "gpu 0", 0.001),
        (1, "gpu 1", 0.0015),
    ]
    assert found.rank == 1


def test_graphs_recorded_as_one_piece_are_told(tmp_path: Path) -> None:
    path = nsys(tmp_path / "a.sqlite", [(GEMM, 1000, 2000, 0, 1)])
    with closing(sqlite3.connect(path)) as base:
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, streamId INT, "
            "correlationId INT, globalPid INT, graphId INT)"
        )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (3000, 9000, 0, 7, 2, 5, 1)")
        base.commit()
    found = read_profile([path])
    assert found.of("not recognised") == pytest.approx(0.006)
    assert any("--cuda-graph-trace=node" in note for note in found.notes)


def test_what_is_no_export_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as base:
        base.execute("CREATE TABLE things (a INT)")
        base.commit()
    with pytest.raises(UsageError, match="not an export of nsys"):
        read_profile([other])
    empty = tmp_path / "empty.sqlite"
    with closing(sqlite3.connect(empty)) as base:
        base.execute("CREATE TABLE StringIds (id INT, value TEXT)")
        base.commit()
    with pytest.raises(UsageError, match="no GPU kernels in it; record with"):
        read_profile([empty])
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(nsys(tmp_path / "a.sqlite", [(GEMM, 1000, 2000, 0, 1)]).read_bytes()[:5000])
    with pytest.raises(UsageError, match="not readable as an nsys export"):
        read_profile([cut])
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"NSYS\x00\x01")
    with pytest.raises(UsageError, match="nsys export --type sqlite"):
        read_profile([report])
