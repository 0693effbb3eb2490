"""What a draft that cannot be replayed may bring, told without a reload: from nothing accepted to everything accepted.

Heads and draft models draft what the baseline's answers do not show, but the steps they take are the probed baseline's:

    speed-up at an acceptance length L = L T(B, 1) / (T(B, k + 1) + M + k D)        1 <= L <= k + 1

(`predict.heads`, docs/predict.md). D, the time of drafting one token, is the share of the weights that a pass of the
draft reads of those that a step of the target reads, both of one request (in a mixture more requests read more
experts): decoding is bound by them; where it is not, D is longer and the upper end too high still. So the upper end is
a bound for settings that cannot pay whatever is accepted, as the target as its own draft; the lower end is what a
useless draft costs.
"""

from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from draftworth.costs.paper.config import ModelShape, shape_of
from draftworth.errors import UsageError
from draftworth.heads.folder import open_model
from draftworth.predict.heads import needed
from draftworth.search.base import Candidate, LogSpeed
from draftworth.search.dialects import DIALECTS

if TYPE_CHECKING:
    from draftworth.costs.mixture import StepMixture

Z = 1.96
_DRAFTS = frozenset({*DIALECTS["vllm"].heads, "mtp"})
_AT_ONCE = frozenset({"medusa", "dflash"})
"""Methods that draft all k tokens in one pass."""
_NOT_READ = ("embed_tokens", "d2t", "t2d")
"""A pass gathers a row of the embedding."""


def bounds(
    one: Candidate, model: "StepMixture", loads: Mapping[int, int], target: Path | None
) -> dict[int, LogSpeed] | None:
    """Return, by load, the middle between nothing and everything accepted, those two as the ends of a 95 % interval.

    Args:
        one: a candidate of vLLM.
        model: the cost of steps.
        loads: concurrency to the tokens of a request in the KV cache.
        target: the served model's folder; None where it is not known.

    Returns:
        None for what is no head or draft model, does not say how many tokens it drafts, or has files that do not tell
        what a pass takes.
    """
    share = draft_share(one, target) if one.method in _DRAFTS else None
    if not one.k or share is None:
        return None
    found = {}
    for load, context in loads.items():
        # A pass of the draft is one of a single request's: T of a larger batch has more experts and caches to read.
        alone, here = (model.expected(np.ones(1), batch, context).ms for batch in (1, load))
        (length,) = (
            each.length
            for each in needed(
                model,
                ks=[one.k],
                concurrencies=[load],
                context=context,
                method=(one.method, one.runner),
                draft_share=share * alone / here,
            )
        )
        low, high = -log(length.high), log((one.k + 1) / length.low)
        found[load] = LogSpeed(value=(low + high) / 2, sd=(high - low) / (2 * Z))
    return found


def draft_share(one: Candidate, target: Path | None, sizes: Mapping[str, int] | None = None) -> float | None:
    """Return what drafting one token takes over a step of the target, by the weights read; None: files do not tell.

    Args:
        one: a head or a draft model.
        target: the served model's folder.
        sizes: bytes of the head's tensors by name, of one that is in no folder yet; None reads the folder it names.
    """
    if target is None:
        return None
    try:
        served = _shape(target, "the served model")
        if one.method == "mtp":
            # One layer of the target's own kind, and its lm_head.
            head = served.bytes_of("head", served.head_params)
            return ((served.step_bytes - head) / served.layers + head) / served.step_bytes
        read = _read(one, served, sizes)
    except UsageError:
        return None
    at_once = one.method in _AT_ONCE or bool(one.config.get("parallel_drafting"))
    return read / served.step_bytes / ((one.k or 1) if at_once else 1)


def _read(one: Candidate, served: ModelShape, sizes: Mapping[str, int] | None) -> float:
    """Return the bytes of weights that a pass of a draft reads."""
    named = one.config.get("model")
    if (sizes is None and not named) or one.config.get(
        "quantization"
    ):  # quantised as it is loaded: its files do not tell its bytes
        raise UsageError(f"{one.name}: its files do not tell what a pass reads")
    folder = Path(str(named))
    if one.method == "draft_model":
        return _shape(folder, "the draft").step_bytes
    if sizes is None:
        sizes = {name: each.bytes for name, each in open_model(folder, "the draft").weights.tensors.items()}
    if not sizes:
        raise UsageError(f"{folder} has no tensors that can be read")
    own = sum(each for name, each in sizes.items() if not any(word in name for word in _NOT_READ))
    projects = one.method == "medusa" or any("lm_head" in name for name in sizes)
    return own + (0.0 if projects else served.bytes_of("head", served.head_params))


def _shape(folder: Path, what: str) -> ModelShape:
    found = open_model(folder, what)
    return shape_of(found.config, str(found.path / "config.json"))
