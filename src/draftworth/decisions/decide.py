"""From a trial to a record: which option it is about, what its state becomes, and the record that says so."""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from draftworth.decisions.base import Decision, Evidence, Option, Tree
from draftworth.decisions.body import body
from draftworth.decisions.conclude import Conclusion
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
from draftworth.decisions.states import DECIDED, State, check_change, way
from draftworth.decisions.tree import add_option, begun
from draftworth.errors import UsageError
from draftworth.models import Frozen

_ID = re.compile(r"^(\d{8}-\d{6})(?:-(\d+))?$")


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
        today: the date of a new record, YYYY-MM-DD.
    """

    today: str
    option: str | None = None
    state: State | None = None
    cites: tuple[Evidence, ...] = ()


def decide(found: Conclusion, wish: Wish, folder: Path, *, method: str = "") -> Decided:
    """Write the record of what follows from a trial.

    Args:
        found: what follows.
        wish: what a person asked for.
        folder: of the tree and the records.
        method: the arm's speculative method, for an option that is begun.

    Raises:
        UsageError: no such option, a change that is not legal, or one that the figures do not carry.
    """
    _check_wish(found, wish.state)
    with writing(folder):
        tree, option = _option(folder, found, wish.option, method)
        records = read_all(folder)
        before = state_of(tree, records, option.name)
        last = newest(records, option.name)
        state = wish.state or found.state
        _check_order(found, [one for one in records if one.decision.option == option.name], wish)
        if last and _is_of(last.decision, found) and last.decision.state == state:
            return _again(last, found, wish, (tree, option, records))
        files = []
        for step in way(before, state):
            reasons = (
                [f"A newer trial says otherwise: {found.outcome[0]}"] if step != state else _by_a_person(found, wish)
            )
            evidence = _distinct((*found.evidence, *option.evidence, *wish.cites))
            decision = _decision(option, (before, step), found, replace(wish, cites=evidence), reasons)
            decision = decision.model_copy(update={"number": next_number(folder)})
            states = _states(tree, records) | {option.name: step}
            files.append(write_new(folder, decision, body(decision, option, tree, states, found)))
            before = step
    return Decided(
        option=option.name,
        before=files[0].decision.before,
        state=state,
        files=tuple(str(one.path) for one in files),
        outcome=found.outcome,
        needs=files[-1].decision.needs,
    )


def move(
    name: str, wish: Wish, folder: Path, reasons: Sequence[str] = (), by: Literal["person", "check"] = "person"
) -> Decided:
    """Write the record of a change that rests on no trial: taken up, put off, reopened.

    Raises:
        UsageError: no such option, a change that is not legal, or one that only a trial can carry.
    """
    state = wish.state
    if state is None or state in DECIDED:
        raise UsageError(
            f"option {name}: only a trial can make it {state or 'adopted or ruled out'}: `draftworth decide TRIAL "
            f"--option {name}`"
        )
    with writing(folder):
        tree = begun(folder)
        option = _known(tree, name)
        records = read_all(folder)
        before = state_of(tree, records, name)
        check_change(name, before, state)
        last = newest(records, name)
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
        )
        states = _states(tree, records) | {name: state}
        record = write_new(folder, decision, body(decision, option, tree, states, None))
    return Decided(option=name, before=before, state=state, files=(str(record.path),), outcome=tuple(reasons))


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


def _check_wish(found: Conclusion, state: State | None) -> None:
    """Refuse an adoption that the figures do not carry; to be more careful than they are is anybody's right."""
    if state == "adopted" and found.state != "adopted":
        raise UsageError(f"{found.arm} cannot be adopted on this: {found.outcome[0]}")
    if state == "ruled out" and found.verdict == "error":
        raise UsageError(f"{found.arm} cannot be ruled out on a trial that could not be measured: {found.outcome[0]}")


def _check_order(found: Conclusion, history: Sequence[Record], wish: Wish) -> None:
    """Refuse a trial that an option's records have left behind: an earlier one, or the one that was reopened."""
    now = _ID.fullmatch(found.trial)
    for one in history:
        then = _ID.fullmatch(one.decision.trial)
        if then and now and (then[1], int(then[2] or 1)) > (now[1], int(now[2] or 1)):
            raise UsageError(
                f"{one.path.name} rests on trial {one.decision.trial}, which is later than {found.trial}: decide on "
                "the later one; an earlier trial can be cited with --cite"
            )
    last = history[-1] if history else None
    before = [one for one in history if _is_of(one.decision, found)]
    if last and before and last.decision.state == "reopened" and wish.state is None:
        raise UsageError(
            f"{before[-1].path.name} rests on this very evidence, and {last.path.name} reopened it: "
            f"{'; '.join(last.decision.reasons) or 'by hand'}; run a new trial, or name a --state"
        )


def _is_of(decision: Decision, found: Conclusion) -> bool:
    """Whether a record is of this very trial and arm."""
    if decision.arm != found.arm or decision.trial != found.trial:
        return False
    sources = {one.path for one in found.evidence}
    return bool(found.trial) or any(one.kind == "reported" and one.path in sources for one in decision.evidence)


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
            "ratio": found.ratio,
            "assumptions": found.assumptions,
            "evidence": list(wish.cites),
        }
    )


def _again(last: Record, found: Conclusion, wish: Wish, around: tuple[Tree, Option, list[Record]]) -> Decided:
    """Write the figures of a trial's own record again: an account may have come since. Its citations stay."""
    tree, option, records = around
    before = last.decision
    # The trial's own line may say more now; what was known then stays, and nothing of the tree is added to it.
    own = {(one.kind, one.trial, one.path) for one in found.evidence}
    others = [one for one in before.evidence if (one.kind, one.trial, one.path) not in own or one.kind == "published"]
    evidence = _distinct((*found.evidence, *others, *wish.cites))
    asked = replace(wish, today=before.date, state=before.state, cites=evidence)
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
    )


def _distinct(some: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple({one.model_dump_json(): one for one in some}.values())


def _states(tree: Tree, records: Sequence[Record]) -> dict[str, State]:
    return {one.name: state_of(tree, records, one.name) for one in tree.options}
