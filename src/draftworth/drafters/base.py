"""What a drafter promises, and what replaying it over recorded tokens gives.

A drafter here is the exact algorithm of one engine: its drafts equal the engine's own, token by token. Replaying it
over a request's recorded output gives the acceptance that the engine would have had (docs/replay.md says why, and when
that is exact): at each step the draft is made from what was there, is compared with what came next in the recording,
and the step emits the tokens that agree and one more.

The first output token comes from prefill, so the first draft is made behind it. A request of m output tokens is
replayed as steps that emit m - 1 tokens; the last step may be cut by the end of the recording, and `accepted` counts
only what lies within it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftworth.traces.base import TraceBatch

THINKING, ANSWER = 0, 1
"""Phases of a step, by the first token it emits; a request whose reasoning is not known is all ANSWER."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a grid.

    Attributes:
        k: most tokens drafted a step (vLLM's num_speculative_tokens; SGLang's draft tokens less the root).
        min: shortest n-gram that is looked up; None where the algorithm has none.
        max: longest n-gram that is looked up; None where the algorithm has none.
        more: the algorithm's other parameters, by the engine's own names, complete.
    """

    k: int
    min: int | None = None
    max: int | None = None
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a draft beside the setting.

    Attributes:
        max_model_len: most tokens of a request (vLLM's max_model_len, llama.cpp's n_ctx); None for no bound.
        concurrency: how many requests are decoded at a time, one step each in turn. Matters only to drafters whose
            requests share what they learned.
        vocabulary: ids at or above this are an error; None where it is not known.
        max_tokens: most output tokens of every request (`max_tokens`), to which llama.cpp's server cuts drafts; None
            for no bound. The other engines do not look at it when they draft.
    """

    max_model_len: int | None = None
    concurrency: int = 1
    vocabulary: int | None = None
    max_tokens: int | None = None


@dataclass(slots=True)
class Counts:
    """What replaying some requests gives, for S settings, R requests and G groups.

    Attributes:
        joint: int64 [S, G, K + 1, K + 1], K the largest k: in how many steps `d` tokens were drafted and `a` of them
            accepted, at [setting, group, d, a]. Everything else that is reported is a sum over it.
        steps: int32 [S, R], steps of each request, for intervals over requests.
    """

    joint: NDArray[np.int64]
    steps: NDArray[np.int32]


class Session(Protocol):
    """A replay under way: keeps what the requests so far have taught drafters that learn across requests."""

    def feed(self, batch: TraceBatch, groups: NDArray[np.int32], group_count: int) -> Counts:
        """Replay a batch.

        Args:
            batch: the requests. Those with fewer than two output tokens have no steps.
            groups: int32 [R, 2], the group in which a request's steps are counted while it thinks and while it answers.
            group_count: G.
        """
        ...


class Drafter(Protocol):
    """One algorithm of one engine.

    Attributes:
        name: `vllm-ngram-v1`.
        title: what it is, for a list of choices.
        engine: the engine's name in `draftworth.engines`, or `transformers`.
        shared: whether requests share what was learned, so that their order and concurrency matter.
        always_verifies: whether each step verifies k drafted tokens, matched or not (padded drafts).
        source: the released file the algorithm was read from, with its version.
    """

    name: str
    title: str
    engine: str
    shared: bool
    always_verifies: bool
    source: str

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the engines' own word
        max: Sequence[int] | None = None,  # noqa: A002 - the engines' own word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the grid of these values, the engine's defaults where none is given, combinations it refuses left out.

        Args:
            k: values of k.
            min: values of the shortest n-gram.
            max: values of the longest n-gram.
            more: values of the other parameters, by the engine's names.

        Raises:
            UsageError: the algorithm has no such parameter, a value is out of its range, or nothing is left.
        """
        ...

    def grid(self) -> list[Setting]:
        """Return the settings worth trying when none are named (`--grid`)."""
        ...

    def session(self, settings: Sequence[Setting], limits: Limits) -> Session:
        """Begin a replay."""
        ...

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        """Return which state of what was learned serves a setting: those with equal ones are replayed together.

        Asked only of drafters whose requests share something: a trace is read once for each state.

        Args:
            setting: one point of the grid.
            limits: what bounds drafts.
            longest: tokens of the longest request that is replayed; told only with `limits.max_model_len`, else 0.
        """
        ...

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        """Return what the engine is started with for a setting, defaults left out; empty where there is no server."""
        ...
