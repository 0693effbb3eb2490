"""Finds a server's own arguments among the words of a command, whatever stands in front of them, for every engine.

Nothing here needs to know what `nohup`, `nice -n 5`, `taskset -c 0-7` or `conda run -n x` do: a server is recognised by
the words that start it, and its arguments are the words behind them. Each engine's `layout.py` knows those words.
"""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from draftworth.engines import shell

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
"""Programs that run the string behind `-c`."""
USER_SWITCHES = frozenset({"su", "runuser"})
"""Programs that run the string behind `-c` as another user."""
CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
"""Programs that start containers."""

_RUNNING = frozenset({"run", "exec"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server's arguments are.

    Attributes:
        start: index of the first one (or of the shell string).
        stop: index where another one can be put: behind the last, in front of a `--` that ends them.
        script: the word at `start` is a shell string, and the arguments are somewhere inside it.
        program: index of the word that starts the server, or of the shell, or of the image; 0 where an engine asks not.
    """

    start: int
    stop: int
    script: bool = False
    program: int = 0


Locate = Callable[[Sequence[str]], Place | None]
"""Returns where an engine's arguments are in a command, or None where no word says that it starts the engine."""


def _runs_something(words: Sequence[str], index: int) -> bool:
    return bool(_RUNNING & set(words[index + 1 :]))


def find(
    words: Sequence[str],
    named: Callable[[Sequence[str], int, str], Place | None],
    *,
    modules: AbstractSet[str] = frozenset(),
    serving: AbstractSet[str] = frozenset(),
    runs: Callable[[Sequence[str], int], bool] = _runs_something,
) -> Place | None:
    """Return where a server's arguments are in a command, or None where no word says that it starts one.

    Args:
        words: the words of the command.
        named: tells by all the words, an index and the name of the program there whether that starts the server.
        modules: Python modules that `python -m` starts the server with.
        serving: Python modules that start it when `serve` follows.
        runs: whether `docker` and its like, at an index of the words, start a program whose words follow.
    """
    words = list(words)
    for index, word in enumerate(words):
        if word.startswith("-m"):
            place = _module(words, index, modules, serving)
        elif word.startswith("-") or _ASSIGNMENT.match(word):
            continue
        else:
            program = word.rsplit("/", 1)[-1]
            if program == "ssh" or (program in CONTAINERS and not runs(words, index)):
                return None  # what follows is for another shell, or starts a container that exists already
            place = in_shell(words, index, program) or named(words, index, program)
        if place is not None:
            return place
    return None


def in_shell(words: Sequence[str], index: int, program: str) -> Place | None:
    """Return the place of the string that a shell, `su` or `runuser` at an index is told to run, or None."""
    at = None
    if program in SHELLS:
        at = _shell_string(words, index + 1)
    elif program in USER_SWITCHES:
        at = _switched_string(words, index + 1)
    return None if at is None else Place(at, at + 1, script=True, program=index)


def until_dashes(words: Sequence[str], start: int, program: int) -> Place:
    """Return the place of arguments that begin at an index and end at a `--`."""
    stop = next((i for i in range(start, len(words)) if words[i] == "--"), len(words))
    return Place(start, stop, program=program)


def own_words(command: Sequence[str], locate: Locate) -> Iterator[Sequence[str]]:
    """Yield a server's own arguments, wherever in the command they are, quotes removed; a string not read has none."""
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
        yield from own_words([word.text for word in words], locate)


def value_of(words: Sequence[str], names: Container[str]) -> str | None:
    """Return the first value that words give one of some options, empty where it has none; None without the option."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(words[index + 1 : index + 2])
    return None


def _module(words: Sequence[str], index: int, modules: AbstractSet[str], serving: AbstractSet[str]) -> Place | None:
    name, following = words[index][2:], index + 1
    if not name:
        name, following = "".join(words[index + 1 : index + 2]), index + 2
    if name in modules:
        return until_dashes(words, following, index)
    if name in serving and words[following : following + 1] == ["serve"]:
        return until_dashes(words, following + 1, index)
    return None


def _shell_string(words: Sequence[str], index: int) -> int | None:
    """Return the index of the string a shell is told to run with `-c`, in any spelling (`-lc`, `-euo pipefail -c`)."""
    runs_string = False
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if len(word) < 2 or word[0] not in "-+":  # noqa: PLR2004 - a sign and a letter
            break
        takes_value = word in ("--rcfile", "--init-file")
        if not word.startswith("--"):
            runs_string |= word[0] == "-" and "c" in word
            takes_value = "o" in word or "O" in word
        index += 2 if takes_value else 1
    return index if runs_string and index < len(words) else None


def _switched_string(words: Sequence[str], index: int) -> int | None:
    """Return the index of the string of `su user -c '…'`."""
    for i in range(index, len(words) - 1):
        if words[i] in ("-c", "--command"):
            return i + 1
    return None
