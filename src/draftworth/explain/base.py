"""An account of the difference between two arms: every millisecond a token has a cause that was measured, or is a rest.

With r the arm's steps per token, T a decode step of the baseline, S the arm's and p what the prefills of other requests
add to each output token of either, TPOT goes from T + p to r S + p, and

    r S - T = r M + r V + r D - (1 - r) T + rest

M is the engine's mode by kind of step, V what verifying more tokens adds to a step, D the drafter's own time where it
is known apart from M, and (1 - r) T what the steps that were saved would have cost. None of them is taken from the
arm's time: r is from its counts, T from the baseline, V from points of T(B, n), M from null-draft and synthetic arms.
The rest is what the measured difference has beside them.
"""

from typing import Literal

from draftworth.models import Frozen
from draftworth.predict.base import Range

SCHEMA_VERSION = 1

Cause = Literal["engine mode", "verification", "drafter", "tokens gained", "rest"]
CAUSES: tuple[Cause, ...] = ("engine mode", "verification", "drafter", "tokens gained", "rest")
"""In the order they are told; they add up to the difference."""


class Detail(Frozen):
    """A part of a part, for a person: M of idle steps, of mixed ones."""

    name: str
    ms: Range
    """Milliseconds per output token."""


class Part(Frozen):
    """One cause of the difference."""

    cause: Cause
    ms: Range
    """Milliseconds per output token: above 0 makes the arm slower, below 0 faster."""
    evidence: tuple[str, ...] = ()
    """What measured it: trials and arms, a probe, the library; empty for the rest."""
    measured: bool = False
    """Whether the evidence is of this server, and not carried over from others."""
    stated: bool = False
    """Whether it is what somebody typed (`--drafter-ms`) and nothing measured; `measured` is false then."""
    details: tuple[Detail, ...] = ()
    """What it consists of, where it has several parts; they add up to it."""


class Change(Frozen):
    """Something that would change the verdict, or that was looked at and would not."""

    text: str
    """In a sentence."""
    arguments: tuple[str, ...] = ()
    """What an engine is started with, where it is a setting."""
    speed_up: Range | None = None
    """Predicted, over the baseline."""
    kind: Literal["setting", "acceptance", "engine", "measure"] = "setting"
    """A setting to try; an acceptance to reach; an engine to change; something to measure before more can be said."""


class BreakEven(Frozen):
    """What an arm's drafts would have to reach at one load."""

    length: float | None
    """Acceptance length per drafting step at which it costs nothing and gains nothing, at its coverage; None where it
    drafted nothing."""
    low: float | None = None
    """Lower end of its interval: T and S have theirs. None where it has none, and in accounts of earlier versions."""
    high: float | None = None
    """Upper end."""
    measured_length: float | None
    """What it reached."""
    longest: float
    """k + 1, what it can reach at most."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval as it is told: a drafting step yields one token at least. None where it has none."""
        if self.length is None or self.low is None or self.high is None:
            return None
        return max(self.low, min(1.0, self.length)), self.high


class Account(Frozen):
    """One arm at one load."""

    arm: str
    point: str = ""
    """The point of the trial's sweep; empty where it had one."""
    concurrency: int
    diagnostic: bool = False
    """Whether it is an arm that only measures: a null draft, or one of synthetic acceptance."""
    baseline_ms: float
    """TPOT, mean over the prompts both answered."""
    arm_ms: float
    difference: Range
    """TPOT of the arm less the baseline's; the interval is over prompts and over what starts of a server differ by, as
    the verdict takes both."""
    parts: tuple[Part, ...]
    """In the order of CAUSES; they add up to `difference`. `rest` is always there."""
    assigned: float | None
    """Share of what moved TPOT that has a cause: 1 - |rest| / the larger of |difference| and the sum of what made the
    arm slower, whichever is larger; None where nothing moved."""
    of_difference: float | None
    """Share of the difference itself that has a cause: 1 - |rest| / |difference|; below 0 where the rest is larger than
    it, None where there is no difference, or where the baseline's drift could be all of it."""
    drift: Range | None = None
    """TPOT of the baseline's last measurement over its first, where that says that the machine changed meanwhile."""
    drift_ms: float = 0.0
    """What the baseline changed by between them, milliseconds per output token: it is in every interval."""
    steps_per_token: float
    """r, from the arm's counts."""
    baseline_step_ms: float
    """T: TPOT of the baseline less `prefill_ms`."""
    prefill_ms: float = 0.0
    """p: what the prefills of other requests add to each output token; 0 for one request at a time."""
    arm_step_ms: float
    """S."""
    break_even: BreakEven
    main_cause: str
    """The answer in a sentence."""
    changes: tuple[Change, ...] = ()
    """What would change the verdict, the best first."""


class EvenPoint(Frozen):
    """One arm of synthetic acceptance."""

    arm: str
    length: float
    """Tokens per drafting step, as counted."""
    speed_up: Range
    """Over the baseline, as measured."""


class EvenCurve(Frozen):
    """What drafts pay by the length at which they are accepted, measured at one load with one k."""

    concurrency: int
    k: int
    points: tuple[EvenPoint, ...]
    """By length."""
    length: float | None
    """From where on it is above 1, between two points; None where it does not cross, or falls below 1 again."""
    low: float | None = None
    """Where the upper ends of the points cross; None where below the shortest, or where `length` is None."""
    high: float | None = None
    """Where the lower ends cross; None where beyond the longest, or where `length` is None."""
    text: str
    """The answer in a sentence."""


class CurvePoint(Frozen):
    """A measured or modelled step, for a plot."""

    tokens: int
    """Tokens of the whole step."""
    ms: Range
    what: Literal["measured", "model", "baseline", "arm"]
    name: str = ""
    """Of the arm."""


class Inputs(Frozen):
    """What an account was made with, beside the trial itself."""

    costs: str = ""
    """Name of the costs file; empty where none was used."""
    costs_created: str = ""
    """When it was probed, ISO 8601."""
    costs_given: bool = False
    """Whether somebody named it; else the trial probed it itself."""
    with_trials: tuple[str, ...] = ()
    """Further trials, by id."""
    speculation: tuple[str, ...] = ()
    """What arms were said to have been started with, `ARM=JSON`."""
    drafter_ms: tuple[str, ...] = ()
    """What drafters were said to take a step, `ARM=MS`: stated by hand."""


class Explained(Frozen):
    """Everything `draftworth explain` tells of a trial."""

    schema_version: int = SCHEMA_VERSION
    trial: str
    inputs: Inputs | None = None
    """What it was made with; None where an earlier version kept it."""
    accounts: tuple[Account, ...] = ()
    """Every variant that could be accounted for, at every load."""
    left_out: tuple[str, ...] = ()
    """Arms without an account, and why; what was assumed."""
    summary: str = ""
    """The verdict's cause in one or two sentences, for the top of a page."""
    even_curves: tuple[EvenCurve, ...] = ()
    """What acceptance pays, as arms of synthetic acceptance measured it; empty without any."""
    curve: tuple[CurvePoint, ...] = ()
    """T by the tokens of a step, with the arms' own steps on it; empty where nothing was probed."""
