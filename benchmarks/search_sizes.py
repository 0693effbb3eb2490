"""How large errors of predictions are: a likelihood fit of `draftworth.search.belief.Sizes`, and how they cover.

    python -m benchmarks.search_sizes

Prints; nothing is written. The figures in use are rounded, and where these cells cannot tell them, said to be
allowances.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np
from benchmarks.search_draws import as_measured, within_of
from benchmarks.search_grids import Run
from benchmarks.search_replay import SEED, observation, rules_of, runs
from numpy.typing import NDArray
from scipy.optimize import minimize

from draftworth.search.base import Candidate
from draftworth.search.belief import Belief, Sizes, prior


def fit_sizes(kinds: Sequence[Run]) -> None:
    """Print the likelihood of real arms' errors under the sizes, and the best of a simplex search."""
    data = [_errors(run) for run in kinds]

    def at(sizes: Sizes) -> float:
        return sum(_log_likelihood(candidates, loads, errors, sizes) for candidates, loads, errors in data)

    def of(point: NDArray[np.float64]) -> Sizes:
        scale, mode, bend, own = np.exp(np.clip(point[:4], -12, 2))
        shared, across = 1 / (1 + np.exp(-np.clip(point[4:], -12, 12)))
        return Sizes(float(scale), float(shared), float(mode), float(bend), Sizes().length, float(own), float(across))

    start = np.array([*np.log([0.5, 0.08, 0.02, 0.05]), 1.0, 0.0])
    tries = [
        minimize(lambda point: -at(of(point)), start + shift, method="Nelder-Mead", options={"maxfev": 4000})
        for shift in np.random.default_rng(SEED).normal(0, 0.7, (8, len(start)))
    ]
    best = of(min(tries, key=lambda one: float(one.fun)).x)
    print(f"the tool's: {at(Sizes()):.1f} {Sizes()}")
    print(f"the likeliest: {at(best):.1f} {best}")
    rms = [error / sd for candidates, _, errors in data for error, sd in zip(errors, _stated(candidates), strict=True)]
    print(f"root mean square of error / stated standard error: {math.sqrt(np.mean(np.square(rms))):.2f}")
    for cpu in (True, False):
        mine = [run for run in kinds if run.cpu is cpu]
        means = [
            float(
                np.mean(
                    [error for name, error in run.real_errors(load, _all(run, load)).items() if "suffix" not in name]
                )
            )
            for run in mine
            for load in run.loads
        ]
        print(
            f"{'CPU' if cpu else 'GPU'}: within groups {within_of(mine):.3f}, rms of groups' means {np.std(means):.3f}"
        )


def _all(run: Run, load: int) -> NDArray[np.int64]:
    return np.arange(run.prompts(load))


def _errors(run: Run) -> tuple[list[Candidate], tuple[int, ...], list[float]]:
    grid = as_measured(run)
    errors = [run.places[one.name, load].error(_all(run, load)) for one in grid.candidates for load in run.loads]
    return list(grid.candidates), run.loads, errors


def _stated(candidates: Sequence[Candidate]) -> list[float]:
    return [one.predicted[load].sd for one in candidates if one.predicted for load in sorted(one.predicted)]


def _log_likelihood(
    candidates: Sequence[Candidate], loads: tuple[int, ...], errors: Sequence[float], sizes: Sizes
) -> float:
    _, cov = prior(candidates, loads, sizes)
    half = np.linalg.cholesky(cov + 1e-9 * np.eye(len(errors)))
    z = np.linalg.solve(half, np.array(errors))
    return -float(z @ z) / 2 - float(np.log(np.diag(half)).sum())


def left_out(kinds: Sequence[Run]) -> None:
    """Print how well a real arm is known from the others of its run: each in turn is left out of the observations."""
    z = []
    for run in kinds:
        grid, rules = as_measured(run), rules_of(run)
        for at, one in enumerate(grid.candidates):
            others = [observation(grid, other, rules) for other in range(len(grid.candidates)) if other != at]
            belief = Belief(grid.candidates, run.loads, others, baseline_sd=rules.baseline_sd)
            _, seen = belief.next_start(one.name, rules.start_sd)
            sd = np.sqrt(np.diag(seen))
            z += list((grid.measured[at] - [speed.value for speed in belief.of(one.name).values()]) / sd)
    inside = float((np.abs(z) < 1.96).mean())  # noqa: PLR2004 - 95 %
    rms = math.sqrt(np.mean(np.square(z)))
    print(f"{len(z)} cells, each from the other arms: rms z {rms:.2f}, {inside:.0%} inside 95 %")


def main() -> int:
    """Print."""
    kinds = runs()[:4]
    fit_sizes(kinds)
    left_out(kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
