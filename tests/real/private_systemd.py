"""A private systemd system manager, PID 1 of namespaces of its own: real units, journal, D-Bus, timers and cgroups.

It runs on the machine's own root file system with private versions of what a manager writes to (/run, /etc/systemd,
/var/lib, /var/cache, /var/log, /var/tmp, /dev/shm, the machine id and the boot id). It sees no process of the machine
outside; /tmp and the network are the machine's own, so that a test can read files and ask ports. Needs root, systemd,
dbus and a cgroup2 file system; what is missing fails with a message.

    with PrivateSystemd(tmp_path) as systemd:
        systemd.write_unit("x.service", "[Service]\nExecStart=/bin/sleep 60\n")
        systemd.systemctl("daemon-reload")
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

import psutil
import pytest

from draftworth.hosts.base import STABLE_TEXTS, CommandResult, HostError

_PREFIX = "draftworth-private-"
_NUMBERS = itertools.count()
_UP = ("running", "degraded")
# What is taken from the distribution; everything else a boot would start is left out.
_VENDOR = (
    "dbus.service",
    "dbus.socket",
    "exit.target",
    "final.target",
    "shutdown.target",
    "sockets.target",
    "timers.target",
    "umount.target",
    "systemd-exit.service",
    "systemd-journald.service",
    "systemd-journald.socket",
    "systemd-journald-dev-log.socket",
    "syslog.socket",
)
_VENDOR_FOLDERS = (Path("/lib/systemd/system"), Path("/usr/lib/systemd/system"))
_TARGETS = {
    "sysinit.target": "[Unit]\nDescription=System Initialization\n",
    "basic.target": "[Unit]\nDescription=Basic\nRequires=sysinit.target\nAfter=sysinit.target\n",
    "network.target": "[Unit]\nDescription=Network\n",
    "network-online.target": "[Unit]\nDescription=Network is Online\n",
    "multi-user.target": (
        "[Unit]\nDescription=Multi-User\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n"
        "Wants=systemd-journald.socket systemd-journald.service dbus.socket timers.target sockets.target\n"
    ),
}
_SYSTEMD = ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")
# On the outside /tmp is read by tests, so it stays; systemd's folders in it carry the boot id and are removed by it.
_INIT = """#!/bin/bash
set -e
mount --make-rprivate /
for path in /run /var/lib /var/cache /var/tmp /dev/shm; do mount -t tmpfs tmpfs $path; done
chmod 1777 /var/tmp /dev/shm
mkdir -p /run/lock /run/systemd/system /run/log/journal /run/dbus /var/lib/systemd
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind {folder}/systemd /etc/systemd
mount --bind {folder}/log /var/log
mount --bind {folder}/machine-id /etc/machine-id
mount --bind {folder}/boot-id /proc/sys/kernel/random/boot_id
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=private \
  SYSTEMD_GENERATOR_PATH={folder}/generators SYSTEMD_UNIT_PATH={units} \
  {systemd} --system --show-status=no --log-target=journal --crash-reboot=no --default-standard-output=journal
"""


class PrivateSystemdError(Exception):
    """The manager cannot run here, or did not start."""


class InsideHost:
    """A `draftworth.hosts.base.Host` whose commands and files are those inside a private manager."""

    name = "this machine"

    def __init__(self, inside: "PrivateSystemd") -> None:
        self._inside = inside
        self.calls: list[tuple[str, ...]] = []
        """Every command that was run, in order."""

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        self.calls.append(tuple(argv))
        env = {**os.environ, **STABLE_TEXTS}
        full = self._inside.exec(argv)
        try:
            done = subprocess.run(
                full, input=stdin or b"", capture_output=True, timeout=timeout_s, check=False, env=env
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"{argv[0]} could not be run: {error}") from error
        if done.returncode == 127 and b"nsenter: failed to execute" in done.stderr:
            raise HostError(f"{argv[0]} could not be run: no such program")
        return CommandResult(tuple(argv), done.returncode, done.stdout, done.stderr)

    def read(self, path: str) -> bytes | None:
        if not self.run(["test", "-e", path]).ok:
            return None
        return self._done(["cat", "--", path]).out

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1.new" && chmod "$2" "$1.new" && mv -f "$1.new" "$1"'
        self._done(["sh", "-c", script, "sh", path, f"{mode:o}"], stdin=data)

    def remove(self, path: str) -> bool:
        there = self.run(["test", "-e", path]).ok or self.run(["test", "-L", path]).ok
        self._done(["rm", "-f", "--", path])
        return there

    def _done(self, argv: Sequence[str], stdin: bytes | None = None) -> CommandResult:
        result = self.run(argv, stdin=stdin)
        if not result.ok:
            raise HostError(f"{argv[0]}: {result.why}")
        return result


class PrivateSystemd:
    """One manager. Several may run at once, each with a folder of its own; it ends with the process that started it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve() / "private-systemd"
        self.etc = self.folder / "systemd" / "system"
        """/etc/systemd/system, seen from outside."""
        self.pid = 0
        """The manager's pid, seen from outside; 0 while it does not run."""
        self._outer: subprocess.Popen[bytes] | None = None
        self._cgroup: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = 20.0) -> None:
        """Boot it: multi-user.target and whatever is enabled. Returns when D-Bus answers and no start job is left."""
        systemd = _needs()
        self._prepare(systemd)
        base = _cgroup_base()
        _remove_stale(base)
        self._cgroup = base / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
        self._cgroup.mkdir()
        # setpriv and --kill-child: the manager, and with it everything in its namespace, dies with this process.
        script = (
            f"echo $$ > {self._cgroup}/cgroup.procs && exec setsid setpriv --pdeathsig KILL "
            f"unshare -m -p -C -i -u --fork --kill-child --mount-proc {self.folder}/init.sh"
        )
        with (self.folder / "out").open("wb") as out:
            self._outer = subprocess.Popen(
                ["/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            self._wait(time.monotonic() + timeout_s)
        except BaseException:
            self.stop()
            raise

    def exec(self, argv: Sequence[str] = ()) -> list[str]:
        """Return argv with the prefix that runs it inside."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "-i", "-u", *argv]

    def host(self) -> InsideHost:
        """Return a host whose commands run inside."""
        return InsideHost(self)

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: bytes | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command inside. With `check`, a failure is an AssertionError with what it printed."""
        result = subprocess.run(
            self.exec(argv), input=stdin or b"", capture_output=True, timeout=timeout_s, check=False
        )
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(argv)}: {result.returncode}: {(result.stderr or result.stdout).decode()}")
        return result

    def systemctl(self, *words: str, check: bool = True) -> str:
        """Run systemctl inside and return what it printed."""
        return self.run(["systemctl", "--no-pager", *words], check=check).stdout.decode().strip()

    def write_unit(self, name: str, text: str, where: Literal["etc", "run"] = "etc") -> Path:
        """Write a unit file, or a drop-in where the name has a folder (`x.service.d/10.conf`).

        Returns its path as the manager sees it. Nothing is reloaded.
        """
        if where == "etc":
            path = self.etc / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return Path("/etc/systemd/system") / name
        path = Path("/run/systemd/system") / name
        self.run(["mkdir", "-p", str(path.parent)])
        self.run(["tee", str(path)], stdin=text.encode())
        return path

    def reboot(self, *, orderly: bool = False, keep_journal: bool = False) -> None:
        """Start over with /run emptied, /etc kept and a new boot id: by default like a power cut.

        What lay in /var/lib, /var/cache and /dev/shm is gone too.

        Args:
            orderly: stop the units first, as a shutdown does.
            keep_journal: keep /var/log (the journal must have been written there: `keep_log`).
        """
        if orderly:
            self.run(["systemctl", "exit"], check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert self._outer is not None
                self._outer.wait(timeout=30)
        self._end()
        if not keep_journal:
            shutil.rmtree(self.folder / "log", ignore_errors=True)
        self.start()

    def keep_log(self) -> None:
        """Have the journal written to /var/log, where `reboot(keep_journal=True)` keeps it."""
        self.run(["mkdir", "-p", "/var/log/journal"])
        self.run(["systemctl", "restart", "systemd-journald"])
        self.run(["journalctl", "--flush"])

    def stop(self) -> None:
        """End it at once. No process, mount or cgroup of it is left."""
        self._end()
        for name in ("log", "systemd", "vendor"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _prepare(self, systemd: str) -> None:
        for name in ("systemd/system", "systemd/system.control", "vendor", "log", "generators"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        vendor = self.folder / "vendor"
        for name in _VENDOR:
            source = next((folder / name for folder in _VENDOR_FOLDERS if (folder / name).exists()), None)
            if source is not None and not (vendor / name).is_symlink():
                (vendor / name).symlink_to(source)
        for name, text in _TARGETS.items():
            (vendor / name).write_text(text, encoding="utf-8")
        if not (vendor / "default.target").is_symlink():
            (vendor / "default.target").symlink_to("multi-user.target")
        if not (self.folder / "machine-id").exists():
            (self.folder / "machine-id").write_text(uuid.uuid4().hex + "\n", encoding="ascii")
        journald = self.folder / "systemd" / "journald.conf"
        journald.write_text("[Journal]\nReadKMsg=no\nAudit=no\nRuntimeMaxUse=64M\n", encoding="ascii")
        self._boot = uuid.uuid4()
        (self.folder / "boot-id").write_text(f"{self._boot}\n", encoding="ascii")
        units = ":".join(
            (
                "/etc/systemd/system.control",
                "/run/systemd/system.control",
                "/run/systemd/transient",
                "/etc/systemd/system",
                "/run/systemd/system",
                str(vendor),
            )
        )
        init = self.folder / "init.sh"
        init.write_text(_INIT.format(folder=self.folder, units=units, systemd=systemd), encoding="utf-8")
        init.chmod(0o755)

    def _wait(self, deadline: float) -> None:
        assert self._outer is not None
        while time.monotonic() < deadline:
            if self._outer.poll() is not None:
                break
            self.pid = self._find()
            if self.pid and self._answers() in _UP:
                return
            time.sleep(0.02)
        said = (self.folder / "out").read_text(encoding="utf-8", errors="replace").strip()
        raise PrivateSystemdError(f"the private systemd did not start; it said: {said or 'nothing'}")

    def _find(self) -> int:
        """Return the pid of the manager itself, once init.sh has become it."""
        assert self._outer is not None
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._outer.pid).children():
                if child.name() == "systemd":
                    return child.pid
        return 0

    def _answers(self) -> str:
        return self.run(["systemctl", "is-system-running"], check=False).stdout.decode().strip()

    def _end(self) -> None:
        if self._outer is not None:
            # The whole process id namespace ends with its first process.
            self._outer.kill()
            self._outer.wait(timeout=30)
            self._outer = None
        self.pid = 0
        if self._cgroup is not None:
            _remove_cgroup(self._cgroup)
            self._cgroup = None
        if hasattr(self, "_boot"):
            for left in Path("/tmp").glob(f"systemd-private-{self._boot.hex}-*"):
                shutil.rmtree(left, ignore_errors=True)


def _needs() -> str:
    """Return where systemd is. Raises PrivateSystemdError where something it needs is missing."""
    if os.geteuid() != 0:
        raise PrivateSystemdError("a private systemd needs root: run these tests as root")
    systemd = next((path for path in _SYSTEMD if Path(path).exists()), None)
    if systemd is None:
        raise PrivateSystemdError("no systemd on this machine: apt-get install systemd")
    for program, package in (
        ("dbus-daemon", "dbus"),
        ("busctl", "systemd"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("setpriv", "util-linux"),
    ):
        if shutil.which(program) is None:
            raise PrivateSystemdError(f"no {program} on this machine: apt-get install {package}")
    if not Path("/etc/machine-id").exists():
        raise PrivateSystemdError("no /etc/machine-id on this machine: run systemd-machine-id-setup")
    return systemd


def _cgroup_base() -> Path:
    for base in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (base / "cgroup.controllers").exists():
            return base
    raise PrivateSystemdError("no cgroup2 file system on this machine (looked at /sys/fs/cgroup and its unified)")


def _remove_cgroup(path: Path, patience_s: float = 10.0) -> None:
    """Remove a tree of cgroups; its processes may still be ending."""
    deadline = time.monotonic() + patience_s
    while path.exists():
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not path.exists():
            return
        if time.monotonic() > deadline:
            held = (path / "cgroup.procs").read_text(encoding="ascii").split()
            raise PrivateSystemdError(f"{path} is still in use by {held or 'a cgroup below it'}")
        time.sleep(0.02)


def _remove_stale(base: Path) -> None:
    """Remove cgroups of managers whose owner was killed."""
    for path in base.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(PrivateSystemdError, OSError):
                _remove_cgroup(path, 1.0)


@pytest.fixture
def private_systemd(tmp_path: Path) -> Iterator[PrivateSystemd]:
    """A manager of this test alone."""
    with PrivateSystemd(tmp_path) as systemd:
        yield systemd


@pytest.fixture(scope="module")
def module_systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSystemd]:
    """A manager that the tests of a file share; each uses unit names of its own."""
    with PrivateSystemd(tmp_path_factory.mktemp("systemd")) as systemd:
        yield systemd


if __name__ == "__main__":  # a manager to try things in: python -m tests.real.private_systemd FOLDER
    with PrivateSystemd(Path(sys.argv[1])) as manager:
        sys.stdout.write(" ".join(manager.exec()) + "\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(1e6)
