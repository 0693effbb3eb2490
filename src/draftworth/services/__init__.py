"""How a server is started, stopped and put back; one file a kind of service."""

from draftworth.errors import UsageError
from draftworth.services.base import Service
from draftworth.trials.config import ServiceConfig

KINDS = ("process",)
"""The kinds of service there are."""


def service_for(config: ServiceConfig, *, stop_timeout_s: float) -> Service:
    """Return the service a trial's file describes.

    Raises:
        UsageError: no such kind.
    """
    if config.type == "process":
        from draftworth.services.process import ProcessService  # noqa: PLC0415 - lazy: psutil

        return ProcessService(config, stop_timeout_s=stop_timeout_s)
    raise UsageError(f"service.type: unknown kind {config.type!r}; known: {', '.join(KINDS)}")
