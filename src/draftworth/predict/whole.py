"""The whole prediction of one trace, one drafter and one costs file."""

from collections.abc import Mapping
from pathlib import Path

from draftworth.costs.base import Costs
from draftworth.costs.model import FittedModel
from draftworth.drafters.base import Drafter
from draftworth.drafters.gathered import Seen
from draftworth.drafters.replay import Replayed
from draftworth.predict.advice import reloads, verdict
from draftworth.predict.base import Prediction
from draftworth.predict.heads import needed
from draftworth.predict.schedule import per_batch_size
from draftworth.predict.speculation import method_of
from draftworth.predict.speedup import predict_settings

HEAD_KS = tuple(range(1, 9))
_HEAD = ("eagle3", None)


def predicted(
    path: Path,
    drafter: Drafter,
    replayed: Mapping[int, Replayed],
    costs: Costs,
    *,
    context: int | None = None,
    draft_share: float | None = None,
) -> Prediction:
    """Return the prediction of every setting at every load.

    Args:
        path: the trace's.
        drafter: what was replayed.
        replayed: the replay at each load, with each request's steps kept.
        costs: of the baseline's steps.
        context: tokens of a request in the KV cache; None takes the trace's, half-way an answer.
        draft_share: what drafting one token takes over a baseline's step, of heads that do not exist; None leaves them
            out.

    Raises:
        UsageError: the costs do not reach so far, or nothing is known of the method's engine mode.
    """
    model = FittedModel(costs)
    method, runner = method_of(drafter.name)
    loads = sorted(replayed)
    seen = replayed[loads[0]].seen
    depth = context or context_of(seen)
    settings = [
        one
        for load in loads
        for one in predict_settings(
            replayed[load], model, concurrencies=[load], context=depth, method=method, runner=runner
        )
    ]
    heads = (
        []
        if draft_share is None
        else needed(
            model,
            ks=HEAD_KS,
            concurrencies=loads,
            context=depth,
            method=_HEAD,
            other=(method, runner),
            draft_share=draft_share,
        )
    )
    return Prediction(
        trace={
            "path": str(path),
            "requests": seen.requests,
            "output_tokens": seen.output_tokens,
            "exact": not seen.inexact,
            "context": depth,
        },
        drafter=drafter.name,
        costs={
            "created": costs.created,
            "engine": costs.engine,
            "version": costs.version,
            "model": costs.model,
            "machine": costs.machine,
            "reload_s": costs.reload_s,
        },
        settings=tuple(settings),
        verdict=verdict(settings),
        reloads=reloads(settings, drafter.name, costs.reload_s),
        per_batch_size=per_batch_size(settings) if drafter.engine == "vllm" else None,
        heads=tuple(heads),
        findings=tuple(_findings(seen, costs)),
    )


def context_of(seen: Seen) -> int:
    """Return the tokens of a request in the KV cache half-way its answer, the mean of a trace."""
    return max(1, round((seen.prompt_tokens + seen.output_tokens / 2) / seen.requests))


def _findings(seen: Seen, costs: Costs) -> list[str]:
    found = []
    if seen.inexact:
        found.append(
            f"{seen.inexact:,} of {seen.requests:,} requests were re-tokenised from text: acceptance is not exact"
        )
    if costs.model and seen.models and costs.model not in seen.models:
        found.append(f"the costs are of {costs.model}, the trace is of {', '.join(seen.models)}")
    if not costs.modes:
        found.append(
            "the engine's mode was not measured here and is taken from the library, with a wide interval: a null-draft "
            "arm measures it in one reload"
        )
    return found
