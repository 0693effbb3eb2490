"""Tells whether a command asks for speculation by flags that are alike wherever they stand, for several engines."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from draftworth.engines import shell
from draftworth.engines.layout import Locate
from draftworth.engines.shown import shortened

_YAML_LINE = re.compile(r"""["']?(?P<key>[\w.+-]+)["']?\s*:(?P<value>\s.*|)$""")
_NOTHING = frozenset({"null", "~", "Null", "NULL"})


def block_keys(text: str) -> list[str]:
    """Return the top-level keys of a YAML text that set something."""
    lines = [_YAML_LINE.match(line) for line in text.splitlines()]
    return [line["key"] for line in lines if line and line["value"].split("#")[0].strip() not in _NOTHING]


def in_string(
    text: str, in_words: Callable[[Sequence[str]], Iterator[str]], is_flag: Callable[[str], bool]
) -> Iterator[str]:
    """Yield what a shell string asks for: each of its commands looked into, or of one not read here the flags alone."""
    try:
        commands = shell.simple_commands(text)
    except shell.ShellSyntaxError:
        yield from (word for word in text.split() if is_flag(word))
        return
    for command in commands:
        yield from in_words([word.text for word in command])


@dataclass(frozen=True, slots=True)
class Spellings:
    """How an engine's flags of speculation are spelled.

    Attributes:
        locate: tells where the engine's arguments are.
        is_flag: whether a word, with or without its value, is one, wherever it stands.
        short: flags that count among the engine's own arguments only.
        keys: returns the keys of a `--config` file's text; each is a flag without its dashes.
    """

    locate: Locate
    is_flag: Callable[[str], bool]
    short: AbstractSet[str] = frozenset()
    keys: Callable[[str], list[str]] = block_keys

    def speculation_in(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return how a command or its environment asks for speculation, as written there, or None.

        Looks at flags, into shell strings, into assignments such as `ARGS="--speculative-config …"`, at the values of
        the environment, and into the file behind `--config` where it can be read from here.

        Args:
            command: the words of the command.
            env: the service's environment.
        """
        for how in self._in_words(command):
            return shortened(how)
        for name, value in env.items():
            if any(self.is_flag(word) for word in value.split()):
                return shortened(f"{name}={value}")
        return None

    def _in_words(self, words: Sequence[str]) -> Iterator[str]:
        place = self.locate(words)
        own = range(place.start, place.stop) if place and not place.script else range(0)
        for index, word in enumerate(words):
            if place and place.script and index == place.start:
                yield from in_string(word, self._in_words, self.is_flag)
            elif self.is_flag(word) or (index in own and word.partition("=")[0].partition(".")[0] in self.short):
                yield word if "=" in word else " ".join(words[index : index + 2])
            elif any(self.is_flag(piece) for piece in re.split(r"[\s=]+", word)[1:]):
                yield word  # an assignment that holds flags
            elif index in own and word.partition("=")[0] == "--config":
                yield from self._in_config_file(word.partition("=")[2] or "".join(words[index + 1 : index + 2]))

    def _in_config_file(self, file: str) -> Iterator[str]:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return  # on another machine, inside a container: the server's own log will tell
        yield from (f"{key} in {file}" for key in self.keys(text) if self.is_flag(f"--{key}"))
