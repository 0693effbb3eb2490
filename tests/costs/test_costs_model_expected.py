"""The expectation of a step over who drafts how much, against walking through every composition."""

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.costs.base import Costs, EngineMode, StepCost
from draftworth.costs.draws import total_drafted
from draftworth.costs.model import FittedModel
from draftworth.costs.paper.config import read_shape

MOE = read_shape(Path(__file__).parent / "configs" / "qwen3-30b-a3b.json")
H200 = {1: 3.887, 2: 4.878, 4: 6.320, 8: 8.968, 16: 12.163}


def mode(kind: str, batch: int, tokens: int, ms: float, base: float) -> EngineMode:
    return EngineMode(
        kind="idle" if kind == "idle" else "drafting",
        method="ngram",
        runner="V1",
        batch=batch,
        tokens=tokens,
        ms=ms,
        low=ms * 0.9,
        high=ms * 1.1,
        step_ms=base + ms,
        base_ms=base,
        source="trial 1",
    )


def fitted() -> FittedModel:
    points = [
        StepCost(batch=b, tokens=1, context=384, ms=ms, low=ms * 0.99, high=ms * 1.01, repeats=5, how="concurrency")
        for b, ms in H200.items()
    ]
    modes = (mode("idle", 1, 1, 4.17, 3.887), mode("idle", 4, 1, 3.2, 6.32), mode("drafting", 1, 4, 2.0, 6.32))
    return FittedModel(
        Costs(created="", engine="vllm", graph_sizes=(1, 2, 4, 8, 16, 24), points=tuple(points), modes=modes), MOE
    )


@pytest.mark.parametrize("method", [None, ("ngram", "V1")])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_it_is_the_mean_over_every_composition(batch: int, method: tuple[str, str] | None) -> None:
    lengths = np.array([0.45, 0.05, 0.2, 0.3])
    model = fitted()
    wanted = np.zeros(3)
    for drafted in itertools.product(range(4), repeat=batch):
        tokens = [1 + one for one in drafted]
        step = (
            model.base(tokens, 384)
            if method is None
            else model.speculating(tokens, 384, method=method[0], runner=method[1], longest=4)
        )
        wanted += math.prod(lengths[list(drafted)]) * np.array([step.ms, step.low, step.high])
    found = model.expected(lengths, batch, 384, method=method)
    assert (found.ms, found.low, found.high) == pytest.approx(tuple(wanted), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any),
    batch=st.integers(1, 4),
    method=st.sampled_from([None, ("ngram", "V1")]),
)
def test_by_what_one_request_drafts_it_is_the_enumerated_mean_and_its_mean_is_the_whole(
    counts: list[int], batch: int, method: tuple[str, str] | None
) -> None:
    lengths = np.array(counts) / sum(counts)
    model, k = fitted(), len(counts)
    found = model.by_own(lengths, batch, 384, method=method)
    assert len(found) == k
    for own, told in enumerate(found):
        wanted = np.zeros(3)
        for drafted in itertools.product(range(k), repeat=batch - 1):
            tokens = [1 + one for one in (own, *drafted)]
            step = (
                model.base(tokens, 384)
                if method is None
                else model.speculating(tokens, 384, method=method[0], runner=method[1], longest=k)
            )
            wanted += math.prod(lengths[list(drafted)]) * np.array([step.ms, step.low, step.high])
        assert (told.ms, told.low, told.high) == pytest.approx(tuple(wanted), rel=1e-9)
    whole = model.expected(lengths, batch, 384, method=method)
    for part in ("ms", "low", "high"):
        mean = sum(share * getattr(one, part) for share, one in zip(lengths, found, strict=True))
        assert getattr(whole, part) == pytest.approx(mean, rel=1e-12)


def test_many_requests_of_long_drafts_have_the_same_mean_by_own() -> None:
    lengths = np.ones(33) / 33
    found = fitted().by_own(lengths, 64, 384, method=("ngram", "V1"))
    whole = fitted().expected(lengths, 64, 384, method=("ngram", "V1"))
    assert sum(one.ms for one in found) / 33 == pytest.approx(whole.ms, rel=1e-12)


def test_reasons_are_those_of_the_steps_there_are() -> None:
    idle, drafts = fitted().by_own(np.array([0.5, 0.5]), 1, 384, method=("ngram", "V1"))
    assert [one.split(":")[0] for one in idle.why] == ["T of 1 x 1 tokens", "engine mode of idle steps"]
    assert [one.split(":")[-2][-14:] for one in drafts.why[1:]] == ["drafting steps"]


def test_it_is_known_whether_a_mode_is_known_before_anything_is_replayed() -> None:
    model = fitted()
    assert model.knows(("ngram", "V1"))
    assert model.knows(("ngram", None))
    assert model.knows(("ngram", "V2")) is False
    assert model.knows(("suffix", "V1")), "that of n-gram stands in"
    assert model.knows(("suffix", "V2")) is False
    without = FittedModel(model.costs.model_copy(update={"modes": ()}))
    assert without.knows(("ngram", "V1")), "from the library"


def test_a_staircase_is_not_taken_at_its_mean() -> None:
    # Half of the steps carry 1 token and half 4: 2.5 tokens on average, which would run as 4.
    found = fitted().expected(np.array([0.5, 0, 0, 0.5]), 1, 384)
    one, four = (fitted().base([n], 384).ms for n in (1, 4))
    assert found.ms == pytest.approx((one + four) / 2)


def test_a_step_in_which_nobody_drafts_is_the_idle_step() -> None:
    model = fitted()
    plain, idle = model.expected(np.ones(1), 4, 384), model.expected(np.ones(1), 4, 384, method=("ngram", "V1"))
    assert (plain.ms, plain.measured) == (6.32, True)
    assert idle.ms == pytest.approx(6.32 + 3.2)
    assert idle.measured


def test_padded_drafts_never_idle() -> None:
    always = np.array([0, 0, 0, 1.0])
    found = fitted().expected(always, 1, 384, method=("ngram", "V1"))
    assert found.ms == pytest.approx(fitted().speculating([4], 384, method="ngram", runner="V1").ms)
    assert not any("idle" in one for one in found.why)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_distribution_of_drafted_tokens_is_the_enumerated_one(batch: int) -> None:
    lengths = np.array([0.5, 0.0, 0.2, 0.3])
    wanted = np.zeros(3 * batch + 1)
    for drafted in itertools.product(range(4), repeat=batch):
        wanted[sum(drafted)] += math.prod(lengths[list(drafted)])
    assert total_drafted(lengths, batch) == pytest.approx(wanted)


def test_of_two_lengths_it_is_binomial() -> None:
    found = total_drafted(np.array([0.3, 0.7]), 256)
    wanted = [math.comb(256, n) * 0.7**n * 0.3 ** (256 - n) for n in range(257)]
    assert found == pytest.approx(np.array(wanted), rel=1e-9)


def test_many_requests_of_long_drafts_are_quick() -> None:
    lengths = np.ones(65) / 65
    model = fitted()
    start = time.process_time()
    found = model.expected(lengths, 256, 384, method=("ngram", "V1"))
    assert time.process_time() - start < 2
    assert 0 < found.low <= found.ms <= found.high
    chances = total_drafted(lengths, 256)
    assert chances.size == 256 * 64 + 1
    assert chances.sum() == pytest.approx(1)
    assert chances @ np.arange(chances.size) == pytest.approx(256 * 32)


@pytest.mark.parametrize("lengths", [[], [0.5], [1.5, -0.5], [float("nan")]])
def test_what_is_no_distribution_is_a_mistake_of_the_caller(lengths: list[float]) -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        total_drafted(np.array(lengths), 2)
    with pytest.raises(ValueError, match="not 0"):
        total_drafted(np.ones(1), 0)
