"""Finds what a planned arm configures: its options file, what that holds, and the speculative configuration."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from draftworth.engines.base import Planned, StartupFacts
from draftworth.engines.trtllm import command as commands
from draftworth.engines.trtllm import options


class Settings(NamedTuple):
    """What an arm starts with.

    Attributes:
        file: its options file; None where it names none.
        content: what the file holds; None where it cannot be read from here.
        speculation: the speculative configuration, from the arm or its file; empty where it is not known.
        speculates: whether the arm asks for speculation at all.
        shown: whether anything of the start is known; a server that only runs shows neither command nor file.
    """

    file: str | None
    content: Mapping[str, Any] | None
    speculation: Mapping[str, Any]
    speculates: bool
    shown: bool


def settings_of(arm: Planned) -> Settings:
    """Return what an arm starts with; its options file is looked into where it can be read from here."""
    given = arm.speculation or {}
    file = commands.file_of(given)[1] or _file_in(arm)
    content = options.read_file(file) if file else None
    speculation = commands.without_file(given)
    in_file = (content or {}).get("speculative_config")
    if not speculation and isinstance(in_file, dict):
        speculation = in_file
    return Settings(file, content, speculation, bool(given or in_file), bool(arm.command or arm.args or given))


def switched_on(name: str, settings: Settings, facts: StartupFacts) -> bool | None:
    """Return whether an option is on, by the arm's file or by what the server logged; None where neither tells."""
    if settings.content is not None:
        return settings.content.get(name) is True
    if settings.file is None and settings.shown and not facts.config:
        return False  # off unless a file says otherwise
    return facts.config[name] == "True" if name in facts.config else None


def _file_in(arm: Planned) -> str | None:
    own = [options.file_in(words) for words in commands.own_words((*arm.command, *arm.args))]
    return options.file_in(arm.args) or next((file for file in own if file), None)
