"""Trials driven on another machine, over OpenSSH's own client.

The trial and its journal live there. What is lost with the connection is only the watching, which begins again by
itself; whatever happens here, nothing stops there.
"""

import base64
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import draftworth
from draftworth.errors import (
    EXIT_NOT_RESTORED,
    EXIT_REFUSED,
    EXIT_USAGE,
    DraftworthError,
    NotRestoredError,
    RefusedError,
    TrialError,
    UsageError,
)
from draftworth.hosts.base import HostError
from draftworth.hosts.ssh import SshHost
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.pointers import Pointer, keep
from draftworth.trials.driver.station import PlanShown
from draftworth.trials.home import trials_folder

_ASK_S = 600.0
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 20.0)
_NOT_FOUND = 127


class RemoteStation:
    """See `Station`."""

    def __init__(self, alias: str, *, program: str = "draftworth", sudo: bool = False) -> None:
        """Make one; connects when it is first asked something.

        Args:
            alias: as `ssh` takes it.
            program: Draftworth there.
            sudo: become root there with `sudo -n`.

        $DRAFTWORTH_SSH_CONFIG names another configuration of the ssh client than ~/.ssh/config.
        """
        named = os.environ.get("DRAFTWORTH_SSH_CONFIG")
        self._host = SshHost(alias, ssh_config=Path(named) if named else None)
        self._pointer = Pointer(host=alias, draftworth=program, sudo=sudo)
        self.name = self._host.name

    def plan(self, config: SystemdTrial, *, files: bool = False) -> PlanShown:
        """Return what a run would do there."""
        return PlanShown.model_validate(self._ask("plan", {**_sent(config), "show_files": files}))

    def start(self, config: SystemdTrial, shown: PlanShown) -> str:
        """Start the driver there."""
        answer = self._ask("start", {**_sent(config), "shown": shown.model_dump(mode="json")})
        trial = str(answer["trial"])
        with suppress(OSError):
            keep(trial, self._pointer)
        return trial

    def events(self, trial: str) -> Iterator[dict[str, Any]]:
        """Yield what a trial says; a lost connection is made again, and what was told is not told twice."""
        told = 0
        failures = 0
        while True:
            number = 0
            try:
                with self._host.stream(self._argv("events"), stdin=_document({"trial": trial})) as lines:
                    for line in lines:
                        event = _read(line)
                        if event is None:
                            continue
                        # What is not in the trial's own log is told anew each time, and is not counted.
                        logged = not event.get("own") and event.get("kind") != "end"
                        number += logged
                        if logged and number <= told:
                            continue
                        told, failures = max(told, number), 0
                        yield event
                        if event.get("kind") == "end":
                            return
                why = "it ended early"
            except HostError as error:
                why = str(error)
            wait = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
            failures += 1
            yield {"kind": "line", "text": f"connection lost ({why}); the trial goes on there; again in {wait:g} s"}
            time.sleep(wait)

    def end(self, trial: str) -> bool:
        """Ask a trial to end."""
        return bool(self._ask("end", {"trial": trial})["done"])

    def release(self, trial: str) -> bool:
        """End the time a variant is held."""
        return bool(self._ask("release", {"trial": trial})["done"])

    def status(self, trial: str | None) -> Sequence[dict[str, Any]]:
        """Return where a trial stands, or every one at work there."""
        found: Sequence[dict[str, Any]] = self._ask("status", {"trial": trial})["trials"]
        return found

    def fetch(self, trial: str) -> Path:
        """Bring a trial's folder here, beside the trials of this machine."""
        answer = self._ask("fetch", {"trial": trial})
        folder = trials_folder() / str(answer["id"])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(answer["data"])), mode="r:gz") as archive:
            archive.extractall(folder, filter="data")
        return folder

    def hello(self) -> dict[str, Any]:
        """Return the version there, whether it is root's, and where its trials are kept."""
        return self._ask("hello", {})

    def _argv(self, verb: str) -> list[str]:
        sudo = ["sudo", "-n", "--"] if self._pointer.sudo else []
        return [*sudo, self._pointer.draftworth, "agent", verb]

    def _ask(self, verb: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        done = self._host.run(self._argv(verb), stdin=_document(asked), timeout_s=_ASK_S)
        answer = next((found for line in reversed(done.text.splitlines()) if (found := _read(line)) is not None), None)
        if answer is None:
            raise self._no_answer(done.code, done.why)
        if "error" in answer:
            raise _raised(answer["error"], self.name)
        return answer

    def _no_answer(self, code: int, why: str) -> DraftworthError:
        if code == _NOT_FOUND or "not found" in why:
            return UsageError(
                f"{self.name}: {self._pointer.draftworth}: no such program; `draftworth host install "
                f"{self._pointer.host}` brings it there, service.draftworth says where it is"
            )
        if self._pointer.sudo and "sudo" in why:
            return RefusedError(
                f"{self.name}: sudo asks for a password ({why}); allow it without one, or log in as root"
            )
        return TrialError(f"{self.name}: no answer: {why}")


def _document(asked: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": draftworth.__version__, **asked}).encode()


def _read(line: str) -> dict[str, Any] | None:
    """Return a line's JSON object, or None: a login shell may print anything."""
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def _raised(error: Mapping[str, Any], where: str) -> DraftworthError:
    code, text = int(error["exit"]), f"{where}: {error['text']}"
    match code:
        case _ if code == EXIT_USAGE:
            return UsageError(text)
        case _ if code == EXIT_REFUSED:
            return RefusedError(text)
        case _ if code == EXIT_NOT_RESTORED:
            return NotRestoredError(text, tuple(error.get("commands", ())))
    return TrialError(text)


def _sent(config: SystemdTrial) -> dict[str, Any]:
    """Return a trial's file as it is sent: with the files it names, and the values of the variables it names."""
    files = {}
    if config.workload.source != "builtin":
        files["workload.source"] = _file(Path(config.workload.source))
    if config.service.ca_file is not None:
        files["service.ca_file"] = _file(config.service.ca_file)
    names = [config.service.api_key_env, *config.service.headers_env.values()]
    variables = {name: os.environ[name] for name in names if name and name in os.environ}
    return {"config": config.model_dump(mode="json", exclude_unset=True), "files": files, "variables": variables}


def _file(path: Path) -> dict[str, str]:
    try:
        return {"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
