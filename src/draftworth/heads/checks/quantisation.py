"""Types of weights: quantised targets and heads, and tensors whose type belies config.json."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from draftworth.heads.subject import HEADS, OWN, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_WIDE = ("F32", "F16", "BF16", "F64")
_MARKS = ("scale", "zero", "qweight", "qzeros", "packed", "g_idx", "weight_shape", "absmax", "quant_map")


def quantisation_of(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    """Return how a model's weights are quantised; none where they are not."""
    for holder in (config, text):
        found = holder.get("quantization_config") or holder.get("compression_config")
        if isinstance(found, Mapping):
            return str(found.get("quant_method") or found.get("format") or "quantised")
    return None


def target(subject: Subject) -> Outcome:
    """The head meets the hidden states that it was trained on."""
    found = quantisation_of(subject.target.config, subject.target.text.config)
    if found is None:
        return Fine("the target is not quantised")
    return Wrong(
        f"the target is quantised ({found})", "the weights that the head was trained on, mostly those in bfloat16"
    )


def head(subject: Subject) -> Outcome:
    """Types and config.json agree about a quantised head."""
    told = quantisation_of(subject.draft.model.config, subject.draft.config)
    kinds = Counter(one.dtype for one in subject.tensors.values() if len(one.shape) > 1)
    narrow = {kind for kind in kinds if kind not in _WIDE and kind != "BOOL"}
    marked = any(any(mark in name.rpartition(".")[2] for mark in _MARKS) for name in subject.tensors)
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    if told and not narrow and not marked:
        return Wrong(f"quantization_config {told}, and matrices of {shown}", "quantised matrices with their scales")
    if told is None and narrow:
        return Wrong(f"matrices of {shown}, and no quantization_config", "a quantization_config that tells of them")
    return Fine(f"matrices of {shown}" + (f", quantised with {told}" if told else ""))


def dtype(subject: Subject) -> Outcome:
    """The head has the target's type; vLLM loads it as that."""
    ours = _kind(subject.draft.model.config, subject.draft.config)
    theirs = _kind(subject.target.config, subject.target.text.config)
    if theirs is None:
        raise CannotCheckError("the target's config.json tells no dtype")
    found = Counter(one.dtype for one in subject.tensors.values() if len(one.shape) > 1).most_common(1)
    stored = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(found[0][0]) if found else None
    ours = stored or ours
    if ours is None:
        raise CannotCheckError("neither config.json nor the tensors tell a type that is known here")
    if {ours, theirs} == {"float16", "bfloat16"}:
        return Wrong(ours, f"{theirs}, as the target: vLLM converts the head, and values can overflow or lose bits")
    return Fine(ours if ours == theirs else f"{ours}, which vLLM converts to {theirs}")


def _kind(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    for holder in (text, config):
        found = holder.get("dtype") or holder.get("torch_dtype")
        if isinstance(found, str):
            return found.removeprefix("torch.")
    return None


CHECKS = (
    Check(
        "target-quantised",
        "quantization_config of the target",
        "vllm-project/vllm-ascend#5974: acceptance fell with a quantised target",
        Severity.WARN,
        "measure the acceptance on this target; a head trained on its hidden states does better",
        HEADS,
        target,
    ),
    Check(
        "head-quantised",
        "quantization_config of the draft against the types of its tensors",
        "vLLM 0.32: get_draft_quant_config; a head is loaded by its own config, not the target's",
        Severity.FAIL,
        "take config.json and weights from the same checkpoint",
        OWN,
        head,
    ),
    Check(
        "dtype",
        "the type of the draft's weights against the target's dtype",
        "vLLM 0.32: config/speculative.py gives the draft the target's dtype",
        Severity.WARN,
        "take or export the head in the target's type",
        OWN,
        dtype,
    ),
)
