"""A trained head's walk and predicted speed-up against what a trial with it as an arm measured.

Two walks are held against the server's counters: that over the arm's own answers (the same text, so that only the walk
itself can be off) and that over the held-out conversations (what was told before the trial, of other text). Acceptance
is within where it differs by at most 2 %, that of a position by two points, a speed-up by 5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import RefusedError, TrialError, UsageError
from draftworth.predict.base import Range
from draftworth.predict.trialrows import Load, Measured, measured
from draftworth.search.base import CHECKPOINTS
from draftworth.search.grid import candidate_of
from draftworth.training import speedup
from draftworth.training.acceptance import WalkCounts, WalkReport
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.evaluate import export_dtype, report_of
from draftworth.training.fit import BEST
from draftworth.training.recipe import Recipe
from draftworth.training.registry import STAGES
from draftworth.training.speedup_answers import Text, added, text_of, trained_on, walk_answers
from draftworth.training.speedup_held import (
    HELD_OUT,
    OWN,
    SHARE,
    SPEED_UP,
    Held,
    PointCheck,
    TrialCheck,
    Walked,
    hold,
)
from draftworth.training.speedup_lengths import lengths
from draftworth.training.stages import required, why_stale, write_atomically
from draftworth.trials.record import ArmRecord, TrialRecord

if TYPE_CHECKING:
    from draftworth.costs.base import Costs
    from draftworth.costs.model import FittedModel


def check_trial(recipe: Recipe, folder: Path, tell: Tell, *, arm: str | None = None) -> TrialCheck:
    """Hold the walk and the predicted speed-up against a finished trial, and keep what was found.

    Args:
        recipe: paths absolute; its stages up to the export have run.
        folder: the trial's.
        tell: takes progress.
        arm: the arm that drafted with this head, where it was served from a copy; None finds it by the folder.

    Raises:
        UsageError: a stage is missing or old, the trial cannot be read, or it has no arm with this head.
    """
    fitted = _fresh(recipe)
    trial = measured(folder)
    found = _arm(trial, StageName.EXPORT.folder(recipe.folder), arm)
    config = found.declared.get("speculative_config") or {}
    k = candidate_of(found.name, config, engine=found.engine).k
    if not k:
        raise UsageError(f"{trial.record.id}, {found.name}: its configuration does not say how many tokens it drafts")
    loads = [load for (name, _), load in trial.loads.items() if name == found.name]
    if not loads:
        why = [one for one in trial.missing if one.startswith(f"{trial.record.id}, {found.name}")]
        raise UsageError(next(iter(why), f"{trial.record.id}, {found.name}: nothing was measured of it"))
    walks = _walks(recipe, loads, k, tell)
    predictor = _predictor(recipe, trial)
    checked = TrialCheck(
        trial=trial.record.id,
        arm=found.name,
        k=k,
        model=_model(found) or "",
        points=tuple(_point(trial, load, walks, predictor) for load in loads),
        notes=(
            *trained_on(recipe.folder, [row for load in loads for row in load.rows]),
            *_notes(trial.record, fitted, walks, predictor),
        ),
    )
    path = StageName.EVAL.folder(recipe.folder) / f"trial-{trial.record.id}.json"
    write_atomically(path, (checked.model_dump_json(indent=1) + "\n").encode())
    return checked


def _fresh(recipe: Recipe) -> StageManifest:
    """Return the training's manifest.

    Raises:
        UsageError: the evaluation or the export is missing or old.
    """
    for name in (StageName.EVAL, StageName.EXPORT):
        required(recipe.folder, name)
        why = why_stale(name.folder(recipe.folder), STAGES[name].load().inputs(recipe, recipe.folder))
        if why:
            raise UsageError(f"the stage {name} is old ({why}); run `draftworth train {name}` first")
    return required(recipe.folder, StageName.FIT)


def _model(arm: ArmRecord) -> str | None:
    config = arm.declared.get("speculative_config")
    if not isinstance(config, Mapping):
        return None
    return next((str(config[key]) for key in CHECKPOINTS if config.get(key)), None)


def _arm(trial: Measured, export: Path, name: str | None) -> ArmRecord:
    """Return the arm that drafted with the exported head.

    Raises:
        UsageError: there is none.
    """
    record = trial.record
    heads = {one.name: one for one in record.arms[1:] if _model(one)}
    if name is not None:
        if name not in heads:
            raise UsageError(
                f"--arm: trial {record.id} has no arm {name!r} with a head; there are {', '.join(heads) or 'none'}"
            )
        return heads[name]
    same = [one for one in heads.values() if Path(_model(one) or "").resolve() == export.resolve()]
    if len(same) == 1:
        return same[0]
    if same:
        names = ", ".join(one.name for one in same)
        raise UsageError(f"trial {record.id}: several arms draft with {export}: {names}; say which by --arm")
    others = ", ".join(f"{one.name} with {_model(one)}" for one in heads.values())
    raise UsageError(
        f"trial {record.id}: no arm drafts with {export} ({others or 'none has a head'}); --arm names one that was "
        "served from a copy"
    )


@dataclass(frozen=True, slots=True)
class _Walks:
    """Walks with one k: over the held-out conversations, and over each of the arm's answers, or why there is none."""

    k: int
    report: WalkReport
    own: Mapping[Text, WalkCounts]
    why_not: str


def _walks(recipe: Recipe, loads: Sequence[Load], k: int, tell: Tell) -> _Walks:
    report = report_of(recipe.folder)
    texts = dict.fromkeys(text for load in loads for row in load.rows if (text := text_of(row)) is not None)
    if not texts:
        return _Walks(k, report, {}, "the trial kept no token ids of them")
    try:
        return _Walks(k, report, walk_answers(recipe, list(texts), k, tell), "")
    except (RefusedError, TrialError) as error:
        return _Walks(k, report, {}, str(error))


@dataclass(frozen=True, slots=True)
class _Predictor:
    """Predicts a head's speed-up at the points of a trial."""

    costs: "Costs"
    model: "FittedModel"
    share: float

    def at(self, plain: Load, k: int, length: Range) -> Range:
        """Return the predicted speed-up, prefills of others counted as the baseline tells them."""
        from draftworth.costs.prefill import prefill_share  # noqa: PLC0415 - lazy

        place = plain.place
        (found,) = speedup.predict_at(
            self.model,
            {k: length},
            share=self.share,
            context=place.context,
            concurrency=place.batch,
            prefill=prefill_share(place, place.sums.tpot, self.costs.points),
        )
        return found.speed_up


def _predictor(recipe: Recipe, trial: Measured) -> _Predictor | str:
    """Return what predicts with the recipe's costs, or why nothing does."""
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy
    from draftworth.predict.trialcosts import contradiction  # noqa: PLC0415 - lazy

    if recipe.eval.costs is None:
        return f"there are no costs: {speedup.HOW_TO}"
    costs = load_costs(recipe.eval.costs)
    if why := contradiction(costs, trial.record):
        return why
    best = StageName.FIT.folder(recipe.folder) / BEST
    share = speedup.head_share(best, recipe.target, export_dtype(recipe.target))
    if share is None:
        return "config.json of the target does not tell which weights a step reads"
    return _Predictor(costs, speedup.fitted(costs, recipe.target), share)


def _point(trial: Measured, load: Load, walks: _Walks, predictor: _Predictor | str) -> PointCheck:
    counts, plain = load.counts, trial.loads.get((trial.baseline, load.label))
    k, report, why_not = walks.k, walks.report, walks.why_not
    rows = [row for row in load.rows if row.tokens is not None]
    texts = [(row.prompt, text_of(row)) for row in rows]
    known = [(prompt, walks.own[text]) for prompt, text in texts if text is not None and text in walks.own]
    walk = added([one for _, one in known], k) if known else None
    held: list[Held] = []
    missing: list[str] = [f"the arm's own answers were not walked: {why_not}"] if why_not else []
    if known and len(known) < len(rows):
        missing.append(f"{len(rows) - len(known):,} of {len(rows):,} answers have no token ids and were not walked")
    if counts is None:
        missing.append("the server's counts at this load are not known")
    walked = {OWN: walk, HELD_OUT: report.at(k)}
    for by, one in walked.items():
        if one is not None and counts is not None:
            held += _acceptance(by, one, counts)
    reached = {OWN: _by_prompt(known, k), HELD_OUT: _held_out(report, k)}
    told = _speed(trial.record, load)
    if told is None:
        missing.append("the trial has no TPOT ratio at this load")
    elif plain is None:
        missing.append("the baseline was not measured at this load")
    elif isinstance(predictor, str):
        missing.append(f"the speed-up was not predicted: {predictor}")
    else:
        for by, length in reached.items():
            if length is not None:
                held.append(hold(SPEED_UP, by, predictor.at(plain, k, length), told))
    return PointCheck(
        point=load.label,
        concurrency=load.place.batch,
        context=load.place.context if plain is None else plain.place.context,
        answers=len(rows),
        walked=len(known),
        counts=counts,
        walk=walk,
        held=tuple(held),
        missing=tuple(missing),
    )


def _acceptance(by: Walked, walk: WalkCounts, counts: AcceptanceCounts) -> list[Held]:
    """Return every rate of a walk that the server's counts give too."""
    told = (
        ("tokens a step", walk.emitted / walk.steps if walk.steps else None, counts.length_per_step),
        ("tokens a drafting step", walk.length, counts.length_per_drafting_step),
    )
    found = [hold(what, by, mine, theirs) for what, mine, theirs in told if mine is not None and theirs]
    shares = zip(walk.survival or (), counts.survival or (), strict=False)
    return [*found, *(hold(f"{SHARE} {at}", by, mine, theirs) for at, (mine, theirs) in enumerate(shares, start=1))]


def _by_prompt(walks: Sequence[tuple[str, WalkCounts]], k: int) -> Range | None:
    """Return the length per step of walks, prompts alike, the repeats of one together, as a trial's TPOT has them."""
    sums: dict[str, tuple[int, int]] = {}
    for prompt, one in walks:
        tokens, steps = sums.get(prompt, (0, 0))
        sums[prompt] = tokens + one.emitted, steps + one.steps
    whole = [one for one in sums.values() if one[0]]
    return lengths([one[0] for one in whole], {k: [one[1] for one in whole]}).get(k)


def _held_out(report: WalkReport, k: int) -> Range | None:
    if report.conversations is None or k not in report.conversations.steps:
        return None
    return lengths(*report.conversations.of(None)).get(k)


def _speed(record: TrialRecord, load: Load) -> Range | None:
    """Return the measured speed-up with its interval; None where the trial has none at this point."""
    own = next((one for one in record.comparisons if one.arm == load.arm.name), None)
    if own is None:
        return None
    points = [one for one in own.categories if one.kind == "point" and one.category == load.label]
    ratio = points[0].tpot_ratio if points else own.tpot_ratio if not load.label else None
    if ratio is None or ratio.estimate <= 0:
        return None
    low, high = ratio.low or ratio.estimate, ratio.high or ratio.estimate
    return Range(value=1 / ratio.estimate, low=1 / high, high=1 / low)


def _notes(record: TrialRecord, fitted: StageManifest, walks: _Walks, predictor: _Predictor | str) -> list[str]:
    found = []
    if fitted.made > record.created:
        found.append(f"the head was trained until {fitted.made}, after this trial began: it measured another one")
    if walks.report.at(walks.k) is None:
        found.append(f"held-out conversations were not walked with k = {walks.k}: add it to k in [eval]")
    if not isinstance(predictor, str) and speedup.mode_known(predictor.model) != "measured":
        found.append(
            "the engine's mode with such a head is not in the costs: none is predicted, and what it takes is in the "
            "difference"
        )
    return found
