"""Accounts under load against an engine whose parts are known: they come back within their intervals."""

from pathlib import Path
from typing import Any

import pytest
from tests.explain.simulated_batch import Arm, Engine, write

from draftworth.costs.base import Costs, StepCost
from draftworth.explain.base import Account, Cause
from draftworth.explain.whole import explain_trial

NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
NULL = {**NGRAM, "prompt_lookup_min": 60, "prompt_lookup_max": 60}
SYNTHETIC = {**NGRAM, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}
ARMS = {
    "baseline": Arm(None),
    "null-draft": Arm(NULL),
    "synthetic-2": Arm(SYNTHETIC, 0.95, 1 / 3),
    "ngram-3": Arm(NGRAM, 0.4, 0.5),
}
"""The variant drafts in 40 % of its steps: under load nearly all of its steps are mixed."""


def costs(engine: Engine, most: int = 160) -> Costs:
    """T as a probe measures it: B streams that all decode."""
    sizes = tuple(sorted({1, 2, 4, 8, *range(16, most + 1, 16)}))
    points = tuple(
        StepCost(
            batch=b,
            tokens=1,
            context=150,
            ms=engine.t(b),
            low=engine.t(b),
            high=engine.t(b),
            repeats=6,
            how="concurrency",
        )
        for b in sizes
    )
    return Costs(created="2026", engine="vllm", graph_sizes=tuple(range(1, most + 1)), points=points)


def explained(folder: Path, engine: Engine, *, batch: int, seed: int = 0, requests: int = 96) -> tuple[Account, Any]:
    truths = write(folder, engine, ARMS, batch=batch, requests=requests, seed=seed)
    found = explain_trial(folder, costs(engine))
    return next(one for one in found.accounts if one.arm == "ngram-3"), truths["ngram-3"]


def parts_come_back(one: Account, truth: Any, most: float) -> None:
    """Assert that every part lies in its interval, and that the rest is at most this share of the arm's TPOT."""
    parts = {part.cause: part.ms for part in one.parts}
    told: dict[Cause, float] = {"engine mode": truth.mode, "verification": truth.verify, "tokens gained": truth.gained}
    for cause, true in told.items():
        assert parts[cause].low <= true <= parts[cause].high, (cause, true, parts[cause])
    assert parts["rest"].low <= 0 <= parts["rest"].high
    assert abs(parts["rest"].value) < most * one.arm_ms


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("shared", [0.2, 1.0, 1.4])
def test_parts_come_back_whatever_the_kinds_share(tmp_path: Path, batch: int, shared: float) -> None:
    """F is not what the model takes where nothing tells it (half of the smaller mode), and pieces hide."""
    one, truth = explained(tmp_path / "t", Engine(shared=shared, noise=0.02), batch=batch)
    parts_come_back(one, truth, 0.06)


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_parts_come_back_whatever_hides_under_verification(tmp_path: Path, batch: int, hidden: float) -> None:
    """The model takes half of it, and both ends are in its intervals."""
    one, truth = explained(tmp_path / "t", Engine(hidden=hidden, noise=0.02), batch=batch)
    parts_come_back(one, truth, 0.08)


@pytest.mark.parametrize(("batch", "prefill"), [(4, 60.0), (16, 60.0), (16, 200.0)])
def test_prefills_of_others_are_not_called_saved(tmp_path: Path, batch: int, prefill: float) -> None:
    """Each output token waits for the prefills of other requests, however few steps it takes: no step saves them."""
    one, truth = explained(tmp_path / "t", Engine(prefill_ms=prefill, noise=0.02), batch=batch)
    parts = {part.cause: part.ms for part in one.parts}
    assert one.prefill_ms > 0
    assert one.baseline_step_ms == pytest.approx(Engine().t(batch), rel=0.1)
    assert parts["tokens gained"].low <= truth.gained <= parts["tokens gained"].high
    assert parts["rest"].low <= 0 <= parts["rest"].high


def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """Over many noisy trials; 95 % intervals whose errors are taken as all to one side hold more."""
    held = []
    for seed in range(24):
        one, truth = explained(tmp_path / str(seed), Engine(noise=0.1), batch=4, seed=seed, requests=24)
        mode = one.parts[0].ms
        rest = one.parts[-1].ms
        gained = one.parts[-2].ms
        held.append(
            mode.low <= truth.mode <= mode.high
            and rest.low <= 0 <= rest.high
            and gained.low <= truth.gained <= gained.high
        )
    assert sum(held) >= 21, held


def test_synthetic_arms_measure_where_drafts_begin_to_pay(tmp_path: Path) -> None:
    engine = Engine(shared=0.5, pieces=0.5, sampling=0.5, a_token=0.1)
    arms = {
        "baseline": Arm(None),
        "null-draft": Arm(NULL),
        **{
            f"synthetic-{length}": Arm({**SYNTHETIC, "synthetic_acceptance_length": length}, 1.0, (length - 1) / 3)
            for length in (1.0, 1.5, 2.5)
        },
    }
    write(tmp_path / "t", engine, arms, batch=1, requests=64, seed=0)
    (curve,) = explain_trial(tmp_path / "t", costs(engine)).even_curves
    assert (curve.concurrency, curve.k) == (1, 3)
    assert [one.arm for one in curve.points] == ["synthetic-1.0", "synthetic-1.5", "synthetic-2.5"]
    assert [one.length for one in curve.points] == pytest.approx([1.0, 1.5, 2.5], abs=0.1)
    # By hand: a drafting step costs 10.1 + 0.3 + 1.0 = 11.4 ms, the baseline's 10.1.
    assert curve.length == pytest.approx(11.4 / 10.1, abs=0.06)
    assert "pays from 1.1" in curve.text
