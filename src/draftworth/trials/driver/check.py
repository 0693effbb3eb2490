"""Whether trials can be driven on another machine: what is looked at, and what to do about what is missing."""

import json
import time
from collections.abc import Iterator
from typing import Any, Literal

import draftworth
from draftworth.errors import DraftworthError
from draftworth.gpus import reader
from draftworth.hosts.base import Host, HostError
from draftworth.models import Frozen
from draftworth.trials.driver.messages import document, read
from draftworth.trials.driver.reach import program_argv

_LEAST_SYSTEMD = 244  # a oneshot unit that failed is restarted
_MOST_CLOCK_S = 60.0
_LEAST_FREE = 2**30
_GIB = 2**30
# What the units and the script of the way back call, besides sh.
_PROGRAMS = ("systemctl", "systemd-run", "journalctl", "busctl", "timeout", "find", "awk", "setsid", "stat", "readlink")
_PROBE = """echo "uid $(id -u)"
echo "user $(id -un)"
echo "sudo $(sudo -n true 2>/dev/null && echo yes)"
echo "booted $([ -d /run/systemd/system ] && echo yes)"
echo "systemd $(systemctl --version 2>/dev/null | head -n 1)"
echo "state $(systemctl is-system-running 2>/dev/null)"
echo "cgroup $(stat -f -c %T /sys/fs/cgroup 2>/dev/null)"
for p in "$@"; do command -v "$p" >/dev/null 2>&1 && echo "has $p"; done
for p in "$HOME/.local/bin/draftworth" /usr/local/bin/draftworth; do [ -x "$p" ] && echo "draftworth $p"; done
exit 0
"""


class Check(Frozen):
    """One thing that was looked at."""

    name: str
    """What, in a word or two."""
    state: Literal["ok", "note", "failed"]
    """`failed`: a trial on this machine is refused, or could not be undone."""
    text: str
    """What was found."""
    fix: str | None = None
    """What to do."""


def check(host: Host, *, alias: str, program: str = "draftworth", sudo: bool = False) -> Iterator[Check]:
    """Look at a machine; changes nothing. What cannot be reached ends the looking.

    Args:
        host: the machine.
        alias: what `ssh` calls it.
        program: Draftworth there.
        sudo: become root there with `sudo -n`.
    """
    began = time.monotonic()
    try:
        host.run(["true"])
    except HostError as error:
        yield Check(name="reachable", state="failed", text=str(error))
        return
    yield Check(name="reachable", state="ok", text=f"{host.name}, connected in {time.monotonic() - began:.2f} s")
    try:
        yield from _reached(host, alias, program, sudo=sudo)
    except HostError as error:
        yield Check(name="reachable", state="failed", text=str(error))


def _reached(host: Host, alias: str, program: str, *, sudo: bool) -> Iterator[Check]:
    found: dict[str, list[str]] = {}
    for line in host.run(["sh", "-c", _PROBE, "sh", *_PROGRAMS, "curl", "python3"]).text.splitlines():
        name, _, value = line.partition(" ")
        if value:
            found.setdefault(name, []).append(value)
    yield _login(found, sudo=sudo)
    yield _systemd(found)
    yield _programs(found)
    yield from _draftworth(host, alias, program, found, sudo=sudo)
    yield _gpus(host)
    yield _clock(host)


def _login(found: dict[str, list[str]], *, sudo: bool) -> Check:
    user, is_root, may = _first(found, "user"), _first(found, "uid") == "0", _first(found, "sudo") == "yes"
    if is_root:
        return Check(name="login", state="ok", text=f"{user}, which may change units")
    if may and sudo:
        return Check(name="login", state="ok", text=f"{user}, root by sudo without a password")
    if may:
        fix = "set service.sudo = true, and check with --sudo"
        return Check(name="login", state="failed", text=f"{user} is not root; sudo needs no password", fix=fix)
    fix = "log in as root, or allow sudo without a password for this user (NOPASSWD in sudoers)"
    return Check(name="login", state="failed", text=f"{user} is not root and sudo asks for a password", fix=fix)


def _systemd(found: dict[str, list[str]]) -> Check:
    words = _first(found, "systemd").split()
    if _first(found, "booted") != "yes" or len(words) < 2:  # noqa: PLR2004 - `systemd 252 …`
        fix = "trials on units need it; a container is tried where its engine is a unit of the machine itself"
        return Check(name="systemd", state="failed", text="the machine does not run systemd", fix=fix)
    number = "".join(char for char in words[1].split(".")[0] if char.isdigit())
    state, cgroup = _first(found, "state") or "state not known", _first(found, "cgroup")
    text = f"{words[1]}, {state}"
    if number and int(number) < _LEAST_SYSTEMD:
        return Check(name="systemd", state="failed", text=text, fix=f"{_LEAST_SYSTEMD} or newer is needed")
    if state not in {"running", "degraded"}:
        return Check(name="systemd", state="note", text=text, fix="wait until the machine has started")
    return Check(name="systemd", state="ok", text=f"{text}, control groups: {cgroup or 'not known'}")


def _programs(found: dict[str, list[str]]) -> Check:
    has = set(found.get("has", ()))
    missing = [name for name in _PROGRAMS if name not in has]
    if missing:
        fix = "install coreutils, findutils, util-linux, awk and systemd's own programs"
        return Check(name="programs", state="failed", text=f"not there: {', '.join(missing)}", fix=fix)
    asks = next((name for name in ("curl", "python3") if name in has), None)
    if asks is None:
        text = "neither curl nor python3: a restore cannot ask the service to generate, only see that it is active"
        return Check(name="programs", state="note", text=text, fix="install curl")
    return Check(name="programs", state="ok", text=f"all there; a restore asks the service with {asks}")


def _draftworth(host: Host, alias: str, program: str, found: dict[str, list[str]], *, sudo: bool) -> Iterator[Check]:
    shown = host.run(program_argv(program, sudo=sudo, words=("--version",)))
    version, here = shown.text.strip(), draftworth.__version__
    bring = f"draftworth host install {alias}{' --sudo' if sudo else ''}"
    if not shown.ok:
        others = [path for path in found.get("draftworth", ()) if path != program]
        fix = f'set service.draftworth = "{others[0]}", and check with --draftworth {others[0]}' if others else bring
        yield Check(name="draftworth", state="failed", text=f"{program}: {shown.why}", fix=fix)
        return
    if version != here:
        yield Check(name="draftworth", state="failed", text=f"{program} is {version}, here it is {here}", fix=bring)
        return
    yield Check(name="draftworth", state="ok", text=f"{program} {version}, as here")
    answer = _hello(host, program, sudo=sudo)
    if "error" in answer:
        yield Check(name="trials", state="failed", text=str(answer["error"].get("text")), fix=bring)
        return
    where, free = answer.get("home"), answer.get("free")
    if not answer.get("writable"):
        yield Check(name="trials", state="failed", text=f"{where} cannot be written", fix="mount it read-write")
    elif isinstance(free, int) and free < _LEAST_FREE:
        text = f"kept in {where}, {free / _GIB:.1f} GiB free"
        yield Check(name="trials", state="note", text=text, fix="logs and answers need room: free some")
    else:
        room = f", {free / _GIB:.1f} GiB free" if isinstance(free, int) else ""
        yield Check(name="trials", state="ok", text=f"kept in {where}{room}")


def _hello(host: Host, program: str, *, sudo: bool) -> dict[str, Any]:
    done = host.run(program_argv(program, sudo=sudo, words=("agent", "hello")), stdin=document({}))
    answers = [one for line in done.text.splitlines() if (one := read(line)) is not None]
    return answers[-1] if answers else {"error": {"text": f"no answer: {done.why}"}}


def _gpus(host: Host) -> Check:
    try:
        found = reader(host).read()
    except DraftworthError as error:
        return Check(name="gpus", state="note", text=f"cannot be read: {error}")
    if not found.gpus:
        text = f"none found ({found.why}): no memory is waited for"
        return Check(name="gpus", state="note", text=text)
    whole = [gpu for gpu in found.gpus if gpu.parent is None]
    names = ", ".join(
        f"{sum(gpu.name == name for gpu in whole)} x {name}" for name in dict.fromkeys(g.name for g in whole)
    )
    used = [gpu.used_bytes for gpu in whole]
    known = [one for one in used if one is not None]
    memory = f", {sum(known) / _GIB:.1f} GiB in use" if known and len(known) == len(used) else ""
    return Check(
        name="gpus", state="ok", text=f"{names}{memory} ({found.source})" + (f"; {found.why}" if found.why else "")
    )


def _clock(host: Host) -> Check:
    before = time.time()
    text = host.run(["date", "+%s.%N"]).text.strip()
    middle = (before + time.time()) / 2
    try:
        apart = float(text) - middle
    except ValueError:
        return Check(name="clock", state="note", text=f"cannot be read: {json.dumps(text)}")
    ahead = f"{abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} this one"
    if abs(apart) > _MOST_CLOCK_S:
        fix = "a trial does not depend on it, its times do: set up NTP on both"
        return Check(name="clock", state="note", text=ahead, fix=fix)
    return Check(name="clock", state="ok", text=ahead)


def _first(found: dict[str, list[str]], name: str) -> str:
    return found.get(name, [""])[0]
