"""Tells whether a command asks for speculation, in every spelling SGLang's argument parser takes.

The parser is argparse (`server_args.py`, 0.4.6 to 0.5.23): `--flag=value` equals two words, an unambiguous beginning of
a flag is taken (`--speculative-alg`), underscores are not, and the keys of a `--config` file (YAML) are flags.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.sglang.layout import locate

_FLAG = re.compile(r"--specu[\w-]*")
_YAML_LINE = re.compile(r"""["']?(?P<key>[\w-]+)["']?\s*:(?P<value>\s.*|)$""")
_NOTHING = frozenset({"null", "~", "Null", "NULL"})
_SHOWN = 160  # characters of a value in a message


def speculation_in(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return how a command or its environment asks for speculation, as written there, or None.

    Looks at flags, into shell strings, into assignments such as `ARGS="--speculative-algorithm …"`, at the values of
    the environment, and into the file behind `--config` where it can be read from here.
    """
    for how in _in_words(command):
        return _shortened(how)
    for name, value in env.items():
        if any(is_speculative(word) for word in value.split()):
            return _shortened(f"{name}={value}")
    return None


def is_speculative(word: str) -> bool:
    """Tell whether a word is a flag of speculation, with or without its value."""
    return bool(_FLAG.fullmatch(word.partition("=")[0].replace("_", "-")))


def options(words: Sequence[str]) -> dict[str, str]:
    """Return SGLang's flags among its own words: name with dashes and without the leading ones, to value.

    A flag without a value gives "True".
    """
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            following = words[index + 1] if index + 1 < len(words) else "--"
            value = "True" if following.startswith("--") else following
        found[name.replace("_", "-")] = value
    return found


def _in_words(words: Sequence[str]) -> Iterator[str]:
    place = locate(words)
    own = range(place.start, place.stop) if place and not place.script else range(0)
    for index, word in enumerate(words):
        if place and place.script and index == place.start:
            yield from _in_string(word)
        elif is_speculative(word):
            yield word if "=" in word else " ".join(words[index : index + 2])
        elif any(is_speculative(piece) for piece in re.split(r"[\s=]+", word)[1:]):
            yield word  # an assignment that holds flags
        elif index in own and word.partition("=")[0] == "--config":
            yield from _in_config_file(word.partition("=")[2] or "".join(words[index + 1 : index + 2]))


def _in_string(text: str) -> Iterator[str]:
    try:
        commands = shell.simple_commands(text)
    except shell.ShellSyntaxError:
        yield from (word for word in text.split() if is_speculative(word))
        return
    for command in commands:
        yield from _in_words([word.text for word in command])


def _in_config_file(file: str) -> Iterator[str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return  # on another machine, inside a container: the server's own log will tell
    lines = [_YAML_LINE.match(line) for line in text.splitlines()]
    keys = [line["key"] for line in lines if line and line["value"].split("#")[0].strip() not in _NOTHING]
    yield from (f"{key} in {file}" for key in keys if is_speculative(f"--{key}"))


def _shortened(how: str) -> str:
    return how if len(how) <= _SHOWN else how[:_SHOWN] + "…"
