"""Run a command pinned to one core and tell what it and every process it started used.

Run as a process of its own, one a command, so that everything this process has waited for is the command's:

    python benchmarks/overhead_tree.py --core 1 --limit 120 --log client.log -- COMMAND …

Prints one line of JSON. CPU seconds are the kernel's own account of ended children (`RUSAGE_CHILDREN`), which holds
user and system time of all descendants that somebody waited for. So that nobody's is lost, this process is their
subreaper: those whose parent ends first, as AIPerf's services may, become its children and are waited for here. The
tree is also looked at from outside: four times a second for its processes and their memory, fifty times for the CPU it
had used by when.
"""

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil

PR_SET_CHILD_SUBREAPER = 36
LOOK_SECONDS = 0.02
LOOKS = 12
"""Looks at the CPU of the processes known, for one at which there are and their memory: that takes longer."""
LEFT_SECONDS = 10.0
"""How long processes that outlive the command may take to end by themselves."""


class Watch(threading.Thread):
    """Looks at all descendants of this process until told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.seconds: dict[int, float] = {}
        """CPU seconds by process, as last seen."""
        self.peak_bytes = 0
        self.course: list[tuple[float, float]] = [(time.perf_counter(), 0.0)]
        """CPU seconds used by all processes seen so far, also ended ones, at seconds of `perf_counter`."""

    def run(self) -> None:
        """Look, again and again."""
        processes: list[psutil.Process] = []
        for number in count():
            if self.stopped.wait(LOOK_SECONDS):
                return
            if number % LOOKS == 0:
                processes = psutil.Process().children(recursive=True)
                self.peak_bytes = max(self.peak_bytes, sum(map(_memory, processes)))
            for process in processes:
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self.seconds[process.pid] = times.user + times.system
            self.course.append((time.perf_counter(), sum(self.seconds.values())))


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def run(command: list[str], core: int | None, limit: float, log: Path) -> dict[str, Any]:
    """Run the command to its end, and the end of everything it started."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    mine = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})  # inherited by the command and by all it starts
    began = time.perf_counter()
    with log.open("wb") as file:
        client = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    os.sched_setaffinity(0, mine)
    watch = Watch()
    watch.start()
    with suppress(subprocess.TimeoutExpired):
        client.wait(limit)
    wall = time.perf_counter() - began
    left = _end_the_rest(client)
    watch.stopped.set()
    watch.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exit_code": client.returncode,
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "course": watch.course,
        "processes_seen": len(watch.seconds),
        "processes_left_behind": left,
        "rss_peak_mb": max(watch.peak_bytes, used.ru_maxrss * 1024) / 1e6,
    }


def _end_the_rest(client: "subprocess.Popen[bytes]") -> int:
    """Wait for what the command left behind, at last by force. Returns how many processes had to be killed."""
    ends = time.perf_counter() + LEFT_SECONDS
    killed = 0
    while True:
        client.poll()
        with suppress(ChildProcessError):
            while client.returncode is not None and os.waitpid(-1, os.WNOHANG)[0]:
                pass
        children = psutil.Process().children(recursive=True)
        if not children:
            return killed
        if client.returncode is None or time.perf_counter() > ends:
            killed += len(children)
            for process in children:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, help="the core it is pinned to; without it, any")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which all is killed")
    parser.add_argument("--log", type=Path, required=True, help="takes the command's output")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    print(json.dumps(run(options.command, options.core, options.limit, options.log)))


if __name__ == "__main__":
    main()
