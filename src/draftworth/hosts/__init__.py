"""Where a command runs; one file a kind of host."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftworth.hosts.base import Host


def host_for(alias: str | None) -> "Host":
    """Return the host that an alias names; nothing connects before the first command.

    Args:
        alias: a name of the ssh client's configuration, `user@machine` or a machine; None: this machine.

    Raises:
        UsageError: the alias is none.
    """
    if alias is None:
        from draftworth.hosts.local import LocalHost  # noqa: PLC0415 - lazy

        return LocalHost()
    from draftworth.hosts.ssh import SshHost  # noqa: PLC0415 - lazy

    return SshHost(alias)
