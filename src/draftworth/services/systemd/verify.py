"""Whether what systemd has loaded is what was meant: before a variant starts, and after the original is back."""

from draftworth.errors import RefusedError, TrialError
from draftworth.gpus.base import GpuReader
from draftworth.hosts.base import Host
from draftworth.services.base import ProcessId
from draftworth.services.processes import describe, identify
from draftworth.services.systemd import bus, control
from draftworth.services.systemd.found import UnitFound
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.properties import kept, unexpected
from draftworth.services.systemd.snapshot import changed, names_unit, observe_unit
from draftworth.services.systemd.variant import Variant

_MOST_SHOWN = 5


def check_loaded(host: Host, found: UnitFound, variant: Variant, names: Names) -> None:
    """Compare every property that systemd has loaded of a variant with the original's.

    Raises:
        RefusedError: one differs that must not.
    """
    loaded = bus.properties(host, variant.unit)
    if loaded.get("LoadState") != "loaded":
        raise RefusedError(
            f"systemd does not load {variant.path}: {loaded.get('LoadError') or loaded.get('LoadState')}"
        )
    snapshot = found.snapshot
    differs = unexpected(
        snapshot.properties,
        kept(loaded),
        expected_exec=[variant.expected],
        hands_over={names.restore, variant.unit, *_siblings(host, names)},
        names_original=lambda other: names_unit(host, other, snapshot.names),
    )
    if differs:
        shown = "; ".join(one.line() for one in differs[:_MOST_SHOWN])
        more = f" (and {len(differs) - _MOST_SHOWN} more)" if len(differs) > _MOST_SHOWN else ""
        advice = (
            'set service.way = "drop-in", which changes the same unit'
            if found.way == "parallel"
            else "the unit was changed since it was looked at, or this is a bug of Draftworth's"
        )
        raise RefusedError(
            f"{variant.unit} would differ from {snapshot.unit} in more than its flag: {shown}{more}; {advice}"
        )


def _siblings(host: Host, names: Names) -> set[str]:
    """Return the trial's other units: while they are loaded, the original is named by them."""
    done = host.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", f"*{names.tag}*"])
    return {line.split()[0] for line in done.text.splitlines() if line.split()}


def not_as_found(host: Host, found: UnitFound, names: Names, gpus: GpuReader, members: set[ProcessId]) -> list[str]:
    """Compare the restored service with what was found. Returns what is not as it was, by others' doing.

    Args:
        host: this machine.
        found: what was found.
        names: the trial's.
        gpus: reads the GPUs.
        members: the original's processes now.

    Raises:
        TrialError: something of the trial's still changes what runs.
    """
    unit = found.snapshot.unit
    now = observe_unit(host, unit)
    ours = [path for path in now.drop_ins if names.tag in path]
    if ours:
        raise TrialError(f"{ours[0]} still changes {unit}")
    for name in sorted(_siblings(host, names)):
        if name.startswith(f"draftworth-{names.tag}-") and control.now(host, name).up:
            raise TrialError(f"{name} still runs")
    for wanted in (*found.triggers, *found.dependents):
        state = control.now(host, wanted)
        if not state.up:
            raise TrialError(f"{wanted} was active and is {state.words}")
    own = {names.restore, names.trial, names.deadman, names.deadman_service, names.boot}
    remarks = [f"not as it was: {line}" for line in changed(found.snapshot, now) if not any(one in line for one in own)]
    return [*remarks, *_strangers(gpus, found, members)]


def _strangers(gpus: GpuReader, found: UnitFound, members: set[ProcessId]) -> list[str]:
    """Return processes on the original's GPUs that were not there before and are not its own."""
    if not found.gpus.gpus:
        return []
    before = {process.pid for gpu in found.gpus.gpus for process in gpu.processes or ()}
    on_it = {gpu.uuid for gpu in found.gpus.gpus if any(one.pid in found.pids for one in gpu.processes or ())}
    now = {one.pid for gpu in gpus.read().gpus if gpu.uuid in on_it for one in gpu.processes or ()}
    new = now - before - {process.pid for process in members}
    return [f"new on the original's GPUs: {describe(process)}" for pid in sorted(new) if (process := identify(pid))]
