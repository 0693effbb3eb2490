"""Getting at Draftworth on another machine: the connection, the command, and what it means where it does not answer."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import draftworth
from draftworth.errors import EXIT_USAGE, RefusedError, UsageError
from draftworth.hosts.ssh import SshHost
from draftworth.trials.driver.pointers import Pointer

_NOT_FOUND = (126, 127)


def ssh_host(alias: str) -> SshHost:
    """Return the connection to a machine; $DRAFTWORTH_SSH_CONFIG names another configuration than ~/.ssh/config.

    Raises:
        UsageError: the alias is none, or there is no such file.
    """
    named = os.environ.get("DRAFTWORTH_SSH_CONFIG")
    if named and not Path(named).is_file():
        raise UsageError(f"DRAFTWORTH_SSH_CONFIG: {named}: no such file")
    return SshHost(alias, ssh_config=Path(named) if named else None)


def program_argv(program: str, *, sudo: bool, words: Sequence[str]) -> list[str]:
    """Return the argv that runs a program there.

    Args:
        program: a name, a path, or a path below the login's home that begins with `~/`.
        sudo: as root.
        words: its arguments.
    """
    root = ["sudo", "-n", "--"] if sudo else []
    if not program.startswith("~/"):
        return [*root, program, *words]
    script = f'p=$HOME/$1; shift; exec {" ".join(root)} "$p" "$@"'
    return ["sh", "-c", script, "sh", program[2:], *words]


def check_answer(pointer: Pointer, code: int, stderr: str) -> None:
    """Raise what a failure without an answer means, where that is known and does not pass by itself.

    Args:
        pointer: who was asked.
        code: the exit code of the command there.
        stderr: its standard error.

    Raises:
        RefusedError: sudo asks for a password.
        UsageError: there is no such program, or one of another version.
    """
    why = " ".join((stderr.strip().splitlines() or [f"exit code {code}"])[-1].split())
    program, alias, where = pointer.draftworth, pointer.host, f"ssh {pointer.host}"
    if pointer.sudo and stderr.lstrip().startswith("sudo:") and "command not found" not in stderr:
        raise RefusedError(
            f"{where}: sudo does not let this login become root without a password ({why}); allow it in "
            "sudoers (NOPASSWD), or log in as root and take service.sudo out"
        )
    if code in _NOT_FOUND or (pointer.sudo and "command not found" in stderr):
        raise UsageError(
            f"{where}: {program}: no such program there ({why}); `draftworth host install {alias}` brings it, "
            "or service.draftworth says where it is"
        )
    if "agent" in stderr and code == EXIT_USAGE:
        raise UsageError(
            f"{where}: {program} there does not know what is asked ({why}); it is of another version than "
            f"{draftworth.__version__}: `draftworth host install {alias}` brings this one"
        )


@contextmanager
def interrupts_held() -> Iterator[Callable[[], bool]]:
    """Keep Ctrl-C from coming between the start of a trial and knowing its id; gives whether it came."""
    came = False

    def note(*_: object) -> None:
        nonlocal came
        came = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
