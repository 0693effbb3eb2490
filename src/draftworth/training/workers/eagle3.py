"""The forward of an EAGLE-3 draft, written from the papers and from what engines do, without the trainer's model code.

It drafts as a server does: keys and values of every position come from the target's states (first pass); a chain of k
tokens then feeds each drafted token and the draft's own last state into the next step, one position further.
Sources: EAGLE-3, arXiv 2503.01840, section 3.1 (features of three layers, and the draft's own output in later steps);
vLLM 0.32 `llama_eagle3.py` and `v1/spec_decode/eagle.py` for norms, residuals and positions. Always in float32.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch

from draftworth.training.workers.channel import WorkerRefusedError
from draftworth.training.workers.draft_shape import DraftShape, draft_shape

Tensor: TypeAlias = torch.Tensor

_QUERIES = 512
"""Queries attended at a time: what bounds the memory of scores, [heads, 512, T]."""


class Draft:
    """A draft's weights and its forward."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str = "cpu") -> None:
        """Take weights by the names of either layout (`layers.0.` or `midlayer.`).

        Args:
            config: config.json.
            tensors: the weights, `embed_tokens.weight` among them.
            device: where to compute.

        Raises:
            WorkerRefusedError: the config is of no draft that is known here, or a tensor is missing.
        """
        self.shape: DraftShape = draft_shape(config)
        self.device = device
        self._w = {
            name.replace("midlayer.", "layers.0."): (one if not one.is_floating_point() else one.float()).to(device)
            for name, one in tensors.items()
        }
        if "embed_tokens.weight" not in self._w:
            raise WorkerRefusedError("the draft has no embed_tokens.weight, and no target's was given")
        self._offsets = self._w.get("d2t")
        self._inverse, self._scaling = _rotary(self.shape, device)

    @classmethod
    def load(cls, folder: Path, target: Path, device: str = "cpu", dtype: torch.dtype | None = None) -> "Draft":
        """Return the draft in a folder.

        Args:
            folder: with config.json and model.safetensors.
            target: the target's folder, for the embedding where the draft shares it.
            device: where to compute.
            dtype: round the weights to this type first, as an export would.
        """
        from safetensors.torch import load_file  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's

        tensors: dict[str, Tensor] = dict(load_file(folder / "model.safetensors"))
        if "embed_tokens.weight" not in tensors:
            tensors["embed_tokens.weight"] = target_tensor(target, "embed_tokens.weight")
        if dtype is not None:
            tensors = {name: one.to(dtype) if one.is_floating_point() else one for name, one in tensors.items()}
        config = json.loads((folder / "config.json").read_text("utf-8"))
        full = folder / "layer_config.json"
        if full.is_file() and "transformer_layer_config" in config:
            config["transformer_layer_config"] = json.loads(full.read_text("utf-8"))
        return cls(config, tensors, device)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def chain(self, tokens: Tensor, states: Tensor, where: Tensor, k: int) -> Tensor:
        """Draft k tokens from each anchor.

        Args:
            tokens: the text, [T].
            states: the target's auxiliary states, [T, aux * hidden], of the layers in `shape.aux`.
            where: anchors t, [M]; at each, tokens up to t + 1 and states up to t are known.
            k: how many tokens.

        Returns:
            Drafted target ids [M, k], which stand for tokens t + 2 and on.
        """
        hidden = self._features(states[:-1].to(self.device).float())
        embedded = self._w["embed_tokens.weight"]
        positions = torch.arange(len(tokens) - 1, device=self.device)
        where = where.to(self.device)
        cache: list[tuple[Tensor, Tensor]] = []
        x = self._layers(embedded[tokens[1:].to(self.device)], hidden, positions, positions, cache, [])
        x = x[where]
        extra: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(self.shape.layers)]
        drafted: list[Tensor] = []
        for step in range(k):
            normed = self._norm("norm", x)
            ids = (normed @ self._w["lm_head.weight"].T).argmax(-1)
            ids = ids if self._offsets is None else ids + self._offsets[ids]
            drafted.append(ids)
            if step + 1 < k:
                passed = normed if self.shape.norm_output else x
                x = self._layers(embedded[ids], passed, where + step + 1, where, cache, extra)
        return torch.stack(drafted, 1)

    def _features(self, states: Tensor) -> Tensor:
        """Return what stands for the target's states, [T, hidden]."""
        if self.shape.norm_before_fc:
            states = self._norm("input_norm", states)
        if self.shape.fc_norm:
            parts = states.chunk(len(self.shape.aux), -1)
            states = torch.cat([self._norm(f"fc_norm.{at}", one) for at, one in enumerate(parts)], -1)
        return states @ self._w["fc.weight"].T

    def _layers(  # noqa: PLR0917 - private, and tensors of one pass
        self,
        embeds: Tensor,
        hidden: Tensor,
        positions: Tensor,
        seen: Tensor,
        cache: list[tuple[Tensor, Tensor]],
        extra: list[list[tuple[Tensor, Tensor]]],
    ) -> Tensor:
        """Run the decoder layers; fills the cache in the first pass, adds to `extra` in those of the chain.

        Args:
            embeds: embeddings of the tokens that are fed, [M, hidden].
            hidden: what stands for the target's states, [M, hidden].
            positions: their positions, [M].
            seen: the last position of the cache that each may see, [M].
            cache: keys and values of the first pass, by layer.
            extra: keys and values of the chain's steps, by layer; each belongs to its own anchor alone.
        """
        x = hidden
        for layer, window in enumerate(self.shape.windows):
            name = f"layers.{layer}"
            if layer == 0:
                normed = self._norm(f"{name}.hidden_norm", x)
                residual = normed if self.shape.norm_before_residual else x
                source = torch.cat([self._norm(f"{name}.input_layernorm", embeds), normed], -1)
            else:
                residual, source = x, self._norm(f"{name}.input_layernorm", x)
            query, key, value = self._projected(name, source, positions)
            if extra:
                extra[layer].append((key, value))
                found = self._attended(query, positions, seen, cache[layer], extra[layer], window)
            else:
                cache.append((key, value))
                found = self._attended(query, positions, seen, cache[layer], [], window)
            x = residual + self._linear(f"{name}.self_attn.o_proj", found)
            x = x + self._mlp(name, self._norm(f"{name}.post_attention_layernorm", x))
        return x

    def _projected(self, name: str, source: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query [M, heads, d], key and value [M, kv_heads, d], turned to their positions."""
        shape = self.shape
        query = self._linear(f"{name}.self_attn.q_proj", source).unflatten(-1, (shape.heads, shape.head_dim))
        key = self._linear(f"{name}.self_attn.k_proj", source).unflatten(-1, (shape.kv_heads, shape.head_dim))
        value = self._linear(f"{name}.self_attn.v_proj", source).unflatten(-1, (shape.kv_heads, shape.head_dim))
        if shape.kind == "qwen3":
            query = self._norm(f"{name}.self_attn.q_norm", query)
            key = self._norm(f"{name}.self_attn.k_norm", key)
        angles = positions[:, None].float() * self._inverse
        turn = torch.cat([angles, angles], -1)[:, None]
        cosine, sine = turn.cos() * self._scaling, turn.sin() * self._scaling
        return _turned(query, cosine, sine), _turned(key, cosine, sine), value

    def _attended(  # noqa: PLR0917 - as above
        self,
        query: Tensor,
        positions: Tensor,
        seen: Tensor,
        cache: tuple[Tensor, Tensor],
        extra: list[tuple[Tensor, Tensor]],
        window: int | None,
    ) -> Tensor:
        """Return what attention reads, [M, heads * d]."""
        keys, values = cache
        group = self.shape.heads // self.shape.kv_heads
        at = torch.arange(len(keys), device=self.device)
        found = []
        for first in range(0, len(query), _QUERIES):
            part = slice(first, first + _QUERIES)
            q = query[part].unflatten(1, (self.shape.kv_heads, group)) * self.shape.head_dim**-0.5
            scores = torch.einsum("mhgd,nhd->mhgn", q, keys)
            hidden = at > seen[part, None]
            if window is not None:
                hidden = hidden | (at <= positions[part, None] - window)
            scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
            own = [torch.einsum("mhgd,mhd->mhg", q, key[part])[..., None] for key, _ in extra]
            weights = torch.cat([scores, *own], -1).softmax(-1)
            read = torch.einsum("mhgn,nhd->mhgd", weights[..., : len(keys)], values)
            for step, (_, value) in enumerate(extra):
                read = read + weights[..., len(keys) + step, None] * value[part][:, :, None]
            found.append(read.flatten(1))
        return torch.cat(found)

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        gate = torch.nn.functional.silu(self._linear(f"{name}.mlp.gate_proj", x))
        return self._linear(f"{name}.mlp.down_proj", gate * self._linear(f"{name}.mlp.up_proj", x))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        bias = self._w.get(f"{name}.bias")
        found = x @ self._tensor(f"{name}.weight").T
        return found if bias is None else found + bias

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.shape.eps) * self._tensor(f"{name}.weight")

    def _tensor(self, name: str) -> Tensor:
        try:
            return self._w[name]
        except KeyError:
            raise WorkerRefusedError(f"the draft has no tensor {name}") from None


def target_tensor(target: Path, suffix: str) -> Tensor:
    """Return the target's tensor whose name is, or ends in, `suffix`; the shortest name, the language model's.

    Raises:
        WorkerRefusedError: there is none in its safetensors files.
    """
    from safetensors import safe_open  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's

    best: tuple[str, Path] | None = None
    for path in sorted(target.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                fits = name == suffix or name.endswith(f".{suffix}")
                if fits and (best is None or len(name) < len(best[0])):
                    best = (name, path)
    if best is None:
        raise WorkerRefusedError(f"{target}: no safetensors file holds {suffix}")
    with safe_open(best[1], framework="pt") as file:
        found: Tensor = file.get_tensor(best[0])
    return found


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn each pair (i, i + d / 2) of a head; dimensions behind the rotary ones stay (partial rotary)."""
    width = cosine.shape[-1]
    part, rest = x[..., :width], x[..., width:]
    first, second = part.chunk(2, -1)
    return torch.cat([part * cosine + torch.cat([-second, first], -1) * sine, rest], -1)


def _rotary(shape: DraftShape, device: str) -> tuple[Tensor, float]:
    """Return the inverse frequencies, [d / 2], and the factor of cosine and sine (yarn's)."""
    from transformers import AutoConfig  # noqa: PLC0415 - slow to import
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415 - as above

    inner = {name: value for name, value in shape.inner.items() if name not in ("eagle_config", "architectures")}
    config = AutoConfig.for_model(**{**inner, "model_type": shape.kind})
    rope = dict(getattr(config, "rope_parameters", None) or {})
    kind = rope.get("rope_type", "default")
    if kind == "default":
        width = shape.head_dim
        theta = float(rope.get("rope_theta") or 10000.0)
        return 1.0 / theta ** (torch.arange(0, width, 2, device=device).float() / width), 1.0
    if kind in ("dynamic", "longrope"):
        raise WorkerRefusedError(f"rotary scaling {kind!r} changes with the length; it is not evaluated here")
    inverse, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device(device))
    return inverse.to(device), float(scaling)
