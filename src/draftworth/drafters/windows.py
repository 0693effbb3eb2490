"""What drafters that look the last n tokens up in their own context share: settings and one replay for all of them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Counts, Limits, Session, Setting
from draftworth.drafters.limits import check_k
from draftworth.drafters.matching import UNBOUNDED, last_match, replay
from draftworth.drafters.vllm_config import speculative_config
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch

GRID_K = (1, 2, 3, 4, 5, 6, 8, 10)
"""Draft lengths worth trying."""
GRID_WINDOWS = ((1, 2), (1, 4), (2, 2), (2, 4), (3, 3), (3, 5), (4, 8), (5, 5))
"""Shortest and longest n-grams worth trying; with `GRID_K` 64 settings."""
VLLM_K = (1, 2, 3, 5)
"""Draft lengths when none is given: vLLM has no default for this method."""
VLLM_WINDOW = (5, 5)
"""vLLM's prompt_lookup_min and prompt_lookup_max when neither is set."""
EOS = "eos_token_id"
"""The parameter that names the token before which transformers cuts a draft."""

_LARGEST = UNBOUNDED // 2


@dataclass(frozen=True, slots=True)
class Rules:
    """How one n-gram drafter differs from the others.

    Attributes:
        latest: whether the most recent occurrence of the n-gram is continued, else the earliest.
        padded: whether every draft has k tokens, filled up with the context's last token.
        limit: length of a request that a step's drafts must not pass; None for no bound.
        barred: length of a context at which nothing is drafted; None for none.
    """

    latest: bool
    padded: bool = False
    limit: int | None = None
    barred: int | None = None


class NgramSession:
    """A replay of several settings of one n-gram drafter. Requests share nothing."""

    def __init__(self, settings: Sequence[Setting], rules: Rules) -> None:
        if not settings:
            raise UsageError("no setting to replay: name at least one")
        self._most = max(setting.k for setting in settings)
        limit = UNBOUNDED if rules.limit is None else min(rules.limit, UNBOUNDED)
        barred = -1 if rules.barred is None else min(rules.barred, UNBOUNDED)
        self._rules = np.array([rules.latest, rules.padded, limit, barred], dtype=np.int64)
        self._count = len(settings)
        # Settings that cut their drafts before the same token are replayed in one pass; mostly that is all of them.
        by_end: dict[float | None, list[int]] = {}
        for at, setting in enumerate(settings):
            by_end.setdefault(setting.more.get(EOS), []).append(at)
        self._passes = [_Pass.of(settings, some, end) for end, some in by_end.items()]

    def feed(self, batch: TraceBatch, groups: NDArray[np.int32], group_count: int) -> Counts:
        """Replay a batch, see `draftworth.drafters.base.Session`."""
        side = self._most + 1
        joint = np.zeros((self._count, group_count, side, side), dtype=np.int64)
        steps = np.zeros((self._count, len(batch)), dtype=np.int32)
        for one in self._passes:
            # Kernels count into arrays of their own where a pass is of some settings: rows picked by a list are a copy.
            every = len(one.at) == self._count
            mine = joint if every else np.zeros((len(one.at), *joint.shape[1:]), dtype=np.int64)
            made = steps if every else np.zeros((len(one.at), len(batch)), dtype=np.int32)
            replay(
                np.ascontiguousarray(batch.tokens, dtype=np.int32),
                np.ascontiguousarray(batch.offsets, dtype=np.int64),
                np.ascontiguousarray(batch.prompt_lengths, dtype=np.int32),
                np.ascontiguousarray(batch.thinking, dtype=np.int32),
                np.ascontiguousarray(groups, dtype=np.int32),
                one.windows,
                one.window_of,
                one.ks,
                self._rules,
                one.ends,
                mine,
                made,
            )
            if not every:
                joint[one.at], steps[one.at] = mine, made
        return Counts(joint, steps)


@dataclass(frozen=True, slots=True)
class _Pass:
    """Settings that one pass over the tokens serves, as arrays."""

    at: list[int]
    windows: NDArray[np.int32]
    window_of: NDArray[np.int32]
    ks: NDArray[np.int32]
    ends: NDArray[np.int32]

    @classmethod
    def of(cls, settings: Sequence[Setting], at: list[int], end: float | None) -> "_Pass":
        pairs = [window(settings[one]) for one in at]
        # In order of their longest n-gram, so that neighbours mostly share a match.
        windows = sorted(set(pairs), key=lambda pair: (pair[1], pair[0]))
        place = {pair: number for number, pair in enumerate(windows)}
        return cls(
            at,
            np.array(windows, dtype=np.int32),
            np.array([place[pair] for pair in pairs], dtype=np.int32),
            np.array([settings[one].k for one in at], dtype=np.int32),
            np.array([] if end is None else [end], dtype=np.int32),
        )


def window(setting: Setting) -> tuple[int, int]:
    """Return the shortest and the longest n-gram of a setting; the shortest is 1 where the algorithm has none.

    Raises:
        UsageError: it names no longest n-gram, or one shorter than the shortest.
    """
    shortest = 1 if setting.min is None else setting.min
    if setting.max is None or not 1 <= shortest <= setting.max:
        raise UsageError(f"n-grams from {setting.min} to {setting.max}: both must be given, the shortest first")
    return shortest, setting.max


def continuation(context: NDArray[np.int32], setting: Setting, *, latest: bool) -> NDArray[np.int32]:
    """Return what followed the occurrence that a drafter picks, at most k tokens; nothing where nothing matches.

    Args:
        context: int32, prompt and output so far.
        setting: window and k.
        latest: whether the most recent occurrence is picked, else the earliest.
    """
    tokens = np.ascontiguousarray(context, dtype=np.int32)
    if not tokens.size:
        return tokens
    start = last_match(tokens, *window(setting), latest)
    return tokens[start : start + setting.k]


def checked(name: str, values: Sequence[int]) -> list[int]:
    """Return a parameter's values, each once.

    Raises:
        UsageError: there is none, or one is below 1 or too large.
    """
    if not values:
        raise UsageError(f"{name}: no value given")
    for value in values:
        if not 1 <= value <= _LARGEST:
            raise UsageError(f"{name} must be at least 1 and at most {_LARGEST}: got {value}")
    return list(dict.fromkeys(values))


def none_of(drafter: str, more: Mapping[str, Sequence[float]] | None, known: Sequence[str] = ()) -> None:
    """Check that no parameter is named that a drafter does not have.

    Raises:
        UsageError: one is.
    """
    for name in more or {}:
        if name not in known:
            has = ", ".join(("k", "min", "max", *known))
            raise UsageError(f"{drafter} has no parameter {name!r}: it has {has}")


class VLLMNgram:
    """What both of vLLM's n-gram drafters share: their parameters."""

    name: str
    engine = "vllm"
    shared = False
    rules: Rules

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the engine's own word
        max: Sequence[int] | None = None,  # noqa: A002 - the engine's own word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the grid of these values, see `draftworth.drafters.base.Drafter`.

        As vLLM does: with neither min nor max both are 5, with one of them the other is the same.

        Raises:
            UsageError: an unknown parameter, a value below 1, or no pair with min <= max.
        """
        none_of(self.name, more)
        ks = checked("num_speculative_tokens", VLLM_K if k is None else k)
        check_k("num_speculative_tokens", ks)
        shortest = None if min is None else checked("prompt_lookup_min", min)
        longest = None if max is None else checked("prompt_lookup_max", max)
        if shortest is None and longest is None:
            pairs = [VLLM_WINDOW]
        elif shortest is None or longest is None:
            pairs = [(n, n) for n in shortest or longest or ()]
        else:
            pairs = [(low, high) for low, high in product(shortest, longest) if low <= high]
            if not pairs:
                # `min` and `max` are the parameters here.
                least, most = np.min(shortest), np.max(longest)
                raise UsageError(f"prompt_lookup_min={least} must be <= prompt_lookup_max={most}")
        return [Setting(one, low, high) for low, high in pairs for one in ks]

    def grid(self) -> list[Setting]:
        """Return 64 settings: eight draft lengths for each of eight windows."""
        return [Setting(k, low, high) for low, high in GRID_WINDOWS for k in GRID_K]

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        """Return vLLM's `--speculative-config`."""
        return speculative_config("ngram", setting)

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        """Return the same for all: requests share nothing."""
        del setting, limits, longest
        return None

    def session(self, settings: Sequence[Setting], limits: Limits) -> Session:
        """Begin a replay.

        vLLM's scheduler leaves room for the token that a step samples, so drafts end one token before max_model_len.
        """
        bound = limits.max_model_len
        limit = None if bound is None else bound - 1
        return NgramSession(settings, Rules(self.rules.latest, self.rules.padded, limit))
