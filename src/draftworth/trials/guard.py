"""The guard of a trial: a small process that restores the service when the trial's own process dies.

Started as `python -m draftworth.trials.guard FOLDER FD` with a pipe on its standard input that only the trial holds
open. The kernel closes it when the trial ends, also by SIGKILL or the out-of-memory killer; the word written before
that tells a good end from a death. Everything it may need is imported before it says that it is ready, so that an
environment that is changed meanwhile does not matter.
"""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from draftworth.errors import DraftworthError, RefusedError

_DONE = b"done"
_READY = b"ready"
_PATIENCE_S = 30.0
_LOG = "guard.log"


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard that is ready.

    Attributes:
        process: its process.
    """

    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether it still watches."""
        from draftworth.services.processes import identify  # noqa: PLC0415 - lazy: psutil

        return identify(self.process.pid) is not None


@contextmanager
def guarded(folder: Path) -> Iterator[Guard]:
    """Keep a guard over a trial for the time of the block.

    Where the block ends by an exception, the guard is not told that all is well and restores by itself.

    Raises:
        RefusedError: it did not get ready; nothing was changed yet.
    """
    read_end, write_end = os.pipe()
    try:
        with (folder / "logs" / _LOG).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "draftworth.trials.guard", str(folder), str(write_end)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(write_end,),
            )
        os.close(write_end)
        write_end = -1
        _await_ready(read_end, child, folder)
    finally:
        for descriptor in (read_end, write_end):
            if descriptor >= 0:
                os.close(descriptor)
    assert child.stdin is not None
    try:
        yield Guard(child)
    except BaseException:
        # Closed without the word: the guard takes over once this process lets go of the lock.
        _close(child.stdin)
        child.returncode = 0  # nobody waits for it any more
        raise
    with contextlib.suppress(OSError):
        child.stdin.write(_DONE)
    _close(child.stdin)
    with contextlib.suppress(ChildProcessError):
        child.wait()


def _close(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        stream.close()


def _await_ready(descriptor: int, child: "subprocess.Popen[bytes]", folder: Path) -> None:
    readable, _, _ = select.select([descriptor], [], [], _PATIENCE_S)
    if readable and os.read(descriptor, 16) == _READY:
        return
    child.kill()
    child.wait()
    if child.stdin:
        _close(child.stdin)
    with contextlib.suppress(OSError):
        told = (folder / "logs" / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = told[-1] if told else "it said nothing"
        raise RefusedError(f"the trial's guard, which restores the service if the tool dies, did not start: {why}")
    raise RefusedError("the trial's guard, which restores the service if the tool dies, did not start")


def main(folder: Path, ready: int) -> int:
    """Wait for the trial's end; restore where it was no good one. Returns an exit code."""
    from draftworth.bench import run  # noqa: F401, PLC0415 - imported now, needed only after a death
    from draftworth.engines import CHOICES, engine  # noqa: PLC0415 - only in the guard's own process
    from draftworth.services import process  # noqa: F401, PLC0415 - as above
    from draftworth.trials.recover import recover  # noqa: PLC0415 - as above

    for name in CHOICES:
        engine(name).log_reader()
    os.write(ready, _READY)
    os.close(ready)
    said = b""
    while piece := os.read(0, 64):
        said += piece
    if said == _DONE:
        return 0
    try:
        _say(recover(folder, _say, wait_s=60.0, by="the trial's guard", role="guard"))
    except DraftworthError as error:
        _say(str(error))
        return error.exit_code
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its log


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2])))
