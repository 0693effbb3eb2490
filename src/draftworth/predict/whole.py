"""The whole prediction of one trace, one drafter and one costs file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.costs.base import Costs
from draftworth.costs.model import FittedModel
from draftworth.costs.paper.config import ModelShape
from draftworth.drafters.base import Drafter, Limits
from draftworth.drafters.gathered import Seen
from draftworth.drafters.remarks import remarks
from draftworth.drafters.replay import Replayed
from draftworth.errors import UsageError
from draftworth.predict.advice import MODE_UNKNOWN, reloads, verdict
from draftworth.predict.base import Predicted, Prediction
from draftworth.predict.heads import needed
from draftworth.predict.requests import Requests
from draftworth.predict.schedule import per_batch_size
from draftworth.predict.speculation import method_of, mode_arms
from draftworth.predict.speedup import predict_one

HEAD_KS = tuple(range(1, 9))
HEAD_METHODS = ("eagle3", "eagle", "mtp", "draft_model", "medusa", "dflash")
"""Methods of heads and draft models, as vLLM names them."""
_MANY = 8
"""Settings from which the best of them is a little better on paper than it will be: it was chosen by these figures."""

Replays = Mapping[int, tuple[Replayed, Sequence[Requests]]]
"""Load to the replay and each setting's requests."""


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
    drafter: Drafter,
    replayed: Replays,
    costs: Costs,
    *,
    shape: ModelShape | None = None,
    context: int | None = None,
    draft_share: float | None = None,
) -> Prediction:
    """Return the prediction of every setting at every load.

    Args:
        path: the trace's.
        drafter: what was replayed.
        replayed: the replay at each load.
        costs: of the baseline's steps.
        shape: of the model, for its experts and KV cache; None where no config.json was given.
        context: tokens of a request in the KV cache; None takes the trace's, half-way an answer.
        draft_share: what drafting one token takes over a baseline's step, of heads that do not exist; None leaves them
            out.

    Raises:
        UsageError: the costs have no points, or are of another engine.
    """
    check_engine(drafter, costs)
    model = FittedModel(costs, shape)
    method = method_of(drafter)
    known = model.knows(method)
    loads = sorted(replayed)
    first = replayed[loads[0]][0]
    depth = context or context_of(first.seen)
    settings = [
        predict_one(counts.setting, requests, model, batch=load, context=depth, method=method if known else None)
        for load in loads
        for counts, requests in zip(replayed[load][0].settings, replayed[load][1], strict=True)
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
            other=method,
            draft_share=draft_share,
        )
    answer = verdict(settings)
    return Prediction(
        trace={
            "path": str(path),
            "requests": first.seen.requests,
            "output_tokens": first.seen.output_tokens,
            "exact": not first.seen.inexact,
            "context": depth,
        },
        drafter=drafter.name,
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
        verdict=answer if known else MODE_UNKNOWN + answer,
        reloads=reloads(settings, drafter, costs.reload_s),
        mode_arms={} if any(mode.method == method[0] for mode in costs.modes) else mode_arms(drafter, costs.machine),
        per_batch_size=per_batch_size(settings) if method[0] == "ngram" and drafter.engine == "vllm" else None,
        heads=tuple(heads),
        left_out=tuple(
            {"reason": reason, "count": count, "first": first.bad.first[reason]}
            for reason, count in first.bad.counts.items()
        ),
        findings=tuple(_findings(first, drafter, costs, settings, loads, known=known)),
    )


def context_of(seen: Seen) -> int:
    """Return the tokens of a request in the KV cache half-way its answer, the mean of a trace."""
    return max(1, round((seen.prompt_tokens + seen.output_tokens / 2) / max(seen.requests, 1)))


def _findings(
    replayed: Replayed,
    drafter: Drafter,
    costs: Costs,
    settings: Sequence[Predicted],
    loads: Sequence[int],
    *,
    known: bool,
) -> list[str]:
    limits = Limits(concurrency=loads[0] if drafter.shared else 1)
    found = [one.message for one in remarks(replayed, drafter, limits)]
    seen = replayed.seen
    if costs.model and seen.models and costs.model not in seen.models:
        found.append(f"the costs are of {costs.model}, the trace is of {', '.join(seen.models)}")
    method, _ = method_of(drafter)
    how = (
        "an arm of synthetic acceptance (it drafts in every step, so there is no null draft)"
        if drafter.always_verifies
        else "a null-draft arm and one of synthetic acceptance"
    )
    if not known:
        found.append(f"nothing is known of what {method} adds to a step of this engine: {how} measure it in one trial")
    elif not any(mode.method == method for mode in costs.modes):
        found.append(
            "the engine's mode was not measured here and is taken from the library, with a wide interval: "
            f"{how} measure it in one trial"
        )
    beyond = sorted({one.concurrency for one in settings if not one.base_measured})
    if beyond:
        found.append(
            f"the baseline was not probed at {', '.join(map(str, beyond))} at a time: those figures are carried over "
            "from other loads; `draftworth probe --concurrency` measures them"
        )
    if len({(one.k, one.min, one.max, tuple(one.more.items())) for one in settings}) >= _MANY:
        found.append("the best of many settings was chosen by these very figures: expect a little less of it")
    return found
