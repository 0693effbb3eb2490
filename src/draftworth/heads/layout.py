"""The tensors that vLLM's model classes want of a head, with their shapes, and what its loader does with other names.

Read in vLLM 0.32: `llama_eagle3.py`, `qwen3_eagle3.py`, `deepseek_eagle3.py`, `llama_eagle.py`, `medusa.py`,
`qwen3_dflash.py`, `llama.py`, and `AutoWeightsLoader` in `utils.py`. The loaders of EAGLE heads return no list of what
they loaded, so that a tensor that is missing stays as the memory was: nothing is said of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from draftworth.heads.base import Method
from draftworth.heads.draft import Draft
from draftworth.heads.supported import LLAMA_EAGLE3, QWEN3_EAGLE3

Shape = tuple[int | None, ...]
"""Sizes; none where the config does not tell one."""

_WHOLE = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})


class Fate(StrEnum):
    """What the loader does with a tensor of the checkpoint."""

    LOADED = "loaded"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One tensor the engine's model class has.

    Attributes:
        shape: its shape.
        required: whether the head is wrong without it.
    """

    shape: Shape
    required: bool = True


def wanted(draft: Draft) -> Mapping[str, Wanted] | None:
    """Return the tensors a head must or may have, by the name under which the loader looks; none where not known."""
    architecture = draft.architecture or ""
    if draft.method is Method.EAGLE3 and architecture in LLAMA_EAGLE3 | QWEN3_EAGLE3:
        return _eagle3(draft, with_norms=architecture in QWEN3_EAGLE3)
    if draft.method is Method.EAGLE and architecture == "EagleLlamaForCausalLM":
        return _eagle(draft)
    if draft.method is Method.MEDUSA:
        return _medusa(draft)
    if draft.method is Method.DFLASH and architecture == "DFlashDraftModel":
        return _dflash(draft)
    if draft.method is Method.DRAFT_MODEL and architecture in _WHOLE:
        return _whole(draft, with_norms=architecture == "Qwen3ForCausalLM")
    return None


def loaded_name(draft: Draft, name: str) -> str | None:
    """Return the name under which the loader looks for a tensor of the checkpoint; none where it passes it over."""
    if "rotary_emb." in name or "rotary_pos_emb." in name:
        return None
    if draft.method in (Method.EAGLE3, Method.DFLASH):
        return None if "t2d" in name or "mask_hidden" in name else name.replace("midlayer.", "layers.0.")
    if draft.method is Method.MEDUSA:
        return _medusa_name(name)
    return name


def fate(draft: Draft, name: str, tensors: Mapping[str, Wanted]) -> Fate:
    """Return what the loader does with a tensor of the checkpoint."""
    found = loaded_name(draft, name)
    if found in tensors:
        return Fate.LOADED
    if found is None or draft.method is Method.MEDUSA or found.endswith(".bias"):
        return Fate.IGNORED
    if draft.method is Method.EAGLE3 and "input_norm." in found and not draft.flag("norm_before_fc"):
        return Fate.IGNORED
    return Fate.REFUSED


def _eagle3(draft: Draft, *, with_norms: bool) -> dict[str, Wanted]:
    hidden, inner = draft.hidden_size, draft.target_hidden_size
    found = _common(draft)
    for at in range(draft.layers or 0):
        found |= _layer(draft, f"layers.{at}.", width=_times(hidden, 2) if at == 0 else hidden, with_norms=with_norms)
        # The class has it in every layer and uses the first one's alone.
        found[f"layers.{at}.hidden_norm.weight"] = Wanted((hidden,), required=at == 0)
    if draft.eagle_config.get("use_aux_hidden_state", True):
        entering = _times(inner, draft.aux_count)
        found["fc.weight"] = Wanted((hidden, entering))
        if draft.flag("norm_before_fc"):
            found["input_norm.weight"] = Wanted((entering,))
        if draft.config.get("fc_norm"):
            found |= {f"fc_norm.{at}.weight": Wanted((inner,)) for at in range(draft.aux_count)}
    return found


def _dflash(draft: Draft) -> dict[str, Wanted]:
    hidden = draft.hidden_size
    found = _common(draft) | {"hidden_norm.weight": Wanted((hidden,))}
    found["fc.weight"] = Wanted((hidden, _times(draft.target_hidden_size, draft.aux_count)))
    found["lm_head.weight"] = Wanted((draft.draft_vocabulary, hidden), required=False)
    for at in range(draft.layers or 0):
        found |= _layer(draft, f"layers.{at}.", width=hidden, with_norms=True)
        found[f"layers.{at}.self_attn.attention_sink_bias"] = Wanted((None,), required=False)
    return found


def _common(draft: Draft) -> dict[str, Wanted]:
    hidden = draft.hidden_size
    return {
        "embed_tokens.weight": Wanted((draft.vocabulary, hidden), required=False),
        "norm.weight": Wanted((hidden,)),
        "lm_head.weight": Wanted((draft.draft_vocabulary, hidden), required=draft.draft_vocabulary != draft.vocabulary),
        "d2t": Wanted((draft.draft_vocabulary,), required=False),
    }


def _eagle(draft: Draft) -> dict[str, Wanted]:
    hidden = draft.hidden_size
    found = {
        "embed_tokens.weight": Wanted((draft.vocabulary, hidden), required=False),
        "fc.weight": Wanted((hidden, _times(hidden, 2))),
    }
    for at in range(draft.layers or 0):
        found |= _layer(draft, f"layers.{at}.", width=hidden, with_norms=False)
    found.pop("layers.0.input_layernorm.weight", None)  # the first layer is built without
    return found


def _whole(draft: Draft, *, with_norms: bool) -> dict[str, Wanted]:
    hidden = draft.hidden_size
    found = {
        "model.embed_tokens.weight": Wanted((draft.vocabulary, hidden)),
        "model.norm.weight": Wanted((hidden,)),
        "lm_head.weight": Wanted(
            (draft.vocabulary, hidden), required=not draft.config.get("tie_word_embeddings", False)
        ),
    }
    for at in range(draft.layers or 0):
        found |= _layer(draft, f"model.layers.{at}.", width=hidden, with_norms=with_norms)
    return found


def _layer(draft: Draft, prefix: str, *, width: int | None, with_norms: bool) -> dict[str, Wanted]:
    """Return one decoder layer: grouped-query attention and a gated MLP."""
    fields, hidden = draft.fields, draft.hidden_size
    heads = fields.number("num_attention_heads")
    groups = fields.number("num_key_value_heads")
    head = fields.number("head_dim") or (hidden // heads if hidden and heads else None)
    queries, keys = _times(heads, head), _times(heads if groups is None else groups, head)
    inner = fields.number("intermediate_size")
    found = {
        "input_layernorm.weight": Wanted((hidden,)),
        "post_attention_layernorm.weight": Wanted((hidden,)),
        "self_attn.q_proj.weight": Wanted((queries, width)),
        "self_attn.k_proj.weight": Wanted((keys, width)),
        "self_attn.v_proj.weight": Wanted((keys, width)),
        "self_attn.o_proj.weight": Wanted((hidden, queries)),
        "mlp.gate_proj.weight": Wanted((inner, hidden)),
        "mlp.up_proj.weight": Wanted((inner, hidden)),
        "mlp.down_proj.weight": Wanted((hidden, inner)),
    }
    if with_norms:
        found |= {f"self_attn.{one}_norm.weight": Wanted((head,)) for one in "qk"}
    if draft.config.get("attention_bias") or draft.config.get("model_type") == "qwen2":
        sizes = {"q": queries, "k": keys, "v": keys}
        found |= {f"self_attn.{one}_proj.bias": Wanted((size,)) for one, size in sizes.items()}
        found["self_attn.o_proj.bias"] = Wanted((hidden,), required=False)
    if draft.config.get("mlp_bias"):
        sizes = {"gate": inner, "up": inner, "down": hidden}
        found |= {f"mlp.{one}_proj.bias": Wanted((size,)) for one, size in sizes.items()}
    return {f"{prefix}{name}": one for name, one in found.items()}


def _medusa(draft: Draft) -> dict[str, Wanted]:
    hidden = draft.hidden_size
    heads = draft.count("num_heads", "medusa_num_heads") or 5
    layers = draft.count("num_hidden_layers", "medusa_num_layers") or 1
    found: dict[str, Wanted] = {"token_map": Wanted((None,), required=False)}
    original = bool(draft.config.get("original_lm_head"))
    if original:
        found["lm_head.weight"] = Wanted((None, hidden))
    for head in range(heads):
        for layer in range(layers):
            found[f"blocks.{head}.layers.{layer}.weight"] = Wanted((hidden, hidden))
            if draft.config.get("medusa_fc_bias"):
                found[f"blocks.{head}.layers.{layer}.bias"] = Wanted((hidden,))
        if not original:
            found[f"lm_heads.{head}.weight"] = Wanted((None, hidden))
    return found


def _medusa_name(name: str) -> str:
    """Return vLLM's name for a tensor of FasterDecoding's layout: `0.0.linear.weight`, `0.1.weight`."""
    parts = name.replace("medusa_heads.", "").split(".")
    if len(parts) < 3 or not (parts[0].isdigit() and parts[1].isdigit()):  # noqa: PLR2004 - head, layer and more
        return ".".join(parts)
    if "linear" in parts:
        return f"blocks.{parts[0]}.layers.{parts[1]}.{'.'.join(parts[parts.index('linear') + 1 :])}"
    return f"lm_heads.{parts[0]}.{'.'.join(parts[2:])}"


def _times(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right
