"""The steps of a search that no plan has, and those of a plan that a search leaves out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from draftworth.findings import Code, find
from draftworth.trials.steps import Kind, Step

if TYPE_CHECKING:
    from draftworth.trials.execute import Execution


def numbered(step: Step, blocks: int) -> Step:
    """Return a step with its block in order of time.

    Args:
        step: any.
        blocks: how many were measured before it.
    """
    if step.kind is Kind.MEASURE:
        return replace(step, block=blocks + 1)
    return replace(step, block=blocks) if step.kind is Kind.SCORE else step


def stop_again(blocks: int) -> Step:
    """Return the step that stops an original that came back behind a setting that died."""
    return Step(
        id=f"again-{blocks + 1:02d}-{Kind.STOP_ORIGINAL}",
        kind=Kind.STOP_ORIGINAL,
        about="stop the restored original service, for another setting",
        undo="start the original service",
    )


def nothing_started(run: "Execution", after: Sequence[Step], *, away: bool) -> list[Step]:
    """Return what is to come where no setting was started: only what puts back an original that is away."""
    _leave_out(run, after, "nothing was worth a start")
    return [step for step in after if step.kind is Kind.RESTORE and away]


def without_servers(run: "Execution", after: Sequence[Step]) -> list[Step]:
    """Return what is to come without arms that would need the original away: it is back, and stays."""
    _leave_out(run, after, "the last setting failed, and the original was put back")
    own = {step.arm for step in after if step.kind is Kind.START}
    return [step for step in after if step.arm not in own]


def needs_it_away(run: "Execution", after: Sequence[Step]) -> bool:
    """Whether the baseline is an arm of its own, which can be measured again only while the original is away."""
    return any(step.kind is Kind.START and step.arm not in run.only_measure for step in after)


def _leave_out(run: "Execution", after: Sequence[Step], why: str) -> None:
    for arm in dict.fromkeys(step.arm for step in after if step.arm in run.only_measure):
        run.outcome.given_up.add(arm)
        run.outcome.findings.append(find(Code.DIAGNOSTIC_FAILED, f"{arm} was left out: {why}", arm=arm))
