"""Points of a sweep, headers and keys, clocks."""

from pathlib import Path

import pytest

from draftworth.bench.access import access
from draftworth.bench.base import Closed, Open, Replay
from draftworth.bench.clocks import Clocks, Gpu, changed, read_clocks
from draftworth.bench.points import points
from draftworth.errors import UsageError


def test_one_point_has_no_name_and_several_are_named_by_what_varies() -> None:
    (only,) = points(concurrency=(4,), max_tokens=(64,))
    assert (only.load, only.max_tokens, only.context_tokens, only.label) == (Closed(4), 64, None, "")
    assert [one.label for one in points(concurrency=(1, 8))] == ["1 at a time", "8 at a time"]
    found = points(rate=(0.5, 2.0), max_tokens=(16, 64), context_tokens=(1000,), seed=3)
    assert [one.label for one in found] == [
        *("0.5 a second, 16 out", "2 a second, 16 out"),
        *("0.5 a second, 64 out", "2 a second, 64 out"),
    ]
    assert {one.load for one in found} == {Open(0.5, 3), Open(2.0, 3)}
    assert {one.context_tokens for one in found} == {1000}


def test_the_same_value_twice_is_one_point() -> None:
    assert len(points(concurrency=(2, 2), max_tokens=(8, 8))) == 1


def test_a_replay_is_one_load() -> None:
    assert points(replay_speed=2.0)[0].load == Replay(2.0)


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", "abc")
    monkeypatch.setenv("H", "xyz")
    found = access(api_key_env="K", headers={"X-Team": "a"}, headers_env={"X-Other": "H"})
    assert found.headers == {"Authorization": "Bearer abc", "X-Team": "a", "X-Other": "xyz"}
    assert "abc" not in repr(found)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"bad name": "x"}, "letters, digits and dashes"),
        ({"X": "line\nbreak"}, "one line"),
        ({"Host": "x"}, "set by the client itself"),
        ({"X": "größe"}, "ASCII"),
    ],
)
def test_headers_that_are_none_are_refused(headers: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        access(headers=headers)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("K", raising=False)
    with pytest.raises(UsageError, match="--api-key-env: the environment variable K is not set"):
        access(api_key_env="K", key_name="--api-key-env")


def test_throttling_is_read_where_the_kernel_shows_it(tmp_path: Path) -> None:
    for cpu, count, khz in ((0, 3, 2_000_000), (1, 4, 3_000_000)):
        (tmp_path / f"cpu{cpu}/thermal_throttle").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/cpufreq").mkdir()
        (tmp_path / f"cpu{cpu}/thermal_throttle/core_throttle_count").write_text(f"{count}\n")
        (tmp_path / f"cpu{cpu}/cpufreq/scaling_cur_freq").write_text(f"{khz}\n")
    found = read_clocks(tmp_path)
    assert (found.cpu_throttled, found.cpu_mhz) == (7, 2500.0)


def test_what_cannot_be_read_is_not_zero(tmp_path: Path) -> None:
    found = read_clocks(tmp_path)
    assert (found.cpu_throttled, found.cpu_mhz) == (None, None)
    assert changed(found, found) is None
    assert changed(None, found) is None


def test_changes_that_move_times_are_told() -> None:
    cool, hot = Clocks(cpu_throttled=2), Clocks(cpu_throttled=5)
    assert changed(cool, hot) == "the processor throttled for heat 3 times"
    fast, slow = Gpu(sm_mhz=1980, celsius=60), Gpu(sm_mhz=1500, celsius=84)
    assert changed(Clocks(gpus=(fast,)), Clocks(gpus=(slow,))) == "GPU 0 went from 1980 to 1500 MHz"
    held = Gpu(sm_mhz=1500, celsius=90, reasons=("hardware thermal slowdown",))
    assert "held down by hardware thermal slowdown at 90 °C" in str(changed(Clocks(gpus=(fast,)), Clocks(gpus=(held,))))
    assert changed(Clocks(gpus=(fast,)), Clocks(gpus=(Gpu(sm_mhz=1965, celsius=61),))) is None
