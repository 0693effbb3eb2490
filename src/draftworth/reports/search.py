"""A search as lines, as Markdown, and as what to paste: what was tried and why, the best at each load, the rest."""

import json
import math
import shlex
from collections.abc import Sequence

from draftworth.reports.words import NONE, gain, interval, sentence
from draftworth.search.base import BASELINE, LogSpeed
from draftworth.search.record import BestAt, SearchRecord, Tried
from draftworth.trials.record import ArmComparison, TrialRecord
from draftworth.verdicts.rules import HIGHER_IS_BETTER

Z = 1.96
SCHEDULE = "Each k at the loads where it measured best, as one setting that was not measured itself:"
_MOST = 12
"""Settings that were not tried, told one by one on a terminal."""


def search_lines(record: TrialRecord) -> list[str]:
    """Return what a search did, for a terminal; nothing for any other trial."""
    search = record.search
    if search is None:
        return []
    lines = [summary(search)]
    for one in search.tried:
        lines += [f"  {one.name}: {outcome(one)}", f"    why: {one.why}"]
    if search.unpredicted is not None:
        lines.append(f"  {search.unpredicted}")
    lines += [f"  not tried: {one.name}: {one.why}" for one in search.not_tried[:_MOST]]
    if len(search.not_tried) > _MOST:
        lines.append(f"  and {len(search.not_tried) - _MOST} more that were not tried: report.md has them all")
    for best in search.best:
        lines.append(f"Best {where(best, search)}: {setting(best, record)}")
        if best.flags:
            lines.append(f"  {flags(best)}")
    lines += leading(record)
    if search.schedule is not None:
        lines += [SCHEDULE, f"  {schedule(search)}"]
    lines += [f"  {one}" for one in adopting(record)]
    return lines


def summary(search: SearchRecord) -> str:
    """Return how far a search came, in a sentence."""
    started = sum(one.trial is None for one in search.tried)
    before = len(search.tried) - started
    more = f", {before} in an earlier trial" if before else ""
    return f"Search: {started} of {search.candidates} settings started{more}; it ended: {search.ended}"


def outcome(one: Tried) -> str:
    """Return what came of a setting that was tried."""
    told = failure(one) or (speeds(one.measured) or "nothing could be compared")
    expected = f" ({beforehand(one)})" if beforehand(one) else ""
    cut = f"; left behind part {one.parts} of {one.of_parts}: it could not beat the best any more" if one.cut else ""
    return f"{told}{expected}{cut}{f' [trial {one.trial}]' if one.trial else ''}"


def beforehand(one: Tried) -> str:
    """Return what was told of a setting before it was started; empty where nothing was, or where it failed."""
    if one.failed is not None:
        return ""
    if one.predicted:
        return f"predicted {speeds(one.predicted)}"
    return f"nothing to everything accepted: {speeds(one.bounds)}" if one.bounds else ""


def failure(one: Tried) -> str | None:
    """Return why a setting could not be measured, its name not told twice; None where it could."""
    return None if one.failed is None else one.failed.removeprefix(f"{one.name} was ")


def speeds(some: "dict[int, LogSpeed] | None") -> str:
    """Return speed-ups by load, with 95 % intervals: `1.21 (1.05 to 1.39) at 4 at a time`."""
    parts = []
    for load, one in sorted((some or {}).items()):
        low, high = (math.exp(one.value + side * Z * one.sd) for side in (-1, 1))
        parts.append(f"{math.exp(one.value):.2f} ({low:.2f} to {high:.2f}) times as fast at {load} at a time")
    return ", ".join(parts)


def where(best: BestAt, search: SearchRecord) -> str:
    """Return what a best setting is best at."""
    if best.load is not None:
        return f"at {best.load} at a time"
    return "over all loads" if len(search.loads) > 1 else "setting"


def setting(best: BestAt, record: TrialRecord) -> str:
    """Return a best setting with its gain."""
    if best.arm == BASELINE:
        return "the baseline: no setting is shown to be faster"
    metric = str((record.config.get("verdict") or {}).get("metric") or "tpot")
    told = f", {gain(best.ratio.estimate, metric)}, ratio {interval(best.ratio)}" if best.ratio is not None else ""
    return f"{best.arm}{told}{f' [trial {best.trial}]' if best.trial else ''}"


def flags(best: BestAt) -> str:
    """Return what to add to the service's command, as a shell takes it."""
    return shlex.join(best.flags)


def schedule(search: SearchRecord) -> str:
    """Return the configuration with the best k at each load, as a shell takes it; empty where there is none."""
    return "" if search.schedule is None else shlex.join(["--speculative-config", json.dumps(search.schedule)])


def leading(record: TrialRecord) -> list[str]:
    """Return the setting that came nearest where none is shown to be faster, and what would tell; nothing else."""
    search = record.search
    if search is None or search.found or not search.tried:
        return []
    names = {one.name for one in search.tried}
    some = [one for one in record.comparisons if one.arm in names and one.ratio is not None]
    higher = bool(some) and some[0].metric in HIGHER_IS_BETTER

    def gains(one: ArmComparison) -> float:
        assert one.ratio is not None, "chosen above"
        return one.ratio.estimate if higher else 1 / one.ratio.estimate

    best = max(some, key=gains, default=None)
    if best is None or gains(best) <= 1:
        return []
    told = f"Nearest: {best.arm}, ratio {interval(best.ratio)}, {best.verdict}."
    advice = "A trial of it alone, as one of [[arms]] without [search] and with verdict.starts = 3, tells more."
    return [f"{told} {advice}"]


def adopting(record: TrialRecord) -> list[str]:
    """Return how the best setting becomes the service's own."""
    search = record.search
    best = None if search is None else search.winner
    service = record.config.get("service")
    if best is None or best.arm == BASELINE or not isinstance(service, dict) or service.get("type") != "systemd":
        return []
    if best.output not in {None, "same"}:
        alone = "run a trial of it, as one of [[arms]] without [search]"
        return [f"{best.arm} can be adopted once its output was checked, and it is {best.output} here: {alone}"]
    file = "its drop-in is adopt.conf in the trial's folder"
    return [f"adopt it: draftworth trial adopt {record.id} --arm {best.arm}   ({file})"]


def search_markdown(record: TrialRecord) -> str:
    """Return the section of `report.md` about a search; empty for any other trial."""
    search = record.search
    if search is None:
        return ""
    lines = ["## The search", "", f"{summary(search)}.", ""]
    if search.unpredicted is not None:
        lines += [f"{search.unpredicted[:1].upper()}{search.unpredicted[1:]}.", ""]
    for best in search.best:
        lines += [f"**Best {where(best, search)}:** {setting(best, record)}.", ""]
        if best.flags:
            lines += ["```sh", flags(best), "```", ""]
    lines += [f"{one}\n" for one in leading(record)]
    if search.schedule is not None:
        lines += [SCHEDULE, "", "```sh", schedule(search), "```", ""]
    lines += [f"- {one}" for one in adopting(record)]
    if search.tried:
        lines += ["", "| started | came of it | why it was next |", "|---|---|---|"]
        lines += [f"| {_cell(one.name)} | {_cell(outcome(one))} | {_cell(one.why)} |" for one in search.tried]
    if search.not_tried:
        lines += ["", "| not tried | why |", "|---|---|"]
        lines += [f"| {_cell(one.name)} | {_cell(one.why)} |" for one in search.not_tried]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def rows_of(search: SearchRecord) -> Sequence[tuple[str, tuple[str, ...]]]:
    """Return the rows of the page's table of settings: name, speed at each load, what came of it and why."""
    found = []
    for one in search.tried:
        cells = [_speed(one.measured.get(load)) for load in search.loads]
        told = failure(one) or ("" if one.measured else "nothing could be compared")
        cut = f"left behind part {one.parts} of {one.of_parts}: it could not beat the best any more" if one.cut else ""
        expected = beforehand(one)
        before = f"of trial {one.trial}" if one.trial else ""
        text = " ".join(sentence(part) for part in (told, cut, before, expected, f"Why: {one.why}") if part)
        found.append((one.name, (*cells, text)))
    never = [(one.name, (*(NONE for _ in search.loads), f"Not tried: {one.why}")) for one in search.not_tried]
    return [*found, *never]


def _speed(one: LogSpeed | None) -> str:
    if one is None:
        return NONE
    low, high = (math.exp(one.value + side * Z * one.sd) for side in (-1, 1))
    return f"{math.exp(one.value):.2f} ({low:.2f} to {high:.2f})"
