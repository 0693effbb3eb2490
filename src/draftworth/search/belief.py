"""What is believed of every candidate at every load: a joint normal distribution of log speed-ups.

Before anything was measured the mean is the prediction, and two errors of predictions go together where they have a
cause in common. With s(c, l) the standard error that the prediction of candidate c at load l states:

    cov = R(l, l') (  shared S² s(c, l) s(c', l')            both of one group: its engine mode
                    + mode²                                  both of one group: what no interval states
                    + bend² exp(-(log(k+1) - log(k'+1))² / (2 length²))   both of one family: they differ in k alone
                    + (1 - shared) S² s(c, l)² )             c = c': the rest of what the prediction states; where
                                                             nothing is predicted, as smooth in k as `bend`
          + own²                                             c = c' and l = l'

R falls from 1 by a factor of `across` for each doubling of the load. Observations are the truth, plus the error of the
baseline's own start, which all over that start share (where a search was gone on with, each trial had one of its own),
plus each one's own. Conditioning is exact (Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning",
equations 2.22 to 2.24).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.search.base import BASELINE, Candidate, LogSpeed, Observation

Floats = NDArray[np.float64]

_JITTER = 1e-10
"""Added to the variance of an observation, in squared log speed: 1e-5 of speed, far below what can be measured."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large errors of predictions are, in log speed.

    From the 50 replayed cells of benchmarks/results/prediction.json (four runs, three or four arms a load;
    `python -m benchmarks.search_sizes` fits them anew). Each cell is one start of a server, and starts alone
    spread by 0.05 to 0.08 on a GPU and 0.03 to 0.07 on a CPU (benchmarks/results/restart_spread*.json). So an arm's own
    error beyond its start is hardly seen there: `bend` and `own` are allowances.

    Attributes:
        scale: S. Errors over stated standard errors have a root mean square of 0.6 to 0.7 (by how the cost model was at
            the time): stated intervals are too wide.
        shared: what of the stated variance is one error of the whole group. Most of an interval is the engine mode's,
            which all settings of a method run in; a likelihood fit leaves 0.25 s to each arm by itself, which is
            0.6 sqrt(1 - 0.85).
        mode: sd of a group's error beside what is stated: by likelihood 0.07 to 0.09, nearly all of it on the H200.
        bend: sd of the error that changes smoothly with k. Three or four k a family tell none apart from `own`.
        length: how far in log(k + 1) it changes: k = 1 and 3 go together by 0.4, 4 and 5 by 0.9.
        own: sd of what is left, for each candidate and load by itself: 0.05 to 0.06 with the start in it.
        across: correlation of two loads, one twice the other. The cells show 0 to 0.2, but their modes were fitted
            at each load by itself; a mode that is carried over errs at all of them.
        wide: stated standard error where nothing is known; its mean is 0. Measured speed-ups go from 0.3 to 3.5.
    """

    scale: float = 0.6
    shared: float = 0.85
    mode: float = 0.08
    bend: float = 0.02
    length: float = 0.5
    own: float = 0.03
    across: float = 0.5
    wide: float = 0.6


class Belief:
    """The distribution given some observations.

    Attributes:
        names: the candidates', in the order of the arrays.
        loads: rising.
        mean: [C, L], log speed-ups.
        cov: [C * L, C * L], load fastest.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        loads: Sequence[int],
        observations: Sequence[Observation] = (),
        *,
        sizes: Sizes | None = None,
        baseline_sd: float = 0.0,
    ) -> None:
        """Condition on everything measured.

        Args:
            candidates: with distinct names.
            loads: those that count; what was measured at others is not used.
            observations: of these candidates; several of one are several starts.
            sizes: of the errors of predictions.
            baseline_sd: of the log speed of one start of the baseline, which observations are over; taken as one and
                the same at all loads.

        Raises:
            ValueError: two candidates have one name or one is called `baseline`, an observation is of none, or a load
                is below 1 or there is none.
        """
        self.names = tuple(one.name for one in candidates)
        if len({*self.names, BASELINE}) <= len(self.names):
            raise ValueError(f"candidates have distinct names, none of them {BASELINE!r}: {list(self.names)}")
        self.loads = tuple(sorted(set(loads)))
        if not self.loads or self.loads[0] < 1:
            raise ValueError(f"a search needs loads of at least 1, not {list(loads)}")
        self._at = {name: number for number, name in enumerate(self.names)}
        mean, cov = prior(candidates, self.loads, sizes or Sizes())
        # Behind the speeds are the errors of the baseline's starts: this trial's (None), then earlier ones'.
        speeds = mean.size
        starts = list(dict.fromkeys([None, *(one.baseline for one in observations)]))
        self._starts = {start: speeds + number for number, start in enumerate(starts)}
        flat = np.append(mean.reshape(-1), np.zeros(len(starts)))
        whole = np.zeros((len(flat), len(flat)))
        whole[:speeds, :speeds], whole[speeds:, speeds:] = cov, baseline_sd**2 * np.eye(len(starts))
        flat, self._whole = self._given(flat, whole, observations)
        self.mean, self.cov = flat[:speeds].reshape(mean.shape), self._whole[:speeds, :speeds]

    def of(self, name: str) -> dict[int, LogSpeed]:
        """Return what is believed of one candidate, by load."""
        sd = np.sqrt(np.maximum(np.diag(self.cov)[self.rows(name)], 0.0))
        return {
            load: LogSpeed(value=float(value), sd=float(error))
            for load, value, error in zip(self.loads, self.mean[self._at[name]], sd, strict=True)
        }

    def rows(self, name: str) -> slice:
        """Return where a candidate's loads lie in `cov`."""
        first = self._at[name] * len(self.loads)
        return slice(first, first + len(self.loads))

    def next_start(self, name: str, start_sd: float) -> tuple[Floats, Floats]:
        """Return how what one more start of a candidate will show goes together with every speed, and its own spread.

        Args:
            name: the candidate's.
            start_sd: what that start will be off by, at each load by itself.

        Returns:
            [C * L, L] covariances, and [L, L].
        """
        mine, start = self.rows(name), self._starts[None]
        towards = self._whole[:, mine] + self._whole[:, [start]]
        seen = towards[mine] + towards[start]
        return towards[: self.mean.size], seen + np.eye(len(self.loads)) * (start_sd**2 + _JITTER)

    def _given(self, mean: Floats, cov: Floats, observations: Sequence[Observation]) -> tuple[Floats, Floats]:
        at, start, values, noise = [], [], [], []
        for one in observations:
            if one.candidate not in self._at:
                raise ValueError(f"an observation is of {one.candidate!r}, which is no candidate")
            for number, load in enumerate(self.loads):
                if load in one.measured:
                    at.append(self._at[one.candidate] * len(self.loads) + number)
                    start.append(self._starts[one.baseline])
                    values.append(one.measured[load].value)
                    noise.append(one.measured[load].sd ** 2)
        if not at:
            return mean, cov
        seen, over = np.array(at), np.array(start)
        towards = cov[seen] + cov[over]
        half = np.linalg.cholesky(towards[:, seen] + towards[:, over] + np.diag(np.array(noise) + _JITTER))
        gain = np.linalg.solve(half, towards)
        return mean + gain.T @ np.linalg.solve(half, np.array(values) - mean[seen] - mean[over]), cov - gain.T @ gain


def prior(candidates: Sequence[Candidate], loads: Sequence[int], sizes: Sizes) -> tuple[Floats, Floats]:
    """Return mean [C, L] and covariance [C * L, C * L] before anything was measured."""
    told = [[_told(one, load, sizes) for load in loads] for one in candidates]
    mean = np.array([[one.value for one in row] for row in told]).reshape(len(candidates), len(loads))
    # A prediction states more than its error; between nothing and everything accepted nothing is stated.
    scale = [sizes.scale if one.predicted or not one.bounds else 1.0 for one in candidates for _ in loads]
    stated = np.array(scale) * np.array([one.sd for row in told for one in row])
    apart = np.log2(np.asarray(loads, dtype=np.float64))
    across = sizes.across ** np.abs(apart[:, None] - apart[None, :])
    group = _alike([one.group for one in candidates])
    near = _alike([one.family for one in candidates]) * _near([one.k for one in candidates], sizes.length)
    same = np.eye(len(candidates))
    unknown = np.array([float(one.predicted is None) for one in candidates])
    # Where nothing is predicted, nothing was said of k either: settings of neighbouring k are alike.
    alone = np.where(np.outer(unknown, unknown) > 0, near, same)
    cov = np.kron(sizes.mode**2 * group + sizes.bend**2 * near, across) + sizes.own**2 * np.eye(len(stated))
    told_of = sizes.shared * group + (1 - sizes.shared) * alone
    # How much of a head's drafts is accepted is one figure at all loads.
    bounded = np.array([float(one.predicted is None and bool(one.bounds)) for one in candidates])
    both = np.outer(bounded, bounded)
    at_loads = np.kron(told_of * (1 - both), across) + np.kron(told_of * both, np.ones_like(across))
    return mean, cov + at_loads * np.outer(stated, stated)


def _told(one: Candidate, load: int, sizes: Sizes) -> LogSpeed:
    return (one.predicted or one.bounds or {}).get(load) or LogSpeed(value=0.0, sd=sizes.wide)


def _alike(keys: Sequence[object]) -> Floats:
    return np.array([[float(one == other) for other in keys] for one in keys]).reshape(len(keys), len(keys))


def _near(ks: Sequence[int | None], length: float) -> Floats:
    at = np.array([math.log1p(k or 0) for k in ks])
    found: Floats = np.exp(-(((at[:, None] - at[None, :]) / length) ** 2) / 2)
    return found
