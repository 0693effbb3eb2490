"""A plan for a person: what is there, every step with its command, what it may cost."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.base import Replay
from draftworth.trials.config import TrialConfig, WorkloadConfig

if TYPE_CHECKING:
    from draftworth.services.base import Observed
    from draftworth.services.systemd.found import UnitFound
    from draftworth.trials.config import SystemdTrial
    from draftworth.trials.steps import Plan, Step


def in_words(work: WorkloadConfig) -> str:
    """Return how requests are sent, for a person: `up to 192 tokens each, 1 or 8 at a time`."""

    def some(values: Sequence[float]) -> str:
        return " or ".join(f"{value:g}" for value in values)

    if work.replay_speed is not None:
        load = Replay(work.replay_speed).label
    elif work.rate is not None:
        load = f"{some(work.rate)} a second"
    else:
        load = f"{some(work.concurrency)} at a time"
    context = f", prompts of about {some(work.context_tokens)} tokens" if work.context_tokens else ""
    return f"up to {some(work.max_tokens)} tokens each{context}, {load}"


def lines(found: "Plan", observed: "Observed", config: TrialConfig) -> list[str]:
    """Return the plan for a person: what is there, every step with its command, what it may cost."""
    url = config.url
    if observed.running and observed.process:
        out = [f"The service runs at {url}: pid {observed.process.pid} of {observed.user}, in {observed.cwd}"]
    else:
        out = [f"Nothing runs at {url}; nothing will run there afterwards"]
    out.append("")
    for step, told in _steps(found, config):
        out += told
        if step is None:
            continue
        out.append(f"{step.id}: {step.about}")
        if step.command:
            out.append(f"    $ {_shell(step, config)}")
        if step.undo:
            out.append(f"    undo: {step.undo}")
    most = "at most " if config.verdict.starts > 1 or config.search is not None else ""
    out += ["", f"{most}{found.starts} server starts, {found.requests} measured requests.".capitalize()]
    limit = config.limits.downtime_s
    if observed.running:
        out.append(
            f"The original is away for {found.downtime_starts} starts and what is measured between"
            f"{f', in up to {config.verdict.starts} absences' if config.verdict.starts > 1 else ''}; "
            f"after at most {limit:g} s in all it is started again, whatever is missing."
        )
    else:
        out.append(f"After at most {limit:g} s the trial ends, whatever is missing.")
    out += [f"Note: {note}" for note in (*found.notes, *observed.notes)]
    return out


def _steps(found: "Plan", config: TrialConfig) -> "Iterator[tuple[Step | None, list[str]]]":
    """Yield each step; of a search's settings only the commands, under one heading."""
    count = len(config.searched)
    heading = [f"search: start, measure and stop settings in turn, in an order that is chosen as it goes; of {count}:"]
    for step in found.steps:
        if step.arm not in config.searched:
            yield step, []
        elif step.kind == "start":
            yield None, [*heading, f"    {step.arm}: $ {shlex.join(redact.command(step.command))}"]
            heading = []


def _shell(step: "Step", config: TrialConfig) -> str:
    """Return a step's command for a person to read, without secrets."""
    command = shlex.join(redact.command(step.command))
    if step.kind == "stop-original":
        return f"{command}   (then SIGKILL after {config.limits.stop_timeout_s:g} s)"
    if step.kind == "restore":
        folder = f"cd {shlex.quote(step.cwd)} && " if step.cwd else ""
        return f"{folder}{command}   (with the environment it had)"
    env = redact.environment({**config.service.env, **step.env})
    return "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(env.items())) + command


def unit_lines(found: "Plan", observed: "Observed", config: "SystemdTrial") -> list[str]:
    """Return the plan of a trial on a unit: what is there, each step with its commands, and the way back."""
    unit = observed.unit
    assert unit is not None, "a unit was observed"
    snapshot = unit.snapshot
    state = f"{snapshot.active}, {snapshot.unit_file_state or 'no file state'}, pid {snapshot.main_pid}"
    out = [
        f"{snapshot.unit} serves at {config.url} ({state}, Type={snapshot.type})",
        f"Its files: {', '.join((snapshot.fragment or '?', *snapshot.drop_ins))}",
        f"A variant runs as {_WAYS[unit.way]}: {unit.why}",
        _gpu_line(unit),
    ]
    warned = [note for note in found.notes if ": refused: " in note or ": unknown: " in note]
    out += [f"WARNING: {note}" for note in warned]
    if unit.dependents:
        out.append(f"Stop with it and are started again: {', '.join(unit.dependents)}")
    if unit.triggers:
        out.append(f"Would start it and are stopped meanwhile: {', '.join(unit.triggers)}")
    out.append("")
    for step, told in _steps(found, config):
        out += told
        if step is None:
            continue
        out.append(f"{step.id}: {step.about}")
        out += [f"    $ {line}" for line in _unit_commands(step, unit, config)]
        if step.undo:
            out.append(f"    undo: {step.undo}")
    limits = config.limits
    hold = f", of them {limits.hold_s:g} s held for a person" if limits.hold_s else ""
    most = "at most " if config.verdict.starts > 1 or config.search is not None else ""
    away_s = limits.downtime_s + limits.hold_s
    away = f"The original is away for {found.downtime_starts} starts and what is measured between; after at most "
    out += [
        "",
        f"{most}{found.starts} server starts, {found.requests} measured requests.".capitalize(),
        f"{away}{away_s:g} s in all{hold} it is started again, whatever is missing.",
        "",
        "The way back is the host's own, set up before the first change, in /run:",
        "    draftworth-restore-TRIAL.service runs /run/draftworth/TRIAL/restore.sh until the original serves again;",
        "    started by the end of the trial, by the end of its driver however it dies (ExecStopPost=), by a variant",
        f"    that dies or is stopped (OnFailure=, OnSuccess=), and by a timer {away_s + 60:g} s after the stop,",
        "    a minute after the driver itself would have acted.",
    ]
    if unit.lasting:
        out.append(
            f"    {snapshot.unit} runs and is not enabled: a unit in /etc/systemd/system starts it after a reboot in "
            "mid-trial, and is removed at the end."
        )
    else:
        out.append(f"    After a reboot nothing of it is left, and {snapshot.unit} starts as it is enabled to.")
    out += [f"Note: {note}" for note in (*found.notes, *observed.notes) if note not in warned]
    return out


_WAYS = {
    "parallel": "a unit of its own in /run/systemd/system",
    "drop-in": "the same unit, with a drop-in in /run/systemd/system",
}


def _gpu_line(unit: "UnitFound") -> str:
    gpus = unit.gpus
    if not gpus.gpus:
        return f"GPUs: none ({gpus.why or 'none found'}); there is no memory to wait for between two servers"
    held = [f"{gpu.index}: {gpu.used_bytes / 2**30:.1f}" for gpu in gpus.gpus if gpu.used_bytes is not None]
    unread = f"; {gpus.why}" if gpus.why else ""
    return f"GPUs by {gpus.source}, GiB in use: {', '.join(held) or 'not told'}{unread}"


def _unit_commands(step: "Step", unit: "UnitFound", config: "SystemdTrial") -> list[str]:
    """Return the commands of a step, for a person to read, without secrets."""
    name = unit.snapshot.unit
    command = shlex.join(redact.command(step.command))
    away_s = config.limits.downtime_s + config.limits.hold_s + 60
    match step.kind:
        case "stop-original":
            return [
                f"wait until no request is at hand, at most {config.limits.drain_s:g} s",
                f"systemctl restart draftworth-deadman-TRIAL.timer   (OnActiveSec={away_s:g})",
                *(f"systemctl stop {trigger}" for trigger in unit.triggers),
                f"systemctl stop {name}",
                "end what it left, wait for its GPU memory and its port",
            ]
        case "start" if unit.way == "parallel":
            return [
                f"ExecStart={command}",
                f"systemctl daemon-reload; systemctl start draftworth-TRIAL-{step.arm}.service",
            ]
        case "start":
            units = " ".join((name, *unit.triggers))
            return [f"ExecStart={command}", f"systemctl daemon-reload; systemctl start {units}"]
        case "stop":
            return [f"systemctl stop {f'draftworth-TRIAL-{step.arm}.service' if unit.way == 'parallel' else name}"]
        case "restore":
            return ["systemctl start draftworth-restore-TRIAL.service"]
    return []
