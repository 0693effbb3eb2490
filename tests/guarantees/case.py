"""A unit of its own for a test that breaks something, in a manager that a file's tests share."""

import itertools
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.helpers import Result, wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, UnitCase

_NUMBERS = itertools.count(1)
SLOW: dict[str, Any] = {**QUICK, "speculating": {"tokens_per_chunk": [1, 3, 2], "token_ms": 150.0}}
"""A variant that takes about 2 s for each of two requests: time to get in the way."""
MEASURED = frozenset({0, 3})
"""Exit codes of a trial that came to a verdict."""


class Case(UnitCase):
    """`UnitCase` with what is needed to get in the way at a certain moment."""

    def facts(self) -> dict[str, Any]:
        """Return what must be the same after a trial; systemd tells these in any order."""
        found = super().facts()
        return {**found, "RequiresMountsFor": sorted(str(found.get("RequiresMountsFor", "")).split())}

    def run_while(
        self, moment: Callable[[], Any], act: Callable[[], Any], *options: str, env: Mapping[str, str] | None = None
    ) -> Result:
        """Run the trial, and do something once when a moment has come; what goes wrong in that fails the test."""
        trouble: list[BaseException] = []
        over = threading.Event()

        def wait() -> None:
            try:
                while not moment():
                    assert not over.is_set(), "the trial was over before the moment came"
                    time.sleep(0.02)
                act()
            except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
                trouble.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        try:
            found = self.cli("trial", "run", str(self.file), "--yes", "--json", *options, env=env)
        finally:
            over.set()
            thread.join(30)
        if trouble:
            raise AssertionError(f"{trouble[0]}\nthe trial: {found.code} {found.err[-2000:]}") from trouble[0]
        return found

    def runs_variant(self) -> bool:
        """Whether a variant serves or loads now, by what systemd says."""
        return bool(self.variants()) or "--speculative-config" in self._argv_or_nothing()

    def variants(self) -> list[str]:
        """Return the units of variants that are up."""
        listed = self.systemd.systemctl(
            "list-units",
            "--plain",
            "--no-legend",
            "--state=active,activating",
            "draftworth-*-ngram-5.service",
            check=False,
        )
        return [line.split()[0] for line in listed.splitlines() if line.split()]

    def _argv_or_nothing(self) -> str:
        with suppress(AssertionError):
            return self.argv()
        return ""

    def pid(self, unit: str | None = None) -> int:
        """Return a unit's main process, as the manager counts."""
        return int(self.systemd.systemctl("show", "-p", "MainPID", "--value", unit or self.unit) or 0)

    def members(self, unit: str | None = None) -> list[int]:
        """Return the processes in a unit's control group."""
        group = self.systemd.systemctl("show", "-p", "ControlGroup", "--value", unit or self.unit)
        return [int(pid) for pid in self.systemd.run(["cat", f"/sys/fs/cgroup{group}/cgroup.procs"]).stdout.split()]

    def lives(self, pid: int) -> bool:
        """Whether there is a process, as the manager counts."""
        return self.systemd.run(["test", "-d", f"/proc/{pid}"], check=False).returncode == 0

    def shared_memory(self) -> list[str]:
        """Return the names in the manager's /dev/shm that servers make."""
        return self.systemd.run(["sh", "-c", "cd /dev/shm; ls | grep ^psm_ || true"]).stdout.decode().split()

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process inside."""
        self.systemd.run(["kill", f"-{int(number)}", str(pid)])

    def driver(self) -> str:
        """Return the unit that drives the newest trial."""
        return f"draftworth-trial-{self.tag()}.service"

    def started(self) -> bool:
        """Whether a trial has begun to change something."""
        return bool(self.trials()) and (self.trials()[-1] / "tag").is_file() and self.reached("stop-original")

    def remarks_of(self, step: str) -> list[str]:
        """Return what the journal says that a step has left."""
        effects = [event for event in self.events() if event.kind == "effect" and step in event.step]
        return [str(remark) for event in effects for remark in event.data.get("remarks", ())]

    def log_of(self, step: str) -> str:
        """Return what the server of a start has said so far."""
        if not self.trials():
            return ""
        found = sorted((self.trials()[-1] / "logs").glob(f"*{step}.log"))
        return found[-1].read_text(encoding="utf-8", errors="replace") if found else ""

    def journal(self, unit: str) -> str:
        """Return what a unit has said."""
        return self.systemd.run(["journalctl", "-u", unit, "-o", "cat", "--no-pager"]).stdout.decode(errors="replace")

    def wait_record(self, seconds: float = 40.0) -> dict[str, Any]:
        """Wait until the newest trial has a record that tells how the service was left."""
        wait_for((self.trials()[-1] / "trial.json").is_file, seconds, "the record")
        return self.record()

    def background(self, *words: str) -> "subprocess.Popen[bytes]":
        """Run a command inside, and go on."""
        return subprocess.Popen(self.systemd.exec(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def made_case(systemd: PrivateSystemd, folder: Path) -> Iterator[Case]:
    """A case with a unit name of its own; whatever it leaves is taken away, so that the next one begins clean."""
    case = Case(systemd, folder, unit=f"llm{next(_NUMBERS)}.service")
    try:
        yield case
    finally:
        clean(systemd)


def clean(systemd: PrivateSystemd) -> None:
    """End every unit of a test and of a trial, and remove its files."""
    script = r"""
cd /etc/systemd/system
units=$(ls -d *.service *.socket *.timer *.path 2>/dev/null; ls /run/systemd/system 2>/dev/null | grep -v '\.d$')
others=$(systemctl list-units --all --plain --no-legend 'draftworth-*' 'run-*' | awk '{print $1}')
systemctl stop --no-block $units $others 2>/dev/null
systemctl kill -s KILL $units $others 2>/dev/null
rm -rf /etc/systemd/system/* /run/systemd/system/* /run/draftworth; rm -f /dev/shm/psm_*
systemctl daemon-reload
systemctl stop $units $others 2>/dev/null
systemctl reset-failed
exit 0
"""
    systemd.run(["timeout", "30", "sh", "-c", script], check=False)


def remarks(done: Result) -> str:
    """Return the findings of a record as one text."""
    return "\n".join(one["message"] for one in done.json["findings"])
