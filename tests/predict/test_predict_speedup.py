"""The speed-up of a setting, against arithmetic by hand."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.drafters.base import Setting
from draftworth.predict.base import Predicted
from draftworth.predict.heads import needed
from draftworth.predict.requests import Requests
from draftworth.predict.speedup import break_even, predict_one

Shares = NDArray[np.float64]
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
        self, lengths: Shares, batch: int, context: int, *, method: tuple[str, str | None] | None = None
    ) -> Estimate:
        """Sum over every way in which the requests can draft: slow, and plainly right."""
        del context
        return self._over(lengths, 0, batch, speculates=method is not None)

    def by_own(
        self, lengths: Shares, batch: int, context: int, *, method: tuple[str, str | None] | None = None
    ) -> list[Estimate]:
        """Sum over every way in which the others can draft."""
        del context
        return [
            self._over(lengths, own, batch - 1, speculates=method is not None, own=True) for own in range(len(lengths))
        ]

    def knows(self, method: tuple[str, str | None]) -> bool:
        """Whether the engine mode is known."""
        return bool(method)

    def _over(self, lengths: Shares, drafts: int, others: int, *, speculates: bool, own: bool = False) -> Estimate:
        ms = 0.0
        for drafted in product(range(len(lengths)), repeat=others):
            chance = math.prod(lengths[d] for d in drafted)
            step = self.base(int(own) + others + drafts + sum(drafted))
            if speculates:
                step += self.drafting if drafts or any(drafted) else self.idle
            ms += chance * step
        return Estimate(ms, ms / self.spread, ms * self.spread, ("by hand",), measured=True)


def requests(*hists: list[float], tokens: list[float]) -> Requests:
    return Requests(np.array(hists, dtype=np.float64), np.array(tokens, dtype=np.float64))


def told(some: Requests, batch: int = 1, model: Stairs | None = None) -> Predicted:
    k = some.hist.shape[1] - 1
    return predict_one(Setting(k, 2, 4), some, model or Stairs(), batch=batch, context=100, method=("ngram", "V1"))


def test_one_stream_by_hand() -> None:
    # 60 steps draft nothing, 40 draft 3 tokens; 100 steps emit 170 tokens.
    found = told(requests([60, 0, 0, 40], tokens=[170]))
    step = 0.6 * (2.5 + 1) + 0.4 * (4.0 + 3)  # T(1) = 2.5, T(4) = 4
    assert found.parts.base_ms == pytest.approx(2.5)
    assert found.parts.verify_ms == pytest.approx(0.4 * 1.5)
    assert found.parts.mode_ms == pytest.approx(0.6 * 1 + 0.4 * 3)
    assert found.step_ms.value == pytest.approx(step)
    assert found.speed_up.value == pytest.approx(2.5 * 1.7 / step)
    assert found.tpot_ratio.value == pytest.approx(1 / found.speed_up.value)
    assert found.coverage == pytest.approx(0.4)
    assert found.length_per_drafting_step == pytest.approx(1 + 70 / 40)
    assert found.idle_speed_up == pytest.approx(2.5 / 3.5)
    # At the break-even length the same step would emit step / T(1) tokens.
    assert found.break_even_length is not None
    assert 1 + 0.4 * (found.break_even_length - 1) == pytest.approx(step / 2.5)


def test_two_streams_average_the_staircase_and_not_the_tokens() -> None:
    found = told(requests([50, 50], tokens=[125]), batch=2)
    # 2 tokens (chance 1/4), 3 (1/2, runs as 4), 4 (1/4): T = 3, 4, 4; the mean of 3 tokens alone would say 4.
    verify = 0.25 * 3 + 0.5 * 4 + 0.25 * 4
    mode = 0.25 * 1 + 0.75 * 3
    assert found.parts.base_ms == pytest.approx(3.0)
    assert found.parts.step_ms == pytest.approx(verify + mode)
    assert found.speed_up.value == pytest.approx(3.0 * 1.25 / (verify + mode))


def test_each_request_counts_alike_as_in_a_trial() -> None:
    """20 short answers that never draft and 20 long ones that always do: mean TPOT over mean TPOT, by hand."""
    short = [[10.0, 0.0, 0.0, 0.0]] * 20
    long = [[0.0, 0.0, 0.0, 300.0]] * 20
    found = told(requests(*short, *long, tokens=[10.0] * 20 + [900.0] * 20))
    # T + M: 3.5 ms a token for the short ones; 7 ms a step of three tokens for the long ones; 2.5 ms without.
    assert found.tpot_ratio.value == pytest.approx((3.5 + 7 / 3) / 2 / 2.5)
    assert found.coverage == pytest.approx((300 / 900) / (1 + 300 / 900))
    assert found.length_per_step == pytest.approx(2 / (1 + 1 / 3))


def test_others_in_the_batch_draft_as_all_steps_do() -> None:
    """A request that never drafts still waits for those that do."""
    found = told(requests([10.0, 0.0], [0.0, 30.0], tokens=[10.0, 60.0]), batch=2)
    # Of all steps 3/4 draft. Own 0: T(2) + M0 or T(3 -> 4) + M1; own 1: T(3 -> 4) + M1 or T(4) + M1.
    idle = 0.25 * (3 + 1) + 0.75 * (4 + 3)
    drafting = 4 + 3
    assert found.tpot_ratio.value == pytest.approx((idle + drafting / 2) / 2 / 3.0)


def test_the_interval_joins_costs_and_requests() -> None:
    some = requests([50, 50], tokens=[125])
    sure = told(some)
    assert sure.speed_up.low == sure.speed_up.high == sure.speed_up.value
    costly = told(some, model=Stairs(spread=1.1))
    assert math.log(costly.tpot_ratio.high / costly.tpot_ratio.value) == pytest.approx(dearer(0.5))
    several = requests([50, 50], [90, 10], [20, 80], tokens=[125, 110, 150])
    cost = np.array([50 * 3.5 + 50 * 6, 90 * 3.5 + 10 * 6, 20 * 3.5 + 80 * 6]) / np.array([125, 110, 150])
    width = 1.96 * cost.std(ddof=1) / math.sqrt(3) / cost.mean()
    few = told(several)
    assert math.log(few.speed_up.high / few.speed_up.value) == pytest.approx(width)
    both = told(several, model=Stairs(spread=1.1))
    idle, drafting = 50 / 125 + 90 / 110 + 20 / 150, 50 / 125 + 10 / 110 + 80 / 150
    assert math.log(both.tpot_ratio.high / both.tpot_ratio.value) == pytest.approx(
        math.hypot(width, dearer(idle / (idle + drafting)))
    )


def dearer(idle: float) -> float:
    """Return the reach of a ratio of one stream whose costs are off by 10 %, T(1) on both sides of it at once.

    T(1) = 2.5, T(2) = 3, M0 = 1, M1 = 3 ms; a share `idle` of the steps drafts nothing.
    """
    alone, step = 2.5, idle * (2.5 + 1) + (1 - idle) * (3 + 3)
    ends = [
        (step + idle * (alone / 1.1 - alone)) / (alone / 1.1) / (step / alone),
        (step + (1 - idle) * 3 * 0.1) / step,
        (step + (idle * 1 + (1 - idle) * 3) * 0.1) / step,
    ]
    return math.hypot(*map(math.log, ends))


def test_where_nothing_is_drafted_and_no_mode_is_added_the_speed_up_is_one_whatever_t_is() -> None:
    never = requests([100, 0], [50, 0], tokens=[100, 50])
    for batch in (1, 3):
        found = told(never, batch, Stairs(idle=0.0, drafting=3.0, spread=1.3))
        assert found.speed_up.model_dump() == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_t_counts_once_where_most_steps_draft_nothing() -> None:
    """95 of 100 steps are the baseline's own: T that is 30 % off says little of the ratio."""
    found = told(requests([95, 5], tokens=[105]), model=Stairs(idle=0.0, drafting=0.0, spread=1.3))
    assert found.speed_up.high / found.speed_up.low < 1.05


def test_prefills_of_others_are_on_both_sides() -> None:
    """By hand: p joins each token's time with and without speculation, so only the ratio is nearer to 1."""
    some = requests([50, 50], tokens=[125])
    plain, shared = (
        predict_one(Setting(1, 2, 4), some, Stairs(), batch=2, context=100, method=("ngram", "V1"), prefill=prefill)
        for prefill in (None, (2.0, 1.0, 3.0))
    )
    step = plain.parts.step_ms
    assert plain.tpot_ratio.value == pytest.approx(0.8 * step / 3)
    assert shared.tpot_ratio.value == pytest.approx((0.8 * step + 2) / (3 + 2))
    assert shared.tpot_ratio.low == pytest.approx((0.8 * step + 3) / (3 + 3))
    assert shared.tpot_ratio.high == pytest.approx((0.8 * step + 1) / (3 + 1))
    assert shared.break_even_length == plain.break_even_length
    assert shared.limit == plain.limit
    assert plain.prefill_ms is None
    assert shared.prefill_ms is not None
    assert shared.idle_speed_up == pytest.approx((3 + 2) / (3 + 1 + 2))


@pytest.mark.parametrize(
    ("some", "batch", "model", "limit"),
    [
        # The engine's mode costs 4 of 2.5 ms on every step, a draft brings little.
        (requests([90, 10], tokens=[105]), 1, Stairs(idle=4, drafting=4), "engine mode"),
        # Free mode, but T(4) = 4 against 2.5 for drafts of 3 that are next to never right.
        (requests([0, 0, 0, 100], tokens=[105]), 1, Stairs(0, 0), "acceptance"),
        # Drafts of one for a step of more than twice the baseline's: M1 is more of it than verifying.
        (requests([0, 100], tokens=[150]), 1, Stairs(idle=0, drafting=3), "engine mode"),
        # A drafting step emits 2 tokens for 3.6 ms, where the baseline takes 5; but a twentieth drafts.
        (requests([95, 5], tokens=[105]), 1, Stairs(idle=0.08, drafting=0.4), "nothing"),
        (requests([95, 5], tokens=[105]), 1, Stairs(idle=0.12, drafting=0.6), "coverage"),
        # Four at a time: if all drafted, 11.5 ms would bring each 3 tokens, where the baseline takes 12.
        (requests([85, 0, 15], tokens=[130]), 4, Stairs(idle=2.5, drafting=1.5), "coverage"),
        (requests([60, 0, 0, 40], tokens=[170]), 1, Stairs(0, 0), "nothing"),
        (requests([100, 0], tokens=[100]), 1, Stairs(), "coverage"),
    ],
)
def test_what_stands_in_the_way(some: Requests, batch: int, model: Stairs, limit: str) -> None:
    found = told(some, batch, model)
    assert found.limit == limit
    assert found.pays == (limit == "nothing")


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 40), min_size=4, max_size=4), st.floats(1, 3)), min_size=1, max_size=6),
    st.integers(1, 3),
)
def test_what_is_told_is_one_account(some: list[tuple[list[int], float]], batch: int) -> None:
    """It pays exactly where the length is above break-even; the parts are the step; weights add up."""
    hists = [[float(one) for one in (*counts[:3], counts[3] + 1)] for counts, _ in some]
    found = told(requests(*hists, tokens=[sum(h) * factor for h, (_, factor) in zip(hists, some, strict=True)]), batch)
    assert found.parts.step_ms == pytest.approx(found.step_ms.value)
    assert found.speed_up.value == pytest.approx(
        found.length_per_step * found.parts.base_ms / found.parts.step_ms, rel=1e-9
    )
    assert found.break_even_length is not None
    assert found.length_per_drafting_step is not None
    if abs(found.speed_up.value - 1) > 1e-9:
        assert (found.length_per_drafting_step > found.break_even_length) == found.pays


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
        draft_share=0.1,
    )
    assert first.length.value == pytest.approx((3.0 + 3 + 0.25) / 2.5)
    assert not first.possible  # 2.5 tokens a step from a draft of one
    assert third.length.value == pytest.approx((4.0 + 3 + 0.75) / 2.5)
    assert third.possible
