"""How a server is started, stopped and put back; one file a kind of service."""

from collections.abc import Sequence

from draftworth.errors import UsageError
from draftworth.services.base import Service
from draftworth.trials.config import SystemdTrial, TrialConfig

KINDS = ("process", "systemd")
"""The kinds of service there are."""


def service_for(config: TrialConfig, command: Sequence[str]) -> Service:
    """Return the service a trial's file describes.

    Args:
        config: the trial's file.
        command: the baseline's own command, by which a running original is recognised; a unit has its own.

    Raises:
        UsageError: no such kind.
    """
    if isinstance(config, SystemdTrial):
        from draftworth.services.systemd.service import SystemdService  # noqa: PLC0415 - lazy: psutil

        return SystemdService(config)
    if config.service.type == "process":
        from draftworth.services.process import ProcessService  # noqa: PLC0415 - lazy: psutil

        return ProcessService(config.service, tuple(command), stop_timeout_s=config.limits.stop_timeout_s)
    raise UsageError(f"service.type: unknown kind {config.service.type!r}; known: {', '.join(KINDS)}")
