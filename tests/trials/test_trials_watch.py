"""A slow load told from a hung one, with a clock and signs that the tests set."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from draftworth.errors import ServerStartError
from draftworth.trials.watch import LoadWatch, Signs, signs_of


class World:
    """A server whose signs the test sets, and a clock that it moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.signs = Signs(0, 0.0, 0, None)

    def watch(self, silent_s: float = 900.0, last_s: float | None = None) -> LoadWatch:
        return LoadWatch(lambda: self.signs, silent_s=silent_s, last_s=last_s, clock=lambda: self.now)

    def later(self, seconds: float, **change: float) -> None:
        self.now += seconds
        self.signs = replace(self.signs, **{name: getattr(self.signs, name) + by for name, by in change.items()})


def test_a_first_load_says_that_there_is_nothing_to_compare_with() -> None:
    world = World()
    watch = world.watch()
    world.later(65, log_bytes=100)
    assert watch.words() == "1 min 05 s, no earlier load of this arm to compare with"


def test_a_later_load_is_told_of_how_long_the_last_one_took() -> None:
    world = World()
    watch = world.watch(last_s=1860)
    world.later(600, log_bytes=10)
    assert watch.words() == "10 min 00 s of about 31 min 00 s, as the last time"
    world.later(3000, log_bytes=10)
    assert watch.words() == "1 h 00 min, the last time 31 min 00 s"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cpu_s": 40.0}, "but alive: it uses 2.0 processors"),
        ({"io_bytes": 20 * 100 * 2**20}, "but alive: it reads and writes 100.0 MiB a second"),
    ],
)
def test_a_silent_server_that_works_is_alive(change: dict[str, float], told: str) -> None:
    world = World()
    watch = world.watch(silent_s=60)
    for _ in range(60):
        world.later(20, **change)
        words = watch.words()
    assert told in words
    assert "no log line for 20 min 00 s" in words


def test_gpu_memory_that_changes_is_a_sign_of_life() -> None:
    world = World()
    world.signs = Signs(0, 0.0, None, 0)
    watch = world.watch(silent_s=60)
    for _ in range(10):
        world.later(20, gpu_bytes=2**30)
        words = watch.words()
    assert "but alive: its GPU memory changes" in words


def test_a_server_without_any_sign_of_life_hangs() -> None:
    world = World()
    watch = world.watch(silent_s=300)
    world.later(10, log_bytes=50)
    assert "no log line" not in watch.words()
    # A poll loop of an idle process: a thousandth of a processor.
    for _ in range(14):
        world.later(20, cpu_s=0.02, io_bytes=100)
        words = watch.words()
    assert words.endswith("no log line for 4 min 40 s and no other sign of life for 4 min 40 s")
    world.later(20)
    with pytest.raises(ServerStartError, match=r"hangs: no log line, .* for 5 min 00 s \(limits.silent_s\)"):
        watch.words()


def test_a_process_that_ended_is_a_change_and_not_a_negative_rate() -> None:
    world = World()
    world.signs = Signs(0, 500.0, 10**9, None)
    watch = world.watch(silent_s=60)
    world.later(40, cpu_s=-400.0)
    assert "alive: it uses 0.0 processors" in watch.words()


def test_signs_are_read_from_the_kernel(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 123)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
        signs = signs_of([busy.pid, 2**22 - 1], log)
        assert signs.log_bytes == 123
        assert 0.1 < signs.cpu_s <= time.monotonic()
        assert signs.io_bytes is not None
        assert signs.io_bytes > 0
    finally:
        busy.kill()
        busy.wait()
    assert signs_of([], tmp_path / "none") == Signs(0, 0, None, None)
