"""What a search names as the best: what is faster, with the same output, over all loads and at each."""

from typing import Any

import pytest

from draftworth.bench.base import Closed
from draftworth.bench.points import Point
from draftworth.engines.vllm import VLLM
from draftworth.search.base import LogSpeed, Observation
from draftworth.search.record import SearchRecord, Tried
from draftworth.trials.record import ArmComparison
from draftworth.trials.remarks import ArmInfo
from draftworth.trials.search_best import with_best
from draftworth.trials.search_told import best_known, over_this_start
from draftworth.verdicts.base import CategoryComparison, Interval, OutputCheck, Verdict

LOADS = (1, 4)
SWEEP = [Point(Closed(load), 128, label=f"{load} at a time") for load in LOADS]


def arm(name: str, at: dict[int, float], check: str, verdict: Verdict) -> ArmComparison:
    """Return an arm with these TPOT ratios, each known to 2 %; at loads it is faster where that is below 1."""

    def group(load: int, ratio: float) -> CategoryComparison:
        said = Verdict.FASTER if ratio < 1 else Verdict.SLOWER
        return CategoryComparison(
            category=f"{load} at a time", kind="point", verdict=said, tpot_ratio=around(ratio), reason=""
        )

    return ArmComparison(
        arm=name,
        verdict=verdict,
        tpot_ratio=around(sum(at.values()) / len(at)),
        categories=tuple(group(load, ratio) for load, ratio in at.items()),
        output_check=OutputCheck(status=check, reason=""),
    )


def around(ratio: float) -> Interval:
    return Interval(estimate=ratio, low=0.98 * ratio, high=1.02 * ratio)


def found(*arms: ArmComparison, **options: Any) -> SearchRecord:
    record = SearchRecord(candidates=len(arms), loads=LOADS, tried=tuple(Tried(name=one.arm, why="") for one in arms))
    infos = [ArmInfo("baseline")] + [
        ArmInfo(one.arm, config={"method": "ngram", "num_speculative_tokens": int(one.arm[1:])}, speculates=True)
        for one in arms
    ]
    return with_best(record, arms, {}, arms=infos, sweep=SWEEP, engine=VLLM(), **options)


@pytest.mark.parametrize("check", ["diverged", "suspect", "unchecked"])
def test_what_writes_something_else_is_best_at_no_load(check: str) -> None:
    wrong = arm("k5", {1: 0.3, 4: 0.3}, check, Verdict.ERROR)
    right = arm("k3", {1: 0.8, 4: 0.9}, "same", Verdict.FASTER)
    told = found(wrong, right)
    assert [(one.load, one.arm) for one in told.best] == [(None, "k3")]
    assert told.schedule is None
    assert [(one.load, one.arm) for one in found(wrong).best] == [(None, "baseline")]


def test_the_best_of_each_load_and_one_setting_of_both() -> None:
    told = found(
        arm("k3", {1: 0.8, 4: 0.9}, "same", Verdict.FASTER), arm("k5", {1: 0.7, 4: 1.2}, "same", Verdict.SLOWER)
    )
    assert [(one.load, one.arm) for one in told.best] == [(None, "k3"), (1, "k5")]
    assert told.schedule is not None
    assert told.schedule["num_speculative_tokens"] == 5
    table = told.schedule["num_speculative_tokens_per_batch_size"]
    assert [tuple(one)[2] for one in table if one[0] <= 1 <= one[1]] == [5]
    assert [tuple(one)[2] for one in table if one[0] <= 4 <= one[1]] == [3]


def test_without_a_check_speed_alone_decides() -> None:
    one = arm("k5", {1: 0.5, 4: 1.1}, "unchecked", Verdict.INCONCLUSIVE)
    assert [(best.load, best.arm) for best in found(one, checked=False).best] == [(None, "baseline"), (1, "k5")]


def test_an_earlier_trials_figure_is_over_another_start_of_the_baseline() -> None:
    told = {1: LogSpeed(value=0.2, sd=0.03)}
    here, before = Observation(candidate="a", measured=told), Observation(candidate="a", baseline="t", measured=told)
    assert over_this_start(here, 0.04) == told
    # Both starts: 2 x 0.04 squared beside 0.03 squared.
    assert over_this_start(before, 0.04)[1].sd == pytest.approx((0.03**2 + 2 * 0.04**2) ** 0.5)
    best = best_known({"a": over_this_start(before, 0.04)}, (1,), 0.04)
    assert best[1].value == 0.2
    assert best[1].sd == pytest.approx(0.0640, abs=1e-4)
