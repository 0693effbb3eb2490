"""Bringing this very Draftworth to another machine, so that trials can be driven there.

Everything is made in a folder beside its place and renamed once it has been seen to work: a machine has the whole of a
version or nothing of it. What is there already is left as it is.
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from draftworth.errors import RefusedError, UsageError
from draftworth.hosts.base import CommandResult, Host, HostError
from draftworth.hosts.package import Package, package
from draftworth.models import Frozen

Tell = Callable[[str], None]
"""Takes one line about what is happening now."""

MARKER = "installed.json"
_LEAST_PYTHON = (3, 11)
_PIP_S = 1800.0
_SLOWEST_BYTES_S = 100_000.0

_LAUNCHER = """#!/bin/sh
here=$(dirname -- "$(readlink -f -- "$0")")
exec "$here/../venv/bin/python" -P -m draftworth "$@"
"""
_PYTHON = "import sys; print('%d.%d.%d' % sys.version_info[:3]); import venv, ensurepip; print('venv')"
_OTHERS = "for p in python3.14 python3.13 python3.12 python3.11; do command -v $p; done"
# Imports what a trial needs, heavy ones too: what cannot be loaded there is told now and not in a trial.
_TRY = (
    "import draftworth, draftworth.trials.driver.agent, draftworth.trials.run, draftworth.trials.prepare, scipy.stats, "
    "pyarrow; print(draftworth.__version__)"
)
_UNPACK = 'cd -- "$1"/venv/lib/python3.*/site-packages && tar -xzf -'
_LAUNCH = 'mkdir -p -- "$1/bin" && cat > "$1/bin/draftworth" && chmod 755 -- "$1/bin/draftworth"'
_COMPILE = 'exec "$1/venv/bin/python" -P -m compileall -q -j 0 "$1"/venv/lib/python3.*/site-packages/draftworth'
_KEEP = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'
# What a lost connection has left, once nobody can be at work on it any more.
_FORGET = '[ ! -d "$1" ] || find "$1" -maxdepth 1 -name "$2" -mmin +1440 -exec rm -rf -- {} +'
# $1 the folder that was made, $2 its place, $3 where an older one goes meanwhile.
_PLACE = """set -u
if [ -e "$2" ]; then mv -T -- "$2" "$3" || exit 1; fi
if ! mv -T -- "$1" "$2"; then [ ! -e "$3" ] || mv -T -- "$3" "$2"; exit 1; fi
rm -rf -- "$3"
"""
# Only a link that leads to an installation like this one, or nowhere, is replaced.
_LINK = """set -u
mkdir -p -- "$(dirname -- "$1")" || exit 1
if [ -L "$1" ]; then
  to=$(readlink -f -- "$1")
  if [ -e "$1" ] && [ ! -e "${to%/bin/draftworth}/installed.json" ]; then exit 0; fi
elif [ -e "$1" ]; then exit 0; fi
ln -s -- "$2" "$1.$3" && mv -fT -- "$1.$3" "$1" && echo made
"""
_AT_WORK = ("draftworth-trial-*.service", "draftworth-restore-*.service", "draftworth-record-*.service")


class Installed(Frozen):
    """What is there now."""

    host: str
    """The machine, for a person."""
    version: str
    folder: str
    """Where it is."""
    program: str
    """Its program's absolute path."""
    python: str
    """The version of the Python it runs on."""
    already: bool
    """Whether it was there before."""
    link: str | None
    """The link to it that a shell finds; None: something else has that name."""
    on_path: bool
    """Whether a command over SSH finds it as `draftworth`; else [service] has to say where it is."""


def install(
    host: Host,
    *,
    python: str = "python3",
    folder: str | None = None,
    wheelhouse: Path | None = None,
    sudo: bool = False,
    tell: Tell,
) -> Installed:
    """Bring this Draftworth to a machine.

    Args:
        host: the machine.
        python: the Python it runs on there.
        folder: where it is put; None: /opt/draftworth/VERSION for root, ~/.local/share/draftworth/VERSION for others.
        wheelhouse: a folder of wheels here that has all it requires, for machines without a package index; None: pip
            there takes them from its configured index.
        sudo: become root there with `sudo -n`.
        tell: takes progress.

    Raises:
        UsageError: the wheelhouse has no wheels, or the folder is no absolute path.
        RefusedError: Python there is too old or lacks venv, pip failed, or a trial is at work with what would be
            replaced. Nothing was changed.
        HostError: the connection was lost.
    """
    return _Installing(host, package(), python=python, sudo=sudo, tell=tell).run(folder, wheelhouse)


class _Installing:
    def __init__(self, host: Host, what: Package, *, python: str, sudo: bool, tell: Tell) -> None:
        self._host = host
        self._what = what
        self._python = python
        self._root = ("sudo", "-n", "--") if sudo else ()
        self._tell = tell

    def run(self, folder: str | None, wheelhouse: Path | None) -> Installed:
        """Do it; see `install`."""
        if folder is not None and not folder.startswith("/"):
            raise UsageError(f"--folder: {folder!r} is not an absolute path")
        wheels = _wheels(wheelhouse)
        uid, home = self._who()
        version = self._check_python()
        base = "/opt/draftworth" if uid == 0 else f"{home}/.local/share/draftworth"
        final = (folder or f"{base}/{self._what.version}").rstrip("/")
        already = self._there(final)
        if already:
            self._tell(f"Draftworth {self._what.version} is in {final} already")
        else:
            self._make(final, wheels)
        link = f"{'/usr/local/bin' if uid == 0 else f'{home}/.local/bin'}/draftworth"
        program = f"{final}/bin/draftworth"
        linked = self._run([*_sh(_LINK), link, program, secrets.token_hex(4)]).text.strip() == "made"
        found = self._run(["sh", "-c", 'readlink -f -- "$(command -v draftworth)"']).text.strip()
        return Installed(
            host=self._host.name,
            version=self._what.version,
            folder=final,
            program=program,
            python=version,
            already=already,
            link=link if linked else None,
            on_path=found == self._run(["readlink", "-f", "--", program]).text.strip(),
        )

    # ------------------------------------------------------------------ looking

    def _who(self) -> tuple[int, str]:
        done = self._run(["sh", "-c", 'id -u && printf "%s\\n" "$HOME"'])
        lines = done.text.splitlines()
        if not done.ok or len(lines) != 2 or not lines[0].isdigit():  # noqa: PLR2004 - what is asked for
            hint = "; sudo must not ask for a password" if self._root else ""
            raise RefusedError(f"{self._host.name}: no command can be run there: {done.why}{hint}")
        return int(lines[0]), lines[1].rstrip("/")

    def _check_python(self) -> str:
        """Return the version of Python there. Raises RefusedError where it cannot be used."""
        done = self._run([self._python, "-c", _PYTHON])
        lines = done.text.split()
        least = ".".join(map(str, _LEAST_PYTHON))
        where = f"{self._host.name}: {self._python}"
        if not lines:
            raise RefusedError(f"{where}: no Python there ({done.why}){self._others(least)}")
        if tuple(int(part) for part in lines[0].split(".")[:2]) < _LEAST_PYTHON:
            raise RefusedError(f"{where} is {lines[0]}, and Draftworth needs {least} or newer{self._others(least)}")
        if lines[-1] != "venv":
            raise RefusedError(f"{where} {lines[0]} has no venv ({done.why}): apt-get install python3-venv")
        return lines[0]

    def _others(self, least: str) -> str:
        found = [path.rpartition("/")[2] for path in self._run(["sh", "-c", _OTHERS]).text.split()]
        return f"; there is {', '.join(found)}: add --python {found[0]}" if found else f"; install Python {least} there"

    def _there(self, final: str) -> bool:
        """Whether this very version is in its place and works. Raises RefusedError where something else is."""
        marker = self._run(["cat", "--", f"{final}/{MARKER}"])
        if not marker.ok:
            if self._run(["sh", "-c", '[ ! -e "$1" ] || [ -z "$(ls -A -- "$1")" ]', "sh", final]).ok:
                return False
            raise RefusedError(f"{self._host.name}: {final} is there and not of `draftworth host install`; remove it")
        try:
            known = json.loads(marker.out)["digest"]
        except (ValueError, KeyError, TypeError):
            known = ""
        shown = self._run([f"{final}/bin/draftworth", "--version"])
        if known == self._what.digest and shown.text.strip() == self._what.version:
            return True
        busy = self._run(["systemctl", "list-units", "--plain", "--no-legend", "--no-pager", *_AT_WORK])
        if busy.ok and busy.text.strip():
            unit = busy.text.split()[0]
            raise RefusedError(f"{self._host.name}: {unit} is at work, perhaps with what is in {final}: wait for it")
        return False

    # ------------------------------------------------------------------ making

    def _make(self, final: str, wheels: Sequence[Path]) -> None:
        parent, _, name = final.rpartition("/")
        mark = secrets.token_hex(4)
        temp = f"{parent}/.{name}.{mark}.new"
        self._run([*_sh(_FORGET), parent, f".{name}.????????.new"])
        try:
            self._fill(temp, wheels)
            self._must([*_sh(_PLACE), temp, final, f"{parent}/.{name}.{mark}.old"], f"{final}")
        except BaseException:
            self._clear(temp)
            raise

    def _fill(self, temp: str, wheels: Sequence[Path]) -> None:
        what, venv = self._what, f"{temp}/venv"
        self._tell(f"making {temp}")
        self._must(["mkdir", "-p", "--", temp], temp)
        self._must([self._python, "-m", "venv", venv], "the virtual environment", timeout_s=300)
        self._send(f"{temp}/requirements.txt", "".join(f"{one}\n" for one in what.requirements).encode())
        options = []
        for wheel in wheels:
            self._tell(f"sending {wheel.name}")
            self._send(f"{temp}/wheels/{wheel.name}", wheel.read_bytes())
            options = ["--no-index", "--find-links", f"{temp}/wheels"]
        self._tell(f"pip there installs {len(what.requirements)} requirements")
        pip = [f"{venv}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        self._must([*pip, *options, "-r", f"{temp}/requirements.txt"], "what it requires", timeout_s=_PIP_S)
        self._tell("sending Draftworth itself")
        self._must([*_sh(_UNPACK), temp], "the package", stdin=what.data)
        self._must([*_sh(_LAUNCH), temp], "the program", stdin=_LAUNCHER.encode())
        # Compiled now, for every user, since later nobody but root may write there.
        self._run([*_sh(_COMPILE), temp], timeout_s=600)
        tried = self._must([f"{venv}/bin/python", "-P", "-c", _TRY], "a first run", timeout_s=300)
        if tried.text.strip() != what.version:
            raise RefusedError(f"{self._host.name}: what was installed says it is {tried.text.strip() or 'nothing'}")
        marker = {"version": what.version, "digest": what.digest, "unix": time.time(), "python": self._python}
        self._send(f"{temp}/{MARKER}", json.dumps(marker).encode())
        self._must(["rm", "-rf", "--", f"{temp}/wheels"], "the wheels")

    def _clear(self, temp: str) -> None:
        try:
            self._run(["rm", "-rf", "--", temp])
        except HostError as error:
            self._tell(f"{error}; {temp} is left there")

    def _send(self, path: str, data: bytes) -> None:
        self._must([*_sh(_KEEP), path], path, stdin=data, timeout_s=60 + len(data) / _SLOWEST_BYTES_S)

    def _run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        return self._host.run([*self._root, *argv], stdin=stdin, timeout_s=timeout_s)

    def _must(
        self, argv: Sequence[str], what: str, *, stdin: bytes | None = None, timeout_s: float = 60.0
    ) -> CommandResult:
        done = self._run(argv, stdin=stdin, timeout_s=timeout_s)
        if not done.ok:
            raise RefusedError(f"{self._host.name}: {what} could not be put there: {done.why}; nothing was changed")
        return done


def _sh(script: str) -> list[str]:
    return ["sh", "-c", script, "sh"]


def _wheels(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    found = sorted(folder.glob("*.whl"))
    if not found:
        raise UsageError(
            f"--wheelhouse: no wheels in {folder}; `draftworth host requirements > r.txt` and "
            f"`pip download -r r.txt -d {folder}` fetch them"
        )
    return found
