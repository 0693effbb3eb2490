"""Finds the lines of a failed start's log that say why it failed."""

import re

from draftworth.engines.vllm import log_lines

_LONGEST = 400  # characters
_EXCEPTION = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)|OutOfMemory\w*|Exception))"
    r"(?::\s(?P<text>.*)|:?)$"
)
_ARGPARSE = re.compile(r"\S*: error: (?P<text>.+)")
_PYDANTIC = re.compile(r"(?:[\w.]+\.)?ValidationError: \d+ validation errors? for (?P<what>\S+)")
_DETAIL = re.compile(r"\s*\[type=.*$")
_SHELL = re.compile(r"(?:\S+: )(?:line \d+: )?.*(?:command not found|No such file or directory|Permission denied)$")
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
    ranked: dict[int, str] = {}
    for index, line in enumerate(lines):
        found = _reason(lines, index, line)
        if found:
            rank, reason = found
            ranked[rank] = reason  # of one rank the last counts
    return _shortened(ranked[min(ranked)]) if ranked else None


def _reason(lines: list[str], index: int, line: str) -> tuple[int, str] | None:
    """Return how telling a line is (0 is most) and the reason it gives."""
    if usage := _ARGPARSE.fullmatch(line):
        return 1, "error: " + usage["text"]
    if pydantic := _PYDANTIC.match(line):
        return 1, f"{pydantic['what']}: {_validation(lines, index + 1)}"
    if _SHELL.fullmatch(line) or _PYTHON.fullmatch(line):
        return 2, line
    exception = _EXCEPTION.match(line)
    if not exception:
        return _without_exception(line)
    if _CONSEQUENCE.match(line):
        return 3, line
    return (0 if _MEMORY.match(line) else 2), _with_next(line, lines, index, exception["text"])


def _without_exception(line: str) -> tuple[int, str] | None:
    if line == "Killed" or line.endswith(": Killed"):
        return 0, f"{line}: the kernel ended the process, most often for want of memory"
    return (2, line) if _BIND.match(line) else None


def _validation(lines: list[str], start: int) -> str:
    """Return pydantic's complaints: a field's name on a line of its own, then what is wrong with it, indented."""
    told: list[str] = []
    for line in lines[start:]:
        if not line or line.lstrip().startswith("For further information") or len(told) >= 4:  # noqa: PLR2004
            break
        words = _DETAIL.sub("", line.strip()).removeprefix("Value error, ")
        told.append(words if line.startswith(" ") else words + ":")
    return " ".join(told)


def _with_next(line: str, lines: list[str], index: int, text: str | None) -> str:
    """Add the next line where an exception's own line says nothing or ends in a colon."""
    if (text and not text.endswith(":")) or index + 1 >= len(lines):
        return line
    following = lines[index + 1].strip()
    return f"{line} {following}" if following and not _EXCEPTION.match(following) else line


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else reason[:_LONGEST] + "…"
