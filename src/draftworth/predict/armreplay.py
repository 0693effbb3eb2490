"""The steps of an arm of a finished trial at one point: replayed from its baseline's answers, or from its own counts.

Where requests share what was learned (suffix), what an arm drafts depends on what its server was sent before. That is
known: the arm's own rows, in the order in which they were sent, of every point and repeat since its server started. The
baseline's answers to those prompts are replayed in that order, from an empty state at each start; only those of the
point that is judged are counted. Warm-up requests are not in the rows and so not in the state either. Where servers ran
already before a trial, earlier trials of the same server are taken to have met the same state: with the arm's own
answers, known before this trial. What greedy decoding answered there it is taken to answer again to the same prompt: an
arm that verifies several tokens a step differs from its baseline in near ties, and not from itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from draftworth.costs.arms import draft_shares
from draftworth.drafters import drafter
from draftworth.drafters.base import Limits, Session
from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import UsageError
from draftworth.predict.requests import Requests
from draftworth.predict.speculation import Replayable
from draftworth.predict.trialrows import Load, Measured, Row, batch_of

_BYTES = 64 * 2**20
"""Of a drafter's table at a time, where requests share nothing."""


def replayed(
    trial: Measured, load: Load, found: Replayable, prompts: Sequence[str], earlier: Sequence[Measured] = ()
) -> Requests:
    """Replay the baseline's answers as an arm would have drafted them.

    Args:
        trial: its trial.
        load: the arm at the point that is judged.
        found: its drafter and setting.
        prompts: those that both arms answered there: one entry each, its answers added up.
        earlier: trials of the same running server before this one, in their order.

    Raises:
        UsageError: the baseline's answers have no token ids, or none has a second token.
    """
    counted = _Counted(prompts, found.setting.k)
    answers = [row for row in trial.sent[trial.baseline] if row.timed and row.label == load.label]
    wanted = [row for row in answers if row.prompt in counted.at]
    without = sum(row.prompt_ids is None for row in wanted)
    if without:
        raise UsageError(f"the baseline's answers have no token ids ({without} of {len(wanted)})")
    algorithm = drafter(found.drafter)
    if algorithm.shared:
        limits = Limits(concurrency=load.place.batch)
        for stretches in _as_sent(trial, load, earlier):
            session = algorithm.session([found.setting], limits)
            for rows, judged in stretches:
                counted.feed(session, rows, judged=judged)
    else:
        session = algorithm.session([found.setting], Limits())
        size = max(1, _BYTES // (8 * (found.setting.k + 1) ** 2))
        for first in range(0, len(wanted), size):
            counted.feed(session, wanted[first : first + size], judged=True)
    return counted.requests()


def from_counts(counts: AcceptanceCounts | None, k: int) -> tuple[Requests, float]:
    """Return an arm's own counts as one request, and the standard error of the logarithm of its steps per token.

    Drafts are taken as alike as whole tokens can be. The error is that of as many independent steps; where it is not
    told how many steps accepted how much, they are taken to differ as much as they can.

    Args:
        counts: of the arm at the point; None where they are not known.
        k: most tokens it drafts a step.

    Raises:
        UsageError: they are not known.
    """
    if counts is None or not counts.steps or not counts.emitted or not counts.drafting_steps or not counts.drafted:
        raise UsageError("its counts of steps and drafts are not known at this load")
    shares = draft_shares(counts.steps, counts.drafting_steps, counts.drafted)
    hist = np.zeros((1, max(k + 1, len(shares))))
    hist[0, : len(shares)] = shares * counts.steps
    mean = counts.emitted / counts.steps
    at = np.arange(len(counts.accepted_per_position or ()))
    if counts.accepted_per_position:
        squares = float(np.asarray(counts.accepted_per_position) @ (2 * at + 1)) / counts.steps
    else:
        squares = max(0.0, mean - 1) * max(k, mean - 1)
    variance = max(0.0, squares - (mean - 1) ** 2)
    return Requests(hist, np.array([float(counts.emitted)])), float(np.sqrt(variance / counts.steps)) / mean


def knew(load: Load, earlier: Sequence[Measured]) -> bool:
    """Whether an arm's running server had met prompts of a point in earlier trials.

    Args:
        load: the arm at the point.
        earlier: trials of the same running server before.
    """
    asked = {tuple(row.prompt_ids) for row in load.rows if row.prompt_ids is not None}
    return any(tuple(row.prompt_ids or ()) in asked for one in earlier for row in one.sent.get(load.arm.name, ()))


class _Counted:
    """Steps and tokens by prompt."""

    def __init__(self, prompts: Sequence[str], k: int) -> None:
        self.at = {name: at for at, name in enumerate(prompts)}
        self._hist = np.zeros((len(prompts), k + 1))
        self._tokens = np.zeros(len(prompts))

    def feed(self, session: Session, rows: Sequence[Row], *, judged: bool) -> None:
        """Replay answers; add up those to the prompts, where they are of the point that is judged."""
        if not rows:
            return
        batch = batch_of(rows)
        places = [self.at.get(row.prompt) if judged else None for row in rows]
        # The first group takes whatever is not judged: a table of many requests is large.
        numbers = np.cumsum([place is not None for place in places]) * [place is not None for place in places]
        groups = np.repeat(numbers.astype(np.int32)[:, None], 2, axis=1)
        joint = session.feed(batch, groups, int(numbers.max()) + 1).joint[0]
        for place, number, length in zip(places, numbers, batch.output_lengths, strict=True):
            if place is not None and length > 1:
                self._hist[place] += joint[number].sum(axis=-1)
                self._tokens[place] += length - 1

    def requests(self) -> Requests:
        """Return the prompts that have a step.

        Raises:
            UsageError: none has.
        """
        has = self._tokens > 0
        if not has.any():
            raise UsageError("no answer has a second token")
        return Requests(self._hist[has], self._tokens[has])


_Stretch = tuple[list[Row], bool]
"""Answers that were sent at one point, one behind the other, and whether the point is the one that is judged."""


def _as_sent(trial: Measured, load: Load, earlier: Sequence[Measured]) -> Iterator[list[_Stretch]]:
    """Yield, for each start of the arm's server, the baseline's answers in the order in which the arm was asked.

    Each start of the baseline answers once at least, so that all its answers are used.
    """
    name = load.arm.name
    arm_starts, base_starts = _starts(trial, name), _starts(trial, trial.baseline)
    before: list[_Stretch] = []
    again: dict[tuple[int, ...], Sequence[int]] = {}
    for one in earlier:
        own = [row for row in one.sent.get(name, ()) if row.prompt_ids is not None]
        before += [(list(rows), False) for _, rows in groupby(own, key=lambda row: row.label)]
        if _greedy(one) is not None and _greedy(one) == _greedy(trial):
            again |= {tuple(row.prompt_ids or ()): row.ids for row in own}
    for turn in range(max(len(arm_starts), len(base_starts))):
        start, base_start = arm_starts[turn % len(arm_starts)], base_starts[turn % len(base_starts)]
        stretches = _stretches(trial, name, start, base_start)
        expected = ([_said(row, again) for row in rows] for rows in stretches)
        yield [*before, *((rows, rows[0].label == load.label) for rows in expected)]


def _said(row: Row, again: Mapping[tuple[int, ...], Sequence[int]]) -> Row:
    """Return an answer as the arm itself gave it before, where it did."""
    ids = again.get(tuple(row.prompt_ids or ()))
    return row if ids is None else replace(row, ids=ids)


def _greedy(trial: Measured) -> int | None:
    """Return how long a trial's answers might be, where it decoded greedily; None where it did not."""
    work = trial.record.config.get("workload") or {}
    return None if work.get("temperature") else work.get("max_tokens")


def _starts(trial: Measured, name: str) -> list[int]:
    return list(dict.fromkeys(row.start for row in trial.sent.get(name, ())))


def _stretches(trial: Measured, name: str, start: int, base_start: int) -> Iterator[list[Row]]:
    """Yield what one start of an arm was sent, point by point, as the baseline answered it there."""
    answers = _answers(trial, base_start)
    asked = [row for row in trial.sent.get(name, ()) if row.start == start]
    for label, rows in groupby(asked, key=lambda row: row.label):
        found = []
        for row in rows:
            several = answers.get((label, row.prompt), [])
            found += [*(one for one in several if one.repeat == row.repeat), *several][:1]
        if found:
            yield found


def _answers(trial: Measured, start: int) -> Mapping[tuple[str, str], list[Row]]:
    """Return the baseline's answers whose ids are known, by point and prompt, those of one start first."""
    found: dict[tuple[str, str], list[Row]] = {}
    rows = [row for row in trial.sent.get(trial.baseline, ()) if row.prompt_ids is not None]
    for row in sorted(rows, key=lambda one: (not one.timed, one.start != start)):
        found.setdefault((row.label, row.prompt), []).append(row)
    return found
