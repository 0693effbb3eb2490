"""Tells which SGLang a command would start, without starting it: asks the interpreter the command runs."""

from collections.abc import Mapping, Sequence

from draftworth.engines.asking import ELSEWHERE, Package
from draftworth.engines.sglang.layout import locate

_TIMEOUT = 10  # seconds
_PACKAGE = Package(
    names=("sglang",),
    script="sglang",
    locate=locate,
    elsewhere=ELSEWHERE | {"uv", "uvx", "poetry", "pipenv"},
)


def version_of(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the version of SGLang a command would start, or None where that cannot be told.

    The interpreter in the command, or the one in the first line of the `sglang` script, is asked for the version of its
    package `sglang`. Nothing of SGLang is imported. Containers and environment managers are not asked.

    Args:
        command: the words of the command.
        env: the service's environment; without a PATH of its own this process's environment is added below it.
    """
    return _PACKAGE.version(command, env, _TIMEOUT)
