"""A model's shape from its config.json: parameters by class, experts, KV cache.

Field names are those of transformers' configurations: Llama, Mistral, Qwen (dense and MoE), Mixtral, DeepSeek and Kimi
(latent attention, shared experts), GLM, gpt-oss. Feed-forward layers are taken as gated (three matrices). Biases and
the norms inside attention are left out: below 0.1 % of the parameters. Vision towers and draft heads are left out: a
decode step does not run them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftworth.costs.paper.fields import Fields
from draftworth.costs.paper.quantisation import Class, Quantisation, named, of_config
from draftworth.errors import UsageError

_PLAIN_BITS = {"float32": 32.0, "float": 32.0}
_GATED = 3


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek): one compressed vector a token is cached.

    Attributes:
        kv_rank: length of the compressed vector.
        rope: length of the rotary part, cached beside it.
    """

    kv_rank: int
    rope: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model a decode step touches. Parameter counts are of one layer where they say so.

    Attributes:
        name: the model's type, for a person.
        layers: all of them.
        hidden: width.
        vocabulary: ids.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: of keys and values.
        latent: set for latent attention.
        tied: whether lm_head is the embedding.
        attention_params: of one layer.
        norm_params: of one layer.
        dense_layers: layers with a plain feed-forward part.
        dense_params: of the feed-forward part of one of them.
        moe_layers: layers with experts.
        experts: routed experts of such a layer; 0 for a dense model.
        active: experts of each token.
        expert_params: of one expert.
        shared_params: of a layer's shared experts together.
        router_params: of a layer.
        windowed_layers: layers that attend to `window` tokens only.
        window: tokens; 0 where there is none.
        uncached_layers: layers with a state of fixed size (linear attention) instead of a KV cache.
        quantisation: bits by class.
        plain_bits: bits of a weight that is not quantised.
        notes: what was assumed.
        longest: tokens of a request that the config states (max_position_embeddings); None where it states none.
    """

    name: str
    layers: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: Latent | None
    tied: bool
    attention_params: int
    norm_params: int
    dense_layers: int
    dense_params: int
    moe_layers: int
    experts: int
    active: int
    expert_params: int
    shared_params: int
    router_params: int
    windowed_layers: int
    window: int
    uncached_layers: int
    quantisation: Quantisation
    plain_bits: float
    notes: tuple[str, ...]
    longest: int | None = None

    @property
    def head_params(self) -> int:
        """Of lm_head, or of the embedding it is tied to."""
        return self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All of them, in one copy."""
        embedding = self.head_params * (1 if self.tied else 2)
        per_moe = self.experts * self.expert_params + self.shared_params + self.router_params
        every = self.layers * (self.attention_params + self.norm_params) + self.hidden
        return embedding + every + self.dense_layers * self.dense_params + self.moe_layers * per_moe

    @property
    def active_parameters(self) -> int:
        """Those a token meets, the embedding counted in full as model cards do."""
        return self.parameters - self.moe_layers * (self.experts - self.active) * self.expert_params

    def bytes_of(self, kind: Class, count: float) -> float:
        """Return the bytes of so many weights of a class."""
        return count * self.quantisation.bits[kind] / 8

    @property
    def weight_bytes(self) -> float:
        """Of the whole model in memory."""
        plain = self.head_params if not self.tied else 0
        plain += self.layers * self.norm_params + self.hidden + self.moe_layers * self.router_params
        return (
            plain * self.plain_bits / 8
            + self.bytes_of("head", self.head_params)
            + self.bytes_of("attention", self.layers * self.attention_params)
            + self.bytes_of("dense", self.dense_layers * self.dense_params)
            + self.bytes_of("shared", self.moe_layers * self.shared_params)
            + self.bytes_of("experts", self.moe_layers * self.experts * self.expert_params)
        )

    @property
    def step_bytes(self) -> float:
        """Weights that a step of one token reads."""
        idle = self.moe_layers * (self.experts - self.active) * self.expert_params
        embedding = 0 if self.tied else self.head_params * self.plain_bits / 8
        return self.weight_bytes - self.bytes_of("experts", idle) - embedding

    @property
    def expert_share(self) -> float:
        """Routed experts' share of the weights that a step of one token reads."""
        read = self.bytes_of("experts", self.moe_layers * self.active * self.expert_params)
        return read / self.step_bytes

    def kv_bytes(self, context: float, bits: float = 16.0) -> float:
        """Return the bytes of one request's KV cache that a step reads.

        Args:
            context: tokens in it.
            bits: of one cached number.
        """
        latent = self.latent
        width = 2 * self.kv_heads * self.head_dim if latent is None else latent.kv_rank + latent.rope
        whole = self.layers - self.windowed_layers - self.uncached_layers
        return width * bits / 8 * (whole * context + self.windowed_layers * min(context, self.window))


def read_shape(path: Path, quantization: str | None = None) -> ModelShape:
    """Return the shape of a model from its config.json, or from the folder it is in.

    Raises:
        UsageError: it cannot be read, or lacks a field; one line that names both.
    """
    file = path / "config.json" if path.is_dir() else path
    if file != path and not file.exists():
        raise UsageError(f"{path} is a folder without config.json: name a model's folder, or its config.json")
    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a model's folder, or its config.json")
    config = _decoded(file)
    if not isinstance(config, dict):
        raise UsageError(f"{file}: no model's config.json: a JSON object is expected")
    return shape_of(config, str(file), quantization)


def _decoded(file: Path) -> Any:
    """Return what a JSON file holds. Raises UsageError where that cannot be read."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no JSON: it is no text (UTF-8); name the model's config.json") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or type(error).__name__}") from None
    if not text.strip():
        raise UsageError(f"{file} is empty: name a model's config.json")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{file} is no JSON: {where}: {error.msg[:1].lower()}{error.msg[1:]}") from None
    except (RecursionError, ValueError):
        raise UsageError(f"{file} is no JSON that can be read: it is nested too deeply or has a huge number") from None


def shape_of(config: Mapping[str, Any], where: str, quantization: str | None = None) -> ModelShape:
    """Return the shape of a decoded config.json.

    Args:
        config: the object; the language model's part is looked for in `text_config`.
        where: the file, for errors.
        quantization: a name in `quantisation.BITS` instead of the config's own.

    Raises:
        UsageError: a field is missing or no whole number, or the quantisation is not known.
    """
    fields = Fields.of(config, where)
    plain_bits = _PLAIN_BITS.get(str(fields.any("torch_dtype", "dtype")), 16.0)
    quantised = fields.any("quantization_config") or config.get("quantization_config") or {}
    quantisation = (
        of_config(quantised if isinstance(quantised, Mapping) else {}, plain_bits, where)
        if quantization is None
        else named(quantization, plain_bits)
    )
    layers, hidden, heads = fields.layers, fields.hidden, fields.heads
    latent = (
        Latent(fields.need("kv_lora_rank"), fields.need("qk_rope_head_dim")) if fields.number("kv_lora_rank") else None
    )
    dense, moe = fields.dense_and_moe_layers()
    windowed, uncached = fields.kinds_of_attention()
    expert_width = fields.expert_width()
    return ModelShape(
        name=str(fields.any("model_type") or "model"),
        layers=layers,
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        heads=heads,
        kv_heads=fields.kv_heads,
        head_dim=fields.head_dim,
        latent=latent,
        tied=fields.tied(config),
        attention_params=fields.attention_params(),
        norm_params=2 * hidden,
        dense_layers=dense,
        dense_params=_GATED * hidden * fields.dense_width() if dense else 0,
        moe_layers=moe,
        experts=fields.experts if moe else 0,
        active=fields.active() if moe else 0,
        expert_params=_GATED * hidden * expert_width if moe else 0,
        shared_params=_GATED * hidden * fields.shared_width(expert_width) if moe else 0,
        router_params=hidden * fields.experts if moe else 0,
        windowed_layers=windowed,
        window=fields.number("sliding_window") or 0 if windowed else 0,
        uncached_layers=uncached,
        quantisation=quantisation,
        plain_bits=plain_bits,
        notes=fields.notes(),
        longest=fields.longest(),
    )
