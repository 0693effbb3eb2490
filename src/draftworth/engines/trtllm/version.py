"""Tells which TensorRT-LLM a command would start, without starting it: asks the interpreter the command runs."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.engines.asking import ELSEWHERE, Package, is_python
from draftworth.engines.layout import Place
from draftworth.engines.trtllm.layout import locate

_TIMEOUT = 10  # seconds


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the version a command would start, or None where that cannot be told.

    The interpreter in the command, or the one in the first line of the `trtllm-serve` script, is asked for the version
    of its package. Nothing of TensorRT-LLM is imported. Containers, clusters and environment managers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    return _PACKAGE.version(command, env, _TIMEOUT)


def _keeps_meaning(words: Sequence[str], place: Place) -> bool:
    del words, place
    return False  # an earlier command may change what the words mean


def _interpreter_of(script: Path, env: Mapping[str, str]) -> str | None:
    with script.open("rb") as file:
        first_line = file.readline(4096).decode("utf-8", "replace").strip()
    named = first_line[2:].split() if first_line.startswith("#!") else []
    if named and Path(named[0]).name == "env":
        named = named[1:]
    return shutil.which(named[0], path=env.get("PATH")) if named and is_python(named[0]) else None


_PACKAGE = Package(
    names=("tensorrt_llm",),
    script="trtllm-serve",
    locate=locate,
    elsewhere=ELSEWHERE | {"uv", "poetry", "srun", "ssh"},
    keeps_meaning=_keeps_meaning,
    interpreter_of=_interpreter_of,
)
