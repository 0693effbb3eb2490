"""The measuring itself: a pinned server, a pinned client, and what both used in one run."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.request import urlopen

import psutil
from benchmarks.overhead_figures import Run, used_by
from benchmarks.overhead_peers import OURS, ROOT, Client, Job, environ

LIMIT_SECONDS = 180.0
DRAIN_STREAMS, DRAIN_CHUNKS = 8, 25_000


class RunError(Exception):
    """A client's run that cannot be compared; the text says why."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where. None where there is only one core: then nothing is pinned."""

    server: int | None
    client: int | None
    control: int | None

    @classmethod
    def choose(cls) -> "Cores":
        """Give the server and the client a core each, the rest a third where there is one."""
        free = sorted(os.sched_getaffinity(0))
        if len(free) < 2:  # noqa: PLR2004 - two parties
            return cls(None, None, None)
        return cls(free[0], free[-1], free[1] if len(free) > 2 else free[0])  # noqa: PLR2004 - three parties

    def about(self) -> str:
        """Say it, for a person."""
        if self.client is None:
            return "one core for all: nothing pinned"
        return f"server on core {self.server}, client (all its processes) on core {self.client}"


@dataclass(slots=True)
class Server:
    """A scripted server that runs."""

    process: "subprocess.Popen[str]"
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def stats(self) -> dict[str, Any]:
        """Return what it sent since the last time it was asked."""
        with urlopen(self.url + "/stats", timeout=10) as response:  # noqa: S310 - a local address
            found: dict[str, Any] = json.load(response)
        return found

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


@contextmanager
def serving(cores: Cores, rate: float, chunks: int, *more: str) -> Iterator[Server]:
    """Run a scripted server for the length of the block."""
    script = ROOT / "benchmarks" / "scripted_server.py"
    command = [sys.executable, str(script), "--rate", str(rate), "--chunks", str(chunks), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["port"])
        if cores.server is not None:
            os.sched_setaffinity(process.pid, {cores.server})
        yield Server(process, port)
    finally:
        process.kill()
        process.communicate()


def run_tree(command: Sequence[str], cores: Cores, log: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command under `overhead_tree` and return its account."""
    tree = [sys.executable, str(ROOT / "benchmarks" / "overhead_tree.py"), "--limit", str(LIMIT_SECONDS)]
    tree += ["--log", str(log)] + (["--core", str(cores.client)] if cores.client is not None else [])
    done = subprocess.run([*tree, "--", *command], env=env, cwd=log.parent, stdout=subprocess.PIPE, check=True)
    account: dict[str, Any] = json.loads(done.stdout)
    return account


def run_client(client: Client, server: Server, cores: Cores, job: Job, *more: str) -> tuple[Run, dict[str, Any]]:
    """Run one job.

    Returns:
        What counts, and everything that was noted.

    Raises:
        RunError: it did not do the job: failed, or sent other requests, or fewer at a time.
    """
    server.stats()
    others = Others(server)
    log = job.folder / "client.log"
    account = run_tree([*client.command(job), *more], cores, log, environ(client, job.folder.parent))
    used_by_others = others.cores(account["cpu_s"])
    sent = server.stats()
    if account["exit_code"] != 0:
        lines = log.read_text("utf-8", "replace").strip().splitlines() or ["nothing said"]
        raise RunError(f"exit {account['exit_code']}: {lines[-1][:300]}")
    try:
        completed = client.completed(job.folder)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise RunError(f"its results cannot be read: {error!r}") from error
    if (completed, sent["requests"]) != (job.requests, job.requests) or sent["most_at_once"] > job.concurrency:
        raise RunError(
            f"asked for {job.requests} requests, {job.concurrency} at a time; it completed {completed}, the server "
            f"saw {sent['requests']}, {sent['most_at_once']} at a time"
        )
    noted = {"client": account, "server": sent, "cores_used_by_others": used_by_others}
    before = used_by(account.pop("course"), sent.pop("first_at"))
    account["cpu_s_before_first_chunk"] = before
    return Run(sent["chunks"], account["cpu_s"], before, sent["seconds"], account["rss_peak_mb"]), noted


class Others:
    """How many cores anybody else used, on average from the construction on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began, self._all = perf_counter(), self._busy()

    def _busy(self) -> float:
        times = psutil.cpu_times()
        own = psutil.Process().cpu_times()
        return float(times.user + times.nice + times.system) - self._server.cpu_s() - own.user - own.system

    def cores(self, client_s: float) -> float:
        """Return the figure, where the client has used so many CPU seconds."""
        return round(max(self._busy() - self._all - client_s, 0.0) / (perf_counter() - self._began), 3)


def server_limit(cores: Cores, folder: Path) -> dict[str, Any]:
    """Return how fast the server is where nothing but reading and discarding is on the other side."""
    with serving(cores, 0, DRAIN_CHUNKS) as server:
        script = ROOT / "benchmarks" / "overhead_drain.py"
        command = [sys.executable, str(script), "--port", str(server.port), "--streams", str(DRAIN_STREAMS)]
        account = run_tree(command, cores, folder / "drain.log")
        sent = server.stats()
    if account["exit_code"] != 0 or sent["chunks"] != DRAIN_STREAMS * DRAIN_CHUNKS:
        raise RunError("the server's largest rate could not be measured")
    return {
        "chunks_per_s": sent["chunks"] / sent["seconds"],
        "server_cpu_share": sent["cpu_share"],
        "streams": DRAIN_STREAMS,
        "chunks": sent["chunks"],
    }


def sustained(
    cores: Cores, folder: Path, point: tuple[int, float, int], *, steps: bool, stamps: bool
) -> dict[str, Any]:
    """Run Draftworth's client alone at (streams, chunks a second of each, chunks of an answer), two answers each."""
    streams, rate, chunks = point
    with serving(cores, rate, chunks, *(["--steps"] if steps else [])) as server:
        job = Job(server.url, streams, 2 * streams, chunks, folder)
        run, noted = run_client(OURS, server, cores, job, *(["--stamps"] if stamps else []))
    told = json.loads((folder / "ours.json").read_text(encoding="utf-8"))
    planned = 2 * chunks / rate
    return {
        "streams": streams,
        "chunks_per_s_each": rate,
        "sending": "all at the same moments" if steps else "evenly spread",
        "chunks": run.chunks,
        "stream_s": run.stream_s,
        "planned_s": planned,
        "core_share": (run.cpu_s - run.before_s) / run.stream_s,
        "rss_mb": run.rss_mb,
        "blocked_sends": noted["server"]["blocked_sends"],
        "server": noted["server"],
        "cores_used_by_others": noted["cores_used_by_others"],
        "behind_ms": told.get("behind_ms"),
    }
