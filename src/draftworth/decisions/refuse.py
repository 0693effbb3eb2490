"""What `decide` refuses: a change the figures do not carry, a trial left behind, one that measured nothing."""

import re
from collections.abc import Sequence

from draftworth.decisions.base import Decision
from draftworth.decisions.conclude import Conclusion
from draftworth.decisions.records import Record
from draftworth.decisions.states import State
from draftworth.errors import UsageError

_ID = re.compile(r"^(\d{8}-\d{6})(?:-(\d+))?$")


def check_wish(found: Conclusion, state: State | None) -> None:
    """Refuse an adoption that the figures do not carry; to be more careful than they are is anybody's right."""
    if state == "adopted" and found.state != "adopted":
        raise UsageError(f"{found.arm} cannot be adopted on this: {found.outcome[0]}")
    if state == "ruled out" and found.verdict == "error":
        raise UsageError(f"{found.arm} cannot be ruled out on a trial that could not be measured: {found.outcome[0]}")


def check_order(found: Conclusion, history: Sequence[Record], state: State | None) -> None:
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
    kept = with_figures(history)
    if kept and found.verdict == "error" and not is_of(kept.decision, found):
        raise UsageError(
            f"trial {found.trial} could not be measured, so it says nothing of option {kept.decision.option}: "
            f"{kept.path.name} stands, with the figures of {kept.decision.trial or 'others'}; mend the cause and run "
            f"another trial: {found.outcome[0]}"
        )
    before = [one for one in history if is_of(one.decision, found)]
    if last and before and last.decision.state == "reopened" and state is None:
        raise UsageError(
            f"{before[-1].path.name} rests on this very evidence, and {last.path.name} reopened it: "
            f"{'; '.join(last.decision.reasons) or 'by hand'}; run a new trial, or name a --state"
        )


def with_figures(history: Sequence[Record]) -> Record | None:
    """Return the newest record with figures, of those since the option was last reopened."""
    for one in reversed(history):
        if one.decision.ratio is not None:
            return one
        if one.decision.state == "reopened":
            return None
    return None


def is_of(decision: Decision, found: Conclusion) -> bool:
    """Whether a record is of this very trial and arm."""
    if decision.arm != found.arm or decision.trial != found.trial:
        return False
    sources = {one.path for one in found.evidence}
    return bool(found.trial) or any(one.kind == "reported" and one.path in sources for one in decision.evidence)
