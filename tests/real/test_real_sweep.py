"""The driver killed, hung or out of disk at every change it makes to the host, the restore at every step, a reboot in
every phase: the original serves again, exactly as before, and nothing of the trial's is left."""

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import wait_for
from tests.real.breaking import Breaker
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, UnitCase

_AT_ONCE = 4
FAST = {**QUICK, "load_seconds": 0.1}
DROP_IN = 'append_args = true\nway = "drop-in"'


def all_points(case: UnitCase) -> int:
    """Run a whole trial and return how many changes it makes to the host."""
    breaker = Breaker(case.folder / "breaker")
    done = case.cli("trial", "run", str(case.file), "--yes", "--json", env=breaker.plan(0))
    assert done.code in {0, 3}, done.err
    case.wait_back()
    return len(breaker.changes())


def swept(
    points: Iterable[Any], body: Callable[[UnitCase, Any], None], given: Callable[[UnitCase], UnitCase]
) -> tuple[int, list[str]]:
    """Do something at every point, several managers at once. Returns how many were done, and what went wrong."""
    todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for point in points:
        todo.put(point)
    wrong: list[str] = []
    done: list[Any] = []

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="draftworth-sweep-") as folder:
            case: UnitCase | None = None
            systemd: PrivateSystemd | None = None
            try:
                while True:
                    try:
                        point = todo.get_nowait()
                    except queue.Empty:
                        return
                    if systemd is None or case is None:
                        systemd = PrivateSystemd(Path(tempfile.mkdtemp(dir=folder)))
                        systemd.start()
                        case = given(UnitCase(systemd, systemd.folder.parent))
                    try:
                        body(case, point)
                    except Exception as error:  # noqa: BLE001 - collected: one bad point must not hide another
                        log = systemd.run(["journalctl", "-o", "cat", "--no-pager", "-n", "60"], check=False)
                        wrong.append(f"{point}: {error!r}\n{log.stdout.decode(errors='replace')}")
                        systemd.stop()
                        systemd = None
                    done.append(point)
            finally:
                if systemd is not None:
                    systemd.stop()

    threads = [threading.Thread(target=work) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done), wrong


def settled(case: UnitCase) -> None:
    """Check that everything is back, that the record says so, and that another restore has nothing to do."""
    case.wait_back()
    folder = case.trials()[-1]
    restored = case.cli("trial", "restore")
    assert restored.code == 0, restored.err
    case.as_before()
    if (folder / "trial.json").is_file():
        assert case.record()["restored"] is True, case.record()["restore"]
    else:
        with suppress(Exception):
            assert not any(event.kind == "begin" for event in case.events()), "changed something and has no record"


def killed(case: UnitCase, point: tuple[int, str]) -> None:
    """Kill the driver before or after one of its changes."""
    at, when = point
    breaker = Breaker(case.folder / "breaker")
    started = case.cli("trial", "run", str(case.file), "--yes", "--detach", env=breaker.plan(at, when))
    assert started.code == 0, started.err
    wait_for(lambda: len(breaker.changes()) >= at, 30, f"the driver comes to change {at}")
    settled(case)


def parallel(case: UnitCase) -> UnitCase:
    return case.serve(FAST).trial().remember()


def dropped_in(case: UnitCase) -> UnitCase:
    return case.serve(FAST).trial(service=DROP_IN).remember()


GIVEN = {"parallel": parallel, "drop-in": dropped_in}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("way", ["parallel", "drop-in"])
def test_the_driver_killed_around_every_change_to_the_host(
    way: str, private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    last = all_points(GIVEN[way](UnitCase(private_systemd, tmp_path)))
    assert last > 40, "the sweep sees the driver's changes"
    points = [(at, when) for at in range(1, last + 1) for when in ("before", "after")]
    done, wrong = swept(points, killed, GIVEN[way])
    assert done == len(points)
    assert not wrong, f"{len(wrong)} of {done} points:\n" + "\n\n".join(wrong[:3])
