"""Trials driven on another machine, over OpenSSH's own client.

The trial and its journal live there. What is lost with the connection is only the watching, which begins again by
itself; whatever happens here, nothing stops there.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from draftworth.errors import InterruptedTrial, RefusedError, TrialError
from draftworth.hosts.base import HostError
from draftworth.hosts.ssh import SshHost
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.fetched import keep_fetched
from draftworth.trials.driver.messages import Told, document, raised, read, sent
from draftworth.trials.driver.pointers import Pointer, keep
from draftworth.trials.driver.reach import check_answer, interrupts_held, program_argv, ssh_host
from draftworth.trials.driver.sending import Received
from draftworth.trials.driver.station import PlanShown

T = TypeVar("T")

_ASK_S = 600.0
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 20.0)


class RemoteStation:
    """See `Station`."""

    def __init__(
        self,
        alias: str,
        *,
        program: str = "draftworth",
        sudo: bool = False,
        latest: str = "",
        host: SshHost | None = None,
        retry_s: Sequence[float] = _RETRY_S,
    ) -> None:
        """Make one; connects when it is first asked something.

        Args:
            alias: as `ssh` takes it.
            program: Draftworth there; a `~/` at its beginning is the login's home.
            sudo: become root there with `sudo -n`.
            latest: the trial that `latest` means; empty: the newest there.
            host: the connection; default: one of its own, see `ssh_host`.
            retry_s: seconds between attempts to connect again; the last again and again while a trial is followed.
        """
        self._host = host or ssh_host(alias)
        self._pointer = Pointer(host=alias, draftworth=program, sudo=sudo)
        self._retry_s = tuple(retry_s)
        self._ids = {"latest": latest} if latest else {}
        self._began: set[str] = set()
        self._reached = False
        self.name = self._host.name
        self.remarks: list[str] = []

    def plan(self, config: SystemdTrial, *, files: bool = False) -> PlanShown:
        """Return what a run would do there."""
        try:
            return PlanShown.model_validate(self._ask("plan", {**sent(config), "show_files": files}))
        except HostError as error:
            raise RefusedError(str(error)) from None

    def start(self, config: SystemdTrial, shown: PlanShown) -> str:
        """Start the driver there, once, also where the connection is lost meanwhile."""
        asked = {**sent(config), "shown": shown.model_dump(mode="json"), "key": secrets.token_hex(16)}
        with interrupts_held() as interrupted:
            try:
                answer = self._patiently(lambda: self._ask("start", asked))
            except HostError as error:
                raise TrialError(
                    f"{error}; the trial may have begun there: `draftworth trial status --host {self._pointer.host}`"
                ) from None
            trial = str(answer["trial"])
            self._began.add(trial)
            with suppress(OSError):
                keep(trial, self._pointer)
            if interrupted():
                self.end(trial)
                raise InterruptedTrial(
                    f"interrupted while trial {trial} began; it ends, and `draftworth trial attach {trial}` shows it"
                )
        return trial

    def events(self, trial: str, offset: int = 0) -> Iterator[dict[str, Any]]:
        """Yield what a trial says; a lost connection is made again, and what was told is not told twice."""
        told = Told(offset)
        # Who is told of an error at the first attempt can act on it; later the trial is what counts.
        patient = trial in self._began
        failures = 0
        while True:
            heard = False
            try:
                for event in self._events_once(trial, told.at):
                    heard = self._reached = True
                    if failures:
                        failures = 0
                        yield {"kind": "line", "text": "connected again", "own": True}
                    if event.get("kind") == "end" and event.get("text"):
                        event["text"] = f"{self.name}: {event['text']}"
                    if told.first(event):
                        yield event
                    if event.get("kind") == "end":
                        return
                why = "what tells of it ended"
            except HostError as error:
                if not heard and not patient:
                    raise
                why = f"{self.name}: connection lost" if heard else str(error)
            patient = True
            wait = self._retry_s[min(failures, len(self._retry_s) - 1)]
            # A line for the first failure, then only what is happening now: it may last hours.
            kind = "now" if failures else "line"
            failures += 1
            yield {"kind": kind, "text": f"{why}; the trial goes on there; again in {wait:g} s", "own": True}
            time.sleep(wait)

    def _events_once(self, trial: str, offset: int) -> Iterator[dict[str, Any]]:
        """Yield what comes over one connection. Raises HostError where it is lost."""
        asked = {"trial": self._id(trial), "offset": offset}
        with self._host.stream(self._argv("events"), stdin=self._document(asked)) as lines:
            heard = False
            for line in lines:
                event = read(line)
                if event is None:
                    continue
                if "error" in event:
                    raise raised(event["error"], self.name)
                heard = True
                if event.get("kind") == "trial":
                    self._ids[trial] = str(event["id"])
                yield event
            if not heard:
                check_answer(self._pointer, int(lines.code or 0), lines.err.decode(errors="replace"))

    def end(self, trial: str) -> bool:
        """Ask a trial to end."""
        try:
            answer = self._patiently(lambda: self._ask("end", {"trial": self._id(trial)}))
        except HostError as error:
            where = self._pointer.host
            raise TrialError(
                f"{error}; the trial was not asked to end and goes on there: `draftworth trial stop {trial} --host "
                f"{where}`"
            ) from None
        return bool(answer["done"])

    def release(self, trial: str) -> bool:
        """End the time a variant is held."""
        return bool(self._patiently(lambda: self._ask("release", {"trial": self._id(trial)}))["done"])

    def status(self, trial: str | None) -> Sequence[dict[str, Any]]:
        """Return where a trial stands, or every one at work there."""
        asked = {"trial": None if trial is None else self._id(trial)}
        found: Sequence[dict[str, Any]] = self._ask("status", asked)["trials"]
        return found

    def fetch(self, trial: str) -> Path:
        """Bring a trial's folder here, beside the trials of this machine; `remarks` says what is to be said about it.

        Raises:
            TrialError: it could not be brought here; it is whole there.
        """
        try:
            return self._patiently(lambda: self._fetch(trial))
        except HostError as error:
            raise TrialError(f"{error}; the record is there, `draftworth trial attach {trial}` brings it") from None

    def hello(self) -> dict[str, Any]:
        """Return the version there, whether it is root's, and where its trials are kept."""
        return self._ask("hello", {})

    def adopt(self, trial: str, *, arm: str | None, restart: bool, say: Callable[[str], None]) -> dict[str, Any]:
        """Make an arm's command the unit's own there; it goes on there where the connection is lost."""
        return self._act("adopt", {"trial": self._id(trial), "arm": arm, "restart": restart}, say)

    def unadopt(self, trial: str, *, restart: bool, say: Callable[[str], None]) -> dict[str, Any]:
        """Take that back there."""
        return self._act("unadopt", {"trial": self._id(trial), "restart": restart}, say)

    def _act(self, verb: str, asked: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
        from draftworth.trials.driver.acting import act, variables_of  # noqa: PLC0415 - lazy

        # Asking for a token may need a key, which the trial's file names.
        variables = variables_of(self.fetch(str(asked["trial"]))) if asked["restart"] else {}
        return act(self._host, self._argv(verb), {**asked, "variables": variables}, pointer=self._pointer, say=say)

    def _fetch(self, trial: str) -> Path:
        received = Received()
        try:
            argv, asked = self._argv("fetch"), {"trial": self._id(trial)}
            with self._host.stream(argv, stdin=self._document(asked)) as lines:
                for line in lines:
                    found = read(line)
                    if found is None:
                        continue
                    if "error" in found:
                        raise raised(found["error"], self.name)
                    received.take(found)
            if not received.id:
                check_answer(self._pointer, int(lines.code or 0), lines.err.decode(errors="replace"))
            if not received.whole:
                raise HostError(f"{self.name}: only a part of trial {trial} arrived")
            folder, self.remarks = keep_fetched(received, self._pointer)
            return folder
        finally:
            received.close()

    def _id(self, trial: str) -> str:
        """Return the id that a name has stood for: `latest` may be another one next time."""
        return self._ids.get(trial, trial)

    def _document(self, asked: Mapping[str, Any]) -> bytes:
        return document({"alias": self._pointer.host, **asked})

    def _argv(self, verb: str) -> list[str]:
        return program_argv(self._pointer.draftworth, sudo=self._pointer.sudo, words=("agent", verb))

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Return what an attempt returns; one that a lost connection spoiled is made again a few times.

        Where nothing has been reached yet, it is more likely that nothing can be: that is told at once.
        """
        for wait in self._retry_s[:-1]:
            try:
                return attempt()
            except HostError:
                if not self._reached:
                    raise
                time.sleep(wait)
        return attempt()

    def _ask(self, verb: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        done = self._host.run(self._argv(verb), stdin=self._document(asked), timeout_s=_ASK_S)
        self._reached = True
        answer = next((found for line in reversed(done.text.splitlines()) if (found := read(line)) is not None), None)
        if answer is None:
            check_answer(self._pointer, done.code, done.err.decode(errors="replace"))
            raise TrialError(f"{self.name}: no answer: {done.why}")
        if "error" in answer:
            raise raised(answer["error"], self.name)
        return answer
