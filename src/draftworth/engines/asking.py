"""Asks the installation behind a command for its version, without starting the server, for every engine."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.layout import Locate, Place

ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "conda", "mamba", "micromamba"})
"""Programs behind which words mean something else than they do here."""

_ASK = """\
import importlib.metadata as m
for name in {names!r}:
    try:
        print(m.version(name))
        break
    except m.PackageNotFoundError:
        pass
"""
_PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?")
_ANSWER = re.compile(r"\d[\w.+!-]*")
_EXEC_LINE = re.compile(r"""'''exec'\s+["']?(?P<python>/[^"']+?)["']?\s+"\$0\"""")  # how installers write long paths


def told(
    command: Sequence[str], env: Mapping[str, str], ask: Callable[[list[str], Mapping[str, str]], str | None]
) -> str | None:
    """Return what asking about a command gives, or None where it fails.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
        ask: asks, given the words and the whole environment.
    """
    around = dict(env) if "PATH" in env else {**os.environ, **env}
    try:
        return ask(list(command), around)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def run(words: Sequence[str], env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[bytes]:
    """Run a program that answers and ends by itself.

    Raises:
        OSError: it cannot be run.
        subprocess.SubprocessError: it does not end in time.
    """
    return subprocess.run(
        words,
        env=dict(env),
        cwd="/",  # so that no folder of the service's stands in for a package
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def started(
    words: Sequence[str], locate: Locate, keeps_meaning: Callable[[Sequence[str], Place], bool]
) -> tuple[Sequence[str], Place] | None:
    """Return the words that start the server and its arguments' place there; of a shell string those of its command.

    Args:
        words: the words of a command.
        locate: tells where the server's arguments are.
        keeps_meaning: whether an earlier command of a shell string, such as `cd`, cannot change what the words mean.

    Raises:
        ValueError: the shell string is of a form that is not read here.
    """
    place = locate(words)
    if place is None or not place.script:
        return None if place is None else (words, place)
    commands = [[word.text for word in command] for command in shell.simple_commands(words[place.start])]
    for index, inner in enumerate(commands):
        place = locate(inner)
        if place and not place.script:
            return (inner, place) if index == 0 or keeps_meaning(inner, place) else None
    return None


def has_absolute_path(words: Sequence[str], place: Place) -> bool:
    """Whether a word in front of the arguments names a program by its whole path."""
    return any(word.startswith("/") for word in words[: place.start])


def is_python(program: str) -> bool:
    """Whether a program, with or without its path, is a Python interpreter by its name."""
    return bool(_PYTHON.fullmatch(Path(program).name))


def interpreter_of(script: Path, env: Mapping[str, str]) -> str | None:
    """Return the Python interpreter in the first lines of an installed script, or None where there is none.

    Raises:
        OSError: the script cannot be read.
    """
    with script.open("rb") as file:
        first, second = (file.readline(4096).decode("utf-8", "replace").strip() for _ in range(2))
    if not first.startswith("#!"):
        return None
    words = first[2:].split()
    exec_line = _EXEC_LINE.match(second)
    if exec_line:
        return exec_line["python"]
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return shutil.which(words[0], path=env.get("PATH")) if words and is_python(words[0]) else None


@dataclass(frozen=True, slots=True)
class Package:
    """A Python package that is a server.

    The interpreter in a command, or the one that the package's script names, is asked; nothing of it is imported.

    Attributes:
        names: what it may be called where it is installed; the first that is there counts.
        script: the program it installs.
        locate: tells where the server's arguments are.
        elsewhere: programs behind which words mean something else than they do here.
        keeps_meaning: as of `started`.
        interpreter_of: returns the interpreter that a script names.
    """

    names: tuple[str, ...]
    script: str
    locate: Locate
    elsewhere: AbstractSet[str]
    keeps_meaning: Callable[[Sequence[str], Place], bool] = has_absolute_path
    interpreter_of: Callable[[Path, Mapping[str, str]], str | None] = interpreter_of

    def version(self, command: Sequence[str], env: Mapping[str, str], timeout: float) -> str | None:
        """Return the version a command would start, or None where that cannot be told.

        Args:
            command: the words of the command.
            env: the service's environment; without a PATH of its own this process's environment is added below it.
            timeout: seconds the interpreter has to answer.
        """

        def ask(words: list[str], around: Mapping[str, str]) -> str | None:
            python = self._interpreter(words, around)
            if python is None:
                return None
            done = run([python, "-c", _ASK.format(names=self.names)], around, timeout)
            answer = done.stdout.decode("utf-8", "replace").strip()
            return answer if done.returncode == 0 and _ANSWER.fullmatch(answer) else None

        return told(command, env, ask)

    def _interpreter(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        found = started(command, self.locate, self.keeps_meaning)
        if found is None:
            return None
        words, place = found
        in_front = [word for word in words[: place.start] if not word.startswith("-")]
        if self.elsewhere & {Path(word).name for word in in_front}:
            return None
        programs = [word for word in in_front if is_python(word) or Path(word).name == self.script]
        if not programs or ("/" in programs[0] and not programs[0].startswith("/")):
            return None  # relative to the service's folder, which is not known here
        program = shutil.which(programs[0], path=env.get("PATH"))
        if program is None:
            return None
        return program if is_python(programs[0]) else self.interpreter_of(Path(program), env)
