"""What several test files share: free ports, waiting, the fake server as a process."""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from draftworth.services.processes import family, identify


@dataclass
class Result:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


FAKE = Path(__file__).parent / "fakes" / "openai_server.py"


def run_cli(*words: object, env: Mapping[str, str] | None = None) -> Result:
    """Run the command line in this process. Returns its exit code and what it wrote."""
    from draftworth.cli import run  # noqa: PLC0415 - most tests here start processes

    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env or {}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run([str(word) for word in words])
    return Result(code, out.getvalue(), err.getvalue())


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], seconds: float = 15.0, what: str = "") -> Any:
    """Poll until the condition is true; fail the test where it is not in time."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not in {seconds} s: {what or condition}"
        time.sleep(0.05)


LISTENER = (
    "import socket, sys, time\n"
    "s = socket.socket()\n"
    "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
    "s.bind((sys.argv[2], int(sys.argv[1])))\n"
    "sys.argv[3] == 'loading' or s.listen()\n"
    "time.sleep(60)\n"
)


def listener_command(port: int, host: str = "127.0.0.1", state: str = "serving") -> list[str]:
    """Return the command of the smallest service: it accepts connections; `loading` binds the port and waits."""
    return [sys.executable, "-c", LISTENER, str(port), host, state]


@contextmanager
def spawned(command: list[str], **options: Any) -> Iterator[int]:
    """Run a process in a session of its own, its output thrown away unless told otherwise; yields its pid."""
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(command, start_new_session=True, **{**quiet, **options})
    try:
        yield process.pid
    finally:
        # With its workers: they share its session, and would live on for minutes.
        for member in family(identify(process.pid), process.pid, None, ()):
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def listening(port: int) -> bool:
    """Whether something accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fake_command(folder: Path, port: int, script: Mapping[str, Any] | None = None) -> list[str]:
    """Return the command of a fake server with a script of its own, with a place for speculative flags."""
    path = folder / f"script-{port}.json"
    path.write_text(json.dumps(dict(script or {})), encoding="utf-8")
    return [sys.executable, str(FAKE), "--script", str(path), "--port", str(port), "--served-model-name", "fake"]


@contextmanager
def original(
    command: list[str], port: int, folder: Path, env: Mapping[str, str] | None = None, seconds: float = 15.0
) -> Iterator[int]:
    """Run a server the way a person would, outside of any trial; yields its pid and kills what is left of it."""
    with (folder / "original.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        wait_for(lambda: listening(port), seconds, "the original listens")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def pids_with(word: str) -> list[int]:
    """Return the pids whose command line or environment contains a word, this test's own left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            state = (entry / "stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if word.encode() in text and state != "Z":
            found.append(int(entry.name))
    return found
