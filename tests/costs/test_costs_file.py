"""The costs file: what is written loads again, what is wrong is one line."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from draftworth.costs.base import Costs, EngineMode, Prefill, StepCost
from draftworth.costs.file import costs_folder, load_costs, merge, new_costs, save_costs
from draftworth.costs.ladder import lines
from draftworth.costs.repeats import median_interval
from draftworth.errors import UsageError


def point(batch: int, tokens: int, ms: float, *, how: Any = "prefix", context: int = 512) -> StepCost:
    return StepCost(batch=batch, tokens=tokens, context=context, ms=ms, low=0.9 * ms, high=1.1 * ms, repeats=6, how=how)


def mode(**more: Any) -> EngineMode:
    given = {"kind": "idle", "method": "ngram", "runner": "V1", "batch": 1, "tokens": 1, "ms": 3.0, "low": 2.0}
    return EngineMode(**{**given, "high": 4.0, "step_ms": 13.0, "base_ms": 10.0, "source": "trial x, arm y", **more})


COSTS = Costs(
    created="2026-11-30T00:00:00+00:00",
    engine="vllm",
    model="m",
    graph_sizes=(1, 2, 4, 8),
    points=(point(1, 1, 10, how="concurrency"), point(2, 1, 12, how="concurrency"), point(3, 1, 17, how="concurrency")),
)


def test_what_is_written_loads_again(tmp_path: Path) -> None:
    save_costs(COSTS, tmp_path / "new" / "costs.json")
    assert load_costs(tmp_path / "new" / "costs.json") == COSTS
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["costs.json"]


def test_a_file_of_the_first_version_without_what_came_later_loads(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"schema_version": 1, "created": "2026", "points": [], "what_nobody_knows": 1}')
    assert load_costs(path).points == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no costs file that can be read"),
        ("[1, 2]", "it has no points"),
        ('{"schema_version": 99, "created": "", "points": []}', "schema_version 99; this Draftworth reads up to 1"),
        ('{"schema_version": true, "created": "", "points": []}', "schema_version True"),
        ('{"created": "", "points": [{"batch": 1}]}', r"damaged: points\.0\.tokens: Field required"),
        ('{"created": "", "points": {"a": 1}}', "damaged: points"),
        ("[" * 100_000, "no costs file that can be read"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=why) as caught:
        load_costs(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("part", "changed", "why"),
    [
        ("points", {"ms": 0.0, "low": 0.0}, r"points\.0: ms must be above 0, not 0\.0: a step takes time"),
        ("points", {"ms": -1.0, "low": -2.0}, r"points\.0: ms must be above 0, not -1\.0"),
        ("points", {"high": float("inf")}, r"points\.0: .* all finite"),
        ("points", {"low": float("nan")}, r"points\.0: .* all finite"),
        ("points", {"context": -1}, r"points\.0: context must be at least 0"),
        ("modes", {"base_ms": 0.0}, r"modes\.0: base_ms must be above 0"),
        ("modes", {"step_ms": -3.0}, r"modes\.0: step_ms must be above 0"),
        ("prefills", {"high": 0.0}, r"prefills\.0: .* low <= ms <= high"),
    ],
)
def test_a_time_that_is_none_is_one_line(tmp_path: Path, part: str, changed: dict[str, Any], why: str) -> None:
    one: dict[str, Any] = {
        "points": point(1, 1, 10),
        "modes": mode(),
        "prefills": Prefill(batch=1, context=512, ms=1.0, low=-1.0, high=2.0, repeats=3),
    }
    costs = COSTS.model_copy(update={key: (value,) for key, value in one.items()})
    path = tmp_path / "costs.json"
    save_costs(costs, path)
    assert load_costs(path) == costs
    written = json.loads(path.read_text())
    written[part][0].update(changed)
    path.write_text(json.dumps(written))
    with pytest.raises(UsageError, match=f"damaged: {why}") as caught:
        load_costs(path)
    assert "\n" not in str(caught.value)


def test_an_engine_mode_may_make_steps_cheaper(tmp_path: Path) -> None:
    save_costs(merge(COSTS, [mode(ms=-0.5, low=-1.0, high=0.5)]), tmp_path / "costs.json")
    assert load_costs(tmp_path / "costs.json").modes[0].ms == -0.5


def test_an_interval_that_went_below_nothing_is_cut_with_a_note(tmp_path: Path) -> None:
    # Earlier versions took Student's interval of times as they are.
    below = point(1, 1, 10).model_copy(update={"low": -1.7, "repeats": 2})
    save_costs(COSTS.model_copy(update={"points": (below, point(2, 1, 12))}), tmp_path / "costs.json")
    found = load_costs(tmp_path / "costs.json")
    assert [one.low for one in found.points] == [1.0, 0.9 * 12]
    assert found.notes == ("intervals that went below nothing begin at a tenth of the value: 1 x 1 at 512 (prefix)",)
    save_costs(found, tmp_path / "again.json")
    assert load_costs(tmp_path / "again.json") == found


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        ("cuda, V1 runner", ("cuda", "V1")),
        ("V2 runner", ("", "V2")),
        ("2 x H200", ("2 x H200", None)),
        ("", ("", None)),
    ],
)
def test_the_runner_of_earlier_files_is_found_in_the_machine(
    tmp_path: Path, machine: str, wanted: tuple[str, str | None]
) -> None:
    save_costs(COSTS.model_copy(update={"machine": machine}), tmp_path / "costs.json")
    found = load_costs(tmp_path / "costs.json")
    assert (found.machine, found.runner) == wanted
    if found.runner:
        assert f"{found.runner} runner" in lines(found)[0]


def test_an_interval_that_does_not_hold_its_value_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    save_costs(COSTS.model_copy(update={"points": (point(1, 1, 10).model_copy(update={"low": 11.0}),)}), path)
    with pytest.raises(UsageError, match=r"points\.0: batch and tokens must be at least 1, and low <= ms <= high"):
        load_costs(path)


def test_no_such_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`draftworth probe URL --out"):
        load_costs(tmp_path / "none.json")


def test_new_files_are_named_by_the_time_under_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path))
    path = new_costs()
    assert path.parent == costs_folder() == tmp_path / "costs"
    assert path.suffix == ".json"
    save_costs(COSTS, path)
    assert load_costs(path) == COSTS


def test_merging_keeps_what_was_there_and_replaces_the_same_source() -> None:
    both = merge(merge(COSTS, [mode()], [point(1, 6, 30)], ["a"]), [mode(ms=3.5), mode(source="another")], (), ["a"])
    assert [one.ms for one in both.modes] == [3.5, 3.0]
    assert len(both.points) == 4
    assert both.notes == ("a",)
    assert merge(COSTS) == COSTS


def test_the_text_shows_the_staircase() -> None:
    text = lines(merge(COSTS, [mode()], (), ["a note"]))
    rows = [line for line in text if line.endswith("#")]
    assert [line.rstrip("#")[-1] for line in rows] == ["|", "|", "|"], "1, 2 and 3 run as graphs of 1, 2 and 4"
    alike = lines(COSTS.model_copy(update={"points": (point(3, 1, 17.0), point(4, 1, 17.0))}))
    assert [line.rstrip("#")[-1] for line in alike if line.endswith("#")] == ["|", " "], "one step"
    assert rows[2].count("#") == 40
    assert "    1.70" in rows[2]
    mixed = lines(merge(COSTS, (), [point(1, 6, 30.0)]))
    assert any("    3.00" in line for line in mixed), "against one token of one request, not against the first row"
    assert any("ngram, V1 runner, 1 at a time, steps that draft nothing: +3.000 ms" in line for line in text)
    assert text[-1] == "- a note"


# Repeats.


def test_the_interval_of_six_is_their_range_and_of_twelve_the_third_from_each_end() -> None:
    assert median_interval([3, 1, 2, 6, 5, 4]) == (3.5, 1, 6)
    assert median_interval(range(1, 13)) == (6.5, 3, 10)


def test_outliers_stay_and_few_repeats_have_a_wider_interval() -> None:
    assert median_interval([10, 10, 10, 10, 10, 99])[2] == 99
    middle, low, high = median_interval([10.0, 12.0])
    # Logarithms: their mean is that of sqrt(120), their standard deviation log(1.2) / sqrt(2).
    factor = math.exp(12.706 * math.log(1.2) / 2)
    assert [middle, low, high] == pytest.approx([11, 120**0.5 / factor, 120**0.5 * factor], rel=1e-4)
    with pytest.raises(ValueError, match="1 repeats"):
        median_interval([1.0])


@given(st.lists(st.floats(1e-3, 1e4), min_size=2, max_size=5))
def test_the_interval_of_a_time_is_above_nothing_and_that_of_a_difference_is_not(times: list[float]) -> None:
    middle, low, high = median_interval(times)
    assert 0 < low <= min(times) <= middle <= max(times) <= high
    with pytest.raises(ValueError, match="above 0"):
        median_interval([*times, 0.0])
    assert median_interval([-1.0, 1.0], difference=True) == pytest.approx((0.0, -12.706, 12.706), abs=1e-3)


@given(st.integers(6, 60))
def test_order_statistics_hold_the_median_with_95_percent_and_no_narrower_pair_does(n: int) -> None:
    _, low, high = median_interval([float(one) for one in range(1, n + 1)])
    rank = int(low)
    assert high == n + 1 - rank
    assert 1 - 2 * binom.cdf(rank - 1, n, 0.5) >= 0.95
    assert rank == n // 2 or 1 - 2 * binom.cdf(rank, n, 0.5) < 0.95
