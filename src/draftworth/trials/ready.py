"""When a server is ready: healthy, the process on the port is ours, and one token generated."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.bench.base import Access
from draftworth.errors import MeasureError, ServerStartError
from draftworth.services.processes import tail

if TYPE_CHECKING:
    from draftworth.engines.base import LogReader
    from draftworth.services.base import Running, Service

_POLL_S = 0.25
_PIECE = 2**20
_PERMANENT = re.compile(r"HTTP (401|403|404)\b")


class LogFollower:
    """Feeds a growing log file to a reader.

    Args:
        path: the log; may not exist yet.
        reader: takes the text.
        offset: where to begin, in bytes.
    """

    def __init__(self, path: Path, reader: "LogReader", offset: int = 0) -> None:
        self.path = path
        self.reader = reader
        self._offset = offset

    def read(self) -> None:
        """Feed what was written since the last call, in bounded pieces."""
        while self._read_piece():
            pass

    def _read_piece(self) -> bool:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_PIECE)
        except OSError:
            return False
        # A character cut in two waits for its rest.
        keep = 0
        for back in range(1, min(4, len(data)) + 1):
            if data[-back] >= 0xC0:  # noqa: PLR2004 - the first byte of a multi-byte character
                width = 2 if data[-back] < 0xE0 else 3 if data[-back] < 0xF0 else 4  # noqa: PLR2004 - UTF-8
                keep = back if back < width else 0
                break
        more = len(data) == _PIECE
        data = data[: len(data) - keep]
        self._offset += len(data)
        if data:
            self.reader.feed(data.decode("utf-8", errors="replace"))
        return more


def wait_ready(
    service: "Service",
    running: "Running",
    follower: LogFollower,
    *,
    url: str,
    access: Access | None,
    model: str | None,
    deadline: float,
    say: Callable[[str], None],
    hint: Callable[[str], str | None],
    life: Callable[[], str] = lambda: "",
) -> "tuple[str, Running]":
    """Wait until a server has generated a token.

    Args:
        service: tells whether the process lives and owns the port.
        running: the start.
        follower: its log.
        url: where it answers.
        access: what lets the tool in; None: health is all that can be seen.
        model: the served name, or None for the first it lists.
        deadline: `time.monotonic()` after which the start has failed.
        say: takes what the server is doing.
        hint: finds the cause in a failed start's log.
        life: says how the load goes beside what the log tells; raises ServerStartError where it hangs.

    Returns:
        The model's served name (empty where it was not asked), and the start with its children known.

    Raises:
        ServerStartError: it ended, a stranger answers, or the deadline passed.
    """
    from draftworth.bench.run import healthy_sync, probe_sync  # noqa: PLC0415 - lazy: aiohttp

    trouble = ""
    while True:
        follower.read()
        say("; ".join(part for part in (follower.reader.facts().phase, life()) if part))
        if not service.alive(running):
            raise ServerStartError(_ended(service, running, hint), tail(running.log))
        if healthy_sync(url, access=access or Access()):
            if not service.owns_port(running):
                raise ServerStartError(f"{url} is answered by a process that is not the one just started")
            running = service.refresh(running)
            if access is None:
                return "", running
            say("generating the first token")
            try:
                left = max(1.0, min(120.0, deadline - time.monotonic()))
                return probe_sync(url, model=model, timeout=left, access=access), running
            except MeasureError as error:
                trouble = str(error)
                if _PERMANENT.search(trouble):
                    # Waiting does not help: a wrong model name, or a key that is asked for.
                    raise ServerStartError(f"the server is up and refuses to generate: {trouble}") from None
        if time.monotonic() >= deadline:
            doing = trouble or f"still {follower.reader.facts().phase}"
            raise ServerStartError(f"the server was not ready in time ({doing})", tail(running.log))
        time.sleep(_POLL_S)


def _ended(service: "Service", running: "Running", hint: Callable[[str], str | None]) -> str:
    code = service.exit_code(running)
    how = "" if code is None else f" with exit code {code}" if code >= 0 else f" by signal {-code}"
    found = hint("\n".join(tail(running.log, lines=400)))
    return f"the server ended while it started{how}" + (f": {found}" if found else "")
