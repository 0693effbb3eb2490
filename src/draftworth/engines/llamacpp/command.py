"""Adds llama.cpp's flags to a command in whatever way the command carries them.

A command is a sequence of words. llama.cpp's arguments are among them, inside the string of a `bash -c`, or where the
person wrote `{speculative_args}`. Words put into a shell string are quoted for a shell, so they arrive as given.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftworth.engines import shell
from draftworth.engines.llamacpp import config_flags, flags
from draftworth.engines.llamacpp.layout import Place, locate
from draftworth.errors import RefusedError

PLACEHOLDER = "{speculative_args}"
"""Marks where flags go in a command that does not show it: a word of its own, outside quotes."""

_WAY_OUT = f"put the llama-server command itself into service.command, or write {PLACEHOLDER} where the flags should go"
_SHOWN = 160  # characters of a command in a message
_ONCE = frozenset({"--metrics"})
"""Switches this tool adds by itself: a second one would make the server warn of it."""


def with_args(command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
    """Return the command with further arguments for llama.cpp; a placeholder stays, behind them.

    A `--metrics` that the command has already is not added again.

    Raises:
        RefusedError: it cannot be told where arguments go.
    """
    present = {flags.newest(word) for words in own_words(command) for word in words}
    args = [word for word in args if word not in _ONCE or word not in present]
    if not args:
        return tuple(command)
    if _has_placeholder(command):
        return _replaced(command, (*args, PLACEHOLDER))
    return _inserted(command, args)


def with_speculation(command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with the flags of a speculative configuration; a placeholder is filled.

    Raises:
        RefusedError: the command speculates already, or it cannot be told where arguments go.
        UsageError: the configuration names no way to speculate, or cannot be written as flags.
    """
    words = config_flags.speculative_flags(config)
    present = flags.speculation_in(command, {})
    if present:
        raise RefusedError(
            f"the command speculates already ({present}); take that out of service.command and make it an arm's "
            "speculative_config"
        )
    return _replaced(command, words) if _has_placeholder(command) else _inserted(command, words)


def without_placeholder(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command with every placeholder taken out.

    Raises:
        RefusedError: a placeholder stands inside quotes or inside a longer word.
    """
    return _replaced(command, ()) if _has_placeholder(command) else tuple(command)


def model_in(command: Sequence[str]) -> str | None:
    """Return the model a command serves as it is written there, or None where that cannot be told."""
    return next((model for words in own_words(command) if (model := flags.model_of(words))), None)


def own_words(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield llama.cpp's own arguments, wherever in the command they are, quotes removed."""
    place = locate(command)
    if place is None:
        return
    if not place.script:
        yield command[place.start : place.stop]
        return
    try:
        commands = shell.simple_commands(command[place.start])
    except shell.ShellSyntaxError:
        return
    for words in commands:
        yield from own_words([word.text for word in words])


def _has_placeholder(command: Sequence[str]) -> bool:
    return any(PLACEHOLDER in word for word in command)


def _refused(command: Sequence[str], why: str = "it does not show where llama.cpp's arguments go") -> RefusedError:
    shown = shlex.join(command)
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "…"
    return RefusedError(f"cannot add flags to the command `{shown}`: {why}; {_WAY_OUT}")


def _replaced(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    place = locate(command)
    result: list[str] = []
    for index, word in enumerate(command):
        if word == PLACEHOLDER:
            result += words
        elif PLACEHOLDER not in word:
            result.append(word)
        elif place and place.script and index == place.start:
            result.append(_replaced_in_string(word, words))
        else:
            raise _misplaced()
    return tuple(result)


def _replaced_in_string(text: str, words: Sequence[str]) -> str:
    edits: list[tuple[int, int, str]] = []
    for command in _parsed(text):
        place = locate([word.text for word in command])
        for index, word in enumerate(command):
            if word.raw == PLACEHOLDER:
                edits.append((word.start, word.end, _quoted(words)))
            elif PLACEHOLDER in word.text:
                if not (place and place.script and index == place.start) or word.expands:
                    raise _misplaced()
                edits.append((word.start, word.end, shlex.quote(_replaced_in_string(word.text, words))))
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


def _misplaced() -> RefusedError:
    return RefusedError(f"{PLACEHOLDER} in service.command must stand as a word of its own, outside quotes")


def _quoted(words: Sequence[str]) -> str:
    return " ".join(word if word == PLACEHOLDER else shlex.quote(word) for word in words)


def _parsed(text: str) -> list[list[shell.Word]]:
    try:
        return shell.simple_commands(text)
    except shell.ShellSyntaxError as error:
        raise _refused([text], f"its shell string has {error}, which this tool does not read") from error


def _inserted(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    place = locate(command)
    if place is None:
        raise _refused(command)
    if not place.script:
        return (*command[: place.stop], *words, *command[place.stop :])
    edited = _inserted_in_string(command[place.start], words)
    if edited is None:
        raise _refused(command)
    return (*command[: place.start], edited, *command[place.stop :])


def _inserted_in_string(text: str, words: Sequence[str]) -> str | None:
    found: list[tuple[list[shell.Word], Place]] = []
    for command in _parsed(text):
        place = locate([word.text for word in command])
        if place is not None:
            found.append((command, place))
    if len(found) > 1:
        raise _refused([text], f"it starts llama.cpp's server in {len(found)} places")
    if not found:
        return None
    command, place = found[0]
    if not place.script:
        end = command[place.stop - 1].end
        return f"{text[:end]} {_quoted(words)}{text[end:]}"
    inner = command[place.start]
    if inner.expands:
        raise _refused([text], "it holds a shell string in double quotes with a $ in it")
    edited = _inserted_in_string(inner.text, words)
    return None if edited is None else text[: inner.start] + shlex.quote(edited) + text[inner.end :]
