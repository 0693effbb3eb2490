"""From what was observed and asked to the steps of a trial: a pure function, printed by `plan`, executed by `run`.

Order A-B-A: the baseline first, the variants, the baseline again, so that drift is measured and not assumed.
Where the original runs already it is the first baseline, untouched, and the restored original is the last.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.errors import RefusedError
from draftworth.trials.config import BASELINE, ArmConfig, TrialConfig

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.base import Observed


class Kind(StrEnum):
    """What a step does."""

    STOP_ORIGINAL = "stop-original"
    START = "start"
    MEASURE = "measure"
    SCORE = "score"
    STOP = "stop"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        id: number, kind and arm: what the journal calls it.
        kind: what it does.
        arm: whose server it is about; empty for the original.
        block: which measurement it belongs to, from 1; 0 for none.
        command: what is executed: for START, for STOP_ORIGINAL (the signal) and for RESTORE (the original's own argv).
        env: declared variables, for START.
        cwd: the original's folder, for RESTORE.
        about: for a person, in one line.
        undo: how its effect is undone, for a person.
    """

    id: str
    kind: Kind
    arm: str = ""
    block: int = 0
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    about: str = ""
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial's steps, and what they will cost.

    Attributes:
        steps: in order.
        requests: measured requests in all.
        starts: how many times a server is started.
        downtime_starts: how many of them happen while the original is away.
        commands: arm to its command, the original's own for a baseline that runs already.
        notes: what a person should know before starting.
    """

    steps: tuple[Step, ...]
    requests: int
    starts: int
    downtime_starts: int
    commands: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()


def plan(config: TrialConfig, observed: "Observed", engine: "Engine", *, version: str | None, prompts: int) -> Plan:
    """Return the steps of a trial.

    Args:
        config: what was asked.
        observed: what is there.
        engine: knows where flags go.
        version: the engine's version, None where it is not known before a start.
        prompts: prompts in the workload.

    Raises:
        RefusedError: the command speculates already, an arm cannot be built, or there are too many requests.
    """
    asked = config.service.command
    # What the kernel says is nearest to the original, but it has lost where the flags belong in a wrapper's command.
    placed = engine.without_placeholder(asked) != asked
    base = observed.command if observed.running and not placed else asked
    present = engine.speculation_in(base, config.service.env)
    if present:
        raise RefusedError(
            f"the service's command speculates already ({present}); the baseline must not: take it out of the command "
            "and make it an arm's speculative_config"
        )
    commands = {arm.name: arm_command(engine, base, arm, version) for arm in (config.baseline, *config.variants)}
    blocks = 2 + len(config.variants)
    requests = prompts * config.workload.repeats * blocks
    if requests > config.limits.requests:
        raise RefusedError(
            f"the plan sends {requests} requests and limits.requests is {config.limits.requests}; "
            "raise it, or lower workload.prompts_per_category or workload.repeats"
        )
    builder = _Builder(config, commands, prompts * config.workload.repeats)
    plain = not config.baseline.args and not config.baseline.env
    if observed.running:
        builder.with_original(observed, plain=plain)
    else:
        builder.from_nothing()
    starts = sum(step.kind is Kind.START for step in builder.steps)
    restored = 1 if observed.running else 0
    return Plan(
        steps=tuple(builder.steps),
        requests=requests,
        starts=starts + restored,
        downtime_starts=starts + restored if observed.running else 0,
        commands=commands,
        notes=_notes(config, observed, version, engine),
    )


def arm_command(engine: "Engine", base: tuple[str, ...], arm: ArmConfig, version: str | None) -> tuple[str, ...]:
    """Return an arm's command. Raises RefusedError where the engine's flags have no place in it."""
    command = base
    extra = list(arm.args)
    if arm.speculative_config is not None:
        extra += engine.measuring_args(version)
    if extra:
        command = engine.with_args(command, extra)
    if arm.speculative_config is not None:
        return engine.with_speculation(command, arm.speculative_config)
    return engine.without_placeholder(command)


def _notes(config: TrialConfig, observed: "Observed", version: str | None, engine: "Engine") -> tuple[str, ...]:
    notes = []
    if observed.running and observed.log is None:
        notes.append(
            "the original's output goes to no file, so its effective configuration is known only after the restore"
        )
    if version is None:
        notes.append(
            f"the version of {engine.name} is not known before it starts; per-request figures are not asked for"
        )
    if config.workload.temperature > 0 and config.verdict.output_check:
        notes.append("the output check samples greedily, in requests of its own after each measurement")
    return tuple(notes)


class _Builder:
    """Collects steps; numbers them in order."""

    def __init__(self, config: TrialConfig, commands: Mapping[str, tuple[str, ...]], requests: int) -> None:
        self.config = config
        self.commands = commands
        self.requests = requests
        self.steps: list[Step] = []
        self.block = 0

    def with_original(self, observed: "Observed", *, plain: bool) -> None:
        """The original runs: measure it, replace it, put it back, measure it again."""
        if plain:
            self.measure(BASELINE, "on the running original")
        self.add(
            Kind.STOP_ORIGINAL,
            command=("kill", "-TERM", str(observed.process.pid)) if observed.process else (),
            about="stop the original service",
            undo="start the original service",
        )
        if not plain:
            self.arm(self.config.baseline)
        for arm in self.config.variants:
            self.arm(arm)
        if not plain:
            self.arm(self.config.baseline, score=True)
        self.add(
            Kind.RESTORE,
            command=observed.command,
            cwd=observed.cwd,
            about="start the original service and check that it generates",
        )
        if plain:
            self.measure(BASELINE, "on the restored original")
            self.score()

    def from_nothing(self) -> None:
        """Nothing runs: start each arm in turn and leave nothing."""
        self.arm(self.config.baseline)
        for arm in self.config.variants:
            self.arm(arm)
        self.arm(self.config.baseline, score=True)
        self.add(Kind.RESTORE, about="check that nothing is left and the port is free")

    def arm(self, arm: ArmConfig, *, score: bool = False) -> None:
        """Start, measure, perhaps score, stop."""
        self.add(
            Kind.START,
            arm.name,
            command=self.commands[arm.name],
            env=arm.env,
            about=f"start {arm.name} and wait until it has generated a token",
            undo=f"end every process of {arm.name}",
        )
        self.measure(arm.name, "")
        if score:
            self.score()
        self.add(Kind.STOP, arm.name, about=f"stop {arm.name}; wait until no process is left and the port is free")

    def measure(self, arm: str, where: str) -> None:
        """Add a measurement."""
        self.block += 1
        work = self.config.workload
        about = (
            f"measure {arm}{' ' + where if where else ''}: {work.warmup} warm-up and {self.requests} requests, "
            f"up to {work.max_tokens} tokens each, {work.concurrency} at a time"
        )
        self.add(Kind.MEASURE, arm, block=self.block, about=about)

    def score(self) -> None:
        """Add the output check, where it is wanted."""
        if self.config.verdict.output_check:
            count = min(self.requests, self.config.verdict.output_check_prompts)
            about = f"output check: score up to {count} outputs of each arm on the baseline server"
            self.add(Kind.SCORE, BASELINE, block=self.block, about=about)

    def add(self, kind: Kind, arm: str = "", **rest: Any) -> None:
        """Add a step with the next number."""
        number = len(self.steps) + 1
        name = f"{number:02d}-{kind}" + (f"-{arm}" if arm else "")
        self.steps.append(Step(id=name, kind=kind, arm=arm, **rest))


def lines(found: Plan, observed: "Observed", config: TrialConfig) -> list[str]:
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
    out += ["", f"{found.starts} server starts, {found.requests} measured requests."]
    limit = config.limits.downtime_s
    if observed.running:
        out.append(
            f"The original is away for {found.downtime_starts} starts and what is measured between; "
            f"after at most {limit:g} s it is started again, whatever is missing."
        )
    else:
        out.append(f"After at most {limit:g} s the trial ends, whatever is missing.")
    out += [f"Note: {note}" for note in (*found.notes, *observed.notes)]
    return out


def _shell(step: Step, config: TrialConfig) -> str:
    """Return a step's command for a person to read, without secrets."""
    command = shlex.join(redact.command(step.command))
    if step.kind is Kind.STOP_ORIGINAL:
        return f"{command}   (then SIGKILL after {config.limits.stop_timeout_s:g} s)"
    if step.kind is Kind.RESTORE:
        folder = f"cd {shlex.quote(step.cwd)} && " if step.cwd else ""
        return f"{folder}{command}   (with the environment it had)"
    env = redact.environment({**config.service.env, **step.env})
    return "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(env.items())) + command
