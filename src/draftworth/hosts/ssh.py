"""A machine reached through the OpenSSH client as a person reaches it: by their configuration, agent and jump hosts."""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.hosts.base import CommandResult, HostError, HostTimeoutError
from draftworth.hosts.children import finish, shown, start
from draftworth.hosts.files import CommandFiles
from draftworth.hosts.shell import line, without_marks
from draftworth.hosts.ssh_failures import explain
from draftworth.hosts.ssh_stream import Stream

_LONGEST_SOCKET = 85  # sun_path has 108 bytes, and ssh first binds the name with 17 more
_SOCKET = "c"


class SshHost(CommandFiles):
    """A machine that runs what the ssh client's `alias` names. Nothing connects before the first command.

    One connection is opened and shared by all commands; where the person already keeps one open for this alias
    (ControlMaster in their configuration), that one is used. Commands need POSIX sh and `env` there, files GNU
    coreutils. See `Host` for what its methods promise. A command that ends by a signal has 128 plus its number as
    code; one that timed out, or whose connection was lost, may go on there.

    Attributes:
        name: the machine for a person.
        alias: what ssh was given.
    """

    def __init__(
        self,
        alias: str,
        *,
        ssh_config: Path | None = None,
        connect_timeout_s: int = 20,
        alive_interval_s: int = 15,
        alive_count: int = 4,
        persist_s: int = 300,
    ) -> None:
        """Make a host.

        Args:
            alias: a name of the ssh client's configuration, `user@machine` or a machine.
            ssh_config: the client's configuration; None: ~/.ssh/config and the system's.
            connect_timeout_s: seconds until a machine that does not answer is given up.
            alive_interval_s: seconds of silence after which the server is asked for a sign of life.
            alive_count: unanswered questions after which the connection counts as lost.
            persist_s: seconds the shared connection stays after the last command.

        Raises:
            UsageError: the alias is none.
        """
        if not alias or alias.startswith("-") or any(c.isspace() or not c.isprintable() for c in alias):
            raise UsageError(f"{alias!r}: not an SSH host; give a Host of ~/.ssh/config, or user@machine")
        self.alias = alias
        self.name = f"ssh {alias}"
        self._config = ("-F", str(ssh_config)) if ssh_config else ()
        self._options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(connect_timeout_s),
            "ServerAliveInterval": str(alive_interval_s),
            "ServerAliveCountMax": str(alive_count),
            "LogLevel": "ERROR",
            "ForwardX11": "no",
            "RemoteCommand": "none",
            "RequestTTY": "no",
            "PermitLocalCommand": "no",
            "ClearAllForwardings": "yes",
        }
        self._persist_s = persist_s
        self._shared: tuple[str, ...] | None = None
        self._folder: Path | None = None
        self._forget: weakref.finalize[..., SshHost] | None = None

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        """Run a command there."""
        mark, command = self._command(argv)
        try:
            result = finish(
                start(command, os.environ, stdin=stdin is not None), command, stdin=stdin, timeout_s=timeout_s
            )
        except HostTimeoutError:
            raise HostTimeoutError(
                f"{self.name}: {shown(argv)}: not done after {timeout_s:g} s; given up, it may still run there"
            ) from None
        out, err, began, own = without_marks(result.out, result.err, result.code, mark)
        if not own or not began:
            raise self._failure(argv, err, began=began)
        return CommandResult(tuple(argv), result.code, out, err, cut=result.cut)

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], stdin: bytes | None = None) -> Iterator[Stream]:
        """Run a command there and give its standard output line by line while it runs.

        Leaving the block ends the command, on both sides, unless it has ended by itself.

        Args:
            argv: the command.
            stdin: what it reads. Where it is given, a command that never writes may go on there after the block.

        Raises:
            HostError: ssh cannot be executed; while lines are read: the connection could not be made or was lost.
        """
        mark, command = self._command(argv, follow=stdin is None)
        process = start(command, os.environ, stdin=True)
        lines = Stream(process, mark, stdin, lambda err, began: self._failure(argv, err, began=began))
        try:
            yield lines
        finally:
            lines.close()

    def close(self) -> None:
        """End the shared connection, unless it is the person's own. The next command opens another."""
        if self._forget is not None:
            self._forget()
        self._shared = self._folder = self._forget = None

    def _command(self, argv: Sequence[str], *, follow: bool = False) -> tuple[str, list[str]]:
        if not argv:
            raise HostError("no command was given")
        mark = f"draftworth-{secrets.token_hex(8)}"
        try:
            text = line(argv, mark, follow=follow)
        except ValueError as error:
            raise HostError(f"{shown(argv)}: cannot be executed: {error}") from None
        return mark, [*self._ssh(), *self._sharing(), "--", self.alias, text]

    def _ssh(self) -> list[str]:
        return ["ssh", *self._config, *(f"-o{name}={value}" for name, value in self._options.items())]

    def _sharing(self) -> tuple[str, ...]:
        """Return the options by which commands share a connection."""
        if self._shared is None:
            check = ["ssh", *self._config, "-oBatchMode=yes", "-O", "check", "--", self.alias]
            if finish(start(check, os.environ, stdin=False), check, stdin=None, timeout_s=20).ok:
                self._shared = ()  # the person's own; it may have needed a password or a second factor
            else:
                self._folder = private_folder()
                path = str(self._folder / _SOCKET).replace("%", "%%")
                self._shared = ("-oControlMaster=auto", f"-oControlPath={path}", f"-oControlPersist={self._persist_s}")
                leave = ["ssh", *self._config, f"-oControlPath={path}", "-O", "exit", "--", self.alias]
                self._forget = weakref.finalize(self, _leave, leave, self._folder)
        return self._shared

    def _failure(self, argv: Sequence[str], err: bytes, *, began: bool) -> HostError:
        text = err.decode(errors="replace")
        if began:
            return HostError(
                f"{self.name}: the connection was lost while this ran, and it may still run there: {shown(argv)}"
            )
        return HostError(explain(self.alias, text))


def private_folder() -> Path:
    """Make a folder that only this user can enter, with a path short enough for a socket in it."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):  # noqa: S108 - mkdtemp makes it private
        if parent and len(os.fsencode(parent)) + len("/draftworth-12345678/c") <= _LONGEST_SOCKET:
            with contextlib.suppress(OSError):
                return Path(tempfile.mkdtemp(prefix="draftworth-", dir=parent))
    raise HostError("no folder for the SSH connection's socket: /tmp is not writable")


def _leave(command: Sequence[str], folder: Path) -> None:
    if (folder / _SOCKET).exists():
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10,
                check=False,
            )
    shutil.rmtree(folder, ignore_errors=True)
