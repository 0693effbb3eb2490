"""What a search is about: candidates, what was measured of them, and what it decides.

Speeds are logarithms of the speed-up over the baseline: 0 is the baseline itself, 0.05 about 5 % faster. A load is a
concurrency, as in a trial's sweep.
"""

from typing import Annotated, Any

from pydantic import Field

from draftworth.models import Frozen

BASELINE = "baseline"
"""The name of what every speed is over: the service as it is."""
CHECKPOINTS = ("model", "draft_model_path")
"""Keys that name the checkpoint that drafts, in any engine's words."""
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class LogSpeed(Frozen):
    """A log speed-up over the baseline with its standard error."""

    value: Finite
    sd: AtLeastZero


class Candidate(Frozen):
    """One setting that could be started."""

    name: str
    """The arm's name."""
    method: str
    """The engine's own word: `ngram`, `suffix`, `draft_model`, …"""
    runner: str | None = None
    """vLLM's model runner, where it is known."""
    k: int | None = None
    """Most tokens drafted a step; None where the method's own configuration sets it."""
    min: int | None = None
    """Shortest n-gram that is looked up; None where the method has none."""
    max: int | None = None
    """Longest n-gram that is looked up."""
    more: dict[str, Any] = {}
    """Its other parameters, by the engine's names."""
    config: dict[str, Any] = {}
    """What the engine is started with (`speculative_config`)."""
    reload_s: AtLeastZero = 0.0
    """Seconds until its server answers."""
    predicted: dict[int, LogSpeed] | None = None
    """By load, what is expected before it was started; None where nothing can be."""
    bounds: dict[int, LogSpeed] | None = None
    """By load, of what cannot be predicted: nothing and everything accepted are the ends of its 95 % interval
    (`search.bounds`); None where that is not known either."""
    free: bool = False
    """Whether nothing has to be started for it: it is measured before all others."""

    @property
    def group(self) -> tuple[str, str | None, str | None]:
        """What shares what a prediction is off by: method, runner, and the checkpoint that drafts, where there is one.

        Two heads share their engine's mode, but how much of their drafts is accepted is each one's own.
        """
        checkpoint = next((str(self.more[key]) for key in CHECKPOINTS if self.more.get(key)), None)
        return self.method, self.runner, checkpoint

    @property
    def family(self) -> tuple[object, ...]:
        """What differs in nothing but k: group, n-grams and other parameters."""
        return (*self.group, self.min, self.max, *sorted((key, repr(value)) for key, value in self.more.items()))


class Observation(Frozen):
    """What one start of a candidate measured."""

    candidate: str
    """Its name."""
    baseline: str | None = None
    """The start of the baseline that it is over: the trial's, where it is an earlier one's."""
    measured: dict[int, LogSpeed]
    """By load. The standard error holds everything that another start of this arm, or other prompts, would change."""


class NotTried(Frozen):
    """A candidate that was never measured, and why."""

    name: str
    why: str


class Choice(Frozen):
    """What to do next."""

    next: str | None
    """The candidate to start; None to end."""
    why: str
    """In one line, with figures."""
    expected_gain: float = 0.0
    """By how much the best setting is expected to become faster by measuring it, mean over the loads, in log speed (of
    the best that is left, where the search ends)."""
    per_minute: float = 0.0
    """The same for each minute of its reload and measuring."""
    chance: float = 0.0
    """That it beats the best known by more than the margin, at the load where that is likeliest."""
