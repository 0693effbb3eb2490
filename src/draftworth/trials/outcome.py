"""From what a run left to its record: pure, so that the same blocks always give the same record."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import draftworth
from draftworth import redact
from draftworth.bench.base import RequestRow, median
from draftworth.bench.clocks import held_down, other_than
from draftworth.bench.requests import sweep_of
from draftworth.bench.summary import PointSummary, summarise
from draftworth.engines.base import AcceptanceCounts, Confounder, Engine, LogWarning, derived, sum_counts
from draftworth.engines.counts import figures
from draftworth.errors import DraftworthError, ServerError
from draftworth.findings import Code, Finding, find
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import CommonConfig
from draftworth.trials.judge import candidates_of, judge_all, limits_of
from draftworth.trials.record import ArmComparison, ArmRecord, StartRecord, TrialRecord
from draftworth.trials.remarks import ArmInfo, cache_share, facts_of
from draftworth.trials.search_best import with_best
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.rules import HIGHER_IS_BETTER

if TYPE_CHECKING:
    from draftworth.bench.points import Point


def make_record(
    outcome: Outcome,
    arms: Sequence[ArmInfo],
    config: CommonConfig,
    engine: Engine,
    *,
    shown_config: dict[str, Any],
    trial: str,
    began_unix: float,
    seconds: float,
    machine: dict[str, Any],
) -> TrialRecord:
    """Return the record of a run.

    Args:
        outcome: what the run left.
        arms: the arms as asked for, the baseline first.
        config: the trial's file.
        engine: compares effective configurations.
        shown_config: the file as it is shown, secrets hidden.
        trial: its id.
        began_unix: when it began.
        seconds: how long it took.
        machine: what it ran on.
    """
    findings = [*outcome.findings, *(finding for block in outcome.blocks for finding in block.remarks)]
    findings += _clocks(outcome.blocks)
    every = arms
    if outcome.search is not None:
        arms = _without_untried(arms, outcome)
    records = tuple(
        _arm(
            arm,
            [block for block in outcome.blocks if block.arm == arm.name],
            config,
            given_up=arm.name in outcome.given_up,
        )
        for arm in arms
    )
    confounders: list[Confounder] = []
    comparisons: list[ArmComparison] = []
    error = outcome.error
    whole = error is None and outcome.crash is None
    if whole or outcome.complete:
        # Of a trial that was cut short, what was complete at its last look.
        judged = outcome if whole else replace(outcome, blocks=outcome.blocks[: outcome.complete])
        comparisons, confounders, more = judge_all(judged, arms, config, engine)
        findings += more
        cut = any(one.code is Code.ROUNDS_LEFT_OUT for one in outcome.findings)
        if whole and outcome.look < outcome.looks and not cut:
            message = f"the evidence was enough at look {outcome.look} of {outcome.looks}"
            findings.append(find(Code.ENDED_EARLY, message))
    candidates = {arm.name for arm in candidates_of(arms)}
    search = outcome.search
    if search is not None:
        candidates = {one.name for one in search.tried}
        search = with_best(
            search,
            comparisons,
            outcome.earlier,
            arms=every,
            sweep=sweep_of(config.workload),
            engine=engine,
            checked=config.verdict.output_check,
        )
    best = _best([one for one in comparisons if one.arm in candidates])
    before = f"; look {outcome.look} of {outcome.looks} before it: {best.verdict}: {best.reason}" if best else ""
    restored = outcome.restored
    verdict = best.verdict if best and whole else Verdict.ERROR
    ended = redact.text(str(error or outcome.crash)) if (error or outcome.crash) else None
    reason = best.reason if best and whole else f"not measured{' to the end' * bool(best)}: {ended}{before}"
    if search is not None and whole:
        if search.winner is not None and search.winner.trial is not None:
            trial_of, best = outcome.earlier[search.winner.arm]
            verdict, reason = best.verdict, f"{best.reason} (measured in trial {trial_of})"
        elif best is None:
            verdict, reason = Verdict.INCONCLUSIVE, f"no setting was measured: {search.ended}"
    return TrialRecord(
        id=trial,
        draftworth=draftworth.__version__,
        created=iso(began_unix),
        finished=iso(began_unix + seconds),
        seconds=round(seconds, 3),
        overhead_seconds=round(max(seconds - outcome.waited_s, 0.0), 3),
        machine=machine,
        config=shown_config,
        verdict=verdict,
        reason=reason,
        best=best.arm if best else None,
        look=outcome.look,
        looks=outcome.looks,
        restored=restored is not None,
        restore=redact.text(restored.how if restored else str(outcome.restore_error)),
        restore_commands=outcome.restore_error.commands if outcome.restore_error else (),
        comparison=best,
        categories=best.categories if best else (),
        comparisons=tuple(comparisons),
        arms=records,
        confounders=tuple(dict.fromkeys(map(_shown, confounders))),
        findings=tuple(dict.fromkeys(one.model_copy(update={"message": redact.text(one.message)}) for one in findings)),
        error=ended,
        error_tail=_tail(error),
        search=search,
        earlier=tuple(one for _, one in outcome.earlier.values()),
    )


def _without_untried(arms: Sequence[ArmInfo], outcome: Outcome) -> tuple[ArmInfo, ...]:
    """Return the arms without the settings that this search has not started: `search` has them."""
    assert outcome.search is not None, "called for searches"
    search = outcome.search
    left = {one.name for one in search.not_tried} | {one.name for one in search.tried if one.trial is not None}
    left -= {block.arm for block in outcome.blocks}
    return tuple(arm for arm in arms if arm.name not in left)


def iso(unix: float) -> str:
    """Return a moment as ISO 8601, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))


def _tail(error: DraftworthError | None) -> tuple[str, ...]:
    return tuple(map(redact.text, error.tail)) if isinstance(error, ServerError) else ()


def _shown(one: Confounder) -> Confounder:
    """Return a confounder without secrets: its texts may be lines of a log."""
    return one.model_copy(update={"baseline": redact.text(one.baseline), "variant": redact.text(one.variant)})


_RANK = (Verdict.FASTER, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.SLOWER, Verdict.ERROR)


def _best(comparisons: Sequence[ArmComparison]) -> ArmComparison | None:
    """Return the variant the verdict is about: the one with the best verdict, of several the one that gains most."""

    def order(one: ArmComparison) -> tuple[int, float]:
        if one.ratio is None:
            return _RANK.index(one.verdict), float("inf")
        better_high = one.metric in HIGHER_IS_BETTER
        return _RANK.index(one.verdict), -one.ratio.estimate if better_high else one.ratio.estimate

    return min(comparisons, key=order, default=None)


def _clocks(blocks: Sequence[Block]) -> list[Finding]:
    """Return where the machine throttled, or ran at other clocks than when the first block was measured."""
    found = []
    first = next((block.clocks for block in blocks if block.clocks is not None), None)
    for block in blocks:
        why = held_down(block.clocks) or other_than(first, block.clocks)
        if why:
            found.append(find(Code.CLOCKS_CHANGED, f"{block.arm}, block {block.number}: {why}", arm=block.arm))
    return found


def _arm(arm: ArmInfo, blocks: Sequence[Block], config: CommonConfig, *, given_up: bool) -> ArmRecord:
    rows = [row for block in blocks for row in block.rows]
    answered = [row for row in rows if row.ok]
    timed = [row for row in answered if row.timed]
    facts = facts_of(blocks)
    counts = sum_counts([block.counts for block in blocks])
    warnings: dict[tuple[str, str], LogWarning] = {}
    for block in blocks:
        for warning in block.facts.warnings:
            shown = warning.model_copy(update={"line": redact.text(warning.line)})
            warnings.setdefault((shown.code, shown.line), shown)
    return ArmRecord(
        name=arm.name,
        engine=arm.engine,
        version=facts.version,
        runner=facts.runner,
        device=facts.device or arm.device,
        command=arm.command,
        declared=dict(arm.declared),
        starts=tuple(
            StartRecord(
                block=b.number,
                start=b.start,
                seconds=None if b.start_seconds is None else round(b.start_seconds, 3),
                log=b.log,
                rows=len(b.rows),
            )
            for b in blocks
        ),
        given_up=given_up,
        requests=len(answered),
        failed=len(rows) - len(answered),
        retried=len(answered) - len(timed),
        tokens=sum(row.tokens or 0 for row in answered) if answered else None,
        tpot_ms=pooled_tpot(timed),
        ttft_ms=median([row.ttft_ms for row in timed if row.ttft_ms is not None]),
        cache_share=cache_share(blocks),
        points=_points(blocks, config),
        acceptance=counts or (AcceptanceCounts(source="none", not_given=_not_measured()) if blocks else None),
        derived=derived(counts),
        figures=() if counts is None else figures(counts),
        per_request=sum_counts([block.per_request for block in blocks]),
        warnings=tuple(warnings.values()),
    )


def _points(blocks: Sequence[Block], config: CommonConfig) -> tuple[PointSummary, ...]:
    """Return the figures of each point, all blocks of an arm together; nothing where there is one point."""
    by_label: dict[str, tuple[Point, list[RequestRow]]] = {}
    for block in blocks:
        for window in block.windows:
            by_label.setdefault(window.point.label, (window.point, []))[1].extend(window.rows)
    if len(by_label) < 2:  # noqa: PLR2004 - the arm's own figures say it
        return ()
    limits = limits_of(config)
    # Blocks lie apart in time, so rates over all of them mean nothing.
    unknown = dict.fromkeys(("throughput", "request_rate", "in_flight", "goodput", "seconds"))
    return tuple(
        summarise(point, rows, limits=limits)[0].model_copy(update=unknown) for point, rows in by_label.values()
    )


def _not_measured() -> dict[str, str]:
    why = "the server's counters could not be read, see the findings"
    return dict.fromkeys(("steps", "drafting_steps", "drafted", "accepted", "accepted_per_position", "emitted"), why)


def pooled_tpot(rows: Sequence[RequestRow]) -> float | None:
    """Return decode time over decoded tokens of all rows together, in milliseconds."""
    used = [row for row in rows if row.tpot_ms is not None and row.decode_ms is not None]
    tokens = sum((row.tokens or 0) - (row.first_chunk_tokens or 0) for row in used)
    return sum(row.decode_ms or 0.0 for row in used) / tokens if tokens else None
