"""A small engine named `vllm`, an nvidia-smi and a machine for units to be made on."""

import json
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.real.private_systemd import PrivateSystemd

from draftworth.services.newunit.base import Account, Asked, Machine, NewUnit, SeenGpu
from draftworth.services.newunit.facts import account_of
from draftworth.services.newunit.make import make
from draftworth.services.newunit.steps import INITIAL_PID_NAMESPACE

DATA = Path(__file__).parent / "data"

# What it does is told by files beside it, so that a running unit can be made to fail without another text.
_ENGINE = """\
#!/usr/bin/python3
import http.server, json, os, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(here + "/starts", "a") as file:
    file.write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}) + "\\n")
def told(name, default):
    try:
        return open(here + "/" + name).read()
    except OSError:
        return default
if told("worker", ""):
    subprocess.Popen(["/bin/sh", "-c", "trap '' TERM HUP; echo $$ >" + here + "/worker-pid; while :; do sleep 1; done"])
if told("shm", ""):
    open("/dev/shm/" + told("shm", ""), "w").write("x" * 4096)
time.sleep(float(told("load", "0")))
if told("crash", ""):
    os.kill(os.getpid(), 9) if told("crash", "") == "kill" else sys.exit(int(told("crash", "")))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

_SMI = """\
#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/smi-calls"
case "$*" in
*compute-apps*) echo "gpu_uuid, pid, used_gpu_memory [MiB], process_name"
  echo "GPU-aa, 4711, 40960 MiB, /opt/other/engine" ;;
*) [ ! -e "$here/smi-fails" ] || { echo "NVIDIA-SMI has failed: driver not loaded"; exit 9; }
   cat "$here/smi-memory"; [ ! -e "$here/smi-next" ] || mv "$here/smi-next" "$here/smi-memory" ;;
esac
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)


@dataclass
class FakeEngine:
    folder: Path
    port: int

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self.folder / "vllm"), "serve", "org/Some-Model", "--port", str(self.port))

    def tell(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def starts(self) -> list[dict[str, object]]:
        path = self.folder / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def machine(self, *, user: str = "root", gpus: int = 0) -> Machine:
        return Machine(
            account=account_of(user),
            cwd="/",
            curl=shutil.which("curl"),
            nvidia_smi=str(self.folder / "nvidia-smi") if gpus else None,
            gpus=tuple(gpu(index) for index in range(gpus)),
            why_no_gpus=None if gpus else "there is no nvidia-smi on this machine",
        )


def gpu(index: int, *, used: int | None = 4, name: str = "NVIDIA RTX PRO 6000 Blackwell", mig: bool = False) -> SeenGpu:
    return SeenGpu(index=str(index), uuid=f"GPU-{index:08x}", name=name, used_mib=used, mig=mig)


def machine(**changes: object) -> Machine:
    """A machine with nothing special on it."""
    account = Account(name="llm", uid=990, groups=(990,), home="/home/of-nobody")
    return Machine(account=account, cwd="/", curl="/usr/bin/curl").model_copy(update=changes)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    folder = Path(tempfile.mkdtemp(prefix="dw-newunit-"))
    folder.chmod(0o777)  # the unit's user writes there
    for name, text in (("vllm", _ENGINE), ("nvidia-smi", _SMI)):
        (folder / name).write_text(text)
        (folder / name).chmod((folder / name).stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    yield FakeEngine(folder, free_port())
    shutil.rmtree(folder)


def installed(systemd: PrivateSystemd, asked: Asked, on: Machine, *, restart_s: int = 30) -> NewUnit:
    """Make a unit and load it; only what a test cannot wait for, or the private manager's namespace, is changed."""
    unit = make(asked, on)
    namespace = systemd.run(["readlink", "/proc/self/ns/pid"]).stdout.decode().strip().strip("pid:[]")
    text = unit.text.replace(str(INITIAL_PID_NAMESPACE), namespace).replace(
        "RestartSec=30s", f"RestartSec={restart_s}s"
    )
    systemd.write_unit(unit.name, text)
    systemd.systemctl("daemon-reload")
    return unit


def shown(systemd: PrivateSystemd, unit: NewUnit, name: str) -> str:
    return systemd.systemctl("show", unit.name, "--value", "-p", name)


def journal(systemd: PrivateSystemd, unit: NewUnit) -> str:
    systemd.run(["journalctl", "--sync"], check=False)
    return systemd.run(["journalctl", "-u", unit.name, "-o", "cat", "--no-pager"]).stdout.decode(errors="replace")
