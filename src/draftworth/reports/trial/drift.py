"""What the baseline measured each time: whether the machine itself changed during the trial."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from draftworth.bench.base import RequestRow
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import panel, panels, plain_table, section
from draftworth.reports.words import cell, interval, mean

_MINUTE = 60.0


def drift_html(subject: Subject) -> str:
    """Return the section of the baselines; nothing where no block has times."""
    blocks = _blocks(subject)
    times = [one for one in blocks if one["arm"] == subject.baseline]
    if not times:
        return ""
    found = subject.comparison(subject.best or "")
    ratio = found.drift if found else None
    if ratio is not None:
        words = f"TPOT of the baseline's last measurement over its first: {interval(ratio)}."
    elif len(times) > 1:
        words = "The baseline was measured more than once; no interval of its drift was made."
    else:
        words = "The baseline was measured once, so its drift is not known."
    table = plain_table(
        "Table: every measurement",
        ["arm", "start", "requests", "minutes", "TPOT ms, mean over prompts (95 % interval)", "TTFT ms"],
        (
            (
                f"block {one['block']}",
                [
                    one["arm"],
                    str(one["start"]),
                    f"{one['requests']:,}",
                    f"{one['minutes']:.1f}",
                    mean(one["value"], one["low"], one["high"]),
                    cell(one["ttft"]),
                ],
            )
            for one in blocks
        ),
    )
    svg = ""
    if len(times) > 1:
        from draftworth.reports.trial import curves  # noqa: PLC0415 - lazy: altair takes a while

        chart = curves.over_time(blocks, subject.baseline, "TPOT (ms a token)")
        svg = curves.finished(chart, "TPOT of each measurement in order of time")
        words += " Each point is one measurement: its mean over prompts, with its 95 % interval."
    return section("Drift between baselines", panels([panel("The baseline over time", words, svg, table)]), key="drift")


def _blocks(subject: Subject) -> list[dict[str, Any]]:
    """Return what each block measured, in order of time."""
    from draftworth.verdicts.running import mean_interval  # noqa: PLC0415 - lazy: scipy

    found: dict[tuple[int, str], list[RequestRow]] = defaultdict(list)
    for row in subject.rows:
        found[row.block, row.arm].append(row)
    began = min((row.started_unix for row in subject.rows), default=0.0)
    blocks = []
    for (number, arm), rows in found.items():
        values = _by_prompt(rows)
        if not values:
            continue
        spread = mean_interval(values)
        first = [row.ttft_ms for row in rows if row.timed and row.ttft_ms is not None and math.isfinite(row.ttft_ms)]
        blocks.append(
            {
                "block": number,
                "arm": arm,
                "start": min(row.start for row in rows),
                "requests": len(rows),
                "minutes": (min(row.started_unix for row in rows) - began) / _MINUTE,
                "value": sum(values) / len(values),
                "low": spread.low if spread else None,
                "high": spread.high if spread else None,
                "ttft": sum(first) / len(first) if first else None,
            }
        )
    return sorted(blocks, key=lambda one: (one["minutes"], one["block"]))


def _by_prompt(rows: Sequence[RequestRow]) -> list[float]:
    """Return the mean TPOT of each prompt."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.timed and row.tpot_ms is not None and math.isfinite(row.tpot_ms) and row.tpot_ms > 0:
            found[row.conversation].append(row.tpot_ms)
    return [sum(some) / len(some) for some in found.values()]
