"""Adds llama.cpp's flags to a command, and finds the model it serves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftworth.engines import layout
from draftworth.engines.llamacpp import config_flags, flags
from draftworth.engines.llamacpp.layout import locate
from draftworth.engines.placing import Placing

_PLACING = Placing(
    engine="llama.cpp", program="llama-server", server="llama.cpp's server", locate=locate, ends_at_dashes=False
)
_ONCE = frozenset({"--metrics"})
"""Switches this tool adds by itself: a second one would make the server warn of it."""

without_placeholder = _PLACING.without_placeholder
"""Takes every placeholder out of a command."""


def with_args(command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
    """Return the command with further arguments for llama.cpp; a placeholder stays, behind them.

    A `--metrics` that the command has already is not added again.

    Raises:
        RefusedError: it cannot be told where arguments go.
    """
    present = {flags.newest(word) for words in own_words(command) for word in words}
    args = [word for word in args if word not in _ONCE or word not in present]
    return _PLACING.with_args(command, args)


def with_speculation(command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with the flags of a speculative configuration; a placeholder is filled.

    Raises:
        RefusedError: the command speculates already, or it cannot be told where arguments go.
        UsageError: the configuration names no way to speculate, or cannot be written as flags.
    """
    words = config_flags.speculative_flags(config)
    return _PLACING.with_speculation(command, words, flags.speculation_in(command, {}))


def model_in(command: Sequence[str]) -> str | None:
    """Return the model a command serves as it is written there, or None where that cannot be told."""
    return next((model for words in own_words(command) if (model := flags.model_of(words))), None)


def own_words(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield llama.cpp's own arguments, wherever in the command they are, quotes removed."""
    return layout.own_words(command, locate)
