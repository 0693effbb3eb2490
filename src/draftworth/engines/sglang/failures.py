"""Finds the lines of a failed start's log that say why it failed."""

import re

from draftworth.engines.sglang import log_lines

_LONGEST = 400  # characters
_EXCEPTION = re.compile(
    r"(?:Rank \d+: |\[rank\d+\]: )?(?P<name>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)"
    r"|OutOfMemory\w*|Exception))(?::\s(?P<text>.*)|:?)$"
)
_ARGPARSE = re.compile(r"[\w. /-]*: error: (?P<text>.+)")
_SHELL = re.compile(r"(?:\S+: )(?:line \d+: )?.*(?:command not found|No such file or directory|Permission denied)$")
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
    found = [log_lines.parse(line).message.rstrip() for line in re.split(r"[\r\n]+", text)]
    ranked: dict[int, str] = {}
    for index, line in enumerate(found):
        reason = _reason(line, found[index + 1] if index + 1 < len(found) else "")
        if reason:
            ranked[reason[0]] = reason[1]  # of one rank the last counts
    if not ranked:
        return None
    best = ranked[min(ranked)]
    return best if len(best) <= _LONGEST else best[:_LONGEST] + "…"


def _reason(line: str, following: str) -> tuple[int, str] | None:
    """Return how telling a line is (0 is most) and the reason it gives."""
    if line == "Killed" or line.endswith(": Killed"):
        return 0, f"{line}: the kernel ended the process, most often for want of memory"
    if usage := _ARGPARSE.fullmatch(line):
        return 1, "error: " + usage["text"]
    if _SHELL.fullmatch(line) or _PYTHON.fullmatch(line):
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
