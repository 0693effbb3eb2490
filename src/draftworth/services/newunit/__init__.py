"""A systemd unit for an engine's command; `make` decides, `verify` asks systemd."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftworth.hosts.base import Host
    from draftworth.services.newunit.base import Asked, NewUnit


def new_unit(asked: "Asked", host: "Host", environ: "Mapping[str, str]") -> "NewUnit":
    """Return the checked unit for a command on this machine. Changes nothing.

    Args:
        asked: what a person asked for.
        host: this machine.
        environ: the caller's variables.

    Raises:
        UsageError: something asked for cannot be understood or written into a unit.
        RefusedError: the command is of a kind that does not belong into a unit, or a secret would be in it.
    """
    from draftworth.services.newunit.facts import look, unit_file  # noqa: PLC0415 - lazy
    from draftworth.services.newunit.make import make  # noqa: PLC0415 - lazy
    from draftworth.services.newunit.verify import verify  # noqa: PLC0415 - lazy

    machine = look(host, asked.user, environ)
    unit = make(asked, machine)
    there = unit_file(unit.name)
    if there:
        unit = make(asked, machine.model_copy(update={"unit_there": there}))
    return verify(host, unit)
