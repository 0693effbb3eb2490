"""Reads the flags of a planned command into a dictionary, and the variables it sets for vLLM.

Spellings as in `flags.py`: `--max-num-seqs 8`, `--max-num-seqs=8`, `--max_num_seqs 8`, `-tp 2`, the JSON of
`--speculative-config` and its single keys `--speculative-config.method ngram`. Nothing is run or expanded.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.vllm.command import own_words

_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-sc": "speculative_config",
    "-cc": "compilation_config",
    "-q": "quantization",
}
# Flags of vLLM that take no value here; a word behind one is not theirs.
_SWITCHES = frozenset(
    {
        "async_scheduling",
        "enable_lora",
        "enforce_eager",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "enable_expert_parallel",
        "trust_remote_code",
        "disable_log_stats",
        "disable_log_requests",
    }
)
_OPTION = re.compile(r"--?[A-Za-z]")
_VARIABLE = re.compile(r"(?<![\w])(VLLM_[A-Z0-9_]+)=[\"']?([^\s\"']*)")
_AMOUNT = re.compile(r"(\d{1,15})([kKmM]?)")
_FACTORS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", "none", ""})


def read_flags(command: Sequence[str], args: Sequence[str] = ()) -> dict[str, str]:
    """Return every flag of vLLM's that a command and further arguments set; of one flag the last counts.

    Names are without dashes in front, dashes inside as underscores. A switch is `true`; words of a list are joined
    with blanks. `--no-enable-lora` is `no_enable_lora`.
    """
    found: dict[str, str] = {}
    for words in (*own_words(command), args):
        name: str | None = None
        for word in words:
            if _OPTION.match(word):
                key, equals, value = word.partition("=")
                name = _name(key)
                found[name] = value if equals else "true"
                if equals or name in _SWITCHES or name.startswith("no_"):
                    name = None
            elif name is not None:
                found[name] = word if found[name] == "true" else f"{found[name]} {word}"
    return found


def _name(key: str) -> str:
    head, dot, rest = key.partition(".")
    return _SHORT.get(head, head.lstrip("-").replace("-", "_")) + dot + rest


def variables(command: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the `VLLM_…` variables an arm sets: its environment, and assignments in the words of its command."""
    found = {name: value for word in command for name, value in _VARIABLE.findall(word)}
    return found | {name: value for name, value in env.items() if name.startswith("VLLM_")}


def speculative_config(flags: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the speculative configuration that flags ask for, or None where they ask for none or cannot be read."""
    config: dict[str, Any] = {}
    try:
        document = json.loads(flags.get("speculative_config", "{}"))
    except (ValueError, RecursionError):
        document = {}
    if isinstance(document, dict):
        config.update(document)
    for name, value in flags.items():
        if name.startswith("speculative_config."):
            config[name.partition(".")[2].replace("-", "_")] = value
    for flag, key in (("spec_method", "method"), ("spec_model", "model"), ("spec_tokens", "num_speculative_tokens")):
        if flag in flags:
            config[key] = flags[flag]
    return config or None


def whole(value: object) -> int | None:
    """Return a whole number that a setting holds, or None: 5, 5.0, "5", "8k" (thousands), "8K" (1024)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    match = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        negative = isinstance(value, str) and re.fullmatch(r"\s*-\d{1,15}\s*", value)
        return int(value) if isinstance(value, str) and negative else None
    return int(match[1]) * _FACTORS[match[2]]


def truth(value: object) -> bool | None:
    """Return whether a setting is on, or None where it does not say."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word in _TRUE:
        return True
    return False if word in _FALSE and isinstance(value, str | int) else None
