"""Adds vLLM's flags to a command, and finds the model it serves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftworth.engines import layout
from draftworth.engines.placing import Placing
from draftworth.engines.vllm import flags
from draftworth.engines.vllm.layout import locate
from draftworth.errors import UsageError


def _locate(command: Sequence[str]) -> layout.Place | None:
    """Return where vLLM's arguments are; a speculative flag shows it where no word says that vLLM starts."""
    place = locate(command)
    stop = flags.behind_speculation(command) if place is None else None
    return place if stop is None else layout.Place(stop, stop)


_PLACING = Placing(engine="vLLM", program="vllm", server="vLLM", locate=_locate, ends_at_dashes=True)

with_args = _PLACING.with_args
"""Adds further arguments for vLLM to a command; a placeholder stays, behind them."""
without_placeholder = _PLACING.without_placeholder
"""Takes every placeholder out of a command."""


def with_speculation(command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with `--speculative-config` and its compact JSON; a placeholder is filled.

    Raises:
        RefusedError: the command speculates already, or it cannot be told where arguments go.
        UsageError: the configuration is no JSON object with a `method` or a `model`.
    """
    words = ("--speculative-config", config_text(config))
    return _PLACING.with_speculation(command, words, flags.speculation_in(command, {}))


def config_text(config: Mapping[str, Any]) -> str:
    """Return a speculative configuration as compact ASCII JSON with sorted keys.

    Raises:
        UsageError: it is not JSON, or names neither a method nor a model.
    """
    if not any(isinstance(config.get(key), str) and config[key] for key in ("method", "model")):
        raise UsageError('speculative_config needs a "method" or a "model", for example method = "ngram"')
    try:
        return json.dumps(dict(config), separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"speculative_config cannot be written as JSON: {error}") from error


def model_in(command: Sequence[str]) -> str | None:
    """Return the model a command serves as it is written there, or None where that cannot be told."""
    for words in own_words(command):
        if words and not words[0].startswith("-"):
            return None if "$" in words[0] else words[0]
        model = layout.value_of(words, ("--model",))
        if model is not None:
            return model if model and "$" not in model else None
    return None


def own_words(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield vLLM's own arguments, wherever in the command they are: up to a `--`, quotes removed."""
    return layout.own_words(command, locate)
