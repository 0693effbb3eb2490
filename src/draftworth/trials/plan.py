"""From what was observed and asked to the steps of a trial: a pure function, printed by `plan`, executed by `run`.

Order A-B-A: the baseline first, the variants, the baseline again, so that drift is measured and not assumed; with
several starts A-B-A-B-A, with a look at the evidence behind each baseline, where the trial may end.
Where the original runs already it is the first baseline, untouched, and the restored original is every later one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from draftworth.bench.requests import sweep_of
from draftworth.errors import RefusedError
from draftworth.search.grid import candidates_of
from draftworth.trials.config import BASELINE, ArmConfig, TrialConfig
from draftworth.trials.diagnostics import PROBE
from draftworth.trials.plan_text import in_words
from draftworth.trials.probing import about_probe, loads_of, seats_in, sizes_of
from draftworth.trials.remembered import learns
from draftworth.trials.steps import Kind, Plan, Step

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.base import Observed


def plan(config: TrialConfig, observed: "Observed", engine: "Engine", *, version: str | None, prompts: int) -> Plan:
    """Return the steps of a trial.

    Args:
        config: what was asked.
        observed: what is there.
        engine: knows where flags go.
        version: the engine's version, None where it is not known before a start.
        prompts: requests that one pass over the workload sends at each point.

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
    commands |= {arm.name: arm_command(engine, base, arm, version) for arm in config.profiled_arms}
    once = len(config.diagnostic_arms)
    blocks = 1 + config.verdict.starts * (1 + len(config.variants) - once) + once
    block_requests = prompts * config.workload.repeats * len(sweep_of(config.workload))
    requests = block_requests * blocks
    # A search ends before it would send too many; the baseline twice and one setting have to fit.
    if config.search is not None and 3 * block_requests > config.limits.requests:
        raise RefusedError(
            f"a search sends at least {3 * block_requests} requests (the baseline twice and one setting) and "
            f"limits.requests is {config.limits.requests}; raise it, or lower workload.prompts_per_category or "
            "workload.repeats"
        )
    if config.search is None and requests > config.limits.requests:
        raise RefusedError(
            f"the plan sends {requests} requests and limits.requests is {config.limits.requests}; "
            "raise it, or lower workload.prompts_per_category, workload.repeats or verdict.starts"
        )
    builder = _Builder(config, commands, block_requests)
    plain = not config.baseline.args and not config.baseline.env
    if observed.running:
        builder.with_original(observed, plain=plain)
    else:
        builder.from_nothing()
    starts = sum(step.kind is Kind.START for step in builder.steps)
    restored = sum(step.kind is Kind.RESTORE for step in builder.steps) if observed.running else 0
    return Plan(
        steps=tuple(builder.steps),
        requests=requests,
        starts=starts + restored,
        downtime_starts=starts + restored if restored else 0,
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
    if observed.running and observed.log is None and observed.unit is None:
        notes.append(
            "the original's output goes to no file, so its effective configuration is known only after the restore"
        )
    if version is None:
        notes.append(
            f"the version of {engine.name} is not known before it starts; per-request figures are not asked for"
        )
    again = config.workload.repeats > 1 or len(sweep_of(config.workload)) > 1
    notes += [
        f"{arm.name}: {what} learns from every answer, so its server is sent each prompt once, at one load, and "
        "compared over those; more prompts make up for it"
        for arm in (config.variants if again else ())
        if (what := learns(arm.speculative_config, arm.args, engine.name))
    ]
    if config.search is not None:
        notes.append(_about_search(config))
        if config.search.grid:
            left = candidates_of(config.search.grid, engine=config.service.engine).refused
            notes += [f"search.{line}" for line in left]
    if config.workload.temperature > 0 and config.verdict.output_check:
        notes.append("the output check samples greedily, in requests of its own after each measurement")
    return tuple(notes)


def _about_search(config: TrialConfig) -> str:
    search = config.search
    assert search is not None, "asked of a search"
    minutes = "" if search.minutes is None else f", for at most {search.minutes:g} min in all"
    return (
        f"the search starts those of {len(config.searched)} settings that can change the answer, the most promising a "
        f"minute first, each once{minutes}; `draftworth predict` says what is expected of them before"
    )


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
        if not plain:
            self.stop_original(observed, again=False)
            self.rounds()
            self.put_back(observed, closing=True)
            return
        self.measure(BASELINE, "on the running original")
        for number in range(1, self.config.verdict.starts + 1):
            self.stop_original(observed, again=number > 1)
            self.variants(number)
            if number == 1:
                # Behind its return they would cost another absence.
                self.only_measuring()
            self.put_back(observed)
            self.measure(BASELINE, "on the restored original")
            self.look(number)
        self.score()

    def from_nothing(self) -> None:
        """Nothing runs: start each arm in turn and leave nothing."""
        self.rounds()
        self.add(Kind.RESTORE, closing=True, about="check that nothing is left and the port is free")

    def rounds(self) -> None:
        """Start each arm in turn, the baseline first and after each round.

        Arms that only measure come behind the baseline that closes the first round: what they take is no time between
        the two baselines of a verdict then.
        """
        self.arm(self.config.baseline)
        last = self.config.verdict.starts
        for number in range(1, last + 1):
            self.variants(number)
            self.arm(self.config.baseline, look=number, score=number == last)
            if number == 1:
                self.only_measuring()

    def variants(self, number: int) -> None:
        """Start each variant of a round in turn; of the last round the last one may be held for a person."""
        only_measure = self.config.diagnostic_arms
        variants = [arm for arm in self.config.variants if arm not in only_measure]
        hold = self.config.limits.hold_s
        for arm in variants:
            self.arm(arm, hold=hold if number == self.config.verdict.starts and arm is variants[-1] else 0.0)

    def only_measuring(self) -> None:
        """Start each arm that only measures in turn."""
        for arm in self.config.diagnostic_arms:
            self.arm(arm)
        for arm in self.config.profiled_arms:
            self.arm(arm, profile=True)

    def stop_original(self, observed: "Observed", *, again: bool) -> None:
        """Add the end of the original."""
        self.add(
            Kind.STOP_ORIGINAL,
            command=("kill", "-TERM", str(observed.process.pid)) if observed.process and not again else (),
            about=f"stop the {'restored ' if again else ''}original service",
            undo="start the original service",
        )

    def put_back(self, observed: "Observed", *, closing: bool = False) -> None:
        """Add the restore of the original."""
        self.add(
            Kind.RESTORE,
            command=observed.command,
            cwd=observed.cwd,
            closing=closing,
            about="start the original service and check that it generates",
        )

    def arm(
        self, arm: ArmConfig, *, look: int = 0, score: bool = False, hold: float = 0.0, profile: bool = False
    ) -> None:
        """Start, measure or profile, perhaps look and score, stop."""
        self.add(
            Kind.START,
            arm.name,
            command=self.commands[arm.name],
            env=arm.env,
            about=f"start {arm.name} and wait until it has generated a token",
            undo=f"end every process of {arm.name}",
        )
        if profile:
            about = f"profile {arm.name}: a short run under the engine's own profiler, compared with no time"
            self.add(Kind.PROFILE, arm.name, about=about)
        else:
            self.measure(arm.name, "")
        if hold:
            about = f"leave {arm.name} running for {hold:g} s for a person to try; `draftworth trial release` ends it"
            self.add(Kind.HOLD, arm.name, about=about)
        if look:
            self.look(look)
        if score:
            self.score()
        about = f"stop {arm.name}; wait until no process is left and the port is free"
        self.add(Kind.STOP, arm.name, closing=score, about=about)

    def look(self, number: int) -> None:
        """Add a look at the evidence, where there are several."""
        planned = self.config.verdict.starts
        if planned > 1:
            rest = "end the measuring if it is enough" if number < planned else "the last"
            self.add(Kind.LOOK, look=number, about=f"look {number} of {planned} at the evidence: {rest}")

    def measure(self, arm: str, where: str) -> None:
        """Add a measurement."""
        self.block += 1
        work = self.config.workload
        about = (
            f"measure {arm}{' ' + where if where else ''}: {work.warmup} warm-up and {self.requests} requests, "
            f"{in_words(work)}"
        )
        self.add(Kind.MEASURE, arm, block=self.block, about=about)
        if self.block == 1 and PROBE in self.config.verdict.diagnostics:
            self.probe(arm)

    def probe(self, arm: str) -> None:
        """Add the probe of the baseline, behind its first measurement."""
        work = self.config
        configs = [one.speculative_config for one in work.variants]
        about = about_probe(
            sizes_of(loads_of(sweep_of(work.workload)), configs, seats=seats_in(self.commands.get(arm, ()), {}))
        )
        self.add(Kind.PROBE, arm, about=about)

    def score(self) -> None:
        """Add the output check, where it is wanted."""
        if self.config.verdict.output_check:
            count = min(self.requests, self.config.verdict.output_check_prompts)
            about = f"output check: score up to {count} outputs of each arm on the baseline server"
            self.add(Kind.SCORE, BASELINE, block=self.block, closing=True, about=about)

    def add(self, kind: Kind, arm: str = "", **rest: Any) -> None:
        """Add a step with the next number."""
        number = len(self.steps) + 1
        name = f"{number:02d}-{kind}" + (f"-{arm}" if arm else "")
        self.steps.append(Step(id=name, kind=kind, arm=arm, **rest))
