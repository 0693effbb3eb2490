"""Reads the log of a starting SGLang server as it grows.

The log does not name SGLang's version in any release read; the version is asked of the installation or of
`/server_info`. The configuration is that of the `server_args=` line, as SGLang changed it, with two keys added from the
scheduler's line (`max_total_num_tokens=…, …`): `kv_cache_tokens` and `effective_max_running_requests`. Warnings about
arguments come before the `server_args=` line they belong to.
"""

import re

from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.phases import Phase
from draftworth.engines.sglang import log_lines, phases, server_args
from draftworth.engines.sglang.log_warnings import warning_in

NEEDLES: tuple[bytes, ...] = (
    b"server_args=",
    b"max_total_num_tokens=",
    b"peculative",
    b"verlap sched",
    b"ixed chunked prefill",
    b"Non-overlap",
    b"Spec v1 is used",
    b"DSpark gamma",
    b"uda graph ",
    b"CUDA graph is",
    b"Attention backend not",
    b"page_size",
    b"page size",
    b"adix cache",
    b"is fired up and ready",
)
_LONGEST = 1 << 20  # characters of one line that are kept
_ENDS = re.compile(r"[\r\n]+")
_SERVER_ARGS = "server_args="
_NO_NEWS = "] Decode batch"  # most lines of a long log; they tell nothing of a start
_SCHEDULER = re.compile(r"max_total_num_tokens=(?P<tokens>\d+), .*?max_running_requests=(?P<requests>\d+)")


class SGLangLogReader:
    """Takes a log in pieces of any size; the facts do not depend on where the pieces end.

    A log that is appended to holds several starts; the facts are those of the last. A start begins at a warning about
    its arguments, or, where there is none, at the arguments themselves.

    Attributes:
        starts: how many starts the log has shown so far.
    """

    def __init__(self, version: str | None = None) -> None:
        self.starts = 0
        self._version = version
        self._pending = ""
        self._forget()

    def _forget(self) -> None:
        """Begin a start."""
        self._begun = self._printed = False
        self._phase = Phase(0, phases.FIRST)
        self._shown = phases.FIRST
        self._config: dict[str, str] = {}
        self._warnings: dict[tuple[str, str], LogWarning] = {}

    def feed(self, text: str) -> None:
        """Take the next piece of the log; it may end in the middle of a line. Never raises on odd text."""
        *complete, rest = _ENDS.split(self._pending + text)
        self._pending = rest[:_LONGEST]
        for line in complete:
            if line and _NO_NEWS not in line:
                self._take(log_lines.parse(line[:_LONGEST]))

    def facts(self) -> StartupFacts:
        """Everything told so far."""
        shown = self._shown
        if self._pending:  # a progress bar ends its line only when it is drawn again
            shown = self._phase_after(log_lines.parse(self._pending).message)[1]
        return StartupFacts(
            phase=shown,
            version=self._version,
            device=self._config.get("device"),
            speculating=server_args.speculates(self._config),
            config=dict(self._config),
            warnings=tuple(self._warnings.values()),
        )

    def _phase_after(self, message: str) -> tuple[Phase, str]:
        found = phases.phase_of(message)
        if found and found[0].stage >= self._phase.stage:
            return found
        return self._phase, self._shown

    def _take(self, line: log_lines.Line) -> None:
        message = line.message
        found = warning_in(message)
        arguments = message.startswith(_SERVER_ARGS)
        if arguments or (found and found[1].at_start):
            if self._printed or self._phase.stage >= phases.SERVES:
                self._forget()
            self.starts += not self._begun
            self._begun = True
        self._phase, self._shown = self._phase_after(message)
        if found:
            self._warnings.setdefault((found[0].code, found[0].line), found[0])
        if arguments:
            self._printed = True
            self._config |= server_args.parse(message.removeprefix(_SERVER_ARGS))
        elif scheduler := _SCHEDULER.match(message):
            self._config["kv_cache_tokens"] = scheduler["tokens"]
            self._config["effective_max_running_requests"] = scheduler["requests"]
