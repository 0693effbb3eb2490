"""A trial's record as lines for a terminal."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from draftworth.errors import DraftworthError, UsageError
from draftworth.reports.words import interval, number, percent
from draftworth.trials.home import all_trials
from draftworth.trials.record import TrialRecord, read
from draftworth.trials.recover import needs_restore, unfinished


def verdict_lines(record: TrialRecord) -> list[str]:
    """Return the verdict, what it rests on, and how the service was left."""
    about = f" ({record.best})" if record.best else ""
    lines = [f"Verdict: {record.verdict}{about}"]
    if record.comparison is not None and record.comparison.tpot_ratio is not None and not record.error:
        lines.append(f"  {in_words(record.comparison.tpot_ratio.estimate)} (TPOT: time per output token)")
    lines.append(f"  {record.reason}")
    if record.error_tail:
        lines += ["  The server's last lines:", *(f"    {line}" for line in record.error_tail)]
    for one in record.comparisons:
        if len(record.comparisons) > 1:
            lines.append(f"  {one.arm}: {one.verdict}, TPOT ratio {interval(one.tpot_ratio)}")
        lines += [f"  {c.category:<12} TPOT ratio {interval(c.tpot_ratio)}: {c.verdict}" for c in one.categories]
        if one.output_check is not None:
            lines.append(f"  output check: {one.output_check.status}; {one.output_check.reason}")
    for arm in record.arms:
        counts = arm.acceptance
        if counts is not None and counts.drafted:
            lines.append(
                f"  {arm.name}: drafted in {percent(counts.coverage)} of steps, accepted "
                f"{percent(counts.acceptance_rate)} of drafted tokens, {number(counts.length_per_step)} tokens a step"
            )
    lines += [f"  {one.severity}: {one.message}" for one in record.findings if one.severity != "info"]
    lines.append(f"Service: {'restored' if record.restored else 'NOT RESTORED'}; {record.restore}")
    if record.restore_commands:
        lines += ["Restore it by hand with:", *(f"  {command}" for command in record.restore_commands)]
    return lines


def in_words(ratio: float) -> str:
    """Return what a ratio of TPOT means, for a person."""
    if round(abs(ratio - 1), 3) == 0:
        return "as much time per token as the baseline"
    return f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'} time per token than the baseline"


def program() -> str:
    """Return how this program is called from here."""
    if shutil.which("draftworth"):
        return "draftworth"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "draftworth" else f"{Path(sys.executable).name} -m draftworth"


def show_lines(record: TrialRecord, folder: Path) -> list[str]:
    """Return a whole trial for a terminal."""
    lines = [f"Trial {record.id}, {record.created} to {record.finished}", *verdict_lines(record), ""]
    lines += [
        f"{arm.name}: {arm.engine} {arm.version or '(version unknown)'}, {arm.requests} answered, "
        f"{arm.failed} failed, TPOT {number(arm.tpot_ms)} ms, TTFT {number(arm.ttft_ms)} ms"
        for arm in record.arms
    ]
    lines += [f"differs: {c.name}: {c.baseline} / {c.variant}" for c in record.confounders]
    lines.append(f"Files: {folder}")
    return lines


def list_entries() -> list[dict[str, Any]]:
    """Return one entry a trial, oldest first."""
    broken = {folder.name for folder in unfinished()}
    entries = []
    for folder in all_trials():
        state, verdict, ratio = "restored", None, None
        try:
            record = read(folder)
            verdict = str(record.verdict)
            ratio = (
                record.comparison.tpot_ratio.estimate if record.comparison and record.comparison.tpot_ratio else None
            )
            state = "restored" if record.restored else "NOT RESTORED"
        except UsageError:
            state = "no record"
            if needs_restore(folder) is None:
                state = "damaged"
        except DraftworthError as error:
            state = str(error)
        if folder.name in broken:
            state = "NOT RESTORED" if state != "no record" else "unfinished"
        entries.append({"id": folder.name, "state": state, "verdict": verdict, "tpot_ratio": ratio})
    return entries
