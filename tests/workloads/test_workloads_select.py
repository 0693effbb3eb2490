import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth import workloads
from draftworth.errors import UsageError
from draftworth.workloads import Selection


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(categories: str) -> list[dict[str, Any]]:
    return [{"prompt": f"p{i}", "id": i, "category": name} for i, name in enumerate(categories)]


def ids(path: Path, **choice: Any) -> list[str]:
    return [p.id for p in workloads.load(path, Selection(**choice)).prompts]


def test_a_sorted_file_gives_one_of_each_category_in_turn(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", *rows_of("aaabbbcc"))
    assert ids(path) == ["0", "3", "6", "1", "4", "7", "2", "5"]
    assert ids(path, limit=4) == ["0", "3", "6", "1"]
    assert ids(path, prompts_per_category=1) == ["0", "3", "6"]
    assert ids(path, categories=["c", "a"], limit=3) == ["0", "6", "1"]


def test_a_file_without_categories_keeps_its_order_and_is_read_as_far_as_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", *({"prompt": f"p{i}"} for i in range(9)))
    with path.open("a") as file:
        file.write("not JSON\n")
    workload = workloads.load(path, Selection(limit=5))
    assert [p.id for p in workload.prompts] == [f"prompt-{i}" for i in range(1, 6)]
    assert (workload.read_all, workload.left_out) == (False, 0)
    assert any("only as far as needed" in line for line in workload.remarks)
    with pytest.raises(UsageError, match=":10: not JSON"):
        workloads.load(path)


def test_chosen_categories_end_the_reading_when_each_gave_its_share(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", *rows_of("aabbaab"))
    with path.open("a") as file:
        file.write("not JSON\n")
    assert ids(path, categories=["a", "b"], prompts_per_category=2) == ["0", "2", "1", "3"]
    assert ids(path, categories=["a", "b"], limit=3) == ["0", "2", "1"]
    with pytest.raises(UsageError, match="not JSON"):
        ids(path, categories=["a", "b"], limit=7)


def test_an_unknown_category_is_told_with_those_there_are_the_nearest_first(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "x", "category": "math"}, {"prompt": "y", "category": "coding"})
    with pytest.raises(
        UsageError, match=r"p.jsonl: no prompt is of category 'codin'; did you mean 'coding'\? There are: coding, math$"
    ):
        ids(path, categories=["codin"])


def test_a_seed_draws_the_same_everywhere_and_a_smaller_limit_is_the_beginning(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", *rows_of("ab" * 200))
    # Literals: what other machines and versions must draw as well.
    assert ids(path, seed=1, limit=6) == ["102", "225", "113", "10", "385", "173"]
    assert ids(path, seed=1)[:6] == ids(path, seed=1, limit=6)
    assert ids(path, seed=2, limit=6) != ids(path, seed=1, limit=6)
    turned = write(tmp_path / "q.jsonl", *reversed(rows_of("ab" * 200)))
    assert ids(turned, seed=1, limit=50) == ids(path, seed=1, limit=50)


def test_a_seed_draws_each_prompt_about_equally_often(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", *rows_of("a" * 20))
    drawn = Counter(name for seed in range(400) for name in ids(path, seed=seed, limit=5))
    # 100 each expected, with a standard deviation of 8.7.
    assert len(drawn) == 20
    assert all(65 <= count <= 135 for count in drawn.values())


@settings(deadline=None)
@given(
    categories=st.text("abcd", min_size=1, max_size=300),
    cap=st.none() | st.integers(1, 12),
    limit=st.none() | st.integers(1, 40),
    seed=st.none() | st.integers(0, 3),
    some=st.booleans(),
)
def test_what_is_kept_while_reading_is_what_would_be_chosen_from_all(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    categories: str,
    cap: int | None,
    limit: int | None,
    seed: int | None,
    some: bool,
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "choose.jsonl", *rows_of(categories))
    chosen = [categories[0]] if some else None
    everything = ids(path, categories=chosen, seed=seed)
    taken: Counter[str] = Counter()
    expected = []
    for name in everything:
        taken[categories[int(name)]] += 1
        if cap is None or taken[categories[int(name)]] <= cap:
            expected.append(name)
    assert ids(path, categories=chosen, prompts_per_category=cap, limit=limit, seed=seed) == expected[:limit]


def test_arrival_times_order_the_prompts_and_start_with_the_first_chosen(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{t}", "id": t, "category": c, "arrival_s": t} for t, c in ((30, "a"), (10, "b"), (20, "a"))]
    path = write(tmp_path / "p.jsonl", *rows)
    assert [(p.id, p.arrival_s) for p in workloads.load(path).prompts] == [("10", 0), ("20", 10), ("30", 20)]
    only = workloads.load(path, Selection(categories=["a"])).prompts
    assert [(p.id, p.arrival_s) for p in only] == [("20", 0), ("30", 10)]
    assert ids(path, limit=2) == ["10", "20"]
    drawn = [p.arrival_s for p in workloads.load(path, Selection(seed=3)).prompts]
    assert drawn == [0, 10, 20]


def test_later_turns_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"turns": ["a", "b", "c"]}, {"turns": ["d"]})
    workload = workloads.load(path, Selection(first_turn_only=True))
    assert [p.turns for p in workload.prompts] == [(), ()]
    assert workload.turns_left_out == 2
    assert "2 later turns were left out" in workload.remarks


@pytest.mark.parametrize(
    "choice", [Selection(limit=100), Selection(limit=100, seed=1), Selection(prompts_per_category=50)]
)
def test_taking_a_few_of_many_holds_a_few(tmp_path: Path, choice: Selection) -> None:
    path = write(
        tmp_path / "p.jsonl", *({"prompt": f"{i} " + "x" * 1000, "category": "ab"[i % 2]} for i in range(8000))
    )
    workloads.load(path, Selection(limit=1))
    tracemalloc.start()
    chosen = workloads.load(path, choice).prompts
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(chosen) == 100
    # 8000 prompts are more than 12 MB; twice the hundred chosen are 0.4 MB.
    assert peak < 1_500_000
