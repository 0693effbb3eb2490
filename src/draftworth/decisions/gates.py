"""Whether a gate holds: each condition is yes, no, or not known, with the reason; `KINDS` lists them all.

Figures with intervals decide only where the whole interval does. Conditions join by Kleene's three-valued logic: all
of them is no where one is no, any of them is yes where one is yes, whatever the others are.
"""

from collections.abc import Callable, Sequence

from draftworth.decisions.assumptions import version_key
from draftworth.decisions.base import Evidence, Figure, Option
from draftworth.decisions.conclude import deciding_arms
from draftworth.decisions.conditions import Condition, Gate, Holds
from draftworth.decisions.known import Known, is_head, with_arm
from draftworth.predict.base import Needed
from draftworth.reports.words import interval
from draftworth.trials.record import ArmComparison, TrialRecord
from draftworth.verdicts.base import Verdict


def evaluate(gate: Gate, option: Option, known: Known) -> Holds:
    """Return whether an option's gate holds."""
    return _joined(gate.all or gate.any, option, known, every=bool(gate.all))


def condition(one: Condition, option: Option, known: Known) -> Holds:
    """Return whether a condition holds."""
    return KINDS[one.kind](one, option, known)


def _joined(some: Sequence[Condition], option: Option, known: Known, *, every: bool) -> Holds:
    parts = tuple(condition(one, option, known) for one in some)
    values = [one.holds for one in parts]
    decisive = not every
    holds = decisive if decisive in values else None if None in values else every
    # What decides is told; where nothing does, everything that stands in the way.
    in_the_way = [one.reason for one in parts if not every or one.holds is not True]
    told = in_the_way if holds is None else [one.reason for one in parts if one.holds is holds]
    return Holds(holds=holds, reason="; ".join(told), parts=parts)


def _trial(one: Condition, option: Option, known: Known) -> Holds:
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


def _other_option(one: Condition, _option: Option, known: Known) -> Holds:
    name = one.option or ""
    if known.tree.find(name) is None:
        return Holds(holds=None, reason=f"there is no option {name}")
    state = known.state(name)
    return Holds(holds=state in one.state, reason=f"option {name} is {state}")


def _predicted(one: Condition, option: Option, known: Known) -> Holds:
    limit = one.predicted_speed_up_at_least or 0.0
    found = known.predictions(option)
    if not found:
        return Holds(holds=None, reason=f"no prediction for {option.name}: `draftworth predict --json`")
    path, prediction = found[-1]
    settings = [each for each in prediction.settings if _same(each.k, each.concurrency, one)]
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


def _same(k: int, concurrency: int, one: Condition) -> bool:
    return one.k in {None, k} and one.concurrency in {None, concurrency}


def _needed_length(one: Condition, option: Option, known: Known) -> Holds:
    limit = one.needed_length_at_most or 0.0
    heads = _heads(one, option, known)
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


def _heads(one: Condition, option: Option, known: Known) -> list[tuple[str, Needed]]:
    found = [(path, each) for path, read in known.predictions(option)[-1:] for each in read.heads]
    return [(path, each) for path, each in found if _same(each.k, each.concurrency, one)]


def _head_for(one: Condition, option: Option, known: Known) -> Holds:
    heads = [each for each in known.evidence(option) if each.kind == "head"]
    told = [each for each in heads if each.trained_for]
    if not told:
        what = f"what {heads[0].head} was trained for is not known" if heads else "no head is known"
        return Holds(holds=None, reason=f"{what}; {one.head_for} is asked for")
    fitting = [each for each in told if each.trained_for == one.head_for]
    shown = (fitting or told)[-1]
    reason = f"{shown.head} was trained for {shown.trained_for}{_whose(shown)}"
    return Holds(holds=bool(fitting), reason=reason if fitting else f"{reason}, not for {one.head_for}")


def _head_pays(one: Condition, option: Option, known: Known) -> Holds:
    k = one.head_pays_at_k
    evidence = known.evidence(option)
    reached = [each for each in evidence if each.kind == "head" and each.length and each.k in {None, k}]
    predicted = _heads(Condition(needed_length_at_most=0.0, k=k, concurrency=one.concurrency), option, known)
    stated = [each for each in evidence if each.kind == "break-even" and each.k in {None, k}]
    needed: Figure | None = None
    source = ""
    if predicted:
        path, hardest = max(predicted, key=lambda each: each[1].length.value)
        needed, source = Figure(value=hardest.length.value, low=hardest.length.low, high=hardest.length.high), path
    elif stated:
        needed, source = stated[-1].length, f"stated{_whose(stated[-1])}"
    if needed is None:
        return Holds(holds=None, reason=f"what breaks even at k = {k} is not known: `draftworth predict --heads`")
    wanted = f"{_told(needed)} breaks even at k = {k} ({source})"
    if not reached:
        return Holds(holds=None, reason=f"no head's acceptance length was measured; {wanted}")
    best = reached[-1]
    length = best.length or Figure(value=1.0)
    low, high = _ends(length)
    least, most = _ends(needed)
    holds = True if low >= most else False if high < least else None
    return Holds(holds=holds, reason=f"{best.head} reached {_told(length)}{_whose(best)}; {wanted}")


def _told(figure: Figure) -> str:
    low, high = _ends(figure)
    return f"{figure.value:.2f}" if low == high else f"{figure.value:.2f} ({low:.2f} to {high:.2f})"


def _ends(figure: Figure) -> tuple[float, float]:
    low = figure.value if figure.low is None else figure.low
    return low, figure.value if figure.high is None else figure.high


def _whose(one: Evidence) -> str:
    return "" if one.ours else f" (not ours: {one.source}, {one.date})"


def _engine(one: Condition, option: Option, known: Known) -> Holds:
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
    asked = one.version_at_least or ""
    have = version_key(version)
    if not have:
        return Holds(
            holds=None, reason=f"{one.engine} {version} ({where}) is no version that can be compared with {asked}"
        )
    return Holds(holds=have >= version_key(asked), reason=f"{one.engine} {version} ({where}); {asked} is asked for")


def _file(one: Condition, _option: Option, known: Known) -> Holds:
    # A file that is not there is a check that was not made, which says nothing of how it would end.
    there = (known.root / (one.file or "")).exists()
    return Holds(holds=there or None, reason=f"{one.file} is {'there' if there else 'not there'}")


def _all(one: Condition, option: Option, known: Known) -> Holds:
    return _joined(one.all or (), option, known, every=True)


def _any(one: Condition, option: Option, known: Known) -> Holds:
    return _joined(one.any or (), option, known, every=False)


KINDS: dict[str, Callable[[Condition, Option, Known], Holds]] = {
    "trial": _trial,
    "option": _other_option,
    "predicted_speed_up_at_least": _predicted,
    "needed_length_at_most": _needed_length,
    "head_for": _head_for,
    "head_pays_at_k": _head_pays,
    "engine": _engine,
    "file": _file,
    "all": _all,
    "any": _any,
}
"""Every kind of condition."""


def wrong_gate(option: Option, known: Known) -> list[str]:
    """Return why a gate asks the wrong question: a head's option that hangs on a trial of a drafter without a model.

    What an n-gram or suffix drafter has accepted says how much the text repeats itself; a head's acceptance is of what
    it learned, on the same text.
    """
    if option.gate is None or not is_head(option.method):
        return []
    remarks = []
    for one in _leaves(option.gate.all or option.gate.any):
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
