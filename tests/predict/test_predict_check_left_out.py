"""What a check of predictions cannot judge is named, with the reason; nothing vanishes and nothing ends the check."""

from pathlib import Path

import pytest
from tests.predict.edited_trial import SYNTHETIC, Record, costs, edited, rewritten, right
from tests.predict.simulated_trial import ngram, simulated

from draftworth.errors import UsageError
from draftworth.predict.check import check_trials


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"method": "ngram"}, "has no num_speculative_tokens"),
        ({"method": "ngram", **SYNTHETIC}, "has no num_speculative_tokens"),
        ({"method": "ngram", "num_speculative_tokens": "5x"}, "num_speculative_tokens is '5x' and not a whole number"),
        ({"method": "ngram", "num_speculative_tokens": "5x", **SYNTHETIC}, "num_speculative_tokens is '5x'"),
        ({"method": "suffix", "suffix_decoding_max_tree_depth": None}, "suffix_decoding_max_tree_depth is None"),
        ({"model": "small", "num_speculative_tokens": 3}, "drafts of method 'draft_model' cannot be replayed"),
        ({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": []}, "prompt_lookup_min is []"),
    ],
)
def test_an_odd_configuration_is_named(tmp_path: Path, config: Record, why: str) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "odd": ngram(3, 2, 4)}, 4)
    edited(folder, lambda record: record["arms"][1]["declared"].update(speculative_config=config))
    checked = check_trials([folder], costs("ngram", "suffix"))
    assert not checked.cells
    assert len(checked.left_out) == 1
    assert checked.left_out[0].startswith("one, odd at 1 at a time: ")
    assert why in checked.left_out[0]


def test_rates_that_the_environment_sets_are_not_replayed(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "forced": ngram(7, 1, 1, **SYNTHETIC)}, 20)

    def by_variable(record: Record) -> None:
        declared = record["arms"][1]["declared"]
        declared["speculative_config"] = ngram(7, 1, 1)
        declared["env"] = {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1"}

    edited(folder, by_variable)
    checked = check_trials([folder], costs("ngram"))
    right(checked, 1)
    assert checked.cells[0].source == "synthetic"


def test_arms_do_not_vanish(tmp_path: Path) -> None:
    arms = dict.fromkeys(("rate", "dead", "late", "ngram"), ngram(3, 2, 4))
    folder = simulated(tmp_path / "one", {"baseline": None, **arms}, 4, points={"a": 60, "b": 110})

    def change(record: Record) -> None:
        record["arms"][1]["points"][1] |= {"load": "open", "concurrency": None}
        record["arms"][2] |= {"points": [], "failed": 8}
        record["config"]["arms"] = [{"name": name} for name in (*arms, "never")]

    edited(folder, change)
    rewritten(
        folder,
        lambda row: (
            None if row["arm"] == "dead" else row | {"retries": int(row["arm"] == "late" and row["point"] == "b")}
        ),
    )
    checked = check_trials([folder], costs("ngram"))
    assert [(cell.arm, cell.concurrency) for cell in checked.cells] == [
        ("rate", 1),
        ("late", 1),
        ("ngram", 1),
        ("ngram", 1),
    ]
    assert sorted(checked.left_out) == [
        "one, dead: nothing was measured of it, 8 requests failed",
        "one, late at b: none of its 4 answers has a time",
        "one, never: it was not measured",
        "one, rate at b: an open loop: how many requests ran at a time is not set, and a prediction needs that",
    ]


def test_an_open_trial_is_named_and_does_not_end_the_check(tmp_path: Path) -> None:
    arms = {"baseline": None, "ngram": ngram(3, 2, 4)}
    rate = edited(simulated(tmp_path / "rate", arms, 4), lambda record: record.update(config={"workload": {"rate": 2}}))
    good = simulated(tmp_path / "good", arms, 4)
    checked = check_trials([rate, good], costs())
    assert [cell.trial for cell in checked.cells] == ["good"]
    assert any(line.startswith("rate, ngram: an open loop") for line in checked.left_out)


def test_a_configuration_for_an_arm_that_no_trial_has_is_refused(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "a": ngram(3, 2, 4), "b": ngram(5, 2, 4)}, 4)
    with pytest.raises(UsageError, match=r"--speculation: no trial has an arm 'c'; there are a, b"):
        check_trials([folder], costs("ngram"), {"c": ngram(3, 2, 4)})


def test_a_baseline_without_ids_is_named(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "ngram": ngram(3, 2, 4)}, 4)
    rewritten(folder, lambda row: row | {"token_ids": [] if row["prompt_id"] == "p1" else row["token_ids"]})
    checked = check_trials([folder], costs("ngram"))
    assert checked.left_out == ("one, ngram at 1 at a time: the baseline's answers have no token ids (1 of 4)",)
