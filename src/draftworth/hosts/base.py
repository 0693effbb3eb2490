"""Where a command runs: the protocol every kind of host implements.

What a host promises:

- A command is an argv and arrives word by word as given; no shell reads it.
- A non-zero exit is a result, never an error. An error means that nothing can be said about the command: it could not
  be run, was not done in time, or the connection was lost while it may still have been running.
- Texts of commands are stable: the C locale, no pager, no colours.
- A file is whole or not there: `write` never leaves half of one under its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from draftworth.errors import EXIT_NOT_MEASURED, DraftworthError

STABLE_TEXTS = {"LANG": "C", "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
"""Variables that every command gets, so that what it prints does not depend on a person's settings."""

MOST_OUTPUT = 64 * 2**20
"""Bytes of a command's standard output, and of its standard error, that are kept."""

_ONE_LINE = 300


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended and what it printed."""

    argv: tuple[str, ...]
    """The command as it was asked for."""
    code: int
    """Its exit code; where a signal ended it: minus its number on this machine, 128 plus its number over SSH."""
    out: bytes
    """Standard output."""
    err: bytes
    """Standard error."""
    cut: bool = False
    """Whether more than `MOST_OUTPUT` was printed and the rest is lost; `err` then begins with a line that says so."""

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.code == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.out.decode(errors="replace")

    @property
    def why(self) -> str:
        """One line that tells what went wrong: the last of standard error, else of standard output, else the code."""
        for stream in (self.err, self.out):
            lines = [" ".join(line.split()) for line in stream.decode(errors="replace").splitlines()]
            last = next((line for line in reversed(lines) if line), None)
            if last:
                return last if len(last) <= _ONE_LINE else last[: _ONE_LINE - 3] + "..."
        return f"ended by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


class HostError(DraftworthError):
    """A command or a file could not be dealt with: not run at all, not done in time, or the connection was lost."""

    exit_code = EXIT_NOT_MEASURED


class HostTimeoutError(HostError):
    """A command was not done in time."""


class Host(Protocol):
    """A machine on which commands run and files lie."""

    name: str
    """The machine, for a person: `this machine`, `ssh gpu1`."""

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        """Run a command and wait for it. Never raises for a non-zero exit.

        Args:
            argv: the command, word by word.
            stdin: what it reads; None: nothing.
            timeout_s: seconds until it is given up.

        Raises:
            HostError: it could not be run, or was not done in time, or the connection was lost; names the command.
        """

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, or None where there is no such file.

        Raises:
            HostError: it cannot be read.
        """

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place whole: written beside it, synced, renamed, its folder synced. Missing folders are made.

        Args:
            path: where; absolute.
            data: its bytes.
            mode: its permission bits, whatever the umask.

        Raises:
            HostError: it cannot be written; what was there before is still there.
        """

    def remove(self, path: str) -> bool:
        """Remove a file. Returns whether one was there.

        Raises:
            HostError: it cannot be removed.
        """
