"""The built-in prompts: five kinds of work, written for this project, each short enough for a 2048-token context."""

import tomllib
from functools import cache
from importlib.resources import files

from draftworth.bench.base import Prompt

CATEGORIES = ("coding", "math", "structured", "explanation", "editing")
"""The built-in categories in their fixed order."""


@cache
def category(name: str) -> tuple[Prompt, ...]:
    """Return every built-in prompt of one category.

    Args:
        name: one of `CATEGORIES`.

    Returns:
        The prompts in their fixed order, with ids `coding-1`, `coding-2`, …, each one user message.
    """
    text = files("draftworth.bench").joinpath("builtin", f"{name}.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)["prompts"]
    return tuple(
        Prompt(id=f"{name}-{number}", category=name, messages=({"role": "user", "content": entry["text"].strip()},))
        for number, entry in enumerate(entries, start=1)
    )
