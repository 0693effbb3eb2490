"""Adds arguments to a `trtllm-serve` command, and says how speculation gets there.

Speculation has no flag: it is the key `speculative_config` of the YAML file behind `--extra_llm_api_options` (0.17 and
later; `--config` is the same since PR #9104, 1.2). `--set PATH=VALUE` of PR #19555 was still open in September 2026.
So an arm names a file: given twice, the option's last value counts, and the file must hold everything of the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftworth.engines import layout, placing
from draftworth.engines.placing import PLACEHOLDER
from draftworth.engines.shown import LONGEST
from draftworth.engines.trtllm import options
from draftworth.engines.trtllm.layout import locate, positional
from draftworth.errors import RefusedError, UsageError

OPTION = "--extra_llm_api_options"
"""The option every release knows."""
FILE_KEY = OPTION.removeprefix("--")
"""A speculative configuration with this key alone names the options file of the arm."""
ALIAS = "config"
"""The same key since 1.2."""


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
                return f"--set {setting}"[:LONGEST]
        file = options.file_in(words)
        found = options.read_file(file) if file else None
        if found and found.get("speculative_config"):
            return f"speculative_config in {file}"
    return None


def with_speculation(command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with the options file of a speculating arm, `{"extra_llm_api_options": FILE}`.

    `{"config": FILE}` is the same, written as `--config FILE`; releases before 1.2 do not know it (`doubts` says so).

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
    key, file = file_of(config)
    if set(config) == {key} and file:
        found = options.read_file(file)
        if found is not None and not found.get("speculative_config"):
            raise UsageError(f"{file} has no speculative_config, so the arm would not speculate")
        return _added(command, (f"--{key}", file))
    if not isinstance(config.get("decoding_type"), str):
        raise UsageError(
            f'speculative_config needs "{FILE_KEY}" with the options file of the arm; '
            'such a file needs a decoding_type, for example "decoding_type: NGram"'
        )
    raise RefusedError(_how(command, without_file(config)))


def file_of(config: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the key by which a speculative configuration names its options file, and the file; None for no file."""
    key = ALIAS if ALIAS in config and FILE_KEY not in config else FILE_KEY
    file = config.get(key)
    return key, file if isinstance(file, str) and file else None


def without_file(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a speculative configuration holds beside its options file."""
    return {key: value for key, value in config.items() if key not in (FILE_KEY, ALIAS)}


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
        model = positional(words)
        if model is not None:
            return None if "$" in model or PLACEHOLDER in model else model
    return None


def own_words(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the server's own arguments, wherever in the command they are, quotes removed."""
    return layout.own_words(command, locate)


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
    return placing.replaced(command, words, locate(command), _replaced_in_string)


def _replaced_in_string(text: str, words: Sequence[str]) -> str:
    edits = []
    for word in (word for command in placing.parsed(text, _refused) for word in command):
        if word.raw == PLACEHOLDER:
            edits.append((word.start, word.end))
        elif PLACEHOLDER in word.text:
            raise placing.misplaced()
    for start, end in reversed(edits):
        text = text[:start] + placing.quoted(words) + text[end:]
    return text


def _inserted(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    place = locate(command)
    if place is None:
        raise _refused(command, "it does not show where trtllm-serve's arguments go")
    if not place.script:
        return (*command[: place.stop], *words, *command[place.stop :])
    text = command[place.start]
    found = [
        (line, inner)
        for line in placing.parsed(text, _refused)
        if (inner := locate([word.text for word in line])) is not None and not inner.script
    ]
    if len(found) != 1:
        raise _refused(command, f"it starts trtllm-serve in {len(found)} places")
    line, inner = found[0]
    edited = placing.behind(text, line[inner.stop - 1], words)
    return (*command[: place.start], edited, *command[place.stop :])


def _refused(command: Sequence[str], why: str) -> RefusedError:
    return placing.refused(command, why, program="trtllm-serve", added="arguments", where="arguments")
