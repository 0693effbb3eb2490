"""What a prediction is: a speed-up of one setting at one load, with its interval, its parts and what it lacks to pay.

`tpot_ratio` is the mean over requests of TPOT with speculation over the mean without, as in a trial's verdict
(docs/numbers.md); `speed_up` is 1 over it. A step's milliseconds are an expectation over the mixture of requests that
draft and requests that do not, and over draft lengths: T is a staircase and is never taken at a mean.
"""

from typing import Literal

from draftworth.models import Frozen

SCHEMA_VERSION = 1

Limit = Literal["engine mode", "verification", "coverage", "acceptance", "nothing"]
"""What stands first in the way of a speed-up:

- `coverage`: drafting steps pay for themselves, too few steps draft;
- `acceptance`: it would pay at a higher acceptance length, which drafts of this length and coverage can reach;
- `verification`: not even if every drafted token were accepted, and verifying them is most of what is added;
- `engine mode`: not even then, and what switching speculation on adds to every step is most of it;
- `nothing`: it pays.
"""


class Range(Frozen):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


class Parts(Frozen):
    """Where a step's milliseconds are, at one load. They add up to the step."""

    base_ms: float
    """T(B, 1): a step of the baseline."""
    verify_ms: float
    """What the drafted tokens add to it without any engine mode."""
    mode_ms: float | None
    """What the engine's mode and the drafter add; None where nothing is known of it, not even from other servers."""

    @property
    def step_ms(self) -> float:
        """The whole step; without the engine's mode where that is not known."""
        return self.base_ms + self.verify_ms + (self.mode_ms or 0.0)


class Predicted(Frozen):
    """One setting at one load."""

    k: int
    min: int | None = None
    max: int | None = None
    more: dict[str, float] = {}
    concurrency: int
    steps_per_token: Range
    """Mean over requests of steps / tokens. This and the next three weigh each request alike, as a trial's TPOT does; a
    replay's own figures weigh each step alike."""
    length_per_step: float
    """Tokens per step: 1 / steps per token."""
    coverage: float
    """Share of steps that draft."""
    length_per_drafting_step: float | None
    """Tokens per drafting step; None where nothing is drafted."""
    speed_up: Range
    """At most the tokens per step: a step that verifies drafts takes no less than a plain one of the same requests."""
    tpot_ratio: Range
    step_ms: Range
    """The expected step, with the interval of its costs."""
    parts: Parts
    idle_speed_up: float
    """Speed with speculation on and nothing drafted, over the baseline's: what k = 0 of a running server is."""
    break_even_length: float | None
    """Acceptance length per drafting step at which it costs nothing and gains nothing, at this coverage; None where
    nothing is drafted."""
    limit: Limit
    why: tuple[str, ...] = ()
    """Where the costs come from."""
    measured: bool = False
    """Whether every cost lies on measured points."""
    base_measured: bool = False
    """Whether the baseline's own step was measured at this load, and not carried over from others."""
    prefill_ms: Range | None = None
    """What the prefills of other requests add to each output token, with speculation and without; None where it is not
    known, and counted as none: every speed-up is nearer to 1 then than it says, on the same side."""

    drafter: str = ""
    """Whose setting it is; empty in predictions of one drafter by earlier versions."""

    @property
    def pays(self) -> bool:
        """Whether it is faster, by its best value."""
        return self.speed_up.value > 1

    @property
    def at_best(self) -> bool:
        """Whether it leaves out the engine's mode, of which nothing is known: it is no faster than this, and slower."""
        return self.parts.mode_ms is None


class Reload(Frozen):
    """An arm that deserves a reload, and what it would cost."""

    k: int
    min: int | None = None
    max: int | None = None
    more: dict[str, float] = {}
    arguments: tuple[str, ...] = ()
    """What the engine is started with, its defaults left out."""
    at: int
    """The concurrency it is best at."""
    speed_up: Range
    seconds: float | None
    """Seconds of the reloads it takes at least, there and back, by the baseline's own start (a start with speculation
    can take several times as long); None where no start's time is known."""
    drafter: str = ""
    """Whose setting it is; empty in predictions of one drafter by earlier versions."""


class PerBatchSize(Frozen):
    """The best k by the number of running requests, of one drafter and window."""

    drafter: str = ""
    """Whose table it is; empty in predictions by earlier versions, as `arguments`, and `k` is None."""
    k: int | None = None
    """The largest k of the table: vLLM's `num_speculative_tokens` beside it."""
    min: int | None = None
    max: int | None = None
    more: dict[str, float] = {}
    arguments: tuple[str, ...] = ()
    """What the engine is started with, its defaults left out."""
    table: tuple[tuple[int, int, int], ...]
    """vLLM's `num_speculative_tokens_per_batch_size`: first and last batch size, and k; 0 is off. The last entry is 0
    where drafting at the largest load pays: vLLM carries the last k on to all larger batches."""
    gain: float
    """Mean over the loads of the log speed-up over no speculation at all, with k chosen by load. k = 0 is not free: the
    engine's mode stays."""
    loads: tuple[int, ...]
    """The loads that were predicted; outside of them the table drafts nothing."""
    unsure: tuple[int, ...] = ()
    """Those of them at which no k is faster beyond doubt: the table drafts nothing there."""


class Needed(Frozen):
    """What a draft that does not exist yet must reach to pay, at one load."""

    k: int
    concurrency: int
    draft_ms: float
    """What drafting k tokens takes."""
    step_ms: float
    length: Range
    """Acceptance length per step (a head drafts in each step) that costs nothing and gains nothing; above k + 1, which
    is all that a step can yield, no acceptance pays."""
    possible: bool
    """Whether it can be at most k + 1, by its interval."""
    sure: bool = True
    """Whether the whole interval lies within k + 1; where it does not, it may be that no acceptance pays."""


class Prediction(Frozen):
    """Everything `draftworth predict` tells."""

    schema_version: int = SCHEMA_VERSION
    created: str = ""
    """When it was made, ISO 8601 in UTC; empty in files of earlier versions. The costs have a date of their own."""
    trace: dict[str, object]
    drafter: str
    costs: dict[str, object]
    settings: tuple[Predicted, ...]
    """Every setting at every load."""
    verdict: str
    """The answer, what to do first: it pays, it does not, or it cannot be told without these reloads."""
    reloads: tuple[Reload, ...] = ()
    mode_arms: dict[str, tuple[str, ...]] = {}
    """Arms that measure the engine's mode where it was not measured here: name to what the engine is started with."""
    per_batch_size: PerBatchSize | None = None
    heads: tuple[Needed, ...] = ()
    left_out: tuple[dict[str, object], ...] = ()
    """Rows of the trace that were not replayed: `reason`, `count` and where the `first` is."""
    findings: tuple[str, ...] = ()


Source = Literal["replay", "remembered", "synthetic"]
"""What a cell's steps were predicted from:

- `replay`: the baseline's own answers, replayed;
- `remembered`: the same, and what the arm's running server had answered to these very prompts in earlier trials, which
  suffix drafting drafts from again. Such a speed-up is a benchmark's and no traffic's;
- `synthetic`: the arm's own counts, as it accepts at a configured rate: only the costs are predicted.
"""


class CheckedCell(Frozen):
    """One arm of a finished trial at one load: what was predicted, and what was measured."""

    trial: str
    arm: str
    point: str = ""
    """The point of the trial's sweep; empty where it had one."""
    concurrency: int
    predicted: Range
    measured: Range
    """The interval is over prompts; what restarts differ by is not in it."""
    error: float
    """Predicted over measured speed-up, less 1."""
    sign_right: bool | None
    """Whether predicted and measured lie on the same side of 1; None where the measured interval includes 1."""
    steps_per_token: Range
    """Predicted steps per token, the mean over prompts."""
    pooled_steps_per_token: float | None = None
    """Predicted steps over tokens of all prompts together."""
    measured_steps_per_token: float | None = None
    """The arm's own."""
    steps_by: Literal["prompts", "steps"] | None = None
    """How that is weighed: the mean over `prompts`, where each answer told its counts, or all `steps` over tokens."""
    step_ms: Range
    """Predicted step."""
    measured_step_ms: float | None = None
    """The arm's own: its TPOT, less what prefills of others add, over its steps per token."""
    base_ms: float | None = None
    """T(B, 1) that was predicted with."""
    measured_base_ms: float | None = None
    """The baseline's TPOT in this trial; with `prefill_ms` taken off it is a step."""
    prefill_ms: Range | None = None
    """What the prefills of other requests add to each token, by the baseline's times in this trial."""
    prompts: int = 0
    """Prompts that both arms answered; 0 in files of earlier versions, as `starts`."""
    starts: int = 0
    """Starts of the arm's server behind the cell."""
    source: Source = "replay"


class Pool(Frozen):
    """Cells of one source, together."""

    source: Source
    cells: int
    median_error: float
    """Median of |error|."""
    p95_error: float
    """95th percentile of |error|."""
    wrong_signs: int
    inside: int
    """Cells whose measured speed-up lies within the predicted interval."""
    width: float
    """Median of upper over lower end of the predicted interval."""
    measured_width: float
    """The same of the measured one."""
    decides: int
    """Cells whose predicted interval lies wholly beyond the margin around 1, on either side."""
    measured_decides: int
    """The same of the measured one."""


class Checked(Frozen):
    """Predictions against measurements, pooled."""

    schema_version: int = SCHEMA_VERSION
    cells: tuple[CheckedCell, ...]
    left_out: tuple[str, ...] = ()
    """Arms that could not be checked, and why."""
    findings: tuple[str, ...] = ()
    """Cells whose measured steps contradict the replay, and what that can come from."""
    median_error: float | None = None
    """Median of |error| over all cells; `pools` tells those of one source."""
    p95_error: float | None = None
    """95th percentile of |error|."""
    wrong_signs: int = 0
    pools: tuple[Pool, ...] = ()
    """One for each source of which there are cells."""
