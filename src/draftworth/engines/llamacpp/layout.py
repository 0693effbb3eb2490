"""Finds llama.cpp's own arguments among the words of a command, whatever stands in front of them.

The server is recognised by the word that starts it (`llama-server`, or `llama serve` of newer builds), so nothing here
needs to know what `nohup`, `nice -n 5` or `taskset -c 0-7` do. Of a container without such a word the image is looked
at: those named `…llama.cpp:server…` start the server by themselves, `…llama.cpp:full…` with `--server`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_USER_SWITCHES = frozenset({"su", "runuser"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_RUNNING = frozenset({"run", "exec"})
_SERVERS = frozenset({"llama-server", "llama-server.exe"})
_SERVE = frozenset({"serve", "server"})
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)*[\w.-]*llama\.?cpp[\w.-]*:(?P<kind>server|full)[\w.-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Place:
    """Where llama.cpp's arguments are.

    Attributes:
        start: index of the first one (or of the shell string).
        stop: index where another one can be put: behind the last.
        script: the word at `start` is a shell string, and the arguments are somewhere inside it.
        program: index of the word that starts the server, or of the image.
    """

    start: int
    stop: int
    script: bool = False
    program: int = 0


def locate(words: Sequence[str]) -> Place | None:
    """Return where llama.cpp's arguments are in a command, or None where no word says that it starts the server."""
    words = list(words)
    for index, word in enumerate(words):
        if word.startswith("-") or _ASSIGNMENT.match(word):
            continue
        program = word.rsplit("/", 1)[-1]
        if program == "ssh" or (program in _CONTAINERS and not _RUNNING & set(words[index + 1 :])):
            return None  # what follows is for another shell, or starts a container that exists already
        if program in _CONTAINERS:
            return locate_inside(words, index)
        place = _program(words, index, program)
        if place is not None:
            return place
    return None


def locate_inside(words: Sequence[str], index: int) -> Place | None:
    """Return where the arguments are in `docker run …`: behind the server's name, else behind the image's."""
    for at in range(index + 1, len(words)):
        place = _program(words, at, words[at].rsplit("/", 1)[-1])
        if place is not None:
            return place
    for at in range(index + 1, len(words)):
        image = _IMAGE.fullmatch(words[at])
        if image and image["kind"] == "server":
            return Place(at + 1, len(words), program=at)
        if image and words[at + 1 : at + 2] in (["--server"], ["-s"]):
            return Place(at + 2, len(words), program=at)
    return None


def _program(words: Sequence[str], index: int, program: str) -> Place | None:
    if program in _SHELLS:
        return _script(_shell_string(words, index + 1), index)
    if program in _USER_SWITCHES:
        at = next((i + 1 for i in range(index, len(words) - 1) if words[i] in ("-c", "--command")), None)
        return _script(at, index)
    if program in _SERVERS:
        return Place(index + 1, len(words), program=index)
    if program == "llama" and words[index + 1 : index + 2] and words[index + 1] in _SERVE:
        return Place(index + 2, len(words), program=index)
    return None


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
