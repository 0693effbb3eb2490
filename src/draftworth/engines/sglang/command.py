"""Adds SGLang's flags to a command, and finds the model it serves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftworth.engines import layout
from draftworth.engines.placing import Placing
from draftworth.engines.sglang import flags
from draftworth.engines.sglang.layout import locate
from draftworth.errors import UsageError

_PLACING = Placing(engine="SGLang", program="sglang", server="SGLang", locate=locate, ends_at_dashes=True)
_FIRST = ("algorithm", "draft_model_path")
_PREFIX = "speculative_"
_OTHERS_NAMES = {
    "method": "algorithm",
    "model": "draft_model_path",
    "num_speculative_tokens": "num_steps (and num_draft_tokens, which counts the root: one more)",
    "prompt_lookup_max": "ngram_max_trie_depth (ngram_max_match_window_size before 0.5.10)",
}

with_args = _PLACING.with_args
"""Adds further arguments for SGLang to a command; a placeholder stays, behind them."""
without_placeholder = _PLACING.without_placeholder
"""Takes every placeholder out of a command."""


def with_speculation(command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with the flags of a speculative configuration; a placeholder is filled.

    Raises:
        RefusedError: the command speculates already, or it cannot be told where arguments go.
        UsageError: the configuration names no algorithm, or cannot be written as flags.
    """
    words = speculative_flags(config)
    return _PLACING.with_speculation(command, words, flags.speculation_in(command, {}))


def named(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a speculative configuration with SGLang's names, without `speculative_` and with underscores."""
    return {str(key).replace("-", "_").removeprefix(_PREFIX): value for key, value in config.items()}


def speculative_flags(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the flags of a speculative configuration: the algorithm, the draft, then the others by name.

    True gives the flag alone; False and None leave it out; lists and objects are written as JSON.

    Raises:
        UsageError: it names no algorithm, uses another engine's names, or cannot be written.
    """
    own = named(config)
    for theirs, ours in _OTHERS_NAMES.items():
        if theirs in own:
            raise UsageError(f"speculative_config has \"{theirs}\", which is vLLM's name; SGLang's is {ours}")
    if len(own) < len(config):
        raise UsageError("speculative_config names one setting twice, with speculative_ and without")
    if not isinstance(own.get("algorithm"), str) or not own["algorithm"]:
        raise UsageError('speculative_config needs an "algorithm", for example algorithm = "NGRAM"')
    words: list[str] = []
    for key in (*(key for key in _FIRST if key in own), *sorted(key for key in own if key not in _FIRST)):
        flag, value = f"--{_PREFIX}{key}".replace("_", "-"), own[key]
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += (flag, _written(key, value))
    return tuple(words)


def _written(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"speculative_config.{key} cannot be written as a flag's value: {error}") from error


def model_in(command: Sequence[str]) -> str | None:
    """Return the model a command serves as it is written there, or None where that cannot be told."""
    for words in own_words(command):
        model = layout.value_of(words, ("--model-path", "--model"))
        if model is not None:
            return model if model and "$" not in model else None
    return None


def own_words(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield SGLang's own arguments, wherever in the command they are: up to a `--`, quotes removed."""
    return layout.own_words(command, locate)
