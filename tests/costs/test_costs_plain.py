"""F measured by an arm without speculation: mixed steps are told exactly, and the mode by what makes it."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costs.test_costs_arms import counts, trial
from tests.costs.test_costs_graphs import ALL, ARMS, IDLE, SOME, F, _server

from draftworth.costs.base import Costs, EngineMode
from draftworth.costs.graphs import Mixture, mixed_of
from draftworth.costs.model import FittedModel


def _plain(ms: float, runner: str | None = "V1") -> EngineMode:
    return EngineMode(
        kind="plain",
        method="none",
        runner=runner,
        batch=4,
        tokens=1,
        ms=ms,
        low=ms,
        high=ms,
        step_ms=10 + ms,
        base_ms=10,
        source="sync arm",
    )


@given(idle=st.floats(-3, 20), drafting=st.floats(-3, 20), uniform=st.floats(0, 0.9), mixed=st.floats(0.05, 0.9))
def test_a_mixture_with_a_known_share_is_solved(idle: float, drafting: float, uniform: float, mixed: float) -> None:
    each = mixed_of(idle, drafting, F, 2.0)
    both = uniform * drafting + mixed * each
    found = Mixture(uniform, np.array([mixed]), np.array([2.0])).solve_with(both, idle, F)
    assert found == pytest.approx((drafting, each), abs=1e-6)


def _with(costs: Costs, *modes: EngineMode) -> Costs:
    return costs.model_copy(update={"modes": (*costs.modes, *modes)})


def test_mixed_steps_are_exact_where_f_is_measured() -> None:
    costs = _with(_server(*ARMS), _plain(F))
    found = FittedModel(costs).speculating([4, 1, 4, 4], 128, method="ngram", runner="V1", longest=4)
    assert (found.low, found.ms, found.high) == pytest.approx((10 + SOME,) * 3)


def test_f_of_another_runner_says_nothing() -> None:
    costs = _with(_server(*ARMS), _plain(F, "V2"))
    found = FittedModel(costs).speculating([4, 1, 4, 4], 128, method="ngram", runner="V1", longest=4)
    assert found.ms == pytest.approx(10 + IDLE + ALL / 2)


def test_an_arm_that_only_is_scheduled_alike_gives_f(tmp_path: Path) -> None:
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 10.0),
            "sync": (None, counts(900, 900, None, None), 11.0),
        },
    )
    record = json.loads((folder / "trial.json").read_text())
    record["arms"][1]["declared"] = {"args": ["--no-async-scheduling"]}
    (folder / "trial.json").write_text(json.dumps(record))
    from draftworth.costs.arms import modes_from_trial  # noqa: PLC0415 - beside what it is about

    (mode,) = modes_from_trial(folder)[0]
    assert (mode.kind, mode.method, mode.tokens) == ("plain", "none", 1)
    assert mode.ms == pytest.approx(1.0)
    assert mode.base_ms == pytest.approx(10.0)


def test_the_expectation_takes_it(  # by hand: half of each of four requests' steps draft
) -> None:
    costs = _with(_server(*ARMS), _plain(F))
    told = FittedModel(costs).expected(np.array([0.5, 0, 0, 0.5]), 4, 128, method=("ngram", "V1"))
    share = 0.5**4
    assert told.ms == pytest.approx(10 + share * IDLE + share * ALL + (1 - 2 * share) * SOME)
