"""Candidates of a grid: names, configurations, and what is refused."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.errors import UsageError
from draftworth.predict.base import Parts, Predicted, Range
from draftworth.search.grid import candidate_of, candidates_of
from draftworth.search.predictions import with_predictions
from draftworth.trials.config import ArmConfig


def test_the_cross_product_of_an_ngram_grid() -> None:
    grid = {"method": "ngram", "k": [1, 3], "prompt_lookup_min": [2], "prompt_lookup_max": [4, 5]}
    found = candidates_of([grid], runners={"ngram": "V1"}, reload_s=90.0).candidates
    assert [one.name for one in found] == ["ngram-k1-2-4", "ngram-k1-2-5", "ngram-k3-2-4", "ngram-k3-2-5"]
    assert found[2].config == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    assert (found[2].k, found[2].min, found[2].max, found[2].group) == (3, 2, 4, ("ngram", "V1", None))
    assert found[2].reload_s == 90.0


def test_a_window_that_cannot_be_is_left_out_with_a_line() -> None:
    grid = {"method": "ngram", "k": [3, 5], "prompt_lookup_min": [2, 5], "prompt_lookup_max": [4]}
    found = candidates_of([grid])
    assert [one.name for one in found.candidates] == ["ngram-k3-2-4", "ngram-k5-2-4"]
    assert found.refused == (
        "the grid: left out prompt_lookup_min = 5 with prompt_lookup_max = 4: the shortest is longer than the longest",
    )


def test_the_engines_own_window() -> None:
    # vLLM: neither given, both are 5; one given, the other is the same.
    plain = candidates_of([{"method": "ngram", "k": 3}]).candidates[0]
    assert (plain.name, plain.min, plain.max) == ("ngram-k3", 5, 5)
    half = candidates_of([{"method": "ngram", "k": 3, "prompt_lookup_max": 4}]).candidates[0]
    assert (half.name, half.min, half.max) == ("ngram-k3-4-4", 4, 4)
    assert "prompt_lookup_min" not in half.config


def test_other_axes_are_in_the_name_where_they_differ() -> None:
    suffix = {"method": "suffix", "k": 8, "suffix_decoding_max_spec_factor": [1.0, 2.0]}
    head = {"method": "eagle3", "k": [2, 3], "model": "/models/some head"}
    found = candidates_of([suffix, head]).candidates
    assert [one.name for one in found] == [
        "suffix-k8-max_spec_factor1.0",
        "suffix-k8-max_spec_factor2.0",
        "eagle3-k2",
        "eagle3-k3",
    ]
    assert found[2].config["model"] == "/models/some head"
    assert found[2].family == found[3].family
    assert found[0].family != found[1].family


def test_what_is_there_twice_is_one() -> None:
    assert len(candidates_of([{"method": "ngram", "k": [3, 3]}, {"method": "ngram", "k": 3}]).candidates) == 1


def test_two_models_of_one_name_are_told_apart() -> None:
    found = candidates_of([{"method": "eagle3", "k": 3, "model": ["/a/head", "/b/head"]}]).candidates
    assert [one.name for one in found] == ["eagle3-k3-head", "eagle3-k3-head-2"]


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"k": [1]}, "no method"),
        ({"method": "ngram", "k": [0]}, "k is 0 and not a whole number of at least 1"),
        ({"method": "ngram", "k": [True]}, "k is True"),
        ({"method": "ngram", "k": ["3"]}, "k is '3'"),
        ({"method": "ngram", "k": []}, "k has no value"),
        ({"method": "ngram"}, "needs k"),
        ({"method": "ngram", "k": 1, "num_speculative_tokens": 2}, "are the same"),
        ({"method": "eagle3", "k": 1}, "needs a model"),
        ({"method": "ngram", "k": 1, "prompt_lookup_min": 5, "prompt_lookup_max": 2}, "no candidate is left"),
        ({"method": "ngram", "k": list(range(1, 600))}, "more than 512"),
        ({"method": "suffix", "x": float("nan")}, "JSON cannot hold"),
    ],
)
def test_one_line_says_what_is_wrong(grid: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as told:
        candidates_of([grid])
    assert "\n" not in str(told.value)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.lists(st.text(min_size=1, max_size=90), min_size=1, max_size=4, unique=True),
)
def test_names_are_distinct_and_names_of_arms(ks: list[int], models: list[str]) -> None:
    found = candidates_of([{"method": "draft_model", "k": ks, "model": models}]).candidates
    assert len({one.name for one in found}) == len(found) == len(set(ks)) * len(models)
    for one in found:
        assert ArmConfig(name=one.name, speculative_config=one.config).name == one.name


def test_a_prediction_becomes_a_log_speed_with_its_standard_error() -> None:
    grid = candidates_of([{"method": "ngram", "k": [3, 5]}]).candidates
    speed = Range(value=1.2, low=1.2 / 1.1, high=1.2 * 1.1)
    one = Predicted(
        k=3,
        concurrency=4,
        steps_per_token=speed,
        length_per_step=1.0,
        coverage=0.5,
        length_per_drafting_step=2.0,
        speed_up=speed,
        tpot_ratio=speed,
        step_ms=speed,
        parts=Parts(base_ms=1.0, verify_ms=0.0, mode_ms=0.0),
        idle_speed_up=1.0,
        break_even_length=None,
        limit="nothing",
    )
    first, second = with_predictions(grid, {"ngram-k3": [one]})
    assert first.predicted is not None
    # log 1.2 = 0.18232; log 1.1 / 1.96 = 0.04863.
    assert first.predicted[4].value == pytest.approx(0.18232, abs=1e-5)
    assert first.predicted[4].sd == pytest.approx(0.04863, abs=1e-5)
    assert second.predicted is None


def test_a_grid_of_sglang_has_its_own_names() -> None:
    eagle = {"algorithm": "EAGLE3", "draft_model_path": "/h", "num_steps": [2, 3], "eagle_topk": 1}
    ngram = {"algorithm": "NGRAM", "num_draft_tokens": [4, 8]}
    found = candidates_of([ngram, eagle], engine="sglang").candidates
    # num_draft_tokens counts the token that is verified anyway; num_steps does not.
    assert [(one.name, one.k) for one in found] == [
        ("NGRAM-k3", 3),
        ("NGRAM-k7", 7),
        ("EAGLE3-k2", 2),
        ("EAGLE3-k3", 3),
    ]
    assert found[0].config == {"algorithm": "NGRAM", "num_draft_tokens": 4}
    assert found[2].more == {"draft_model_path": "/h", "eagle_topk": 1}


def test_a_grid_of_llamacpp_has_its_own_names() -> None:
    found = candidates_of([{"type": ["ngram-simple", "ngram-map-k"], "size_m": [8, 16]}], engine="llamacpp").candidates
    assert [one.name for one in found] == ["ngram-simple-k8", "ngram-simple-k16", "ngram-map-k-k8", "ngram-map-k-k16"]


@pytest.mark.parametrize(
    ("engine", "grid", "says"),
    [
        ("sglang", {"method": "ngram", "k": 3}, "k is vLLM's; name num_draft_tokens or num_steps"),
        ("sglang", {"method": "ngram"}, 'no algorithm: name one, e.g. algorithm = "NGRAM"'),
        ("sglang", {"algorithm": "NGRAM", "num_draft_tokens": 1}, "not a whole number of at least 2"),
        ("sglang", {"algorithm": "EAGLE3", "num_steps": 3}, "EAGLE3 needs a draft_model_path"),
        ("llamacpp", {"type": "draft-simple", "n_max": 3}, "draft-simple needs a model"),
        ("trtllm", {"method": "x"}, "write each as [[arms]]"),
    ],
)
def test_what_is_wrong_in_another_engines_grid(engine: str, grid: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        candidates_of([grid], engine=engine)


def test_an_arm_of_no_grid_is_a_candidate_too() -> None:
    one = candidate_of("mine", {"model": "/draft", "num_speculative_tokens": 4})
    assert (one.name, one.method, one.k, one.config["model"]) == ("mine", "draft_model", 4, "/draft")
    assert candidate_of("file", {"file": "x.yaml"}, engine="trtllm").k is None
