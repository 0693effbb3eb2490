"""The library of measured engine modes: what speculation added to a step elsewhere, where it was not measured here.

Entries are in `library.json`, each with its hardware and source. Of entries with both steps, what was added in
milliseconds (M = step - T) is taken as log-normal and carried over as it is: left out one by one, the ten steps of
three machines that draft nothing are told with a root mean square error of 19 % by T + M, 23 % by a factor, 19 % by
max(T, H) + h, which has one parameter more and is no better. That M is a host's time (no asynchronous scheduling, no
full CUDA graphs) and not a share of the step is what makes it additive; a slower host has more of it.
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from statistics import fmean, stdev
from typing import Literal

from draftworth.costs.base import EngineMode
from draftworth.models import Frozen

_LEVEL = 0.95
_FEWEST = 3
_Z = 1.96
_UNPAIRED = math.log(2.0)
"""Half width, in logarithms, of what M1 / M0 may differ by elsewhere: no less than what `mode.OTHER_KIND` assumes."""

Kind = Literal["idle", "drafting"]


class Entry(Frozen):
    """One measured engine mode."""

    kind: Kind
    engine: str
    version: str | None = None
    runner: str | None = None
    method: str
    model: str
    hardware: str
    how: str
    """How requests reached the engine: a server, or the engine in the measuring process."""
    batch: int
    tokens: int
    base_ms: float | None = None
    """T of the same composition without speculation; None where only the ratio is known."""
    step_ms: float | None = None
    ratio: float | None = None
    """Step over T, where only that was told."""
    source: str

    @property
    def added_ms(self) -> float | None:
        """M: the step less T."""
        return None if self.base_ms is None or self.step_ms is None else self.step_ms - self.base_ms


class Library(Frozen):
    """Every entry."""

    schema_version: int
    entries: tuple[Entry, ...]


@lru_cache(maxsize=1)
def library() -> Library:
    """Return the library."""
    text = resources.files("draftworth.costs").joinpath("library.json").read_text(encoding="utf-8")
    return Library.model_validate(json.loads(text))


def lookup(
    *,
    engine: str | None,
    version: str | None,
    runner: str | None,
    method: str,
    base_ms: float,
    kind: Kind = "idle",
    batch: int = 1,
    tokens: int = 1,
) -> EngineMode | None:
    """Return what the library says of an engine mode, with a wide interval; None where it has nothing like it.

    Entries of the same engine and method are taken, of the same runner where both are known: another runner or method
    is another mode, and is not guessed here (`mode` lets methods that draft on the host stand in for each other).
    A release without entries of its own takes those of the others, and says so.

    M0, of steps that draft nothing, has the geometric mean of its entries, and Student's 95 % prediction interval of
    one more M0, widened to hold every entry: nothing that was ever measured lies outside. M1 is M0 times the geometric
    mean of M1 / M0 of entries of one run, both measured on one machine at one batch: means over different machines say
    nothing of which kind of step is dearer. The spread of that ratio is part of its interval, which reaches at least as
    far up as that of M0; its value is never below the lower end of M0.

    Args:
        engine: its name.
        version: its release.
        runner: `V1` or `V2` of vLLM; None where it is not known.
        method: the speculative method.
        base_ms: T of the step without speculation.
        kind: steps that draft nothing, or steps that verify drafts.
        batch: B of the step.
        tokens: tokens of each drafting request: k + 1; 1 for idle.
    """
    alike = [
        one
        for one in library().entries
        if one.added_ms is not None
        and one.added_ms > 0
        and engine in (None, one.engine)
        and one.method == method
        and (runner is None or one.runner in (None, runner))
    ]
    if len(alike) < _FEWEST:
        return None
    own = [one for one in alike if one.kind == "idle"]
    ratios = _ratios(alike) if kind == "drafting" else []
    if len(own) < _FEWEST:
        own, ratios = alike, []  # nothing to pair
    ms, low, high = _prediction([_added(one) for one in own])
    source = _source(own, version)
    if kind == "drafting" and own is not alike:
        ms, low, high = _paired((ms, low, high), ratios, [_added(one) for one in alike])
        times = f"x {ms / _middle(own):.2f} from {len(ratios)} pairs of one run" if ratios else "as of the other kind"
        source = f"{source}; drafting {times}"
    return EngineMode(
        kind=kind,
        method=method,
        runner=runner,
        batch=batch,
        tokens=tokens,
        ms=ms,
        low=low,
        high=high,
        step_ms=base_ms + ms,
        base_ms=base_ms,
        source=source,
    )


def _added(one: Entry) -> float:
    assert one.added_ms is not None
    return one.added_ms


def _middle(of: Sequence[Entry]) -> float:
    return math.exp(fmean(math.log(_added(one)) for one in of))


def _ratios(alike: Sequence[Entry]) -> list[float]:
    """Return M1 / M0 of each drafting entry that has an idle one beside it: of one machine, run and batch."""

    def run(one: Entry) -> tuple[object, ...]:
        return one.engine, one.version, one.runner, one.method, one.model, one.hardware, one.how, one.batch

    idle = {run(one): _added(one) for one in alike if one.kind == "idle"}
    return [_added(one) / idle[run(one)] for one in alike if one.kind == "drafting" and run(one) in idle]


def _paired(
    idle: tuple[float, float, float], ratios: Sequence[float], every: Sequence[float]
) -> tuple[float, float, float]:
    """Return M1 with its interval from M0 with its own; without a ratio it is M0, up to twice and down to half."""
    ms, low, high = idle
    logs = [math.log(one) for one in ratios]
    factor = math.exp(fmean(logs)) if logs else 1.0
    # Beyond their spread: a ratio of one run or of none may be anything from half to twice on another.
    spread = max(_UNPAIRED, stdev(logs) * math.sqrt(1 + 1 / len(logs)) * _Z if len(logs) > 1 else 0.0)
    middle = max(ms * factor, low)
    below, above = math.hypot(math.log(ms / low), spread), math.hypot(math.log(high / ms), spread)
    return middle, min(*every, middle * math.exp(-below)), max(*every, high, middle * math.exp(above))


def _prediction(values: Sequence[float]) -> tuple[float, float, float]:
    from scipy import special  # noqa: PLC0415 - lazy

    logs = [math.log(one) for one in values]
    n, middle = len(logs), math.exp(fmean(logs))
    half = float(special.stdtrit(n - 1, (1 + _LEVEL) / 2)) * stdev(logs) * math.sqrt(1 + 1 / n)
    return middle, min(*values, middle * math.exp(-half)), max(*values, middle * math.exp(half))


def _source(own: Sequence[Entry], version: str | None) -> str:
    machines = sorted({one.hardware for one in own})
    releases = sorted({one.version for one in own if one.version})
    other = f", none of {version}" if version and version not in releases else ""
    return f"library: {len(own)} entries ({'; '.join(machines)}; releases {', '.join(releases) or 'unknown'}{other})"
