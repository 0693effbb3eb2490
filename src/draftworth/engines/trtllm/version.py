"""Tells which TensorRT-LLM a command would start, without starting it: asks the interpreter the command runs."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.trtllm import layout

_TIMEOUT = 10  # seconds
_ASK = "import importlib.metadata as m; print(m.version('tensorrt_llm'))"
_PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?")
_ANSWER = re.compile(r"\d[\w.+!-]*")
_PROGRAM = "trtllm-serve"
_ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "conda", "mamba", "micromamba", "uv", "poetry", "srun", "ssh"})


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the version a command would start, or None where that cannot be told.

    The interpreter in the command, or the one in the first line of the `trtllm-serve` script, is asked for the version
    of its package. Nothing of TensorRT-LLM is imported. Containers, clusters and environment managers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    environment = dict(env) if "PATH" in env else {**os.environ, **env}
    try:
        python = _interpreter(list(command), environment)
        return _ask(python, environment) if python else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _interpreter(words: list[str], env: Mapping[str, str]) -> str | None:
    place = layout.locate(words)
    if place is None:
        return None
    if place.script:
        first = [word.text for word in (shell.simple_commands(words[place.start]) or [[]])[0]]
        inner = layout.locate(first)
        if inner is None or inner.script:
            return None  # an earlier command may change what the words mean
        words, place = first, inner
    in_front = [word for word in words[: place.start] if not word.startswith("-")]
    if _ELSEWHERE & {Path(word).name for word in in_front}:
        return None
    programs = [w for w in in_front if _PYTHON.fullmatch(Path(w).name) or Path(w).name == _PROGRAM]
    if not programs or ("/" in programs[0] and not programs[0].startswith("/")):
        return None  # relative to the service's folder, which is not known here
    program = shutil.which(programs[0], path=env.get("PATH"))
    if program is None or _PYTHON.fullmatch(Path(programs[0]).name):
        return program
    with Path(program).open("rb") as file:
        first_line = file.readline(4096).decode("utf-8", "replace").strip()
    named = first_line[2:].split() if first_line.startswith("#!") else []
    if named and Path(named[0]).name == "env":
        named = named[1:]
    return shutil.which(named[0], path=env.get("PATH")) if named and _PYTHON.fullmatch(Path(named[0]).name) else None


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
