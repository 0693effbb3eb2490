"""Adds arguments to a `trtllm-serve` command, and says how speculation gets there.

Speculation has no flag: it is the key `speculative_config` of the YAML file behind `--extra_llm_api_options` (0.17 and
later; `--config` is the same since PR #9104, 1.2). `--set PATH=VALUE` of PR #19555 was still open in September 2026.
So an arm names a file: given twice, the option's last value counts, and the file must hold everything of the first.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftworth.engines import shell
from draftworth.engines.trtllm import layout, options
from draftworth.errors import RefusedError, UsageError

PLACEHOLDER = "{speculative_args}"
"""Marks where arguments go in a command that does not show it: a word of its own, outside quotes."""
OPTION = "--extra_llm_api_options"
"""The option every release knows."""
FILE_KEY = OPTION.removeprefix("--")
"""A speculative configuration with this key alone names the options file of the arm."""

_WAY_OUT = f"put the trtllm-serve command itself into service.command, or write {PLACEHOLDER} where arguments should go"
_SHOWN = 160  # characters of a command in a message


def speculation_in(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return how a command asks for speculation, or None; its options file is looked into where it can be read here.

    Args:
        command: the words of the command.
        env: the service's environment; nothing in it switches speculation on.
    """
    del env
    for words in own_words(command):
        for index, word in enumerate(words):
            setting = word.removeprefix("--set=") if word.startswith("--set=") else ""
            if index and words[index - 1] == "--set":
                setting = word
            if setting.startswith("speculative_config") and not setting.endswith("=null"):
                return f"--set {setting}"[:_SHOWN]
        file = options.file_in(words)
        found = options.read_file(file) if file else None
        if found and found.get("speculative_config"):
            return f"speculative_config in {file}"
    return None


def with_speculation(command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with the options file of a speculating arm, `{"extra_llm_api_options": FILE}`.

    Raises:
        RefusedError: the configuration is one of keys and values, which only a file can carry; the message has the
            YAML. Or the command speculates already, or has no place for arguments.
        UsageError: the file can be read from here and holds no `speculative_config`, or nothing was given.
    """
    present = speculation_in(command, {})
    if present:
        raise RefusedError(
            f"the command speculates already ({present}); plan the baseline as an arm of its own, with a file that has "
            "no speculative_config"
        )
    file = config.get(FILE_KEY)
    if set(config) == {FILE_KEY} and isinstance(file, str) and file:
        found = options.read_file(file)
        if found is not None and not found.get("speculative_config"):
            raise UsageError(f"{file} has no speculative_config, so the arm would not speculate")
        return _added(command, (OPTION, file))
    if not isinstance(config.get("decoding_type"), str):
        raise UsageError(
            f'speculative_config needs "{FILE_KEY}" with the options file of the arm; '
            'such a file needs a decoding_type, for example "decoding_type: NGram"'
        )
    raise RefusedError(_how(command, {key: value for key, value in config.items() if key != FILE_KEY}))


def with_args(command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
    """Return the command with further arguments; a placeholder stays, behind them.

    Raises:
        RefusedError: it cannot be told where arguments go.
    """
    if not args:
        return tuple(command)
    if PLACEHOLDER in command:
        return _replaced(command, (*args, PLACEHOLDER))
    return _inserted(command, args)


def without_placeholder(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command with every placeholder taken out.

    Raises:
        RefusedError: a placeholder stands inside quotes or inside a longer word.
    """
    return _replaced(command, ())


def model_in(command: Sequence[str]) -> str | None:
    """Return the model a command serves as it is written there, or None where that cannot be told."""
    for words in own_words(command):
        model = layout.positional(words)
        if model is not None:
            return None if "$" in model or PLACEHOLDER in model else model
    return None


def own_words(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the server's own arguments, wherever in the command they are, quotes removed."""
    place = layout.locate(command)
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


def _how(command: Sequence[str], config: Mapping[str, Any]) -> str:
    file = next((found for words in own_words(command) if (found := options.file_in(words))), None)
    base = f"everything of {file} and" if file else "a file with"
    return (
        "trtllm-serve takes speculation only from its YAML options file. Write "
        f"{base} these lines:\n{options.written(dict(config))}\nsay as spec.yaml, and give the arm "
        f'speculative_config = {{"{FILE_KEY}": "/path/spec.yaml"}} (or args = ["{OPTION}", "/path/spec.yaml"]); '
        "give the baseline the same file without these lines"
    )


def _added(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    if any(PLACEHOLDER in word for word in command):
        return _replaced(command, words)
    return _inserted(command, words)


def _replaced(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    result: list[str] = []
    place = layout.locate(command)
    for index, word in enumerate(command):
        if word == PLACEHOLDER:
            result += words
        elif PLACEHOLDER not in word:
            result.append(word)
        elif place is not None and place.script and index == place.start:
            result.append(_replaced_in_string(word, words))
        else:
            raise RefusedError(f"{PLACEHOLDER} in service.command must stand as a word of its own, outside quotes")
    return tuple(result)


def _replaced_in_string(text: str, words: Sequence[str]) -> str:
    edits = []
    for word in (word for command in _parsed(text) for word in command):
        if word.raw == PLACEHOLDER:
            edits.append((word.start, word.end))
        elif PLACEHOLDER in word.text:
            raise RefusedError(f"{PLACEHOLDER} in service.command must stand as a word of its own, outside quotes")
    for start, end in reversed(edits):
        text = text[:start] + _quoted(words) + text[end:]
    return text


def _inserted(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    place = layout.locate(command)
    if place is None:
        raise _refused(command, "it does not show where trtllm-serve's arguments go")
    if not place.script:
        return (*command[: place.stop], *words, *command[place.stop :])
    text = command[place.start]
    found = [
        (line, inner)
        for line in _parsed(text)
        if (inner := layout.locate([word.text for word in line])) is not None and not inner.script
    ]
    if len(found) != 1:
        raise _refused(command, f"it starts trtllm-serve in {len(found)} places")
    line, inner = found[0]
    end = line[inner.stop - 1].end
    edited = f"{text[:end]} {_quoted(words)}{text[end:]}"
    return (*command[: place.start], edited, *command[place.stop :])


def _parsed(text: str) -> list[list[shell.Word]]:
    try:
        return shell.simple_commands(text)
    except shell.ShellSyntaxError as error:
        raise _refused([text], f"its shell string has {error}, which this tool does not read") from error


def _quoted(words: Sequence[str]) -> str:
    return " ".join(word if word == PLACEHOLDER else shlex.quote(word) for word in words)


def _refused(command: Sequence[str], why: str) -> RefusedError:
    shown = shlex.join(command)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return RefusedError(f"cannot add arguments to the command `{shown}`: {why}; {_WAY_OUT}")
