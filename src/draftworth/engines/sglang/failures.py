"""Finds the lines of a failed start's log that say why it failed."""

import re
from collections.abc import Sequence

from draftworth.engines import failing
from draftworth.engines.sglang import log_lines

_EXCEPTION = re.compile(
    r"(?:Rank \d+: |\[rank\d+\]: )?(?P<name>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)"
    r"|OutOfMemory\w*|Exception))(?::\s(?P<text>.*)|:?)$"
)
_ARGPARSE = re.compile(r"[\w. /-]*: error: (?P<text>.+)")
_PYTHON = re.compile(r"\S*python\S*: (?:No module named|can't open file) .*")
_BIND = re.compile(r".*(?:\[Errno 98\]|[Aa]ddress already in use).*")
_MEMORY = re.compile(r".*(?:CUDA out of memory|OutOfMemoryError|out of memory|Not enough memory)")
# These only say that another process failed, or that a process was told to end.
_CONSEQUENCE = re.compile(
    r".*(?:Received sigquit from a child|Rank \d+ scheduler (?:died|is dead)|Scheduler hit an exception"
    r"|scheduler .*died|kill_process_tree|SIGQUIT"
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
    line, following = lines[index], "".join(lines[index + 1 : index + 2])
    if killed := failing.killed(line):
        return killed
    if usage := _ARGPARSE.fullmatch(line):
        return 1, "error: " + usage["text"]
    if failing.SHELL.fullmatch(line) or _PYTHON.fullmatch(line):
        return 2, line
    exception = _EXCEPTION.match(line)
    if not exception:
        return (2, line) if _BIND.match(line) else None
    if _CONSEQUENCE.match(line):
        return 3, line
    said = exception["text"]
    if (not said or said.endswith(":")) and following.strip() and not _EXCEPTION.match(following):
        line = f"{line} {following.strip()}"
    return (0 if _MEMORY.match(line) else 2), line
