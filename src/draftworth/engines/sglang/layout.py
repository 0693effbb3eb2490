"""Knows the words that start SGLang: `python -m sglang.launch_server`, `sglang serve`, `launch_server.py`.

Its image starts nothing by itself: a container's command holds those words too.
"""

from collections.abc import Sequence

from draftworth.engines import layout
from draftworth.engines.layout import Place

_MODULES = frozenset({"sglang.launch_server"})
_MAIN_MODULES = frozenset({"sglang", "sglang.cli.main"})


def locate(words: Sequence[str]) -> Place | None:
    """Return where SGLang's arguments are in a command, or None where no word says that it starts SGLang."""
    return layout.find(words, _program, modules=_MODULES, serving=_MAIN_MODULES)


def _program(words: Sequence[str], index: int, program: str) -> Place | None:
    if program == "sglang" and words[index + 1 : index + 2] == ["serve"]:
        return layout.until_dashes(words, index + 2, index)
    return layout.until_dashes(words, index + 1, index) if program == "launch_server.py" else None
