"""Engine modes out of finished trials: which arms tell them, and what cannot be told is said."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftworth.costs.arms import draft_shares, modes_from_trial
from draftworth.costs.base import Costs, StepCost
from draftworth.costs.model import FittedModel
from draftworth.errors import UsageError

TRIALS = Path(__file__).parents[2] / "benchmarks" / "data"


def point(batch: int, tokens: int, ms: float, *, context: int = 512) -> StepCost:
    return StepCost(
        batch=batch, tokens=tokens, context=context, ms=ms, low=0.9 * ms, high=1.1 * ms, repeats=6, how="prefix"
    )


NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
NULL = {**NGRAM, "prompt_lookup_min": 60, "prompt_lookup_max": 60}
SYNTHETIC = {**NGRAM, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}


def counts(steps: int, emitted: int, drafting: int | None, drafted: int | None) -> dict[str, Any]:
    return {
        "steps": steps,
        "emitted": emitted,
        "drafting_steps": drafting,
        "drafted": drafted,
        "accepted": None if drafted is None else emitted - steps,
        "source": "test",
    }


def trial(
    tmp_path: Path, arms: Mapping[str, tuple[dict[str, Any] | None, dict[str, Any], float]], *, batch: int = 1
) -> Path:
    """Write a trial: arm to its speculative configuration, its counts, and its TPOT."""
    folder = tmp_path / "20260101-000000"
    folder.mkdir()
    record = {
        "schema_version": 2,
        "id": folder.name,
        "draftworth": "0",
        "created": "2026",
        "verdict": "inconclusive",
        "reason": "",
        "restored": True,
        "config": {"workload": {"concurrency": [batch]}},
        "arms": [
            {
                "name": name,
                "engine": "vllm",
                "runner": "V1",
                "declared": {"speculative_config": config, "args": [], "env": {}},
                "acceptance": acceptance,
            }
            for name, (config, acceptance, _) in arms.items()
        ],
    }
    (folder / "trial.json").write_text(json.dumps(record))
    rows = [
        {
            "arm": name,
            "point": "",
            "block": block,
            "prompt_id": f"p{number}",
            "ok": number != 9,
            "retries": 0,
            "prompt_tokens": 200,
            "tokens": 101,
            "decode_ms": tpot * 100 * (1 + 0.01 * (number % 3 - 1)),
            "tpot_ms": tpot * (1 + 0.01 * (number % 3 - 1)),
        }
        for block, (name, (_, _, tpot)) in enumerate(arms.items(), 1)
        for number in range(10)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    return folder


def test_a_null_draft_arm_gives_m0_and_a_synthetic_one_m1(tmp_path: Path) -> None:
    # By hand: T(1) = 10, M0 = 3, T(6) = 20, M1 = 4; 40 of 100 steps draft, and 150 tokens leave 100 steps.
    # A step is 0.6 x 13 + 0.4 x 24 = 17.4 ms, a token 11.6 ms.
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 10.0),
            "synthetic": (SYNTHETIC, counts(100, 150, 40, 200), 11.6),
            "null": (NULL, counts(900, 900, 0, 0), 13.0),
            "real": (NGRAM, counts(600, 900, 300, 1000), 8.0),
        },
    )
    told: list[str] = []
    modes, points = modes_from_trial(folder, [point(1, 6, 20.0, context=250)], explain=told)
    assert [one.kind for one in modes] == ["idle", "drafting"]
    idle, drafting = modes
    assert (idle.ms, idle.base_ms, idle.step_ms) == pytest.approx((3.0, 10.0, 13.0), rel=1e-6)
    assert (drafting.ms, drafting.base_ms, drafting.step_ms) == pytest.approx((4.0, 20.0, 24.0), rel=1e-6)
    assert drafting.tokens == 6
    for one in modes:
        assert one.low <= one.ms <= one.high
        assert (one.method, one.runner, one.batch) == ("ngram", "V1", 1)
    assert drafting.high - drafting.low >= 4.0, "the interval of T(6), 18 to 22, is part of it"
    assert [(one.how, one.batch, one.tokens, one.context, round(one.ms, 6)) for one in points] == [
        ("arm", 1, 1, 250, 10)
    ]
    assert told == []


def test_a_lookup_that_finds_a_match_now_and_then_is_a_null_draft_arm_and_its_steps_are_counted(tmp_path: Path) -> None:
    # As measured, with a lookup of 60: 41 of 21,893 steps drafted, which gave 22,067 tokens; TPOT 25.65 ms.
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 23.7),
            "null": ({**NGRAM, "prompt_lookup_min": 60}, counts(21_893, 22_067, 41, 205), 25.65),
        },
    )
    modes, _ = modes_from_trial(folder)
    assert [one.ms for one in modes] == pytest.approx([25.65 * 22_067 / 21_893 - 23.7])


@pytest.mark.parametrize(
    ("config", "drafting", "is_null"),
    [
        ({"prompt_lookup_min": 30}, 4, True),
        ({"prompt_lookup_max": 60}, 4, True),  # vLLM takes the one that is given for both
        ({"prompt_lookup_min": 60}, 6, False),  # of 1,000: more than now and then
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 60}, 4, False),
        ({}, 4, False),
        ({"prompt_lookup_min": 2}, 0, False),  # drafted nothing at all: still what an operator would run
        ({"prompt_lookup_min": "60"}, 4, False),
    ],
)
def test_a_real_drafter_that_finds_next_to_nothing_is_no_null_draft_arm(
    tmp_path: Path, config: dict[str, Any], drafting: int, *, is_null: bool
) -> None:
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 10.0),
            "ngram": ({**NGRAM, **config}, counts(1000, 1000 + drafting, drafting, 5 * drafting), 13.0),
        },
    )
    modes, _ = modes_from_trial(folder)
    assert [one.kind for one in modes] == (["idle"] if is_null else [])


def test_a_mode_belongs_to_the_longest_draft_that_was_asked_for_and_its_step_stays_as_measured(tmp_path: Path) -> None:
    # k = 5, of which drafting steps drafted 3.2 on average: 3 four times of five, else 4. T(4) = 15, T(5) = T(6) = 21,
    # M0 = 3, M1 = 4: half of the steps 13 ms, half 0.8 x 19 + 0.2 x 25 = 20.2; 16.6 ms a step of 1.5 tokens.
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 10.0),
            "null": (NULL, counts(900, 900, 0, 0), 13.0),
            "synthetic": (SYNTHETIC, counts(1000, 1500, 500, 1600), 16.6 / 1.5),
        },
    )
    known = [point(1, 4, 15.0, context=250), point(1, 5, 21.0, context=250), point(1, 6, 21.0, context=250)]
    modes, own = modes_from_trial(folder, known)
    drafting = modes[1]
    assert drafting.ms == pytest.approx(4.0, rel=1e-6)
    assert (drafting.tokens, drafting.context) == (6, 250)
    assert drafting.mean_tokens == pytest.approx(4.2)
    assert modes[0].context == 250
    costs = Costs(created="", engine="vllm", points=(*known, *own), modes=tuple(modes))
    shares = draft_shares(1000, 500, 1600, 5)
    assert shares.size == 6
    found = FittedModel(costs).expected(shares, 1, 250, method=("ngram", "V1"))
    assert found.ms == pytest.approx(16.6, rel=1e-6)
    # Beside other T of the same steps, as a later probe may measure, the measured step stands.
    later = (point(1, 4, 14.0, context=250), point(1, 5, 19.0, context=250), point(1, 6, 23.0, context=250))
    moved = costs.model_copy(update={"points": (*own, *later)})
    assert FittedModel(moved).expected(shares, 1, 250, method=("ngram", "V1")).ms == pytest.approx(16.6, rel=1e-6)


def test_draft_shares_end_at_the_longest_draft_or_at_what_was_asked_for() -> None:
    assert draft_shares(1000, 500, 1600) == pytest.approx([0.5, 0, 0, 0.4, 0.1])
    assert draft_shares(1000, 500, 1600, 5) == pytest.approx([0.5, 0, 0, 0.4, 0.1, 0])
    assert draft_shares(10, 10, 50, 5) == pytest.approx([0, 0, 0, 0, 0, 1])


def test_an_arm_that_nobody_says_the_configuration_of_gives_no_mode(tmp_path: Path) -> None:
    told: list[str] = []
    arms = {"baseline": (None, counts(9, 9, None, None), 10.0), "null": (None, counts(9, 9, 0, 0), 13.0)}
    modes, points = modes_from_trial(trial(tmp_path, arms), explain=told)
    assert (modes, len(points)) == ([], 1)
    assert told[0] == "null: the trial does not say what it was started with (speculative_config of the arm)"


def test_an_arm_that_shares_no_prompt_with_its_baseline_gives_no_mode(tmp_path: Path) -> None:
    arms = {
        "baseline": (None, counts(9, 9, None, None), 10.0),
        "null": (NULL, counts(9, 9, 0, 0), 13.0),
        "synthetic": (SYNTHETIC, counts(100, 150, 100, 500), 12.0),
    }
    folder = trial(tmp_path, arms)
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    for row in rows:
        row["prompt_id"] += row["arm"]
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    told: list[str] = []
    assert modes_from_trial(folder, [point(1, 6, 20.0)], explain=told)[0] == []
    assert told[0] == "null: it and its baseline answered no prompt in common"


def test_several_at_a_time_share_a_step(tmp_path: Path) -> None:
    # Two requests, each drafting 5 in half of its steps: a quarter of the steps carries 2 tokens, half 7, a quarter 12.
    # T(2) = 10, T(7) = 13, T(12) = 20; M0 = 3, M1 = 5: 14 + 3/4 + 15/4 = 18.5 ms a step. T at the mean of a drafting
    # step, 8.67 tokens, would be another.
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 10.0),
            "null": (NULL, counts(900, 900, 0, 0), 13.0),
            "synthetic": (SYNTHETIC, counts(100, 150, 50, 250), 18.5 / 1.5),
        },
        batch=2,
    )
    modes, _ = modes_from_trial(folder, [point(7, 1, 13.0), point(12, 1, 20.0)])
    assert modes[1].ms == pytest.approx(5.0, rel=1e-6)
    assert (modes[1].batch, modes[1].tokens) == (2, 6)


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    folder = trial(
        tmp_path,
        {
            "baseline": (None, counts(900, 900, None, None), 10.0),
            "synthetic": (SYNTHETIC, counts(100, 150, 40, 200), 11.6),
        },
    )
    told: list[str] = []
    assert modes_from_trial(folder, explain=told)[0] == []
    assert told[0] == "synthetic at 1: T of 6 tokens a step was not measured; probe it (--tokens 6)"
    told.clear()
    assert modes_from_trial(folder, [point(1, 6, 20.0)], explain=told)[0] == []
    assert told[0].startswith(
        "synthetic at 1: 60% of its requests' steps draft nothing, and no null-draft arm of ngram tells"
    )


def test_a_real_trial_with_a_real_drafter_gives_no_mode() -> None:
    told: list[str] = []
    modes, points = modes_from_trial(TRIALS / "demo_trial", explain=told)
    assert modes == []
    assert "no null-draft or synthetic arm" in told[-1]
    # trial.json has the baseline's TPOT over all requests: 14.366 ms.
    assert [round(one.ms, 3) for one in points] == [14.366]
    assert points[0].low < 14.366 < points[0].high


def test_a_trial_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no record yet|no trial\.json"):
        modes_from_trial(tmp_path)
    folder = trial(tmp_path, {"baseline": (None, counts(9, 9, None, None), 10.0)})
    (folder / "requests.parquet").write_text("nothing")
    with pytest.raises(UsageError, match="cannot be read"):
        modes_from_trial(folder)
