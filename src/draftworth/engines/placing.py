"""Puts flags into a command in whatever way the command carries them, for every engine.

A command is a sequence of words. A server's arguments are among them, inside the string of a `bash -c`, or where the
person wrote `{speculative_args}`. Words put into a shell string are quoted for a shell, so they arrive as given.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftworth.engines import shell
from draftworth.engines.layout import Locate, Place
from draftworth.engines.shown import shortened
from draftworth.errors import RefusedError

PLACEHOLDER = "{speculative_args}"
"""Marks where flags go in a command that does not show it: a word of its own, outside quotes."""


@dataclass(frozen=True, slots=True)
class Placing:
    """Puts flags into the commands of one engine.

    Attributes:
        engine: its name in messages.
        program: the name of its command in messages.
        server: what a command starts, in messages.
        locate: tells where its arguments are.
        ends_at_dashes: its arguments end at a `--`, which may hide in the words behind a shell string.
    """

    engine: str
    program: str
    server: str
    locate: Locate
    ends_at_dashes: bool

    def with_args(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
        """Return the command with further arguments; a placeholder stays, behind them.

        Raises:
            RefusedError: it cannot be told where arguments go.
        """
        if not args:
            return tuple(command)
        if _has_placeholder(command):
            return self._replaced(command, (*args, PLACEHOLDER))
        return self._inserted(command, args)

    def with_speculation(self, command: Sequence[str], flags: Sequence[str], present: str | None) -> tuple[str, ...]:
        """Return the command with the flags of a speculative configuration; a placeholder is filled.

        Args:
            command: the words of the command.
            flags: what goes into it.
            present: how the command asks for speculation already; None where it does not.

        Raises:
            RefusedError: the command speculates already, or it cannot be told where arguments go.
        """
        if present:
            raise RefusedError(
                f"the command speculates already ({present}); take that out of service.command and make it an arm's "
                "speculative_config"
            )
        return self._replaced(command, flags) if _has_placeholder(command) else self._inserted(command, flags)

    def without_placeholder(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return the command with every placeholder taken out.

        Raises:
            RefusedError: a placeholder stands inside quotes or inside a longer word.
        """
        return self._replaced(command, ()) if _has_placeholder(command) else tuple(command)

    def _replaced(self, command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
        return replaced(command, words, self.locate(command), self._replaced_in_string)

    def _replaced_in_string(self, text: str, words: Sequence[str]) -> str:
        edits: list[tuple[int, int, str]] = []
        for command in parsed(text, self._refused):
            place = self.locate([word.text for word in command])
            for index, word in enumerate(command):
                if word.raw == PLACEHOLDER:
                    edits.append((word.start, word.end, quoted(words)))
                elif PLACEHOLDER in word.text:
                    if not (place and place.script and index == place.start) or word.expands:
                        raise misplaced()
                    edits.append((word.start, word.end, shlex.quote(self._replaced_in_string(word.text, words))))
        for start, end, new in reversed(edits):
            text = text[:start] + new + text[end:]
        return text

    def _inserted(self, command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
        place = self.locate(command)
        if place is None:
            raise self._refused(command)
        if not place.script:
            return (*command[: place.stop], *words, *command[place.stop :])
        text = command[place.start]
        positional = command[place.start + 2 :]  # behind the string: $0, $1, …
        if self.ends_at_dashes and "--" in positional and ("$@" in text or "$*" in text):
            raise self._refused(command, "a `--` hides in its $@")
        edited = self._inserted_in_string(text, words)
        if edited is None:
            raise self._refused(command)
        return (*command[: place.start], edited, *command[place.stop :])

    def _inserted_in_string(self, text: str, words: Sequence[str]) -> str | None:
        found: list[tuple[list[shell.Word], Place]] = []
        for command in parsed(text, self._refused):
            place = self.locate([word.text for word in command])
            if place is not None:
                found.append((command, place))
        if len(found) > 1:
            raise self._refused([text], f"it starts {self.server} in {len(found)} places")
        if not found:
            return None
        command, place = found[0]
        if not place.script:
            return behind(text, command[place.stop - 1], words)
        inner = command[place.start]
        if inner.expands:
            raise self._refused([text], "it holds a shell string in double quotes with a $ in it")
        edited = self._inserted_in_string(inner.text, words)
        return None if edited is None else text[: inner.start] + shlex.quote(edited) + text[inner.end :]

    def _refused(self, command: Sequence[str], why: str | None = None) -> RefusedError:
        why = why or f"it does not show where {self.engine}'s arguments go"
        return refused(command, why, program=self.program, added="flags", where="the flags")


def refused(command: Sequence[str], why: str, *, program: str, added: str, where: str) -> RefusedError:
    """Return the error that says why nothing can be added to a command, and the way out.

    Args:
        command: its words.
        why: what is in the way.
        program: the name of the engine's command.
        added: what was to be added.
        where: the same, as a placeholder's place is explained.
    """
    way_out = f"put the {program} command itself into service.command, or write {PLACEHOLDER} where {where} should go"
    return RefusedError(f"cannot add {added} to the command `{shortened(shlex.join(command))}`: {why}; {way_out}")


def misplaced() -> RefusedError:
    """Return the error that says how a placeholder must stand."""
    return RefusedError(f"{PLACEHOLDER} in service.command must stand as a word of its own, outside quotes")


def parsed(text: str, refuse: Callable[[Sequence[str], str], RefusedError]) -> list[list[shell.Word]]:
    """Return the simple commands of a shell string.

    Raises:
        RefusedError: it is of a form that is not read here; made by `refuse`.
    """
    try:
        return shell.simple_commands(text)
    except shell.ShellSyntaxError as error:
        raise refuse([text], f"its shell string has {error}, which this tool does not read") from error


def quoted(words: Sequence[str]) -> str:
    """Return words as they are written in a shell string; a placeholder stays one."""
    return " ".join(word if word == PLACEHOLDER else shlex.quote(word) for word in words)


def behind(text: str, last: shell.Word, words: Sequence[str]) -> str:
    """Return a shell string with words put behind one of its words."""
    return f"{text[: last.end]} {quoted(words)}{text[last.end :]}"


def replaced(
    command: Sequence[str], words: Sequence[str], place: Place | None, in_string: Callable[[str, Sequence[str]], str]
) -> tuple[str, ...]:
    """Return a command with words instead of every placeholder.

    Args:
        command: its words.
        words: what stands there instead.
        place: where the server's arguments are.
        in_string: does the same in a shell string that starts the server.

    Raises:
        RefusedError: a placeholder stands inside quotes or inside a longer word.
    """
    result: list[str] = []
    for index, word in enumerate(command):
        if word == PLACEHOLDER:
            result += words
        elif PLACEHOLDER not in word:
            result.append(word)
        elif place and place.script and index == place.start:
            result.append(in_string(word, words))
        else:
            raise misplaced()
    return tuple(result)


def _has_placeholder(command: Sequence[str]) -> bool:
    return any(PLACEHOLDER in word for word in command)
