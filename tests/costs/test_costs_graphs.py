"""Three kinds of steps of the V1 runner, against F, P and R that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.costs.base import Costs, EngineMode, StepCost
from draftworth.costs.graphs import WAYS, Mixture, in_pieces, mixed_mode, mixed_of
from draftworth.costs.model import FittedModel

F, P, R = 1.0, 3.0, 1.5
IDLE, ALL, SOME = F + P, F + R, F + P + R


def test_a_mixed_step_has_what_each_kind_has() -> None:
    assert mixed_mode(IDLE, ALL, 0.0, F / ALL) == pytest.approx(SOME)
    assert max(IDLE, ALL) <= SOME <= IDLE + ALL


def test_what_is_below_nothing_is_not_shared() -> None:
    assert mixed_mode(-1.0, 2.0, 0.0) == pytest.approx(1.0)


def test_pieces_hide_under_the_work_of_verification_and_no_further() -> None:
    # P = 3 ms of launches: 1 ms of work hides at most 1 of them, 8 ms at most all 3.
    assert [mixed_of(IDLE, ALL, F, 1.0, hidden) for hidden in (0.0, 0.5, 1.0)] == pytest.approx([5.5, 5.0, 4.5])
    assert [mixed_of(IDLE, ALL, F, 8.0, hidden) for hidden in (0.0, 0.5, 1.0)] == pytest.approx([5.5, 4.0, ALL])
    assert mixed_of(0.5, 2.0, F, 8.0) == pytest.approx(1.5), "nothing is there to hide where pieces cost nothing"


def test_other_runners_and_servers_without_graphs_have_two_kinds() -> None:
    assert in_pieces(("ngram", "V1"), (1, 2))
    assert in_pieces(("suffix", None), (1, 2)), "a server between endpoints does not tell its runner"
    assert not in_pieces(("ngram", "V2"), (1, 2))
    assert not in_pieces(("eagle3", None), (1, 2))
    assert not in_pieces(("ngram", "V1"), ())


def _mixture(uniform: float, mixed: list[tuple[float, float]]) -> Mixture:
    return Mixture(uniform, np.array([share for share, _ in mixed]), np.array([work for _, work in mixed]))


STEPS = st.lists(st.tuples(st.floats(0.05, 0.9), st.floats(0, 12)), min_size=1, max_size=4)
"""Share and work of the mixed steps of an arm."""


@given(
    idle=st.floats(-3, 20),
    drafting=st.floats(-3, 20),
    uniform=st.floats(0.01, 0.9),
    mixed=STEPS,
    way=st.tuples(st.sampled_from((0.0, 0.3, 0.5, 0.9)), st.sampled_from((0.0, 0.5, 1.0))),
)
def test_solving_a_mixture_returns_its_kinds(
    idle: float, drafting: float, uniform: float, mixed: list[tuple[float, float]], way: tuple[float, float]
) -> None:
    each = [mixed_mode(idle, drafting, work, *way) for _, work in mixed]
    both = uniform * drafting + sum(share * one for (share, _), one in zip(mixed, each, strict=True))
    one, some = _mixture(uniform, mixed).solve(both, idle, *way)
    assert one == pytest.approx(drafting, abs=1e-6)
    assert some == pytest.approx(np.average(each, weights=[share for share, _ in mixed]), abs=1e-6)


@given(both=st.floats(-5, 40), idle=st.floats(-3, 20), uniform=st.floats(0.0, 0.9), mixed=STEPS)
def test_every_solution_explains_what_was_measured(
    both: float, idle: float, uniform: float, mixed: list[tuple[float, float]]
) -> None:
    whole = sum(share for share, _ in mixed)
    for free, hidden in WAYS:
        one, some = _mixture(uniform, mixed).solve(both, idle, free, hidden)
        assert uniform * one + whole * some == pytest.approx(both, abs=1e-6)


def _server(*modes: tuple[str, int, int, float], runner: str = "V1", graphs: tuple[int, ...] = (1, 2, 4, 8)) -> Costs:
    """A server whose T is 10 ms whatever the step, and whose modes are exact."""
    points = tuple(
        StepCost(batch=batch, tokens=1, context=128, ms=10, low=10, high=10, repeats=6, how="concurrency")
        for batch in (1, 2, 4, 8, 16)
    )
    found = tuple(
        EngineMode.model_validate(
            {
                "kind": kind,
                "method": "ngram",
                "runner": runner,
                "batch": batch,
                "tokens": tokens,
                "context": 128,
                "ms": ms,
                "low": ms,
                "high": ms,
                "step_ms": 10 + ms,
                "base_ms": 10,
                "source": f"{kind} arm",
            }
        )
        for kind, batch, tokens, ms in modes
    )
    return Costs(created="", engine="vllm", graph_sizes=graphs, points=points, modes=found)


ARMS = (("idle", 4, 1, IDLE), ("drafting", 4, 4, ALL))


def test_a_batch_of_which_some_drafts_costs_more_than_one_of_which_all_do() -> None:
    model = FittedModel(_server(*ARMS))
    method = {"method": "ngram", "runner": "V1", "longest": 4}
    assert model.speculating([4, 4, 4, 4], 128, **method).ms == pytest.approx(10 + ALL)  # type: ignore[arg-type]
    assert model.speculating([1, 1, 1, 1], 128, **method).ms == pytest.approx(10 + IDLE)  # type: ignore[arg-type]
    some = model.speculating([4, 1, 4, 4], 128, **method)  # type: ignore[arg-type]
    short = model.speculating([4, 3, 4, 4], 128, **method)  # type: ignore[arg-type]
    for one in (some, short):
        assert one.ms == pytest.approx(10 + IDLE + ALL / 2)
        assert one.low == pytest.approx(10 + IDLE)
        assert one.high == pytest.approx(10 + IDLE + ALL)
        assert one.low <= 10 + SOME <= one.high
        assert any("mixed" in reason and "in pieces" in reason for reason in one.why)
        assert not one.measured


def test_a_measured_mixed_mode_stands() -> None:
    model = FittedModel(_server(*ARMS, ("mixed", 4, 4, SOME)))
    some = model.speculating([4, 1, 4, 4], 128, method="ngram", runner="V1", longest=4)
    assert (some.low, some.ms, some.high) == pytest.approx((10 + SOME,) * 3)
    assert some.why[-1] == "engine mode of mixed steps: mixed arm"


def test_the_expectation_weighs_the_three_kinds() -> None:
    model = FittedModel(_server(*ARMS, ("mixed", 4, 4, SOME)))
    told = model.expected(np.array([0.5, 0.0, 0.0, 0.5]), 4, 128, method=("ngram", "V1"))
    idle = every = 0.5**4
    assert told.ms == pytest.approx(10 + idle * IDLE + every * ALL + (1 - idle - every) * SOME)


@pytest.mark.parametrize("kind", [{"runner": "V2"}, {"graphs": ()}])
def test_without_pieces_all_drafting_steps_are_alike(kind: dict[str, object]) -> None:
    costs = _server(*ARMS, **kind)  # type: ignore[arg-type]
    runner = str(kind.get("runner", "V1"))
    some = FittedModel(costs).speculating([4, 1, 4, 4], 128, method="ngram", runner=runner, longest=4)
    assert some.ms == pytest.approx(10 + ALL)


def test_verification_hides_the_launches_of_a_mixed_step() -> None:
    # T grows by 2 ms a token: seven tokens have 6 ms of work beyond four, more than the 3.75 ms that pieces add.
    costs = _server(*ARMS)
    points = tuple(
        one.model_copy(update=dict.fromkeys(("ms", "low", "high"), 2.0 + 2 * one.batch)) for one in costs.points
    )
    model = FittedModel(costs.model_copy(update={"points": points, "graph_sizes": tuple(range(1, 17))}))
    some = model.speculating([4, 1, 1, 1], 128, method="ngram", runner="V1", longest=4)
    work = model.base([4, 1, 1, 1], 128).ms - model.base([1, 1, 1, 1], 128).ms
    pieces = IDLE - ALL / 2
    assert work > pieces
    assert some.ms == pytest.approx(model.base([4, 1, 1, 1], 128).ms + pieces + ALL - pieces / 2)
