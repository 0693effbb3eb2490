"""`draftworth trial plan`: every step and command that a run would execute; changes nothing."""

import json
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.trial_words import File, Json

if TYPE_CHECKING:
    from draftworth.trials.endpoints.config import EndpointsTrial
    from draftworth.trials.power import Power
    from draftworth.trials.prepare import Prepared


def plan(
    file: File,
    /,
    *,
    files: Annotated[
        bool, Parameter(negative="", help="systemd: print every unit and script a run would write, in full.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Print every step and command a run would execute; the same code makes both. Changes nothing."""
    from dataclasses import asdict  # noqa: PLC0415 - lazy

    from draftworth import redact  # noqa: PLC0415 - lazy
    from draftworth.trials.config import SystemdTrial  # noqa: PLC0415 - lazy
    from draftworth.trials.endpoints.config import EndpointsTrial  # noqa: PLC0415 - lazy
    from draftworth.trials.load import load  # noqa: PLC0415 - lazy
    from draftworth.trials.lock import dead  # noqa: PLC0415 - lazy
    from draftworth.trials.plan_text import lines  # noqa: PLC0415 - lazy
    from draftworth.trials.prepare import prepare  # noqa: PLC0415 - lazy
    from draftworth.trials.recover import refuse_unfinished  # noqa: PLC0415 - lazy

    config = load(file)
    if isinstance(config, EndpointsTrial):
        return _plan_endpoints(config, as_json=as_json)
    if isinstance(config, SystemdTrial):
        from draftworth.cli.unit import plan_unit  # noqa: PLC0415 - lazy

        return plan_unit(config, files=files, as_json=as_json)
    port = config.service.port
    refuse_unfinished(port, dict(dead()).get(port))
    ready = prepare(file)
    if not as_json:
        print("\n".join([*lines(ready.plan, ready.observed, ready.config), _power(ready).line]))
        return 0
    steps = [
        {**asdict(step), "command": redact.command(step.command), "env": redact.environment(step.env)}
        for step in ready.plan.steps
    ]
    found = {
        "schema_version": 1,
        "service_runs": ready.observed.running,
        "engine": ready.engine.name,
        "version": ready.version,
        "config": redact.config(ready.config),
        "steps": steps,
        "requests": ready.plan.requests,
        "starts": ready.plan.starts,
        "power": _power(ready).model_dump(),
        "notes": ready.plan.notes,
    }
    print(json.dumps(found, indent=1, default=str))
    return 0


def _power(ready: "Prepared") -> "Power":
    from draftworth.bench.machine import device_here  # noqa: PLC0415 - lazy
    from draftworth.search.spending import divisor  # noqa: PLC0415 - lazy
    from draftworth.trials.power import power_of  # noqa: PLC0415 - lazy: scipy

    config = ready.config
    starts = config.verdict.starts
    return power_of(
        config,
        prompts=len(ready.prompts),
        starts=(starts + 1, starts),
        looks=starts,
        # A search: that of the setting which is started first.
        variants=divisor(1, len(config.candidates)) if config.search is not None else len(config.candidates),
        device=device_here(),
    )


def _plan_endpoints(config: "EndpointsTrial", *, as_json: bool) -> int:
    """Print the plan of a trial between servers that run already."""
    from draftworth import redact  # noqa: PLC0415 - lazy
    from draftworth.trials.endpoints.prepare import lines, prepare  # noqa: PLC0415 - lazy
    from draftworth.trials.power import power_of  # noqa: PLC0415 - lazy: scipy

    ready = prepare(config)
    power = power_of(
        config, prompts=len(ready.prompts), starts=(1, 1), looks=len(ready.segments), variants=len(config.arms)
    )
    if not as_json:
        print("\n".join([*lines(ready), power.line]))
        return 0
    found = {
        "schema_version": 1,
        "engine": ready.engine.name,
        "servers": [
            {"arm": arm.name, "url": arm.target.base_url, "model": arm.target.model, "version": arm.version}
            for arm in ready.arms
        ],
        "config": redact.endpoints(config),
        "steps": [{"id": step.id, "kind": step.kind, "about": step.about} for step in ready.plan.steps],
        "requests": ready.plan.requests,
        "starts": 0,
        "notes": ready.plan.notes,
        "power": power.model_dump(),
    }
    print(json.dumps(found, indent=1, default=str))
    return 0
