"""Which change of an option's state is legal. Every one is a record; nothing is edited in place."""

from typing import Literal, get_args

from draftworth.errors import UsageError

State = Literal["open", "pending", "running", "ruled out", "adopted", "reopened"]
"""Of an option:

- `open`: nobody has looked at it;
- `pending`: wanted, and something is missing: its gate, more measurements, a decision;
- `running`: being measured or built;
- `ruled out`: measured, and not worth it for this setting under these assumptions;
- `adopted`: measured, and worth it;
- `reopened`: it was ruled out or adopted, and something it rested on has changed.
"""
STATES: tuple[State, ...] = get_args(State)

LEGAL: dict[State, frozenset[State]] = {
    "open": frozenset({"pending", "running", "ruled out", "adopted"}),
    "pending": frozenset({"pending", "running", "ruled out", "adopted", "open"}),
    "running": frozenset({"pending", "ruled out", "adopted", "open"}),
    "ruled out": frozenset({"ruled out", "reopened"}),
    "adopted": frozenset({"adopted", "reopened"}),
    "reopened": frozenset({"pending", "running", "ruled out", "adopted"}),
}
"""From each state, where it may go. What was decided is confirmed, or reopened first: no other way leads out of it.
`pending` to `pending` says that something else is missing now."""
DECIDED: frozenset[State] = frozenset({"ruled out", "adopted"})
LEFT: tuple[State, ...] = ("reopened", "running", "pending", "open")
"""What is still to be done."""


def check_change(option: str, before: State, after: State) -> None:
    """Refuse a change that is not legal.

    Raises:
        UsageError: says what is.
    """
    if after not in LEGAL[before]:
        may = ", ".join(sorted(LEGAL[before]))
        raise UsageError(f"option {option}: {before} cannot become {after}; it can become: {may}")


def way(before: State, after: State) -> tuple[State, ...]:
    """Return the states to go through from one to the other, `after` last: what was decided is reopened first.

    Raises:
        UsageError: no legal way.
    """
    if after in LEGAL[before]:
        return (after,)
    if before in DECIDED and after in LEGAL["reopened"]:
        return ("reopened", after)
    check_change("", before, after)
    return (after,)
