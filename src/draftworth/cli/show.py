"""A trial's record as lines for a terminal."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from draftworth.bench.summary import PointSummary
from draftworth.errors import EXIT_REFUSED, DraftworthError, UsageError
from draftworth.reports.markdown import looks, on_endpoints
from draftworth.reports.search import search_lines
from draftworth.reports.words import METRICS, cell, gain, interval, judged, mean, number, percent, share
from draftworth.trials.home import all_trials
from draftworth.trials.record import ArmRecord, TrialRecord, read
from draftworth.trials.recover import needs_restore, unfinished


def verdict_lines(record: TrialRecord) -> list[str]:
    """Return the verdict, what it rests on, and how the service was left."""
    about = f" ({record.best})" if record.best else ""
    lines = [f"Verdict: {record.verdict}{about}"]
    ratio = judged(record.comparison) if record.comparison is not None else None
    if record.comparison is not None and ratio is not None and not record.error:
        lines.append(f"  {gain(ratio.estimate, record.comparison.metric)}")
    lines.append(f"  {record.reason}")
    if looks(record):
        lines.append(f"  {looks(record)}")
    lines += search_lines(record)
    if record.error_tail:
        lines += ["  The server's last lines:", *(f"    {line}" for line in record.error_tail)]
    for one in record.comparisons:
        if len(record.comparisons) > 1:
            lines.append(f"  {one.arm}: {one.verdict}, {METRICS[one.metric]} ratio {interval(judged(one))}")
        width = max((len(part.category) for part in one.categories), default=0)
        lines += [
            f"  {part.category:<{max(12, width)}} {METRICS[part.metric]} ratio {interval(judged(part))}: {part.verdict}"
            for part in one.categories
        ]
        checks = {"output check": one.output_check, "sampled output": one.sampled_check}
        lines += [f"  {name}: {check.status}; {check.reason}" for name, check in checks.items() if check is not None]
    for arm in record.arms:
        counts = arm.acceptance
        if counts is not None and counts.speculated:
            lines.append(
                f"  {arm.name}: drafted in {percent(counts.coverage)} of steps, accepted "
                f"{percent(counts.acceptance_rate)} of drafted tokens, {number(counts.length_per_step)} tokens a step"
            )
    lines += [f"  {one.severity}: {one.message}" for one in record.findings if one.severity != "info"]
    lines.append(_left(record))
    if record.restore_commands:
        lines += ["Restore it by hand with:", *(f"  {command}" for command in record.restore_commands)]
    return lines


def kept_lines(record: TrialRecord, folder: Path, program: str) -> list[str]:
    """Return the cause of a verdict, as far as it was explained, and where everything is kept."""
    from draftworth.explain.kept import load  # noqa: PLC0415 - lazy
    from draftworth.trials.explaining import FAILED, PAGE  # noqa: PLC0415 - lazy
    from draftworth.trials.finish import REPORT  # noqa: PLC0415 - lazy

    try:
        explained = load(folder)
    except UsageError as error:
        lines = [f"Cause: not known: {error}"]
    else:
        lines = [f"Cause: {explained.summary}"] if explained is not None and explained.summary else []
    there = [str(folder / name) for name in (PAGE, REPORT) if (folder / name).is_file()]
    lines += [f"Report: {' and '.join(there)}"] if there else []
    if (folder / FAILED).is_file():
        lines.append(f"Not all of it could be explained or drawn: {folder / FAILED}")
    return [*lines, f"Record: {program} trial show {record.id} --json"]


def _left(record: TrialRecord) -> str:
    if on_endpoints(record) and record.restored:
        return f"Servers: {record.restore}"
    return f"Service: {'restored' if record.restored else 'NOT RESTORED'}; {record.restore}"


def program() -> str:
    """Return how this program is called from here."""
    if shutil.which("draftworth"):
        return "draftworth"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "draftworth" else f"{Path(sys.executable).name} -m draftworth"


def show_lines(record: TrialRecord, folder: Path) -> list[str]:
    """Return a whole trial for a terminal."""
    lines = [f"Trial {record.id}, {record.created} to {record.finished}", *verdict_lines(record), ""]
    for one in record.comparisons:
        name = f"{one.arm}: " if len(record.comparisons) > 1 else ""
        lines += [
            f"{name}{words} ratio {interval(getattr(one, f'{metric}_ratio'))}"
            for metric, words in METRICS.items()
            if metric != one.metric and getattr(one, f"{metric}_ratio") is not None
        ]
    for arm in record.arms:
        lines.append(_arm_line(arm))
        lines += [f"  {point.label}: {_point(point)}" for point in arm.points]
    lines += [f"differs: {c.name}: {c.baseline} / {c.variant}" for c in record.confounders]
    lines.append(f"Files: {folder}")
    return lines


def _arm_line(arm: ArmRecord) -> str:
    url = f" at {arm.declared['url']}" if arm.declared.get("url") else ""
    more = f", {arm.retried} sent again" if arm.retried else ""
    cached = f", {share(arm.cache_share)} of prompts in the prefix cache" if arm.cache_share is not None else ""
    return (
        f"{arm.name}: {arm.engine} {arm.version or '(version unknown)'}{url}, {arm.requests} answered, "
        f"{arm.failed} failed{more}, TPOT {number(arm.tpot_ms)} ms, TTFT {number(arm.ttft_ms)} ms{cached}"
    )


def _point(point: PointSummary) -> str:
    tpot, ttft = point.tpot_ms, point.ttft_ms
    return (
        f"TPOT {mean(tpot.mean, tpot.low, tpot.high)} ms, p99 {cell(tpot.p99)}; "
        f"TTFT p50 {cell(ttft.p50)} ms, p99 {cell(ttft.p99)}"
    )


def refused(folder: Path) -> bool:
    """Whether a trial on a unit was refused by its driver before it changed anything."""
    try:
        found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found.get("exit") == EXIT_REFUSED)


def list_entries() -> list[dict[str, Any]]:
    """Return one entry a trial, oldest first."""
    broken = {folder.name for folder in unfinished()}
    entries = []
    for folder in all_trials():
        state, verdict, ratio, metric, about = "restored", None, None, None, None
        try:
            record = read(folder)
            verdict = str(record.verdict)
            ratio = (
                record.comparison.tpot_ratio.estimate if record.comparison and record.comparison.tpot_ratio else None
            )
            if record.comparison is not None:
                metric, found = record.comparison.metric, judged(record.comparison)
                about = None if found is None else found.estimate
            state = "restored" if record.restored else "NOT RESTORED"
            if on_endpoints(record):
                state = "not touched"
        except UsageError:
            state = "no record"
            if refused(folder):
                state = "refused"
            elif needs_restore(folder) is None:
                state = "damaged"
        except DraftworthError as error:
            state = str(error)
        if folder.name in broken:
            state = "NOT RESTORED" if state != "no record" else "unfinished"
        entry = {"id": folder.name, "state": state, "verdict": verdict, "tpot_ratio": ratio}
        entries.append({**entry, "metric": metric, "ratio": about})
    return entries
