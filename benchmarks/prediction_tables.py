"""The tables of docs/prediction-error.md, from what `predict.check` says of each run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from draftworth.costs.base import EngineMode
from draftworth.predict.base import Checked, CheckedCell, Pool, Source
from draftworth.predict.pools import pool

WORDS: Mapping[Source, str] = {
    "replay": "answers replayed",
    "remembered": "suffix, answers remembered",
    "synthetic": "costs alone",
}
GROUPS = {"CPU": "cpu", "H200": "h200", "all": ""}
"""Rows over several runs, and how the names of theirs begin."""
HALF = "-half"
"""Ends the name of an arm that drafts in half of its steps (`prediction_gpu.py`)."""
POOLED = ("cells", "median absolute error", "95th percentile", "wrong signs", "measured lies in the interval")
WIDTHS = ("upper / lower end, predicted", "measured", "decided, predicted", "measured")


@dataclass(frozen=True)
class Run:
    """One machine, engine and model.

    Attributes:
        name: of its folder.
        checked: every arm that is judged, with the engine modes that the run measured.
        library: the arms with a real drafter, with the library's modes instead: before any reload.
        elsewhere: the same without what the library has of this kind of machine; None where too little is left of it.
        idle: what its null drafts measured, one start each.
    """

    name: str
    checked: Checked
    library: Checked
    elsewhere: Checked | None
    idle: tuple[EngineMode, ...] = ()


def table(found: Sequence[Run]) -> list[str]:
    """Return the tables of the page."""
    return [
        *("**With the run's own engine modes**", ""),
        *_pooled([(run.name, run.checked) for run in found]),
        *("", "**Before any reload: engine modes out of the library**", ""),
        *_pooled([(run.name, run.library) for run in found]),
        *("", "The same without what the library has of this kind of machine:", ""),
        *_pooled([(run.name, run.elsewhere) for run in found if run.elsewhere is not None]),
        *("", "**Costs alone, by how many of an arm's steps draft:**", ""),
        *_covered(found),
        *("", "**T(B, 1) of the probe over the baseline's TPOT in the trial**, and less p:", ""),
        *_bases(found),
        *("", "**Null drafts of several starts**, the same steps but for k, and their baselines:", ""),
        *_idle(found),
        *("", "**Cell by cell**, with the run's own engine modes:", ""),
        *_cells(found),
    ]


def _pooled(some: Sequence[tuple[str, Checked]]) -> list[str]:
    lines = _head("run", "steps from", *POOLED, *WIDTHS)
    lines += [_row(name, one) for name, checked in some for one in checked.pools]
    for name, begins in GROUPS.items():
        for source, words in WORDS.items():
            runs = [checked for run, checked in some if run.startswith(begins)]
            cells = [cell for checked in runs for cell in checked.cells if cell.source == source]
            if cells and (not begins or len(runs) < len(some)):
                lines.append(_row(f"**{name}**", pool(cells), f"**{words}**"))
    every = [cell for _, checked in some for cell in checked.cells]
    told = [cell for cell in every if cell.source != "remembered"]
    if len({cell.source for cell in told}) > 1:
        lines.append(_row("**all**", pool(told), f"**{WORDS['replay']}, and {WORDS['synthetic']}**"))
    return lines


def _row(name: str, one: Pool, words: str = "") -> str:
    values = (
        name,
        words or WORDS[one.source],
        str(one.cells),
        f"{one.median_error:.1%}",
        f"{one.p95_error:.1%}",
        str(one.wrong_signs),
        f"{one.inside} of {one.cells}",
        f"{one.width:.2f}",
        f"{one.measured_width:.2f}",
        str(one.decides),
        str(one.measured_decides),
    )
    return f"| {' | '.join(values)} |"


def _bases(found: Sequence[Run]) -> list[str]:
    """Return how far the probe's T is from each baseline that cells are judged beside."""
    lines = _head("run", "at a time", "T, ms", "baseline's TPOT, ms", "T / TPOT", "p, ms", "(T + p) / TPOT")
    for run in found:
        cells = sorted(run.checked.cells, key=lambda one: one.concurrency)
        for load, some in groupby(cells, key=lambda one: one.concurrency):
            for base, measured, p in sorted({_base(one) for one in some}):
                lines.append(
                    f"| {run.name} | {load} | {base:.2f} | {measured:.2f} | {base / measured - 1:+.1%} | {p:.2f} | "
                    f"{(base + p) / measured - 1:+.1%} |"
                )
    return lines


def _covered(found: Sequence[Run]) -> list[str]:
    """Return errors of arms that always draft, whose steps keep their full graph, apart from those of the others."""
    cells = [cell for run in found for cell in run.checked.cells if cell.source == "synthetic"]
    half = [cell for cell in cells if cell.arm.endswith(HALF)]
    always = [cell for cell in cells if cell not in half]
    lines = _head("steps that draft", "steps from", *POOLED, *WIDTHS)
    return [*lines, _row("all", pool(always)), _row("half", pool(half))]


def _idle(found: Sequence[Run]) -> list[str]:
    """Return how far starts of a server that drafts nothing are apart, where there are several of a kind."""
    lines = _head(
        "server", "at a time", "baselines, ms", "largest / smallest", "null drafts, ms (k)", "largest / smallest"
    )
    kinds: dict[str, list[EngineMode]] = {}
    for run in found:
        kinds.setdefault("-".join(run.name.split("-")[:2]), []).extend(run.idle)
    for kind, modes in kinds.items():
        for load in sorted({one.batch for one in modes}):
            some = [one for one in modes if one.batch == load]
            if len(some) > 1:
                bases, steps = [one.base_ms for one in some], [one.step_ms for one in some]
                told = ", ".join(f"{one.step_ms:.1f} ({(one.asked or 1) - 1})" for one in some)
                lines.append(
                    f"| {kind} | {load} | {', '.join(f'{one:.1f}' for one in bases)} | {max(bases) / min(bases):.2f} | "
                    f"{told} | {max(steps) / min(steps):.2f} |"
                )
    return lines


def _base(one: CheckedCell) -> tuple[float, float, float]:
    assert one.base_ms is not None
    assert one.measured_base_ms is not None
    return one.base_ms, one.measured_base_ms, 0.0 if one.prefill_ms is None else one.prefill_ms.value


def _cells(found: Sequence[Run]) -> list[str]:
    lines = _head(
        *("run", "arm", "at a time", "steps from", "prompts, starts", "predicted (95 %)", "measured (95 %)", "error"),
        *("steps per token, predicted / measured", "step ms, predicted / measured"),
    )
    for run in found:
        for one in run.checked.cells:
            told = one.pooled_steps_per_token if one.steps_by == "steps" else one.steps_per_token.value
            values = (
                run.name,
                one.arm,
                str(one.concurrency),
                WORDS[one.source],
                f"{one.prompts}, {one.starts}",
                f"{one.predicted.value:.3f} ({one.predicted.low:.3f} to {one.predicted.high:.3f})",
                f"{one.measured.value:.3f} ({one.measured.low:.3f} to {one.measured.high:.3f})",
                f"{one.error:+.1%}",
                f"{_or(told)} / {_or(one.measured_steps_per_token)}{' (pooled)' if one.steps_by == 'steps' else ''}",
                f"{one.step_ms.value:.2f} / {_or(one.measured_step_ms, 2)}",
            )
            lines.append(f"| {' | '.join(values)} |")
    return lines


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def _or(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
