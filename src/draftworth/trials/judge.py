"""From blocks to comparisons: used after each look at the evidence, and for the record. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftworth import redact
from draftworth.engines import engine as engine_named
from draftworth.engines.base import Confounder, Engine, StartupFacts, sum_counts, synthetic_in
from draftworth.findings import Code, Finding, find
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import BASELINE, CommonConfig, TrialConfig
from draftworth.trials.diagnostics import is_diagnostic
from draftworth.trials.record import ArmComparison
from draftworth.trials.unlike import not_compared, other_engines
from draftworth.verdicts.base import CategoryComparison, OutputCheck
from draftworth.verdicts.compare import Compared, compare
from draftworth.verdicts.decision import override
from draftworth.verdicts.output_check import judge
from draftworth.verdicts.rules import Limits, Rules
from draftworth.verdicts.sequential import enough
from draftworth.verdicts.weaken import FROM_ANY_ARM, weaken

_CACHE_APART = 0.05


@dataclass(frozen=True, slots=True)
class ArmInfo:
    """An arm as it was asked for.

    Attributes:
        name: its name.
        command: what starts it; empty for a server that runs already.
        declared: its declared difference, for the record, secrets hidden.
        config: its speculative configuration; None where it has none, or where that is not known.
        speculates: whether restarts spread as those of a speculating server do.
        engine: what serves it.
        env: its environment beyond Draftworth's own; never written to a record.
        device: what it runs on, where its log does not tell and the machine leaves no choice.
    """

    name: str
    command: tuple[str, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None
    speculates: bool = False
    engine: str = "vllm"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    device: str | None = None


def arms_of(
    config: TrialConfig, commands: Mapping[str, tuple[str, ...]], device: str | None = None
) -> tuple[ArmInfo, ...]:
    """Return the arms of a trial on a service, the baseline first.

    Args:
        config: the trial's file.
        commands: each arm's.
        device: what servers run on here, where there is no choice.
    """
    return tuple(
        ArmInfo(
            name=arm.name,
            command=redact.command(commands[arm.name]),
            declared={
                "speculative_config": arm.speculative_config,
                "args": list(redact.command(arm.args)),
                "env": redact.environment(arm.env),
            },
            config=arm.speculative_config,
            speculates=arm.speculative_config is not None,
            engine=config.service.engine,
            env={**config.service.env, **arm.env},
            device=device,
        )
        for arm in (config.baseline, *config.variants)
    )


def candidates_of(arms: Sequence[ArmInfo]) -> list[ArmInfo]:
    """Return the variants a verdict can be about: those that only measure are none, unless there are no others."""
    variants = [arm for arm in arms if arm.name != BASELINE]
    return [
        arm for arm in variants if not is_diagnostic(arm.config, arm.env, arm.declared.get("args") or ())
    ] or variants


def limits_of(config: CommonConfig) -> Limits:
    """Return what a request must meet to count for goodput."""
    slo = config.verdict.slo
    return Limits(ttft_ms=slo.ttft_ms, tpot_ms=slo.tpot_ms, e2e_ms=slo.e2e_ms)


def compare_arm(
    blocks: Sequence[Block], arm: ArmInfo, config: CommonConfig, *, variants: int, look: int, looks: int
) -> Compared:
    """Compare one variant with the baseline by what is measured so far."""
    rules = config.verdict
    work = config.workload
    base_sd, other_sd = rules.restart_priors(
        facts_of([block for block in blocks if block.arm == BASELINE]).device or arm.device
    )
    return compare(
        [block.rows for block in blocks if block.arm == BASELINE],
        [block.rows for block in blocks if block.arm == arm.name],
        Rules(
            margin=rules.margin,
            confidence=rules.confidence,
            variants=variants,
            metric=rules.metric,
            limits=limits_of(config),
            prior_baseline=base_sd,
            prior_variant=other_sd if arm.speculates else base_sd,
            prior_ttft=rules.restart_sd_ttft,
            look=look,
            looks=looks,
            open_loop=work.rate is not None or work.replay_speed is not None,
        ),
    )


def decided(blocks: Sequence[Block], arms: Sequence[ArmInfo], config: CommonConfig, *, look: int, looks: int) -> bool:
    """Whether the evidence is enough for a verdict on every variant, as the findings so far leave it.

    The output check comes at the end, so what it finds is not known yet.
    """
    candidates = candidates_of(arms)
    baseline = [block for block in blocks if block.arm == BASELINE]
    for arm in candidates:
        found = compare_arm(blocks, arm, config, variants=len(candidates), look=look, looks=looks).comparison
        own = [block for block in blocks if block.arm == arm.name]
        known = [*_baseline_speculates(baseline, arms), *_about(arm, own), *_warmer(arm, baseline, own)]
        if not enough(weaken(found, _concerning(arm, blocks, known))):
            return False
    return True


def judge_all(
    outcome: Outcome, arms: Sequence[ArmInfo], config: CommonConfig, engine: Engine
) -> tuple[list[ArmComparison], list[Confounder], list[Finding]]:
    """Compare every variant with the baseline. Returns comparisons, undeclared differences, and findings."""
    baseline = [block for block in outcome.blocks if block.arm == BASELINE]
    comparisons: list[ArmComparison] = []
    confounders: list[Confounder] = []
    findings: list[Finding] = []
    findings += _baseline_speculates(baseline, arms)
    findings += other_engines({arm.name: arm.engine for arm in arms})
    findings += not_compared(
        [(arm.name, sum_counts([one.counts for one in outcome.blocks if one.arm == arm.name])) for arm in arms]
    )
    of_all = [*findings, *outcome.findings]
    wanted = config.verdict.output_check
    count = len(candidates_of(arms))
    for arm in (one for one in arms if one.name != BASELINE):
        blocks = [block for block in outcome.blocks if block.arm == arm.name]
        if not blocks and is_diagnostic(arm.config, arm.env, arm.declared.get("args") or ()):
            continue  # it was given up, and a finding says so
        found = compare_arm(outcome.blocks, arm, config, variants=count, look=outcome.look, looks=outcome.looks)
        check = _check(outcome, arm, baseline, blocks, wanted=wanted)
        about = [*_checked(arm, check), *_about(arm, blocks), *_warmer(arm, baseline, blocks)]
        findings += [*found.findings, *about]
        differ = engine.confounders(facts_of(baseline), facts_of(blocks))
        confounders += differ
        findings += _confounded(arm, differ, baseline, blocks)
        judged = override(found.comparison, check) if wanted else found.comparison
        known = [*of_all, *about]
        judged = weaken(judged, _concerning(arm, outcome.blocks, known))
        comparisons.append(
            ArmComparison(
                **judged.model_dump(),
                arm=arm.name,
                categories=tuple(weaken(one, _of_group(one, arm, outcome.blocks, known)) for one in found.categories),
                output_check=check,
                drift=found.drift,
            )
        )
    return comparisons, list(dict.fromkeys(confounders)), findings


def _concerning(arm: ArmInfo, blocks: Sequence[Block], known: Sequence[Finding], point: str = "") -> list[Finding]:
    """Return the findings that concern a variant's comparison: of no arm, of the baseline and of its own.

    Args:
        arm: the variant.
        blocks: whose remarks count.
        known: what was found besides.
        point: only what was remarked at this point of a sweep or about whole blocks; empty for every point.
    """
    found = [*known, *(one for block in blocks for one in block.findings)]
    for window in (window for block in blocks for window in block.windows):
        here = not point or window.point.label == point
        found += [one for one in window.findings if here or one.code in FROM_ANY_ARM]
    return [one for one in found if one.code in FROM_ANY_ARM or one.arm in {None, BASELINE, arm.name}]


def _of_group(
    group: CategoryComparison, arm: ArmInfo, blocks: Sequence[Block], known: Sequence[Finding]
) -> list[Finding]:
    """Return the findings that concern a group; a category is measured at every point."""
    return _concerning(arm, blocks, known, group.category if group.kind == "point" else "")


def _baseline_speculates(baseline: Sequence[Block], arms: Sequence[ArmInfo]) -> list[Finding]:
    engine = engine_named(arms[0].engine)
    how = next((told for block in baseline if (told := _speculates(block, engine))), None)
    return [find(Code.BASELINE_SPECULATES, f"the baseline's server {how}", arm=BASELINE)] if how else []


def _check(
    outcome: Outcome, arm: ArmInfo, baseline: Sequence[Block], variant: Sequence[Block], *, wanted: bool
) -> OutputCheck:
    if not wanted:
        return OutputCheck(status="unchecked", reason="verdict.output_check is off")
    if outcome.scores.refused:
        return OutputCheck(status="unchecked", reason=outcome.scores.refused)
    by_arm = outcome.scores.by_arm
    return judge(
        by_arm.get(BASELINE, []),
        by_arm.get(arm.name, []),
        [row for block in baseline if block.start == 1 for row in block.check_rows],
        [row for block in variant if block.start == 1 for row in block.check_rows],
    )


_CHECK_CODES = {
    "diverged": Code.OUTPUT_DIVERGED,
    "suspect": Code.OUTPUT_SUSPECT,
    "unchecked": Code.OUTPUT_UNCHECKED,
}


def _checked(arm: ArmInfo, check: OutputCheck) -> list[Finding]:
    code = _CHECK_CODES.get(check.status)
    return [find(code, f"{arm.name}: {check.reason}", arm=arm.name)] if code else []


def _about(arm: ArmInfo, blocks: Sequence[Block]) -> list[Finding]:
    """Remarks on one variant."""
    findings = []
    counts = sum_counts([block.counts for block in blocks])
    facts = facts_of(blocks)
    synthetic = synthetic_in(arm.config, arm.env) or synthetic_in(facts.config)
    if synthetic:
        findings.append(find(Code.SYNTHETIC_ACCEPTANCE, f"{arm.name}: {synthetic}", arm=arm.name))
    if not arm.speculates:
        return findings
    if facts.speculating is False:
        message = f"{arm.name}: the engine's own configuration line says speculative_config=None"
        findings.append(find(Code.SPECULATION_OFF, message, arm=arm.name))
    elif counts is not None and counts.drafted == 0:
        findings.append(find(Code.NOTHING_DRAFTED, f"{arm.name}: 0 tokens drafted", arm=arm.name))
    elif counts is not None and counts.drafted is None and not counts.speculated:
        why = counts.not_given.get("drafted", "the server does not export it")
        findings.append(find(Code.METRICS_MISSING, f"{arm.name}: drafted tokens not known: {why}", arm=arm.name))
    return findings


def cache_share(blocks: Sequence[Block]) -> float | None:
    """Return the share of prompt tokens an arm's servers had in their prefix cache, or None where that is not told."""
    known = [block.cache for block in blocks]
    if known and all(one is not None for one in known):
        looked = sum(one[0] for one in known if one is not None)
        return sum(one[1] for one in known if one is not None) / looked if looked else None
    rows = [row for block in blocks for row in block.rows if row.ok]
    if not rows or any(row.cached_tokens is None or not row.prompt_tokens for row in rows):
        return None
    return sum(row.cached_tokens or 0 for row in rows) / sum(row.prompt_tokens or 0 for row in rows)


def _warmer(arm: ArmInfo, baseline: Sequence[Block], blocks: Sequence[Block]) -> list[Finding]:
    one, other = cache_share(baseline), cache_share(blocks)
    if one is None or other is None or abs(one - other) <= _CACHE_APART:
        return []
    message = f"prompt tokens found in the prefix cache: baseline {one:.0%}, {arm.name} {other:.0%}"
    return [find(Code.PREFIX_CACHE_WARMER, message, arm=arm.name)]


def _confounded(
    arm: ArmInfo, differ: Sequence[Confounder], baseline: Sequence[Block], blocks: Sequence[Block]
) -> list[Finding]:
    unknown = [name for name, some in ((BASELINE, baseline), (arm.name, blocks)) if not facts_of(some).config]
    if unknown:
        message = f"the effective configuration of {' and '.join(unknown)} is in no log, so it was not compared"
        return [find(Code.CONFOUNDED, message, arm=arm.name)]
    if not differ:
        return []
    names = ", ".join(dict.fromkeys(one.name for one in differ))
    return [find(Code.CONFOUNDED, f"{arm.name} differs from the baseline in {names}", arm=arm.name)]


def _speculates(block: Block, engine: Engine) -> str | None:
    """Return how a server that should not speculate shows that it does, or None."""
    if block.counts is not None and block.counts.speculated:
        drafted = block.counts.drafted
        return f"drafted {drafted} tokens" if drafted else "shows drafts in its counters"
    counted = block.counts is not None and block.counts.drafted is not None
    if block.facts.speculating or (counted and engine.counters_mean_speculation):
        return "is set up to speculate, though it drafted nothing: that mode costs by itself"
    return None


def facts_of(blocks: Sequence[Block]) -> StartupFacts:
    """Return the facts of the latest start that told its configuration."""
    told = [block.facts for block in blocks if block.facts.config]
    return told[-1] if told else blocks[-1].facts if blocks else StartupFacts()
