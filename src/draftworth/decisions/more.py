"""What it takes to decide what a trial left open: more prompts, more starts, or neither.

One answer for the decision record and for the page. The variance of a log ratio is p^2 / n + r^2: p the spread between
prompts, r what restarts add. Both are taken from the comparison's own interval: r as its method states it, p as what is
left of its width. With n prompts and restarts that are known, the interval's half-width is
t(f) sqrt(p^2 / n + r^2), f = (p^2 / n + r^2)^2 / ((p^2 / n)^2 / (n - 1)) (Satterthwaite, as in `verdicts.intervals`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from draftworth.reports.words import judged, plural
from draftworth.trials.config import BASELINE
from draftworth.trials.device import device_of
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import Interval
from draftworth.verdicts.rules import MARGIN, PRIOR_LOG_SD_TTFT, restart_priors

MOST_STARTS = 12
"""More starts of each arm than this nobody runs."""
MOST_PROMPTS = 2000
"""More prompts than this nobody sends."""
MOST_REQUESTS = 10_000
"""Nor more requests of one arm, all its starts together."""
POWER = 0.8
_ENOUGH_PAIRS = 10
"""From so many pairs on an interval tells the spread between prompts well enough to plan with."""
_RESTARTS = re.compile(r"restart sd (\d+(?:\.\d+)?(?:e[+-]?\d+)?) %")


@dataclass(frozen=True, slots=True)
class More:
    """What would decide.

    Attributes:
        difference: the difference that is to be shown, as a share: what the trial was to see (`verdict.difference`,
            else the margin). Never what it saw: an undecided estimate is noise, and the largest are the noisiest.
        seen: the difference that it saw.
        dominates: what makes the interval as wide as it is.
        prompt_share: share of the interval's variance that prompts make.
        pair_sd: sd between prompts of the log ratio.
        usual: whether that is the usual one: too few prompts tell their own.
        restart_sd: sd that restarts add to the log ratio, all starts of both arms together.
        had: prompts that the trial had.
        had_starts: starts of the baseline and of the arm.
        prompts: to send in each start; None where no number that anybody runs decides.
        starts: of each arm; None where those it had are enough, or none decides.
        shows: smallest difference that `MOST_STARTS` starts show with as many prompts as anybody sends.
    """

    difference: float
    seen: float
    dominates: Literal["prompts", "restarts"]
    prompt_share: float
    pair_sd: float
    usual: bool
    restart_sd: float
    had: int
    had_starts: tuple[int, int]
    prompts: int | None
    starts: int | None
    shows: float

    @property
    def even_at(self) -> int:
        """Prompts from which on restarts make at least half of the variance, with the starts it had."""
        part = self.pair_sd / self.restart_sd if self.restart_sd else math.inf
        return min(math.ceil(part**2), MOST_PROMPTS) if math.isfinite(part) else MOST_PROMPTS

    @property
    def cause(self) -> str:
        """Which of the two dominates, in a clause with figures."""
        usual = ", the usual one: it had too few to tell" if self.usual else ""
        return (
            f"spread between {self.dominates} dominates (prompts {100 * self.prompt_share:.0f} % of the variance, sd "
            f"{100 * self.pair_sd:.2g} % a prompt{usual}; restarts {100 * (1 - self.prompt_share):.0f} %, "
            f"sd {100 * self.restart_sd:.2g} %)"
        )

    @property
    def advice(self) -> str:
        """What to run, in a clause."""
        base, other = self.had_starts
        if self.prompts is None:
            told = f"{MOST_STARTS} starts of each arm with {_most(MOST_STARTS)} prompts show"
            least = (
                f"{told} {100 * self.shows:.2g} % and more" if math.isfinite(self.shows) else f"{told} no difference"
            )
            if self.dominates == "prompts" and self.even_at > self.had:
                even = f"more prompts: {self.even_at:,} make their part no larger than that of restarts"
                return f"cannot be told with starts ({least}); {even}; it had {self.had:,}"
            return f"cannot be told with more starts or prompts: {least}"
        if self.starts is None and self.prompts <= self.had:
            return f"its own {base} and {other} starts and {plural(self.had, 'prompt')} should do: run it again"
        if self.starts is None:
            return f"more prompts: {self.prompts:,} with {base} and {other} starts; it had {self.had:,}"
        what = "more starts" if self.prompts <= self.had else "more starts and prompts"
        return (
            f"{what}: verdict.starts = {self.starts}, with at least {plural(self.prompts, 'prompt')}; it had "
            f"{base} and {other} starts and {plural(self.had, 'prompt')}"
        )

    @property
    def text(self) -> str:
        """The whole answer."""
        saw = "" if self.difference == self.seen else f" (it saw {100 * self.seen:.2g} %)"
        return (
            f"to show a difference of {100 * self.difference:.2g} %{saw} in {100 * POWER:.0f} of 100 trials: "
            f"{self.advice}; {self.cause}"
        )


def more_evidence(record: TrialRecord, found: ArmComparison) -> More | None:
    """Return what would decide an arm's comparison that did not; None where no ratio could be paired.

    Args:
        record: the trial.
        found: the arm's comparison.
    """
    from scipy import special  # noqa: PLC0415 - lazy

    from draftworth.verdicts.power import PAIR_SD, Design, Spread  # noqa: PLC0415 - lazy: scipy

    ratio, rules = judged(found), _rules(record)
    if ratio is None or not ratio.estimate > 0 or not math.isfinite(ratio.estimate):
        return None
    seen = math.expm1(abs(math.log(ratio.estimate)))
    difference = float(rules.get("difference") or rules.get("margin") or MARGIN)
    arms = {one.name: one for one in record.arms}
    starts = (_starts(arms.get(BASELINE)), _starts(arms.get(found.arm)))
    sds, together = _restart_sds(record, ratio, found.metric, starts)
    own = _pair_sd(ratio, found.pairs, together, special.stdtrit)
    pair_sd = PAIR_SD if own is None else own
    spread = Spread(pair_sd, 0.0, *sds)
    prompt_part = pair_sd**2 / max(found.pairs, 1)
    total = prompt_part + together**2
    share = prompt_part / total if total else 1.0
    by_prompts = share > 1 / 2

    tries: list[tuple[int | None, tuple[int, int]]] = [(None, starts)]
    tries += [(at, (at, at)) for at in range(min(starts) + 1, MOST_STARTS + 1)]
    counts = [(at, _prompts(difference, spread, Design(each, ratio.confidence, POWER))) for at, each in tries]
    able = [(at, count) for at, count in counts if count is not None]
    # Where restarts dominate, the prompts it had should do: more of them would hardly narrow anything.
    few = [one for one in able if one[1] <= max(found.pairs, 2)]
    starts_needed, prompts = (able if by_prompts or not few else few)[0] if able else (None, None)
    return More(
        difference=difference,
        seen=seen,
        dominates="prompts" if by_prompts else "restarts",
        prompt_share=share,
        pair_sd=pair_sd,
        usual=own is None,
        restart_sd=together,
        had=found.pairs,
        had_starts=starts,
        prompts=prompts,
        starts=starts_needed,
        shows=_smallest(spread, Design(MOST_STARTS, ratio.confidence, POWER)),
    )


def _rules(record: TrialRecord) -> Mapping[str, Any]:
    rules = record.config.get("verdict")
    return rules if isinstance(rules, Mapping) else {}


def _starts(arm: ArmRecord | None) -> int:
    return max((one.start for one in arm.starts), default=1) if arm else 1


def _restart_sds(
    record: TrialRecord, ratio: Interval, metric: str, starts: tuple[int, int]
) -> tuple[tuple[float, float], float]:
    """Return the restart sd of each arm, and what they add up to over their starts.

    The interval's own method tells the sum; each arm has its share by the priors.
    """
    rules = _rules(record)
    if metric in {"ttft", "goodput"}:
        base = other = float(rules.get("restart_sd_ttft") or PRIOR_LOG_SD_TTFT)
    else:
        base, other = restart_priors(device_of(record))
        base = float(rules.get("restart_sd_baseline") or base)
        other = float(rules.get("restart_sd_variant") or other)
    prior = math.sqrt(base**2 / starts[0] + other**2 / starts[1])
    told = _RESTARTS.search(ratio.method)
    stated = float(told[1]) / 100 if told else 0.0 if "no restart spread" in ratio.method else None
    if stated is None:
        return (base, other), prior
    scale = stated / prior if prior else 0.0
    return (base * scale, other * scale), stated


def _pair_sd(ratio: Interval, pairs: int, together: float, quantile: Any) -> float | None:
    """Return the spread between prompts that an interval implies beside restarts; None for too few prompts."""
    if ratio.low is None or ratio.high is None or ratio.low <= 0 or pairs < _ENOUGH_PAIRS:
        return None
    half, known = math.log(ratio.high / ratio.low) / 2, together**2

    def width(se: float) -> float:
        total = se**2 + known
        free = min(total**2 / (se**4 / (pairs - 1)), 1e9) if se else 1e9
        return -float(quantile(free, (1 - ratio.confidence) / 2)) * math.sqrt(total)

    if width(0.0) >= half:
        return None  # restarts as they are known now make all of it: nothing is told of prompts
    low, high = 0.0, half
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if width(middle) < half else (low, middle)
    return high * math.sqrt(pairs)


def _most(starts: int) -> int:
    """Return the most prompts that anybody sends in each of so many starts."""
    return min(MOST_PROMPTS, MOST_REQUESTS // starts)


def _prompts(difference: float, spread: Any, design: Any) -> int | None:
    """Return the fewest prompts that show a difference; None where the most that anybody sends do not."""
    from draftworth.verdicts.power import chance  # noqa: PLC0415 - lazy: scipy

    most = _most(max(design.by_arm))
    if chance(difference, most, spread, design) < POWER:
        return None
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chance(difference, middle, spread, design) >= POWER else (middle, high)
    return high


def _smallest(spread: Any, design: Any) -> float:
    """Return the smallest difference that any number of prompts shows; infinite where not even a factor of 1000."""
    from draftworth.verdicts.power import chance  # noqa: PLC0415 - lazy: scipy

    low, high, most = 0.0, 1000.0, _most(max(design.by_arm))
    if chance(high, most, spread, design) < POWER:
        return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle, most, spread, design) >= POWER else (middle, high)
    return high
