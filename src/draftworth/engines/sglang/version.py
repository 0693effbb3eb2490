"""Tells which SGLang a command would start, without starting it: asks the interpreter the command runs."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.sglang.layout import Place, locate

_TIMEOUT = 10  # seconds
_ASK = (
    "import importlib.metadata as m\ntry:\n    print(m.version('sglang'))\nexcept m.PackageNotFoundError:\n    pass\n"
)
_PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?")
_ANSWER = re.compile(r"\d[\w.+!-]*")
_EXEC_LINE = re.compile(r"""'''exec'\s+["']?(?P<python>/[^"']+?)["']?\s+"\$0\"""")  # how installers write long paths
_ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv"})


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the version of SGLang a command would start, or None where that cannot be told.

    The interpreter in the command, or the one in the first line of the `sglang` script, is asked for the version of its
    package `sglang`. Nothing of SGLang is imported. Containers and environment managers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    around = dict(env) if "PATH" in env else {**os.environ, **env}
    try:
        python = _interpreter(list(command), around)
        return _ask(python, around) if python else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _interpreter(words: list[str], env: Mapping[str, str]) -> str | None:
    place = locate(words)
    if place is None:
        return None
    if place.script:
        found = _in_string(words[place.start])
        if found is None:
            return None
        words, place = found
    in_front = [word for word in words[: place.start] if not word.startswith("-")]
    if _ELSEWHERE & {Path(word).name for word in in_front}:
        return None
    programs = [word for word in in_front if _PYTHON.fullmatch(Path(word).name) or Path(word).name == "sglang"]
    if not programs or ("/" in programs[0] and not programs[0].startswith("/")):
        return None  # relative to the service's folder, which is not known here
    program = shutil.which(programs[0], path=env.get("PATH"))
    if program is None:
        return None
    return program if _PYTHON.fullmatch(Path(programs[0]).name) else _interpreter_of_script(Path(program), env)


def _in_string(text: str) -> tuple[list[str], Place] | None:
    """Return SGLang's command in a shell string; None where an earlier command may change what its words mean."""
    commands = [[word.text for word in command] for command in shell.simple_commands(text)]
    for index, words in enumerate(commands):
        place = locate(words)
        if place and not place.script:
            absolute = any(word.startswith("/") for word in words[: place.start])
            return (words, place) if absolute or index == 0 else None
    return None


def _interpreter_of_script(script: Path, env: Mapping[str, str]) -> str | None:
    with script.open("rb") as file:
        first, second = (file.readline(4096).decode("utf-8", "replace").strip() for _ in range(2))
    if not first.startswith("#!"):
        return None
    exec_line = _EXEC_LINE.match(second)
    if exec_line:
        return exec_line["python"]
    words = first[2:].split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return shutil.which(words[0], path=env.get("PATH")) if words and _PYTHON.fullmatch(Path(words[0]).name) else None


def _ask(python: str, env: Mapping[str, str]) -> str | None:
    done = subprocess.run(
        [python, "-c", _ASK],
        env=dict(env),
        cwd="/",  # so that no folder of the service's stands in for a package
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT,
        check=False,
    )
    answer = done.stdout.decode("utf-8", "replace").strip()
    return answer if done.returncode == 0 and _ANSWER.fullmatch(answer) else None
