"""Finds the line of a failed start's log that says why it failed."""

import re
from collections.abc import Sequence

from draftworth.engines import failing
from draftworth.engines.trtllm import log_lines

_CLICK = re.compile(r"Error: (?:No such (?:option|command)|Missing argument|Invalid value|Got unexpected|Option ).*")
_EXCEPTION = re.compile(
    r"(?:\[[^\]]*\] )*(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Failure|Exit)|Exception)(?:: .*)?"
)
_VALIDATION = re.compile(r"(?:[\w.]+\.)?ValidationError: \d+ validation errors? for (?P<what>\S+)")
_MEMORY = re.compile(
    r".*(?:CUDA out of memory|OutOfMemoryError|out of memory|insufficient GPU memory).*", re.IGNORECASE
)
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
    return failing.hint(lines, _reason)


def _reason(lines: Sequence[str], index: int) -> tuple[int, str] | None:
    """Return how telling a line is (0 is most) and the reason it gives."""
    line = lines[index]
    if killed := failing.killed(line):
        return killed
    if _CLICK.match(line):
        return 1, line
    if validation := _VALIDATION.match(line):
        return 1, f"{validation['what']}: {failing.complaints(lines, index + 1)}"
    if _MEMORY.fullmatch(line):
        return 0, line
    exception = _EXCEPTION.fullmatch(line)
    if not exception and not failing.SHELL.fullmatch(line) and not _BIND.fullmatch(line):
        return None
    return (3 if exception and _CONSEQUENCE.fullmatch(line) else 2), line
