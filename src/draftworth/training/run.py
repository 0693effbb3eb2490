"""`train run`: every stage in order, each skipped where its inputs are unchanged, each resumable after a kill."""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from draftworth.errors import RefusedError, UsageError
from draftworth.models import Frozen
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.recipe import Recipe
from draftworth.training.registry import STAGES
from draftworth.training.speedup_lines import trial_lines
from draftworth.training.stages import read_manifest, why_stale, write_atomically

SCHEMA_VERSION = 1
_LOCK = ".lock"
_RECIPE = "recipe.json"


class Shows(Tell, Protocol):
    """Takes what a run of several stages does; `trials.progress.Progress` is one."""

    def step(self, title: str) -> None:
        """A stage begins."""

    def skip(self) -> None:
        """The next stage is left out."""


class StageReport(Frozen):
    """How one stage went."""

    stage: StageName
    done: Literal["made", "unchanged"]
    """Whether it ran, or its results were of the same inputs."""
    why: str
    """Why it ran; empty where it did not."""
    key: str
    """Of its manifest."""
    seconds: float
    """How long its work took, when it was made."""
    counts: dict[str, int]
    """See `StageManifest`."""
    facts: dict[str, Any]
    """See `StageManifest`."""


class RunReport(Frozen):
    """How a run went."""

    schema_version: int = SCHEMA_VERSION
    folder: str
    """The run folder."""
    stages: tuple[StageReport, ...]
    """In the order in which they ran."""


def run_stages(recipe: Recipe, names: Sequence[StageName], shows: Shows, *, again: bool = False) -> RunReport:
    """Run stages in order, each only where its inputs changed or it was not finished.

    Args:
        recipe: paths absolute.
        names: which; in the pipeline's order.
        shows: takes progress and findings.
        again: run them even where nothing changed.

    Raises:
        UsageError: an input is missing, or an earlier stage is not there.
        RefusedError: another process works in the run folder, or a stage refuses.
    """
    from draftworth.reports.training.live import LivePage  # noqa: PLC0415 - lazy: reports build on training

    folder = recipe.folder
    with only_one(folder):
        write_atomically(folder / _RECIPE, (recipe.model_dump_json(indent=1) + "\n").encode())
        with LivePage(recipe, names, shows) as page:
            reports = [_stage(recipe, name, page, again=again) for name in STAGES if name in names]
    return RunReport(folder=str(folder), stages=tuple(reports))


def _stage(recipe: Recipe, name: StageName, shows: Shows, *, again: bool) -> StageReport:
    stage, folder = STAGES[name], recipe.folder
    module = stage.load()
    _check_earlier(recipe, name)
    inputs = module.inputs(recipe, folder)
    why = why_stale(name.folder(folder), inputs) or ("asked to run again" if again else "")
    if not why:
        shows.skip()
        kept = read_manifest(name.folder(folder))
        assert kept is not None
        shows.line(f"{name}: unchanged since {kept.made}")
        return _report(kept, "")
    shows.step(f"{name}: {stage.about} ({why})")
    return _report(module.run(recipe, folder, shows), why)


def _check_earlier(recipe: Recipe, name: StageName) -> None:
    """Refuse to build on an earlier stage whose own inputs changed since.

    Raises:
        UsageError: names the stage, what changed, and what to run.
    """
    for needed in STAGES[name].needs:
        found = read_manifest(needed.folder(recipe.folder))
        if found is None:
            raise UsageError(f"{needed.folder(recipe.folder)}: not there yet; run `draftworth train {needed}` first")
        why = why_stale(needed.folder(recipe.folder), STAGES[needed].load().inputs(recipe, recipe.folder))
        if why:
            raise UsageError(f"the stage {needed} is old ({why}); run `draftworth train {needed}` first")


def _report(manifest: StageManifest, why: str) -> StageReport:
    return StageReport(
        stage=manifest.stage,
        done="made" if why else "unchanged",
        why=why,
        key=manifest.key,
        seconds=manifest.seconds,
        counts=manifest.counts,
        facts=manifest.facts,
    )


def up_to(last: StageName | None) -> list[StageName]:
    """Return the stages up to one, in order; all of them where none is named."""
    names = list(STAGES)
    return names if last is None else names[: names.index(last) + 1]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a run folder for this process, made where it is missing; the kernel lets go of it when the process ends.

    Raises:
        UsageError: it cannot be written.
        RefusedError: another process works in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            raise RefusedError(f"{folder}: another draftworth (process {holder or 'not known'}) works in it") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def lines(report: RunReport) -> list[str]:
    """Return a run for a person: one line a stage."""
    rows = [f"{one.stage:<7} {one.done:<9} {_brief(one.counts)}" for one in report.stages]
    facts = {one.stage: one.facts for one in report.stages}
    then = trial_lines(facts.get(StageName.EVAL, {}), facts.get(StageName.EXPORT, {}))
    return [*rows, f"Results: {report.folder}", *then]


def _brief(counts: Mapping[str, int], most: int = 4) -> str:
    plain = [(name, count) for name, count in counts.items() if ":" not in name][:most]
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in plain)
