"""What an account was made with, in a line; and whether one may replace another that is kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.costs.file import load_costs
from draftworth.errors import UsageError
from draftworth.explain.base import Explained, Inputs
from draftworth.predict.trialcosts import contradiction
from draftworth.trials.record import TrialRecord

if TYPE_CHECKING:
    from draftworth.costs.base import Costs

_COSTS = "costs*.json"
_DAY = 10
"""Characters of a date in ISO 8601."""


def made_with(inputs: Inputs | None) -> str:
    """Return what an account was made with, as a line."""
    if inputs is None:
        return "Made with: not known; an earlier version kept it."
    day = f" of {inputs.costs_created[:_DAY]}" if inputs.costs_created else ""
    whose = "" if inputs.costs_given else ", which the trial probed"
    found = [f"costs {inputs.costs}{day}{whose}" if inputs.costs else "no costs file"]
    if inputs.with_trials:
        found.append(f"with {_trials(inputs.with_trials)}")
    if inputs.speculation:
        found.append(f"speculation stated by hand: {' '.join(inputs.speculation)}")
    if inputs.drafter_ms:
        found.append(f"drafter's ms a step stated by hand: {', '.join(inputs.drafter_ms)}")
    return f"Made with: {'; '.join(found)}."


def _trials(ids: Sequence[str]) -> str:
    return f"trial{'s' if len(ids) > 1 else ''} {', '.join(ids)}"


def replaces(new: Inputs, kept: Explained | None) -> bool:
    """Whether an account is kept without being asked to.

    A figure that somebody only states is tried out and not kept. An account with evidence takes the place of one that
    was made with nothing given, and of one with the same inputs; never the other way round, so that looking at a trial
    does not take evidence from its report.

    Args:
        new: what it was made with.
        kept: the account in the trial's folder; None for none.
    """
    if kept is not None and kept.inputs == new:
        return True
    if new.drafter_ms:
        return False
    return kept is None or kept.inputs is None or not given(kept.inputs)


def given(inputs: Inputs) -> bool:
    """Whether somebody gave anything beside the trial itself."""
    return inputs.costs_given or bool(inputs.with_trials or inputs.speculation or inputs.drafter_ms)


def costs_beside(folder: Path, record: TrialRecord) -> str:
    """Return which costs file of the trial's server lies in its folder or beside it, as a line; empty for none.

    Args:
        folder: the trial's.
        record: the trial's.
    """
    found: list[tuple[Path, Costs]] = []
    # Resolved: the parent of `.` is no folder above it.
    for path in sorted(one for place in (folder, folder.resolve().parent) for one in place.glob(_COSTS)):
        try:
            costs = load_costs(path)
        except UsageError:
            continue
        if costs.points and contradiction(costs, record) is None:
            found.append((path, costs))
    if not found:
        return ""
    path, costs = max(found, key=lambda one: one[1].created)
    return (
        f"no costs file was given, so what more tokens a step cost is known only of this trial's arms; a file of "
        f"{costs.created[:_DAY]} that does not contradict this trial's server would tell it: --costs {_shown(path)}"
    )


def _shown(path: Path) -> str:
    """Return a path from here where it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)
