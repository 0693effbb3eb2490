"""What a costs file tells for people: one scale for all bars, and each cell that the server does not take."""

from tests.costs.costs_stair import stairs

from draftworth.bench.base import Access
from draftworth.costs.base import Costs, StepCost
from draftworth.costs.ladder import lines
from draftworth.costs.probe import Options, probe
from draftworth.costs.subject import subject


def point(batch: int, tokens: int, context: int, ms: float, how: str) -> StepCost:
    return StepCost.model_validate(
        {
            "batch": batch,
            "tokens": tokens,
            "context": context,
            "ms": ms,
            "low": ms,
            "high": ms,
            "repeats": 6,
            "how": how,
        }
    )


def test_bars_of_all_tables_have_one_scale() -> None:
    points = (point(1, 1, 64, 10, "concurrency"), point(1, 4, 64, 20, "prefix"), point(1, 1, 512, 40, "concurrency"))
    told = lines(Costs(created="2026", points=points))
    assert [line.count("#") for line in told if "#" in line] == [10, 40, 20]


def test_new_tokens_that_the_server_does_not_take_are_named() -> None:
    options = Options(
        concurrency=(1,), tokens=(3, 100_000), contexts=(64,), repeats=2, output=16, budget_s=20.0, wait_s=0.0
    )
    with stairs() as server:
        found = subject(server.base_url, access=Access())
        limit = found.max_model_len
        costs = probe(found, options)
    assert limit is not None
    told = f"100000 new tokens at 64: left out, beyond the server's {limit:,} tokens (max_model_len)"
    assert told in costs.notes
    assert {one.tokens for one in costs.points} == {1, 3}
