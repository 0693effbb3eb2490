"""Finds the lines of a failed start's log that say why it failed."""

import re
from collections.abc import Sequence

from draftworth.engines import failing
from draftworth.engines.vllm import log_lines

_EXCEPTION = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)|OutOfMemory\w*|Exception))"
    r"(?::\s(?P<text>.*)|:?)$"
)
_ARGPARSE = re.compile(r"\S*: error: (?P<text>.+)")
_PYDANTIC = re.compile(r"(?:[\w.]+\.)?ValidationError: \d+ validation errors? for (?P<what>\S+)")
_PYTHON = re.compile(r"\S*python\S*: (?:No module named|can't open file) .*|\S*python\S*: Error while finding .*")
_BIND = re.compile(r".*\[Errno 98\].*", re.IGNORECASE)
_MEMORY = re.compile(r".*(?:CUDA out of memory|OutOfMemoryError|out of memory|No available memory for the cache)")
# These only say that another process failed, or that a process was told to end.
_CONSEQUENCE = re.compile(
    r".*(?:Engine core initialization failed|WorkerProc (?:initialization )?failed|EngineCore encountered an issue"
    r"|See (?:root cause|stack trace)|Engine process failed to start|EngineDeadError"
    r"|KeyboardInterrupt|SystemExit|CancelledError|BrokenPipeError|ConnectionResetError|EOFError|ProcessGroup)"
)


def failure_hint(text: str) -> str | None:
    """Return why a start failed in one line, from the text of its log, or None where no line says it.

    Memory that ran out comes first, then refused arguments and values, then the last exception that is not the mere
    consequence of another process's failure.
    """
    lines = [log_lines.parse(line).message.rstrip() for line in re.split(r"[\r\n]+", text)]
    return failing.hint(lines, _reason)


def _reason(lines: Sequence[str], index: int) -> tuple[int, str] | None:
    """Return how telling a line is (0 is most) and the reason it gives."""
    line = lines[index]
    if usage := _ARGPARSE.fullmatch(line):
        return 1, "error: " + usage["text"]
    if pydantic := _PYDANTIC.match(line):
        return 1, f"{pydantic['what']}: {failing.complaints(lines, index + 1)}"
    if failing.SHELL.fullmatch(line) or _PYTHON.fullmatch(line):
        return 2, line
    exception = _EXCEPTION.match(line)
    if not exception:
        return failing.killed(line) or ((2, line) if _BIND.match(line) else None)
    if _CONSEQUENCE.match(line):
        return 3, line
    return (0 if _MEMORY.match(line) else 2), _with_next(line, lines, index, exception["text"])


def _with_next(line: str, lines: Sequence[str], index: int, text: str | None) -> str:
    """Add the next line where an exception's own line says nothing or ends in a colon."""
    if (text and not text.endswith(":")) or index + 1 >= len(lines):
        return line
    following = lines[index + 1].strip()
    return f"{line} {following}" if following and not _EXCEPTION.match(following) else line
