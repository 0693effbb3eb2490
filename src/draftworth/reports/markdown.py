"""`report.md`: a trial for people, from its record alone."""

import shlex
from collections.abc import Sequence

from draftworth.reports.words import interval, number, percent
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import Comparison, OutputCheck


def report(record: TrialRecord) -> str:
    """Return a trial's report as Markdown."""
    parts = [_head(record)]
    if record.error:
        parts.append(_error(record))
    parts += map(_comparison, record.comparisons)
    parts.append(_arms(record.arms))
    parts += [_acceptance(arm) for arm in record.arms if arm.acceptance and arm.acceptance.drafted]
    parts.append(_findings(record))
    parts.append(_log_warnings(record.arms))
    parts.append(_conditions(record))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(record: TrialRecord) -> str:
    about = f" ({record.best})" if record.best else ""
    restored = f"restored: {record.restore}" if record.restored else f"**NOT RESTORED**: {record.restore}"
    lines = [
        f"# Trial {record.id}: {record.verdict}{about}",
        "",
        f"{record.reason[:1].upper()}{record.reason[1:]}.".replace("..", "."),
        "",
        f"Service {restored}.",
    ]
    if record.restore_commands:
        lines += ["", "Restore it by hand with:", "", "```sh", *record.restore_commands, "```"]
    return "\n".join(lines)


def _error(record: TrialRecord) -> str:
    lines = ["## Why it could not be measured", "", str(record.error)]
    if record.error_tail:
        lines += ["", "The server's last lines:", "", "```text", *record.error_tail, "```"]
    return "\n".join(lines)


def _comparison(found: ArmComparison) -> str:
    lines = [
        f"## {found.arm} against the baseline: {found.verdict}",
        "",
        "| prompts | baseline TPOT ms | variant TPOT ms | ratio (interval) | verdict |",
        "|---|---|---|---|---|",
        _row("all", found),
        *(_row(category.category, category) for category in found.categories),
        "",
    ]
    if found.shift_ms is not None:
        lines.append(f"Shift of TPOT (Hodges-Lehmann): {interval(found.shift_ms, ' ms')}.")
    if found.ttft_ratio is not None:
        lines.append(f"TTFT ratio: {interval(found.ttft_ratio)}.")
    if found.drift is not None:
        lines.append(f"Drift: the baseline's second TPOT over its first is {interval(found.drift)}.")
    if found.tpot_ratio is not None and found.tpot_ratio.method:
        lines.append(f"Method: {found.tpot_ratio.method}.")
    if found.output_check is not None:
        lines += ["", _output(found.output_check)]
    return "\n".join(lines)


def _row(name: str, found: Comparison) -> str:
    return (
        f"| {name} ({found.pairs}) | {number(found.baseline_tpot_ms)} | {number(found.variant_tpot_ms)} | "
        f"{interval(found.tpot_ratio)} | {found.verdict} |"
    )


def _output(check: OutputCheck) -> str:
    text = f"Output check: **{check.status}**. {check.reason[:1].upper()}{check.reason[1:]}"
    text = text.rstrip(".") + "."
    if check.compared_outputs:
        text += (
            f" Token for token the same: {check.identical_outputs} of {check.compared_outputs} "
            "(reported, not judged: near ties flip under any change of batch shape)."
        )
    return text


def _arms(arms: Sequence[ArmRecord]) -> str:
    lines = [
        "## Arms",
        "",
        "| arm | engine | starts (s to first token) | answered | failed | tokens | TPOT ms | TTFT ms (median) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        starts = ", ".join("ran already" if s.seconds is None else f"{s.seconds:.0f}" for s in arm.starts) or "none"
        version = f"{arm.engine} {arm.version or '(version unknown)'}" + (
            f", runner {arm.runner}" if arm.runner else ""
        )
        lines.append(
            f"| {arm.name} | {version} | {starts} | {arm.requests} | {arm.failed} | "
            f"{'not known' if arm.tokens is None else arm.tokens} | {number(arm.tpot_ms)} | {number(arm.ttft_ms)} |"
        )
    for arm in arms:
        lines += ["", f"{arm.name}:", "", "```sh", shlex.join(arm.command), "```"]
    return "\n".join(lines)


def _acceptance(arm: ArmRecord) -> str:
    counts = arm.acceptance
    assert counts is not None
    drafting = (
        f"{_count(counts.drafting_steps)} of {_count(counts.steps)} steps drafted "
        f"(coverage {percent(counts.coverage)}); {_count(counts.accepted)} of {_count(counts.drafted)} drafted tokens "
        f"were accepted ({percent(counts.acceptance_rate)})."
    )
    length = (
        f"Acceptance length {number(counts.length_per_drafting_step)} per drafting step, "
        f"{number(counts.length_per_step)} per step (the speed depends on the second)."
    )
    lines = [f"## What {arm.name} drafted", "", drafting, length]
    if counts.survival:
        survival = ", ".join(f"{index + 1}: {percent(share)}" for index, share in enumerate(counts.survival))
        lines.append(f"Survival by position: {survival}.")
    lines.append(f"Source: {counts.source}.")
    return "\n".join(lines)


def _count(value: int | None) -> str:
    return "an unknown number" if value is None else f"{value:,}"


def _findings(record: TrialRecord) -> str:
    lines = ["## Findings", ""]
    if not record.findings and not record.confounders:
        return "## Findings\n\nNone."
    lines += [f"- **{one.severity}** ({one.code}): {one.message}. {_sentence(one.advice)}" for one in record.findings]
    if record.confounders:
        lines += [
            "",
            "Differences beyond the declared one:",
            "",
            "| what | baseline | variant | note |",
            "|---|---|---|---|",
        ]
        lines += [f"| {c.name} | `{_cell(c.baseline)}` | `{_cell(c.variant)}` | {c.note} |" for c in record.confounders]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _cell(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - a table's cell
    return short.replace("|", "\\|").replace("`", "'") or " "


def _log_warnings(arms: Sequence[ArmRecord]) -> str:
    seen: dict[tuple[str, str, str], list[str]] = {}
    for arm in arms:
        for warning in arm.warnings:
            seen.setdefault((warning.code, warning.line, warning.advice), []).append(arm.name)
    if not seen:
        return ""
    lines = ["## What the servers' logs say", ""]
    lines += [
        f"- {code} ({', '.join(names)}): {line.rstrip('.')}. {_sentence(advice.rstrip('.'))}"
        for (code, line, advice), names in seen.items()
    ]
    return "\n".join(lines)


def _conditions(record: TrialRecord) -> str:
    work = record.config.get("workload", {})
    machine = ", ".join(f"{name} {value}" for name, value in record.machine.items())
    sampling = (
        f"up to {work.get('max_tokens')} tokens, temperature {work.get('temperature')}, seed {work.get('seed')}, "
        f"{work.get('concurrency')} at a time, {work.get('repeats')} repeats"
    )
    took = (
        f"Draftworth {record.draftworth} itself took {number(record.overhead_seconds)} s of {number(record.seconds)} s"
    )
    return "\n".join(
        [
            "## Conditions",
            "",
            f"- Workload: {work.get('source')}; {sampling}.",
            f"- Machine: {machine}.",
            f"- From {record.created} to {record.finished}; {took}.",
            "- docs/numbers.md of Draftworth defines each number; raw rows are in requests.parquet beside this.",
        ]
    )
