"""What a search knows: what is predicted of its settings from the baseline's answers, and what was measured of one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from scipy import special

from draftworth.bench.base import Closed, RequestRow
from draftworth.errors import UsageError
from draftworth.search.base import Candidate, LogSpeed, Observation
from draftworth.search.grid import candidate_of
from draftworth.search.predictions import log_speed
from draftworth.trials.probing import COSTS
from draftworth.verdicts.rules import HIGHER_IS_BETTER

if TYPE_CHECKING:
    from draftworth.bench.points import Point
    from draftworth.costs.base import StepCost
    from draftworth.predict.speculation import Replayable
    from draftworth.trials.config import TrialConfig
    from draftworth.verdicts.base import Comparison
    from draftworth.verdicts.compare import Compared

FOLDER = "search"
"""Of the trial's folder: the baseline's answers, as a trace."""
_UNTOLD_SD = 0.1
"""Of a log speed-up whose interval could not be made: too few prompts were answered in both arms."""


def candidates_in(config: "TrialConfig", runner: str | None) -> tuple[Candidate, ...]:
    """Return the arms that a search chooses from, in their order.

    Args:
        config: the trial's file.
        runner: vLLM's model runner of the baseline, where its log tells.
    """
    return tuple(
        candidate_of(arm.name, arm.speculative_config or {}, engine=config.service.engine, runner=runner)
        for arm in config.candidates
    )


def predicted(
    candidates: Sequence[Candidate],
    rows: Sequence[RequestRow],
    folder: Path,
    sweep: Sequence["Point"],
    *,
    runner: str | None,
    target: Path | None = None,
) -> tuple[tuple[Candidate, ...], str | None]:
    """Return candidates with what their drafts would do to the baseline's own answers; and why not, where not.

    Drafters that cannot be replayed (heads, draft models) have bounds: nothing accepted, and everything.

    Args:
        candidates: as they are.
        rows: the baseline's.
        folder: the trial's: has its costs, and gets the answers as a trace.
        sweep: the points of the workload.
        runner: vLLM's model runner of the baseline.
        target: the served model's folder, where it is known.
    """
    if not (folder / COSTS).exists():
        return tuple(candidates), "nothing is predicted: the baseline's steps were not probed"
    some = _bounded(candidates, _loads(rows, sweep), folder, target)
    try:
        found = _predictions(some, rows, folder, sweep, runner)
    except UsageError as error:
        return some, str(error)
    return tuple(one.model_copy(update={"predicted": found.get(one.name)}) for one in some), None


def _bounded(
    candidates: Sequence[Candidate], loads: Mapping[int, int], folder: Path, target: Path | None
) -> tuple[Candidate, ...]:
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.model import FittedModel  # noqa: PLC0415 - lazy
    from draftworth.search.bounds import bounds  # noqa: PLC0415 - lazy: numpy

    model = FittedModel(load_costs(folder / COSTS))
    return tuple(one.model_copy(update={"bounds": bounds(one, model, loads, target)}) for one in candidates)


def _predictions(
    candidates: Sequence[Candidate],
    rows: Sequence[RequestRow],
    folder: Path,
    sweep: Sequence["Point"],
    runner: str | None,
) -> dict[str, dict[int, LogSpeed]]:
    from draftworth.bench.rows import write_rows  # noqa: PLC0415 - lazy: pyarrow
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.model import FittedModel  # noqa: PLC0415 - lazy
    from draftworth.drafters import drafter as by_name  # noqa: PLC0415 - lazy: numba
    from draftworth.drafters.base import Limits  # noqa: PLC0415 - lazy
    from draftworth.predict.requests import replay_requests  # noqa: PLC0415 - lazy
    from draftworth.predict.speedup import predict_one  # noqa: PLC0415 - lazy
    from draftworth.traces.store import open_trace  # noqa: PLC0415 - lazy

    by_drafter = _replayable(candidates, runner)
    if not by_drafter:
        raise UsageError("nothing is predicted: no setting's drafts can be replayed from the baseline's answers")
    costs = load_costs(folder / COSTS)
    model, prefills = FittedModel(costs), _prefills(rows, sweep, costs.points)
    # A drafter that learns from answers must not be shown each of them once a load.
    first = [row for row in rows if row.point == sweep[0].label and row.ok]
    (folder / FOLDER).mkdir(exist_ok=True)
    trace = open_trace(write_rows(first, folder / FOLDER))
    found: dict[str, dict[int, LogSpeed]] = {}
    for (name, method), some in by_drafter.items():
        if not model.knows(method):
            continue
        chosen = by_name(name)
        settings = [one.setting for _, one in some]
        requests = None
        for load, context in _loads(rows, sweep).items():
            if requests is None or chosen.shared:
                limits = Limits(concurrency=load if chosen.shared else 1)
                _, requests = replay_requests(trace, chosen, settings, limits)
            for (arm, _), setting, each in zip(some, settings, requests, strict=True):
                told = predict_one(
                    setting, each, model, batch=load, context=context, method=method, prefill=prefills.get(load)
                )
                found.setdefault(arm, {})[load] = log_speed(told)
    return found


_Method = tuple[str, str | None]


def _replayable(
    candidates: Sequence[Candidate], runner: str | None
) -> "dict[tuple[str, _Method], list[tuple[str, Replayable]]]":
    """Return what can be replayed, by drafter and engine mode: each arm's name with its setting."""
    from draftworth.predict.speculation import replayable  # noqa: PLC0415 - lazy

    found: dict[tuple[str, _Method], list[tuple[str, Replayable]]] = {}
    for one in candidates:
        try:
            told = replayable(one.config, runner)
        except UsageError:
            continue
        found.setdefault((told.drafter, told.method), []).append((one.name, told))
    return found


def _loads(rows: Sequence[RequestRow], sweep: Sequence["Point"]) -> dict[int, int]:
    """Return concurrency to the tokens of a request in the KV cache, in the middle of its answer."""
    found = {}
    for point in sweep:
        if isinstance(point.load, Closed):
            here = [row for row in rows if row.point == point.label and row.ok] or rows
            tokens = [(row.prompt_tokens or 0) + (row.tokens or 0) / 2 for row in here]
            found[point.load.concurrency] = max(1, round(sum(tokens) / max(1, len(tokens))))
    return found


@dataclass(frozen=True, slots=True)
class _Served:
    batch: int
    ttft_ms: float | None
    tokens: float


def _prefills(
    rows: Sequence[RequestRow], sweep: Sequence["Point"], points: "Sequence[StepCost]"
) -> dict[int, tuple[float, float, float]]:
    """Return concurrency to what the prefills of others add to a token, as `costs.prefill.prefill_share` tells it."""
    from draftworth.costs.prefill import prefill_share  # noqa: PLC0415 - lazy

    found = {}
    for point in sweep:
        here = [row for row in rows if row.point == point.label and row.timed and row.tpot_ms and row.decode_ms]
        if not isinstance(point.load, Closed) or not here:
            continue
        firsts = [row.ttft_ms for row in here if row.ttft_ms]
        tokens = sum(row.decode_ms / row.tpot_ms for row in here if row.decode_ms and row.tpot_ms) / len(here)
        served = _Served(point.load.concurrency, median(firsts) if firsts else None, tokens)
        tpot = sum(row.tpot_ms for row in here if row.tpot_ms) / len(here)
        found[served.batch] = prefill_share(served, tpot, points)
    return found


def speeds(compared: "Compared", sweep: Sequence["Point"], *, priors: tuple[float, float]) -> dict[int, LogSpeed]:
    """Return the log speed-up over the baseline at each load that could be compared.

    The spread of restarts of the setting is in the standard error; that of the baseline's own start is not, since all
    settings share it (`search.belief`).

    Args:
        compared: the setting against the baseline.
        sweep: the points of the workload.
        priors: sd of log TPOT between restarts, of the baseline and of the setting.
    """
    by_label = {one.category: one for one in compared.categories if one.kind == "point"}
    found: dict[int, list[LogSpeed]] = {}
    for point in sweep:
        one: Comparison | None = by_label.get(point.label) if len(sweep) > 1 else compared.comparison
        told = None if one is None else _speed(one, priors)
        if told is not None and isinstance(point.load, Closed):
            found.setdefault(point.load.concurrency, []).append(told)
    # Points of one load (several lengths) share its server: their errors go together.
    return {
        load: LogSpeed(value=sum(one.value for one in some) / len(some), sd=sum(one.sd for one in some) / len(some))
        for load, some in found.items()
    }


def _speed(one: "Comparison", priors: tuple[float, float]) -> LogSpeed | None:
    ratio = one.ratio
    if ratio is None or ratio.estimate <= 0:
        return None
    value = math.log(ratio.estimate) * (1 if one.metric in HIGHER_IS_BETTER else -1)
    baseline, variant = priors
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return LogSpeed(value=value, sd=math.hypot(_UNTOLD_SD, variant))
    z = -float(special.ndtri((1 - ratio.confidence) / 2))
    sd = math.log(ratio.high / ratio.low) / (2 * z)
    return LogSpeed(value=value, sd=math.sqrt(max(sd**2 - baseline**2, variant**2)))


def over_this_start(one: Observation, baseline_sd: float) -> Mapping[int, LogSpeed]:
    """Return what was measured of a setting, as over the baseline's start of now: an earlier trial had another.

    Args:
        one: the setting's.
        baseline_sd: of one start of the baseline.
    """
    if one.baseline is None:
        return one.measured
    more = math.sqrt(2) * baseline_sd
    return {load: LogSpeed(value=told.value, sd=math.hypot(told.sd, more)) for load, told in one.measured.items()}


def best_known(
    measured: Mapping[str, Mapping[int, LogSpeed]], loads: Sequence[int], baseline_sd: float
) -> dict[int, LogSpeed]:
    """Return the best known speed at each load: that of the setting with the highest, or of the baseline itself.

    Args:
        measured: setting to its speeds.
        loads: those of the workload.
        baseline_sd: of one start of the baseline.
    """
    found: dict[int, LogSpeed] = {}
    for load in loads:
        some = [one[load] for one in measured.values() if load in one]
        found[load] = max([LogSpeed(value=0.0, sd=baseline_sd), *some], key=lambda one: one.value)
    return found
