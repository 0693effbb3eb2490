"""Everything before the first change of a trial on a systemd unit: what `prepare` is for a process."""

import hashlib
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.requests import load_workload, requests_in
from draftworth.engines import engine as engine_named
from draftworth.errors import RefusedError, UsageError
from draftworth.hosts.local import LocalHost
from draftworth.services.processes import argv_of, describe, environment_of, listeners
from draftworth.services.systemd.adoption import adopted_trial
from draftworth.services.systemd.service import SystemdService
from draftworth.trials.ask import access_of
from draftworth.trials.heads import check_heads
from draftworth.trials.null_draft import refuse_padded
from draftworth.trials.plan import plan
from draftworth.trials.prepare import Prepared, check_host, check_key, check_model, check_served, doubts
from draftworth.trials.steps import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftworth.bench.base import Access
    from draftworth.engines.base import Engine
    from draftworth.services.base import Observed
    from draftworth.services.systemd.found import UnitFound
    from draftworth.trials.config import SystemdTrial

_SHOWN = 100
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})


def prepare_unit(config: "SystemdTrial") -> Prepared:
    """Look at the unit and plan; changes nothing.

    Raises:
        UsageError: the file or the workload is wrong.
        RefusedError: the unit is not in a state for a trial, or there is no place for a flag in its command.
    """
    prompts = load_workload(config.workload).prompts
    access = access_of(config.service)
    check_host(config)
    engine = engine_named(config.service.engine)
    service = SystemdService(config)
    observed = service.observe()
    found = observed.unit
    assert found is not None, "a unit was not observed"
    process = argv_of(observed.process.pid) if observed.process else ()
    seen = process if engine.model_in(process) is not None else observed.command
    config = _resolved(config, observed, engine, seen)
    _check_port(config, found)
    _check_speculation(found, observed, engine, seen)
    model_path = check_model(engine.model_in(seen), config, where=f"{found.snapshot.unit}: the model")
    check_key(seen, config)
    served = check_served(config, access, prompts)
    name = config.service.model or (served[0] if served else None)
    observed = observed.model_copy(update={"unit": found.model_copy(update={"model": name})})
    version = engine.version_of(observed.command, {})
    drafts = check_heads(config, engine, seen, model_path, version)
    refuse_padded(config, seen, version)
    made = _planned(config, observed, engine, version=version, prompts=requests_in(prompts))
    notes = doubts(config, engine, seen, version)
    made = replace(made, notes=(*made.notes, *notes, *drafts))
    service.equip(config, made.commands, access, busy=_busy(config, engine, access))
    return Prepared(config, service, engine, observed, made, prompts, version, model_path, access)


def _resolved(config: "SystemdTrial", observed: "Observed", engine: "Engine", seen: "Sequence[str]") -> "SystemdTrial":
    """Return the file with what the unit says filled in: command and port."""
    from draftworth.engines.placing import PLACEHOLDER  # noqa: PLC0415 - beside its only use
    from draftworth.trials.prepare import PORT  # noqa: PLC0415 - beside its only use

    service = config.service
    command = (*observed.command, PLACEHOLDER) if service.append_args else observed.command
    named = [int(port) for port in PORT.findall(" ".join(seen))]
    port = named[-1] if named else engine.default_port
    if service.port and named and service.port != named[-1]:
        raise UsageError(f"service.port is {service.port} and {service.unit} listens on {named[-1]}; take it out")
    update = {"command": command, "port": service.port or port, "unit": _unit(observed)}
    return config.model_copy(update={"service": service.model_copy(update=update)})


def _check_port(config: "SystemdTrial", found: "UnitFound") -> None:
    """Refuse a port that another service answers: its figures and its tokens would be taken for the unit's."""
    port, unit = config.service.port, found.snapshot.unit
    holders = listeners(port, config.service.address)
    if not holders:
        raise RefusedError(
            f"nothing listens on port {port} of {config.service.address}, where {unit} should serve: set service.port "
            "and service.address, or wait until it is up"
        )
    strangers = [one for one in holders if one is None or one.pid not in found.pids]
    if strangers:
        who = describe(strangers[0]) if strangers[0] else "a process that cannot be seen"
        raise RefusedError(f"port {port} is answered by {who}, which is no process of {unit}: set service.port or unit")


def _unit(observed: "Observed") -> str:
    assert observed.unit is not None, "a unit was not observed"
    return observed.unit.snapshot.unit


def _check_speculation(found: "UnitFound", observed: "Observed", engine: "Engine", seen: "Sequence[str]") -> None:
    """Refuse a unit that speculates already, by its command or by a variable that the command expands."""
    from draftworth.trials.adopted import still_running  # noqa: PLC0415 - lazy: it reads trials, this makes them

    unit = found.snapshot.unit
    env: dict[str, str] = {}
    if observed.process is not None:
        try:
            env = environment_of(observed.process.pid)
        except OSError:
            env = {}
    before = still_running(found.snapshot)
    if before is not None:
        raise RefusedError(
            f"{unit} still runs the arm of trial {before}, whose adoption was taken back without a restart: "
            f"`draftworth trial unadopt {before} --restart` first"
        )
    in_unit = engine.speculation_in(observed.command, {})
    running = engine.speculation_in(seen, env)
    if in_unit or running:
        files = [one.removeprefix("-") for one in found.snapshot.environment_files]
        named = f" (EnvironmentFile: {', '.join(files)})" if files else ""
        where = "in its ExecStart" if in_unit else f"in a variable of its Environment=, EnvironmentFile= or PATH{named}"
        adopted = adopted_trial(LocalHost(), found.snapshot.drop_ins)
        if adopted is not None:
            raise RefusedError(
                f"{unit} speculates already ({in_unit or running}): it is adopted from trial {adopted}, and the "
                f"baseline must not: `draftworth trial unadopt {adopted} --restart` first"
            )
        raise RefusedError(
            f"{unit} speculates already ({in_unit or running}, {where}); the baseline must not: take it out, restart "
            "the unit, and make it an arm's speculative_config"
        )


def _planned(
    config: "SystemdTrial", observed: "Observed", engine: "Engine", *, version: str | None, prompts: int
) -> Plan:
    """Return the plan, its refusals in the words of units."""
    unit = _unit(observed)
    program = next((word.rpartition("/")[2] for word in observed.command), "")
    if program in _CONTAINERS:
        raise RefusedError(
            f"{unit} runs `{program}`: the server is then no process of the unit, so it can be neither stopped nor "
            "verified with it; run the trial where the engine itself is the unit's command"
        )
    try:
        return plan(config, observed, engine, version=version, prompts=prompts)
    except RefusedError as error:
        if "limits.requests" in str(error):
            raise
        words = " ".join(redact.command(observed.command))
        shown = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
        raise RefusedError(
            f"{unit}: no place for the engine's flags in ExecStart={shown}: set service.append_args = true where its "
            "program passes its arguments on to the engine; else put the engine's own command into ExecStart="
        ) from error


def _busy(config: "SystemdTrial", engine: "Engine", access: "Access") -> "Callable[[], int | None]":
    """Return what tells how many requests of others the service has at hand."""
    from draftworth.trials.driver.busy import requests_at_hand  # noqa: PLC0415 - lazy: aiohttp

    return lambda: requests_at_hand(config.url, engine, access)


def fingerprint(ready: Prepared) -> str:
    """Return the SHA-256 (hex) of what a plan was made of and of its steps: a run refuses where it is another."""
    found = ready.observed.unit
    assert found is not None, "a unit was not observed"
    snapshot = found.snapshot
    parts = {
        "steps": [asdict(step) for step in ready.plan.steps],
        "files": [fact.model_dump(mode="json") for fact in snapshot.files],
        "properties": snapshot.properties,
        "invocation": snapshot.invocation,
        "way": found.way,
        "model": found.model,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
