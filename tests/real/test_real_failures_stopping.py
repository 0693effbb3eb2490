"""Failures 16 to 24: a unit that does not stop as it should, and what it leaves: processes, memory, the port."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.guarantees.case import MEASURED, Case, made_case, remarks
from tests.guarantees.gpu import OWN_MIB, TestGpu
from tests.guarantees.marks import failure, shows
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK

WAYS = ["append_args = true", 'append_args = true\nway = "drop-in"']


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[Case]:
    with made_case(module_systemd, tmp_path) as made:
        yield made


@failure(
    16,
    produced="original and variant ignore SIGTERM; TimeoutStopSec=1",
    outcome="systemd kills them when their time is over; the record says so, and the verdict stands",
)
def test_servers_that_ignore_the_stop_signal_are_killed_in_time(case: Case) -> None:
    case.serve({**QUICK, "ignore_sigterm": True}, service="TimeoutStopSec=1").trial().remember()
    done = case.run()
    assert done.code in MEASURED, done.err
    assert remarks(done).count("did not end on its stop signal and was killed by systemd") >= 1
    case.wait_back(10)


@failure(
    17,
    produced="KillMode=process: a child of the original and of the variant stays in the control group; "
    "`systemctl stop` has succeeded",
    outcome="they are ended before anything else starts, and named in the record; a stranger with the same command "
    "line lives on",
)
@shows("G5", "only processes of the unit's control group, or seen there before, are ended; a look-alike is not")
@shows("G4", "the variant starts when the last process of the original is gone")
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_children_left_in_the_control_group_are_ended(case: Case, service: str) -> None:
    case.serve({**QUICK, "spawn_children": 1}, service="KillMode=process").trial(service=service).remember()
    child = next(pid for pid in case.members() if pid != case.pid())
    words = case.systemd.run(["cat", f"/proc/{child}/cmdline"]).stdout.decode().split("\0")[:-1]
    with case.background(*words) as stranger:
        mine = set(case.members())
        done = case.run()
        assert done.code in MEASURED, done.err
        assert "left behind by the stopped unit and ended" in remarks(done)
        assert stranger.poll() is None, "the look-alike lives"
        assert not mine & set(case.members()), "nothing of the old original's is in the group"
        stranger.kill()
    assert all(not case.lives(pid) for pid in mine)
    case.wait_back(10)


@failure(
    18,
    produced="a worker of the original's is moved out of its control group before the trial; it outlives the stop, "
    "reparented",
    outcome="it was known by its descent, and is ended before the variant starts",
)
def test_a_worker_outside_of_the_control_group_is_ended(case: Case) -> None:
    case.serve({**QUICK, "spawn_children": 1}).trial()
    worker = next(pid for pid in case.members() if pid != case.pid())
    move = f"mkdir -p /sys/fs/cgroup/away; echo {worker} > /sys/fs/cgroup/away/cgroup.procs"
    case.systemd.run(["sh", "-c", move])
    case.remember()
    assert worker not in case.members()
    done = case.run()
    assert done.code in MEASURED, done.err
    assert not case.lives(worker)
    assert f"pid {worker} " in " ".join(case.remarks_of("stop-original"))
    case.wait_back(10)


@failure(
    18,
    produced="a worker of the variant's is moved out of its control group, and the variant is killed",
    outcome="it was seen in the group, so the restore script ends it by pid and start time",
)
def test_a_worker_that_a_killed_variant_left_outside_is_ended(case: Case) -> None:
    slow = {"stubborn_children": 1, "token_ms": 150.0}
    case.serve({**QUICK, "speculating": slow}).trial().remember()
    found: list[int] = []

    def part() -> None:
        (unit,) = case.variants()
        found.extend(pid for pid in case.members(unit) if pid != case.pid(unit))
        move = f"mkdir -p /sys/fs/cgroup/away; echo {found[0]} > /sys/fs/cgroup/away/cgroup.procs"
        case.systemd.run(["sh", "-c", move])
        case.systemd.systemctl("kill", "-s", "KILL", unit)

    done = case.run_while(lambda: case.reached("measure-ngram-5"), part)
    assert done.code == 6, done.err
    assert not case.lives(found[0])
    case.wait_back(10)


@failure(
    19,
    produced="an nvidia-smi that goes on telling the stopped original's 40 GiB as in use; limits.free_timeout_s = 2",
    outcome="the variant is never started; the original is back; the record says how much is held, by nobody seen",
)
def test_memory_that_is_not_free_in_time_means_no_variant(case: Case) -> None:
    with gpu_of(case) as gpu:
        case.serve().trial(limits="start_timeout_s = 20\ndrain_s = 1\nfree_timeout_s = 2").remember()
        done = case.run_while(lambda: case.reached("stop-original"), lambda: gpu.tell(stuck=OWN_MIB))
        assert done.code == 6, done.err
        assert "GPU memory is not free after limits.free_timeout_s (2 s)" in done.json["reason"]
        assert "39.1 of 80.0 GiB still held by no process that can be seen" in done.json["reason"]
        assert not case.reached("start-ngram-5")
        case.wait_back(15)


@failure(
    20,
    produced="a neighbour's process on the same GPU, which takes 30 GiB more while the original is stopped",
    outcome="it is not waited for and not touched: only what the original held has to be free",
)
@shows("G5", "a neighbour's memory and process are not waited for and not touched")
def test_a_neighbour_that_grows_is_not_waited_for(case: Case) -> None:
    with gpu_of(case) as gpu:
        gpu.tell(other=1000, neighbour=1)
        case.serve().trial(limits="start_timeout_s = 20\ndrain_s = 1\nfree_timeout_s = 2").remember()
        grow = lambda: gpu.tell(other=31000, neighbour=1)  # noqa: E731 - one act
        done = case.run_while(lambda: case.reached("stop-original"), grow)
        assert done.code in MEASURED, done.err
        case.wait_back(10)


@failure(
    21,
    produced="an nvidia-smi that fails from the stop on: `Failed to initialize NVML: Driver/library version mismatch`",
    outcome="nothing is waited for that cannot be told; the record says what could not be read",
)
def test_a_driver_that_tells_nothing_any_more_is_said(case: Case) -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch"
    with gpu_of(case) as gpu:
        case.serve().trial().remember()
        done = case.run_while(lambda: case.reached("stop-original"), lambda: gpu.tell(broken=said))
        assert done.code in MEASURED, done.err
        assert said in remarks(done)
        case.wait_back(10)


@failure(
    22,
    produced="original and variant leave mapped files in /dev/shm; a neighbour makes one of the same kind meanwhile; "
    "another process has the original's mapped",
    outcome="the variant's is removed, and told; the neighbour's and the one that is still mapped stay",
)
@shows("G5", "shared memory is removed only where it is the server's own, and nobody maps it")
def test_only_shared_memory_of_our_own_that_nobody_uses_is_removed(case: Case) -> None:
    case.serve({**QUICK, "shm_mib": 2}).trial()
    (own,) = case.shared_memory()
    neighbour = "psm_neighbour"
    code = f"import mmap,time; f=open('/dev/shm/{own}','r+b'); m=mmap.mmap(f.fileno(),0); f.close(); time.sleep(100)"
    with case.background("python3", "-c", code) as mapping:
        case.remember()
        seen: list[str] = []

        def look() -> None:
            case.systemd.run(["dd", "if=/dev/zero", f"of=/dev/shm/{neighbour}", "bs=1M", "count=1", "status=none"])
            seen.extend(set(case.shared_memory()) - {own, neighbour})

        done = case.run_while(lambda: case.reached("measure-ngram-5"), look)
        left = set(case.shared_memory())
        mapping.kill()
    assert done.code in MEASURED, done.err
    assert len(seen) == 1, "the variant's own"
    assert left >= {own, neighbour}
    assert not left & set(seen)
    assert "left 2 MiB of shared memory in 1 files of /dev/shm, which were removed" in remarks(done)
    case.wait_back(10)


class _Yes(BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET  # noqa: N815 - http.server's

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@failure(
    23,
    produced="a stranger listens on the port while the variant loads, and answers 200 to every question",
    outcome="the variant is not taken for ready: who listens is no process of its unit; the original is back once "
    "the stranger has gone",
)
@shows("G10", "what answers on the port is a process of the unit that was started, or the trial ends")
def test_a_stranger_that_answers_on_the_port_is_not_measured(case: Case) -> None:
    case.serve({**QUICK, "speculating": {"load_seconds": 2.0}}).trial().remember()

    def squat() -> None:
        deadline = time.monotonic() + 5
        server: ThreadingHTTPServer | None = None
        while server is None and time.monotonic() < deadline:
            with suppress(OSError):
                server = ThreadingHTTPServer(("127.0.0.1", case.port), _Yes)
        assert server is not None, "the stranger has the port"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        time.sleep(3)
        server.shutdown()
        server.server_close()
        thread.join()

    # It has bound the port, as vLLM does, and listens when it has loaded.
    done = case.run_while(lambda: case.log_of("start-ngram-5"), squat)
    assert done.code == 6, done.err
    assert "answered by a process that is not the one just started" in done.json["reason"]
    case.wait_back(15)


@failure(
    24,
    produced="somebody's request that takes 8 s is being answered when the original is to stop; limits.drain_s = 1",
    outcome="the stop waits for it as long as the limit says; then the journal tells how many were cut off",
)
@failure(
    24,
    produced="somebody's request that takes 2 s is being answered when the original is to stop; limits.drain_s = 20",
    outcome="it is answered to its end before the original is stopped",
)
@pytest.mark.parametrize(("seconds", "drain_s"), [(8, 1), (2, 20)], ids=["cut off", "answered"])
def test_requests_at_hand_are_waited_for_until_the_limit(case: Case, seconds: int, drain_s: int) -> None:
    case.serve({**QUICK, "tokens": 5000, "token_ms": 4.0}).trial(
        limits=f"start_timeout_s = 20\ndrain_s = {drain_s}"
    ).remember()
    answer: list[bytes] = []

    def ask() -> None:
        body = {"model": "fake", "prompt": "x", "max_tokens": seconds * 240, "stream": True}
        url = f"http://127.0.0.1:{case.port}/v1/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with suppress(OSError, HTTPException), urllib.request.urlopen(request, timeout=20) as found:
            answer.append(found.read())

    asking = threading.Thread(target=ask)
    done = case.run_while(lambda: case.reached("measure-baseline"), asking.start)
    asking.join()
    assert done.code in MEASURED, done.err
    whole = bool(answer) and b"[DONE]" in answer[0]
    assert whole == (drain_s == 20)
    told = case.remarks_of("stop-original")
    said = "1 requests of others were still being answered after limits.drain_s (1 s)" in told
    assert said == (drain_s == 1), told
    case.wait_back(10)


@shows("G18", "what stopping the original has left is a finding of the record")
def test_what_the_originals_stop_left_is_a_finding(case: Case) -> None:
    case.serve({**QUICK, "spawn_children": 1, "speculating": {"die_at": "load"}}, service="KillMode=process").trial()
    done = case.run()
    assert case.remarks_of("stop-original")
    assert "left behind by the stopped unit and ended" in remarks(done)


@contextmanager
def gpu_of(case: Case) -> Iterator[TestGpu]:
    gpu = TestGpu(case.systemd, case.folder, case.unit)
    try:
        yield gpu
    finally:
        gpu.remove()
