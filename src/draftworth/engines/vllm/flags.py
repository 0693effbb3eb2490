"""Tells whether a command asks for speculation, in every spelling vLLM's argument parser takes.

Checked against vLLM 0.32.0's own parser (`utils/argparse_utils.py`, `engine/arg_utils.py`): underscores equal dashes,
`--flag=value` equals two words, `--speculative-config.method ngram` sets one key of the JSON, unambiguous prefixes
(`--specu`, `--spec-tok`, `-s`) are taken, `-sc` is short for `--speculative-config`, and a `--config` file's keys are
flags. Flags of older releases (`--speculative-model`, `--num-speculative-tokens`, `--ngram-prompt-lookup-max`) count.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.vllm.layout import locate

_LONG = re.compile(r"--(?:specu|spec-|num-spec|ngram-prompt-lookup)")
_SHORT = frozenset({"-sc", "-s"})
_YAML_LINE = re.compile(r"""["']?(?P<key>[\w.+-]+)["']?\s*:(?P<value>\s.*|)$""")
_YAML_INLINE = re.compile(r"""[{,]\s*["']?(?P<key>[\w.+-]+)["']?\s*:""")
_NOTHING = frozenset({"null", "~", "Null", "NULL"})
_SHOWN = 160  # characters of a value in a message


def speculation_in(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return how a command or its environment asks for speculation, as written there, or None.

    Looks at flags, into shell strings, into assignments such as `ARGS="--speculative-config …"`, at the values of the
    environment, and into the file behind `--config` where it can be read from here.

    Args:
        command: the words of the command.
        env: the service's environment.
    """
    for how in _in_words(command):
        return _shortened(how)
    for name, value in env.items():
        if any(_is_long(word) for word in value.split()):
            return _shortened(f"{name}={value}")
    return None


def behind_speculation(words: Sequence[str]) -> int | None:
    """Return the index behind a speculative flag and its value, or None where there is no such flag."""
    for index, word in enumerate(words):
        if _is_long(word):
            return min(len(words), index + (1 if "=" in word else 2))
    return None


def _is_long(word: str) -> bool:
    name = word.partition("=")[0].partition(".")[0].replace("_", "-")
    return bool(_LONG.match(name))


def _is_short(word: str) -> bool:
    return word.partition("=")[0].partition(".")[0] in _SHORT


def _in_words(words: Sequence[str]) -> Iterator[str]:
    place = locate(words)
    own = range(place.start, place.stop) if place and not place.script else range(0)
    for index, word in enumerate(words):
        if place and place.script and index == place.start:
            yield from _in_string(word)
        elif _is_long(word) or (index in own and _is_short(word)):
            yield word if "=" in word else " ".join(words[index : index + 2])
        elif any(_is_long(piece) for piece in re.split(r"[\s=]+", word)[1:]):
            yield word  # an assignment that holds flags, such as ARGS="--speculative-config …"
        elif index in own and word.partition("=")[0] == "--config":
            file = word.partition("=")[2] or "".join(words[index + 1 : index + 2])
            yield from _in_config_file(file)


def _in_string(text: str) -> Iterator[str]:
    try:
        commands = shell.simple_commands(text)
    except shell.ShellSyntaxError:
        yield from (word for word in text.split() if _is_long(word))
        return
    for command in commands:
        yield from _in_words([word.text for word in command])


def _in_config_file(file: str) -> Iterator[str]:
    """Scan a YAML file's top-level keys; vLLM turns each into a flag."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return  # on another machine, inside a container: the server's own log will tell
    if text.lstrip().startswith("{"):
        keys = [match["key"] for match in _YAML_INLINE.finditer(text)]
    else:
        lines = [_YAML_LINE.match(line) for line in text.splitlines()]
        keys = [line["key"] for line in lines if line and line["value"].split("#")[0].strip() not in _NOTHING]
    yield from (f"{key} in {file}" for key in keys if _is_long(f"--{key}"))


def _shortened(how: str) -> str:
    return how if len(how) <= _SHOWN else how[:_SHOWN] + "…"
