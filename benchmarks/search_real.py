"""The table of the real searches on vLLM's CPU build, from their kept records, into docs/search.md.

    python -m benchmarks.search_real

Reads benchmarks/data/search/cpu-methods.json (the search) and cpu-all.json (every setting of the same grid started);
`benchmarks/search_cpu.py` makes both.
"""

import math
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pages import write_between

from draftworth.trials.record import ArmRecord, TrialRecord

DATA = Path(__file__).parent / "data" / "search"
PAGE = Path(__file__).parent.parent / "docs" / "search.md"
MARKS = ("<!-- search on a CPU: by benchmarks/search_real.py -->", "<!-- end of search on a CPU -->")


def read(name: str) -> TrialRecord:
    """Return a kept record."""
    return TrialRecord.model_validate_json((DATA / f"{name}.json").read_text(encoding="utf-8"))


def speed(value: float, sd: float) -> str:
    """Return a log speed-up with its 95 % interval."""
    low, high = (math.exp(value + side * 1.96 * sd) for side in (-1, 1))
    return f"{math.exp(value):.2f} ({low:.2f} to {high:.2f})"


def verdicts(record: TrialRecord) -> Mapping[str, str]:
    """Return the verdict on each setting, over all loads."""
    return {one.arm: str(one.verdict) for one in record.comparisons}


def accepted(arm: ArmRecord | None) -> str:
    """Return tokens a step of an arm, as its server counted."""
    counts = None if arm is None else arm.acceptance
    if counts is None or not counts.steps or counts.emitted is None:
        return "-"
    return f"{counts.emitted / counts.steps:.2f}"


def table(record: TrialRecord) -> list[str]:
    """Return what came of each setting, those that were not started last."""
    search = record.search
    assert search is not None, "kept records are of searches"
    arms, said = {arm.name: arm for arm in record.arms}, verdicts(record)
    loads = search.loads
    head = ["setting", *(f"predicted at {load}" for load in loads), *(f"measured at {load}" for load in loads)]
    lines = [f"| {' | '.join([*head, 'tokens a step', 'measured for', 'verdict'])} |", "|---" * (len(head) + 3) + "|"]
    for one in search.tried:
        cells = [
            *(speed(told.value, told.sd) if (told := (one.predicted or {}).get(load)) else "-" for load in loads),
            *(speed(told.value, told.sd) if (told := one.measured.get(load)) else "-" for load in loads),
            accepted(arms.get(one.name)),
            f"{one.parts} of {one.of_parts} parts",
            one.failed or said.get(one.name, "-"),
        ]
        lines.append(f"| {one.name} | {' | '.join(cells)} |")
    dashes = " | ".join(["-"] * (len(head) + 1))
    return [*lines, *(f"| {left.name} | {dashes} | not started: {left.why} |" for left in search.not_tried)]


def summary(record: TrialRecord) -> str:
    """Return how far a search came, in a sentence."""
    search = record.search
    assert search is not None, "kept records are of searches"
    minutes = sum(one.seconds or 0.0 for one in search.tried) / 60
    winner = search.winner
    best = "none" if winner is None else winner.arm
    machine = ", ".join(str(record.machine.get(name)) for name in ("processor", "kernel"))
    server = f"vLLM {record.arms[0].version}, {record.arms[0].device}, {record.machine.get('cores')} cores ({machine})"
    return (
        f"{len(search.tried)} of {search.candidates} settings started in {minutes:.0f} min; best: **{best}**. It "
        f"ended: {search.ended}. {server}, {record.created[:10]}."
    )


def lost(found: TrialRecord, whole: TrialRecord) -> str:
    """Return what the search's best loses to the best of the whole grid, by what the latter measured."""
    assert found.search is not None, "kept records are of searches"
    assert whole.search is not None, "kept records are of searches"
    mean = {
        one.name: sum(told.value for told in one.measured.values()) / len(one.measured)
        for one in whole.search.tried
        if one.measured
    }
    top = max(mean, key=lambda name: mean[name])
    of_search = {
        one.name: sum(told.value for told in one.measured.values()) / len(one.measured)
        for one in found.search.tried
        if one.measured
    }
    mine = max(of_search, key=lambda name: of_search[name])
    share = 1 - math.exp(mean[mine] - mean[top])
    same = "the same" if mine == top else f"{top} there"
    return (
        f"By its mean speed the search's best is {mine}, that of the whole grid {same}: {share:.1%} of speed is lost "
        f"by what the whole grid measured, for {len(found.search.tried)} of {len(whole.search.tried)} reloads."
    )


def main() -> int:
    """Write the section."""
    found = read("cpu-methods")
    lines = [summary(found), "", *table(found)]
    if (DATA / "cpu-all.json").exists():
        whole = read("cpu-all")
        lines += ["", f"The whole grid, another trial: {summary(whole)}", "", *table(whole), "", lost(found, whole)]
    write_between(PAGE, MARKS, lines)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
