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
from tests.real.company import active, company
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, UnitCase

_AT_ONCE = 4
FAST = {**QUICK, "load_seconds": 0.1}


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
    wait_for(lambda: not case.left() and case.state() == "active", 40)
    if (case.systemd.etc / "gateway.service").is_file():
        both = {"llm.socket": "active", "gateway.service": "active"}
        wait_for(lambda: active(case) == both, 10, "the socket and the gateway are back")
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
    wait_for(lambda: len(breaker.changes()) >= at or over(case), 30, f"the driver comes to change {at}")
    settled(case)


def over(case: UnitCase) -> bool:
    """Whether the trial ended by itself: how many processes are written down varies, and with it the last change."""
    return (case.trials()[-1] / "result.json").is_file()


def parallel(case: UnitCase) -> UnitCase:
    return case.serve(FAST).trial().remember()


def dropped_in(case: UnitCase) -> UnitCase:
    """A socket that triggers it and a gateway that needs it: by rule a drop-in, and both come back too."""
    return company(case, patient=True).trial().remember()


GIVEN = {"parallel": parallel, "drop-in": dropped_in}


def judged(points: list[Any], done: int, wrong: list[str]) -> None:
    assert done == len(points)
    assert not wrong, f"{len(wrong)} of {done} points:\n" + "\n\n".join(wrong[:3])


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("way", ["parallel", "drop-in"])
def test_the_driver_killed_around_every_change_to_the_host(
    way: str, private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    last = all_points(GIVEN[way](UnitCase(private_systemd, tmp_path)))
    assert last > 40, "the sweep sees the driver's changes"
    # Right before a change the host is as it was right after the one before: these are all its states. Of a drop-in,
    # whose driver goes the same way, every second one: `make torture` has both sides of all.
    points = [(1, "before"), *((at, "after") for at in range(1, last + 1, 1 if way == "parallel" else 2))]
    judged(points, *swept(points, killed, GIVEN[way]))


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["parallel", "drop-in"])
def test_the_driver_broken_on_both_sides_of_every_change(
    way: str, private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    last = all_points(GIVEN[way](UnitCase(private_systemd, tmp_path)))
    points = [(at, when) for at in range(1, last + 1) for when in ("before", "after")]
    judged(points, *swept(points, killed, GIVEN[way]))
    writes = list(range(1, last - 1))
    judged(writes, *swept(writes, full, GIVEN[way]))
    every = list(range(1, last + 1))
    judged(every, *swept(every, rebooted, GIVEN[way]))


def full(case: UnitCase, at: int) -> None:
    """From one change on every write of the driver's fails, as on a full disk."""
    breaker = Breaker(case.folder / "breaker")
    done = case.cli("trial", "run", str(case.file), "--yes", "--json", env=breaker.plan(at, how="full"))
    # Late enough, everything is measured and the verdict stands; before the first change it is refused.
    assert done.code in {0, 2, 3, 6}, (done.code, done.err)
    if done.code == 2:
        assert "No space left" in done.err or "full" in done.err, done.err
    settled(case)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("way", ["parallel", "drop-in"])
def test_the_disk_full_from_every_write_on(way: str, private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    last = all_points(GIVEN[way](UnitCase(private_systemd, tmp_path)))
    # Of the last two changes none writes; every second one here, `make torture` has the rest.
    points = list(range(1, last - 1, 2 if way == "parallel" else 4))
    judged(points, *swept(points, full, GIVEN[way]))


def rebooted(case: UnitCase, at: int) -> None:
    """The machine loses power while the driver stands at one of its changes; the trial's folder is on its disk."""
    breaker = Breaker(case.folder / "breaker")
    started = case.cli("trial", "run", str(case.file), "--yes", "--detach", env=breaker.plan(at, how="freeze"))
    assert started.code == 0, started.err
    wait_for(lambda: breaker.frozen or over(case), 30, f"the driver comes to change {at}")
    case.systemd.reboot()
    case.wait_serving()
    settled(case)


def running_only(case: UnitCase) -> UnitCase:
    """The original runs and is not enabled: at boot nothing but the trial's own unit would start it."""
    return case.serve(FAST, enable=False).trial().remember()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("given", [parallel, dropped_in, running_only])
def test_a_reboot_at_every_change(
    given: Callable[[UnitCase], UnitCase], private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    first = given(UnitCase(private_systemd, tmp_path))
    all_points(first)
    changes = Breaker(first.folder / "breaker").changes()
    armed = next(int(line.split()[0]) for line in changes if line.endswith("/armed"))
    # Before the way back is armed an original that is not enabled is as lost to a reboot as without a trial.
    begin = armed + 1 if given is running_only else 1
    points = list(range(begin, len(changes) + 1, 4))
    judged(points, *swept(points, rebooted, given))


# A systemctl that kills the restore script around its n-th call; the real one is beside it.
_SHIM = """#!/bin/sh
script() { tr '\\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -q 'restore\\.sh'; }
caller=$PPID
[ "$PPID" -eq 0 ] || script "$caller" || caller=$(cut -d' ' -f4 "/proc/$PPID/stat")
if [ "$PPID" -ne 0 ] && script "$caller" && [ -e %SHIM%/at ]; then
  count=$(($(cat %SHIM%/count 2>/dev/null || echo 0) + 1)); echo "$count" >%SHIM%/count
  read -r at when <%SHIM%/at
  if [ "$count" -eq "$at" ] && [ "$when" = before ]; then kill -9 "$caller"; exit 1; fi
  %SHIM%/systemctl "$@"; code=$?
  if [ "$count" -eq "$at" ] && [ "$when" = after ]; then kill -9 "$caller"; fi
  exit $code
fi
exec %SHIM%/systemctl "$@"
"""


def shimmed(case: UnitCase) -> UnitCase:
    """Put the shim in systemctl's place inside the manager."""
    shim = case.folder / "shim"
    shim.mkdir()
    (shim / "systemctl.sh").write_text(_SHIM.replace("%SHIM%", str(shim)), encoding="utf-8")
    (shim / "systemctl.sh").chmod(0o755)
    case.systemd.run(["touch", str(shim / "systemctl")])
    for source, target in (("/usr/bin/systemctl", "systemctl"), (str(shim / "systemctl.sh"), "/usr/bin/systemctl")):
        where = target if target.startswith("/") else str(shim / target)
        case.systemd.run(["mount", "--bind", source, where])
    return parallel(case)


def restore_killed(case: UnitCase, point: tuple[int, str]) -> None:
    """The driver dies while its variant serves, and so does the restore, around one of its calls of systemctl."""
    at, when = point
    shim = case.folder / "shim"
    (shim / "count").unlink(missing_ok=True)
    (shim / "at").write_text(f"{at} {when}\n", encoding="ascii")
    trial = case.start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30, "the variant serves")
    case.systemd.systemctl("kill", "-s", "KILL", f"draftworth-trial-{case.tag()}.service", check=False)
    assert trial
    case.wait_back(60)
    (shim / "at").unlink()
    settled(case)


@pytest.mark.timeout(1500)
def test_the_restore_killed_around_every_step() -> None:
    with tempfile.TemporaryDirectory(prefix="draftworth-steps-") as folder, PrivateSystemd(Path(folder)) as systemd:
        case = shimmed(UnitCase(systemd, Path(folder)))
        restore_killed(case, (10_000, "before"))
        steps = int((case.folder / "shim" / "count").read_text(encoding="ascii"))
    assert steps > 10
    # A call that was made and one that was not are both there; `make torture` has both sides of each.
    points = [(at, "before" if at % 2 else "after") for at in range(1, steps + 1)]
    judged(points, *swept(points, restore_killed, shimmed))


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_the_restore_killed_on_both_sides_of_every_step() -> None:
    points = [(at, when) for at in range(1, 40) for when in ("before", "after")]
    judged(points, *swept(points, restore_killed, shimmed))


def test_a_driver_that_hangs_is_ended_when_the_downtime_is_over(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path).serve(FAST)
    case.trial(limits="start_timeout_s = 20\ndrain_s = 1\ndowntime_s = 1").remember()
    breaker = Breaker(tmp_path / "breaker")
    all_changes = all_points_of(case, breaker)
    start = next(int(line.split()[0]) for line in all_changes if "intent 03-start" in line)
    done = case.cli("trial", "run", str(case.file), "--yes", "--detach", env=breaker.plan(start, how="freeze"))
    assert done.code == 0
    wait_for(lambda: breaker.frozen, 30)
    began = time.monotonic()
    assert case.state() == "inactive", "the original is away and the driver hangs"
    case.wait_back(90)
    assert time.monotonic() - began < 85, "a second of downtime and a minute of slack"
    settled(case)
    assert case.record()["verdict"] == "error"


def all_points_of(case: UnitCase, breaker: Breaker) -> list[str]:
    case.cli("trial", "run", str(case.file), "--yes", "--json", env=breaker.plan(0))
    case.wait_back()
    return breaker.changes()
