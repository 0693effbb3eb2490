"""The driver of a trial: the main process of a transient unit on the machine that serves.

It survives whoever started it. `result.json` beside the journal says how it ended, for those who follow; where the
driver itself dies, the end of its unit starts the restore unit, which writes the record through `--record`.
"""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftworth.errors import EXIT_NOT_MEASURED, EXIT_UNEXPECTED, DraftworthError, NotRestoredError, RefusedError
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.events import NAME as EVENTS
from draftworth.trials.driver.events import EventLog
from draftworth.trials.steps import Plan

REQUEST = "request.json"
RESULT = "result.json"


@dataclass(slots=True)
class HostWatch:
    """The host itself, which restores the service through what was set up on it.

    Attributes:
        pid: the driver's own.
    """

    pid: int

    def alive(self) -> bool:
        """Whether systemd answers: starting a variant checks the rest."""
        return Path("/run/systemd/system").is_dir()


@contextmanager
def _host_watch(folder: Path) -> Iterator[HostWatch]:  # noqa: ARG001 - the process guard's signature
    yield HostWatch(os.getpid())


def drive(folder: Path) -> int:
    """Run the trial that a folder's request describes. Returns the exit code; never raises."""
    try:
        code, text, commands = _drive(folder)
    except DraftworthError as error:
        commands = error.commands if isinstance(error, NotRestoredError) else ()
        code, text = error.exit_code, str(error)
    except KeyboardInterrupt:
        (code, text), commands = _ended_by_signal(folder), ()
    except BaseException as error:  # noqa: BLE001 - whoever follows has to learn of it
        code, text, commands = EXIT_UNEXPECTED, f"unexpected error, a bug in Draftworth: {error!r}", ()
        _keep(folder / "crash.txt", "".join(traceback.format_exception(error)))
    _keep(folder / RESULT, json.dumps({"exit": code, "text": text, "commands": list(commands)}))
    return code


def _ended_by_signal(folder: Path) -> tuple[int, str]:
    """Return how a trial ended that a signal reached outside of its work: before the first change, or after the end."""
    from draftworth.trials.record import NAME, read  # noqa: PLC0415 - lazy

    if (folder / NAME).is_file():
        return read(folder).exit_code, ""
    return EXIT_NOT_MEASURED, "a signal ended the trial before it changed anything"


def _drive(folder: Path) -> tuple[int, str, tuple[str, ...]]:
    from draftworth.trials.history import typical_seconds  # noqa: PLC0415 - lazy
    from draftworth.trials.prepare import Prepared, prepare_loaded  # noqa: PLC0415 - lazy
    from draftworth.trials.prepare_unit import fingerprint  # noqa: PLC0415 - lazy
    from draftworth.trials.run import conduct  # noqa: PLC0415 - lazy: heavy imports

    asked: dict[str, Any] = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    config = SystemdTrial.model_validate_json(json.dumps(asked["config"]))

    def look() -> Prepared:
        ready = prepare_loaded(config)
        if asked.get("plan") not in {None, fingerprint(ready)}:
            raise RefusedError(
                f"{ready.config.service.command and config.service.unit} is not as it was when the plan was shown "
                "(a file, a property, its process, or the steps differ); look at `draftworth trial plan` again"
            )
        return ready

    def show(plan: Plan) -> EventLog:
        kinds = [str(step.kind) for step in plan.steps]
        return EventLog(folder / EVENTS, kinds=kinds, known=typical_seconds(plan))

    port = int(asked["port"])
    finished = conduct(folder, port, look, guard=_host_watch, show=show)
    if finished.crash is not None:
        return EXIT_UNEXPECTED, f"unexpected error, a bug in Draftworth: {finished.crash!r}", ()
    return finished.record.exit_code, "", finished.record.restore_commands


def record(folder: Path) -> int:
    """Write the record of a trial whose driver died, once the host has put the service back. Returns an exit code."""
    from draftworth.trials.recover import recover  # noqa: PLC0415 - lazy

    try:
        print(recover(folder, _say, wait_s=60.0, by="the host's restore unit", role="restore"))  # noqa: T201 - journal
    except DraftworthError as error:
        _say(str(error))
        return error.exit_code
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - goes to the journal


def _keep(path: Path, text: str) -> None:
    """Write a file whole; a full disk leaves none."""
    beside = path.with_suffix(".tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        _say(f"{path}: cannot be written: {error}")


def main(arguments: list[str]) -> int:
    """Drive a trial, or write the record of a dead one."""
    last = Path(arguments[-1])
    os.environ["DRAFTWORTH_HOME"] = str(last.parent.parent)
    return record(last) if arguments[0] == "--record" else drive(last)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Everything is written. Whoever follows goes by that, and finds this unit ended: tearing down what drew the page
    # would keep it for a second.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
