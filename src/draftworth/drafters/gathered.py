"""Adding up what a drafter counts, batch by batch, by category and phase."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Counts, Setting
from draftworth.drafters.bootstrap import Units
from draftworth.drafters.counts import SettingCounts, Tally, added
from draftworth.drafters.limits import MOST_CATEGORIES, PHASES
from draftworth.traces.base import TraceBatch

OTHERS = "(others)"
"""The name of the categories that are counted together."""
MOST_COMPARED = 1_000_000
"""Requests that are remembered, 8 bytes each and what a set takes, to see whether they come again."""
_FEWEST_TOKENS = 2
"""Output tokens of a request that has a step: the first comes from prefill."""

# How a request's steps are told apart: two kinds a request, while it thinks and while it answers. A request that thinks
# to its end has kinds of its own, since only there is a last step that the recording cuts known to be a thinking one.
_THINKING, _ANSWER, _ONLY_THINKING, _NOT_KNOWN = range(4)
_KINDS = PHASES


@dataclass(slots=True)
class Seen:
    """What the replayed requests are, without their steps.

    Attributes:
        requests: replayed requests that have steps.
        no_output: requests without an output token: they have no step.
        one_token: requests whose only output token came from prefill: they have no step either.
        prompt_tokens: of all replayed requests.
        output_tokens: of all replayed requests.
        inexact: of `requests`, those whose ids come from text that was tokenised again.
        repeated: of the first million `requests`, those whose prompt and output an earlier one had.
        sampled: of `requests`, those with a temperature above 0.
        thinking_not_known: of `requests`, those that do not say how much of them is reasoning.
        categories: category to how many of `requests`.
        models: the models that answered, as far as they are told.
        tokenizer_hashes: of the tokenizers that made the ids, as far as they are told.
    """

    requests: int = 0
    no_output: int = 0
    one_token: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    inexact: int = 0
    repeated: int = 0
    sampled: int = 0
    thinking_not_known: int = 0
    categories: dict[str, int] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    tokenizer_hashes: list[str] = field(default_factory=list)


class Gathered:
    """Adds up what batches give.

    Args:
        settings: what is replayed.
        most: categories that are counted one by one; the requests of further ones are counted together.
    """

    def __init__(self, settings: Sequence[Setting], most: int = MOST_CATEGORIES) -> None:
        self._settings = list(settings)
        self._most = most
        self._categories: dict[str, int] = {}
        self._joint: dict[int, NDArray[np.int64]] = {}
        self._emitted: dict[int, int] = {}
        self._known: set[int] = set()
        self.seen = Seen()
        self.units = Units(len(self._settings))

    def add(
        self, batch: TraceBatch, feed: Callable[[TraceBatch, NDArray[np.int32], int], Counts]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Replay a batch. Returns the tokens of each request's steps [R], 0 where it has none, and its steps [S, R]."""
        lengths = batch.output_lengths
        emitted = np.maximum(lengths - 1, 0)
        groups = self._groups(batch)
        # Only the groups of this batch are counted by the drafter: its table stays small whatever the categories.
        present, local = np.unique(groups, return_inverse=True)
        counts = feed(batch, local.reshape(groups.shape).astype(np.int32), len(present))
        has = lengths >= _FEWEST_TOKENS
        _check(counts, emitted, has)
        for at, group in enumerate(present.tolist()):
            table = counts.joint[:, at]
            if group in self._joint:
                self._joint[group] += table
            else:
                self._joint[group] = table.copy()
        # The tokens of a request that thinks first are kept with its answer; `_phases` takes them apart.
        whole = np.bincount(np.searchsorted(present, groups[:, 1]), weights=emitted, minlength=len(present))
        for group, some in zip(present.tolist(), whole.tolist(), strict=True):
            self._emitted[group] = self._emitted.get(group, 0) + int(some)
        self.units.add(emitted[has], counts.steps[:, has])
        self._look(batch, lengths, has)
        return emitted, counts.steps

    def _groups(self, batch: TraceBatch) -> NDArray[np.int64]:
        """Return the group of each request's steps while it thinks and while it answers, [R, 2]."""
        category = np.empty(len(batch), dtype=np.int64)
        for at, name in enumerate(batch.categories):
            number = self._categories.get(name)
            if number is None:
                if len(self._categories) >= self._most:
                    name = OTHERS  # noqa: PLW2901 - counted under another name
                number = self._categories.setdefault(name, len(self._categories))
            category[at] = number
        thinking = batch.thinking
        unknown, whole = thinking < 0, (thinking >= batch.output_lengths) & (thinking > 0)
        kinds = np.empty((len(batch), 2), dtype=np.int64)
        kinds[:, 0] = np.select([unknown, whole], [_NOT_KNOWN, _ONLY_THINKING], _THINKING)
        kinds[:, 1] = np.select([unknown, whole], [_NOT_KNOWN, _ONLY_THINKING], _ANSWER)
        return category[:, None] * _KINDS + kinds

    def _look(self, batch: TraceBatch, lengths: NDArray[np.int64], has: NDArray[np.bool_]) -> None:
        seen = self.seen
        seen.requests += int(has.sum())
        seen.no_output += int((lengths == 0).sum())
        seen.one_token += int((lengths == 1).sum())
        seen.prompt_tokens += int(batch.prompt_lengths.sum(dtype=np.int64))
        seen.output_tokens += int(lengths.sum())
        self._repeats(batch, has)
        seen.inexact += int((has & ~batch.exact).sum())
        seen.sampled += int((has & (batch.temperatures > 0)).sum())
        seen.thinking_not_known += int((has & (batch.thinking < 0)).sum())
        for name, there in zip(batch.categories, has.tolist(), strict=True):
            if there:
                known = name if name in self._categories else OTHERS
                seen.categories[known] = seen.categories.get(known, 0) + 1
        for value, values in ((batch.model, seen.models), (batch.tokenizer_hash, seen.tokenizer_hashes)):
            if value is not None and value not in values:
                values.append(value)

    def _repeats(self, batch: TraceBatch, has: NDArray[np.bool_]) -> None:
        """Count requests that came before, by a hash of 64 bits."""
        offsets, prompts = batch.offsets.tolist(), batch.prompt_lengths.tolist()
        for at in np.flatnonzero(has).tolist():
            if len(self._known) >= MOST_COMPARED:
                return
            row = batch.tokens[offsets[at] : offsets[at + 1]]
            mark = hash((prompts[at], row.tobytes()))
            self.seen.repeated += mark in self._known
            self._known.add(mark)

    def settings(self, seed: int) -> list[SettingCounts]:
        """Return what was counted, setting by setting."""
        limits = self.units.limits(seed=seed)
        return [self._setting(at, setting, limits[at]) for at, setting in enumerate(self._settings)]

    def _setting(self, at: int, setting: Setting, limit: tuple[float, float] | None) -> SettingCounts:
        by_category: dict[str, list[Tally]] = {}
        by_phase: dict[str, list[Tally]] = {}
        for name, number in self._categories.items():
            if name not in self.seen.categories:
                continue  # none of its requests has a step
            for phase, tally in self._phases(number * _KINDS, at, setting.k):
                by_category.setdefault(name, []).append(tally)
                by_phase.setdefault(phase, []).append(tally)
        low, high = (None, None) if limit is None else _possible(limit, setting)
        return SettingCounts(
            setting,
            total=added(one for some in by_category.values() for one in some),
            by_category={name: added(some) for name, some in by_category.items()},
            by_phase={name: added(some) for name, some in by_phase.items()},
            low=low,
            high=high,
        )

    def _phases(self, base: int, at: int, k: int) -> list[tuple[str, Tally]]:
        """Return a category's phases that have steps, with their tallies."""
        found = [
            (phase, Tally(self._joint[base + kind][at], self._emitted[base + kind], k))
            for phase, kind in (("thinking", _ONLY_THINKING), ("not_known", _NOT_KNOWN))
            if base + kind in self._joint and self._joint[base + kind].any()
        ]
        if base + _ANSWER in self._joint:
            thinking, answer = (Tally(self._joint[base + kind][at], 0, k) for kind in (_THINKING, _ANSWER))
            tokens = self._emitted[base + _THINKING] + self._emitted[base + _ANSWER]
            # A step emits what it accepts and one more; that one is missing where the recording ends first. Such a
            # last step is an answering one, unless there are more of them than answering steps that accepted.
            cut = thinking.steps + thinking.accepted + answer.steps + answer.accepted - tokens
            in_answer = min(cut, answer.accepted)
            for phase, one, less in (("thinking", thinking, cut - in_answer), ("answer", answer, in_answer)):
                if one.steps:
                    found.append((phase, Tally(one.joint, one.steps + one.accepted - less, k)))
        return found


def _possible(limit: tuple[float, float], setting: Setting) -> tuple[float, float]:
    """Return an interval without what no traffic can give: a step emits at least 1 token and at most k + 1."""
    low, high = (min(max(one, 1.0), setting.k + 1.0) for one in limit)
    return low, high


def _check(counts: Counts, emitted: NDArray[np.int64], has: NDArray[np.bool_]) -> None:
    """Stop where a drafter's counts contradict the recording: a bug must not become a figure.

    Raises:
        RuntimeError: they do.
    """
    table = counts.joint.sum(axis=1)
    steps, accepted = table.sum(axis=(1, 2)), table.sum(axis=1) @ np.arange(table.shape[-1])
    cut = steps + accepted - emitted.sum()
    whole = (steps == counts.steps.sum(axis=1, dtype=np.int64)) & (cut >= 0) & (cut <= has.sum())
    if not whole.all() or (counts.steps[:, has] < 1).any() or counts.steps[:, ~has].any():
        at = int(np.argmin(whole))
        raise RuntimeError(
            f"setting {at}: {steps[at]} steps that accepted {accepted[at]} tokens cannot emit {emitted.sum()}"
        )
