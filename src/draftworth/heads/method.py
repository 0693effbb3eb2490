"""How a checkpoint drafts, told from its config.json and the names of its tensors."""

from collections.abc import Mapping

from draftworth.errors import UsageError
from draftworth.heads.base import Layout, Method
from draftworth.heads.files.tensors import Tensor
from draftworth.heads.folder import Model

_SPECULATORS = {
    "eagle3": Method.EAGLE3,
    "peagle": Method.EAGLE3,
    "dflash": Method.DFLASH,
    "dflash2": Method.DFLASH,
}
"""The types of speculators that vLLM 0.32 loads, without dspark (`transformers_utils/configs/speculators/algos.py`)."""
_NO_HELP = "vLLM loads of speculators' types eagle3, peagle, dflash and dflash2 here"


def method_of(draft: Model, target: Model) -> tuple[Method, Layout, str]:
    """Return how a checkpoint drafts, the layout of its config.json and what tells so.

    Raises:
        UsageError: it is a draft of a kind that is not checked here.
    """
    config = draft.config
    kind = config.get("speculators_model_type")
    if kind is not None or "speculators_config" in config:
        if not isinstance(kind, str) or kind not in _SPECULATORS:
            raise UsageError(f"{draft.path}: speculators_model_type {kind!r} is not checked: {_NO_HELP}")
        return _SPECULATORS[kind], Layout.SPECULATORS, f"speculators_model_type is {kind}"
    return _plain(draft, target)


def layout_of(draft: Model) -> Layout:
    """Return the layout of a checkpoint's config.json."""
    return Layout.SPECULATORS if "speculators_model_type" in draft.config else Layout.PLAIN


def _plain(draft: Model, target: Model) -> tuple[Method, Layout, str]:
    method, why = _by_config(draft) or _by_tensors(draft.weights.tensors) or _whole(draft, target)
    return method, Layout.PLAIN, why


def _by_config(draft: Model) -> tuple[Method, str] | None:
    return _by_architecture(draft) or _by_fields(draft)


def _by_architecture(draft: Model) -> tuple[Method, str] | None:
    architecture, kind = draft.architecture or "", str(draft.config.get("model_type", ""))
    if "DSpark" in architecture or kind == "mlp_speculator":
        raise UsageError(f"{draft.path}: {architecture or kind}: drafts of this kind are not checked")
    found: Method | None = None
    if architecture.startswith(("Eagle3", "Peagle", "PEagle")) or architecture.endswith("Eagle3"):
        found = Method.EAGLE3
    elif architecture.startswith("Eagle") and not architecture.startswith("Eagle2_5"):
        found = Method.EAGLE
    elif "DFlash" in architecture or architecture == "LiLiCorrDraftModel":
        found = Method.DFLASH
    elif architecture == "MedusaModel":
        found = Method.MEDUSA
    elif "MTP" in architecture:
        found = Method.MTP
    return None if found is None else (found, f"architectures is {architecture}")


def _by_fields(draft: Model) -> tuple[Method, str] | None:
    config = draft.config
    kind = str(config.get("model_type", ""))
    if kind == "medusa" or kind.endswith("_mtp"):
        return Method.MEDUSA if kind == "medusa" else Method.MTP, f"model_type is {kind}"
    for name, method in (
        ("dflash_config", Method.DFLASH),
        ("medusa_num_heads", Method.MEDUSA),
        ("medusa_num_layers", Method.MEDUSA),
        ("eagle_config", Method.EAGLE3),
        ("draft_vocab_size", Method.EAGLE3),
    ):
        if config.get(name) is not None:
            return method, f"it has {name}"
    return None


def _by_tensors(tensors: Mapping[str, Tensor]) -> tuple[Method, str] | None:
    """Tell SafeAILab's heads, whose config.json is that of a whole Llama."""
    fc = tensors.get("fc.weight")
    if fc is None or len(fc.shape) != 2:  # noqa: PLR2004 - a matrix
        return None
    shown = f"its fc.weight is {list(fc.shape)}"
    if (
        "d2t" in tensors
        or any(name.startswith("midlayer.") for name in tensors)
        or fc.shape[1] % (fc.shape[0] * 3) == 0
    ):
        return Method.EAGLE3, f"{shown}, for several of the target's layers"
    return Method.EAGLE, f"{shown}, for one hidden state and one embedding"


def _whole(draft: Model, target: Model) -> tuple[Method, str]:
    layers = draft.text.number("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    if layers and draft.path.resolve() == target.path.resolve():
        return Method.MTP, f"it is the target itself, whose config.json tells of {layers} MTP layers"
    return Method.DRAFT_MODEL, f"{draft.architecture or 'it'} is a whole model, with nothing of a head"
