"""Finds the line of a failed start's log that says why it failed."""

import re

from draftworth.engines.trtllm import log_lines

_LONGEST = 400  # characters
_CLICK = re.compile(r"Error: (?:No such (?:option|command)|Missing argument|Invalid value|Got unexpected|Option ).*")
_EXCEPTION = re.compile(
    r"(?:\[[^\]]*\] )*(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Failure|Exit)|Exception)(?:: .*)?"
)
_VALIDATION = re.compile(r"(?:[\w.]+\.)?ValidationError: \d+ validation errors? for (?P<what>\S+)")
_DETAIL = re.compile(r"\s*\[type=.*$")
_MEMORY = re.compile(
    r".*(?:CUDA out of memory|OutOfMemoryError|out of memory|insufficient GPU memory).*", re.IGNORECASE
)
_SHELL = re.compile(r"(?:\S+: )(?:line \d+: )?.*(?:command not found|No such file or directory|Permission denied)$")
_BIND = re.compile(r".*(?:\[Errno 98\]|Failed to bind socket).*")
# These only say that another process failed, or that a process was told to end.
_CONSEQUENCE = re.compile(
    r".*(?:KeyboardInterrupt|SystemExit|CancelledError|BrokenPipeError|ConnectionResetError|EOFError"
    r"|Executor worker (?:returned|died)|RequestError|MPI_ABORT|mpi4py\.MPI\.Exception).*"
)


def failure_hint(text: str) -> str | None:
    """Return why a start failed in one line, from the text of its log, or None where no line says it.

    Memory that ran out comes first, then refused options and settings, then the last exception that is not the mere
    consequence of another process's failure.
    """
    lines = [log_lines.parse(line).message.rstrip() for line in re.split(r"[\r\n]+", text)]
    ranked: dict[int, str] = {}
    for index, line in enumerate(lines):
        found = _reason(lines, index, line)
        if found:
            ranked[found[0]] = found[1]  # of one rank the last counts
    if not ranked:
        return None
    reason = ranked[min(ranked)]
    return reason if len(reason) <= _LONGEST else reason[:_LONGEST] + "…"


def _reason(lines: list[str], index: int, line: str) -> tuple[int, str] | None:
    """Return how telling a line is (0 is most) and the reason it gives."""
    if line == "Killed" or line.endswith(": Killed"):
        return 0, f"{line}: the kernel ended the process, most often for want of memory"
    if _CLICK.match(line):
        return 1, line
    if validation := _VALIDATION.match(line):
        return 1, f"{validation['what']}: {_complaints(lines, index + 1)}"
    if _MEMORY.fullmatch(line):
        return 0, line
    exception = _EXCEPTION.fullmatch(line)
    if not exception and not _SHELL.fullmatch(line) and not _BIND.fullmatch(line):
        return None
    return (3 if exception and _CONSEQUENCE.fullmatch(line) else 2), line


def _complaints(lines: list[str], start: int) -> str:
    """Return pydantic's complaints: a field's name on a line of its own, then what is wrong with it, indented."""
    told: list[str] = []
    for line in lines[start:]:
        if not line or line.lstrip().startswith("For further information") or len(told) >= 4:  # noqa: PLR2004 - two fields
            break
        words = _DETAIL.sub("", line.strip()).removeprefix("Value error, ")
        told.append(words if line.startswith(" ") else words + ":")
    return " ".join(told)
