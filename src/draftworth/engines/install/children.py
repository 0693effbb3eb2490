"""Runs the long commands of an installation: shows that they go on, keeps what they print, ends them when told to."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftworth.engines.install.base import Tell
from draftworth.errors import RefusedError

EVERY = 10.0
"""Seconds between two lines of progress."""
TAIL = 3
PINNED = ("--no-deps", "--only-binary", ":all:", "--progress-bar", "off")
"""pip's options for an exact list: nothing comes along, nothing is built."""
GRACE = 5.0
"""Seconds a child has to end after SIGTERM."""

Progress = Callable[[str], str | None]
"""Turns a printed line into words about how far a command is."""

# What of the caller's environment would send pip or Python elsewhere.
_STRAY = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
    "LD_PRELOAD",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_REQUIRE_HASHES",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_PYTHON",
    "PIP_REQUIREMENT",
    "PIP_EDITABLE",
    "PIP_REPORT",
    "PIP_DRY_RUN",
    "PIP_NO_BINARY",
    "PIP_QUIET",
    "PIP_VERBOSE",
    "PIP_LOG",
)


def child_env(environ: Mapping[str, str], scratch: Path | None = None) -> dict[str, str]:
    """Return the environment of a child: the caller's, without what would send pip or Python elsewhere.

    Indexes, proxies and certificates that a person configured for pip stay in force. `scratch` becomes the temporary
    folder: wheels are large, and /tmp is often small.
    """
    env = {key: value for key, value in environ.items() if key not in _STRAY}
    # pip's configuration files may set these too; a variable wins over a file.
    env |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_CONSTRAINT": os.devnull, "PYTHONUNBUFFERED": "1"}
    if scratch is not None:
        env["TMPDIR"] = str(scratch)
    return env


def pip_of(python: Path) -> list[str | Path]:
    """Return the argv that starts an environment's own pip, without questions and without news of itself."""
    return [python, "-m", "pip", "--no-input", "--disable-pip-version-check"]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the steps of one installation, one after another, against one clock.

    Attributes:
        env: the whole environment of every step.
        log: a file that what the steps print is added to.
        tell: takes lines for a person.
        every: seconds between two lines of progress.
        began: when the installation began, on the monotonic clock.
    """

    env: Mapping[str, str]
    log: Path
    tell: Tell
    every: float = EVERY
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long the installation has taken so far."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """Tell a line with the elapsed seconds before it."""
        self.tell(f"  {self.seconds:4.0f} s  {text}")

    def run(self, command: Sequence[str | Path], what: str, progress: Progress = lambda _line: None) -> list[str]:
        """Run a command to its end and return the lines it printed, standard error among them.

        Args:
            command: argv.
            what: what it does, for a person: `installing torch`.
            progress: turns a printed line into words about how far it is, or None where it tells nothing.

        Raises:
            RefusedError: it could not be started, or ended with an error; carries its last three lines.
        """
        try:
            child = subprocess.Popen(
                [str(word) for word in command],
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise RefusedError(f"{what} failed: cannot run {command[0]}: {error.strerror}") from error
        printed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(child, printed), daemon=True)
        reader.start()
        try:
            lines = self._follow(printed, what, progress)
            code = child.wait()
        finally:
            end(child)
            reader.join(GRACE)
        if code != 0:
            how = f"exit {code}" if code > 0 else f"ended by signal {-code}"
            raise RefusedError(f"{what} failed ({how}): {last_words(lines)} (all it printed is in {self.log})")
        return lines

    def _follow(self, printed: "queue.SimpleQueue[str | None]", what: str, progress: Progress) -> list[str]:
        lines: list[str] = []
        state, told = "", time.monotonic()
        with self.log.open("a", encoding="utf-8") as file:
            while True:
                with suppress(queue.Empty):
                    line = printed.get(timeout=self.every)
                    if line is None:
                        return lines
                    lines.append(line)
                    file.write(line + "\n")
                    state = progress(line) or state
                if time.monotonic() - told >= self.every:
                    self.say(f"{what}: {state}" if state else what)
                    told = time.monotonic()


def last_words(lines: Sequence[str]) -> str:
    """Return the last three lines of a failed command as one, its warnings left out where it says anything else."""
    telling = [line.strip() for line in lines if not line.startswith(("WARNING:", "[notice]"))]
    return " / ".join((telling or [line.strip() for line in lines])[-TAIL:]) or "it printed nothing"


def told(lines: Sequence[str], log: Path, *keys: str) -> dict[str, Any]:
    """Return the JSON object that a script of ours printed last, reduced to `keys`.

    Raises:
        RefusedError: it printed none, or not with all keys.
    """
    text = next((line for line in reversed(lines) if line.startswith("{")), "")
    try:
        facts: dict[str, Any] = json.loads(text)
        return {key: facts[key] for key in keys}
    except (ValueError, KeyError) as error:
        raise RefusedError(f"the last step's report cannot be read ({error!r}); all it printed is in {log}") from error


def _read(child: subprocess.Popen[str], printed: "queue.SimpleQueue[str | None]") -> None:
    """Pass on what a child prints, line by line, then None."""
    assert child.stdout is not None
    with child.stdout as stream:
        for line in stream:
            if text := line.rstrip():
                printed.put(text)
    printed.put(None)


def end(child: "subprocess.Popen[Any]", grace: float = GRACE) -> None:
    """End a child with everything it started, where it still runs; a Ctrl-C comes through here.

    Args:
        child: the leader of its process group.
        grace: seconds between SIGTERM and SIGKILL.
    """
    if child.poll() is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
