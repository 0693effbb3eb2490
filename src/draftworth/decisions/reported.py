"""A trial that somebody else ran and reported as a table: evidence, and marked as not ours.

Others' figures can rule an option out for the setting they were taken with, where every prompt lost and together more
than restarts alone can make (their spread is our prior: a table tells no starts); they adopt nothing: what is adopted
was measured on the service that adopts it. A table without intervals has a range over its prompts, and no interval is
made up for it.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from draftworth.decisions.base import Assumptions, Evidence, Ratio
from draftworth.decisions.conclude import Conclusion
from draftworth.errors import UsageError
from draftworth.models import Strict, Words
from draftworth.reports.words import plural
from draftworth.toml_file import dotted
from draftworth.verdicts.rules import MARGIN, restart_priors

if TYPE_CHECKING:
    from draftworth.decisions.states import State

_FEWEST = 3
"""Prompts below which a table rules nothing out: one that lost may be the one that loses."""
_SIDED_95 = 1.96


class ReportedRow(Strict):
    """One prompt, without and with speculation."""

    prompt: str
    baseline: float = Field(gt=0)
    """Tokens a second."""
    variant: float = Field(gt=0)


class Reported(Strict):
    """The file."""

    schema_version: Literal[1] = 1
    kind: Literal["reported trial"]
    source: str = Field(min_length=1)
    date: str = Field(pattern=r"^\d{4}(-\d{2}){0,2}$")
    arm: str = Field(min_length=1)
    setting: dict[str, Any] = {}
    """What the engine was started with."""
    rows: Annotated[tuple[ReportedRow, ...], Field(strict=False, min_length=1)]
    counts: dict[str, str] = {}
    """Figures of acceptance as they were reported."""
    costs: dict[str, str] = {}
    """Load times and shares of a step as they were reported."""
    warnings: Words = ()
    """What the engine warned of."""
    not_told: Words = ()
    """What the report leaves open."""
    engine: str = ""
    device: str = ""
    """`cpu`, or anything else for a GPU, which is also taken where it is not told: how much restarts differ by."""
    version: str = ""
    hardware: str = ""
    model: str = ""
    workload: str = ""


def is_reported(path: Path) -> bool:
    """Whether a path is a file that could be a reported trial."""
    return path.is_file() and path.suffix == ".json"


def is_told(data: object) -> bool:
    """Whether a file's JSON says that it is a reported trial."""
    return isinstance(data, dict) and data.get("kind") == "reported trial"


def load_reported(path: Path) -> Reported:
    """Read a reported trial.

    Raises:
        UsageError: it is not one; names the field.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no reported trial that can be read: {error}") from None
    if not is_told(data):
        raise UsageError(
            f'{path}: no reported trial: it does not say "kind": "reported trial"; name a trial by its id or folder'
        )
    try:
        return Reported.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{path}: {dotted(tuple(first['loc']))}: {first['msg']}") from None


def conclude_reported(told: Reported, path: str) -> Conclusion:
    """Return what follows from a reported trial.

    Args:
        told: the report.
        path: of its file, relative to the folder that `decisions/` is in.
    """
    ratios = {one.prompt: one.baseline / one.variant for one in told.rows}
    least, most = min(ratios.values()), max(ratios.values())
    overall = sum(1 / one.variant for one in told.rows) / sum(1 / one.baseline for one in told.rows)
    figures = (
        f"TPOT ratio to the baseline {overall:.3f} over {plural(len(ratios), 'prompt')}, {least:.3f} to {most:.3f} by "
        "prompt (a range; no interval was reported)"
    )
    state: State = "pending"
    needs: tuple[str, ...] = ("a trial on this service: what others reported adopts nothing",)
    restarts = math.expm1(_SIDED_95 * math.hypot(*restart_priors(told.device or None)))
    if least > 1 + MARGIN and len(ratios) >= _FEWEST and overall > (1 + MARGIN) * (1 + restarts):
        state, needs = "ruled out", ()
        said = f"{told.arm} is ruled out for this setting, on what {told.source} reported"
        outcome = (
            f"{said}: {figures}: every prompt lost, and together more than the {100 * restarts:.0f} % that restarts "
            "alone can make of one start of each."
        )
    elif least > 1 + MARGIN:
        why = (
            f"a restart alone can make {100 * restarts:.0f} %"
            if len(ratios) >= _FEWEST
            else f"fewer than {_FEWEST} prompts rule nothing out"
        )
        outcome = f"{told.arm} is pending: {told.source} reported a loss, and {why}: {figures}."
        needs = ("a trial on this service: so small a loss in others' figures rules nothing out",)
    elif most < 1 - MARGIN:
        outcome = f"{told.arm} is pending: {told.source} reported a gain: {figures}."
    else:
        outcome = f"{told.arm} is pending: what {told.source} reported does not decide: {figures}."
    rows = [
        f"{one.prompt}: {one.baseline:g} tokens a second without, {one.variant:g} with it, TPOT ratio "
        f"{ratios[one.prompt]:.3f}."
        for one in told.rows
    ]
    return Conclusion(
        state=state,
        arm=told.arm,
        verdict="reported",
        by="reported",
        outcome=(outcome,),
        context=(
            f"Reported by {told.source}, {told.date}; not measured by us.",
            *(f"{name}: {said}." for name, said in told.counts.items()),
            *(f"{name}: {said}." for name, said in told.costs.items()),
        ),
        consequences=(
            *rows,
            *(f"The engine warned: {one}." for one in told.warnings),
            *(f"Not told, so not ruled out with it: {one}." for one in told.not_told),
        ),
        needs=needs,
        ratio=Ratio(metric="tpot", value=overall),
        pairs=len(ratios),
        reopen_at=1 + MARGIN if state == "ruled out" else None,
        assumptions=Assumptions(
            engine=told.engine,
            version=told.version,
            hardware=told.hardware,
            model=told.model,
            workload=told.workload,
            setting=json.dumps(told.setting, sort_keys=True) if told.setting else "",
        ),
        evidence=(
            Evidence(
                kind="reported",
                ours=False,
                source=told.source,
                date=told.date,
                path=path,
                says=f"{told.arm}: {figures}",
            ),
        ),
    )
