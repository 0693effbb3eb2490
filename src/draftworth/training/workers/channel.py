"""How a worker talks: one JSON object a line on its standard output, and nothing else there.

Libraries print to standard output as they like: it is kept aside first, and all else goes to standard error,
which is the log. The events are `now`, `count`, `line`, `result`, and `failed` with a kind: `refused`, `unexpected`.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 3


class WorkerRefusedError(Exception):
    """An expected failure: its text is one line that says what, where and what to do."""


class Channel:
    """Writes events. Of several processes (torchrun) only the first one's go out."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._silent = os.environ.get("RANK", "0") != "0"

    def send(self, event: str, **fields: Any) -> None:
        """Write one event."""
        if self._silent:
            return
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def now(self, text: str) -> None:
        """What is happening."""
        self.send("now", text=text)

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far it is."""
        self.send("count", done=done, total=total, note=note)

    def line(self, text: str) -> None:
        """A line that stays."""
        self.send("line", text=text)


def serve(module: str, request: str) -> int:
    """Run `work(request, channel)` of a worker's module; its result is the last event.

    Args:
        module: the module's name in this package.
        request: a JSON file with what is to be done.

    Returns:
        The exit code: 0, 2 where it was refused, 1 for anything unexpected (the traceback is in the log).
    """
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    channel = Channel(kept)
    try:
        work = importlib.import_module(f"draftworth.training.workers.{module}").work
        result = work(json.loads(Path(request).read_text("utf-8")), channel)
    except WorkerRefusedError as error:
        channel.send("failed", kind="refused", text=str(error))
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - told in one line, with the traceback in the log
        traceback.print_exc()
        text = " ".join(str(error).split())[:400]
        channel.send("failed", kind="unexpected", text=f"{type(error).__name__}: {text}")
        return 1
    channel.send("result", result=result)
    return 0
