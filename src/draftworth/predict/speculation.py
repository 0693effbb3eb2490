"""A setting as its engine takes it, and an engine's configuration as the setting of its drafter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftworth.drafters.base import Setting

_VLLM = {"vllm-ngram-v1": "ngram", "vllm-ngram-v2": "ngram", "vllm-suffix": "suffix"}
_RUNNER = {"vllm-ngram-v1": "V1", "vllm-ngram-v2": "V2", "vllm-suffix": "V1"}
_LLAMA = "llamacpp-"


@dataclass(frozen=True, slots=True)
class Replayable:
    """An arm whose drafts can be replayed.

    Attributes:
        drafter: its name.
        setting: with the engine's defaults filled in.
    """

    drafter: str
    setting: Setting


def method_of(drafter: str) -> tuple[str, str | None]:
    """Return a drafter's speculative method, as costs name it, and vLLM's model runner."""
    if drafter in _VLLM:
        return _VLLM[drafter], _RUNNER[drafter]
    return drafter.partition("-")[2], None


def config_of(
    drafter: str, k: int, low: int | None, high: int | None, more: Mapping[str, float]
) -> dict[str, object] | None:
    """Return vLLM's `--speculative-config` of a setting; None for drafters of other engines."""
    if drafter not in _VLLM:
        return None
    config: dict[str, object] = {"method": _VLLM[drafter], "num_speculative_tokens": k}
    if low is not None:
        config["prompt_lookup_min"] = low
    if high is not None:
        config["prompt_lookup_max"] = high
    return config | {
        name: int(value) if value == int(value) and "prob" not in name and "factor" not in name else value
        for name, value in more.items()
    }


def flags_of(drafter: str, k: int, more: Mapping[str, float]) -> tuple[str, ...]:
    """Return the flags of a setting of SGLang or llama.cpp; empty for others."""
    if drafter == "sglang-ngram":
        return (
            "--speculative-algorithm",
            "NGRAM",
            "--speculative-num-draft-tokens",
            str(k + 1),
            *(word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", f"{value:g}")),
        )
    if drafter.startswith(_LLAMA):
        kind = drafter.removeprefix(_LLAMA)
        own = [
            word for name, value in more.items() for word in (f"--spec-{kind}-{name.replace('_', '-')}", f"{value:g}")
        ]
        return ("--spec-type", kind, *own)
    return ()


def replayable(speculation: Mapping[str, Any] | None, runner: str | None) -> Replayable | None:
    """Return the drafter and setting of a vLLM arm; None where its drafts cannot be replayed from a trace.

    Args:
        speculation: its `--speculative-config`; None for an arm without.
        runner: `V1` or `V2`; None is taken for V1.
    """
    from draftworth.drafters import drafter  # noqa: PLC0415 - lazy: numba

    if not speculation or speculation.get("rejection_sample_method") == "synthetic":
        return None
    k = speculation.get("num_speculative_tokens")
    match speculation.get("method"):
        case "ngram" | "ngram_gpu":
            name = "vllm-ngram-v2" if runner == "V2" else "vllm-ngram-v1"
            low, high = speculation.get("prompt_lookup_min"), speculation.get("prompt_lookup_max")
            settings = drafter(name).settings(
                k=None if k is None else [int(k)],
                min=None if low is None else [int(low)],
                max=None if high is None else [int(high)],
            )
        case "suffix":
            name = "vllm-suffix"
            own = {key: [float(value)] for key, value in speculation.items() if key.startswith("suffix_decoding_")}
            settings = drafter(name).settings(k=None if k is None else [int(k)], more=own or None)
        case _:
            return None
    return Replayable(name, settings[0])
