"""No figure is one that no server can give: a verifying step takes no less than a plain one, k drafts bring k + 1."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.test_predict_speedup import Stairs, requests

from draftworth.costs.base import Costs, EngineMode, Estimate, StepCost
from draftworth.costs.file import load_costs
from draftworth.costs.model import FittedModel
from draftworth.drafters.base import Setting
from draftworth.errors import UsageError
from draftworth.predict.base import Needed
from draftworth.predict.heads import needed
from draftworth.predict.speedup import predict_one
from draftworth.reports.predict import _to_pay

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "prediction"
MODELS = [FittedModel(load_costs(path)) for path in sorted(DATA.glob("*/costs-baseline.json"))]


@given(
    st.sampled_from(MODELS),
    st.lists(st.lists(st.integers(0, 40), min_size=5, max_size=5), min_size=1, max_size=4),
    st.integers(1, 70),
    st.integers(30, 900),
    st.sampled_from([None, ("ngram", "V1"), ("suffix", "V1")]),
)
def test_a_speed_up_is_at_most_the_tokens_per_step(
    model: FittedModel, hists: list[list[int]], batch: int, context: int, method: tuple[str, str] | None
) -> None:
    whole = [[float(one) for one in (*hist[:4], hist[4] + 1)] for hist in hists]
    some = requests(*whole, tokens=[1.4 * sum(one) for one in whole])
    found = predict_one(Setting(4, 2, 4), some, model, batch=batch, context=context, method=method)
    assert found.speed_up.low <= found.speed_up.value <= found.speed_up.high
    assert found.speed_up.value <= found.length_per_step * (1 + 1e-9)
    assert found.speed_up.high <= max(1 / found.steps_per_token.low, found.speed_up.value) * (1 + 1e-9)
    assert found.parts.verify_ms >= -1e-9
    assert (found.parts.mode_ms is None) == (method is None) == found.at_best
    if not found.base_measured and method is None:
        # Verifying k + 1 tokens takes at most as long as k + 1 plain steps.
        assert found.speed_up.low >= min(1 / found.steps_per_token.high / 5, found.speed_up.value) * (1 - 1e-9)


def test_noise_of_a_probe_makes_no_step_cheaper() -> None:
    points = [
        StepCost(batch=batch, tokens=1, context=256, ms=ms, low=ms - 0.1, high=ms + 0.1, repeats=6, how="concurrency")
        for batch, ms in ((1, 4.0), (2, 3.8), (4, 5.0))
    ]
    mode = EngineMode(
        kind="idle",
        method="ngram",
        runner="V1",
        batch=1,
        tokens=1,
        ms=-0.5,
        low=-0.9,
        high=0.1,
        step_ms=3.5,
        base_ms=4,
        source="a null draft",
    )
    model = FittedModel(Costs(created="2026", engine="vllm", points=tuple(points), modes=(mode,)))
    verifying = model.base([2], 256)
    assert [verifying.ms, verifying.low] == pytest.approx([4.0, 3.9])
    idle = model.speculating([1], 256, method="ngram", runner="V1", longest=2)
    assert [idle.ms, idle.low] == pytest.approx([4.0, 3.9])


class Head(Stairs):
    """Steps with an interval of a factor, whose engine mode of heads is not known."""

    def expected(
        self, lengths: np.ndarray, batch: int, context: int, *, method: tuple[str, str | None] | None = None
    ) -> Estimate:
        """Return a step without the mode of anything but n-gram."""
        if method is not None and method[0] != "ngram":
            raise UsageError("not known")
        return super().expected(lengths, batch, context, method=method)


def heads(model: Stairs, *ks: int) -> list[Needed]:
    return needed(model, ks=ks, concurrencies=(1,), context=9, method=("eagle3", None), draft_share=0.1)


def test_what_a_head_must_reach_is_told_up_to_what_it_can_reach() -> None:
    (one,) = heads(Head(idle=1, drafting=3), 1)
    # (T(2) + k drafts of 0.25 ms) / T(1) = 3.25 / 2.5 without a mode; at most 3 ms more, which is 2.5.
    assert one.length.value == pytest.approx(1.3)
    assert one.length.high == pytest.approx(2.5)
    assert (one.possible, one.sure) == (True, False)
    assert _to_pay(one) == ("1.30 (1.30 to 2)", "or it cannot pay")
    (never,) = heads(Stairs(idle=1, drafting=9), 1)
    assert not never.possible
    assert _to_pay(never) == ("above 2", "cannot pay: 4.90 or more is needed, 2 is the most")
    (sure,) = heads(Head(idle=1, drafting=3), 3)
    assert sure.sure
    assert _to_pay(sure)[1] == ""
