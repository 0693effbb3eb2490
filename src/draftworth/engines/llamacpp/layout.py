"""Knows the words that start llama.cpp's server: `llama-server`, or `llama serve` of newer builds.

Of a container without such a word the image is looked at: those named `…llama.cpp:server…` start the server by
themselves, `…llama.cpp:full…` with `--server`.
"""

import re
from collections.abc import Sequence

from draftworth.engines import layout
from draftworth.engines.layout import Place

_SERVERS = frozenset({"llama-server", "llama-server.exe"})
_SERVE = frozenset({"serve", "server"})
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)*[\w.-]*llama\.?cpp[\w.-]*:(?P<kind>server|full)[\w.-]*")


def locate(words: Sequence[str]) -> Place | None:
    """Return where llama.cpp's arguments are in a command, or None where no word says that it starts the server."""
    return layout.find(words, _program)


def _program(words: Sequence[str], index: int, program: str) -> Place | None:
    return _inside(words, index) if program in layout.CONTAINERS else _server(words, index, program)


def _inside(words: Sequence[str], index: int) -> Place | None:
    """Return where the arguments are in `docker run …`: behind the server's name, else behind the image's."""
    for at in range(index + 1, len(words)):
        program = words[at].rsplit("/", 1)[-1]
        place = layout.in_shell(words, at, program) or _server(words, at, program)
        if place is not None:
            return place
    for at in range(index + 1, len(words)):
        image = _IMAGE.fullmatch(words[at])
        if image and image["kind"] == "server":
            return Place(at + 1, len(words), program=at)
        if image and words[at + 1 : at + 2] in (["--server"], ["-s"]):
            return Place(at + 2, len(words), program=at)
    return None


def _server(words: Sequence[str], index: int, program: str) -> Place | None:
    if program in _SERVERS:
        return Place(index + 1, len(words), program=index)
    if program == "llama" and words[index + 1 : index + 2] and words[index + 1] in _SERVE:
        return Place(index + 2, len(words), program=index)
    return None
