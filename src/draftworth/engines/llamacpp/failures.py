"""Finds the lines of a failed start's log that say why it failed.

Seen with 11434: unknown and removed arguments, values that are refused, a missing or broken model, a port in use, a
draft that needs layers the model lacks; older words of 9093 are kept.
"""

import re

from draftworth.engines import failing
from draftworth.engines.llamacpp import log_lines
from draftworth.engines.shown import shortened

_MEMORY = re.compile(
    r"out of memory|std::bad_alloc|failed to allocate (?:buffer|compute|.*memory)|unable to allocate|cudaMalloc failed"
    r"|ErrorOutOfDeviceMemory",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"(?:error: )?(?P<text>(?:error: )?(?:invalid argument: .+|error while handling .*))")
_TELLING = re.compile(
    r"couldn't bind HTTP server socket|failed to open GGUF file|failed to read magic|invalid magic"
    r"|unknown model architecture|context type MTP requested but model doesn't contain MTP"
    r"|synthetic acceptance requires|tensor '.*' (?:not found|has wrong)|unsupported .* version|wrong number of tensors"
    r"|error loading model: (?!.*failed to load model)|chat template parsing error"
)
_LIBRARY = re.compile(r".*error while loading shared libraries: .*")
_CRASH = re.compile(r".*(?:GGML_ASSERT\(|GGML_ABORT|terminate called after throwing|CUDA error: |Segmentation fault).*")
_CONSEQUENCE = re.compile(
    r"exiting due to|failed to load model$|encountered an error while trying to fit params|cleaning up before exit"
)


def failure_hint(text: str) -> str | None:
    """Return why a start failed in one line, from the text of its log, or None where no line says it.

    Memory that ran out comes first, then refused arguments, then what is known to be a cause, then the first error.
    """
    ranked: dict[int, str] = {}
    for raw in re.split(r"[\r\n]+", text):
        line = log_lines.parse(raw)
        rank = _rank(line)
        if rank is not None and line.message.strip():
            ranked.setdefault(rank, line.message.strip())  # causes stand in front of their consequences
    if not ranked:
        return None
    return shortened(ranked[min(ranked)], failing.LONGEST)


def _rank(line: log_lines.Line) -> int | None:
    """Return how telling a line is, 0 most; None where it tells of no failure."""
    message = line.message
    if failing.is_killed(message) or _MEMORY.search(message):
        return 0
    if _ARGUMENT.match(message):
        return 1
    if _TELLING.search(message) or _LIBRARY.match(message):
        return 2
    if failing.SHELL.fullmatch(message) or _CRASH.match(message):
        return 3
    if line.level == "E" or message.startswith(("error: ", "error loading")):
        return 5 if _CONSEQUENCE.search(message) else 4
    return None
