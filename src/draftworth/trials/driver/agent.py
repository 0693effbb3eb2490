"""The other end of a remote trial: `draftworth agent VERB` on the machine that serves, run over SSH by the tool itself.

One JSON document on standard input, lines of JSON on standard output. An error is a document too, so that the client
raises what was raised here.
"""

import base64
import fcntl
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import draftworth
from draftworth.errors import EXIT_UNEXPECTED, DraftworthError, NotRestoredError, RefusedError, UsageError
from draftworth.trials.config import SystemdTrial, key_variable
from draftworth.trials.driver.local import LocalStation
from draftworth.trials.driver.sending import pieces
from draftworth.trials.driver.station import PlanShown

Asked = Mapping[str, Any]
Answers = Iterator[Mapping[str, Any]]

_KEY = re.compile(r"[0-9a-f]{8,64}")
_KEPT_S = 30 * 86400.0
_PRIVATE = 0o700
_FILES = frozenset({"workload.source", "service.ca_file"})


def serve(verb: str, asked: Asked) -> int:
    """Do one thing and print its answer. Returns the exit code."""
    os.environ.setdefault(
        "DRAFTWORTH_HOME", "/var/lib/draftworth" if os.geteuid() == 0 else str(Path.home() / ".draftworth")
    )
    try:
        _check(verb, str(asked.get("version", "")), str(asked.get("alias", "ALIAS")))
        for document in VERBS[verb](LocalStation(), asked):
            _print(document)
    except DraftworthError as error:
        commands = list(error.commands) if isinstance(error, NotRestoredError) else []
        _print({"error": {"exit": error.exit_code, "text": str(error), "commands": commands}})
        return error.exit_code
    except BrokenPipeError:
        # Whoever asked is gone. What is left in the buffer goes nowhere, without a word at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the client shows it
        _print({"error": {"exit": EXIT_UNEXPECTED, "text": f"unexpected error on the serving machine: {error!r}"}})
        return EXIT_UNEXPECTED
    return 0


def _check(verb: str, client: str, alias: str) -> None:
    """Raise UsageError where there is no such request, or the two ends are of different versions."""
    if verb not in VERBS:
        raise UsageError(f"{verb!r}: no such request; known: {', '.join(VERBS)}")
    if client != draftworth.__version__:
        raise UsageError(
            f"Draftworth {draftworth.__version__} is installed there and {client or 'none'} here; make them the same "
            f"(`draftworth host install {alias}` brings this one there)"
        )


def _hello(station: LocalStation, asked: Asked) -> Answers:  # noqa: ARG001 - as all of them
    home = Path(os.environ["DRAFTWORTH_HOME"])
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    yield {
        "version": draftworth.__version__,
        "root": os.geteuid() == 0,
        "home": str(home),
        "writable": os.access(there, os.W_OK),
        "free": shutil.disk_usage(there).free,
    }


def _plan(station: LocalStation, asked: Asked) -> Answers:
    _need_root()
    with tempfile.TemporaryDirectory(prefix="draftworth-") as folder:
        config = _config(asked, Path(folder))
        _variables(asked)
        yield station.plan(config, files=bool(asked.get("show_files"))).model_dump(mode="json")


def _start(station: LocalStation, asked: Asked) -> Answers:
    _need_root()
    yield {"trial": _started(station, asked)}


def _events(station: LocalStation, asked: Asked) -> Answers:
    yield from station.events(_trial(asked), int(asked.get("offset", 0)))


def _end(station: LocalStation, asked: Asked) -> Answers:
    yield {"done": station.end(_trial(asked))}


def _release(station: LocalStation, asked: Asked) -> Answers:
    yield {"done": station.release(_trial(asked))}


def _status(station: LocalStation, asked: Asked) -> Answers:
    yield {"trials": list(station.status(None if asked.get("trial") is None else _trial(asked)))}


def _fetch(station: LocalStation, asked: Asked) -> Answers:
    yield from pieces(station.fetch(_trial(asked)))


def _adopt(station: LocalStation, asked: Asked) -> Answers:
    _need_root()
    _variables(asked)
    arm = asked.get("arm")
    restart = bool(asked.get("restart"))
    yield {"told": station.adopt(_trial(asked), arm=None if arm is None else str(arm), restart=restart, say=_say)}


def _unadopt(station: LocalStation, asked: Asked) -> Answers:
    _need_root()
    _variables(asked)
    yield {"told": station.unadopt(_trial(asked), restart=bool(asked.get("restart")), say=_say)}


VERBS: dict[str, Callable[[LocalStation, Asked], Answers]] = {
    "hello": _hello,
    "plan": _plan,
    "start": _start,
    "events": _events,
    "end": _end,
    "release": _release,
    "status": _status,
    "fetch": _fetch,
    "adopt": _adopt,
    "unadopt": _unadopt,
}
"""Every request, and what answers it with documents."""


def _trial(asked: Asked) -> str:
    return str(asked.get("trial", ""))


def _need_root() -> None:
    """Refuse where units cannot be changed. Raises RefusedError."""
    if os.geteuid() != 0:
        raise RefusedError(
            "the login there is not root's, and a trial changes units of the system: set service.sudo = true (sudo "
            "must not ask for a password), or log in as root"
        )


def _started(station: LocalStation, asked: Asked) -> str:
    """Start a trial once for each key: a client that lost the connection asks again. Returns its id."""
    key = str(asked["key"])
    if not _KEY.fullmatch(key):
        raise UsageError(f"{key!r}: not a key of a request")
    sent = Path(os.environ["DRAFTWORTH_HOME"]) / "sent"
    folder = sent / key
    try:
        _forget_old(sent)
        folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = folder / "trial"
            if known.is_file():
                return known.read_text(encoding="ascii")
            try:
                config = _config(asked, folder)
                _variables(asked)
                trial = station.start(config, PlanShown.model_validate(asked["shown"]))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            known.write_text(trial, encoding="ascii")
            return trial
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}; a trial is kept there") from None


def _forget_old(sent: Path) -> None:
    """Remove what came with trials of long ago."""
    with suppress(OSError):
        for folder in sent.iterdir():
            if time.time() - folder.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


def _variables(asked: Asked) -> None:
    """Set the variables that the trial's file names: keys, which came over SSH's standard input."""
    for name, value in dict(asked.get("variables", {})).items():
        try:
            os.environ[key_variable(str(name))] = str(value)
        except ValueError as error:
            raise UsageError(str(error)) from None


def _config(asked: Asked, folder: Path) -> SystemdTrial:
    """Return the trial's file with the client's own files put beside it."""
    data = json.loads(json.dumps(asked["config"]))
    for where, file in dict(asked.get("files", {})).items():
        if where not in _FILES:
            raise UsageError(f"{where!r}: no file of a trial")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{where}-{Path(str(file['name'])).name}"
        path.write_bytes(base64.b64decode(file["data"]))
        table, name = where.split(".")
        data[table][name] = str(path)
    data["service"]["host"] = ""
    try:
        return SystemdTrial.model_validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"the trial's file is not understood here: {where}: {first['msg']}") from None


def _say(text: str) -> None:
    """Tell what is happening; where the connection is lost, the act goes on to its end."""
    with suppress(OSError):
        _print({"kind": "line", "text": text})


def _print(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, default=str) + "\n")
    sys.stdout.flush()
