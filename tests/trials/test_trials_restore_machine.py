"""The restore as a state machine: any faults, any deaths, any order, and the service ends as it was observed.

The world is simulated (processes, a port, the original); the journal and the restore are the real ones.
"""

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from draftworth.bench.base import Access
from draftworth.engines import engine
from draftworth.errors import NotRestoredError, ServerStartError, TrialError
from draftworth.services.base import Observed, ProcessId, Running, Tell
from draftworth.services.processes import boot_id
from draftworth.trials import restore as module
from draftworth.trials.journal import Journal
from draftworth.trials.recover import needs_restore, started_in
from draftworth.trials.restore import Restored, Scene, restore

ARGV = ("vllm", "serve", "m")


class Died(BaseException):
    """The restoring process was killed: nothing may catch this and go on."""


class World:
    """A service whose every call can fail or kill the caller."""

    def __init__(self) -> None:
        self.pids = itertools.count(100)
        self.original: ProcessId | None = None
        self.arms: dict[ProcessId, str] = {}
        self.by_hand: ProcessId | None = None
        self.saved = False
        self.faults: list[str] = []

    def _maybe_fail(self, where: str) -> None:
        fault = self.faults.pop(0) if self.faults else "fine"
        if fault == "fail":
            raise TrialError(f"{where} failed")
        if fault == "bug":
            raise OSError(f"nobody expected this in {where}")
        if fault == "die":
            raise Died(where)

    def process(self) -> ProcessId:
        return ProcessId(pid=next(self.pids), started=1, boot=boot_id())

    # What a restore calls.

    def verify_original(self, observed: Observed, running: Running, tell: Tell) -> Sequence[str]:
        self._maybe_fail("verify_original")
        return ()

    def commands(self) -> Sequence[str]:
        return ()

    def find_marked(self, prefix: str) -> Sequence[ProcessId]:
        return [process for process, mark in self.arms.items() if mark.startswith(prefix)]

    def clear(self, started: Sequence[Running], marked: Sequence[ProcessId], tell: Tell) -> Sequence[str]:
        for process in list(self.arms):
            if process in marked or process in [running.leader for running in started]:
                self._maybe_fail("clear")
                del self.arms[process]
        self._maybe_fail("clear")
        return ()

    def find_original(self, observed: Observed) -> Running | None:
        return self._running(self.original) if self.original else None

    def start_original(self, observed: Observed, folder: Path, tell: Tell) -> Running:
        assert self.original is None, "the original was started twice"
        assert not self.arms, "the original was started beside an arm"
        assert self.by_hand is None, "the original was started beside one that a person started"
        if not self.saved:
            raise TrialError("what the original needs is gone")
        self._maybe_fail("before start")
        self.original = self.process()
        self._maybe_fail("after start")
        return self._running(self.original)

    def forget_original(self, folder: Path) -> None:
        self._maybe_fail("before forget")
        self.saved = False
        self._maybe_fail("after forget")

    def holder(self) -> str | None:
        return "an arm" if self.arms else "a hand-started one" if self.by_hand else None

    def find_holder(self, observed: Observed) -> Running | None:
        return self._running(self.by_hand) if self.by_hand else None

    def _running(self, process: ProcessId) -> Running:
        return Running(leader=process, session=process.pid, mark="", log=Path("/dev/null"))


class RestoreMachine(RuleBasedStateMachine):
    """A trial that starts and stops arms, dies anywhere, and is restored by anybody."""

    @initialize(running=st.booleans())
    def begin(self, running: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.folder = Path(tempfile.mkdtemp()) / "20260101-000000"
        self.folder.mkdir()
        self.world = World()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "_PAUSE_S", 0.0)
        self.patch.setattr(module, "wait_ready", self._wait_ready)
        self.observed = Observed(running=running, command=ARGV if running else ())
        if running:
            self.world.original = self.world.process()
            self.world.saved = True
        with Journal(self.folder / "journal.db", create=True) as journal:
            observed = self.observed.model_dump(mode="json")
            journal.append("begin", observed=observed, config={}, mark=f"{self.folder.name}/token/", steps=[])

    def _wait_ready(self, service: Any, running: Running, *_: Any, **__: Any) -> tuple[str, Running]:
        self.world._maybe_fail("ready")
        if running.leader not in {self.world.original, self.world.by_hand}:
            raise ServerStartError("the original is not there")
        return "m", running

    @precondition(lambda self: bool(needs_restore(self.folder)))
    @rule(recorded=st.booleans())
    def arm_starts(self, recorded: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """The trial stops the original and starts an arm; it may die before it recorded what it started."""
        if self.world.by_hand is not None:
            return
        self.world.original = None
        process = self.world.process()
        mark = f"{self.folder.name}/token/03-start-ngram"
        self.world.arms[process] = mark
        with Journal(self.folder / "journal.db") as journal:
            journal.append("intent", "03-start-ngram", mark=mark)
            if recorded:
                running = Running(leader=process, session=process.pid, mark=mark, log=Path("/dev/null"))
                journal.append("effect", "03-start-ngram", running=running.model_dump(mode="json"))

    @rule()
    def original_stops(self) -> None:
        if needs_restore(self.folder):
            self.world.original = None

    @rule()
    def a_person_starts_it(self) -> None:
        """Ops lose patience and start the service by hand, in another environment, where nothing holds the port."""
        if self.observed.running and not self.world.original and not self.world.arms and needs_restore(self.folder):
            self.world.by_hand = self.world.process()

    @rule(faults=st.lists(st.sampled_from(["fine", "fail", "bug", "die"]), max_size=8))
    def restored(self, faults: list[str]) -> None:
        """Somebody restores; calls fail or kill the restorer as drawn."""
        self.world.faults = faults
        try:
            self._restore()
        except (Died, NotRestoredError):
            return
        self._as_observed()

    @rule()
    def restored_without_faults(self) -> None:
        """Whatever happened before, a restore that meets no fault succeeds, and a second one changes nothing."""
        self.world.faults = []
        self._restore()
        self._as_observed()
        before = self.world.original
        self._restore()
        assert self.world.original == before
        assert not needs_restore(self.folder)

    def _restore(self) -> Restored:
        with Journal(self.folder / "journal.db") as journal:
            scene = Scene(
                folder=self.folder,
                service=self.world,  # type: ignore[arg-type]  # only what a restore calls
                engine=engine("vllm"),
                url="http://127.0.0.1:1",
                access=Access(),
                model=None,
                start_timeout_s=1.0,
                say=lambda _: None,
                mark=f"{self.folder.name}/token/",
                observed=self.observed,
                started=lambda: started_in(journal.events()),
                note=journal.note,
            )
            if not needs_restore(self.folder):
                return Restored("already")
            return restore(scene, final=True)

    def _as_observed(self) -> None:
        assert not self.world.arms
        serving = self.world.original is not None or self.world.by_hand is not None
        assert serving == self.observed.running

    @invariant()
    def the_way_back_is_kept_until_it_is_not_needed(self) -> None:
        """Before a verified restore, what the original needs is on disk, or the original still runs."""
        if getattr(self, "observed", None) is not None and self.observed.running and needs_restore(self.folder):
            assert self.world.saved or self.world.original is not None or self.world.by_hand is not None

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()
            shutil.rmtree(self.folder.parent)


TestRestore = RestoreMachine.TestCase
TestRestore.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
