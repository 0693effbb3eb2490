"""One planned arm as llama.cpp would see it: what its command, its environment and its configuration set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftworth.engines.base import Planned, StartupFacts
from draftworth.engines.llamacpp import command, config_flags, flags, releases
from draftworth.errors import DraftworthError


@dataclass(frozen=True, slots=True)
class Arm:
    """A planned arm.

    Attributes:
        build: llama.cpp's build; None where it is not known.
        flags: every flag, newest spelling, to its value.
        written: every flag of the configuration and of the command as it is written.
        types: the types of speculation asked for, in lower case, without `none`.
        asked: whether the arm speculates.
        whole_command: the command is known, so what it does not set has its default.
        problem: why its configuration cannot be written as flags.
    """

    build: int | None
    flags: Mapping[str, str]
    written: tuple[str, ...]
    types: tuple[str, ...]
    asked: bool
    whole_command: bool
    problem: str | None = None

    def has(self, *names: str) -> bool:
        """Whether one of the flags is set."""
        return any(name in self.flags for name in names)

    @property
    def has_draft(self) -> bool:
        """Whether a draft model is named."""
        return self.has(*flags.DRAFTS)

    def since(self, build: int) -> bool | None:
        """Whether this build is that one or a later; None where it is not known."""
        return None if self.build is None else self.build >= build


def arm_of(arm: Planned, facts: StartupFacts) -> Arm:
    """Return an arm with what sets it joined: the environment, then the command, then its own configuration."""
    words: list[str] = [word for part in command.own_words(arm.command) for word in part] + list(arm.args)
    own: Sequence[str] = ()
    problem = None
    if arm.speculation is not None:
        try:
            own = config_flags.speculative_flags(arm.speculation)
        except DraftworthError as error:
            problem = str(error)
    found = {**flags.of_environment(arm.env), **flags.read(words), **flags.read(own)}
    types = tuple(name.strip() for name in found.get("--spec-type", "").split(",") if name.strip() not in ("", "none"))
    if "--spec-default" in found and "ngram-mod" not in types:
        types = (*types, "ngram-mod")
    asked = arm.speculation is not None or bool(types) or any(name in found for name in flags.DRAFTS)
    return Arm(
        build=releases.build_of(facts.version),
        flags=found,
        written=tuple(word for word in (*words, *own) if word.startswith("-")),
        types=types,
        asked=asked,
        whole_command=bool(arm.command),
        problem=problem,
    )
