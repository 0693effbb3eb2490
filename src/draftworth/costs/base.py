"""What a decode step costs, and where each figure comes from.

T(B, n) is the milliseconds of a step in which B requests carry n tokens each; a step whose requests carry different
numbers of tokens is a composition. Speculation adds an engine mode to every step: M0 to steps that draft nothing, M1 to
drafting steps, and on some engines MX to steps in which only some requests draft (docs/costs.md). Every figure keeps
its interval and its source; what was not measured is not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from draftworth.models import Frozen

SCHEMA_VERSION = 1
REFERENCE = 2
"""New tokens behind a prefix that others are differences against: the fewest that run as a prefill."""

How = Literal["concurrency", "prefix", "arm", "paper"]
"""`concurrency`: B streams of one token each; `prefix`: a cached prefix and n new tokens with one token out; `arm`:
from the TPOT of an arm of a trial; `paper`: from a model's shape and a GPU's data sheet."""


class StepCost(Frozen):
    """One measured point of T(B, n)."""

    batch: int
    """B: requests in the step."""
    tokens: int
    """n: tokens of each request."""
    context: int
    """Tokens of each request that are in the KV cache, at the middle of what was measured."""
    ms: float
    """Median over the repeats."""
    low: float
    high: float
    """95 % interval of the median over the repeats."""
    repeats: int
    how: How
    """As measured: what a point by `prefix` has too much of is taken off when it is read (`prefix_points`)."""


class Prefill(Frozen):
    """What two new tokens behind a cached prefix took longer to the first token than one, which is a decode step."""

    batch: int
    """Requests at a time."""
    context: int
    """Tokens of each request in the KV cache."""
    ms: float
    """Median over the repeats of L(2) - L(1); may be below 0."""
    low: float
    high: float
    """95 % interval of the median over the repeats."""
    repeats: int


class EngineMode(Frozen):
    """What switching speculation on adds to a step, measured beside a baseline of the same run."""

    kind: Literal["idle", "drafting", "mixed", "plain"]
    """`idle`: M0, a step that drafts nothing; `drafting`: M1, a step that verifies drafts, beyond T of its tokens;
    `mixed`: where CUDA graphs tell them apart (`costs.graphs`), MX, a step in which not every request drafts as many
    tokens as it may, and `drafting` is one in which all do; `plain`: F, a step without speculation that is scheduled as
    speculation makes it (no asynchronous scheduling), which is a part of each of the others."""
    method: str
    """The speculative method: `ngram`, `suffix`, `eagle3`, …; `none` for `plain`."""
    runner: str | None = None
    """vLLM's model runner, `V1` or `V2`."""
    batch: int
    tokens: int
    """Tokens of a request that drafts as many as it may: k + 1; 1 for `idle`."""
    asked: int | None = None
    """Of `idle`: k + 1 of the arm that measured it. CUDA graphs may run its steps padded to as many rows a request, and
    padding rows choose experts too (docs/profiles.md). None where it is not told."""
    mean_tokens: float | None = None
    """Mean tokens of a drafting request in the measured steps, where drafts fall short of k; None: `tokens`."""
    context: int | None = None
    """Tokens of each request in the KV cache where it was measured; None in files of earlier versions."""
    ms: float
    low: float
    high: float
    step_ms: float
    """The whole step as it was measured."""
    base_ms: float
    """T of the same composition without speculation, from the same run."""
    source: str
    """Which arm of which trial, or which entry of the library."""


class Costs(Frozen):
    """A costs file: everything that is known of one server's steps."""

    schema_version: int = SCHEMA_VERSION
    created: str
    url: str | None = None
    model: str | None = None
    engine: str | None = None
    version: str | None = None
    machine: str = ""
    """GPUs as far as they are known, for a person."""
    runner: str | None = None
    """vLLM's model runner, `V1` or `V2`, from the server's log."""
    graph_sizes: tuple[int, ...] = ()
    """Token counts for which CUDA graphs were captured, where they are known: T is a staircase over them."""
    graph_mode: str | None = None
    """vLLM's effective `cudagraph_mode`, of a server that speculates where one told it; None where nothing did."""
    points: tuple[StepCost, ...] = ()
    prefills: tuple[Prefill, ...] = ()
    """Of the probe's prefixes, by their number and context; whether points by `prefix` can be trusted hangs on it."""
    modes: tuple[EngineMode, ...] = ()
    reload_s: float | None = None
    """Seconds one start of the server takes, where it is known."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Milliseconds with an interval.

    Attributes:
        ms: best value.
        low: lower end of the 95 % interval.
        high: upper end.
        why: where it comes from, for a person, one reason each.
        measured: whether it lies on measured points, and not between or beyond them.
    """

    ms: float
    low: float
    high: float
    why: tuple[str, ...]
    measured: bool


class StepModel(Protocol):
    """What a step costs; fitted to a costs file, never replacing what was measured."""

    def base(self, tokens: Sequence[int], context: int) -> Estimate:
        """Return T of a composition without speculation.

        Args:
            tokens: how many tokens each request of the step carries.
            context: tokens of each request in the KV cache.
        """
        ...

    def speculating(
        self, tokens: Sequence[int], context: int, *, method: str, runner: str | None, longest: int | None = None
    ) -> Estimate:
        """Return T of a composition with speculation on: engine mode and drafter's time included.

        Args:
            tokens: how many tokens each request of the step carries.
            context: tokens of each request in the KV cache.
            method: the speculative method.
            runner: vLLM's model runner; None for any.
            longest: tokens of a request that drafts as many as it may, k + 1; None takes the longest of `tokens`.

        Raises:
            UsageError: nothing is known of this method's engine mode, not even from the library.
        """
        ...
