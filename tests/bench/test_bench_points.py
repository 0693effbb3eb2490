"""Points of a sweep, headers and keys, clocks."""

from pathlib import Path

import pytest

from draftworth.bench.access import access
from draftworth.bench.base import Closed, Open, Replay
from draftworth.bench.clocks import Clocks, ClockWatch, Gpu, Sample, held_down, other_than, over
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


class Watched:
    clocks: Clocks | None = None


def throttle(folder: Path, cpu: int, count: int) -> None:
    (folder / f"cpu{cpu}/thermal_throttle").mkdir(parents=True, exist_ok=True)
    (folder / f"cpu{cpu}/thermal_throttle/core_throttle_count").write_text(f"{count}\n")


def test_throttling_within_a_measurement_is_counted(tmp_path: Path) -> None:
    throttle(tmp_path, 0, 3)
    throttle(tmp_path, 1, 0)
    watched = Watched()
    with ClockWatch(watched, tmp_path):
        throttle(tmp_path, 1, 4)
    assert watched.clocks is not None
    assert watched.clocks.cpu_throttled == 4
    assert held_down(watched.clocks) == "the processor throttled for heat 4 times"


def test_what_cannot_be_read_is_not_zero(tmp_path: Path) -> None:
    watched = Watched()
    with ClockWatch(watched, tmp_path):
        pass
    assert watched.clocks is not None
    assert watched.clocks.cpu_throttled is None
    assert held_down(watched.clocks) is None
    assert held_down(None) is None


def test_a_gpu_is_judged_by_its_samples_under_load() -> None:
    hot = Sample(sm_mhz=1500, celsius=90, reasons=("hardware thermal slowdown",))
    cool = Sample(sm_mhz=1980, celsius=60)
    (mostly_cool,) = over([[cool]] * 19 + [[hot]])
    assert (mostly_cool.sm_mhz, mostly_cool.celsius, mostly_cool.reasons) == (1980, 90, ())
    (often_hot,) = over([[cool]] * 8 + [[hot]] * 2)
    assert often_hot.reasons == ("hardware thermal slowdown",)
    assert "held down by hardware thermal slowdown, at up to 90 °C" in str(held_down(Clocks(gpus=(often_hot,))))


def test_blocks_at_different_clocks_are_told_apart() -> None:
    fast, slow = Clocks(gpus=(Gpu(sm_mhz=1980),)), Clocks(gpus=(Gpu(sm_mhz=1500),))
    assert other_than(fast, slow) == "GPU 0 ran at 1500 MHz, in the first block at 1980"
    assert other_than(fast, Clocks(gpus=(Gpu(sm_mhz=1950),))) is None
    assert other_than(None, slow) is None
