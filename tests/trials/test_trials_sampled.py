"""At a temperature above 0 a variant's answers are compared with the baseline's as samples."""

from typing import Any

import pytest
from tests.trials.test_trials_outcome import config_of, row
from tests.verdicts.test_verdicts_sampled_check import answers

from draftworth.bench.base import Closed, ScoredOutput
from draftworth.bench.points import Point
from draftworth.bench.window import Window
from draftworth.engines.vllm import VLLM
from draftworth.findings import Code
from draftworth.trials.base import Block, Outcome, Scores
from draftworth.trials.judge import arms_of, judge_all

POINT = Point(Closed(1), 8)


def judged(
    away: float, temperature: float = 0.8, *, check: bool = True, points: tuple[Point, ...] = (POINT,), starts: int = 1
) -> tuple[Any, list[Any]]:
    """A variant twice as fast that takes a share of its answers from elsewhere; each seed answered alike everywhere."""
    config = config_of("ngram", restart_sd_baseline=0.0, restart_sd_variant=0.0, output_check=check)
    config = config.model_copy(
        update={"workload": config.workload.model_copy(update={"temperature": temperature, "repeats": 12})}
    )
    blocks = []
    for number, (arm, tpot, share) in enumerate((("baseline", 10.0, 0.0), ("ngram", 5.0, away)), 1):
        written = answers(arm, number, away=share)
        for start in range(1, starts + 1):
            windows = [
                Window(
                    arm,
                    point,
                    [
                        row(
                            arm, one.prompt_id, tpot, token_ids=one.token_ids, repeat=one.repeat, point=point.label,
                            start=start, block=10 * start + number,
                        )
                        for one in written
                    ],
                )
                for point in points
            ]  # fmt: skip
            blocks.append(Block(arm, 10 * start + number, start, windows=windows))
    arms = arms_of(config, {"baseline": (), "ngram": ()})
    greedy = {arm: [ScoredOutput("p", arm, (0.0,) * 50, 50)] for arm in ("baseline", "ngram")}  # nothing wrong there
    (found,), _, findings = judge_all(Outcome(blocks=blocks, scores=Scores(greedy)), arms, config, VLLM())
    return found, findings


def test_a_variant_that_samples_otherwise_is_never_called_faster() -> None:
    found, findings = judged(0.7)
    assert found.sampled_check.status == "diverged"
    assert found.verdict == "inconclusive"
    assert "another distribution" in found.reason
    (told,) = [one for one in findings if one.code is Code.SAMPLED_DIVERGED]
    assert (told.severity, told.arm) == ("breach", "ngram")


def test_a_variant_that_samples_alike_stays_faster_and_the_power_is_stated() -> None:
    found, findings = judged(0.0)
    assert (found.sampled_check.status, found.verdict) == ("same", "faster")
    assert "would have been seen with a chance of 80%" in found.sampled_check.reason
    assert Code.SAMPLED_DIVERGED not in {one.code for one in findings}


SWEEP = tuple(Point(Closed(at_once), 8, label=f"{at_once} at a time") for at_once in (1, 4, 8))


@pytest.mark.parametrize(("points", "starts"), [(SWEEP, 1), ((POINT,), 3), (SWEEP, 2)])
def test_a_sweep_and_several_starts_say_of_the_samples_what_one_load_says(
    points: tuple[Point, ...], starts: int
) -> None:
    once, _ = judged(0.0)
    found, findings = judged(0.0, points=points, starts=starts)
    assert (found.sampled_check.status, found.sampled_check.p_value) == ("same", once.sampled_check.p_value)
    assert Code.SAMPLED_DIVERGED not in {one.code for one in findings}
    shifted, findings = judged(0.7, points=points, starts=starts)
    assert (shifted.sampled_check.status, shifted.verdict) == ("diverged", "inconclusive")
    assert Code.SAMPLED_DIVERGED in {one.code for one in findings}


@pytest.mark.parametrize(("temperature", "check"), [(0.0, True), (0.8, False)])
def test_greedy_trials_and_trials_without_the_check_have_none(temperature: float, check: bool) -> None:  # noqa: FBT001 - pytest passes it
    assert judged(0.7, temperature, check=check)[0].sampled_check is None
