"""Finds the line of a failed start's log that says why it failed, for every engine: what is alike in their logs.

Each engine's `failures.py` says how telling a line is; shells, the kernel and pydantic speak the same way to all.
"""

import re
from collections.abc import Callable, Sequence

from draftworth.engines.shown import shortened

LONGEST = 400
"""Characters of a reason."""
SHELL = re.compile(r"(?:\S+: )(?:line \d+: )?.*(?:command not found|No such file or directory|Permission denied)$")
"""A shell's line about a program it cannot start."""

_DETAIL = re.compile(r"\s*\[type=.*$")
_COMPLAINTS = 4  # lines: two fields


def hint(lines: Sequence[str], reason_of: Callable[[Sequence[str], int], tuple[int, str] | None]) -> str | None:
    """Return the most telling reason that lines give, of equally telling ones the last; None where no line gives one.

    Args:
        lines: the log's messages.
        reason_of: returns how telling the line at an index is (0 is most) and the reason it gives, or None.
    """
    ranked: dict[int, str] = {}
    for index in range(len(lines)):
        found = reason_of(lines, index)
        if found:
            ranked[found[0]] = found[1]
    return shortened(ranked[min(ranked)], LONGEST) if ranked else None


def is_killed(line: str) -> bool:
    """Whether a shell says that the kernel ended a process."""
    return line == "Killed" or line.endswith(": Killed")


def killed(line: str) -> tuple[int, str] | None:
    """Return the reason of a process that the kernel ended, as most telling, or None where the line says no such."""
    return (0, f"{line}: the kernel ended the process, most often for want of memory") if is_killed(line) else None


def complaints(lines: Sequence[str], start: int) -> str:
    """Return pydantic's complaints: a field's name on a line of its own, then what is wrong with it, indented."""
    told: list[str] = []
    for line in lines[start:]:
        if not line or line.lstrip().startswith("For further information") or len(told) >= _COMPLAINTS:
            break
        words = _DETAIL.sub("", line.strip()).removeprefix("Value error, ")
        told.append(words if line.startswith(" ") else words + ":")
    return " ".join(told)
