"""What a client and the agent on another machine say to each other: JSON objects, one a line."""

import base64
import json
import os
from collections.abc import Mapping
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
from draftworth.trials.ask import access_of
from draftworth.trials.config import SystemdTrial


def document(asked: Mapping[str, Any]) -> bytes:
    """Return a request as it is sent, with the version that asks."""
    return json.dumps({"version": draftworth.__version__, **asked}).encode()


def read(line: str) -> dict[str, Any] | None:
    """Return a line's JSON object, or None: a login shell may print anything."""
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def raised(error: Mapping[str, Any], where: str) -> DraftworthError:
    """Return the error that was raised there, with where that was."""
    code, text = int(error["exit"]), f"{where}: {error['text']}"
    match code:
        case _ if code == EXIT_USAGE:
            return UsageError(text)
        case _ if code == EXIT_REFUSED:
            return RefusedError(text)
        case _ if code == EXIT_NOT_RESTORED:
            return NotRestoredError(text, tuple(error.get("commands", ())))
    return TrialError(text)


def sent(config: SystemdTrial) -> dict[str, Any]:
    """Return a trial's file as it is sent: with the files it names, and the values of the variables it names."""
    files = {}
    if config.workload.source != "builtin":
        files["workload.source"] = _file(Path(config.workload.source))
    if config.service.ca_file is not None:
        files["service.ca_file"] = _file(config.service.ca_file)
    access_of(config.service)  # a variable that is not set here is told of here
    names = [name for name in (config.service.api_key_env, *config.service.headers_env.values()) if name]
    variables = {name: os.environ[name] for name in names}
    return {"config": config.model_dump(mode="json", exclude_unset=True), "files": files, "variables": variables}


def _file(path: Path) -> dict[str, str]:
    try:
        return {"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None


class Told:
    """What was told of a trial, over all connections.

    Attributes:
        at: the offset in its log behind the last event that was told.
    """

    def __init__(self, offset: int) -> None:
        self.at = offset
        self._said = ""

    def first(self, event: Mapping[str, Any]) -> bool:
        """Take an event. Returns whether it says something new."""
        if "at" in event:
            new = int(event["at"]) > self.at
            self.at = max(self.at, int(event["at"]))
            return new
        # What is not in the log is told anew over each connection.
        text = str(event.get("text") or "")
        new = event.get("kind") != "line" or text != self._said
        self._said = text or self._said
        return new
