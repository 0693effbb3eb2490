"""From what a run left to its record: pure, so that the same blocks always give the same record."""

import time
from collections.abc import Sequence
from typing import Any

import draftworth
from draftworth import redact
from draftworth.bench.base import RequestRow, median
from draftworth.engines.base import AcceptanceCounts, Confounder, Engine, LogWarning, StartupFacts
from draftworth.errors import DraftworthError, ServerError
from draftworth.findings import Code, Finding, find
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import BASELINE, ArmConfig, TrialConfig
from draftworth.trials.plan import Plan
from draftworth.trials.record import ArmComparison, ArmRecord, StartRecord, TrialRecord
from draftworth.verdicts.base import OutputCheck, Verdict
from draftworth.verdicts.compare import compare, override
from draftworth.verdicts.output_check import judge
from draftworth.verdicts.weaken import weaken


def make_record(
    outcome: Outcome,
    plan: Plan,
    config: TrialConfig,
    engine: Engine,
    *,
    trial: str,
    began_unix: float,
    seconds: float,
    machine: dict[str, Any],
) -> TrialRecord:
    """Return the record of a run."""
    findings = [*outcome.findings, *(finding for block in outcome.blocks for finding in block.findings)]
    arms = tuple(
        _arm(arm, [block for block in outcome.blocks if block.arm == arm.name], plan, engine)
        for arm in (config.baseline, *config.variants)
    )
    confounders: list[Confounder] = []
    comparisons: list[ArmComparison] = []
    error = outcome.error
    if error is None and outcome.crash is None:
        comparisons, confounders, more = _judge(outcome, config, engine)
        findings += more
    best = _best(comparisons)
    restored = outcome.restored
    verdict = best.verdict if best else Verdict.ERROR
    ended = redact.text(str(error or outcome.crash)) if (error or outcome.crash) else None
    reason = best.reason if best else f"not measured: {ended}"
    return TrialRecord(
        id=trial,
        draftworth=draftworth.__version__,
        created=_iso(began_unix),
        finished=_iso(began_unix + seconds),
        seconds=round(seconds, 3),
        overhead_seconds=round(max(seconds - outcome.waited_s, 0.0), 3),
        machine=machine,
        config=redact.config(config),
        verdict=verdict,
        reason=reason,
        best=best.arm if best else None,
        restored=restored is not None,
        restore=redact.text(restored.how if restored else str(outcome.restore_error)),
        restore_commands=outcome.restore_error.commands if outcome.restore_error else (),
        comparison=best,
        categories=best.categories if best else (),
        comparisons=tuple(comparisons),
        arms=arms,
        confounders=tuple(dict.fromkeys(map(_shown, confounders))),
        findings=tuple(dict.fromkeys(one.model_copy(update={"message": redact.text(one.message)}) for one in findings)),
        error=ended,
        error_tail=_tail(error),
    )


def _iso(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))


def _tail(error: DraftworthError | None) -> tuple[str, ...]:
    return tuple(map(redact.text, error.tail)) if isinstance(error, ServerError) else ()


def _shown(one: Confounder) -> Confounder:
    """Return a confounder without secrets: its texts may be lines of a log."""
    return one.model_copy(update={"baseline": redact.text(one.baseline), "variant": redact.text(one.variant)})


_RANK = (Verdict.FASTER, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.SLOWER, Verdict.ERROR)


def _best(comparisons: Sequence[ArmComparison]) -> ArmComparison | None:
    """Return the variant the verdict is about: the one with the best verdict, of several the fastest."""

    def order(one: ArmComparison) -> tuple[int, float]:
        return _RANK.index(one.verdict), one.tpot_ratio.estimate if one.tpot_ratio else float("inf")

    return min(comparisons, key=order, default=None)


def _judge(
    outcome: Outcome, config: TrialConfig, engine: Engine
) -> tuple[list[ArmComparison], list[Confounder], list[Finding]]:
    """Compare every variant with the baseline."""
    baseline = [block for block in outcome.blocks if block.arm == BASELINE]
    comparisons: list[ArmComparison] = []
    confounders: list[Confounder] = []
    findings: list[Finding] = []
    if any(_drafted(block) for block in baseline):
        findings.append(find(Code.BASELINE_SPECULATES, "the baseline's server drafted tokens", arm=BASELINE))
    of_all = [*findings, *outcome.findings, *(one for block in outcome.blocks for one in block.findings)]
    for arm in config.variants:
        blocks = [block for block in outcome.blocks if block.arm == arm.name]
        speculates = arm.speculative_config is not None
        rules = config.verdict
        found = compare(
            [block.rows for block in baseline],
            [block.rows for block in blocks],
            margin=rules.margin,
            confidence=rules.confidence,
            variants=len(config.variants),
            prior_baseline=rules.restart_sd_baseline,
            prior_variant=rules.restart_sd_variant if speculates else rules.restart_sd_baseline,
        )
        check = _check(outcome, arm, baseline, blocks, wanted=rules.output_check)
        about = _about(arm, check, blocks)
        findings += [*found.findings, *about]
        differ = engine.confounders(_facts(baseline), _facts(blocks))
        confounders += differ
        findings += _confounded(arm, differ, baseline, blocks)
        judged = override(found.comparison, check) if rules.output_check else found.comparison
        judged = weaken(judged, [*of_all, *about])
        comparisons.append(
            ArmComparison(
                **judged.model_dump(),
                arm=arm.name,
                categories=tuple(weaken(one, [*of_all, *about]) for one in found.categories),
                output_check=check,
                drift=found.drift,
            )
        )
    return comparisons, list(dict.fromkeys(confounders)), findings


def _check(
    outcome: Outcome, arm: ArmConfig, baseline: Sequence[Block], variant: Sequence[Block], *, wanted: bool
) -> OutputCheck:
    if not wanted:
        return OutputCheck(status="unchecked", reason="verdict.output_check is off")
    if outcome.scores.refused:
        return OutputCheck(status="unchecked", reason=outcome.scores.refused)
    by_arm = outcome.scores.by_arm
    return judge(
        by_arm.get(BASELINE, []),
        by_arm.get(arm.name, []),
        baseline[0].check_rows if baseline else [],
        variant[0].check_rows if variant else [],
    )


_CHECK_CODES = {
    "diverged": Code.OUTPUT_DIVERGED,
    "suspect": Code.OUTPUT_SUSPECT,
    "unchecked": Code.OUTPUT_UNCHECKED,
}


def _about(arm: ArmConfig, check: OutputCheck, blocks: Sequence[Block]) -> list[Finding]:
    """Remarks on one variant."""
    findings = []
    if check.status in _CHECK_CODES:
        findings.append(find(_CHECK_CODES[check.status], f"{arm.name}: {check.reason}", arm=arm.name))
    if arm.speculative_config is None:
        return findings
    counts = sum_counts([block.counts for block in blocks])
    facts = _facts(blocks)
    if facts.speculating is False:
        message = f"{arm.name}: the engine's own configuration line says speculative_config=None"
        findings.append(find(Code.SPECULATION_OFF, message, arm=arm.name))
    elif counts is not None and counts.drafted == 0:
        findings.append(find(Code.NOTHING_DRAFTED, f"{arm.name}: 0 tokens drafted", arm=arm.name))
    elif counts is not None and counts.drafted is None:
        why = counts.not_given.get("drafted", "the server does not export it")
        findings.append(find(Code.METRICS_MISSING, f"{arm.name}: drafted tokens not known: {why}", arm=arm.name))
    return findings


def _confounded(
    arm: ArmConfig, differ: Sequence[Confounder], baseline: Sequence[Block], blocks: Sequence[Block]
) -> list[Finding]:
    unknown = [name for name, some in ((BASELINE, baseline), (arm.name, blocks)) if not _facts(some).config]
    if unknown:
        message = f"the effective configuration of {' and '.join(unknown)} is in no log, so it was not compared"
        return [find(Code.CONFOUNDED, message, arm=arm.name)]
    if not differ:
        return []
    names = ", ".join(dict.fromkeys(one.name for one in differ))
    return [find(Code.CONFOUNDED, f"{arm.name} differs from the baseline in {names}", arm=arm.name)]


def _drafted(block: Block) -> bool:
    return bool(block.counts and block.counts.drafted)


def _facts(blocks: Sequence[Block]) -> StartupFacts:
    """Return the facts of the latest start that told its configuration."""
    told = [block.facts for block in blocks if block.facts.config]
    return told[-1] if told else blocks[-1].facts if blocks else StartupFacts()


def _arm(arm: ArmConfig, blocks: Sequence[Block], plan: Plan, engine: Engine) -> ArmRecord:
    rows = [row for block in blocks for row in block.rows]
    answered = [row for row in rows if row.ok]
    facts = _facts(blocks)
    counts = sum_counts([block.counts for block in blocks])
    warnings: dict[tuple[str, str], LogWarning] = {}
    for block in blocks:
        for warning in block.facts.warnings:
            shown = warning.model_copy(update={"line": redact.text(warning.line)})
            warnings.setdefault((shown.code, shown.line), shown)
    return ArmRecord(
        name=arm.name,
        engine=engine.name,
        version=facts.version,
        runner=facts.runner,
        command=redact.command(plan.commands[arm.name]),
        declared={
            "speculative_config": arm.speculative_config,
            "args": list(redact.command(arm.args)),
            "env": redact.environment(arm.env),
        },
        starts=tuple(
            StartRecord(
                block=b.number, seconds=None if b.start_seconds is None else round(b.start_seconds, 3), log=b.log
            )
            for b in blocks
        ),
        requests=len(answered),
        failed=len(rows) - len(answered),
        tokens=sum(row.tokens or 0 for row in answered) if answered else None,
        tpot_ms=pooled_tpot(answered),
        ttft_ms=median([row.ttft_ms for row in answered if row.ttft_ms is not None]),
        acceptance=counts or (AcceptanceCounts(source="none", not_given=_not_measured()) if blocks else None),
        derived=derived(counts),
        per_request=sum_counts([block.per_request for block in blocks]),
        warnings=tuple(warnings.values()),
    )


def _not_measured() -> dict[str, str]:
    why = "the server's counters could not be read, see the findings"
    return dict.fromkeys(("steps", "drafting_steps", "drafted", "accepted", "accepted_per_position", "emitted"), why)


def derived(counts: AcceptanceCounts | None) -> dict[str, float | None]:
    """Return the rates of an arm by their names in docs/numbers.md."""
    if counts is None:
        return {}
    return {
        "coverage": counts.coverage,
        "acceptance_rate": counts.acceptance_rate,
        "length_per_drafting_step": counts.length_per_drafting_step,
        "length_per_step": counts.length_per_step,
    }


def pooled_tpot(rows: Sequence[RequestRow]) -> float | None:
    """Return decode time over decoded tokens of all rows together, in milliseconds."""
    used = [row for row in rows if row.tpot_ms is not None and row.decode_ms is not None]
    tokens = sum((row.tokens or 0) - (row.first_chunk_tokens or 0) for row in used)
    return sum(row.decode_ms or 0.0 for row in used) / tokens if tokens else None


def sum_counts(counts: Sequence[AcceptanceCounts | None]) -> AcceptanceCounts | None:
    """Return the counts of several windows added; a field that one window lacks is lacking in the sum."""
    known = [one for one in counts if one is not None]
    if not known or len(known) < len(counts):
        return None
    total: dict[str, Any] = {}
    for name in ("steps", "drafting_steps", "drafted", "accepted", "emitted"):
        values = [getattr(one, name) for one in known]
        total[name] = None if None in values else sum(values)
    positions = [one.accepted_per_position for one in known]
    if all(position is not None for position in positions):
        width = max(len(position or ()) for position in positions)
        padded = [(*(position or ()), *([0] * (width - len(position or ())))) for position in positions]
        total["accepted_per_position"] = tuple(sum(column) for column in zip(*padded, strict=True))
    not_given = {name: why for one in known for name, why in one.not_given.items()}
    source = known[0].source if len(known) == 1 else f"{known[0].source}, {len(known)} windows added"
    return AcceptanceCounts(**total, source=source, not_given=not_given)
