"""How a server is started, stopped and put back; one file a kind of service."""

from collections.abc import Sequence

from draftworth.errors import UsageError
from draftworth.services.base import Service
from draftworth.trials.config import ServiceConfig

KINDS = ("process",)
"""The kinds of service there are."""


def service_for(config: ServiceConfig, command: Sequence[str], *, stop_timeout_s: float) -> Service:
    """Return the service a trial's file describes.

    Args:
        config: the file's `[service]`.
        command: the baseline's own command, by which a running original is recognised.
        stop_timeout_s: seconds a server has to end after SIGTERM.

    Raises:
        UsageError: no such kind.
    """
    if config.type == "process":
        from draftworth.services.process import ProcessService  # noqa: PLC0415 - lazy: psutil

        return ProcessService(config, tuple(command), stop_timeout_s=stop_timeout_s)
    raise UsageError(f"service.type: unknown kind {config.type!r}; known: {', '.join(KINDS)}")
