"""The shape of an EAGLE-3 draft, from the config.json of either layout.

Layouts: speculators 0.9 (`transformer_layer_config` and flags beside it) and the plain one (flags at the top, or in
`eagle_config`) that vLLM 0.32 (`llama_eagle3.py`) and SGLang 0.5 (`llama_eagle3.py`) read. Absent flags mean what vLLM
takes them for (`transformers_utils/configs/speculators/algos.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftworth.training.workers.channel import WorkerRefusedError

KINDS = ("llama", "qwen3")


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What a draft is built from.

    Attributes:
        kind: `llama` or `qwen3` (which norms each head's query and key).
        hidden: width.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        eps: of every norm.
        windows: for each layer, how many keys a query sees; None for all.
        aux: the target's layers that it reads, in vLLM's count.
        norm_before_fc: one norm over all auxiliary states in front of `fc`.
        fc_norm: one norm for each.
        norm_output: what is passed on to the next drafted token is behind the last norm.
        norm_before_residual: the residual is the normed state.
        inner: the decoder's config as transformers reads it, for the rotary embedding.
    """

    kind: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    windows: tuple[int | None, ...]
    aux: tuple[int, ...]
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    norm_before_residual: bool
    inner: Mapping[str, Any]


def draft_shape(config: Mapping[str, Any]) -> DraftShape:
    """Return the shape that a config.json describes.

    Raises:
        WorkerRefusedError: it is no Llama or Qwen3 draft, or names no layers.
    """
    plain = "transformer_layer_config" not in config
    eagle: Mapping[str, Any] = config.get("eagle_config") or {} if plain else {}
    inner: Mapping[str, Any] = config if plain else config["transformer_layer_config"]
    kind = str(inner.get("model_type", "llama"))
    if kind not in KINDS:
        raise WorkerRefusedError(f"a draft of the kind {kind!r} cannot be evaluated here: one of {', '.join(KINDS)}")
    activation = inner.get("hidden_act", "silu")
    if activation != "silu":
        raise WorkerRefusedError(f"a draft with the activation {activation!r} cannot be evaluated here, only with silu")
    aux = config.get("eagle_aux_hidden_state_layer_ids")
    if not aux:
        raise WorkerRefusedError("config.json names no eagle_aux_hidden_state_layer_ids")
    layers = int(inner.get("num_hidden_layers", 1))
    types = inner.get("layer_types") or ["full_attention"] * layers
    window = inner.get("sliding_window")
    heads = int(inner["num_attention_heads"])
    return DraftShape(
        kind=kind,
        hidden=int(inner["hidden_size"]),
        layers=layers,
        heads=heads,
        kv_heads=int(inner.get("num_key_value_heads") or heads),
        head_dim=int(inner.get("head_dim") or int(inner["hidden_size"]) // heads),
        eps=float(inner["rms_norm_eps"]),
        windows=tuple(window if one == "sliding_attention" else None for one in types[:layers]),
        aux=tuple(int(one) for one in aux),
        norm_before_fc=bool(eagle.get("norm_before_fc", config.get("norm_before_fc", False))),
        fc_norm=bool(config.get("fc_norm", False)),
        norm_output=bool(config.get("norm_output", False)),
        norm_before_residual=bool(config.get("norm_before_residual", not plain)),
        inner=inner,
    )
