"""A plan for a person: what is there, every step with its command, what it may cost."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.base import Replay
from draftworth.trials.config import TrialConfig, WorkloadConfig

if TYPE_CHECKING:
    from draftworth.services.base import Observed
    from draftworth.trials.plan import Plan, Step


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
    for step in found.steps:
        out.append(f"{step.id}: {step.about}")
        if step.command:
            out.append(f"    $ {_shell(step, config)}")
        if step.undo:
            out.append(f"    undo: {step.undo}")
    most = "at most " if config.verdict.starts > 1 else ""
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
