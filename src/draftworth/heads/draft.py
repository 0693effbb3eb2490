"""A head as the engine sees it: its config after the changes that vLLM makes, whichever trainer wrote it.

Read in vLLM 0.32: `transformers_utils/configs/speculators/algos.py` (speculators' layout), `.../eagle.py` (the renaming
of architectures), `.../medusa.py`, `config/speculative.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from draftworth.costs.paper.fields import Fields
from draftworth.errors import UsageError
from draftworth.heads.base import Layout, Method
from draftworth.heads.folder import Model

_MEDUSA_WIDTH = 4096
"""The hidden size that vLLM takes where a Medusa config tells none (`MedusaConfig`)."""

_MOST_LAYERS = 1024
"""More layers or heads than any model has; a number above is no number of them."""
EAGLE3_LAYERS = 3
"""Auxiliary layers where none are named."""

_RENAMED: Mapping[Method, tuple[str, tuple[str, ...], str]] = {
    Method.EAGLE3: ("Eagle3", ("Eagle3", "Peagle", "PEagle"), "Eagle3"),
    Method.EAGLE: ("Eagle", ("Eagle",), ""),
    Method.DFLASH: ("DFlash", ("DFlash",), "DFlash"),
}
"""What vLLM puts before an architecture, unless it begins or ends so (`EAGLEConfig`)."""

_SPECULATORS_KEPT = (
    *("draft_vocab_size", "target_hidden_size", "norm_before_fc", "fc_norm", "norm_output", "mask_token_id"),
    "eagle_aux_hidden_state_layer_ids",
)


@dataclass(frozen=True)
class Aux:
    """Which of the target's layers a head reads.

    Attributes:
        ids: in the engine's count, of layers applied: 0 is the embedding's output, n the last layer's.
        field: the field of config.json that tells them.
        written: the ids as the field has them.
    """

    ids: tuple[int, ...]
    field: str
    written: tuple[int, ...]


@dataclass(frozen=True)
class Draft:
    """A head or draft model.

    Attributes:
        model: its folder.
        method: how it drafts.
        layout: the layout of its config.json.
    """

    model: Model
    method: Method
    layout: Layout

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config that the engine builds the head from."""
        told = self.model.config
        if self.layout is Layout.PLAIN:
            return {**told, **self.model.text.config}
        inner = told.get("transformer_layer_config")
        if not isinstance(inner, Mapping):
            raise UsageError(f"{self.model.path / 'config.json'}: transformer_layer_config must be an object")
        kept = {name: told[name] for name in _SPECULATORS_KEPT if told.get(name) is not None}
        kept["norm_before_residual"] = told.get("norm_before_residual", True)
        if self.method is Method.DFLASH:
            kept["eagle_aux_hidden_state_layer_ids"] = told.get("aux_hidden_state_layer_ids")
        return {**inner, **kept}

    @cached_property
    def fields(self) -> Fields:
        """The same, with numbers checked."""
        return Fields(self.config, str(self.model.path / "config.json"))

    @property
    def architecture(self) -> str | None:
        """The architecture that the engine loads it as; none where config.json tells none."""
        told = self.model.architecture
        if self.method is Method.MEDUSA:
            return told or "MedusaModel"
        if self.layout is Layout.SPECULATORS:
            return self._speculators_architecture()
        if told is None:
            return None
        prefix, first, last = _RENAMED.get(self.method, ("", ("",), ""))
        is_renamed = told.startswith(first) or (bool(last) and told.endswith(last)) or told == "LiLiCorrDraftModel"
        return told if is_renamed else f"{prefix}{told}"

    def _speculators_architecture(self) -> str | None:
        kind = self.model.config.get("speculators_model_type")
        if kind in ("dflash", "dflash2"):
            return "DFlashDraftModel" if kind == "dflash" else "DFlash2DraftModel"
        if kind not in ("eagle3", "peagle"):
            return None
        prefix = "Eagle3" if kind == "eagle3" else "Peagle"
        family = {"llama": "Llama", "qwen3": "Qwen3"}.get(str(self.config.get("model_type", "llama")))
        return f"{prefix}{family}ForCausalLM" if family else None

    @cached_property
    def hidden_size(self) -> int | None:
        """Its own width."""
        found = self.fields.number("hidden_size")
        return _MEDUSA_WIDTH if found is None and self.method is Method.MEDUSA else found

    @property
    def target_hidden_size(self) -> int | None:
        """The width of the target's hidden states that it expects."""
        return self.fields.number("target_hidden_size") or self.hidden_size

    @property
    def layers(self) -> int | None:
        """Its transformer layers."""
        return self.count("num_hidden_layers")

    def count(self, *names: str) -> int | None:
        """Return the first of these as a number of layers or heads.

        Raises:
            UsageError: it is none, or no model has as many.
        """
        found = self.fields.number(*names)
        if found is not None and found > _MOST_LAYERS:
            raise UsageError(f"{self.fields.where}: {names[0]}: no model has {found} of them")
        return found

    @property
    def vocabulary(self) -> int | None:
        """Tokens it reads."""
        return self.fields.number("vocab_size")

    @property
    def draft_vocabulary(self) -> int | None:
        """Tokens it can draft."""
        return self.fields.number("draft_vocab_size") or self.vocabulary

    @property
    def is_quantised(self) -> bool:
        """Whether its own weights are quantised."""
        return bool(self.config.get("quantization_config") or self.model.config.get("quantization_config"))

    @property
    def eagle_config(self) -> Mapping[str, Any]:
        """The nested `eagle_config`, where SpecForge puts what concerns auxiliary layers."""
        found = self.config.get("eagle_config")
        return found if isinstance(found, Mapping) else {}

    @property
    def dflash_config(self) -> Mapping[str, Any]:
        """The nested `dflash_config`."""
        found = self.config.get("dflash_config")
        return found if isinstance(found, Mapping) else {}

    def flag(self, name: str) -> bool:
        """Return a yes or no of `eagle_config` or the config, no where it is not there."""
        return bool(self.eagle_config.get(name, self.config.get(name, False)))

    @cached_property
    def aux(self) -> Aux | None:
        """The target's layers it reads; none where no field tells.

        Raises:
            UsageError: a field tells something else than whole numbers.
        """
        top = "eagle_aux_hidden_state_layer_ids"
        shown = (
            "aux_hidden_state_layer_ids" if self.layout is Layout.SPECULATORS and self.method is Method.DFLASH else top
        )
        # Of DFlash's own field, 0 is the first layer's output.
        for holder, name, where, shift in (
            (self.config, top, shown, 0),
            (self.dflash_config, "target_layer_ids", "dflash_config.target_layer_ids", 1),
            (self.eagle_config, top, f"eagle_config.{top}", 0),
            (self.eagle_config, "layer_ids", "eagle_config.layer_ids", 0),
        ):
            ids = holder.get(name)
            if not ids:
                continue
            if not isinstance(ids, Sequence) or not all(type(one) is int for one in ids):
                raise UsageError(f"{self.fields.where}: {where}: whole numbers are expected, not {ids!r}")
            return Aux(tuple(one + shift for one in ids), where, tuple(ids))
        return None

    @property
    def aux_count(self) -> int:
        """How many of the target's layers the engine's model class makes `fc` for.

        vLLM 0.32: `llama_eagle3.py` and `deepseek_eagle3.py` count only ids in `eagle_config`, `qwen3_eagle3.py` those
        at the top too; `qwen3_dflash.py` counts whatever ids there are.
        """
        told = self.count("num_aux_hidden_states")
        if (self.architecture or "").startswith(("Eagle3Qwen3", "PeagleQwen3")) and "vl" not in (
            self.architecture or ""
        ):
            told = self.count("num_aux_layers", "num_aux_hidden_states")
            ids = self.config.get("eagle_aux_hidden_state_layer_ids") or self.eagle_config.get(
                "eagle_aux_hidden_state_layer_ids"
            )
        elif self.method is Method.DFLASH:
            ids = self.aux.ids if self.aux else ()
            return len(ids) or self.layers or 0
        else:
            ids = self.eagle_config.get("eagle_aux_hidden_state_layer_ids")
        return told if told is not None else len(ids) if isinstance(ids, list) and ids else EAGLE3_LAYERS
