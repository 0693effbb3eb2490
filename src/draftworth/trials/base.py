"""What a run leaves for the verdict: blocks of rows, scores, remarks, how it ended."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from draftworth.bench.base import RequestRow, ScoredOutput
from draftworth.bench.clocks import Clocks
from draftworth.bench.window import Window
from draftworth.engines.base import AcceptanceCounts, StartupFacts
from draftworth.errors import DraftworthError, NotRestoredError, RefusedError
from draftworth.findings import Finding
from draftworth.search.record import SearchRecord
from draftworth.trials.restore import Restored

if TYPE_CHECKING:
    from draftworth.trials.record import ArmComparison


@dataclass(slots=True)
class Block:
    """What one measurement of one arm gave.

    Attributes:
        arm: whose.
        number: from 1, in order of time.
        start: which start of this arm's server, from 1.
        windows: one a point of the workload, or one a turn of interleaved servers.
        check_rows: greedy outputs for the output check; the same as `rows` where the workload is greedy.
        counts: the server's own counts of the window, or None where it gave none.
        per_request: the same from the answers.
        cache: prompt tokens looked up in the server's prefix cache, and found there.
        facts: what the server's log has told.
        start_seconds: from the command to the first token; None where the server ran already.
        log: the server's log.
        seconds: what the requests took.
        warm: whether the server was warmed up.
        findings: what was remarkable, besides what the windows found.
        clocks: the machine's clocks while it was measured, where they can be read.
    """

    arm: str
    number: int
    start: int = 1
    windows: list[Window] = field(default_factory=list)
    check_rows: list[RequestRow] = field(default_factory=list)
    counts: AcceptanceCounts | None = None
    per_request: AcceptanceCounts | None = None
    cache: tuple[int, int] | None = None
    facts: StartupFacts = field(default_factory=StartupFacts)
    start_seconds: float | None = None
    log: str = ""
    seconds: float = 0.0
    warm: bool = False
    findings: list[Finding] = field(default_factory=list)
    clocks: Clocks | None = None

    @property
    def rows(self) -> list[RequestRow]:
        """Every request, failed ones too."""
        return [row for window in self.windows for row in window.rows]

    @property
    def remarks(self) -> list[Finding]:
        """Everything remarkable about the block."""
        return [*self.findings, *(finding for window in self.windows for finding in window.findings)]


@dataclass(slots=True)
class Scores:
    """Scored outputs of every arm, or why there are none.

    Attributes:
        by_arm: arm to its scored outputs.
        refused: why nothing was scored.
        seconds: what it took.
    """

    by_arm: dict[str, list[ScoredOutput]] = field(default_factory=dict)
    refused: str | None = None
    seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """Everything a run left for the verdict.

    Attributes:
        blocks: what was measured, in order; the last may be incomplete.
        scores: the output check's raw scores.
        findings: remarks that belong to no block.
        restored: the verified restore, or None.
        error: why the trial ended early, or None.
        refused: why it was refused after all, before anything of the service was changed; or None.
        crash: a bug of Draftworth's that ended the trial.
        restore_error: why the service is not back, or None.
        waited_s: seconds spent on servers and requests; the rest is the tool's own.
        look: the look at the evidence at which measuring ended, from 1.
        looks: how many were planned.
        complete: how many blocks there were at the last look: rounds that are complete.
        given_up: arms that only measure and were not measured to their end: no part of any comparison.
        search: what a search has tried, and why; None where there was none.
        earlier: of a search that goes on with earlier ones: setting to that trial's id and its comparison there.
        unchecked: of those settings, answers whose output is still to be checked.
        answered: by arm, token ids of prompts that its server is known to have answered before the trial, where its
            drafter learns from that.
    """

    blocks: list[Block] = field(default_factory=list)
    scores: Scores = field(default_factory=Scores)
    findings: list[Finding] = field(default_factory=list)
    restored: Restored | None = None
    error: DraftworthError | None = None
    refused: RefusedError | None = None
    crash: Exception | None = None
    restore_error: NotRestoredError | None = None
    waited_s: float = 0.0
    look: int = 1
    looks: int = 1
    complete: int = 0
    given_up: set[str] = field(default_factory=set)
    search: SearchRecord | None = None
    earlier: dict[str, tuple[str, "ArmComparison"]] = field(default_factory=dict)
    unchecked: dict[str, list[RequestRow]] = field(default_factory=dict)
    answered: dict[str, frozenset[tuple[int, ...]]] = field(default_factory=dict)
