"""What llama.cpp's drafters share: their flags, a slot's steps as its server makes them.

Read from llama.cpp's build 11434: tools/server/server-context.cpp (when a drafter is asked, what bounds a draft),
common/speculative.cpp (what a drafter keeps for a slot) and common/arg.cpp (ranges and defaults of the flags).

The server drafts for a slot from its history without the token that was sampled last, and that token. A draft is cut
to n_ctx - history - 2 tokens, and to the tokens left of max_tokens less one; without room for one the drafter is not
asked. Both are bounds on how long the request may become: n_ctx, and its prompt with max_tokens. A recording does not
tell max_tokens, which is `Limits.max_tokens`; without it a request that ended by it drafted less in its last steps than
is counted here. Accepted are the tokens up to the first that differs, and the sampled token behind them becomes the new
last one; a target that cannot take tokens back verifies the accepted ones again in a step that is not counted here.

A request takes the slot that is free, and there are as many slots as `Limits.concurrency` says.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from draftworth.drafters.base import Counts, Limits, Setting
from draftworth.drafters.rounds import own_state
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch

BUILD = "llama.cpp b11434"
NO_LIMIT = 1 << 30
"""n_ctx where none is given: no request is as long."""

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flag:
    """A parameter of a drafter.

    Attributes:
        flag: the server's option.
        default: its default.
        low: its least value.
        high: its greatest value.
    """

    flag: str
    default: int
    low: int
    high: int

    def checked(self, values: Sequence[float] | None, name: str) -> list[int]:
        """Return the values, the default where there are none.

        Raises:
            UsageError: a value is not a whole number in range.
        """
        for value in values or ():
            if value != int(value) or not self.low <= value <= self.high:
                raise UsageError(f"{name} {value:g}: {self.flag} takes whole numbers from {self.low} to {self.high}")
        return list(dict.fromkeys(int(value) for value in values)) if values else [self.default]


class LlamaCppDrafter:
    """What is the same for all: settings of single values, by llama.cpp's own names.

    Attributes:
        name: see `draftworth.drafters.base.Drafter`, as the other attributes there.
        draft: the flag that bounds a draft, which is `k`.
        flags: the other flags, by the name that `more` gives them.
        unused: flags that llama.cpp has for this drafter and does not look at.
        tried: values worth trying (`--grid`), of `k` and of `flags`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    engine: ClassVar[str] = "llamacpp"
    shared: ClassVar[bool] = True
    always_verifies: ClassVar[bool] = False
    draft: ClassVar[Flag]
    flags: ClassVar[Mapping[str, Flag]] = {}
    unused: ClassVar[Mapping[str, str]] = {}
    tried: ClassVar[Mapping[str, Sequence[int]]] = {}

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the protocol's word
        max: Sequence[int] | None = None,  # noqa: A002 - the protocol's word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the grid of these values, llama.cpp's defaults where none is given; see the protocol.

        Raises:
            UsageError: the drafter has no such parameter, or a value is out of its range.
        """
        if min is not None or max is not None:
            has = ", ".join(f"{name} ({flag.flag})" for name, flag in self.flags.items()) or "no parameters"
            raise UsageError(f"{self.name} looks up n-grams of one length, min and max do not apply: it has {has}")
        for name in more or {}:
            if name in self.unused:
                raise UsageError(f"{name}: {self.name} does not look at {self.unused[name]}; leave it out")
            if name not in self.flags:
                raise UsageError(f"{self.name} has no parameter {name!r}: it has {', '.join(('k', *self.flags))}")
        ks = self.draft.checked(k, "k")
        others = [flag.checked((more or {}).get(name), name) for name, flag in self.flags.items()]
        return [
            Setting(k=one, more=dict(zip(self.flags, map(float, values), strict=True)))
            for *values, one in product(*others, ks)
        ]

    def grid(self) -> list[Setting]:
        """Return the settings worth trying; those that can draft something."""
        some = self.settings(k=self.tried.get("k"), more={name: self.tried[name] for name in self.flags})
        return [one for one in some if self.can_draft(one)]

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        """Return llama-server's flags, those at their defaults left out."""
        words = ["--spec-type", self.name.removeprefix("llamacpp-")]
        values = [(self.draft, setting.k), *((flag, setting.more.get(name)) for name, flag in self.flags.items())]
        for flag, value in values:
            if value is not None and flag.low < flag.high and int(value) != flag.default:
                words += [flag.flag, str(int(value))]
        return tuple(words)

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        """Return the setting itself: what is learned depends on its own steps."""
        del limits, longest
        return own_state(setting)

    def can_draft(self, setting: Setting) -> bool:
        """Return whether this setting drafts anything at all."""
        return setting.k > 0


class LlamaCppSession:
    """A replay of one drafter: what is the same for all of them.

    Attributes:
        settings: what is replayed.
        n_ctx: tokens of a slot.
        max_tokens: most output tokens of a request.
        slots: requests decoded at a time.
        keep_drafts: whether to keep the drafts of a batch; takes k + 4 times its memory for each setting.
        drafts: int32, one array a setting, where they are kept: of each step the request, the length of the history
            without the sampled token, drafted, accepted, and the drafted tokens.
    """

    def __init__(self, settings: Sequence[Setting], limits: Limits) -> None:
        if not settings:
            raise UsageError("no settings to replay")
        self.settings = list(settings)
        self.n_ctx = NO_LIMIT if limits.max_model_len is None else limits.max_model_len
        self.max_tokens = NO_LIMIT if limits.max_tokens is None else limits.max_tokens
        self.slots = max(1, limits.concurrency)
        self.drafts: list[Ints] = []
        self.keep_drafts = False
        self._widest = max(setting.k for setting in settings)

    def feed(self, batch: TraceBatch, groups: Ints, group_count: int) -> Counts:
        """Replay a batch; see the protocol."""
        side = self._widest + 1
        joint = np.zeros((len(self.settings), group_count, side, side), np.int64)
        steps = np.zeros((len(self.settings), len(batch)), np.int32)
        requests = Requests.of(batch, groups, self.n_ctx, self.max_tokens)
        sinks = [Sink(joint[at], steps[at], self._room(batch)) for at in range(len(self.settings))]
        self._replay(requests, sinks)
        self.drafts = [sink.log[1 : sink.log[0]] for sink in sinks] if self.keep_drafts else []
        return Counts(joint=joint, steps=steps)

    def _room(self, batch: TraceBatch) -> Ints:
        """Return where a setting's drafts are kept: its first element is where the next goes."""
        log = np.zeros((len(batch.tokens) + 1) * (self._widest + 4) + 1 if self.keep_drafts else 1, np.int32)
        log[0] = 1
        return log

    def _replay(self, requests: "Requests", sinks: "Sequence[Sink]") -> None:
        """Replay every setting over the requests, counting each in its sink."""
        raise NotImplementedError

    def parameters(self, at: int) -> tuple[int, dict[str, int]]:
        """Return a setting's k and its other parameters as whole numbers."""
        setting = self.settings[at]
        return setting.k, {name: int(value) for name, value in setting.more.items()}


class Requests(NamedTuple):
    """A batch as the kernels take it: contiguous arrays of fixed types.

    Attributes:
        tokens: int32, see `TraceBatch`.
        offsets: int64.
        prompts: int32, prompt lengths.
        thinking: int32.
        groups: int32 [R, 2].
        most: int64, how long a request may become, prompt and output.
    """

    tokens: Ints
    offsets: Longs
    prompts: Ints
    thinking: Ints
    groups: Ints
    most: Longs

    @classmethod
    def of(cls, batch: TraceBatch, groups: Ints, n_ctx: int, max_tokens: int) -> "Requests":
        """Return a batch's arrays.

        Raises:
            UsageError: an id is negative.
        """
        tokens = np.ascontiguousarray(batch.tokens, np.int32)
        if tokens.size and tokens.min() < 0:
            at = int(np.searchsorted(batch.offsets, int(np.argmax(tokens < 0)), side="right")) - 1
            raise UsageError(f"request {batch.request_ids[at]}: token ids are below 0, no model has such")
        return cls(
            tokens,
            np.ascontiguousarray(batch.offsets, np.int64),
            np.ascontiguousarray(batch.prompt_lengths, np.int32),
            np.ascontiguousarray(batch.thinking, np.int32),
            np.ascontiguousarray(groups, np.int32),
            np.minimum(batch.prompt_lengths.astype(np.int64) + max_tokens, n_ctx),
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest request, 0 without any."""
        return int(np.diff(self.offsets).max(initial=0))


class Sink(NamedTuple):
    """Where a setting's steps are counted.

    Attributes:
        joint: int64 [G, K + 1, K + 1].
        steps: int32 [R].
        log: int32, drafts that are kept; of length 1 where none are.
    """

    joint: Longs
    steps: Ints
    log: Ints


@njit(cache=True, nogil=True)
def verified(requests: Requests, sink: Sink, request: int, at: int, draft: Ints) -> int:
    """Verify a draft against the recording and count the step; returns how many tokens were accepted.

    Args:
        requests: the batch.
        sink: where the step is counted.
        request: whose step it is.
        at: place of the sampled token in the request, which the draft is behind.
        draft: what was drafted.
    """
    start, end = requests.offsets[request], requests.offsets[request + 1]
    own = requests.tokens[start:end]
    accepted, most = 0, min(draft.size, own.size - at - 1)
    while accepted < most and own[at + 1 + accepted] == draft[accepted]:
        accepted += 1
    phase = 0 if at + 1 - requests.prompts[request] < requests.thinking[request] else 1
    sink.joint[requests.groups[request, phase], draft.size, accepted] += 1
    sink.steps[request] += 1
    log = sink.log
    if log.size > 1:
        free = log[0]
        log[free], log[free + 1], log[free + 2], log[free + 3] = request, at, draft.size, accepted
        log[free + 4 : free + 4 + draft.size] = draft
        log[0] = free + 4 + draft.size
    return accepted
