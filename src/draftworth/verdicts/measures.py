"""The four metrics of one comparison, paired and judged at a level."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftworth.verdicts.base import Comparison, Interval, Verdict
from draftworth.verdicts.decision import decide, percent
from draftworth.verdicts.intervals import interval, restarts, unseen
from draftworth.verdicts.pairing import Paired, Start, pair
from draftworth.verdicts.restarts import NO_RESTARTS, Restarts
from draftworth.verdicts.rules import Metric, Rules
from draftworth.verdicts.sequential import SPENDING, nominal_levels
from draftworth.verdicts.shift import hodges_lehmann

METRICS: tuple[Metric, ...] = ("tpot", "ttft", "throughput", "goodput")


@dataclass(frozen=True, slots=True)
class Level:
    """At which level an interval is made, and why it is not the stated one."""

    confidence: float
    note: str = ""


def level(rules: Rules, variants: float, groups: int, *, looks: bool = True) -> Level:
    """Return the level left for one of `variants` x `groups` comparisons (Bonferroni) at this look.

    Looks share what the correction leaves by alpha spending, see `sequential`.
    """
    several = rules.correction if variants == rules.variants and rules.correction else f"{variants:g} variants"
    parts = [several] * (variants > 1) + [f"{groups} groups"] * (groups > 1)
    note = f"; level corrected for {' x '.join(parts)} (Bonferroni)" if parts else ""
    alpha = (1 - rules.confidence) / (variants * groups)
    if looks and rules.looks > 1:
        note += f"; look {rules.look} of {rules.looks} ({SPENDING} spending)"
        alpha = nominal_levels(rules.looks, alpha)[rules.look - 1]
    return Level(1 - alpha, note)


def measure(baseline: Sequence[Start], variant: Sequence[Start], rules: Rules) -> dict[Metric, Paired]:
    """Return what could be paired, by metric: goodput where a limit is stated, throughput in a closed loop."""
    left_out = {"goodput": not rules.limits.stated, "throughput": rules.open_loop}
    return {
        metric: pair(baseline, variant, metric, rules.limits, open_loop=rules.open_loop)
        for metric in METRICS
        if not left_out.get(metric, False)
    }


def restart_parts(measured: Mapping[Metric, Paired], rules: Rules) -> dict[Metric, Restarts]:
    """Return the restart part of each metric. It belongs to the server: groups share what all prompts tell of it."""
    return {
        metric: restarts(paired.table, *rules.priors(metric)) if paired.table.defined else NO_RESTARTS
        for metric, paired in measured.items()
    }


def judged(
    measured: Mapping[Metric, Paired], between: Mapping[Metric, Restarts], rules: Rules, at: Level
) -> Comparison:
    """Return the comparison at a level, with its verdict."""
    ratios = {
        metric: interval(
            paired.table,
            between[metric],
            confidence=at.confidence,
            seed=rules.seed,
            extra_variance=float(unseen(paired.table)) if metric == "goodput" and paired.table.defined else 0.0,
            note=at.note,
        )
        for metric, paired in measured.items()
    }
    figures = {metric: paired.figures() for metric, paired in measured.items()}
    nothing = (None, None)
    verdict, reason = _verdict(ratios.get(rules.metric), measured[rules.metric], figures[rules.metric], rules)
    return Comparison(
        metric=rules.metric,
        tpot_ratio=ratios["tpot"],
        shift_ms=_shift(measured["tpot"], at),
        ttft_ratio=ratios["ttft"],
        throughput_ratio=ratios.get("throughput"),
        goodput_ratio=ratios.get("goodput"),
        baseline_tpot_ms=figures["tpot"][0],
        variant_tpot_ms=figures["tpot"][1],
        baseline_ttft_ms=figures["ttft"][0],
        variant_ttft_ms=figures["ttft"][1],
        baseline_throughput=figures.get("throughput", nothing)[0],
        variant_throughput=figures.get("throughput", nothing)[1],
        baseline_goodput=figures.get("goodput", nothing)[0],
        variant_goodput=figures.get("goodput", nothing)[1],
        pairs=len(measured["tpot"].ids),
        verdict=verdict,
        reason=reason,
    )


def _shift(paired: Paired, at: Level) -> Interval | None:
    if not paired.ids:
        return None
    before, after = paired.values()
    shift = hodges_lehmann((after - before).tolist(), confidence=at.confidence)
    return shift.model_copy(update={"method": shift.method + at.note})


def _verdict(
    ratio: Interval | None, paired: Paired, figures: tuple[float | None, float | None], rules: Rules
) -> tuple[Verdict, str]:
    before, after = figures
    if ratio is None and paired.ids and rules.metric == "goodput":
        never = [name for name, figure in (("baseline", before), ("variant", after)) if not figure]
        why = f"no request of the {' and of the '.join(never)} met the limits"
        return Verdict.INCONCLUSIVE, f"{why} ({rules.limits.label}), so goodput has no ratio"
    verdict, why = decide(ratio, rules.margin, rules.metric)
    if ratio is None or before is None or after is None:
        return verdict, why
    limits = (
        "no interval"
        if ratio.low is None or ratio.high is None
        else f"{percent(ratio.confidence)} interval {ratio.low:.3f} to {ratio.high:.3f}"
    )
    count = "1 prompt" if len(paired.ids) == 1 else f"{len(paired.ids)} prompts"
    return verdict, f"{_words(rules, before, after)} (ratio {ratio.estimate:.3f}, {limits}, {count}): {why}"


def _words(rules: Rules, before: float, after: float) -> str:
    change = f"{digits(before)} → {digits(after)}"
    if rules.metric == "throughput":
        return f"throughput {change} tokens a second of request time"
    if rules.metric == "goodput" and rules.open_loop:
        return f"goodput {percent(before)} → {percent(after)} of the requests with {rules.limits.label}"
    if rules.metric == "goodput":
        return f"goodput {change} requests a second of request time with {rules.limits.label}"
    return f"{rules.metric.upper()} {change} ms"


def digits(value: float) -> str:
    """Return a number with about three digits."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"
