"""A trial on a systemd unit of a private manager, built in a few words, and what has to be true after it."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import FAKE, Result, free_port, listening, wait_for
from tests.real.private_systemd import PrivateSystemd

from draftworth.trials.journal import Event, Journal

UNIT = "llm.service"
QUICK: dict[str, Any] = {
    "token_ms": 2.0,
    "tokens": 12,
    "load_seconds": 0.2,
    "speculating": {"tokens_per_chunk": [1, 3, 2], "token_ms": 1.2},
}
NGRAM = '{ method = "ngram", num_speculative_tokens = 5 }'


@dataclass
class UnitCase:
    """A unit that serves, a trial's file, and the command line run inside the manager."""

    systemd: PrivateSystemd
    folder: Path
    port: int = field(default_factory=free_port)
    unit: str = UNIT
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "draftworth.toml"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    # ------------------------------------------------------------------ given

    def script(self, script: Mapping[str, Any] | None = None) -> Path:
        """Write what the server is told to do; read again at each of its starts."""
        path = self.folder / "script.json"
        path.write_text(json.dumps(dict(script or QUICK)), encoding="utf-8")
        return path

    def exec_start(self) -> str:
        return f"{sys.executable} {FAKE} --script {self.folder / 'script.json'} --port {self.port} --model fake"

    def serve(
        self,
        script: Mapping[str, Any] | None = None,
        *,
        service: str = "",
        unit: str = "",
        install: str = "WantedBy=multi-user.target",
        exec_start: str | None = None,
        enable: bool = True,
        where: Any = "etc",
        start: bool = True,
    ) -> "UnitCase":
        """Write the original's unit, start it, and wait until it serves."""
        self.script(script)
        text = (
            f"[Unit]\nDescription=the model\n{unit}\n[Service]\nExecStart={exec_start or self.exec_start()}\n"
            f"Restart=on-failure\nRestartSec=1\nTimeoutStopSec=5\n{service}\n[Install]\n{install}\n"
        )
        self.systemd.write_unit(self.unit, text, where)
        self.systemd.systemctl("daemon-reload")
        if enable:
            self.systemd.systemctl("enable", self.unit)
        if start:
            self.systemd.systemctl("start", self.unit)
            self.wait_serving()
        return self

    def trial(
        self,
        *,
        arms: Sequence[tuple[str, str | None]] = (("ngram-5", NGRAM),),
        service: str = "append_args = true",
        prompts: int = 1,
        limits: str = "start_timeout_s = 20\ndrain_s = 1",
        extra: str = "",
        workload: str | None = None,
    ) -> "UnitCase":
        """Write the trial's file."""
        parts = [f'[service]\ntype = "systemd"\nunit = "{self.unit}"\n{service}\n']
        for name, config in arms:
            parts.append(f'[[arms]]\nname = "{name}"\n' + (f"speculative_config = {config}\n" if config else ""))
        parts.append(
            f'[workload]\ncategories = ["coding"]\nprompts_per_category = {prompts}\nwarmup = 1\nmax_tokens = 12\n'
        )
        parts.append(f"[limits]\n{limits}\n{extra}")
        self.file.write_text("\n".join(parts), encoding="utf-8")
        return self

    # ------------------------------------------------------------------ when

    def command(self, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the command line, run inside the manager."""
        variables = {
            "DRAFTWORTH_HOME": str(self.home),
            "DRAFTWORTH_LOCKS": str(self.folder / "locks"),
            "HOME": str(self.folder),
            **(env or {}),
        }
        pairs = [f"{name}={value}" for name, value in variables.items()]
        return self.systemd.exec(["env", *pairs, sys.executable, "-m", "draftworth", *arguments])

    def cli(self, *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 90.0) -> Result:
        """Run the command line and wait for it."""
        done = subprocess.run(
            self.command(*arguments, env=env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run(self, *options: str, timeout_s: float = 90.0) -> Result:
        """Run the trial to its end."""
        return self.cli("trial", "run", str(self.file), "--yes", "--json", *options, timeout_s=timeout_s)

    def start(self, *options: str) -> str:
        """Start the trial and return its id; its driver goes on by itself."""
        done = self.cli("trial", "run", str(self.file), "--yes", "--detach", *options)
        assert done.code == 0, done.err
        return done.out.strip()

    def wait_serving(self, seconds: float = 20.0) -> None:
        wait_for(lambda: listening(self.port), seconds, "the service answers")

    # ------------------------------------------------------------------ then

    def trials(self) -> list[Path]:
        folder = self.home / "trials"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def tag(self) -> str:
        return (self.trials()[-1] / "tag").read_text(encoding="ascii").strip()

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.trials()[-1] / "trial.json").read_text(encoding="utf-8"))
        return found

    def events(self) -> list[Event]:
        with Journal(self.trials()[-1] / "journal.db") as journal:
            return journal.events()

    def reached(self, step: str, kind: str = "intent") -> bool:
        """Whether the newest trial's journal has an event of a step whose name contains `step`."""
        try:
            return any(step in event.step and event.kind == kind for event in self.events())
        except Exception:  # noqa: BLE001 - the journal is being made
            return False

    def state(self, unit: str | None = None) -> str:
        return self.systemd.systemctl("show", "-p", "ActiveState", "--value", unit or self.unit)

    def argv(self) -> str:
        """Return the running main process's command line."""
        pid = self.systemd.systemctl("show", "-p", "MainPID", "--value", self.unit)
        return self.systemd.run(["cat", f"/proc/{pid}/cmdline"]).stdout.replace(b"\0", b" ").decode()

    def facts(self) -> dict[str, Any]:
        """Return what must be the same after a trial, read with systemctl and sha256sum alone."""
        show = self.systemd.systemctl("show", self.unit)
        properties = dict(line.partition("=")[::2] for line in show.splitlines())
        kept: dict[str, Any] = {name: value for name, value in properties.items() if not _RUNTIME.search(name)}
        for name in _LISTS:  # in no order
            kept[name] = sorted(str(kept.get(name, "")).split())
        kept["ExecStart"] = re.sub(r" ; (start_time|stop_time|pid|code|status)=[^;]*", "", kept.get("ExecStart", ""))
        files = self.systemd.run(
            ["sh", "-c", "find /etc/systemd/system -type f -exec sha256sum {} + ; find /etc/systemd/system -type l"]
        )
        kept["files"] = sorted(files.stdout.decode().splitlines())
        return kept

    def remember(self) -> "UnitCase":
        """Keep how everything is before the trial."""
        self.before = self.facts()
        return self

    def wait_back(self, seconds: float = 40.0) -> None:
        """Wait until the original serves and nothing of the trial's is left; fail where that is not so in time."""
        what = "the original serves and nothing of the trial's is left"
        try:
            wait_for(lambda: not self.left() and self.state() == "active" and listening(self.port), seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.state()}, left: {self.left()}") from None
        self.as_before()

    def left(self) -> list[str]:
        """Return everything of a trial's that is still on the host."""
        units = self.systemd.systemctl("list-units", "--all", "--plain", "--no-legend", "draftworth-*", check=False)
        found = [line.split()[0] for line in units.splitlines() if line.split()]
        for folder in ("/run/draftworth", "/run/systemd/system", "/run/systemd/transient", "/etc/systemd/system"):
            listed = self.systemd.run(["find", folder, "-name", "*draftworth*"], check=False).stdout.decode()
            found += listed.split()
        return found

    def as_before(self) -> None:
        """Check that the original serves its own command, and that files, settings and states are as they were."""
        assert self.state() == "active"
        assert listening(self.port)
        assert "--speculative-config" not in self.argv()
        left = self.left()
        assert not left, left
        if self.before:
            now = self.facts()
            differs = {
                name: (self.before.get(name), value) for name, value in now.items() if self.before.get(name) != value
            }
            assert not differs, differs


_LISTS = ("Requires", "Wants", "Conflicts", "WantedBy", "RequiredBy", "TriggeredBy", "ConsistsOf", "BoundBy")
_RUNTIME = re.compile(
    r"Timestamp|PID$|^(?:Active|Sub|Invocation|Exec(?!Start$)|NRestarts|CPU|Memory|Tasks|IO|IP|Status|Control|State"
    r"|Result|Condition|Assert|Job|Effective|Freezer|Can|NeedDaemonReload|After|Before|Refuse)|^Monitor"
)
