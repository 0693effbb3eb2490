"""Simulated trials with a known truth: what the intervals cover, and how often a verdict is false.

Many trials are drawn at once and go through the code that makes a real verdict (`draftworth.verdicts.intervals`). A
trial has prompts that differ (log sd 0.5), an arm that changes each prompt its own way (log sd 0.12, as speculation
does), noise of each request (log sd 0.03), and restarts that move a whole start. *Heavy* draws one value in ten of the
first two with three times the sd (kurtosis 8.3; normal has 3).

Writes benchmarks/results/interval_coverage.json and the tables in docs/statistics.md; `--only prior` one of them.
"""

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from scipy import special

from draftworth.verdicts.intervals import LogLimits, Table, log_limits, restarts, unseen
from draftworth.verdicts.restarts import Floats
from draftworth.verdicts.rules import PRIOR_LOG_SD_BASELINE, PRIOR_LOG_SD_VARIANT
from draftworth.verdicts.sequential import nominal_levels

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "interval_coverage.json"
PAGE = ROOT / "docs" / "statistics.md"
PROMPT_SD, PAIR_SD, NOISE_SD = 0.5, 0.12, 0.03
BASELINE_SD = 0.005
WIDE = 0.1
"""Share of the values of heavy tails that have three times the sd."""
MARGIN = 0.02
BATCH = 250
"""Trials drawn at once: 4,000 resamples of them take 8 MB."""
STARTS, RESTART_SDS, PROMPTS = (1, 2, 3, 5), (0.0, 0.05, 0.11), (16, 64, 512)
TRUE_SDS = (0.0, 0.05, 0.08, 0.11)
"""Restart spreads of the variant that the default prior is put to."""


@dataclass(frozen=True)
class Cell:
    """One kind of trial.

    Attributes:
        starts: of each arm.
        restart_sd: of the variant, log.
        prompts: in each start, the same ones.
        heavy: whether the tails are.
        baseline_sd: restart sd of the baseline, log.
        prior: stated for the variant; the truth where None. The baseline's is always true.
        log_ratio: the truth.
        pair_sd: how differently the prompts change between the arms, log.
        noise_sd: of one request, log.
        equal: whether the arms are drawn alike: each changes the prompts its own way by half of that variance.
    """

    starts: int
    restart_sd: float
    prompts: int
    heavy: bool
    baseline_sd: float = BASELINE_SD
    prior: float | None = None
    log_ratio: float = math.log(0.8)
    pair_sd: float = PAIR_SD
    noise_sd: float = NOISE_SD
    equal: bool = False

    @property
    def alike(self) -> "Cell":
        """The same with two equal arms that both speculate."""
        return replace(self, baseline_sd=self.restart_sd, log_ratio=0.0, equal=True)

    @property
    def seed(self) -> list[int]:
        """Seed of its trials."""
        sds = (self.restart_sd, self.baseline_sd, self.pair_sd, self.noise_sd)
        return [self.starts, self.prompts, int(self.heavy), *(round(10_000 * sd) for sd in sds)]


def grid() -> list[Cell]:
    """Return every cell of the grid."""
    return [
        Cell(starts, sd, prompts, heavy)
        for starts in STARTS
        for sd in RESTART_SDS
        for prompts in PROMPTS
        for heavy in (False, True)
    ]


def spread(rng: np.random.Generator, shape: tuple[int, ...], sd: float, *, heavy: bool) -> Floats:
    """Return log noise whose exponential has the mean 1."""
    normal = rng.standard_normal(shape)
    if not heavy:
        return normal * sd - sd**2 / 2
    mean = (1 - WIDE) * math.exp(sd**2 / 2) + WIDE * math.exp((3 * sd) ** 2 / 2)
    wide: Floats = normal * np.where(rng.random(shape) < WIDE, 3 * sd, sd) - math.log(mean)
    return wide


def draw(rng: np.random.Generator, cell: Cell, trials: int) -> Table:
    """Return the tables of TPOT of many trials."""
    t, s, n = trials, cell.starts, cell.prompts
    prompts = rng.normal(2.5, PROMPT_SD, (t, 1, n))
    own = cell.pair_sd / math.sqrt(2) if cell.equal else cell.pair_sd
    before = prompts + spread(rng, (t, 1, n), own, heavy=cell.heavy) if cell.equal else prompts
    after = prompts + spread(rng, (t, 1, n), own, heavy=cell.heavy) + cell.log_ratio

    def arm(mean: Floats, restart_sd: float) -> Floats:
        moved = restart_sd * rng.standard_normal((t, s, 1))
        arm: Floats = np.exp(mean + moved + spread(rng, (t, s, n), cell.noise_sd, heavy=cell.heavy))[..., None]
        return arm

    return Table(arm(before, cell.baseline_sd), arm(after, cell.restart_sd))


def limits(cell: Cell, trials: int, confidence: float = 0.95) -> LogLimits:
    """Return the limits of many simulated trials."""
    rng = np.random.default_rng(cell.seed)
    parts = []
    for first in range(0, trials, BATCH):
        table = draw(rng, cell, min(BATCH, trials - first))
        prior = cell.restart_sd if cell.prior is None else cell.prior
        between = restarts(table, cell.baseline_sd, prior)
        parts.append(log_limits(table, between, confidence=confidence, seed=1))
    return LogLimits(*(np.concatenate([getattr(part, end) for part in parts]) for end in ("estimate", "low", "high")))


def coverage(cell: Cell, trials: int, confidence: float = 0.95) -> float:
    """Return the share of trials whose interval holds the truth."""
    found = limits(cell, trials, confidence)
    return float(((found.low <= cell.log_ratio) & (cell.log_ratio <= found.high)).mean())


def differs(found: LogLimits, margin: float = MARGIN) -> Floats:
    """Return 1 where the verdict is faster or slower, 0 elsewhere."""
    within = (found.low > math.log(1 - margin)) & (found.high < math.log(1 + margin))
    return np.asarray(~within & ((found.low > 0) | (found.high < 0)), dtype=np.float64)


def false_verdicts(cell: Cell, trials: int) -> float:
    """Return how often two equal arms are called faster or slower, in one look."""
    return float(differs(limits(cell.alike, trials)).mean())


def false_with_looks(cell: Cell, trials: int, *, by: str = "starts", kept: bool = True) -> float:
    """Return how often two equal arms are called faster or slower at any of several looks.

    Args:
        cell: of the last look.
        trials: how many.
        by: `starts`: a look after each start, the same prompts in each; `prompts`: five looks of one start, each
            after another fifth of the prompts.
        kept: whether the looks share the error; else each is taken at 5 %, which is wrong.
    """
    cell = cell.alike
    rng = np.random.default_rng([*cell.seed, len(by)])
    looks = cell.starts if by == "starts" else 5
    levels = nominal_levels(looks, 0.05) if kept else (0.05,) * looks
    wrong = 0.0
    for first in range(0, trials, BATCH):
        table = draw(rng, cell, min(BATCH, trials - first))
        called = np.zeros(table.baseline.shape[0])
        for look in range(1, looks + 1):
            starts, prompts = (look, cell.prompts) if by == "starts" else (cell.starts, cell.prompts * look // looks)
            part = Table(table.baseline[:, :starts, :prompts], table.variant[:, :starts, :prompts])
            between = restarts(part, cell.baseline_sd, cell.restart_sd)
            found = log_limits(part, between, confidence=1 - levels[look - 1], seed=1)
            called = np.maximum(called, differs(found))
        wrong += float(called.sum())
    return wrong / trials


def rate_coverage(metric: str, share: float, prompts: int, trials: int) -> float:
    """Return the coverage for throughput and goodput, one start, no restart spread, light tails.

    Times are log-normal, so the truth is exact: a request is within the limit with probability
    Phi((limit - mean) / sd).

    Args:
        metric: `throughput`, `goodput` (closed loop) or `share` (goodput of an open loop).
        share: of the baseline's requests within the limit.
        prompts: one request each.
        trials: how many.
    """
    rng = np.random.default_rng([len(metric), prompts, round(1000 * share)])
    ratio = 0.8
    sds = [math.hypot(PROMPT_SD, NOISE_SD), math.sqrt(PROMPT_SD**2 + NOISE_SD**2 + PAIR_SD**2)]
    means = [-(NOISE_SD**2) / 2, math.log(ratio) - (NOISE_SD**2 + PAIR_SD**2) / 2]
    limit = means[0] + sds[0] * float(special.ndtri(share))
    good = [float(special.ndtr((limit - mean) / sd)) for mean, sd in zip(means, sds, strict=True)]
    truth = {"throughput": 1 / ratio, "goodput": good[1] / good[0] / ratio, "share": good[1] / good[0]}[metric]
    hits = 0.0
    for first in range(0, trials, BATCH):
        count = min(BATCH, trials - first)
        shape = (count, 1, prompts)
        own = rng.normal(0, PROMPT_SD, shape)
        tokens = np.exp(rng.normal(5, 0.6, shape))
        pulls = [np.zeros(shape), math.log(ratio) + spread(rng, shape, PAIR_SD, heavy=False)]
        times = [np.exp(own + pull + spread(rng, shape, NOISE_SD, heavy=False)) for pull in pulls]
        powers: tuple[int, ...]
        if metric == "throughput":
            arms, powers = [np.stack([tokens, tokens * time], axis=-1) for time in times], (1, -1)
        else:
            met = [(np.log(time) <= limit).astype(np.float64) for time in times]
            one = np.ones(shape)
            arms = [np.stack([ok, one, one, time], axis=-1) for ok, time in zip(met, times, strict=True)]
            powers = (1, -1, 1, -1) if metric == "goodput" else (1, -1)
            arms = [arm[..., : len(powers)] for arm in arms]
        rates = Table(arms[0], arms[1], powers)
        # Trials where an arm met no limit have no ratio and no verdict.
        counts = [arm[..., 0].sum(axis=(1, 2)) for arm in (rates.baseline, rates.variant)]
        some = np.flatnonzero((counts[0] > 0) & (counts[1] > 0))
        rates = Table(rates.baseline[some], rates.variant[some], powers)
        extra = 0.0 if metric == "throughput" else unseen(rates)
        found = log_limits(rates, restarts(rates, 0.0, 0.0), confidence=0.95, seed=1, extra_variance=extra)
        held = (found.low <= math.log(truth)) & (math.log(truth) <= found.high)
        hits += float(held.sum()) + count - len(some)
    return hits / trials


def grid_of(values: Mapping[Cell, float]) -> list[list[str]]:
    """Return rows of a Markdown table, starts and restart spread down, prompts and tails across."""
    columns = sorted({(cell.prompts, cell.heavy) for cell in values})
    head = ["starts", "restart sd", *(f"{n}, {'heavy' if heavy else 'light'}" for n, heavy in columns)]
    rows = sorted({(cell.starts, cell.restart_sd) for cell in values})
    found = {(cell.starts, cell.restart_sd, cell.prompts, cell.heavy): value for cell, value in values.items()}
    body = [[str(s), f"{100 * sd:g} %", *(percent(found[s, sd, n, heavy]) for n, heavy in columns)] for s, sd in rows]
    return [head, *body]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, the first row its head."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def percent(share: float) -> str:
    """Return a share in percent, without the sign."""
    return f"{100 * share:.1f}"


def listed(values: Mapping[Cell, float]) -> list[dict[str, object]]:
    """Return the cells with their values, for JSON."""
    return [{**asdict(cell), "share": value} for cell, value in values.items()]


Part = tuple[dict[str, object], list[list[str]]]
"""What a part adds to the results, and its table."""


def covered_part(trials: int) -> Part:
    """Coverage of every cell of the grid."""
    found = {cell: coverage(cell, trials) for cell in grid()}
    print(f"{trials} trials a cell: covered {percent(min(found.values()))} to {percent(max(found.values()))} %")
    return {"coverage": listed(found)}, grid_of(found)


def small() -> list[Cell]:
    """Return the cells of the grid without those of the most prompts."""
    return [cell for cell in grid() if cell.prompts != max(PROMPTS)]


def alike_part(trials: int) -> Part:
    """False verdicts on equal arms, one look."""
    found = {cell: false_verdicts(cell, trials) for cell in small()}
    return {"false_verdicts_one_look": listed(found)}, grid_of(found)


def looks_part(trials: int) -> Part:
    """False verdicts with a look after each start."""
    found = {cell: false_with_looks(cell, trials) for cell in small() if cell.starts > 1}
    return {"false_verdicts_look_after_each_start": listed(found)}, grid_of(found)


def batches_part(trials: int) -> Part:
    """False verdicts of one start with five looks."""
    cells = [Cell(1, sd, n, heavy) for sd in RESTART_SDS for n in (80, 320) for heavy in (False, True)]
    found = {cell: false_with_looks(cell, trials, by="prompts") for cell in cells}
    return {"false_verdicts_five_looks_of_one_start": listed(found)}, grid_of(found)


def default_cell(starts: int, restart_sd: float) -> Cell:
    """Return 64 prompts judged by the default priors, that of the baseline true."""
    base = PRIOR_LOG_SD_BASELINE
    return Cell(starts, restart_sd, 64, heavy=False, baseline_sd=base, prior=PRIOR_LOG_SD_VARIANT)


def prior_part(trials: int) -> Part:
    """Coverage by the default priors, whatever the truth is."""
    found = {(starts, sd): default_cell(starts, sd) for starts in (1, 2) for sd in TRUE_SDS}
    covered = {key: coverage(cell, trials) for key, cell in found.items()}
    rows = [["starts", *(f"truth {100 * sd:g} %" for sd in TRUE_SDS)]]
    rows += [[str(starts), *(percent(covered[starts, sd]) for sd in TRUE_SDS)] for starts in (1, 2)]
    told = {"trials": trials, "cells": listed({cell: covered[key] for key, cell in found.items()})}
    return {"coverage_at_the_default_prior": told}, rows


def noise_part(trials: int) -> Part:
    """Coverage where the arms change every prompt alike and requests are noisy."""
    cells = {
        (starts, sd): Cell(starts, sd, 64, heavy=False, pair_sd=0.0, noise_sd=0.08)
        for starts in STARTS
        for sd in RESTART_SDS
    }
    covered = {key: coverage(cell, trials) for key, cell in cells.items()}
    rows = [["starts", *(f"restart sd {100 * sd:g} %" for sd in RESTART_SDS)]]
    rows += [[str(starts), *(percent(covered[starts, sd]) for sd in RESTART_SDS)] for starts in STARTS]
    told = listed({cell: covered[key] for key, cell in cells.items()})
    return {"coverage_where_all_spread_is_noise_of_requests": told}, rows


def rates_part(trials: int) -> Part:
    """Coverage of throughput and goodput."""
    shares = (0.1, 0.5, 0.9)
    found = {
        (metric, share, n): rate_coverage(metric, share, n, trials)
        for metric, asked in (("throughput", (0.5,)), ("goodput", shares), ("share", shares))
        for share in asked
        for n in PROMPTS
    }
    names = {"throughput": "throughput", "goodput": "goodput, closed loop", "share": "goodput, open loop"}
    rows = [["metric", "requests within the limits", *map(str, PROMPTS)]]
    for metric, share in dict.fromkeys((metric, share) for metric, share, _ in found):
        within = "" if metric == "throughput" else f"{100 * share:.0f} %"
        rows.append([names[metric], within, *(percent(found[metric, share, n]) for n in PROMPTS)])
    told = [
        {"metric": metric, "share": share, "prompts": n, "share_covered": value}
        for (metric, share, n), value in found.items()
    ]
    return {"coverage_of_rates": told}, rows


PARTS: dict[str, Callable[[int], Part]] = {
    "coverage": covered_part,
    "alike": alike_part,
    "looks": looks_part,
    "batches": batches_part,
    "prior": prior_part,
    "noise": noise_part,
    "rates": rates_part,
}
"""By the name of the table in the docs."""


def main() -> None:
    """Simulate and write."""
    parser = argparse.ArgumentParser(description="Simulated trials with a known truth.")
    parser.add_argument("trials", nargs="?", type=int, default=10_000, help="trials a cell")
    parser.add_argument("--only", choices=PARTS, help="only this part; the others stay as they are")
    asked = parser.parse_args()
    result: dict[str, object] = {"trials": asked.trials}
    if asked.only:
        result = json.loads(RESULT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for name in [asked.only] if asked.only else PARTS:
        told, rows = PARTS[name](asked.trials)
        result |= told
        begin, end = f"<!-- {name}: by benchmarks/interval_coverage.py -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{table(rows)}\n{end}{rest.partition(end)[2]}"
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
