"""The guard of a trial: a small process that restores the service when the trial's own process dies.

Started as `python -m draftworth.trials.guard FOLDER` with a pipe on its standard input that only the trial holds
open. The kernel closes it when the trial ends, also by SIGKILL or the out-of-memory killer; the word written
before that tells a good end from a death. Imports stay minimal until there is something to do.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DONE = b"done"


@contextmanager
def guarded(folder: Path) -> Iterator[int]:
    """Keep a guard over a trial for the time of the block. Yields its pid."""
    with (folder / "logs" / "guard.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "draftworth.trials.guard", str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    try:
        yield child.pid
    finally:
        # Reached only while the trial's process lives, and then the trial restores by itself.
        with contextlib.suppress(OSError):
            assert child.stdin is not None
            child.stdin.write(_DONE)
            child.stdin.close()
        child.wait()


def main(folder: Path) -> int:
    """Wait for the trial's end; restore where it was no good one. Returns an exit code."""
    said = b""
    while piece := os.read(0, 64):
        said += piece
    if said == _DONE:
        return 0
    from draftworth.errors import DraftworthError  # noqa: PLC0415 - lazy: a guard weighs little until it is needed
    from draftworth.trials.recover import recover  # noqa: PLC0415 - lazy

    try:
        print(recover(folder, _say, wait_s=60.0, by="guard"), flush=True)  # noqa: T201 - its log
    except DraftworthError as error:
        print(error, flush=True)  # noqa: T201 - its log
        return error.exit_code
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its log


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
