"""Fields of a config.json under the names that different model families give them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftworth.errors import UsageError

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k")
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")


@dataclass(frozen=True, slots=True)
class Fields:
    """The language model's part of a config.json.

    Attributes:
        config: that part.
        where: the file, for errors.
    """

    config: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str) -> "Fields":
        """Return the part that describes the language model, however deep it is nested."""
        inner = config
        while "hidden_size" not in inner or "num_hidden_layers" not in inner:
            nested = next((inner[key] for key in _NESTED if isinstance(inner.get(key), Mapping)), None)
            if nested is None:
                break
            inner = nested
        return cls(inner, where)

    def any(self, *names: str) -> Any:
        """Return the first of these that is there and not null."""
        return next((self.config[name] for name in names if self.config.get(name) is not None), None)

    def number(self, *names: str) -> int | None:
        """Return the first of these as a whole number, at least 0.

        Raises:
            UsageError: it is there and is no such number.
        """
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UsageError(f"{self.where}: {name}: a whole number is expected, not {value!r}")
            return value
        return None

    def need(self, *names: str) -> int:
        """Return the first of these, above 0.

        Raises:
            UsageError: none is there.
        """
        found = self.number(*names)
        if not found:
            raise UsageError(f"{self.where}: no {names[0]}: is this a language model's config.json?")
        return found

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.need("num_hidden_layers", "n_layer", "num_layers")

    @property
    def hidden(self) -> int:
        """The width."""
        return self.need("hidden_size", "n_embd", "d_model")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.need("num_attention_heads", "n_head")

    @property
    def kv_heads(self) -> int:
        """Key and value heads; as many as query heads where none are named."""
        return self.number("num_key_value_heads") or self.heads

    @property
    def head_dim(self) -> int:
        """Of a key or a value."""
        return self.number("head_dim") or max(1, self.hidden // self.heads)

    @property
    def experts(self) -> int:
        """Routed experts of a layer; 0 for a dense model."""
        found = self.number(*_EXPERTS) or 0
        return found if found > 1 else 0

    def active(self) -> int:
        """Experts of each token. Raises UsageError where it is missing or more than there are."""
        active = self.need(*_ACTIVE)
        if active > self.experts:
            raise UsageError(f"{self.where}: {active} active experts of {self.experts}: more than there are")
        return active

    def expert_width(self) -> int:
        """Inner width of one routed expert."""
        return (self.number(*_EXPERT_WIDTH) or self.dense_width()) if self.experts else 0

    def dense_width(self) -> int:
        """Inner width of a dense feed-forward part."""
        return self.need("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner")

    def shared_width(self, expert_width: int) -> int:
        """Inner width of the shared experts together."""
        width = self.number(*_SHARED_WIDTH)
        count = self.number(*_SHARED)
        if width:
            return width * (count or 1)
        if self.any("model_type") == "llama4_text":
            return expert_width
        return expert_width * (count or 0)

    def tied(self, outer: Mapping[str, Any]) -> bool:
        """Whether lm_head is the embedding; Gemma's configs leave it out and mean yes, others mean no."""
        value = self.config.get("tie_word_embeddings", outer.get("tie_word_embeddings"))
        return value is True or (value is None and str(self.any("model_type")).startswith("gemma"))

    def dense_and_moe_layers(self) -> tuple[int, int]:
        """Return how many layers have a dense feed-forward part, and how many have experts."""
        layers = self.layers
        if not self.experts:
            return layers, 0
        first = self.number("first_k_dense_replace", "moe_layer_start_index") or 0
        every = self.number("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq") or 1
        listed = self.any("moe_layers")
        plain = self.any("mlp_only_layers") or ()
        if isinstance(listed, list) and listed:
            moe = len({at for at in listed if isinstance(at, int) and at < layers})
        else:
            dense = {at for at in plain if isinstance(at, int)} if isinstance(plain, list) else set()
            # DeepSeek counts layers from 0, Qwen and Llama 4 from 1.
            shift = 0 if self.number("moe_layer_freq") else 1
            moe = sum(at >= first and at not in dense and (at + shift) % every == 0 for at in range(layers))
        return layers - moe, moe

    def kinds_of_attention(self) -> tuple[int, int]:
        """Return how many layers attend to a window only, and how many keep a state of fixed size."""
        kinds = self.any("layer_types")
        if isinstance(kinds, list):
            windowed = sum(kind in {"sliding_attention", "chunked_attention"} for kind in kinds)
            fixed = sum(kind in {"linear_attention", "mamba", "recurrent"} for kind in kinds)
            return (windowed if self.number("sliding_window") else 0), fixed
        every = self.number("full_attention_interval")
        if every:
            return 0, self.layers - self.layers // every
        if self.number("sliding_window") and self.any("use_sliding_window") is not False:
            step = self.number("sliding_window_pattern")
            return (self.layers - self.layers // step if step else self.layers), 0
        return 0, 0

    def longest(self) -> int | None:
        """Return the tokens of a request that are stated; None where none are, or they are no whole number."""
        found = self.any("max_position_embeddings", "n_positions", "max_seq_len")
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None

    def attention_params(self) -> int:
        """Parameters of the attention of one layer."""
        hidden, heads = self.hidden, self.heads
        rank = self.number("kv_lora_rank")
        if not rank:
            return hidden * self.head_dim * (2 * heads + 2 * self.kv_heads)
        plain, rope, value = self.need("qk_nope_head_dim"), self.need("qk_rope_head_dim"), self.need("v_head_dim")
        query = self.number("q_lora_rank")
        asked = hidden * query + query * heads * (plain + rope) + query if query else hidden * heads * (plain + rope)
        return asked + hidden * (rank + rope) + rank + rank * heads * (plain + value) + heads * value * hidden

    def notes(self) -> tuple[str, ...]:
        """Return what was assumed of this model."""
        notes: list[str] = []
        if self.kinds_of_attention()[1]:
            notes.append("layers of linear attention are counted with the weights of plain attention")
        if self.number("num_nextn_predict_layers", "mtp_num_hidden_layers"):
            notes.append("layers that predict further tokens (MTP) are left out")
        return tuple(notes)
