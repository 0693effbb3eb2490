"""Asks systemd itself whether it takes the unit; no manager has to run for that, and nothing is loaded."""

import tempfile
from pathlib import Path

from draftworth.hosts.base import CommandResult, Host, HostError
from draftworth.services.newunit.base import Check, NewUnit

_TIMEOUT_S = 60.0


def verify(host: Host, unit: NewUnit) -> NewUnit:
    """Return the unit with what `systemd-analyze verify` says about it added to its checks, a line a check.

    A line is `failed` where systemd does not take the unit, else a warning. Where there is no systemd-analyze, a note
    says that nobody checked.

    Args:
        host: this machine.
        unit: the unit.
    """
    with tempfile.TemporaryDirectory(prefix="draftworth-unit-") as folder:
        path = Path(folder) / unit.name
        path.write_text(unit.text, encoding="utf-8")
        try:
            # Without errors of the units it is ordered after, where this systemd can tell them apart (v250).
            done = host.run(_command(path, "--recursive-errors=no"), timeout_s=_TIMEOUT_S)
            if not done.ok and b"unrecognized option" in done.err:
                done = host.run(_command(path), timeout_s=_TIMEOUT_S)
        except HostError as error:
            check = Check(severity="note", text=f"not checked by systemd-analyze verify: {error}")
            return unit.model_copy(update={"checks": (*unit.checks, check)})
        found = _findings(done, folder, unit.name)
    return unit.model_copy(update={"checks": (*unit.checks, *found)})


def _command(path: Path, *options: str) -> list[str]:
    return ["systemd-analyze", "verify", "--man=no", *options, str(path)]


def _findings(done: CommandResult, folder: str, name: str) -> tuple[Check, ...]:
    lines = [line.replace(f"{folder}/", "").strip() for line in done.err.decode(errors="replace").splitlines()]
    own = list(dict.fromkeys(line for line in lines if name in line))
    if not done.ok and not own:
        own = [done.why]
    # A setting that is not understood does not make systemd-analyze fail, and is not what was meant.
    ignored = ("ignoring", "Unknown", "Failed to parse", "Invalid")
    return tuple(
        Check(
            severity="failed" if not done.ok or any(word in line for word in ignored) else "warning",
            text=f"systemd-analyze verify: {line}",
        )
        for line in own
    )
