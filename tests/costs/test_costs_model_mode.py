"""What switching speculation on adds to a step: measured, carried over, or from the library."""

from typing import Literal

import numpy as np
import pytest
from benchmarks.mode_form import judge

from draftworth.costs.base import Costs, EngineMode, Prefill, StepCost
from draftworth.costs.model import FittedModel
from draftworth.errors import UsageError

H200 = {1: 3.887, 2: 4.878, 4: 6.320, 8: 8.968, 16: 12.163}
# Of benchmarks/mode_form.py: T and step of the engine in the same process; null draft and k = 3, 5; ms.
CELLS = [
    ("null draft, B = 1", 3.89, 8.06),
    ("null draft, B = 2", 4.88, 7.84),
    ("null draft, B = 4", 6.32, 9.53),
    ("k = 5, B = 1", 8.97, 11.84),
    ("k = 5, B = 2", 10.72, 14.44),
    ("k = 5, B = 4", 14.25, 17.05),
    ("k = 3, B = 1", 6.32, 8.31),
    ("k = 3, B = 2", 8.97, 12.26),
    ("k = 3, B = 4", 11.93, 15.61),
]


def mode(
    batch: int,
    tokens: int,
    ms: float,
    base: float,
    *,
    method: str = "ngram",
    runner: str = "V1",
    mixed: bool = False,
) -> EngineMode:
    return EngineMode(
        kind="idle" if tokens == 1 else "mixed" if mixed else "drafting",
        method=method,
        runner=runner,
        batch=batch,
        tokens=tokens,
        ms=ms,
        low=ms - 0.3,
        high=ms + 0.3,
        step_ms=base + ms,
        base_ms=base,
        source=f"trial of {batch} x {tokens}",
    )


def model(*modes: EngineMode, prefixes: dict[int, float] | None = None, version: str | None = "0.25.0") -> FittedModel:
    points = [
        StepCost(batch=b, tokens=1, context=384, ms=ms, low=ms * 0.99, high=ms * 1.01, repeats=5, how="concurrency")
        for b, ms in H200.items()
    ]
    points += [
        StepCost(batch=1, tokens=n, context=384, ms=ms, low=ms * 0.99, high=ms * 1.01, repeats=5, how="prefix")
        for n, ms in (prefixes or {}).items()
    ]
    costs = Costs(
        created="",
        engine="vllm",
        version=version,
        graph_sizes=(1, 2, 4, 8, 16),
        points=tuple(points),
        modes=modes,
    )
    return FittedModel(costs)


def test_a_measured_step_is_what_was_measured() -> None:
    fitted = model(mode(1, 1, 4.17, 3.887), mode(4, 1, 3.2, 6.32), mode(1, 6, 2.9, 8.968))
    idle = fitted.speculating([1], 384, method="ngram", runner="V1")
    assert idle.ms == pytest.approx(3.887 + 4.17)
    assert idle.measured
    four = fitted.speculating([1] * 4, 384, method="ngram", runner="V1")
    assert four.ms == pytest.approx(6.32 + 3.2)
    drafting = fitted.speculating([6], 384, method="ngram", runner="V1")
    assert drafting.ms == pytest.approx(8.968 + 2.9)
    assert "trial of 1 x 6" in " ".join(drafting.why)


def test_one_streams_step_stands_whatever_its_base_was_taken_for() -> None:
    # The trial took T(6) by concurrency, 8.97; a prefix measured later says 7: the step is as measured.
    fitted = model(mode(1, 6, 2.9, 8.968), mode(1, 1, 4.0, 3.887), prefixes={6: 7.0})
    assert fitted.speculating([6], 384, method="ngram", runner="V1").ms == pytest.approx(8.968 + 2.9)


def far_apart(context: int | None, *, prefills: tuple[int, ...] = (512, 4096, 32768)) -> FittedModel:
    """Return a server of three contexts whose KV caches cost, with a drafting mode that was measured at 512."""
    every = (512, 4096, 32768)

    def true(batch: int, tokens: int, at: int) -> float:
        return 10 + 0.1 * (batch * tokens - 1) + 1e-4 * batch * at

    def at(batch: int, tokens: int, context: int, how: Literal["concurrency", "prefix"], ms: float) -> StepCost:
        return StepCost(batch=batch, tokens=tokens, context=context, ms=ms, low=ms, high=ms, repeats=6, how=how)

    points = [at(b, 1, c, "concurrency", true(b, 1, c)) for c in every for b in (1, 2, 4, 8)]
    points += [at(1, n, c, "prefix", true(2, 1, c) + 0.1 * (n - 2)) for c in every for n in (3, 4, 6, 9)]
    # The trial took T(6) for more than it is: the step, 15.05 ms, is what was measured.
    step = true(1, 6, 512) + 4.5
    drafting = mode(1, 6, 3.7, step - 3.7).model_copy(update={"context": context})
    return FittedModel(
        Costs(
            created="",
            engine="sglang",
            points=tuple(points),
            prefills=tuple(Prefill(batch=1, context=c, ms=0.1, low=0.1, high=0.1, repeats=6) for c in prefills),
            modes=(drafting, mode(1, 1, 2.0, 10.0)),
        )
    )


def test_a_step_is_as_measured_at_the_context_it_was_measured_at() -> None:
    model = far_apart(512)
    found = model.speculating([6], 512, method="ngram", runner=None)
    assert found.ms == pytest.approx(10.5512 + 4.5, rel=1e-9)
    assert found.measured
    assert found.low <= 15.0512 <= found.high
    far = model.speculating([6], 32768, method="ngram", runner=None)
    assert far.ms == pytest.approx(10.5 + 3.2768 + 4.5, rel=1e-9)
    assert not far.measured, "no such step was ever measured"


def test_a_mode_of_an_earlier_file_is_not_measured_at_any_of_several_contexts() -> None:
    found = far_apart(None).speculating([6], 512, method="ngram", runner=None)
    assert found.ms == pytest.approx(10.5512 + 3.7), "beside the T it was measured beside"
    assert not found.measured


def test_between_measured_sizes_it_is_interpolated_and_the_interval_holds_a_ratio() -> None:
    fitted = model(mode(1, 1, 4.0, 3.887), mode(4, 1, 3.0, 6.32))
    two = fitted.speculating([1, 1], 384, method="ngram", runner="V1")
    assert two.ms == pytest.approx(4.878 + 4.0 - 1 / 3)
    sixteen = fitted.speculating([1] * 16, 384, method="ngram", runner="V1")
    assert sixteen.ms == pytest.approx(12.163 + 3.0)
    assert sixteen.high >= 12.163 * (1 + 3.0 / 6.32)
    assert not sixteen.measured


def test_the_kind_of_step_decides() -> None:
    fitted = model(mode(1, 1, 4.0, 3.887), mode(1, 4, 2.0, 6.32))
    assert fitted.speculating([1] * 4, 384, method="ngram", runner="V1").ms == pytest.approx(6.32 + 4.0)
    assert fitted.speculating([4], 384, method="ngram", runner="V1").ms == pytest.approx(6.32 + 2.0)


def test_the_other_kind_stands_in_with_a_wide_interval() -> None:
    found = model(mode(1, 1, 4.0, 3.887)).speculating([4], 384, method="ngram", runner="V1")
    own = model(mode(1, 1, 4.0, 3.887), mode(1, 4, 4.0, 6.32)).speculating([4], 384, method="ngram", runner="V1")
    assert found.ms == pytest.approx(6.32 + 4.0)
    assert found.high - found.low > 2 * (own.high - own.low)
    assert "other kind of step" in " ".join(found.why)


def test_another_method_or_runner_is_another_mode() -> None:
    fitted = model(mode(1, 1, 4.0, 3.887), mode(1, 1, 0.5, 3.887, runner="V2"), mode(1, 1, 9.0, 3.887, method="suffix"))
    found = [
        fitted.speculating([1], 384, method=method, runner=runner).ms - 3.887
        for method, runner in (("ngram", "V1"), ("ngram", "V2"), ("suffix", "V1"))
    ]
    assert found == pytest.approx([4.0, 0.5, 9.0])


def test_the_library_answers_where_nothing_was_measured_and_says_so() -> None:
    idle = model().speculating([1], 384, method="ngram", runner="V1")
    assert "library" in " ".join(idle.why)
    assert not idle.measured
    assert idle.low <= 3.887 + 4.17 <= idle.high  # the H200's own, in process
    assert idle.high > 1.3 * idle.low


def test_a_method_nobody_measured_is_an_error_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"what medusa adds .* null-draft arm .* --add-trial"):
        model().speculating([4], 384, method="medusa", runner=None)


def test_additive_is_the_form_that_tells_held_out_cells_best() -> None:
    errors = judge(CELLS)
    assert errors["additive"]["mean"] <= min(errors[form]["mean"] for form in ("constant", "ratio", "floor"))
    # A floor beneath it does not help by more than a point.
    assert errors["additive"]["mean"] - errors["both"]["mean"] < 1
    assert errors["additive"]["median"] < 4


def test_k_5_is_told_from_null_draft_and_k_3() -> None:
    # One H200, in process. Modes: idle steps, and k = 3 at 1, 2 and 4 streams; judged: steps of the k = 5 arms, whose
    # requests draft 5 tokens with chance c, else none. Those of k = 3 (c = 0.76, 0.73, 0.70; 8.25, 11.94, 15.56 ms a
    # step) are solved for by hand: all of a batch draft with chance c^B, and F is half of the smaller mode.
    modes = [mode(1, 1, 4.17, 3.887), mode(2, 1, 2.96, 4.878), mode(4, 1, 3.21, 6.32)]
    modes += [mode(1, 4, 1.99, 6.32), mode(2, 4, 2.58, 8.968), mode(4, 4, 2.03, 11.93)]
    modes += [mode(2, 4, 4.25, 8.968, mixed=True), mode(4, 4, 4.22, 11.93, mixed=True)]
    fitted = model(*modes)
    for batch, coverage, ms in ((1, 0.73, 10.83), (2, 0.71, 13.88), (4, 0.70, 16.99)):
        found = fitted.expected(np.array([1 - coverage, 0, 0, 0, 0, coverage]), batch, 384, method=("ngram", "V1"))
        assert found.low <= ms <= found.high
        assert found.ms == pytest.approx(ms, rel=0.06)


def test_an_idle_mode_between_two_measured_ones_lies_in_the_interval() -> None:
    found = model(mode(1, 1, 4.17, 3.887), mode(4, 1, 3.21, 6.32)).speculating([1, 1], 384, method="ngram", runner="V1")
    assert found.low <= 7.84 <= found.high
    assert found.ms == pytest.approx(7.84, rel=0.12)


def test_suffix_takes_the_measured_mode_of_n_gram_on_the_same_runner_widened() -> None:
    fitted = model(mode(1, 1, 4.17, 3.887), mode(1, 4, 1.99, 6.32))
    own = fitted.speculating([4], 384, method="ngram", runner="V1", longest=4)
    other = fitted.speculating([4], 384, method="suffix", runner="V1", longest=4)
    assert other.ms == pytest.approx(own.ms)
    assert other.low < own.low < own.high < other.high
    assert any("that of ngram, widened" in reason for reason in other.why)
    assert not other.measured
    assert fitted.knows(("suffix", "V1"))


def test_a_draft_model_takes_nothing_of_n_gram() -> None:
    fitted = model(mode(1, 1, 4.17, 3.887))
    assert not fitted.knows(("eagle3", "V1"))
    with pytest.raises(UsageError, match="nothing is known of what eagle3 adds"):
        fitted.speculating([4], 384, method="eagle3", runner="V1")
    assert not fitted.knows(("suffix", "V2"))


def test_an_idle_step_is_that_of_the_same_k_where_it_was_measured() -> None:
    """A null draft of k = 5 runs padded to six rows a request, one of k = 3 to four."""
    points = tuple(
        StepCost(batch=batch, tokens=1, context=256, ms=4.0, low=3.9, high=4.1, repeats=3, how="concurrency")
        for batch in (1, 2, 4, 8)
    )
    modes = tuple(mode(4, 1, ms, 4.0).model_copy(update={"asked": asked}) for asked, ms in ((4, 2.0), (6, 3.0)))
    model = FittedModel(Costs(created="", engine="vllm", points=points, modes=modes))

    def idle(k: int) -> float:
        shares = np.zeros(k + 1)
        shares[0] = 1.0
        return model.expected(shares, 4, 256, method=("ngram", "V1")).ms - 4.0

    assert [idle(3), idle(5)] == pytest.approx([2.0, 3.0])
    assert idle(8) == pytest.approx(2.5)  # of neither: both


def test_beyond_the_lengths_of_a_batch_its_own_nearest_length_leads() -> None:
    """One request of 9 tokens lies beyond its own k = 5, whatever 4 requests of 2 tokens or 2 of 6 add to 8 and 12."""
    dear = [mode(batch, 2, 9.0, 6.0) for batch in (2, 4, 8)]
    own = [mode(1, 2, 3.0, 4.9), mode(1, 6, 1.0, 9.0)]
    longest = [mode(batch, 6, ms, 10.0) for batch, ms in ((2, 2.0), (4, 2.0), (8, 2.0))]
    base = model(*own, *longest).base([9], 384).ms
    with_others = model(*own, *longest, *dear).speculating([9], 384, method="ngram", runner="V1")
    # Half-way from its own 6 tokens to the 12 of two requests of that length.
    assert with_others.ms - base == pytest.approx((1.0 + 2.0) / 2, abs=0.02)
    assert with_others.low - base < 1.0
    assert not with_others.measured
    # A batch that was not measured: between its neighbours, each at the length that is asked for.
    three = model(*own, *longest, *dear).speculating([4, 4, 4], 384, method="ngram", runner="V1")
    between = [np.interp(4, (2, 6), ends) for ends in ((9.0, 2.0), (9.0, 2.0))]
    assert three.ms - model(*own).base([4, 4, 4], 384).ms == pytest.approx(np.mean(between), abs=0.02)
