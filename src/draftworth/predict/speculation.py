"""Which drafter an arm runs, and which engine mode a drafter's arm has."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftworth.drafters.base import Drafter, Setting
from draftworth.errors import UsageError

_VLLM = {"vllm-ngram-v1": ("ngram", "V1"), "vllm-ngram-v2": ("ngram", "V2"), "vllm-suffix": ("suffix", "V1")}
_V2_NGRAM = (0, 32)
"""A release of vLLM whose V2 runner has n-gram drafting; 0.25 falls back to V1 for it. Between: not looked at."""


@dataclass(frozen=True, slots=True)
class Replayable:
    """An arm whose drafts can be replayed.

    Attributes:
        drafter: its name.
        setting: with the engine's defaults filled in.
        method: the arm's own speculative method and vLLM's runner, as costs name its engine mode.
    """

    drafter: str
    setting: Setting
    method: tuple[str, str | None]


def method_of(drafter: Drafter) -> tuple[str, str | None]:
    """Return a drafter's speculative method, as costs name it, and vLLM's model runner."""
    return _VLLM.get(drafter.name, (drafter.name.partition("-")[2], None))


def mode_arms(drafter: Drafter, machine: str = "") -> dict[str, tuple[str, ...]]:
    """Return arms that measure a drafter's engine mode, by name; empty where no release is known to have any.

    vLLM 0.32 on a CPU refuses synthetic acceptance ("not supported with CPU sampling").
    vLLM's synthetic acceptance is documented in its docs/features/speculative_decoding; an n-gram of 60 tokens is next
    to never found again.
    """
    if drafter.engine != "vllm":
        return {}
    method, _ = method_of(drafter)
    k, synthetic = 5, {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.2}
    base: dict[str, object] = {"method": method, "num_speculative_tokens": k}
    lookup = {"prompt_lookup_min": 1, "prompt_lookup_max": 1} if method == "ngram" else {}
    arms: dict[str, dict[str, object]] = {f"synthetic-{k}": {**base, **lookup, **synthetic}}
    if not drafter.always_verifies:  # that of n-gram tells suffix's too: `costs.mode.stand_in`
        null = {**base, "method": "ngram", "prompt_lookup_min": 60, "prompt_lookup_max": 60}
        arms = {"null-draft": null, **arms}
    return {
        name: ("--speculative-config", json.dumps(config))
        for name, config in arms.items()
        if not (machine.startswith("cpu") and "rejection_sample_method" in config)
    }


def default_drafter(engine: str | None, version: str | None, runner: str | None) -> str:
    """Return the n-gram drafter that an engine would run; vLLM's V1 where nothing is known.

    Args:
        engine: its name.
        version: its release.
        runner: vLLM's model runner of the baseline.
    """
    if engine == "sglang":
        return "sglang-ngram"
    if engine == "llamacpp":
        return "llamacpp-ngram-mod"  # what --spec-default switches on
    return "vllm-ngram-v2" if runner == "V2" and _release(version) >= _V2_NGRAM else "vllm-ngram-v1"


def _release(version: str | None) -> tuple[int, int]:
    parts = (version or "").split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return 0, 0


def replayable(speculation: Mapping[str, Any] | None, runner: str | None) -> Replayable:
    """Return the drafter and setting of a vLLM arm.

    Args:
        speculation: its `--speculative-config`; None for an arm without.
        runner: `V1` or `V2`; None is taken for V1.

    Raises:
        UsageError: its drafts cannot be replayed from a trace, or a value is none that vLLM takes; says why.
    """
    from draftworth.drafters import drafter  # noqa: PLC0415 - lazy: numba

    config = speculation or {}
    method = config.get("method")
    k = _whole(config, "num_speculative_tokens")
    if method in {"ngram", "ngram_gpu"}:
        name = "vllm-ngram-v2" if runner == "V2" else "vllm-ngram-v1"
        low, high = _whole(config, "prompt_lookup_min"), _whole(config, "prompt_lookup_max")
        settings = drafter(name).settings(k=k, min=low, max=high)
        return Replayable(name, settings[0], (str(method), runner or "V1"))
    if method == "suffix":
        own = {key: [_number(key, value)] for key, value in config.items() if key.startswith("suffix_decoding_")}
        settings = drafter("vllm-suffix").settings(k=k, more=own or None)
        return Replayable("vllm-suffix", settings[0], ("suffix", runner or "V1"))
    raise UsageError(f"drafts of method {method!r} cannot be replayed")


def _whole(config: Mapping[str, Any], name: str) -> list[int] | None:
    value = config.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r} and not a whole number")
    return [value]


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} is {value!r} and not a number")
    return float(value)
