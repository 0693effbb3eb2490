"""Whether a gate holds: each condition is yes, no, or not known, with the reason; `KINDS` lists them all.

Figures with intervals decide only where the whole interval does. Conditions join by Kleene's three-valued logic: all
of them is no where one is no, any of them is yes where one is yes, whatever the others are.
"""

from collections.abc import Callable, Sequence

from draftworth.decisions.assumptions import version_key
from draftworth.decisions.base import Option
from draftworth.decisions.conclude import deciding_arms
from draftworth.decisions.conditions import Condition, Gate, Holds
from draftworth.decisions.headgates import (
    OF_HEADS,
    Asked,
    head_check,
    head_for,
    head_pays,
    heads_of,
    is_report,
    needed_length,
    same_setting,
)
from draftworth.decisions.known import Known, with_arm
from draftworth.decisions.methods import is_head
from draftworth.reports.words import interval
from draftworth.trials.record import ArmComparison, TrialRecord
from draftworth.verdicts.base import Verdict


def evaluate(gate: Gate, option: Option, known: Known) -> Holds:
    """Return whether an option's gate holds: with several heads in evidence, whether it does for one and the same."""
    some, every = gate.all or gate.any, bool(gate.all)
    heads = heads_of(option, known) if any(one.kind in OF_HEADS for one in _leaves(some)) else ()
    found = [_joined(some, option, Asked(known, head), every=every) for head in heads or ("",)]
    for word in (True, None):
        told = [one for one in found if one.holds is word]
        if told:
            return told[-1]
    reasons = dict.fromkeys(one.reason for one in found)
    return found[-1].model_copy(update={"reason": "; ".join(reasons)})


def condition(one: Condition, option: Option, asked: Asked) -> Holds:
    """Return whether a condition holds."""
    return KINDS[one.kind](one, option, asked)


def _joined(some: Sequence[Condition], option: Option, asked: Asked, *, every: bool) -> Holds:
    parts = tuple(condition(one, option, asked) for one in some)
    values = [one.holds for one in parts]
    decisive = not every
    holds = decisive if decisive in values else None if None in values else every
    # What decides is told; where nothing does, everything that stands in the way.
    in_the_way = [one.reason for one in parts if not every or one.holds is not True]
    told = in_the_way if holds is None else [one.reason for one in parts if one.holds is holds]
    return Holds(holds=holds, reason="; ".join(told), parts=parts)


def _trial(one: Condition, option: Option, asked: Asked) -> Holds:
    known = asked.known
    name = one.trial or ""
    arms = {each.name: known.arm_of(each) for each in known.tree.options}
    found, arm, why = _measured(name, arms.get(name, name), option, known)
    if why:
        return Holds(holds=None, reason=why)
    if one.verdict == "error":
        failed = found[-1].verdict is Verdict.ERROR
        return Holds(holds=failed, reason=f"trial {found[-1].id} {'could not' if failed else 'could'} be measured")
    # A trial that did not end, or has no figures of the arm, says nothing of it: what was measured before stands.
    compared = [(each.id, own) for each in found if (own := _compared(each, arm)) is not None]
    if not compared:
        return Holds(holds=None, reason=f"trial {found[-1].id} has no figures of {arm or name}")
    id_, own = compared[-1]
    if one.verdict is not None:
        return Holds(holds=str(own.verdict) == one.verdict, reason=f"trial {id_}: {arm} is {own.verdict}")
    ratio = own.tpot_ratio
    limit = one.ratio_below if one.ratio_below is not None else one.ratio_above
    if ratio is None or ratio.low is None or ratio.high is None or limit is None:
        return Holds(holds=None, reason=f"trial {id_}: the TPOT ratio of {name} has no interval")
    above, below = ratio.low > limit, ratio.high < limit
    holds = below if one.ratio_below is not None else above
    reason = f"trial {id_}: TPOT ratio of {name} {interval(ratio)}, to be compared with {limit:g}"
    return Holds(holds=holds if above or below else None, reason=reason)


def _measured(name: str, arm: str, option: Option, known: Known) -> tuple[list[TrialRecord], str, str]:
    """Return the trials of an option's service that a name means, oldest first, the arm, or why there are none."""
    own = known.trials_of(option)
    by_id = next((each for each in known.trials if each.id == name), None)
    if by_id is None or known.unclear(option):
        found = with_arm(own, arm)
        return found, arm, known.unclear(option) or ("" if found else f"no trial measured {name}")
    if by_id not in own:
        return [], arm, f"trial {name} is of another service than {option.name}"
    arm = by_id.best or ""
    measures = bool(arm) and arm not in deciding_arms(by_id)
    return [by_id], arm, f"trial {name}: its verdict is about {arm}, which only measures" if measures else ""


def _compared(record: TrialRecord, arm: str) -> ArmComparison | None:
    """Return an arm's own comparison in a trial that ended; the trial's verdict may be about another arm."""
    if record.error is not None or record.verdict is Verdict.ERROR:
        return None
    return next((each for each in record.comparisons if each.arm == arm), None)


def _other_option(one: Condition, _option: Option, asked: Asked) -> Holds:
    known = asked.known
    name = one.option or ""
    if known.tree.find(name) is None:
        return Holds(holds=None, reason=f"there is no option {name}")
    state = known.state(name)
    return Holds(holds=state in one.state, reason=f"option {name} is {state}")


def _predicted(one: Condition, option: Option, asked: Asked) -> Holds:
    known = asked.known
    limit = one.predicted_speed_up_at_least or 0.0
    found = known.predictions(option)
    if not found:
        return Holds(holds=None, reason=f"no prediction for {option.name}: `draftworth predict --json`")
    path, prediction = found[-1]
    settings = [each for each in prediction.settings if same_setting(each.k, each.concurrency, one)]
    if not settings:
        return Holds(holds=None, reason=f"{path} predicts no such setting")
    best = max(settings, key=lambda each: each.speed_up.value)
    range_ = best.speed_up
    reason = (
        f"{path}: best predicted speed-up {range_.value:.3f} ({range_.low:.3f} to {range_.high:.3f}) at k = {best.k}, "
        f"concurrency {best.concurrency}; {limit:g} is asked for"
    )
    # "No" takes every setting: the best by value need not reach highest.
    holds = True if range_.low >= limit else False if all(each.speed_up.high < limit for each in settings) else None
    return Holds(holds=holds, reason=reason)


def _engine(one: Condition, option: Option, asked: Asked) -> Holds:
    known = asked.known
    unclear = known.unclear(option)
    if unclear:
        return Holds(holds=None, reason=unclear)
    seen = [
        (each.created, arm.version, f"trial {each.id}")
        for each in known.trials_of(option)
        for arm in each.arms[:1]
        if arm.engine == one.engine and arm.version
    ]
    seen += [
        (each.created, each.version, path)
        for path, each in known.costs_of(option)
        if each.engine == one.engine and each.version
    ]
    if not seen:
        return Holds(
            holds=None,
            reason=f"no trial and no costs file of {option.name}'s service tells the version of {one.engine}",
        )
    _, version, where = max(seen)
    wanted = one.version_at_least or ""
    have = version_key(version)
    if not have:
        return Holds(
            holds=None, reason=f"{one.engine} {version} ({where}) is no version that can be compared with {wanted}"
        )
    return Holds(holds=have >= version_key(wanted), reason=f"{one.engine} {version} ({where}); {wanted} is asked for")


def _file(one: Condition, _option: Option, asked: Asked) -> Holds:
    known = asked.known
    # A file that is not there is a check that was not made, which says nothing of how it would end.
    there = (known.root / (one.file or "")).exists()
    return Holds(holds=there or None, reason=f"{one.file} is {'there' if there else 'not there'}")


def _all(one: Condition, option: Option, asked: Asked) -> Holds:
    return _joined(one.all or (), option, asked, every=True)


def _any(one: Condition, option: Option, asked: Asked) -> Holds:
    return _joined(one.any or (), option, asked, every=False)


KINDS: dict[str, Callable[[Condition, Option, Asked], Holds]] = {
    "trial": _trial,
    "option": _other_option,
    "predicted_speed_up_at_least": _predicted,
    "needed_length_at_most": needed_length,
    "head_for": head_for,
    "head_check": head_check,
    "head_pays_at_k": head_pays,
    "engine": _engine,
    "file": _file,
    "all": _all,
    "any": _any,
}
"""Every kind of condition."""


def wrong_gate(option: Option, known: Known) -> list[str]:
    """Return why a head's gate asks the wrong question: it hangs on a trial of a drafter without a model, or on a file.

    What an n-gram or suffix drafter has accepted says how much the text repeats itself; a head's acceptance is of what
    it learned, on the same text.
    """
    if option.gate is None or not is_head(option.method):
        return []
    remarks = []
    for one in _leaves(option.gate.all or option.gate.any):
        if one.file and is_report(known.root / one.file):
            remarks.append(
                f"its gate asks whether {one.file} is there, and not what that check of a head found: "
                "ask head_check instead"
            )
        name = one.trial or (one.option if set(one.state) & {"adopted"} else None)
        other = next(
            (
                each
                for each in known.tree.options
                if name and name in {each.name, known.arm_of(each)} and each is not option
            ),
            None,
        )
        if other is not None and other.method and not is_head(other.method):
            remarks.append(
                f"its gate hangs on {name}, which drafts by {other.method}: that says nothing of what a head "
                f"({option.method}) has accepted; ask head_for and head_pays_at_k instead"
            )
    return remarks


def _leaves(some: Sequence[Condition]) -> list[Condition]:
    return [
        leaf for one in some for leaf in (_leaves(one.all or one.any or ()) if one.kind in {"all", "any"} else [one])
    ]
