"""Others' requests on a server that is probed: a probe waits for them, refuses, or leaves out what they fell into."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from draftworth.costs.subject import Subject
from draftworth.errors import RefusedError

_POLL_S = 0.05, 0.5
"""The first wait between two looks, and the longest; each is twice the one before."""


@dataclass(slots=True)
class Traffic:
    """What others do on the server.

    Attributes:
        subject: the server.
        max_load: requests of others that it may have at hand.
        anyway: whether others' requests are no reason not to measure.
        ours: requests of the probe that the server has answered.
    """

    subject: Subject
    max_load: int = 0
    anyway: bool = False
    ours: int = 0
    _others: int | None = None

    def admit(self, wait_s: float) -> Iterator[str]:
        """Refuse a server that speculates or that others use. Yields what is to be noted of one that is not refused.

        Args:
            wait_s: seconds to wait for others' requests to end.

        Raises:
            RefusedError: it speculates, or stays busy, and `anyway` is not set.
        """
        where = self.subject.target.base_url
        if self.subject.speculates():
            if not self.anyway:
                raise RefusedError(
                    f"{where}: the server speculates; a probe measures steps without speculation: give it a baseline, "
                    "or --anyway to note its steps as they are"
                )
            yield "the server speculates: these are steps with speculation on, and no baseline's"
        load = self.subject.others()
        if load is None:
            yield "the server does not tell what it has at hand: others' requests would not be noticed"
        elif load > self.max_load and not self.falls_idle(wait_s):
            if not self.anyway:
                raise RefusedError(
                    f"{where}: {load} requests of others are at hand (after {wait_s:g} s of waiting); probe it when it "
                    "is idle, or take --anyway"
                )
            yield f"{load} requests of others were at hand when it began: steps are of larger batches"

    def falls_idle(self, seconds: float) -> bool:
        """Wait until others' requests have ended; whether they did in time."""
        end, (pause, longest) = time.monotonic() + seconds, _POLL_S
        while (load := self.subject.others()) is not None and load > self.max_load:
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return True

    def begins(self) -> None:
        """Note how many requests of others the server has finished, where that is not known."""
        if self._others is None:
            finished = self.subject.finished()
            self._others = None if finished is None else finished - self.ours

    def forget(self) -> None:
        """Let the next `begins` count anew: some of our requests failed."""
        self._others = None

    def disturbed(self) -> bool:
        """Whether others' requests ended since `begins`. The server may count the last of ours a little later."""
        finished, before = self.subject.finished(), self._others
        if finished is None or before is None or self.anyway:
            return False
        self._others = max(before, finished - self.ours)
        return self._others > before
