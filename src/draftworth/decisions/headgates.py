"""Conditions about heads: whom a head was trained for, whether it was checked, and whether it drafts enough to pay.

All of a gate's conditions about heads are asked of one head at a time: that one head fits and another one pays opens
nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from draftworth.decisions.assumptions import same_model
from draftworth.decisions.base import Evidence, Figure, Option
from draftworth.decisions.conditions import Condition, Holds
from draftworth.decisions.known import Known
from draftworth.heads.base import HeadReport, Status
from draftworth.predict.base import Needed

OF_HEADS = frozenset({"head_for", "head_check", "head_pays_at_k"})
"""Conditions about one head."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a condition is asked of.

    Attributes:
        known: what lies in the home folder.
        head: the head that conditions about heads are of; empty: any.
    """

    known: Known
    head: str = ""


def heads_of(option: Option, known: Known) -> tuple[str, ...]:
    """Return the heads in evidence for an option, each once."""
    return tuple(dict.fromkeys(one.head or "" for one in known.evidence(option) if one.kind == "head"))


def _evidence(option: Option, asked: Asked, kind: str) -> list[Evidence]:
    """Return evidence of a kind, and of one head where one is asked of.

    The tree's comes last: records keep what it said when they were written.
    """
    found = [one for one in asked.known.evidence(option) if one.kind == kind]
    found = [one for one in found if kind != "head" or not asked.head or one.head == asked.head]
    return sorted(found, key=lambda one: one in option.evidence)


def needed_length(one: Condition, option: Option, asked: Asked) -> Holds:
    """Tell whether a head pays from at most so many tokens a step on."""
    limit = one.needed_length_at_most or 0.0
    heads = _predicted(one, option, asked.known)
    if not heads:
        return Holds(holds=None, reason=f"no prediction says what {option.name} needs: `draftworth predict --heads`")
    path, least = min(heads, key=lambda each: each[1].length.value)
    range_ = least.length
    reason = (
        f"{path}: a head pays from {range_.value:.2f} ({range_.low:.2f} to {range_.high:.2f}) tokens a step on at "
        f"k = {least.k}, concurrency {least.concurrency}; at most {limit:g} is asked for"
    )
    holds = True if range_.high <= limit else False if all(each.length.low > limit for _, each in heads) else None
    return Holds(holds=holds, reason=reason)


def _predicted(one: Condition, option: Option, known: Known) -> list[tuple[str, Needed]]:
    found = [(path, each) for path, read in known.predictions(option)[-1:] for each in read.heads]
    return [(path, each) for path, each in found if same_setting(each.k, each.concurrency, one)]


def same_setting(k: int, concurrency: int, one: Condition) -> bool:
    """Whether a setting is of the k and concurrency that a condition asks for."""
    return one.k in {None, k} and one.concurrency in {None, concurrency}


def head_for(one: Condition, option: Option, asked: Asked) -> Holds:
    """Tell whether a head was trained for a model; folders before its name and case do not count."""
    heads = _evidence(option, asked, "head")
    told = [each for each in heads if each.trained_for]
    if not told:
        what = f"what {heads[0].head} was trained for is not known" if heads else "no head is known"
        return Holds(holds=None, reason=f"{what}; {one.head_for} is asked for")
    fitting = [each for each in told if same_model(each.trained_for or "", one.head_for or "")]
    shown = (fitting or told)[-1]
    reason = f"{shown.head} was trained for {shown.trained_for}{_whose(shown)}"
    return Holds(holds=bool(fitting), reason=reason if fitting else f"{reason}, not for {one.head_for}")


def head_check(one: Condition, option: Option, asked: Asked) -> Holds:
    """Tell whether `draftworth head check --json` found that a head can be served with the option's model."""
    file = one.head_check or ""
    path = asked.known.root / file
    report = _report(path) if path.is_file() else None
    if report is None:
        what = "no result of" if path.is_file() else "not there:"
        return Holds(holds=None, reason=f"{file} is {what} `draftworth head check HEAD TARGET --json`")
    of = f"{file} is of {report.checkpoint} with {report.target}"
    other = _of_another(report, option, asked)
    if other:
        return Holds(holds=None, reason=f"{of}, {other}")
    failed = [each.name for each in report.having(Status.FAILED)]
    if failed:
        return Holds(holds=False, reason=f"{of}, and failed: {', '.join(failed)}")
    if not report.having(Status.PASSED):
        return Holds(holds=None, reason=f"{of}, and nothing could be checked")
    return Holds(holds=True, reason=f"{of}: no check failed")


def _of_another(report: HeadReport, option: Option, asked: Asked) -> str:
    """Return that a check is of another head or model than is asked about; empty where it is not."""
    heads = _evidence(option, asked, "head")
    if not heads:
        return "and no head is in evidence"
    if not any(same_model(each.head or "", report.checkpoint) for each in heads):
        return f"not of {heads[-1].head}"
    model = asked.known.service(option).model
    return f"not with {model}" if model and not same_model(model, report.target) else ""


def is_report(path: Path) -> bool:
    """Whether a file is a result of `draftworth head check --json`."""
    return path.is_file() and _report(path) is not None


def _report(path: Path) -> HeadReport | None:
    try:
        return HeadReport.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def head_pays(one: Condition, option: Option, asked: Asked) -> Holds:
    """Tell whether the acceptance length that a head reached is above what breaks even, by both intervals."""
    k = one.head_pays_at_k
    reached = [each for each in _evidence(option, asked, "head") if each.length and each.k in {None, k}]
    needed, source = _needed(one, option, asked)
    if needed is None:
        return Holds(holds=None, reason=f"what breaks even at k = {k} is not known: `draftworth predict --heads`")
    wanted = f"{_told(needed)} breaks even at k = {k} ({source})"
    if not reached:
        whose = f"{asked.head}'s" if asked.head and len(heads_of(option, asked.known)) > 1 else "no head's"
        was = "was not measured" if whose != "no head's" else "was measured"
        return Holds(holds=None, reason=f"{whose} acceptance length {was}; {wanted}")
    best = reached[-1]
    length = best.length or Figure(value=1.0)
    low, high = _ends(length)
    least, most = _ends(needed)
    holds = True if low >= most else False if high < least else None
    return Holds(holds=holds, reason=f"{best.head} reached {_told(length)}{_whose(best)}; {wanted}")


def _needed(one: Condition, option: Option, asked: Asked) -> tuple[Figure | None, str]:
    """Return what breaks even, the newest prediction's before what is stated, and whose it is."""
    k = one.head_pays_at_k
    wanted = Condition(needed_length_at_most=0.0, k=k, concurrency=one.concurrency)
    predicted = _predicted(wanted, option, asked.known)
    if predicted:
        path, hardest = max(predicted, key=lambda each: each[1].length.value)
        return Figure(value=hardest.length.value, low=hardest.length.low, high=hardest.length.high), path
    stated = [each for each in _evidence(option, asked, "break-even") if each.k in {None, k}]
    return (stated[-1].length, f"stated{_whose(stated[-1])}") if stated else (None, "")


def _told(figure: Figure) -> str:
    low, high = _ends(figure)
    return f"{figure.value:.2f}" if low == high else f"{figure.value:.2f} ({low:.2f} to {high:.2f})"


def _ends(figure: Figure) -> tuple[float, float]:
    low = figure.value if figure.low is None else figure.low
    return low, figure.value if figure.high is None else figure.high


def _whose(one: Evidence) -> str:
    return "" if one.ours else f" (not ours: {one.source}, {one.date})"
