"""The other end of a remote trial: `draftworth agent VERB` on the machine that serves, run over SSH by the tool itself.

One JSON document on standard input, lines of JSON on standard output. An error is a document too, so that the client
raises what was raised here.
"""

import base64
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import draftworth
from draftworth.errors import EXIT_UNEXPECTED, DraftworthError, NotRestoredError, UsageError
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.local import LocalStation
from draftworth.trials.driver.station import PlanShown

VERBS = ("hello", "plan", "start", "events", "end", "release", "status", "fetch")
_LARGEST_LOG = 64 * 2**20


def serve(verb: str, asked: Mapping[str, Any]) -> int:
    """Do one thing and print its answer. Returns the exit code."""
    os.environ.setdefault(
        "DRAFTWORTH_HOME", "/var/lib/draftworth" if os.geteuid() == 0 else str(Path.home() / ".draftworth")
    )
    try:
        _check(verb, str(asked.get("version", "")))
        _answer(verb, asked)
    except DraftworthError as error:
        commands = list(error.commands) if isinstance(error, NotRestoredError) else []
        _print({"error": {"exit": error.exit_code, "text": str(error), "commands": commands}})
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001 - the client shows it
        _print({"error": {"exit": EXIT_UNEXPECTED, "text": f"unexpected error on the serving machine: {error!r}"}})
        return EXIT_UNEXPECTED
    return 0


def _check(verb: str, client: str) -> None:
    """Raise UsageError where there is no such request, or the two ends are of different versions."""
    if verb not in VERBS:
        raise UsageError(f"{verb!r}: no such request; known: {', '.join(VERBS)}")
    if client != draftworth.__version__:
        raise UsageError(
            f"Draftworth {draftworth.__version__} is installed there and {client or 'none'} here; make them the same "
            "(`draftworth host install ALIAS` brings this one there)"
        )


def _answer(verb: str, asked: Mapping[str, Any]) -> None:
    station = LocalStation()
    trial = asked.get("trial")
    match verb:
        case "hello":
            _print(
                {"version": draftworth.__version__, "root": os.geteuid() == 0, "home": os.environ["DRAFTWORTH_HOME"]}
            )
        case "plan":
            with tempfile.TemporaryDirectory(prefix="draftworth-") as folder:
                config = _config(asked, Path(folder))
                _variables(asked)
                _print(station.plan(config, files=bool(asked.get("show_files"))).model_dump(mode="json"))
        case "start":
            config = _config(asked, Path(os.environ["DRAFTWORTH_HOME"]) / "sent" / os.urandom(6).hex())
            _variables(asked)
            _print({"trial": station.start(config, PlanShown.model_validate(asked["shown"]))})
        case "events":
            for event in station.events(str(trial)):
                _print(event)
        case "end":
            _print({"done": station.end(str(trial))})
        case "release":
            _print({"done": station.release(str(trial))})
        case "status":
            _print({"trials": list(station.status(None if trial is None else str(trial)))})
        case "fetch":
            _send(station.fetch(str(trial)))


def _variables(asked: Mapping[str, Any]) -> None:
    """Set the variables that the trial's file names: keys, which came over SSH's standard input."""
    for name, value in dict(asked.get("variables", {})).items():
        os.environ[str(name)] = str(value)


def _config(asked: Mapping[str, Any], folder: Path) -> SystemdTrial:
    """Return the trial's file with the client's own files put beside it."""
    data = json.loads(json.dumps(asked["config"]))
    for where, file in dict(asked.get("files", {})).items():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / Path(str(file["name"])).name
        path.write_bytes(base64.b64decode(file["data"]))
        table, name = where.split(".")
        data[table][name] = str(path)
    data["service"]["host"] = ""
    return SystemdTrial.model_validate_json(json.dumps(data))


def _send(folder: Path) -> None:
    """Print a trial's folder as a tar archive in base64; what is only of use there stays."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size <= _LARGEST_LOG and path.suffix != ".tmp":
                archive.add(path, arcname=str(path.relative_to(folder)))
    _print({"id": folder.name, "data": base64.b64encode(data.getvalue()).decode()})


def _print(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, default=str) + "\n")
    sys.stdout.flush()
