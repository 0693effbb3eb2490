"""Whether a trial's measuring goes on: a look at the evidence, and the time that another round would take."""

from typing import TYPE_CHECKING

from draftworth.findings import Code, find
from draftworth.trials.judge import decided
from draftworth.trials.steps import Kind

if TYPE_CHECKING:
    from draftworth.trials.execute import Execution
    from draftworth.trials.steps import Step


def no_time_for(run: "Execution", step: "Step") -> bool:
    """Whether the original would be stopped again with too little time left to measure and put it back."""
    why = run.downtime.too_short() if step.kind is Kind.STOP_ORIGINAL and not run.enough else None
    if why is not None:
        run.outcome.findings.append(find(Code.ROUNDS_LEFT_OUT, why))
    return why is not None


def look(run: "Execution", step: "Step") -> None:
    """Judge what is measured; end the measuring where it is enough. The last look is the verdict's own."""
    run.outcome.look = step.look
    run.outcome.complete = len(run.outcome.blocks)
    if step.look == run.outcome.looks:
        return
    looks = run.outcome.looks
    run.enough = decided(
        run.outcome.blocks,
        run.arms,
        run.config,
        look=step.look,
        looks=looks,
        given_up=frozenset(run.outcome.given_up),
    )
    run.journal.append("note", step.id, enough=run.enough)
    run.progress.line("the evidence is enough" if run.enough else "not enough yet")
