"""Tells which build of llama.cpp a command would start: asks the program with `--version`, which ends at once."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.llamacpp import releases
from draftworth.engines.llamacpp.layout import Place, locate

_TIMEOUT = 10  # seconds
# `version: 11434 (515e855)`; since the releases have names `version: 0.6.0-dev (build 11434, commit 515e855)`.
_ANSWER = re.compile(r"^version: (?:(?P<old>\d+) \(|(?P<name>\S+) \(build (?P<build>\d+))", re.MULTILINE)
_ELSEWHERE = frozenset(
    {"docker", "podman", "nerdctl", "distrobox", "toolbox", "flatpak", "conda", "mamba", "micromamba"}
)


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the build a command would start (`b11434`), or None where that cannot be told.

    A build made without its source's history calls itself 0 and is not told. Containers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    around = dict(env) if "PATH" in env else {**os.environ, **env}
    try:
        program = _program(list(command), around)
        return _ask(program, around) if program else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def read_answer(text: str) -> str | None:
    """Return the build in what `llama-server --version` prints, or None."""
    match = _ANSWER.search(text)
    if match is None:
        return None
    build = int(match["old"] or match["build"])
    return releases.named(build) if build else None


def _program(words: list[str], env: Mapping[str, str]) -> list[str] | None:
    place = locate(words)
    if place is None:
        return None
    if place.script:
        found = _in_string(words[place.start])
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


def _in_string(text: str) -> tuple[list[str], Place] | None:
    """Return the words of the server's command in a shell string; None where an earlier command may change them."""
    commands = [[word.text for word in command] for command in shell.simple_commands(text)]
    for index, words in enumerate(commands):
        place = locate(words)
        if place and not place.script:
            return (words, place) if index == 0 or words[place.program].startswith("/") else None
    return None


def _ask(program: Sequence[str], env: Mapping[str, str]) -> str | None:
    done = subprocess.run(
        [*program, "--version"],
        env=dict(env),
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT,
        check=False,
    )
    # Builds have written it to standard error and to standard output.
    return read_answer((done.stderr + b"\n" + done.stdout).decode("utf-8", "replace"))
