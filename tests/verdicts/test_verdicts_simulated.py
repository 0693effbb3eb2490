"""Trials with a known truth: do the intervals cover it, and how often does a verdict call a difference that is none?

The simulation is benchmarks/interval_coverage.py, which calls the code of real verdicts. Seeds are fixed, so a test
that passes passes again.
"""

import itertools
import math

import numpy as np
import pytest
from benchmarks.interval_coverage import (
    RESTART_SDS,
    STARTS,
    Cell,
    coverage,
    default_cell,
    draw,
    false_verdicts,
    false_with_looks,
    grid,
    rate_coverage,
)

from draftworth.bench.base import RequestRow
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.compare import compare, enough
from draftworth.verdicts.restarts import Floats
from draftworth.verdicts.rules import Rules

TRIALS = 1000
MANY = 10_000
LOOKED_AT = [cell for cell in grid() if cell.starts > 1 and cell.prompts < 512]


def at_most_5_percent(trials: int) -> float:
    """The bound that a true rate of 5 % keeps with a probability of 99 % (one-sided)."""
    return 0.05 + 2.326 * math.sqrt(0.05 * 0.95 / trials)


def named(cell: Cell) -> str:
    tails = "heavy" if cell.heavy else "light"
    return f"{cell.starts} starts, {100 * cell.restart_sd:g} %, {cell.prompts} prompts, {tails}"


def outside(cells: list[Cell], trials: int, slack: float) -> dict[str, float]:
    """Return the cells whose coverage lies outside 93 to 97 %, widened by the slack."""
    found = {named(cell): coverage(cell, trials) for cell in cells}
    return {name: share for name, share in found.items() if not 0.93 - slack <= share <= 0.97 + slack}


# --- coverage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("starts", "sd"), list(itertools.product(STARTS, RESTART_SDS)))
def test_a_95_percent_interval_covers_93_to_97_percent(starts: int, sd: float) -> None:
    cells = [cell for cell in grid() if (cell.starts, cell.restart_sd) == (starts, sd)]
    assert len(cells) == 6
    # Slack: one Monte-Carlo standard error of 1,000 trials.
    assert outside(cells, TRIALS, 0.007) == {}


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_a_95_percent_interval_covers_93_to_97_percent_in_every_cell_of_ten_thousand_trials() -> None:
    assert outside(grid(), MANY, 0.0) == {}


def test_few_prompts_cover_at_least_what_is_stated() -> None:
    for prompts in (2, 4, 7):
        for sd in (0.0, 0.05):
            assert coverage(Cell(1, sd, prompts, heavy=True), TRIALS) >= 0.94


def test_a_corrected_level_covers_more() -> None:
    # Eight categories: 1 - 0.05 / 8.
    assert coverage(Cell(1, 0.0, 16, heavy=False), TRIALS, confidence=0.99375) >= 0.99
    assert coverage(Cell(3, 0.05, 64, heavy=True), TRIALS, confidence=0.99375) >= 0.985


@pytest.mark.parametrize(
    ("metric", "share"), [("throughput", 0.5), ("goodput", 0.5), ("goodput", 0.9), ("share", 0.5), ("share", 0.9)]
)
def test_rates_are_covered(metric: str, share: float) -> None:
    # Counts are few and whole: above 97 % for few prompts, never much below 95.
    for prompts in (16, 64, 512):
        assert rate_coverage(metric, share, prompts, TRIALS) >= 0.935


def test_a_prior_that_is_too_small_covers_less_and_three_starts_need_none() -> None:
    one, two = (coverage(Cell(starts, 0.11, 64, heavy=False, prior=0.05), TRIALS) for starts in (1, 2))
    # One start: P(|Z| < 1.96 * 5 / 11) = 62.6 %.
    assert one == pytest.approx(0.626, abs=0.05)
    assert one + 0.1 < two < 0.9
    assert coverage(Cell(3, 0.11, 64, heavy=False, prior=0.05), TRIALS) >= 0.93


def test_the_default_prior_covers_what_was_measured_and_says_too_little_at_11_percent() -> None:
    one, two = ([coverage(default_cell(starts, sd), TRIALS) for sd in (0.05, 0.08, 0.11)] for starts in (1, 2))
    assert min(one[:2] + two[:2]) >= 0.93
    # One start: P(|Z| < 1.96 sd / truth) where nothing but restarts spreads: 99.8, 95.0 and 84.6 %.
    assert one == pytest.approx([0.998, 0.95, 0.846], abs=0.03)
    assert one[2] < two[2] < 0.95


# --- equal arms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts", STARTS)
def test_equal_arms_are_called_different_in_at_most_5_percent(starts: int) -> None:
    cells = [cell for cell in grid() if cell.starts == starts and cell.prompts < 512]
    found = {named(cell): false_verdicts(cell, TRIALS) for cell in cells}
    assert {name: share for name, share in found.items() if share > at_most_5_percent(TRIALS)} == {}


@pytest.mark.parametrize("starts", [2, 3, 5])
def test_a_look_after_every_start_keeps_the_error(starts: int) -> None:
    cells = [cell for cell in LOOKED_AT if cell.starts == starts]
    found = {named(cell): false_with_looks(cell, TRIALS) for cell in cells}
    assert {name: share for name, share in found.items() if share > at_most_5_percent(TRIALS)} == {}


@pytest.mark.parametrize("sd", RESTART_SDS)
def test_a_look_after_every_batch_of_fresh_prompts_keeps_the_error(sd: float) -> None:
    cells = [Cell(1, sd, prompts, heavy) for prompts in (80, 320) for heavy in (False, True)]
    found = {named(cell): false_with_looks(cell, TRIALS, by="prompts") for cell in cells}
    assert {name: share for name, share in found.items() if share > at_most_5_percent(TRIALS)} == {}


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_equal_arms_over_ten_thousand_trials() -> None:
    found = {named(cell): false_verdicts(cell, MANY) for cell in grid()}
    found |= {f"looks, {named(cell)}": false_with_looks(cell, MANY) for cell in LOOKED_AT}
    for sd, prompts, heavy in itertools.product(RESTART_SDS, (80, 320), (False, True)):
        cell = Cell(1, sd, prompts, heavy)
        found[f"batches, {named(cell)}"] = false_with_looks(cell, MANY, by="prompts")
    assert {name: share for name, share in found.items() if share > at_most_5_percent(MANY)} == {}


def test_five_looks_at_the_level_of_one_would_be_wrong_far_more_often() -> None:
    # The textbook: five looks at 5 % each are wrong in 14 %. Shows that the simulation would notice.
    cell = Cell(1, 0.0, 320, heavy=False)
    assert false_with_looks(cell, TRIALS, by="prompts", kept=False) > 0.10


# --- whole comparisons ----------------------------------------------------------------------------------------------


def arm(name: str, starts: Floats) -> list[list[RequestRow]]:
    """Rows as a bench would give them, a block a start."""
    return [
        [
            RequestRow(
                arm=name,
                block=start,
                start=start,
                prompt_id=f"p{i:02}",
                category=("chat", "code", "json")[i % 3],
                repeat=0,
                started_unix=0.0,
                ok=True,
                tokens=101,
                first_chunk_tokens=1,
                token_source="usage",
                ttft_ms=8 * tpot,
                decode_ms=100 * tpot,
                tpot_ms=tpot,
                e2e_ms=108 * tpot,
            )
            for i, tpot in enumerate(tpots.tolist())
        ]
        for start, tpots in enumerate(starts, 1)
    ]


def ended(cell: Cell, trials: int) -> list[tuple[Verdict, int]]:
    """Verdicts of whole trials that stop when the evidence is enough, with the starts they took."""
    table = draw(np.random.default_rng(cell.seed), cell, trials)
    found = []
    for base, other in zip(table.baseline[..., 0], table.variant[..., 0], strict=True):
        for look in range(1, cell.starts + 1):
            rules = Rules(look=look, looks=cell.starts, prior_baseline=cell.baseline_sd, prior_variant=cell.restart_sd)
            comparison = compare(arm("baseline", base[:look]), arm("variant", other[:look]), rules).comparison
            if enough(comparison):
                break
        found.append((comparison.verdict, look))
    return found


def test_whole_trials_of_equal_arms_keep_the_error_with_sequential_stopping() -> None:
    found = ended(Cell(3, 0.05, 16, heavy=True).alike, 300)
    wrong = sum(verdict in {Verdict.FASTER, Verdict.SLOWER} for verdict, _ in found)
    assert wrong / 300 <= at_most_5_percent(300)


def test_whole_trials_stop_early_on_a_gain_of_a_third_and_find_it() -> None:
    found = ended(Cell(3, 0.05, 24, heavy=False, log_ratio=math.log(2 / 3)), 100)
    assert sum(verdict is Verdict.FASTER for verdict, _ in found) >= 98
    assert sum(look == 1 for _, look in found) >= 90


def test_whole_trials_call_quiet_equal_arms_no_difference() -> None:
    cell = Cell(3, 0.0, 64, heavy=False, baseline_sd=0.0, log_ratio=0.0, pair_sd=0.01, noise_sd=0.01)
    found = ended(cell, 100)
    assert sum(verdict is Verdict.NO_DIFFERENCE for verdict, _ in found) >= 97
