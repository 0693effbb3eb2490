"""The whole prediction of one trace and one costs file, of one drafter or of several that are compared."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from draftworth.costs.base import Costs
from draftworth.costs.mode import applies, stand_in
from draftworth.costs.model import FittedModel
from draftworth.costs.paper.config import ModelShape
from draftworth.drafters.base import Drafter, Limits
from draftworth.drafters.gathered import Seen
from draftworth.drafters.remarks import remarks
from draftworth.drafters.replay import Replayed
from draftworth.errors import UsageError
from draftworth.predict.advice import AT_BEST, reloads, verdict
from draftworth.predict.base import Predicted, Prediction
from draftworth.predict.heads import needed
from draftworth.predict.requests import Requests
from draftworth.predict.schedule import per_batch_size
from draftworth.predict.settings import key
from draftworth.predict.speculation import method_of, mode_arms
from draftworth.predict.speedup import predict_one

HEAD_KS = tuple(range(1, 9))
HEAD_METHODS = ("eagle3", "eagle", "mtp", "draft_model", "medusa", "dflash")
"""Methods of heads and draft models, as vLLM names them."""
_MANY = 8
"""Settings from which the best of them is a little better on paper than it will be: it was chosen by these figures."""

Replays = Mapping[int, tuple[Replayed, Sequence[Requests]]]
"""Load to the replay and each setting's requests."""


@dataclass(frozen=True, slots=True)
class Run:
    """One drafter's settings, replayed.

    Attributes:
        drafter: what was replayed.
        replayed: the replay at each load.
    """

    drafter: Drafter
    replayed: Replays


def check_engine(drafter: Drafter, costs: Costs) -> None:
    """Refuse costs of another engine than the drafter's.

    Raises:
        UsageError: they are.
    """
    if costs.engine is not None and drafter.engine != costs.engine:
        raise UsageError(
            f"{drafter.name} drafts in {drafter.engine}, and the costs are of {costs.engine}: a step there says "
            "nothing of a step here; probe the engine that would draft"
        )


def predicted(
    path: Path,
    runs: Sequence[Run],
    costs: Costs,
    *,
    shape: ModelShape | None = None,
    context: int | None = None,
    draft_share: float | None = None,
    ttft_ms: float | None = None,
) -> Prediction:
    """Return the prediction of every setting at every load.

    Args:
        path: the trace's.
        runs: at least one, all of one trace and the same loads; their settings are ranked together.
        costs: of the baseline's steps.
        shape: of the model, for its experts and KV cache; None where no config.json was given.
        context: tokens of a request in the KV cache; None takes the trace's, half-way an answer.
        draft_share: what drafting one token takes over a baseline's step, of heads that do not exist; None leaves them
            out.
        ttft_ms: the running baseline's time to the first token, alone; None where it is not known.

    Raises:
        UsageError: the costs have no points, or are of another engine.
    """
    for run in runs:
        check_engine(run.drafter, costs)
    model = FittedModel(costs, shape)
    drafters = {run.drafter.name: run.drafter for run in runs}
    known = {name: model.knows(method_of(one)) for name, one in drafters.items()}
    loads = sorted(runs[0].replayed)
    first = runs[0].replayed[loads[0]][0]
    depth = context or context_of(runs[0])
    settings = [
        predict_one(
            counts.setting,
            requests,
            model,
            batch=load,
            context=depth,
            method=method_of(run.drafter) if known[run.drafter.name] else None,
            prefill=_prefill(model, requests, load, depth, ttft_ms),
        ).model_copy(update={"drafter": run.drafter.name})
        for load in loads
        for run in runs
        for counts, requests in zip(run.replayed[load][0].settings, run.replayed[load][1], strict=True)
    ]
    heads = []
    if draft_share is not None:
        own = next((name for name in HEAD_METHODS if any(mode.method == name for mode in costs.modes)), HEAD_METHODS[0])
        heads = needed(
            model,
            ks=HEAD_KS,
            concurrencies=loads,
            context=depth,
            method=(own, None),
            draft_share=draft_share,
        )
    arms = _mode_arms(drafters, costs)
    chosen = reloads(settings, drafters, costs.reload_s)
    scheduled = {name for name, one in drafters.items() if one.engine == "vllm" and method_of(one)[0] == "ngram"}
    return Prediction(
        created=dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        trace={
            "path": str(path),
            "requests": first.seen.requests,
            "output_tokens": first.seen.output_tokens,
            "exact": not first.seen.inexact,
            "context": depth,
        },
        drafter=",".join(drafters),
        costs={
            "created": costs.created,
            "engine": costs.engine,
            "version": costs.version,
            "runner": costs.runner,
            "model": costs.model,
            "machine": costs.machine,
            "reload_s": costs.reload_s,
        },
        settings=tuple(settings),
        verdict=verdict(settings, chosen=chosen, arms=list(arms), reload_s=costs.reload_s),
        reloads=chosen,
        mode_arms=arms,
        per_batch_size=per_batch_size([one for one in settings if one.drafter in scheduled], drafters),
        heads=tuple(heads),
        left_out=tuple(
            {"reason": reason, "count": count, "first": first.bad.first[reason]}
            for reason, count in first.bad.counts.items()
        ),
        findings=tuple(
            dict.fromkeys(
                text
                for told in (
                    *(_of_drafter(run, costs, loads, known=known[run.drafter.name]) for run in runs),
                    _of_costs(first.seen, costs, model, settings, depth),
                )
                for text in told
            )
        ),
    )


def _mode_arms(drafters: Mapping[str, Drafter], costs: Costs) -> dict[str, tuple[str, ...]]:
    """Return arms that measure the mode of the first drafter whose own was not measured here."""
    for one in drafters.values():
        if not _measured(costs, one):
            return mode_arms(one, costs.machine)
    return {}


def _measured(costs: Costs, drafter: Drafter) -> bool:
    return any(applies(mode, method_of(drafter)) for mode in costs.modes)


def context_of(run: Run) -> int:
    """Return the tokens of a request in the KV cache half-way its answer, the mean of a trace's requests with steps."""
    return max(1, round(run.replayed[min(run.replayed)][1][0].half_way))


def _prefill(
    model: FittedModel, requests: Requests, load: int, context: int, ttft_ms: float | None
) -> tuple[float, float, float] | None:
    """Return what the prefills of other requests add to each token; None where nothing tells it.

    In a closed loop an answer meets one prefill of every other request. A time to the first token has more in it than
    the prefill that others wait for (the way there and back, the host), so that nobody knows how much of it counts:
    half stands, and the interval has none and all of it, as in `costs.prefill` where no probe tells.
    """
    if load == 1:
        return 0.0, 0.0, 0.0
    if ttft_ms is None:
        return None
    step = model.expected(np.ones(1), 1, context).ms
    most = (load - 1) * max(0.0, ttft_ms - step) / float(requests.tokens.mean())
    return most / 2, 0.0, most


def _of_drafter(run: Run, costs: Costs, loads: Sequence[int], *, known: bool) -> list[str]:
    """Return what to be careful with in one drafter's figures."""
    drafter = run.drafter
    limits = Limits(concurrency=loads[0] if drafter.shared else 1)
    found = [one.message for one in remarks(run.replayed[loads[0]][0], drafter, limits)]
    method = method_of(drafter)
    how = (
        "an arm of synthetic acceptance (it drafts in every step, so there is no null draft)"
        if drafter.always_verifies
        else "a null-draft arm and one of synthetic acceptance"
    )
    if not known:
        found.append(
            f"nothing is known of what {method[0]} adds to a step of this engine, so its figures are {AT_BEST}: {how} "
            "measure it in one trial"
        )
    elif not _measured(costs, drafter):
        other = stand_in(costs, method)[1]
        where = "from the library" if other is None else f"from {other}'s"
        found.append(
            f"{drafter.name}: the engine's mode was not measured here and is taken {where}, with a wide interval: "
            f"{how} measure it in one trial"
        )
    return found


def _of_costs(seen: Seen, costs: Costs, model: FittedModel, settings: Sequence[Predicted], depth: int) -> list[str]:
    """Return what to be careful with in the costs: another model, loads and contexts that were not probed."""
    found = []
    if costs.model and seen.models and costs.model not in seen.models:
        found.append(f"the costs are of {costs.model}, the trace is of {', '.join(seen.models)}")
    beyond = sorted({one.concurrency for one in settings if not one.base_measured})
    contexts = sorted({point.context for point in costs.points if point.how != "paper"})
    alone = np.ones(1)
    elsewhere = [at for at in beyond if any(model.expected(alone, at, one).measured for one in contexts)]
    if elsewhere:
        where = ", ".join(f"{one:,}" for one in contexts)
        found.append(
            f"the baseline was probed at a context of {where} tokens, the trace's is {depth:,} half-way an answer: "
            f"figures at {', '.join(map(str, elsewhere))} at a time are carried over to it, with a wider interval; "
            f"`draftworth probe --context {depth}` measures them"
        )
    if others := [at for at in beyond if at not in elsewhere]:
        found.append(
            f"the baseline was not probed at {', '.join(map(str, others))} at a time: those figures are carried over "
            f"from other loads; `draftworth probe --context {depth} --concurrency` measures them"
        )
    if without := sorted({one.concurrency for one in settings if one.prefill_ms is None}):
        found.append(
            f"what the prefills of other requests add to each token at {', '.join(map(str, without))} at a time is not "
            "known and not counted: speed-ups there are nearer to 1, on the same side; --ttft MS counts it"
        )
    if len({key(one) for one in settings}) >= _MANY:
        found.append("the best of many settings was chosen by these very figures: expect a little less of it")
    return found
