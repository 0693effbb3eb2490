"""Grids with a known best, for search_replay.py: what a trial measured, or would have measured, of every setting.

Of a setting that was not measured it is the prediction plus an error that is drawn, with the sizes of the real arms'
errors. Prompts are resampled with replacement; at each load the error of the whole group is the mean of the real arms'
errors of a resample of arms; each arm that was not measured adds an error of its own and one of its start; real arms
keep their real error. How an error is split between arm and start cannot be told from one start: half of the variance
each, which is 0.07 on the H200, where starts alone were measured to spread by 0.05 to 0.08.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.search_grids import KS, WINDOWS, Run
from numpy.typing import NDArray

from draftworth.search.base import Candidate, LogSpeed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """One grid.

    Attributes:
        run: which run it is made of.
        candidates: with predictions.
        measured: [C, L], what one start of each measures, log speed-up.
        true: [C, L], what it is without its start's error.
        prompt_sd: [C, L].
        start_sd: of one start, in what was drawn.
    """

    run: Run
    candidates: tuple[Candidate, ...]
    measured: Floats
    true: Floats
    prompt_sd: Floats
    start_sd: float


def draw(run: Run, within: float, rng: np.random.Generator) -> Grid:
    """Return one grid of 9 to 16 settings: a cross product of k and windows, and the run's real arms.

    Args:
        run: what it is made of.
        within: sd of arms' errors around that of their group, of this kind of machine.
        rng: draws it.
    """
    names = _settings(run, rng)
    shape = len(names), len(run.loads)
    predicted: list[dict[int, LogSpeed]] = [{} for _ in names]
    total, true, prompt_sd = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    half = within / math.sqrt(2)
    for number, load in enumerate(run.loads):
        picks = rng.integers(0, run.prompts(load), run.prompts(load))
        errors = run.real_errors(load, picks)
        centre = _groups(run, errors, rng)
        for at, name in enumerate(names):
            place = run.places[name, load]
            told = place.predicted(picks)
            predicted[at][load] = told
            prompt_sd[at, number] = place.prompt_sd(picks)
            middle = centre[run.arms[name].method]
            if name in errors:
                left = errors[name] - middle
                # Half of the variance is the arm's: given the sum, its part is half of it, give or take.
                own = left / 2 + rng.normal(0, half / math.sqrt(2))
            else:
                own = rng.normal(0, half)
                left = own + rng.normal(0, half)
            total[at, number] = told.value + middle + left
            true[at, number] = told.value + middle + own
    candidates = tuple(run.arms[name].model_copy(update={"predicted": predicted[at]}) for at, name in enumerate(names))
    return Grid(run, candidates, total, true, prompt_sd, half)


def as_measured(run: Run) -> Grid:
    """Return the grid of a run's real arms alone, as they were measured: nothing is drawn."""
    names = sorted(run.real)
    predicted: list[dict[int, LogSpeed]] = [{} for _ in names]
    total, prompt_sd = np.zeros((len(names), len(run.loads))), np.zeros((len(names), len(run.loads)))
    for number, load in enumerate(run.loads):
        every = np.arange(run.prompts(load))
        for at, name in enumerate(names):
            place = run.places[name, load]
            predicted[at][load] = place.predicted(every)
            total[at, number] = predicted[at][load].value + place.error(every)
            prompt_sd[at, number] = place.prompt_sd(every)
    candidates = tuple(run.arms[name].model_copy(update={"predicted": predicted[at]}) for at, name in enumerate(names))
    return Grid(run, candidates, total, total, prompt_sd, 0.0)


def within_of(runs: Sequence[Run]) -> float:
    """Return the sd of real arms' errors around the mean of their group at their load, pooled over runs."""
    squares, free = 0.0, 0
    for run in runs:
        for load in run.loads:
            errors = run.real_errors(load, np.arange(run.prompts(load)))
            for some in by_method(run, errors).values():
                squares += float(((np.array(some) - np.mean(some)) ** 2).sum())
                free += len(some) - 1
    return math.sqrt(squares / free)


def _settings(run: Run, rng: np.random.Generator) -> list[str]:
    by_setting = {(one.k, one.min, one.max): name for name, one in run.arms.items() if one.method == "ngram"}
    ks = rng.choice(len(KS), 3, replace=False)
    windows = rng.choice(len(WINDOWS), int(rng.integers(2, 5)), replace=False)
    names = {by_setting[KS[at], *WINDOWS[window]] for at in ks for window in windows} | run.real
    return sorted(names)


def _groups(run: Run, errors: Mapping[str, float], rng: np.random.Generator) -> dict[str, float]:
    """Return a method's error: the mean over a resample of its real arms."""
    return {
        method: float(np.mean(rng.choice(np.array(some), len(some)))) for method, some in by_method(run, errors).items()
    }


def by_method(run: Run, errors: Mapping[str, float]) -> dict[str, list[float]]:
    """Return method to the errors of its arms."""
    found: dict[str, list[float]] = {}
    for name, error in errors.items():
        found.setdefault(run.arms[name].method, []).append(error)
    return found
