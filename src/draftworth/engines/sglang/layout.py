"""Finds SGLang's own arguments among the words of a command, whatever stands in front of them.

SGLang is recognised by the words that start it (`python -m sglang.launch_server`, `sglang serve`, `launch_server.py`),
so nothing here needs to know what `nohup`, `nice -n 5`, `docker run …` or `conda run -n x` do. Its image starts nothing
by itself: a container's command holds those words too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_USER_SWITCHES = frozenset({"su", "runuser"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_RUNNING = frozenset({"run", "exec"})
_MODULES = frozenset({"sglang.launch_server"})
_MAIN_MODULES = frozenset({"sglang", "sglang.cli.main"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Place:
    """Where SGLang's arguments are.

    Attributes:
        start: index of the first one (or of the shell string).
        stop: index where another one can be put: behind the last, in front of a `--`.
        script: the word at `start` is a shell string, and the arguments are somewhere inside it.
        program: index of the word that starts SGLang.
    """

    start: int
    stop: int
    script: bool = False
    program: int = 0


def locate(words: Sequence[str]) -> Place | None:
    """Return where SGLang's arguments are in a command, or None where no word says that it starts SGLang."""
    words = list(words)
    for index, word in enumerate(words):
        if word.startswith("-m"):
            place = _module(words, index)
        elif word.startswith("-") or _ASSIGNMENT.match(word):
            continue
        else:
            program = word.rsplit("/", 1)[-1]
            if program == "ssh" or (program in _CONTAINERS and not _RUNNING & set(words[index + 1 :])):
                return None  # what follows is for another shell, or starts a container that exists already
            place = _program(words, index, program)
        if place is not None:
            return place
    return None


def _program(words: Sequence[str], index: int, program: str) -> Place | None:
    if program in _SHELLS:
        return _script(_shell_string(words, index + 1), index)
    if program in _USER_SWITCHES:
        return _script(_switched_string(words, index + 1), index)
    if program == "sglang" and words[index + 1 : index + 2] == ["serve"]:
        return _arguments(words, index + 2, index)
    return _arguments(words, index + 1, index) if program == "launch_server.py" else None


def _module(words: Sequence[str], index: int) -> Place | None:
    name, following = words[index][2:], index + 1
    if not name:
        name, following = "".join(words[index + 1 : index + 2]), index + 2
    if name in _MODULES:
        return _arguments(words, following, index)
    if name in _MAIN_MODULES and words[following : following + 1] == ["serve"]:
        return _arguments(words, following + 1, index)
    return None


def _arguments(words: Sequence[str], start: int, program: int) -> Place:
    stop = next((i for i in range(start, len(words)) if words[i] == "--"), len(words))
    return Place(start, stop, program=program)


def _script(index: int | None, program: int) -> Place | None:
    return None if index is None else Place(index, index + 1, script=True, program=program)


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
