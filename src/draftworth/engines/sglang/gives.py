"""Says before anything is measured which counts an SGLang of a release will tell."""

from draftworth.engines.base import Given, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.sglang import releases
from draftworth.engines.sglang.planned import Arm

_ANSWERS = "each answer's sglext.spec_tokens_details, asked for with return_spec_tokens_details"
_PAGE = "/metrics, difference of two scrapes, of the requests that finished between them"
_OF_PAGE = frozenset({"steps", "drafting_steps", "accepted", "emitted"})
_NO_METRICS = "the server runs without --enable-metrics"


def gives(arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
    """Return which counts a server started as this arm will tell: one entry a count.

    Answers are those of the OpenAI API; `/generate` tells accepted and proposed tokens from 0.5.6 on.
    """
    planned = Arm(arm, facts)
    return tuple(_given(name, planned) for name in FIELDS)


def _given(name: str, arm: Arm) -> Given:
    calls, answers = releases.text(releases.VERIFY_CALLS), releases.text(releases.SGLEXT)
    metrics = arm.is_on("enable_metrics") or not (arm.command_known or arm.has_config)
    if arm.speculation is None:
        if name == "emitted":
            return Given(name=name, given=metrics, how=_PAGE if metrics else _NO_METRICS)
        return Given(name=name, given=False, how="the arm does not speculate, and SGLang counts no plain decode steps")
    if arm.release is None:
        why = f"SGLang's version is not known: {answers} and later tell it in each answer"
        more = f", {calls} and later on /metrics" if name in _OF_PAGE else ""
        return Given(name=name, given=False, how=why + more)
    if arm.release >= releases.SGLEXT:
        return Given(name=name, given=True, how=_ANSWERS)
    if name == "emitted" or (name in _OF_PAGE and arm.release >= releases.VERIFY_CALLS):
        return Given(name=name, given=metrics, how=_PAGE if metrics else _NO_METRICS)
    first = f"{calls} and later on /metrics, {answers} and later" if name in _OF_PAGE else f"{answers} and later"
    return Given(name=name, given=False, how=f"SGLang {arm.version} does not tell it; {first} in each answer")
