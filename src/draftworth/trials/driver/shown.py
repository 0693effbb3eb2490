"""A plan on a unit as text and as data: the steps, the way back, and the files of both."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.services.systemd.look import boot_target
from draftworth.services.systemd.names import LASTING, Names
from draftworth.services.systemd.net import after_death, boot_unit, deadman_units, restore_unit
from draftworth.services.systemd.recipe import recipe_for
from draftworth.services.systemd.script import ask_files, clean_script, restore_script
from draftworth.services.systemd.variant import drop_in, parallel
from draftworth.trials.driver.station import PlanShown
from draftworth.trials.plan_text import unit_lines
from draftworth.trials.prepare_unit import fingerprint

if TYPE_CHECKING:
    from draftworth.trials.prepare import Prepared

_NAMES = Names("00000000-000000-000000")
"""Stands for the trial's own tag, which is made when it starts."""


def shown(ready: "Prepared", *, files: bool = False) -> PlanShown:
    """Return a plan as it is shown.

    Args:
        ready: the prepared trial.
        files: with the units of the variants and the restore script in full.
    """
    from draftworth.bench.machine import device_here  # noqa: PLC0415 - lazy
    from draftworth.trials.config import SystemdTrial  # noqa: PLC0415 - lazy
    from draftworth.trials.power import power_of  # noqa: PLC0415 - lazy: scipy

    config, found = ready.config, ready.observed.unit
    assert isinstance(config, SystemdTrial), "a trial on a unit"
    assert found is not None, "a unit was observed"
    starts = config.verdict.starts
    power = power_of(
        config,
        prompts=len(ready.prompts),
        starts=(starts + 1, starts),
        looks=starts,
        variants=len(config.candidates),
        device=device_here(),
    )
    texts = _files(ready) if files else {}
    lines = [*unit_lines(ready.plan, ready.observed, config), power.line]
    for path, text in texts.items():
        lines += ["", f"--- {path}", text.rstrip("\n")]
    steps = [
        {**asdict(step), "command": redact.command(step.command), "env": redact.environment(step.env)}
        for step in ready.plan.steps
    ]
    data = {
        "schema_version": 1,
        "service_runs": True,
        "engine": ready.engine.name,
        "version": ready.version,
        "unit": found.snapshot.unit,
        "way": found.way,
        "way_reason": found.why,
        "config": redact.config(config),
        "steps": steps,
        "requests": ready.plan.requests,
        "starts": ready.plan.starts,
        "power": power.model_dump(mode="json"),
        "notes": list(ready.plan.notes),
        "files": texts,
        "fingerprint": fingerprint(ready),
    }
    return PlanShown(lines=tuple(lines), data=data, port=config.service.port, fingerprint=fingerprint(ready))


def _files(ready: "Prepared") -> dict[str, str]:
    """Return what a run would write to the host: path to text."""
    from draftworth.hosts.local import LocalHost  # noqa: PLC0415 - lazy
    from draftworth.trials.config import SystemdTrial  # noqa: PLC0415 - lazy

    config, found = ready.config, ready.observed.unit
    assert isinstance(config, SystemdTrial), "a trial on a unit"
    assert found is not None, "a unit was observed"
    recipe = recipe_for(config, found, _NAMES, ready.access, None)
    texts = {}
    for arm in (*config.variants, *((config.baseline,) if config.baseline.args else ())):
        argv, start_s = ready.plan.commands[arm.name], config.limits.start_timeout_s + 60
        if found.way == "parallel":
            made = parallel(LocalHost(), found.snapshot, _NAMES, arm.name, argv, start_s=start_s)
        else:
            made = drop_in(found.snapshot, _NAMES, arm.name, argv, start_s=start_s)
        texts[made.path] = redact.text(made.text) if "key" in made.text.lower() else made.text
    systemctl = "/usr/bin/systemctl"
    away_s = config.limits.downtime_s + config.limits.hold_s + 60
    texts[_NAMES.path(_NAMES.restore)] = restore_unit(recipe)
    texts[_NAMES.script] = restore_script(recipe)
    texts[_NAMES.clean] = clean_script(recipe)
    for name, text in deadman_units(recipe, away_s, systemctl).items():
        texts[_NAMES.path(name)] = text
    if found.lasting:
        texts[f"{LASTING}/{_NAMES.boot}"] = boot_unit(recipe, boot_target(LocalHost()), systemctl)
    for name, data in ask_files(recipe).items():
        if name != "headers":  # may hold a key
            texts[f"{_NAMES.folder}/{name}"] = data.decode()
    texts[f"{_NAMES.after} (ExecStopPost= of {_NAMES.trial})"] = after_death(_NAMES)
    return {path.replace(_NAMES.tag, "TRIAL"): text.replace(_NAMES.tag, "TRIAL") for path, text in texts.items()}
