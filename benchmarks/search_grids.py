"""Measured runs as settings at loads, for search_replay.py: real arms, and more settings from a replay.

A run of benchmarks/data/prediction/ has three or four real arms beside one baseline at each load. Each is predicted
from the baseline as `draftworth predict --check` does it, so each has an error: log(measured / predicted). More
settings are predicted in the same way, from a replay of the baseline's own outputs and the run's costs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs
from draftworth.costs.model import FittedModel
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.predict.armreplay import replayed
from draftworth.predict.requests import Requests
from draftworth.predict.speculation import Replayable, replayable
from draftworth.predict.speedup import log_sd, over, weighted
from draftworth.predict.trialcosts import costs_of
from draftworth.predict.trialrows import Load, Measured, measured
from draftworth.search.base import Candidate, LogSpeed

Floats = NDArray[np.float64]

KS = (1, 2, 3, 4, 5, 6, 7, 8)
WINDOWS = ((1, 2), (1, 3), (2, 2), (2, 4), (3, 3), (3, 5), (5, 5))


@dataclass(frozen=True)
class Place:
    """One arm or setting at one load.

    Attributes:
        requests: its replayed steps, by prompt.
        own: milliseconds of a step by what a request drafts.
        base_ms: the baseline's step.
        cost_sd: standard error of log(step / base).
        ratios: measured TPOT by prompt, of the baseline and of the arm; None for a setting that was not measured.
    """

    requests: Requests
    own: Floats
    base_ms: float
    cost_sd: float
    ratios: tuple[Floats, Floats] | None

    def predicted(self, picks: NDArray[np.int64]) -> LogSpeed:
        """Return the prediction over some prompts, as `predict_one` makes it, with the step's costs of all prompts."""
        cost = self.requests.hist[picks] @ self.own / self.requests.tokens[picks]
        mean = float(cost.mean())
        spread = float(cost.std(ddof=1)) / math.sqrt(len(picks)) / mean
        return LogSpeed(value=math.log(self.base_ms / mean), sd=math.hypot(spread, self.cost_sd))

    def error(self, picks: NDArray[np.int64]) -> float:
        """Return log(measured / predicted speed-up) over some prompts."""
        assert self.ratios is not None
        base, arm = self.ratios
        return math.log(base[picks].mean() / arm[picks].mean()) - self.predicted(picks).value

    def prompt_sd(self, picks: NDArray[np.int64]) -> float:
        """Return the standard error over prompts of the log ratio, by replayed costs where it was not measured."""
        if self.ratios is not None:
            base, arm = (each[picks] for each in self.ratios)
            residual = arm / arm.mean() - base / base.mean()
            return float(residual.std(ddof=1)) / math.sqrt(len(picks))
        cost = self.requests.hist[picks] @ self.own / self.requests.tokens[picks]
        return float(cost.std(ddof=1)) / math.sqrt(len(picks)) / float(cost.mean())


@dataclass(frozen=True)
class Run:
    """One machine, engine and model.

    Attributes:
        name: `h200-smollm2-a`; with ` light` where the engine's mode was made cheaper.
        loads: rising.
        arms: every setting, predictions left out.
        real: names of those that were measured.
        places: name and load to what is known.
    """

    name: str
    loads: tuple[int, ...]
    arms: Mapping[str, Candidate]
    real: frozenset[str]
    places: Mapping[tuple[str, int], Place]

    @property
    def cpu(self) -> bool:
        """Whether it ran on a CPU."""
        return self.name.startswith("cpu")

    def prompts(self, load: int) -> int:
        """Return how many prompts a load has."""
        return len(next(place for (_, at), place in self.places.items() if at == load).requests.tokens)

    def real_errors(self, load: int, picks: NDArray[np.int64]) -> dict[str, float]:
        """Return real arms' errors over some prompts."""
        return {name: self.places[name, load].error(picks) for name in sorted(self.real)}


def load_run(folder: Path, *, mode: float = 1.0) -> Run:
    """Return a run with the settings of `KS` and `WINDOWS` beside its arms.

    Args:
        folder: below benchmarks/data/prediction/.
        mode: what the engine's modes are multiplied by: below 1 it is an engine that was not measured.
    """
    trials = sorted(path.parent for path in folder.glob("all-*/trial.json"))
    read = [measured(trial) for trial in trials]
    found = costs_of(trials, [one.record for one in read], load_costs(folder / "costs-baseline.json"), [])
    arms: dict[str, Candidate] = {}
    places: dict[tuple[str, int], Place] = {}
    real: set[str] = set()
    loads = []
    for trial, costs in zip(read, found, strict=True):
        plain = next(load for (name, _), load in trial.loads.items() if name == trial.baseline)
        batch = plain.place.batch
        loads.append(batch)
        own = _real(trial)
        earlier = [one for one in read if one.record.created < trial.record.created]
        real |= own.keys()
        settings = {**{name: _known(load) for name, load in own.items()}, **_more(own)}
        shared = set.intersection(*(set(load.place.sums.prompts) for load in (plain, *own.values())))
        prompts = [name for name in sorted(shared) if plain.place.sums.prompts[name][1] > 0]
        model, actual = (FittedModel(_scaled(costs, by)) for by in (mode, 1.0))
        for name, one in settings.items():
            load = own.get(name) or next(iter(own.values()))
            arms[name] = _candidate(name, one)
            requests = replayed(trial, load, one, prompts, earlier if name in own else ())
            if len(requests.tokens) != len(prompts):
                raise UsageError(f"{folder.name}: a prompt of {name} at {batch} at a time has no step")
            place = _place(requests, model, one, plain)
            if name in own:
                # The error is that of the real engine, whatever its mode is multiplied by.
                at = _place(requests, actual, one, plain, (plain.tpot(prompts), load.tpot(prompts)))
                place = _transplanted(place, at)
            places[name, batch] = place
    return Run(
        folder.name if mode == 1 else f"{folder.name} light",
        tuple(sorted(loads)),
        arms,
        frozenset(real),
        places,
    )


@dataclass(frozen=True)
class _Transplanted(Place):
    """A real arm on an engine that was not measured: its error is that on the real one."""

    actual: Place

    def error(self, picks: NDArray[np.int64]) -> float:
        return self.actual.error(picks)

    def prompt_sd(self, picks: NDArray[np.int64]) -> float:
        return self.actual.prompt_sd(picks)


def _transplanted(place: Place, actual: Place) -> Place:
    return _Transplanted(place.requests, place.own, place.base_ms, place.cost_sd, None, actual)


def _place(
    requests: Requests,
    model: FittedModel,
    one: Replayable,
    plain: Load,
    ratios: tuple[Floats, Floats] | None = None,
) -> Place:
    steps = weighted(requests)
    batch, context = plain.place.batch, plain.place.context
    base = model.expected(np.ones(1), batch, context)
    own = model.by_own(steps.pooled, batch, context, method=one.method)
    return Place(requests, np.array([each.ms for each in own]), base.ms, log_sd(over(own, steps.shares), base), ratios)


def _scaled(costs: Costs, by: float) -> Costs:
    modes = [
        one.model_copy(update={key: getattr(one, key) * by for key in ("ms", "low", "high")})
        if one.method != "none"
        else one
        for one in costs.modes
    ]
    return costs.model_copy(update={"modes": tuple(modes)})


def _real(trial: Measured) -> dict[str, Load]:
    """Return the arms that draft by themselves, null drafts left out."""
    found = {}
    for (name, _), load in trial.loads.items():
        config = load.arm.declared.get("speculative_config")
        if name != trial.baseline and config and not synthetic_in(config, {}) and name != "null-draft":
            found[name] = load
    return found


def _known(load: Load) -> Replayable:
    config: dict[str, Any] = load.arm.declared["speculative_config"]
    return replayable({**config, "method": load.place.method}, load.arm.runner)


def _more(own: Mapping[str, Load]) -> dict[str, Replayable]:
    """Return the settings that were not measured."""
    first = next(_known(load) for load in own.values() if load.place.method == "ngram")
    known = {(one.setting.k, one.setting.min, one.setting.max) for one in map(_known, own.values())}
    found = {}
    for k, (low, high) in product(KS, WINDOWS):
        if (k, low, high) not in known:
            config = {"method": "ngram", "num_speculative_tokens": k}
            config |= {"prompt_lookup_min": low, "prompt_lookup_max": high}
            found[f"ngram-k{k}-{low}-{high}"] = replayable(config, first.method[1])
    return found


def _candidate(name: str, one: Replayable) -> Candidate:
    setting = one.setting
    return Candidate(
        name=name,
        method=one.method[0],
        runner=one.method[1],
        k=setting.k,
        min=setting.min,
        max=setting.max,
        reload_s=1800.0,
    )
