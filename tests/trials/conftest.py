"""A trial on the scripted server, built in a few words."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import Result, fake_command, free_port, listening, pids_with, wait_for

from draftworth import cli
from draftworth.services.processes import family, listener
from draftworth.trials.journal import Event, Journal

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
QUICK = {"token_ms": 2.0, "tokens": 24, "speculating": {"tokens_per_chunk": [1, 3, 2], "token_ms": 1.2}}


@dataclass
class Case:
    """A trial's folder, file and server script."""

    folder: Path
    port: int = field(default_factory=free_port)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "draftworth.toml"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def write(
        self,
        script: Mapping[str, Any] | None = None,
        *,
        arms: Sequence[tuple[str, Mapping[str, Any] | None]] = (("ngram-5", NGRAM),),
        flags: Sequence[str] = (),
        command: Sequence[str] | None = None,
        extra: str = "",
        prompts: int = 2,
        limits: str = "start_timeout_s = 20\nstop_timeout_s = 2",
        arm_lines: str = "",
    ) -> "Case":
        self.command = list(command or [*fake_command(self.folder, self.port, script or QUICK), *flags])
        if "{speculative_args}" not in self.command and command is None:
            self.command.append("{speculative_args}")
        parts = [f"[service]\ncommand = {json.dumps(self.command)}\nport = {self.port}\n"]
        for name, config in arms:
            speculative = f"speculative_config = {_inline(config)}\n" if config is not None else ""
            parts.append(f'[[arms]]\nname = "{name}"\n{speculative}{arm_lines}')
        workload = f'[workload]\ncategories = ["coding", "editing"]\nprompts_per_category = {prompts}\nwarmup = 1\n'
        parts.append(f"{workload}max_tokens = 24\n{extra}")
        parts.append(f"[limits]\n{limits}\n")
        self.file.write_text("\n".join(parts), encoding="utf-8")
        return self

    def original_command(self) -> list[str]:
        return [word for word in self.command if word != "{speculative_args}"]

    def cli(self, *arguments: str) -> Result:
        """Run the command line in this process."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.run(arguments)
        return Result(code, out.getvalue(), err.getvalue())

    def run(self) -> Result:
        return self.cli("trial", "run", str(self.file), "--json")

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Run the command line as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "draftworth", *arguments],
            cwd=self.folder,
            env={**os.environ, **self.env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def trials(self) -> list[Path]:
        return sorted((self.home / "trials").iterdir()) if (self.home / "trials").is_dir() else []

    def events(self) -> list[Event]:
        with Journal(self.trials()[-1] / "journal.db") as journal:
            return journal.events()

    def reached(self, step: str, kind: str = "intent") -> bool:
        """Whether the newest trial's journal has an event of a step whose name contains `step`."""
        if not self.trials() or not (self.trials()[-1] / "journal.db").is_file():
            return False
        try:
            return any(step in event.step and event.kind == kind for event in self.events())
        except Exception:  # noqa: BLE001 - the journal is being made
            return False

    def begun(self, count: int, step: str) -> bool:
        """Whether there are this many trials and the newest has reached a step."""
        return len(self.trials()) == count and self.reached(step)

    def nothing_left(self) -> None:
        """Assert that no process of the server remains and the port is free."""
        wait_for(lambda: not pids_with(f"script-{self.port}.json"), what="no process is left")
        assert not listening(self.port)


def _inline(config: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in config.items()) + " }"


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """A trial in a folder, a home and a lock folder of its own; what it leaves is killed after the test."""
    found = Case(tmp_path)
    found.env = {
        "DRAFTWORTH_HOME": str(found.home),
        "DRAFTWORTH_LOCKS": str(tmp_path / "locks"),
        # Seconds a trial; tests/trials/test_trials_explaining.py switches it on.
        "DRAFTWORTH_PAGE": "off",
    }
    for name, value in found.env.items():
        monkeypatch.setenv(name, value)
    yield found
    holder = listener(found.port)
    workers = family(holder, holder.pid, None, ()) if holder else set()
    for pid in {*pids_with(f"script-{found.port}.json"), *(process.pid for process in workers)}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
