"""The built-in prompts: five kinds of work, written for this project, each short enough for a 2048-token context."""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads.base import Selection

NAME = "builtin"
"""The source that is no file."""

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
    text = files("draftworth.workloads").joinpath("texts", f"{name}.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)["prompts"]
    return tuple(
        Prompt(id=f"{name}-{number}", category=name, messages=({"role": "user", "content": entry["text"].strip()},))
        for number, entry in enumerate(entries, start=1)
    )


def prompts() -> Iterator[Prompt]:
    """Yield every built-in prompt, category by category."""
    for name in CATEGORIES:
        yield from category(name)


def check(selection: Selection) -> None:
    """Refuse to be asked for more than there is: unlike a file's, these numbers are known.

    Raises:
        UsageError: a category has fewer prompts than asked for.
    """
    wanted = selection.prompts_per_category
    for name in CATEGORIES if selection.categories is None else selection.categories:
        if wanted is not None and name in CATEGORIES and wanted > len(category(name)):
            raise UsageError(
                f"{wanted} prompts per category: category {name!r} has {len(category(name))}; "
                "ask for fewer or bring your own in a file"
            )
