"""Whether several files are ranks of one run, and which of them the others wait for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.profiles.base import Profile
from draftworth.profiles.events import Recorded
from draftworth.profiles.folder import group_of

_APART_US = 1e6
"""How far apart recordings of one run may lie: clocks of two hosts differ."""


@dataclass(frozen=True)
class File:
    """What one file says of the run it is of.

    Attributes:
        source: the file.
        rank: that the trace or its name tells; None where neither does, or where it holds several GPUs.
        group: the data parallel group of its name: ranks of two groups may have one number.
        world: ranks of the run.
        first: when recording began, in µs since 1970; None where the file's clock is its own.
        last: when it ended.
        engine: name and version.
        gpu: whether it has kernels of a GPU.
    """

    source: str
    rank: int | None = None
    group: int | None = None
    world: int | None = None
    first: float | None = None
    last: float | None = None
    engine: str = ""
    gpu: bool = True


def described(found: Recorded, profiles: Sequence[Profile]) -> File:
    """Return what a file says of its run."""
    told: Any = found.meta.get("distributedInfo")
    world = told.get("world_size") if isinstance(told, dict) else None
    base: Any = found.meta.get("baseTimeNanoseconds")
    known = isinstance(base, int | float) and found.last >= found.first
    return File(
        source=found.source,
        rank=profiles[0].rank if len(profiles) == 1 else None,
        group=group_of(found.source),
        world=world if isinstance(world, int) else None,
        first=found.first + base / 1e3 if known else None,
        last=found.last + base / 1e3 if known else None,
        engine=profiles[0].engine,
        gpu=bool(found.devices),
    )


def check_one_run(files: Sequence[File]) -> list[str]:
    """Refuse files that are not ranks of one run.

    Returns:
        What remains in doubt.

    Raises:
        UsageError: two have the same rank, were recorded at different times, or are of different engines.
    """
    for number, one in enumerate(files):
        for other in files[:number]:
            if why := _two_runs(other, one):
                names = _names(other.source, one.source)
                raise UsageError(
                    f"{names}: not ranks of one run ({why}): name the files of one run; for two runs `profile compare`"
                )
    doubts = []
    if len(files) > 1 and (nameless := [one for one in files if one.rank is None and one.gpu]):
        names = ", ".join(Path(one.source).name for one in nameless)
        doubts.append(f"taken as ranks of one run because they were named together: no rank is told by {names}")
    world = max((one.world or 0 for one in files), default=0)
    if 1 < len(files) < world or (len(files) == 1 and world > 1 and files[0].rank is not None):
        doubts.append(
            f"{len(files)} of the run's {world} ranks {'was' if len(files) == 1 else 'were'} read: another "
            "may be the slowest"
        )
    return doubts


def slowest(ranks: Sequence[Profile]) -> Profile:
    """Return the rank that is busy longest outside of collectives, for which the others wait within theirs."""
    return max(ranks, key=_work)


def waiting(ranks: Sequence[Profile]) -> list[str]:
    """Return what the ranks' all-reduces say of waiting."""
    reduced = [one.of("all-reduce") / (one.steps or 1) for one in ranks]
    if not max(reduced):
        return []
    unit = "a step" if all(one.steps for one in ranks) else "in the span"
    said = f"all-reduce takes {min(reduced):.3f} ms {unit} on one rank and {max(reduced):.3f} on another"
    return [f"{said}: the difference is waiting for the slowest"]


def _two_runs(one: File, other: File) -> str:
    if one.rank is not None and (one.rank, one.group) == (other.rank, other.group):
        return f"both are rank {one.rank}"
    if one.gpu != other.gpu:
        return "one is of a GPU, the other of a CPU"
    if _other_engine(one.engine, other.engine):
        return f"of {one.engine} and of {other.engine}"
    if one.world is not None and other.world is not None and one.world != other.world:
        return f"one is of a run of {one.world} ranks, the other of {other.world}"
    if one.first is None or one.last is None or other.first is None or other.last is None:
        return ""
    apart = max(one.first, other.first) - min(one.last, other.last)
    return f"recorded {apart / 1e6:,.0f} s apart" if apart > _APART_US else ""


def _other_engine(one: str, other: str) -> bool:
    """Return whether two engines differ; a version that one file does not tell is no difference."""
    if not one or not other:
        return False
    versions = " " in one and " " in other
    return one != other if versions else one.partition(" ")[0] != other.partition(" ")[0]


def _names(one: str, other: str) -> str:
    return f"{one} named twice" if Path(one).resolve() == Path(other).resolve() else f"{one} and {other}"


def _work(one: Profile) -> float:
    """Return a rank's milliseconds outside of collectives and idle time, a step where known."""
    busy = sum(its.ms for its in one.classes if its.name not in {"all-reduce", "other collectives"})
    return busy / (one.steps or 1)
