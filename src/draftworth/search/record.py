"""What a search has done, as a trial's record keeps it."""

from typing import Any

from draftworth.models import Frozen
from draftworth.search.base import BASELINE, LogSpeed, NotTried
from draftworth.verdicts.base import Interval, Verdict


class Tried(Frozen):
    """One setting that was started."""

    name: str
    """Its arm's."""
    why: str
    """Why it was the next one, in figures."""
    expected_gain: float = 0.0
    """By how much the best was expected to become faster by trying it, mean over the loads, in log speed."""
    chance: float = 0.0
    """That it beats the best known by the margin, as believed before."""
    predicted: dict[int, LogSpeed] | None = None
    """By load, what was predicted from the baseline's own answers; None where nothing could be."""
    bounds: dict[int, LogSpeed] | None = None
    """By load, of what cannot be predicted: nothing and everything accepted, as the ends of a 95 % interval."""
    measured: dict[int, LogSpeed] = {}
    """By load, the log speed-up over the baseline before it, with the spread of restarts in its standard error."""
    seconds: float | None = None
    """It took, with its start."""
    parts: int = 0
    """Parts of the requests that were sent."""
    of_parts: int = 0
    """Parts that there are."""
    failed: str | None = None
    """Why it could not be measured."""
    trial: str | None = None
    """The earlier trial that it was measured in, where a search was continued."""

    @property
    def cut(self) -> bool:
        """Whether it was left before all requests were sent: it could not beat the best any more."""
        return self.failed is None and 0 < self.parts < self.of_parts


class BestAt(Frozen):
    """The best setting at a load, or over all of them."""

    load: int | None
    """Requests at a time; None: the mean over all."""
    arm: str
    """Its name; `baseline`: none is faster."""
    ratio: Interval | None = None
    """Its TPOT over the baseline's (or throughput, where the verdict is about that); None for the baseline."""
    verdict: Verdict | None = None
    """On it, at the level of the search; None for the baseline."""
    trial: str | None = None
    """The earlier trial that it was measured in."""
    output: str | None = None
    """What the check of its output came to (`same`, `unchecked`, …); None for the baseline, or at one load."""
    config: dict[str, Any] | None = None
    """Its speculative configuration."""
    flags: tuple[str, ...] = ()
    """What to add to the service's command."""


class SearchRecord(Frozen):
    """A whole search."""

    candidates: int
    """Settings that there were."""
    together: bool = True
    """Whether one had to serve all loads."""
    loads: tuple[int, ...] = ()
    ended: str = ""
    """Why it ended."""
    complete: bool = False
    """Whether nothing more was worth a start; false where it was interrupted, or its time or requests were up."""
    tried: tuple[Tried, ...] = ()
    """In the order in which they were started."""
    not_tried: tuple[NotTried, ...] = ()
    best: tuple[BestAt, ...] = ()
    """Over all loads first, then at each load where it is another one."""
    schedule: dict[str, Any] | None = None
    """vLLM: settings of the best one's family, each k at the loads where it measured best, as one configuration; None
    where one k is best at all. Not measured itself."""
    mark: dict[str, str] = {}
    """Hashes of what it was on, by which a later one knows whether it may go on with it."""
    unpredicted: str | None = None
    """Why nothing was predicted of any setting."""

    @property
    def winner(self) -> BestAt | None:
        """The best over all loads; None where nothing was measured."""
        return next((one for one in self.best if one.load is None), None)

    @property
    def found(self) -> bool:
        """Whether a setting is faster than the baseline."""
        return self.winner is not None and self.winner.arm != BASELINE and self.winner.verdict is Verdict.FASTER
