"""`report.md`: a trial for people, from its record and its account where it has one. Older records render too."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.engines.base import AcceptanceCounts
from draftworth.reports.plots import TRIAL_PLOT, has_trial_plot
from draftworth.reports.search import search_markdown
from draftworth.reports.words import (
    METRICS,
    better,
    cell,
    ended,
    interval,
    judged,
    machine,
    mean,
    number,
    percent,
    sentence,
    share,
    workload,
)
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord, write_text
from draftworth.verdicts.base import CategoryComparison, Comparison, OutputCheck

if TYPE_CHECKING:
    from draftworth.explain.base import Account, Explained


NAME = "report.md"


def write_report(folder: Path, record: TrialRecord, explained: "Explained | None") -> Path:
    """Write a trial's `report.md` with its cause and the next step. Returns its path.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / NAME
    write_text(path, report(record, explained, answer=True))
    return path


def report(record: TrialRecord, explained: "Explained | None" = None, *, answer: bool = False) -> str:
    """Return a trial's report as Markdown.

    Args:
        record: the trial.
        explained: its account; None where there is none.
        answer: whether it says why the verdict is what it is and what to do now, as the page does; without, it is made
            of the record alone.
    """
    parts = [_head(record), _answer(record, explained) if answer else ""]
    if record.error:
        parts.append(_error(record))
    parts.append(search_markdown(record))
    parts += [_comparison(found, record) for found in record.comparisons]
    if has_trial_plot(record):
        parts.append(f"## By load\n\n![TPOT and TTFT of each arm by load]({TRIAL_PLOT})")
    parts.append(_arms(record))
    parts.append(_points(record.arms))
    parts += [_acceptance(arm) for arm in record.arms if arm.acceptance and arm.acceptance.speculated]
    parts.append(_findings(record))
    parts.append(_log_warnings(record.arms))
    parts.append(_conditions(record))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(record: TrialRecord) -> str:
    about = f" ({record.best})" if record.best else ""
    lines = [f"# Trial {record.id}: {record.verdict}{about}", "", sentence(record.reason), "", service_left(record)]
    ended = looks(record)
    if ended:
        lines += ["", ended]
    if record.restore_commands:
        lines += ["", "Restore it by hand with:", "", "```sh", *record.restore_commands, "```"]
    return "\n".join(lines)


def _answer(record: TrialRecord, explained: "Explained | None") -> str:
    """Return the cause of the verdict and what to do now, as the page's first screen has them."""
    from draftworth.explain.inputs import made_with  # noqa: PLC0415 - lazy
    from draftworth.reports.trial.base import Subject  # noqa: PLC0415 - it reads words from here
    from draftworth.reports.trial.head import best_account, cause_of  # noqa: PLC0415
    from draftworth.reports.trial.next import next_text  # noqa: PLC0415

    if not record.arms:
        return ""
    subject = Subject(record, explained)
    lines = ["## Why", "", cause_of(subject)]
    account = best_account(subject)
    if account is not None:
        lines += ["", *_account(account)]
    if explained is not None and explained.inputs is not None:
        lines += ["", made_with(explained.inputs)]
    return "\n".join([*lines, "", "## Next", "", next_text(subject)])


def _account(account: "Account") -> list[str]:
    """Return where the milliseconds went, as a table."""
    where = account.point or f"{account.concurrency} at a time"
    lines = [
        f"| ms a token, {where} | | 95 % interval |",
        "|---|---|---|",
        f"| baseline | {account.baseline_ms:.2f} | |",
    ]
    for part in account.parts:
        name = "not known" if part.cause == "rest" else part.cause
        lines.append(f"| {name} | {part.ms.value:+.2f} | {part.ms.low:+.2f} to {part.ms.high:+.2f} |")
    return [*lines, f"| {account.arm} | {account.arm_ms:.2f} | |"]


def on_endpoints(record: TrialRecord) -> bool:
    """Whether the trial was between servers that run already."""
    service = record.config.get("service")
    return isinstance(service, dict) and service.get("type") == "endpoints"


def service_left(record: TrialRecord) -> str:
    """Return how the service, or the servers, were left, as a sentence."""
    if not record.restored:
        return f"Service **NOT RESTORED**: {sentence(record.restore)}"
    return sentence(record.restore) if on_endpoints(record) else f"Service restored: {record.restore}."


def looks(record: TrialRecord) -> str:
    """Return at which look at the evidence a trial ended; nothing where only one was planned."""
    if record.looks < 2 or record.error is not None:  # noqa: PLR2004 - one look is the end
        return ""
    early = ": the evidence was enough" if record.look < record.looks else ", the last"
    return f"Ended at look {record.look} of {record.looks}{early}. The error rate is shared by all looks."


def _error(record: TrialRecord) -> str:
    lines = ["## Why it could not be measured", "", str(record.error)]
    if record.error_tail:
        lines += ["", "The server's last lines:", "", "```text", *record.error_tail, "```"]
    return "\n".join(lines)


def _comparison(found: ArmComparison, record: TrialRecord) -> str:
    lines = [
        f"## {found.arm} against the baseline: {found.verdict}",
        "",
        *_ratios(found, record),
        *_groups(found, [one for one in found.categories if one.kind == "category"], "prompts"),
        *_groups(found, [one for one in found.categories if one.kind != "category"], "load"),
        "",
    ]
    if found.shift_ms is not None:
        lines.append(f"Shift of TPOT (Hodges-Lehmann): {interval(found.shift_ms, ' ms')}.")
    if found.drift is not None:
        lines.append(f"Drift: the baseline's second TPOT over its first is {interval(found.drift)}.")
    ratio = judged(found)
    if ratio is not None and ratio.method:
        lines.append(f"Method: {ratio.method}.")
    if found.output_check is not None:
        lines += ["", _output(found.output_check)]
    if found.sampled_check is not None:
        reason = found.sampled_check.reason
        lines += ["", f"Sampled output: **{found.sampled_check.status}**. {reason[:1].upper()}{reason[1:]}."]
    return "\n".join(lines)


def _ratios(found: ArmComparison, record: TrialRecord) -> list[str]:
    """Return a table of every ratio that is known, the judged one first."""
    lines = ["| | baseline | variant | ratio (interval) | a gain is |", "|---|---|---|---|---|"]
    for metric in sorted(METRICS, key=lambda name: name != found.metric):
        ratio = getattr(found, f"{metric}_ratio")
        before, after = _figures(found, metric)
        if metric != found.metric and ratio is None and before is None:
            continue
        name = f"{METRICS[metric]}, {_unit(metric, record)}"
        lines.append(
            f"| {f'**{name}** (judged)' if metric == found.metric else name} | {cell(before)} | {cell(after)} | "
            f"{interval(ratio)} | {better(metric)} |"
        )
    return lines


def _figures(found: Comparison, metric: str) -> tuple[float | None, float | None]:
    suffix = "_ms" if metric in {"tpot", "ttft"} else ""
    return getattr(found, f"baseline_{metric}{suffix}"), getattr(found, f"variant_{metric}{suffix}")


def _unit(metric: str, record: TrialRecord) -> str:
    if metric == "goodput":
        work = record.config.get("workload", {})
        open_loop = work.get("rate") is not None or work.get("replay_speed") is not None
        return "share of requests" if open_loop else "requests a second of request time"
    return "tokens a second of request time" if metric == "throughput" else "ms"


def _groups(found: ArmComparison, some: Sequence[CategoryComparison], name: str) -> list[str]:
    """Return a table of categories or points, after all prompts together."""
    if not some:
        return []
    title = f"{METRICS[found.metric]} {'ms' if found.metric in {'tpot', 'ttft'} else ''}".strip()
    lines = [
        "",
        f"| {name} | pairs | baseline {title} | variant {title} | ratio (interval) | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for label, one in (("all", found), *((_cell(one.category), one) for one in some)):
        before, after = _figures(one, one.metric)
        lines.append(
            f"| {label} | {one.pairs} | {cell(before)} | {cell(after)} | {interval(judged(one))} | {one.verdict} |"
        )
    return lines


def _output(check: OutputCheck) -> str:
    text = f"Output check: **{check.status}**. {check.reason[:1].upper()}{check.reason[1:]}"
    text = text.rstrip(".") + "."
    if check.compared_outputs:
        text += (
            f" Token for token the same: {check.identical_outputs} of {check.compared_outputs} "
            "(reported, not judged: near ties flip under any change of batch shape)."
        )
    return text


def _arms(record: TrialRecord) -> str:
    arms, running = record.arms, on_endpoints(record)
    retried = any(arm.retried for arm in arms)
    cached = any(arm.cache_share is not None for arm in arms)
    heads = ["arm", "engine", "server" if running else "starts (s to first token)", "answered", "failed"]
    heads += ["retried"] * retried + ["tokens", "TPOT ms", "TTFT ms (median)"] + ["in prefix cache"] * cached
    lines = ["## Arms", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for arm in arms:
        version = f"{arm.engine} {arm.version or '(version unknown)'}" + (
            f", runner {arm.runner}" if arm.runner else ""
        )
        cells = [arm.name, version, _url(arm) if running else _starts(arm), f"{arm.requests}", f"{arm.failed}"]
        cells += [f"{arm.retried}"] * retried + ["not known" if arm.tokens is None else f"{arm.tokens}"]
        cells += [number(arm.tpot_ms), number(arm.ttft_ms)] + [share(arm.cache_share)] * cached
        lines.append(f"| {' | '.join(cells)} |")
    for arm in arms:
        if arm.command:
            lines += ["", f"{arm.name}:", "", "```sh", shlex.join(arm.command), "```"]
    return "\n".join(lines)


def _starts(arm: ArmRecord) -> str:
    """Return how long each start took; several blocks may have run on one. Old records do not number starts."""
    numbered = any(one.rows or one.start > 1 for one in arm.starts)
    seconds: dict[int, float | None] = {}
    for one in arm.starts:
        seconds.setdefault(one.start if numbered else one.block, one.seconds)
    return ", ".join("ran already" if one is None else f"{one:.0f}" for one in seconds.values()) or "none"


def _url(arm: ArmRecord) -> str:
    return f"`{_cell(str(arm.declared.get('url') or 'not known'))}`"


def _points(arms: Sequence[ArmRecord]) -> str:
    """Return the figures of each arm at each point, the arms beside each other; nothing where there is one point."""
    labels = dict.fromkeys(point.label for arm in arms for point in arm.points)
    if not labels:
        return ""
    lines = [
        "## Each arm at each load",
        "",
        "| load | arm | sent | failed | TTFT ms p50 | p99 | TPOT ms mean (95 % interval) | p50 | p99 | E2E ms p50 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label in labels:
        for name, point in ((arm.name, point) for arm in arms for point in arm.points if point.label == label):
            tpot = mean(point.tpot_ms.mean, point.tpot_ms.low, point.tpot_ms.high)
            lines.append(
                f"| {_cell(label)} | {name} | {point.requests} | {point.failed} | {cell(point.ttft_ms.p50)} | "
                f"{cell(point.ttft_ms.p99)} | {tpot} | {cell(point.tpot_ms.p50)} | {cell(point.tpot_ms.p99)} | "
                f"{cell(point.e2e_ms.p50)} |"
            )
    return "\n".join(lines)


def _acceptance(arm: ArmRecord) -> str:
    counts = arm.acceptance
    assert counts is not None
    lines = [f"## What {arm.name} drafted", "", *_drafting(counts)]
    if counts.survival:
        survival = ", ".join(f"{index + 1}: {percent(share)}" for index, share in enumerate(counts.survival))
        lines.append(f"Survival by position: {survival}.")
    lines.append(f"Source: {counts.source}.")
    lines += [f"{name.replace('_', ' ')}: {how}." for name, how in counts.meaning.items()]
    answers = arm.per_request
    if answers is not None and counts.drafted is None and answers.speculated:
        lines += ["", *_drafting(answers), f"Source: {answers.source}."]
        lines += [f"{name.replace('_', ' ')}: {how}." for name, how in answers.meaning.items()]
    return "\n".join(lines)


def _drafting(counts: AcceptanceCounts) -> list[str]:
    drafted = f"{_count(counts.drafting_steps)} of {_count(counts.steps)} steps drafted"
    accepted = f"{_count(counts.accepted)} of {_count(counts.drafted)} drafted tokens were accepted"
    length = f"Acceptance length {number(counts.length_per_drafting_step)} per drafting step"
    return [
        f"{drafted} (coverage {percent(counts.coverage)}); {accepted} ({percent(counts.acceptance_rate)}).",
        f"{length}, {number(counts.length_per_step)} per step (the speed depends on the second).",
    ]


def _count(value: int | None) -> str:
    return "an unknown number" if value is None else f"{value:,}"


def _findings(record: TrialRecord) -> str:
    lines = ["## Findings", ""]
    if not record.findings and not record.confounders:
        return "## Findings\n\nNone."
    lines += [
        f"- **{one.severity}** ({one.code}): {ended(one.message)} {sentence(one.advice)}" for one in record.findings
    ]
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
        f"- {code} ({', '.join(names)}): {ended(line)} {sentence(advice)}"
        for (code, line, advice), names in seen.items()
    ]
    return "\n".join(lines)


def _conditions(record: TrialRecord) -> str:
    work = record.config.get("workload", {})
    took = (
        f"Draftworth {record.draftworth} itself took {number(record.overhead_seconds)} s of {number(record.seconds)} s"
    )
    return "\n".join(
        [
            "## Conditions",
            "",
            f"- Workload: {workload(work)}.",
            f"- Machine: {machine(record.machine)}.",
            f"- From {record.created} to {record.finished}; {took}.",
            "- docs/numbers.md of Draftworth defines each number; raw rows are in requests.parquet beside this.",
        ]
    )
