"""A setting as vLLM takes it."""

import json
from typing import Any

from draftworth.drafters.base import Setting

_FRACTIONS = frozenset({"suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"})


def config(method: str, setting: Setting) -> dict[str, Any]:
    """Return the speculative configuration of a setting (`config/speculative.py` of vLLM 0.32)."""
    found: dict[str, Any] = {"method": method, "num_speculative_tokens": setting.k}
    if setting.min is not None:
        found["prompt_lookup_min"] = setting.min
    if setting.max is not None:
        found["prompt_lookup_max"] = setting.max
    return found | {name: value if name in _FRACTIONS else int(value) for name, value in setting.more.items()}


def speculative_config(method: str, setting: Setting) -> tuple[str, str]:
    """Return the flag and the configuration of a setting."""
    return "--speculative-config", json.dumps(config(method, setting))
