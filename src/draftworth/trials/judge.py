"""From blocks to comparisons: used after each look at the evidence, and for the record. Pure."""

from collections.abc import Mapping, Sequence

from draftworth import redact
from draftworth.engines.base import Confounder, Engine, sum_counts
from draftworth.findings import Code, Finding, find
from draftworth.search.spending import divisor
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import BASELINE, CommonConfig, TrialConfig
from draftworth.trials.diagnostics import candidates, is_diagnostic
from draftworth.trials.record import ArmComparison
from draftworth.trials.remarks import ArmInfo, about_arm, baseline_speculates, confounded, facts_of, warmer
from draftworth.trials.remembered import remembered
from draftworth.trials.unlike import not_compared, other_engines
from draftworth.verdicts.base import CategoryComparison, OutputCheck
from draftworth.verdicts.compare import Compared, compare
from draftworth.verdicts.decision import override
from draftworth.verdicts.output_check import judge
from draftworth.verdicts.rules import Limits, Rules
from draftworth.verdicts.sampled_check import SampledCheck, judge_sampled
from draftworth.verdicts.sequential import enough
from draftworth.verdicts.weaken import FROM_ANY_ARM, weaken

__all__ = ["ArmInfo", "arms_of", "candidates_of", "checked_arms", "compare_arm", "decided", "judge_all", "limits_of"]


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
    return list(candidates(variants, lambda arm: is_diagnostic(arm.config, arm.env, arm.declared.get("args") or ())))


def checked_arms(arms: Sequence[ArmInfo]) -> frozenset[str]:
    """Return the names of the arms whose output is checked: the baseline, and the variants a verdict can be about."""
    return frozenset({BASELINE, *(arm.name for arm in candidates_of(arms))})


def limits_of(config: CommonConfig) -> Limits:
    """Return what a request must meet to count for goodput."""
    slo = config.verdict.slo
    return Limits(ttft_ms=slo.ttft_ms, tpot_ms=slo.tpot_ms, e2e_ms=slo.e2e_ms)


def compare_arm(
    blocks: Sequence[Block],
    arm: ArmInfo,
    config: CommonConfig,
    *,
    variants: float,
    look: int,
    looks: int,
    correction: str = "",
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
            correction=correction,
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


def decided(
    blocks: Sequence[Block],
    arms: Sequence[ArmInfo],
    config: CommonConfig,
    *,
    look: int,
    looks: int,
    given_up: frozenset[str] = frozenset(),
    answered: Mapping[str, frozenset[tuple[int, ...]]] | None = None,
) -> bool:
    """Whether the evidence is enough for a verdict on every variant, as the findings so far leave it.

    The output check comes at the end, so what it finds is not known yet.
    """
    all_of_them = candidates_of(arms)
    counted = _counted(blocks, arms)
    baseline = [block for block in blocks if block.arm == BASELINE]
    for arm in (one for one in all_of_them if one.name not in given_up):
        found = compare_arm(blocks, arm, config, variants=len(all_of_them), look=look, looks=looks).comparison
        own = [block for block in blocks if block.arm == arm.name]
        known = [
            *baseline_speculates(baseline, arms),
            *about_arm(arm, own),
            *warmer(arm, baseline, own, config.verdict.metric),
        ]
        known += remembered(arm, own, (answered or {}).get(arm.name, frozenset())).values()
        if not enough(weaken(found, _concerning(arm, counted, known))):
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
    findings += baseline_speculates(baseline, arms)
    findings += other_engines({arm.name: arm.engine for arm in arms})
    findings += not_compared(
        [(arm.name, sum_counts([one.counts for one in outcome.blocks if one.arm == arm.name])) for arm in arms]
    )
    checked = checked_arms(arms)
    of_all = [one for one in (*findings, *outcome.findings) if one.arm in {None, *checked}]
    wanted = config.verdict.output_check
    counted = _counted(outcome.blocks, arms)
    for arm in (one for one in arms if one.name != BASELINE):
        count, correction = _share(outcome, arm, arms)
        blocks = [block for block in outcome.blocks if block.arm == arm.name]
        only_measures = arm.name not in checked
        if arm.name in outcome.given_up or (only_measures and not blocks):
            continue  # a finding says so
        look, looks = _looked(outcome, arm)
        found = compare_arm(outcome.blocks, arm, config, variants=count, correction=correction, look=look, looks=looks)
        check = _check(outcome, arm, baseline, blocks, wanted=wanted, only_measures=only_measures)
        sampled = None
        if wanted and not only_measures and config.workload.temperature > 0:
            sampled = _sampled(baseline, blocks, count)
        about = [
            *([] if only_measures else _checked(arm, check)),
            *_differs(arm, sampled),
            *about_arm(arm, blocks),
            *warmer(arm, baseline, blocks, config.verdict.metric),
        ]
        met = remembered(arm, blocks, outcome.answered.get(arm.name, frozenset()))
        findings += [*found.findings, *about, *met.values()]
        differ = engine.confounders(facts_of(baseline), facts_of(blocks))
        confounders += differ
        findings += confounded(arm, differ, baseline, blocks)
        judged = override(found.comparison, check) if wanted else found.comparison
        known = [*of_all, *about]
        mine = [*counted, *blocks] if only_measures else counted
        judged = weaken(judged, _concerning(arm, mine, [*known, *met.values()]))
        comparisons.append(
            ArmComparison(
                **judged.model_dump(),
                arm=arm.name,
                categories=tuple(weaken(one, _of_group(one, arm, mine, known, met)) for one in found.categories),
                output_check=check,
                sampled_check=sampled,
                drift=found.drift,
            )
        )
    return comparisons, list(dict.fromkeys(confounders)), findings


def _share(outcome: Outcome, arm: ArmInfo, arms: Sequence[ArmInfo]) -> tuple[float, str]:
    """Return what an arm's error is divided by, and of a search why; each arm of any other trial has an equal share."""
    count = len(candidates_of(arms))
    if outcome.search is None:
        return count, ""
    tried = [one.name for one in outcome.search.tried]
    if arm.name not in tried:
        return count, ""
    number = tried.index(arm.name) + 1
    return divisor(number, outcome.search.candidates), f"setting {number} of a search among {outcome.search.candidates}"


def _looked(outcome: Outcome, arm: ArmInfo) -> tuple[int, int]:
    """Return which look at an arm this is, and of how many: a search may leave one behind any part of its requests."""
    for one in outcome.search.tried if outcome.search is not None else ():
        if one.name == arm.name and one.cut:
            return one.parts, one.of_parts
    return outcome.look, outcome.looks


def _counted(blocks: Sequence[Block], arms: Sequence[ArmInfo]) -> list[Block]:
    """Return the blocks whose remarks count for candidates: what befell a server that only measured changes nothing."""
    checked = checked_arms(arms)
    return [block for block in blocks if block.arm in checked]


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
    group: CategoryComparison,
    arm: ArmInfo,
    blocks: Sequence[Block],
    known: Sequence[Finding],
    met: Mapping[str, Finding],
) -> list[Finding]:
    """Return the findings that concern a group; a category is measured at every point.

    Args:
        group: a category, or a point.
        arm: the variant.
        blocks: whose remarks count.
        known: what was found besides, at whatever point.
        met: what concerns single points, by label.
    """
    if group.kind != "point":
        return _concerning(arm, blocks, [*known, *met.values()])
    here = [met[group.category]] if group.category in met else []
    return _concerning(arm, blocks, [*known, *here], group.category)


def _check(
    outcome: Outcome,
    arm: ArmInfo,
    baseline: Sequence[Block],
    variant: Sequence[Block],
    *,
    wanted: bool,
    only_measures: bool,
) -> OutputCheck:
    if only_measures:
        return OutputCheck(status="unchecked", reason="it only measures, so its output is not checked")
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


def _sampled(baseline: Sequence[Block], variant: Sequence[Block], variants: float) -> SampledCheck:
    ours, theirs = ([row for block in blocks for row in block.rows] for blocks in (baseline, variant))
    return judge_sampled(ours, theirs, arms=variants)


def _differs(arm: ArmInfo, check: SampledCheck | None) -> list[Finding]:
    if check is None or check.status != "diverged":
        return []
    return [find(Code.SAMPLED_DIVERGED, f"{arm.name}: {check.reason}", arm=arm.name)]


_CHECK_CODES = {
    "diverged": Code.OUTPUT_DIVERGED,
    "suspect": Code.OUTPUT_SUSPECT,
    "unchecked": Code.OUTPUT_UNCHECKED,
}


def _checked(arm: ArmInfo, check: OutputCheck) -> list[Finding]:
    code = _CHECK_CODES.get(check.status)
    return [find(code, f"{arm.name}: {check.reason}", arm=arm.name)] if code else []
