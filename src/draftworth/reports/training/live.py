"""Keeps the page of a training while a command works, from a thread of its own with the lowest priority.

It takes what stages tell, passes it on, and writes the page every few seconds. Plots are drawn as rarely as keeps them
under 1 % of a processor; in between, only the page's words and tables are new. Nothing that goes wrong here ends or
holds up the training: it is told once.
"""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from draftworth.errors import DraftworthError
from draftworth.reports.training.base import PAGE, PROGRESS, Standing, Status, Subject, gather, read_needs
from draftworth.reports.training.curves import drawn
from draftworth.reports.training.figures import Tail
from draftworth.reports.training.page import page_of
from draftworth.training.base import StageName
from draftworth.training.recipe import Recipe
from draftworth.training.registry import STAGES
from draftworth.trials.explaining import SWITCH

if TYPE_CHECKING:
    from draftworth.training.run import Shows

EVERY_S = 5.0
"""Seconds between two pages at least."""
_FIRST_PLOTS_S = 120.0
"""Seconds after which plots are drawn first: what draws them takes a second to load."""
_SHARE = 0.005
"""Share of a processor that the words may take, and the plots: together 1 %."""
_LOADING = 4
"""How many times as long as another the first drawing takes, about."""
_LOWEST = 19
_JOIN_S = 10.0


class LivePage:
    """A context manager around a run of stages; a `Shows` in front of another one."""

    def __init__(self, recipe: Recipe, names: Sequence[StageName], shows: "Shows", *, every_s: float = EVERY_S) -> None:
        """Make one.

        Args:
            recipe: paths absolute.
            names: the stages that the command runs, in order.
            shows: takes everything too.
            every_s: seconds between two pages at least.
        """
        self.path = StageName.FIT.folder(recipe.folder) / PAGE
        self._recipe, self._shows, self._every_s = recipe, shows, every_s
        self._order = [name for name in STAGES if name in names]
        self._tail = Tail(self.path.with_name(PROGRESS))
        self._needs = read_needs(recipe)
        self._at = -1
        self._stage: StageName | None = None
        self._stage_began: float | None = None
        self._now = ""
        self._left: int | None = None
        self._began, self._clock = time.time(), time.monotonic()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._curves, self._curves_at = "", 0.0
        self._words_cost = self._plots_cost = self._plots_spent = 0.0
        self._told = False
        self._is_off = os.environ.get(SWITCH, "").strip().lower() in {"off", "0", "no"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        thread = self._thread
        if thread is None:
            return
        self._stop.set()
        with contextlib.suppress(KeyboardInterrupt):  # pressed again: the page is left as it is
            thread.join(_JOIN_S)
            if not thread.is_alive():
                self._end(error)

    # --- what a `Shows` takes

    def step(self, title: str) -> None:
        """A stage begins."""
        self._next()
        self._shows.step(title)
        if self._stage is not None and self._stage is not StageName.FIT:
            self._begin()

    def skip(self) -> None:
        """The next stage is left out."""
        self._next()
        self._stage = None
        self._shows.skip()

    def now(self, text: str) -> None:
        """What is happening within the stage."""
        self._now = text
        self._shows.now(text)
        self._begin()

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far the stage is."""
        if self._stage is StageName.FIT:  # counted from where an interrupted run was: the page has all steps
            self._now, self._left = note, max(0, total - done)
        else:
            self._now = f"{done:,} of {total:,} {note}".rstrip()
        self._shows.count(done, total, note)

    def line(self, text: str) -> None:
        """A line that stays."""
        self._shows.line(text)

    def _next(self) -> None:
        self._at += 1
        self._stage = self._order[self._at] if self._at < len(self._order) else None
        self._stage_began, self._now = time.time(), ""

    # --- the page

    def _begin(self) -> None:
        """Begin with the page: once the training has made its folder its own, or behind it."""
        if self._thread is not None or self._stage is None or self._is_off:
            return
        names = list(StageName)
        if names.index(self._stage) < names.index(StageName.FIT):
            return
        if self._stage is not StageName.FIT and not self.path.with_name(PROGRESS).is_file():
            return
        self._thread = threading.Thread(target=self._run, name="training-page", daemon=True)
        self._thread.start()
        self._shows.line(f"page: {self.path}")

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # of this thread alone, on Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        while True:
            self._write(self._standing("running"))
            if self._stop.wait(max(self._every_s, self._words_cost / _SHARE)):
                return

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            standing = self._standing("done")
        elif isinstance(error, KeyboardInterrupt):
            standing = self._standing("interrupted")
        else:
            text = str(error) if isinstance(error, DraftworthError) else f"{type(error).__name__}: {error}"
            standing = self._standing("failed", text)
        self._write(standing, draw=False)  # the drawing may be ended by a signal
        self._write(standing, draw=True)

    def _standing(self, status: Status, reason: str = "") -> Standing:
        return Standing(
            status=status,
            stage=self._stage,
            began=self._began,
            written=time.time(),
            stage_began=self._stage_began,
            now=self._now,
            reason=reason,
            steps_left=self._left,
        )

    def _write(self, standing: Standing, *, draw: bool | None = None) -> None:
        try:
            began = time.thread_time()
            subject = gather(self._recipe, self._tail, standing, self._needs)
            if self._may_draw() if draw is None else draw:
                self._draw(subject)
                began = time.thread_time()
            note = ""
            if standing.status == "running":
                age = time.strftime("%H:%M:%S UTC", time.gmtime(self._curves_at))
                note = f"Curves as of {age}: they are drawn anew as rarely as costs under 1 % of a processor."
                note = note if self._curves else "Curves are drawn once the command has run for two minutes."
            _replace(self.path, page_of(subject, self._curves, curves_note=note))
            self._words_cost = time.thread_time() - began
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the page, the training goes on
            if not self._told:
                self._told = True
                self._shows.line(f"{self.path}: cannot be written: {type(error).__name__}: {error}")

    def _draw(self, subject: Subject) -> None:
        began = time.process_time()  # the drawing has threads of its own
        self._curves, first = drawn(subject), not self._curves
        self._plots_cost = time.process_time() - began
        self._curves_at = subject.standing.written
        # The first one loads what draws, once and at the lowest priority.
        self._plots_cost /= _LOADING if first else 1
        self._plots_spent += self._plots_cost

    def _may_draw(self) -> bool:
        """Whether plots may be drawn now: first after some seconds, then within the share of a processor."""
        since = time.monotonic() - self._clock
        if not self._tail.steps or since < _FIRST_PLOTS_S:
            return False
        return not self._curves or self._plots_spent + self._plots_cost <= _SHARE * since


def _replace(path: Path, text: str) -> None:
    """Write a file by one beside it: who opens it sees the old one or the new one. Not synced: it is made anew soon."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
