"""The speed-up of a setting, against arithmetic by hand."""

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.drafters.base import Setting
from draftworth.drafters.counts import SettingCounts, Tally
from draftworth.predict.base import Predicted
from draftworth.predict.heads import needed
from draftworth.predict.speedup import Steps, break_even, predict_one, steps_per_token

STAIRS = (1, 2, 4, 8, 16)


class Stairs:
    """T is 2 ms and 0.5 ms for each token of the padded size; M0 is 1 ms, M1 3 ms. Exact, so without an interval."""

    def __init__(self, idle: float = 1.0, drafting: float = 3.0, spread: float = 1.0) -> None:
        self.idle, self.drafting, self.spread = idle, drafting, spread

    @staticmethod
    def base(tokens: int) -> float:
        """Return T of so many tokens."""
        return 2 + 0.5 * next(size for size in STAIRS if size >= tokens)

    def expected(
        self,
        lengths: NDArray[np.float64],
        batch: int,
        context: int,
        *,
        method: tuple[str, str | None] | None = None,
    ) -> Estimate:
        """Sum over every way in which the requests can draft: slow, and plainly right."""
        del context
        ms = 0.0
        for drafted in product(range(len(lengths)), repeat=batch):
            chance = math.prod(lengths[d] for d in drafted)
            step = self.base(batch + sum(drafted))
            if method is not None:
                step += self.drafting if any(drafted) else self.idle
            ms += chance * step
        return Estimate(ms, ms / self.spread, ms * self.spread, "by hand", measured=True)


def counts(joint: list[list[int]], emitted: int) -> SettingCounts:
    k = len(joint) - 1
    return SettingCounts(Setting(k, 2, 4), Tally(np.array(joint), emitted, k), {}, {}, None, None)


def one(found: SettingCounts, batch: int, model: Stairs | None = None, steps: Steps | None = None) -> Predicted:
    model = model or Stairs()
    total = found.total
    base = model.expected(np.ones(1), batch, 100)
    steps = steps or Steps(total.steps / total.emitted, 0.0)
    return predict_one(found, steps, base, model, batch=batch, context=100, method=("ngram", "V1"))


def test_one_stream_by_hand() -> None:
    # 60 steps draft nothing; 40 draft 3 tokens, 10 accept none, 10 accept one, 20 all three: 40 x 1 + 10 + 60 + 60.
    found = counts([[60, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [10, 10, 0, 20]], emitted=170)
    told = one(found, 1)
    step = 0.6 * (2.5 + 1) + 0.4 * (4.0 + 3)  # T(1) = 2.5, T(4) = 4
    assert told.parts.base_ms == pytest.approx(2.5)
    assert told.parts.verify_ms == pytest.approx(0.4 * 1.5)
    assert told.parts.mode_ms == pytest.approx(0.6 * 1 + 0.4 * 3)
    assert told.parts.step_ms == pytest.approx(step)
    assert told.speed_up.value == pytest.approx(2.5 * 1.7 / step)
    assert told.tpot_ratio.value == pytest.approx(1 / told.speed_up.value)
    assert (told.coverage, told.length_per_drafting_step) == (0.4, 1 + 70 / 40)
    # At the break-even length the same step would emit step / T(1) tokens.
    assert told.break_even_length is not None
    assert 1 + 0.4 * (told.break_even_length - 1) == pytest.approx(step / 2.5)


def test_two_streams_average_the_staircase_and_not_the_tokens() -> None:
    found = counts([[50, 0], [25, 25]], emitted=125)
    told = one(found, 2)
    # 2 tokens (chance 1/4), 3 (1/2, runs as 4), 4 (1/4): T = 3, 4, 4; the mean of 3 tokens alone would say 4.
    verify = 0.25 * 3 + 0.5 * 4 + 0.25 * 4
    mode = 0.25 * 1 + 0.75 * 3
    assert told.parts.base_ms == pytest.approx(3.0)
    assert told.parts.step_ms == pytest.approx(verify + mode)
    assert told.speed_up.value == pytest.approx(3.0 * 1.25 / (verify + mode))


def test_requests_count_alike_and_not_their_tokens() -> None:
    """A trial's ratio is of mean TPOTs over prompts: a long answer weighs as much as a short one."""
    steps = steps_per_token(np.array([10, 900], dtype=np.int32), np.array([20, 1000], dtype=np.int32))
    assert steps.per_token == pytest.approx((0.5 + 0.9) / 2)
    assert steps.log_sd == pytest.approx(np.std([0.5, 0.9], ddof=1) / math.sqrt(2) / 0.7)


def test_the_interval_joins_costs_and_requests() -> None:
    found = counts([[50, 0], [25, 25]], emitted=125)
    sure = one(found, 1)
    assert sure.speed_up.low == sure.speed_up.high == sure.speed_up.value
    costly = one(found, 1, Stairs(spread=1.1))
    few = one(found, 1, steps=Steps(0.8, 0.05))
    both = one(found, 1, Stairs(spread=1.1), Steps(0.8, 0.05))
    width = [math.log(told.speed_up.high / told.speed_up.value) for told in (costly, few, both)]
    assert width[0] == pytest.approx(math.sqrt(2) * math.log(1.1))  # a step and the baseline's, both +- 10 %
    assert width[1] == pytest.approx(1.96 * 0.05)
    assert width[2] == pytest.approx(math.hypot(width[0], width[1]))


@pytest.mark.parametrize(
    ("joint", "emitted", "model", "limit"),
    [
        # The engine's mode costs 4 of 2.5 ms on every step, a draft brings little.
        ([[90, 0], [5, 5]], 105, Stairs(idle=4, drafting=4), "engine mode"),
        # Free mode, but T(4) = 4 against 2.5 for drafts of 3 that are never right.
        ([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [95, 5, 0, 0]], 105, Stairs(0, 0), "acceptance"),
        # k = 1 at a staircase so steep that even certain acceptance does not pay.
        ([[0, 0], [50, 50]], 150, Stairs(idle=0, drafting=3), "engine mode"),
        # A drafting step emits 2 tokens for 3.6 ms, where the baseline takes 5; but a twentieth drafts.
        ([[95, 0], [0, 5]], 105, Stairs(idle=0.08, drafting=0.4), "nothing"),
        ([[95, 0], [0, 5]], 105, Stairs(idle=0.12, drafting=0.6), "coverage"),
        ([[60, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [10, 10, 0, 20]], 170, Stairs(0, 0), "nothing"),
    ],
)
def test_what_stands_in_the_way(joint: list[list[int]], emitted: int, model: Stairs, limit: str) -> None:
    told = one(counts(joint, emitted), 1, model)
    assert told.limit == limit
    assert told.pays == (limit == "nothing")


def test_break_even_needs_drafts() -> None:
    assert break_even(1.5, 0.5) == pytest.approx(2.0)
    assert break_even(0.9, 0.5) == pytest.approx(0.8)  # a step that got cheaper pays even when every draft is wrong
    assert break_even(1.5, 0.0) is None
    assert break_even(1.5, None) is None


def test_a_head_must_bring_back_its_step_and_its_own_time() -> None:
    (first, third) = needed(
        Stairs(),
        ks=(1, 3),
        concurrencies=(1,),
        context=10,
        method=("eagle3", None),
        other=("ngram", "V1"),
        draft_share=0.1,
    )
    assert first.length.value == pytest.approx((3.0 + 3 + 0.25) / 2.5)
    assert not first.possible  # 2.5 tokens a step from a draft of one
    assert third.length.value == pytest.approx((4.0 + 3 + 0.75) / 2.5)
    assert third.possible
