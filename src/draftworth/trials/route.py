"""The order of a trial's steps: the plan's own, or, of a search, one that is chosen while it goes."""

from typing import TYPE_CHECKING

from draftworth.trials.searching import Searching

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftworth.trials.execute import Execution
    from draftworth.trials.steps import Step


def route(run: "Execution") -> "Iterator[tuple[Step, Sequence[Step]]]":
    """Yield each step with those that are still to come for certain."""
    if run.config.search is not None:
        run.searching = Searching(run, run.config.search)
        yield from run.searching.steps()
        return
    for number, step in enumerate(run.plan.steps, 1):
        yield step, run.plan.steps[number:]
