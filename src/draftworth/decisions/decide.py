"""From a trial to a record: which option it is about, what its state becomes, and the record that says so."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from draftworth.decisions.base import Decision, Evidence, Option, Tree
from draftworth.decisions.body import body
from draftworth.decisions.conclude import Conclusion
from draftworth.decisions.fits import check_fits, gate_remarks, unfit
from draftworth.decisions.known import Known
from draftworth.decisions.records import (
    Record,
    newest,
    next_number,
    read_all,
    rewrite,
    state_of,
    write_new,
    writing,
)
from draftworth.decisions.refuse import check_order, check_wish, is_of
from draftworth.decisions.states import DECIDED, State, check_change, way
from draftworth.decisions.tree import add_option, begun
from draftworth.errors import UsageError
from draftworth.models import Frozen


class Decided(Frozen):
    """What was written."""

    option: str
    before: State
    state: State
    files: tuple[str, ...]
    """The records, in order: a decided option is reopened before it is decided again."""
    outcome: tuple[str, ...]
    needs: tuple[str, ...] = ()
    written_again: bool = False
    """Whether a record of this very trial was there and only its figures were written again."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for.

    Attributes:
        option: which option; None takes the arm's own, and begins one where there is none.
        state: instead of the state that follows from the figures.
        cites: further evidence.
        although: why a trial of another method or model than the option's decides it all the same.
        remarks: what stood against it.
        today: the date of a new record, YYYY-MM-DD.
    """

    today: str
    option: str | None = None
    state: State | None = None
    cites: tuple[Evidence, ...] = ()
    although: str = ""
    remarks: tuple[str, ...] = ()


def decide(found: Conclusion, wish: Wish, folder: Path, *, method: str = "") -> Decided:
    """Write the record of what follows from a trial.

    Args:
        found: what follows.
        wish: what a person asked for.
        folder: of the tree and the records.
        method: the arm's speculative method; empty where it is not known.

    Raises:
        UsageError: no such option, a trial of something else, a change that is not legal, or one that the figures do
            not carry.
    """
    check_wish(found, wish.state)
    with writing(folder):
        tree, option = _option(folder, found, wish.option, method)
        records = read_all(folder)
        before = state_of(tree, records, option.name)
        last = newest(records, option.name)
        state = wish.state or found.state
        check_order(found, [one for one in records if one.decision.option == option.name], wish.state)
        again = last is not None and is_of(last.decision, found)
        although = wish.although or (last.decision.although if last and again else "")
        against = check_fits(option, found.arm, method, found.assumptions, although)
        against += gate_remarks(option, Known(folder.parent, tree, records))
        needless = bool(wish.although) and not unfit(option, found.arm, method, found.assumptions)
        wish = replace(wish, although="" if needless else although)
        heard = ["--although is not kept: the trial is of what decides the option"] if needless else []
        chosen = _chosen(found, state)
        if last and again and last.decision.state == state:
            return _again(last, chosen, wish, (tree, option, records), [*against, *heard])
        files = []
        for step in way(before, state):
            reasons = _by_a_person(found, wish)
            if step != state and not (again and reasons):
                reasons = [f"A newer trial says otherwise: {found.outcome[0]}"]
            evidence = _distinct((*found.evidence, *option.evidence, *wish.cites))
            told = replace(wish, cites=evidence, remarks=tuple(against) if step == state else ())
            decision = _decision(option, (before, step), found, told, reasons)
            decision = decision.model_copy(update={"number": next_number(folder)})
            states = _states(tree, records) | {option.name: step}
            files.append(write_new(folder, decision, body(decision, option, tree, states, chosen)))
            before = step
    return Decided(
        option=option.name,
        before=files[0].decision.before,
        state=state,
        files=tuple(str(one.path) for one in files),
        outcome=chosen.outcome,
        needs=files[-1].decision.needs,
        remarks=(*against, *heard),
    )


def move(
    name: str, wish: Wish, folder: Path, reasons: Sequence[str] = (), by: Literal["person", "check"] = "person"
) -> Decided:
    """Write the record of a change that rests on no trial: taken up, put off, reopened.

    Raises:
        UsageError: no such option, a change that is not legal, or one that only a trial can carry.
    """
    with writing(folder):
        return move_within(name, wish, folder, reasons, by)


def move_within(name: str, wish: Wish, folder: Path, reasons: Sequence[str], by: Literal["person", "check"]) -> Decided:
    """Do what `move` does; only within `writing`."""
    state = wish.state
    if state is None or state in DECIDED:
        raise UsageError(
            f"option {name}: only a trial can make it {state or 'adopted or ruled out'}: `draftworth decide TRIAL "
            f"--option {name}`"
        )
    tree = begun(folder)
    option = _known(tree, name)
    records = read_all(folder)
    before = state_of(tree, records, name)
    check_change(name, before, state)
    last = newest(records, name)
    against = gate_remarks(option, Known(folder.parent, tree, records)) if state == "running" else ()
    decision = Decision(
        number=next_number(folder),
        date=wish.today,
        option=name,
        title=f"{option.title}: {state}",
        state=state,
        before=before,
        by=by,
        reasons=tuple(reasons),
        needs=option.needs,
        assumptions=last.decision.assumptions if last else option.assumptions,
        evidence=wish.cites,
        remarks=tuple(against),
    )
    states = _states(tree, records) | {name: state}
    record = write_new(folder, decision, body(decision, option, tree, states, None))
    return Decided(
        option=name,
        before=before,
        state=state,
        files=(str(record.path),),
        outcome=tuple(reasons),
        remarks=decision.remarks,
    )


def _option(folder: Path, found: Conclusion, name: str | None, method: str) -> tuple[Tree, Option]:
    tree = begun(folder)
    if name is not None and tree.options:
        return tree, _known(tree, name)
    wanted = name or found.arm
    known = tree.find(wanted) or next((one for one in tree.options if one.arm == found.arm), None)
    if known:
        return tree, known
    title = _title(found, method)
    try:
        new = Option(name=wanted, title=title, method=method, arm="" if wanted == found.arm else found.arm)
    except ValidationError:
        raise UsageError(
            f"{wanted!r} cannot be an option's name: letters, digits, dot, dash, underscore; at most 64"
        ) from None
    return add_option(folder, new), new


def _title(found: Conclusion, method: str) -> str:
    """Return what an arm is, from what it declared: `ngram, k = 5 (ngram-5)`; its name where it declared no method."""
    setting = json.loads(found.assumptions.setting or "{}")
    inner = setting.get("speculative_config", setting)
    k = inner.get("num_speculative_tokens") if isinstance(inner, dict) else None
    return f"{method}{f', k = {k}' if k else ''} ({found.arm})" if method else found.arm


def _known(tree: Tree, name: str) -> Option:
    option = tree.find(name)
    if option:
        return option
    names = [one.name for one in tree.options]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"the tree has: {', '.join(names) or 'none'}"
    raise UsageError(f"no option {name!r} in tree.toml; {hint}")


def _chosen(found: Conclusion, state: State) -> Conclusion:
    """Return a conclusion whose first sentence names the state that a person chose instead of the figures' own."""
    if state == found.state:
        return found
    figures = found.outcome[0].removeprefix(f"{found.arm} is {found.state}")
    first = f"{found.arm} is {state}, as a person chose. The figures alone say {found.state}{figures}"
    return replace(found, outcome=(first, *found.outcome[1:]))


def _by_a_person(found: Conclusion, wish: Wish) -> list[str]:
    if wish.state is None or wish.state == found.state:
        return []
    return [f"The figures alone say {found.state}; a person chose {wish.state}."]


def _decision(
    option: Option,
    change: tuple[State, State],
    found: Conclusion,
    wish: Wish,
    reasons: Sequence[str],
) -> Decision:
    before, state = change
    own = state == found.state
    chosen = wish.state is not None and wish.state != found.state
    return Decision.model_validate(
        {
            "number": 1,
            "date": wish.today,
            "option": option.name,
            "title": f"{option.title}: {state}",
            "state": state,
            "before": before,
            "by": "person" if chosen else found.by,
            "trial": found.trial,
            "arm": found.arm,
            "verdict": found.verdict,
            "pairs": found.pairs,
            "reopen_at_speed_up": found.reopen_at if own else None,
            "needs": list(found.needs),
            "reasons": list(reasons),
            "although": wish.although if own or chosen else "",
            "remarks": list(wish.remarks),
            "ratio": found.ratio,
            "assumptions": found.assumptions,
            "evidence": list(wish.cites),
        }
    )


def _again(
    last: Record, found: Conclusion, wish: Wish, around: tuple[Tree, Option, list[Record]], against: Sequence[str]
) -> Decided:
    """Write the figures of a trial's own record again: an account may have come since. Its citations stay."""
    tree, option, records = around
    before = last.decision
    # The trial's own line may say more now; what was known then stays, and nothing of the tree is added to it.
    own = {(one.kind, one.trial, one.path) for one in found.evidence}
    others = [one for one in before.evidence if (one.kind, one.trial, one.path) not in own or one.kind == "published"]
    evidence = _distinct((*found.evidence, *others, *wish.cites))
    asked = replace(
        wish, today=before.date, state=before.state, cites=evidence, remarks=before.remarks or tuple(against)
    )
    decision = _decision(option, (before.before, before.state), found, asked, before.reasons)
    decision = decision.model_copy(update={"number": before.number, "title": before.title})
    # As it was then: records that came later did not exist for it.
    earlier = [one for one in records if one.decision.number <= before.number]
    written = rewrite(last, decision, body(decision, option, tree, _states(tree, earlier), found))
    return Decided(
        option=option.name,
        before=before.before,
        state=before.state,
        files=(str(written.path),),
        outcome=found.outcome,
        needs=decision.needs,
        written_again=True,
        remarks=tuple(against),
    )


def _distinct(some: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple({one.model_dump_json(): one for one in some}.values())


def _states(tree: Tree, records: Sequence[Record]) -> dict[str, State]:
    return {one.name: state_of(tree, records, one.name) for one in tree.options}
