"""What a comparison has to remark: failures, few prompts or starts, drift, lengths."""

import math
from collections.abc import Mapping, Sequence

from draftworth.bench.base import RequestRow
from draftworth.findings import Code, Finding, find
from draftworth.verdicts.base import CategoryComparison, Interval
from draftworth.verdicts.decision import percent
from draftworth.verdicts.intervals import BOOTSTRAP_PAIRS, interval
from draftworth.verdicts.pairing import Paired, Start, cluster_of, pair
from draftworth.verdicts.restarts import STARTS_TO_ESTIMATE, Restarts
from draftworth.verdicts.rules import Metric, Rules

LENGTHS_APART = 0.02
"""Share by which the arms' tokens may differ before it is remarked."""
NORMAL_95 = 1.959964


def remarks(
    baseline: Sequence[Start],
    variant: Sequence[Start],
    measured: Mapping[Metric, Paired],
    *,
    groups: Sequence[CategoryComparison],
    between: Restarts,
    prompts: int,
    drift: Interval | None,
    rules: Rules,
) -> tuple[Finding, ...]:
    """Return every remark on a comparison, in a fixed order.

    Args:
        baseline: the starts of the baseline.
        variant: the starts of the variant.
        measured: what was paired, by metric.
        groups: the comparisons of the groups.
        between: the restart part of the metric that the verdict is about.
        prompts: how many prompts there were.
        drift: of the baseline, see `baseline_drift`.
        rules: how the trial is judged.
    """
    return (
        *_rows("baseline", _all(baseline)),
        *_rows("variant", _all(variant)),
        *_pairs(measured["tpot"], prompts, groups),
        *_starts(len(baseline), len(variant), math.sqrt(float(between.variance))),
        *_lengths(_all(baseline), _all(variant), measured["tpot"].ids),
        *_never(measured, rules),
        *_drifted("TPOT of the last baseline is {} times that of the first", drift, rules.margin, Code.BASELINE_DRIFT),
        *_blocks("baseline", baseline, rules),
        *_blocks("variant", variant, rules),
    )


def baseline_drift(starts: Sequence[Start], rules: Rules) -> Interval | None:
    """Return TPOT of the last start over the first, paired by prompt, no restart spread added."""
    if len(starts) < 2:  # noqa: PLR2004 - two ends
        return None
    return interval(pair(starts[:1], starts[-1:], "tpot").table, confidence=rules.confidence, seed=rules.seed)


def block_drift(starts: Sequence[Start], rules: Rules) -> Interval | None:
    """Return TPOT of the later half of each prompt's repeats over the earlier half, within starts, paired by prompt.

    Of a prompt that a start sent R times, in one block (`row.repeat`) or in several, the first and the last R // 2
    are compared; of an odd number the middle one is left out. None where no start sent a prompt twice.
    """
    halves = [_halves(start) for start in starts]
    halves = [half for half in halves if half[0]]
    if not halves:
        return None
    early, late = [(half[0],) for half in halves], [(half[1],) for half in halves]
    return interval(pair(early, late, "tpot").table, confidence=rules.confidence, seed=rules.seed)


def _halves(start: Start) -> tuple[list[RequestRow], list[RequestRow]]:
    """Return the rows of a start that are among the first and the last half of the repeats of their request.

    Every row takes its place, so that a request that failed does not move the others into the other half.
    """
    sent: dict[tuple[str, str], list[tuple[int, int, RequestRow]]] = {}
    for place, block in enumerate(start):
        for row in block:
            sent.setdefault((row.prompt_id, row.point), []).append((place, row.repeat, row))
    early: list[RequestRow] = []
    late: list[RequestRow] = []
    for found in sent.values():
        rounds = sorted({one[:2] for one in found})
        half = len(rounds) // 2
        first, last = set(rounds[:half]), set(rounds[len(rounds) - half :])
        early += [row for place, repeat, row in found if (place, repeat) in first]
        late += [row for place, repeat, row in found if (place, repeat) in last]
    return early, late


def _all(starts: Sequence[Start]) -> list[RequestRow]:
    return [row for start in starts for block in start for row in block]


def _arm(role: str, rows: Sequence[RequestRow]) -> str:
    return min((row.arm for row in rows), default=role)


def _rows(role: str, rows: Sequence[RequestRow]) -> list[Finding]:
    arm = _arm(role, rows)
    failed = [row for row in rows if not row.ok]
    retried = sum(row.ok and row.retries > 0 for row in rows)
    good = len(rows) - len(failed)
    rough = sum(row.ok and row.token_source == "chunks" for row in rows)  # noqa: S105 - a count's source, no secret
    findings = []
    if failed:
        first = min(failed, key=lambda row: (row.error is None, row.block, row.started_unix, row.prompt_id, row.repeat))
        message = f"{len(failed)} of {len(rows)} requests failed; the first with a reason: "
        findings.append(find(Code.REQUESTS_FAILED, message + (first.error or "no reason recorded"), arm=arm))
    if retried:
        message = f"{retried} of {good} answers came after the request was sent again"
        findings.append(find(Code.REQUESTS_RETRIED, message, arm=arm))
    if rough:
        message = f"{rough} of {good} answers have their tokens counted from chunks"
        findings.append(find(Code.APPROXIMATE_TOKENS, message, arm=arm))
    return findings


def _pairs(paired: Paired, prompts: int, groups: Sequence[CategoryComparison]) -> list[Finding]:
    pairs, findings = len(paired.ids), []
    if pairs < prompts:
        message = (
            f"{prompts - pairs} of {prompts} prompts were left out: they have no TPOT in some start of an arm "
            f"(failed, sent again, answered in one chunk, or not sent); {pairs} are compared"
        )
        findings.append(find(Code.FEW_PAIRS, message))
    if pairs < BOOTSTRAP_PAIRS:
        message = f"{pairs} prompts are paired; below {BOOTSTRAP_PAIRS} the interval rests on an approximation"
        findings.append(find(Code.FEW_PAIRS, message))
    for kind, plural in (("category", "categories"), ("point", "points")):
        some = [group for group in groups if group.kind == kind]
        lonely = [group.category for group in some if group.tpot_ratio is None or group.tpot_ratio.low is None]
        if lonely and len(some) > 1:
            findings.append(find(Code.FEW_PAIRS, f"no interval for the {plural} {', '.join(lonely)}"))
    return findings


def _starts(baseline: int, variant: int, log_sd: float) -> list[Finding]:
    if min(baseline, variant) >= STARTS_TO_ESTIMATE:
        return []
    message = f"the baseline was started {_times(baseline)} and the variant {_times(variant)}"
    if log_sd:
        reach = 100 * NORMAL_95 * log_sd
        message += f"; restarts (sd {100 * log_sd:.2g} %) alone make a 95 % interval of about +/- {reach:.2g} %"
    return [find(Code.FEW_STARTS, message)]


def _lengths(baseline: Sequence[RequestRow], variant: Sequence[RequestRow], ids: Sequence[str]) -> list[Finding]:
    """Compare tokens an answer, so that arms with different numbers of starts or lost repeats stay comparable."""
    base, other = _mean_tokens(baseline), _mean_tokens(variant)
    wanted = set(ids)
    both = sorted(cell for cell in base.keys() & other.keys() if cell[0] in wanted)
    before, after = math.fsum(base[cell] for cell in both), math.fsum(other[cell] for cell in both)
    if not before or abs(after / before - 1) <= LENGTHS_APART:
        return []
    message = f"tokens over the paired prompts: baseline {before:.0f}, variant {after:.0f} ({after / before - 1:+.1%})"
    return [find(Code.LENGTHS_DIFFER, message)]


def _mean_tokens(rows: Sequence[RequestRow]) -> dict[tuple[str, str, str], float]:
    """Return the mean tokens of an answer by prompt, turn and point."""
    grouped: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        if row.ok and row.tokens is not None:
            grouped.setdefault((cluster_of(row), row.prompt_id, row.point), []).append(row.tokens)
    return {cell: sum(group) / len(group) for cell, group in grouped.items()}


def _never(measured: Mapping[Metric, Paired], rules: Rules) -> list[Finding]:
    """Remark arms of which no request met the limits."""
    goodput = measured.get("goodput")
    if goodput is None or not goodput.ids:
        return []
    arms = zip(("baseline", "variant"), goodput.figures(), strict=True)
    never = [name for name, figure in arms if not figure]
    if not never:
        return []
    return [find(Code.LIMIT_NEVER_MET, f"no request of the {' and of the '.join(never)} met {rules.limits.label}")]


def _blocks(role: str, starts: Sequence[Start], rules: Rules) -> list[Finding]:
    arm = _arm(role, _all(starts))
    message = f"TPOT of {arm} in the later half of the repeats within a start is {{}} times that in the earlier half"
    return _drifted(message, block_drift(starts, rules), rules.margin, Code.BLOCK_DRIFT, arm=arm)


def _drifted(
    message: str, drift: Interval | None, margin: float, code: Code, *, arm: str | None = None
) -> list[Finding]:
    if drift is None or drift.low is None or drift.high is None:
        return []
    if drift.low <= 1 <= drift.high or abs(drift.estimate - 1) <= margin:
        return []
    limits = f" ({percent(drift.confidence)} interval {drift.low:.3f} to {drift.high:.3f})"
    return [find(code, message.replace("{}", f"{drift.estimate:.3f}") + limits, arm=arm)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
