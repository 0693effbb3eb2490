"""Says before anything is measured which counts a llama.cpp server will tell."""

from draftworth.engines.base import Given, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.llamacpp import releases
from draftworth.engines.llamacpp.planned import Arm, arm_of

_PAGE = "/metrics, difference of two scrapes, of the requests that ended between them"
_ANSWERS = "each answer's timings"
_NO_PAGE = "the server runs without --metrics, and answers do not tell it"
_NO_SPECULATION = "the arm does not speculate"
_NO_DRAFT = "without its draft model the server serves without speculation"
_NEVER_ASKED = "a draft model without --spec-type is never asked: the server serves without speculation"
_NEED_DRAFT = frozenset({"draft-eagle3", "draft-dflash", "draft-dspark"})
_IN_ANSWERS = frozenset({"steps", "drafted", "accepted", "emitted"})
_OF_SPECULATION = frozenset({"drafting_steps", "drafted", "accepted", "accepted_per_position"})


def gives(arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
    """Return which counts a server started as this arm will tell: one entry a count.

    Args:
        arm: how it is started.
        facts: its build; without one as the newest do.
    """
    planned = arm_of(arm, facts)
    described = planned.whole_command or bool(arm.args) or arm.speculation is not None
    speculates = planned.asked if described else facts.speculating is not False
    why_not = _served_without(planned) if speculates else _NO_SPECULATION
    metrics = planned.has("--metrics") or not planned.whole_command
    return tuple(_given(name, planned, why_not=why_not, metrics=metrics) for name in FIELDS)


def _served_without(arm: Arm) -> str | None:
    """Return why an arm that asks for speculation is served without it, or None; `doubts` says so too."""
    if arm.has_draft:
        # From BY_FILE on, a draft's own file may name its type.
        never = arm.since(releases.DRAFT_NEEDS_TYPE) and arm.since(releases.BY_FILE) is False
        return _NEVER_ASKED if never and not arm.types else None
    lacking = {"draft-simple"} if arm.has("--hf-repo") else {"draft-simple", *_NEED_DRAFT}
    return _NO_DRAFT if arm.types and lacking.issuperset(arm.types) else None


def _given(name: str, arm: Arm, *, why_not: str | None, metrics: bool) -> Given:
    speculates = why_not is None
    if name in _OF_SPECULATION and why_not is not None:
        return Given(name=name, given=False, how=why_not)
    counters = arm.since(releases.COUNTERS) is not False
    on_page = metrics and (counters or name == "emitted" or (name == "steps" and not speculates))
    if name in _IN_ANSWERS:
        return Given(name=name, given=True, how=f"{_PAGE}, and {_ANSWERS}" if on_page else _ANSWERS)
    if on_page:
        return Given(name=name, given=True, how=_PAGE)
    if not metrics:
        return Given(name=name, given=False, how=_NO_PAGE)
    first = releases.named(releases.COUNTERS)
    return Given(name=name, given=False, how=f"/metrics counts it from {first} on, and answers do not tell it")
