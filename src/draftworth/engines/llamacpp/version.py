"""Tells which build of llama.cpp a command would start: asks the program with `--version`, which ends at once."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.engines import asking
from draftworth.engines.layout import Place
from draftworth.engines.llamacpp import releases
from draftworth.engines.llamacpp.layout import locate

_TIMEOUT = 10  # seconds
# `version: 11434 (515e855)`; since the releases have names `version: 0.6.0-dev (build 11434, commit 515e855)`.
_ANSWER = re.compile(r"^version: (?:(?P<old>\d+) \(|(?P<name>\S+) \(build (?P<build>\d+))", re.MULTILINE)
_ELSEWHERE = asking.ELSEWHERE | {"distrobox", "toolbox", "flatpak"}


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the build a command would start (`b11434`), or None where that cannot be told.

    A build made without its source's history calls itself 0 and is not told. Containers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    return asking.told(command, env, _ask)


def read_answer(text: str) -> str | None:
    """Return the build in what `llama-server --version` prints, or None."""
    match = _ANSWER.search(text)
    if match is None:
        return None
    build = int(match["old"] or match["build"])
    return releases.named(build) if build else None


def _program(command: Sequence[str], env: Mapping[str, str]) -> list[str] | None:
    found = asking.started(command, locate, _keeps_meaning)
    if found is None:
        return None
    words, place = found
    if _ELSEWHERE & {Path(word).name for word in words[: place.program]}:
        return None
    name = words[place.program]
    if "/" in name and not name.startswith("/"):
        return None  # relative to the service's folder, which is not known here
    program = shutil.which(name, path=env.get("PATH"))
    return None if program is None else [program, *words[place.program + 1 : place.start]]


def _keeps_meaning(words: Sequence[str], place: Place) -> bool:
    return words[place.program].startswith("/")


def _ask(command: list[str], env: Mapping[str, str]) -> str | None:
    program = _program(command, env)
    if program is None:
        return None
    done = asking.run([*program, "--version"], env, _TIMEOUT)
    # Builds have written it to standard error and to standard output.
    return read_answer((done.stderr + b"\n" + done.stdout).decode("utf-8", "replace"))
