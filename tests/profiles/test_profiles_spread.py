"""How far figures a step may be off: by hand, by simulation, and where nothing can be said."""

import json
import math
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import run_cli
from tests.profiles.profiles_traces import DATA, FLASH, GEMM, kernel, mark, on_host, trace

from draftworth import cli
from draftworth.profiles import spread
from draftworth.profiles.base import Profile, Spread, StepTime
from draftworth.profiles.compare import compare
from draftworth.profiles.intervals import cut
from draftworth.profiles.read import read_profile
from draftworth.profiles.spread import difference, step_times

ARMS = [DATA / f"vllm_h200_moe_{arm}.pt.trace.json.gz" for arm in ("baseline", "null-draft")]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._VERBS, "profile", ("draftworth.cli.profile:app", "Decode time by class."))


def steps(path: Path, gemms: list[float]) -> Path:
    """Steps of 1000 µs: a gemm of these µs from the begin on, and 200 of attention that reach into the next step."""
    events = []
    for number, gemm in enumerate([*gemms, 100.0]):
        at = 1000.0 * (number + 1)
        events += [mark(0, 1, 1, at, 50), on_host("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=number)]
        events.append(kernel(GEMM, at, gemm, correlation=number))
        events.append(kernel(FLASH, at + 900, 200, stream=8, correlation=number))
    return trace(path, events)


def of(profile: Profile, name: str) -> StepTime:
    return next(one for one in profile.per_step if one.name == name)


def random_steps(seed: int, many: int = 60) -> list[float]:
    return [round(float(one), 1) for one in np.random.default_rng(seed).normal(500, 40, many)]


def test_means_of_steps_are_those_of_the_span_and_have_an_interval(tmp_path: Path) -> None:
    gemms = random_steps(1)
    found = read_profile([steps(tmp_path / "a.json", gemms)])
    assert found.steps == 60
    for name in ("matrix work", "attention"):
        assert of(found, name).ms == pytest.approx(found.of(name) / 60)
    parts = [one for one in found.per_step if one.name not in {"total", "idle and host"}]
    assert sum(one.ms for one in parts) == pytest.approx(of(found, "total").ms) == pytest.approx(1.0)
    # the first 100 µs of a step are shared with the attention of the one before, but for the first step
    total = of(found, "matrix work")
    true = mean([gemms[0] - 0, *(one - 50 for one in gemms[1:])]) / 1000
    assert total.ms == pytest.approx(true)
    # independent steps: the bootstrap's interval is about the normal one's
    assert total.interval
    width = 2 * 1.96 * stdev(gemms) / math.sqrt(60) / 1000
    assert total.interval.low_ms < total.ms < total.interval.high_ms
    assert total.interval.high_ms - total.interval.low_ms == pytest.approx(width, rel=0.35)
    # all steps are equally long: an interval of no width
    steady = of(found, "total").interval
    assert steady
    assert steady.high_ms == pytest.approx(steady.low_ms) == pytest.approx(1.0)


def test_the_interval_holds_the_true_mean_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "_DRAWS", 300)
    random = np.random.default_rng(3)
    for many, drift in ((20, 0.0), (60, 0.0), (200, 0.5), (60, 0.8)):
        held = 0
        for _ in range(200):
            noise = random.normal(0, 1, many)
            for one in range(1, many):
                noise[one] += drift * noise[one - 1]
            (told,) = step_times({"total": 10 + noise})
            assert told.interval
            held += told.interval.low_ms <= 10 <= told.interval.high_ms
        assert held / 200 > (0.84 if drift else 0.91), (many, drift, held / 200)


def test_steps_that_hang_together_beyond_a_block_make_an_interval_wider_and_others_do_not() -> None:
    """Of an autoregression by 0.8 the mean's variance is nine times that of independent steps, blocks of 4 hold 3.3."""
    random = np.random.default_rng(5)
    noise = random.normal(0, 1, 60_000)
    hanging = noise.copy()
    for one in range(1, len(hanging)):
        hanging[one] += 0.8 * hanging[one - 1]
    both = np.stack((noise, hanging, np.full(60_000, 3.0)), axis=1)
    held = 1 + 2 * sum((1 - lag / 4) * 0.8**lag for lag in (1, 2, 3))
    assert spread._beyond_blocks(both, 4) == pytest.approx([1.0, math.sqrt(9 / held), 1.0], rel=0.02)


def test_nineteen_steps_have_none(tmp_path: Path) -> None:
    assert of(read_profile([steps(tmp_path / "a.json", random_steps(1, 19))]), "total").interval is None
    assert of(read_profile([steps(tmp_path / "b.json", random_steps(1, 20))]), "total").interval is not None


def test_a_difference_of_two_symmetric_intervals_is_wide_as_their_root_sum_of_squares() -> None:
    base = StepTime(name="total", ms=4.0, interval=Spread(low_ms=3.7, high_ms=4.3))
    variant = StepTime(name="total", ms=9.0, interval=Spread(low_ms=8.6, high_ms=9.4))
    found = difference(base, variant)
    assert found
    assert (found.low_ms, found.high_ms) == pytest.approx((4.5, 5.5))
    assert difference(base, StepTime(name="total", ms=9.0)) is None


def test_compare_tells_an_interval_of_each_difference(tmp_path: Path) -> None:
    base = steps(tmp_path / "base.json", random_steps(1))
    variant = steps(tmp_path / "variant.json", [one + 100 for one in random_steps(2)])
    found = compare(read_profile([base]), read_profile([variant]))
    for lines in (found.per_step, found.per_token):  # one request: a token is a step
        more = next(one for one in lines if one.name == "matrix work")
        assert more.interval
        assert more.interval.low_ms < (more.difference_ms or 0) < more.interval.high_ms
        assert more.interval.low_ms < 0.1 < more.interval.high_ms
        assert all(one.interval for one in lines)
    told = run_cli("profile", "compare", base, variant, "--json").json
    assert told["per_step"][0]["interval"].keys() == {"low_ms", "high_ms"}
    assert told["base"]["per_step"][0]["interval"]["low_ms"] > 0
    text = run_cli("profile", "compare", base, variant).out
    assert "95 % of it" in text
    assert "chance" not in text
    shown = run_cli("profile", "read", base).out
    row = next(line for line in shown.splitlines() if line.split()[:2] == ["matrix", "work"])
    assert row.split()[7] == "to"


def test_two_and_three_steps_are_rounded_and_said_to_tell_little() -> None:
    text = run_cli("profile", "compare", *ARMS).out
    assert "One step takes about 13 ms instead of 4 (3.1 times), +9 ms: host +7, experts +1." in text
    warning = "3 and 2 decode steps: figures are without intervals"
    assert 0 < text.index(warning) < text.index("One step takes")
    assert "+8.505" not in text
    shown = run_cli("profile", "read", ARMS[1]).out
    assert "Warning: only 2 decode steps" in shown
    assert "12.556" not in shown
    told = json.loads(run_cli("profile", "read", ARMS[1], "--json").out)
    assert any("only 2 decode steps" in one for one in told["warnings"])
    assert all(one["interval"] is None for one in told["per_step"])


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8))
def test_pieces_of_an_interval_are_the_interval(pairs: list[tuple[int, int]]) -> None:
    start = np.array([min(one) for one in pairs], dtype=float)
    end = np.array([max(one) for one in pairs], dtype=float)
    edges = np.array([0.0, 7.0, 20.0, 40.0])
    whole, place, begun, ended = cut(start, end, edges)
    assert np.all(ended >= begun)
    for number in range(len(pairs)):
        for step in range(3):
            chosen = (whole == number) & (place == step)
            wanted = max(0.0, min(end[number], edges[step + 1]) - max(start[number], edges[step]))
            assert float(np.sum(ended[chosen] - begun[chosen])) == pytest.approx(wanted)
