"""The steps of a trial's execution that only measure: probe, profile, and giving an arm up that fails at it.

None of them can lose the trial: what goes wrong is a finding, and the steps that the verdict needs go on.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import DraftworthError, ServerError
from draftworth.findings import Code, find
from draftworth.trials.probing import loads_of, probe_baseline
from draftworth.trials.profiling import profile_server

if TYPE_CHECKING:
    from draftworth.trials.base import Block
    from draftworth.trials.execute import Execution, Server
    from draftworth.trials.plan import Step


def probe(run: "Execution", block: "Block", server: "Server") -> None:
    """Measure what the baseline's steps cost, while it is up."""
    began = time.monotonic()
    run.progress.line("probing what a step of the baseline costs")
    log = Path(server.log)
    found = probe_baseline(
        run.config.url,
        run.folder,
        block.rows,
        access=run.access,
        model=server.model,
        log=log if log.is_absolute() else run.folder / log,
        loads=loads_of(run.sweep),
        configs=[arm.speculative_config for arm in run.config.variants],
        seconds=run.downtime.deadline - time.monotonic(),
        tell=lambda what, done, whole: run.progress.count(done, whole, what),
    )
    run.outcome.findings += [found] if found else []
    run.outcome.waited_s += time.monotonic() - began
    run.interrupts.check()


def profile(run: "Execution", step: "Step") -> None:
    """Run a few requests under the engine's profiler."""
    server = run.server
    if server is None:
        return
    began = time.monotonic()
    target = run.target_of(server)
    with run.journal.step(step.id) as effect:
        found, why = profile_server(
            target,
            run.requests.at(run.sweep[0], target),
            run.folder,
            step.arm,
            at_once=max(loads_of(run.sweep), default=1),
            seconds=run.downtime.deadline - time.monotonic(),
            tell=run.progress.now,
        )
        effect["profile"] = None if found is None else found.source
    run.outcome.findings += [why] if why else []
    run.outcome.waited_s += time.monotonic() - began
    run.interrupts.check()


def give_up(run: "Execution", step: "Step", error: DraftworthError) -> None:
    """End what is left of an arm that only measures, and say what it failed of."""
    run.given_up.add(step.arm)
    run.server = None
    last = error.tail[-1:] if isinstance(error, ServerError) else ()
    message = ": ".join([f"{step.arm} was given up: {error}", *last])
    run.outcome.findings.append(find(Code.DIAGNOSTIC_FAILED, message, arm=step.arm))
    run.progress.line(message)
    began = time.monotonic()
    for leader, running in list(run.started.items())[-1:]:
        now = run.service.refresh(running)
        with run.journal.step(f"{step.id}-give-up", running=now.model_dump(mode="json")) as effect:
            effect["remarks"] = list(run.service.stop(now, run.progress.now))
        run.started[leader] = now
    run.outcome.waited_s += time.monotonic() - began
