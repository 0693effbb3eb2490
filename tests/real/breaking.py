"""Breaking a driver at an exact point: killed, stopped or out of disk before or after its n-th change to the host.

Counted are changes only (units and files written or removed, orders to systemd, journal rows), so that a number means
the same point in every run. A `sitecustomize` on the driver's PYTHONPATH does it: nothing in the product knows of it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

_CODE = """
import json, os, signal, sys, time
from pathlib import Path
_here = Path(__file__).parent
_plan = json.loads((_here / "plan.json").read_text())
_words = getattr(sys, "orig_argv", ())
if any("draftworth.trials.driver.drive" in word for word in _words) and "--record" not in _words:
    import sqlite3
    from draftworth.hosts.local import LocalHost
    from draftworth.hosts.base import HostError
    from draftworth.trials.journal import Journal
    _count = [0]
    _reading = {"show", "list-units", "get-default", "is-active", "cat", "status", "is-enabled", "list-unit-files"}

    def _break(what, when):
        if when == "before":
            _count[0] += 1
            with (_here / "changes.log").open("a") as log:
                log.write(f"{_count[0]} {what}\\n")
        if _count[0] == _plan["at"] and when == _plan["when"]:
            if _plan["how"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if _plan["how"] == "freeze":
                (_here / "frozen").touch()
                while True:
                    time.sleep(60)
        return _plan["how"] == "full" and when == "before" and _count[0] >= _plan["at"]

    def _wrapped(method, describe, changes, full):
        def wrapper(self, *args, **kwargs):
            if not changes(args):
                return method(self, *args, **kwargs)
            what = describe(args)
            if _break(what, "before") and full is not None:
                raise full(what)
            result = method(self, *args, **kwargs)
            _break(what, "after")
            return result
        return wrapper

    def _orders(args):
        argv = [str(word) for word in args[0]]
        return argv[0] in {"systemctl", "/bin/sh", "systemd-run"} and not (set(argv[1:3]) & _reading)

    LocalHost.run = _wrapped(LocalHost.run, lambda args: " ".join(map(str, args[0]))[:100], _orders, None)
    LocalHost.write = _wrapped(LocalHost.write, lambda args: f"write {args[0]}", lambda args: True,
                               lambda what: HostError(f"{what}: No space left on device"))
    LocalHost.remove = _wrapped(LocalHost.remove, lambda args: f"remove {args[0]}", lambda args: True, None)
    Journal._insert = _wrapped(Journal._insert, lambda args: f"journal {args[0][4]} {args[0][5]}",
                               lambda args: True, lambda what: sqlite3.OperationalError("database or disk is full"))
"""


@dataclass(frozen=True)
class Breaker:
    """A folder for PYTHONPATH that breaks the driver which imports it."""

    folder: Path

    def plan(self, at: int, when: str = "before", how: str = "kill") -> dict[str, str]:
        """Set up a break; returns the environment that the command line has to be given.

        Args:
            at: which change, from 1; 0: none, the changes are only written down.
            when: before or after it.
            how: kill (SIGKILL), freeze (it hangs there for ever), full (every write from there on fails: disk full).
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("changes.log", "frozen"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "sitecustomize.py").write_text(_CODE, encoding="utf-8")
        plan = {"at": at, "when": when, "how": how}
        (self.folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        before = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": f"{self.folder}:{before}" if before else str(self.folder)}

    def changes(self) -> list[str]:
        """Return the changes that the last driver made, in order."""
        try:
            return (self.folder / "changes.log").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []

    @property
    def frozen(self) -> bool:
        """Whether the driver has come to where it hangs."""
        return (self.folder / "frozen").exists()
