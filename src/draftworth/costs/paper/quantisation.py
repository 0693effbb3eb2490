"""Bits of a weight, by the class of matrix it is in: from a config's `quantization_config`, or as a person says.

Formats read: `fp8` (block or tensor scales), `compressed-tensors`, `awq`, `gptq`, `mxfp4`, `modelopt` (FP8, NVFP4),
`bitsandbytes`. Names of matrices left out are matched as vLLM and transformers name them: whole names, parts, `re:`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from draftworth.errors import UsageError

Class = Literal["attention", "dense", "shared", "experts", "head"]
"""Attention's projections, dense feed-forward parts, shared experts, routed experts, and `lm_head`."""

CLASSES: tuple[Class, ...] = ("attention", "dense", "shared", "experts", "head")

# One matrix of each class, named as checkpoints name it; layer 7 is as good as any.
_SAMPLES: Mapping[Class, str] = {
    "attention": "model.layers.7.self_attn.o_proj",
    "dense": "model.layers.7.mlp.down_proj",
    "shared": "model.layers.7.mlp.shared_experts.down_proj",
    "experts": "model.layers.7.mlp.experts.3.down_proj",
    "head": "lm_head",
}

_SCALE_BITS = 16
BITS: Mapping[str, float] = {
    "bf16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4.0 + _SCALE_BITS / 32,
    "awq": 4.0 + (_SCALE_BITS + 4) / 128,
    "gptq": 4.0 + (_SCALE_BITS + 4) / 128,
    "mxfp4": 4.0 + 8 / 32,
    "nvfp4": 4.0 + 8 / 16,
}
"""What `--quantization` takes, with bits a weight, scales and zero points included at the usual group size."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Bits of a weight by class, and what the matrix units compute in.

    Attributes:
        name: for a person: `bf16`, `compressed-tensors int4`, …
        bits: by class.
        compute: `fp8` or `fp4` where activations are quantised too, `bf16` where weights are expanded first.
    """

    name: str
    bits: Mapping[Class, float]
    compute: Literal["bf16", "fp8", "fp4"]


def named(name: str, plain_bits: float) -> Quantisation:
    """Return the quantisation a person names; `lm_head` stays as it is.

    Raises:
        UsageError: it is not known; the choices are listed.
    """
    if name not in BITS:
        raise UsageError(f"--quantization: {name!r} is not known: choose one of {', '.join(BITS)}")
    bits: dict[Class, float] = dict.fromkeys(CLASSES, BITS[name])
    bits["head"] = plain_bits
    return Quantisation(name, bits, _compute(name))


def of_config(config: Mapping[str, Any], plain_bits: float, where: str) -> Quantisation:
    """Return the quantisation of a `quantization_config`; empty for none.

    Raises:
        UsageError: the method is not known; `--quantization` says it then.
    """
    plain: dict[Class, float] = dict.fromkeys(CLASSES, plain_bits)
    if not config:
        return Quantisation("bf16" if plain_bits == BITS["bf16"] else f"{plain_bits:g} bits", plain, "bf16")
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    name, bits, compute = _format(method, config, where)
    left_out = _left_out(config)
    quantised: dict[Class, float] = {
        one: plain_bits if one == "head" or _matches(sample, left_out) else bits for one, sample in _SAMPLES.items()
    }
    if method == "mxfp4":  # gpt-oss: only the experts, whatever the list says
        quantised = {**plain, "experts": bits}
    return Quantisation(name, quantised, compute)


def _format(method: str, config: Mapping[str, Any], where: str) -> tuple[str, float, Literal["bf16", "fp8", "fp4"]]:
    """Return name, bits and what is computed in."""
    match method:
        case "fp8" | "fbgemm_fp8":
            return "fp8", BITS["fp8"], "fp8"
        case "mxfp4":
            return "mxfp4", BITS["mxfp4"], "bf16"
        case "modelopt" | "modelopt_fp4" | "fp8_pb_wo" | "nvfp4":
            four = "4" in str(config.get("quant_algo", "")) or method in {"nvfp4", "modelopt_fp4"}
            return ("nvfp4", BITS["nvfp4"], "fp4") if four else ("fp8", BITS["fp8"], "fp8")
        case "awq" | "gptq":
            width = _number(config.get("bits", config.get("w_bit", 4)), 4)
            group = _number(config.get("group_size", config.get("q_group_size", 128)), 128)
            return f"{method} int{width}", width + (_SCALE_BITS + width) / group, "bf16"
        case "bitsandbytes":
            return (
                ("bitsandbytes int8", 8.0, "bf16") if config.get("load_in_8bit") else ("bitsandbytes nf4", 4.5, "bf16")
            )
        case "compressed-tensors":
            return _compressed(config, where)
    raise UsageError(
        f"{where}: quantization_config: method {method or 'missing'!r} is not known: name it with --quantization"
        f" ({', '.join(BITS)})"
    )


def _compressed(config: Mapping[str, Any], where: str) -> tuple[str, float, Literal["bf16", "fp8", "fp4"]]:
    groups = config.get("config_groups")
    group = (
        next((one for one in groups.values() if isinstance(one, Mapping)), {}) if isinstance(groups, Mapping) else {}
    )
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise UsageError(f"{where}: quantization_config: no config_groups with weights: say it with --quantization")
    width = _number(weights.get("num_bits"), 8)
    size = _number(weights.get("group_size"), 0)
    floating = weights.get("type") == "float"
    eight = 8
    scale = (8 if floating and width < eight else _SCALE_BITS) / size if size else 0.0
    both = group.get("input_activations") is not None
    compute: Literal["bf16", "fp8", "fp4"] = "bf16"
    if both:
        compute = "fp4" if floating and width < eight else "fp8"
    return f"compressed-tensors {'fp' if floating else 'int'}{width}", width + scale, compute


def _compute(name: str) -> Literal["bf16", "fp8", "fp4"]:
    if name == "nvfp4":
        return "fp4"
    return "fp8" if name in {"fp8", "int8"} else "bf16"


def _left_out(config: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "llm_int8_skip_modules"):
        value = config.get(key)
        if isinstance(value, list):
            found.extend(word for word in value if isinstance(word, str))
    return tuple(found)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a matrix is left out. Lists name each layer; any layer of a class stands for all of them."""
    for pattern in patterns:
        if pattern.startswith("re:"):
            with_layer = pattern[3:]
            try:
                if re.match(with_layer, name):
                    return True
            except re.error:
                continue
            continue
        plain = re.sub(r"\.\d+(?=\.|$)", ".*", pattern).removeprefix("language_model.")
        mine = re.sub(r"\.\d+(?=\.|$)", ".*", name)
        if plain == mine or mine.startswith(plain.rstrip("*").rstrip(".") + ".") or f".{plain}." in f".{mine}.":
            return True
    return False


def _number(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise
