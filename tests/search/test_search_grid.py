"""Candidates of a grid: names, configurations, and what is refused."""

import re
import time
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
        ({"method": "ngram", "k": list(range(1, 600))}, "599 combinations, more than 512"),
        ({"algorithm": "NGRAM", "k": 3}, 'no method: name one, e.g. method = "ngram" (algorithm is SGLang\'s key)'),
        ({"type": "ngram-mod"}, "(type is llama.cpp's key)"),
        ({"spec_type": "ngram-mod"}, "(spec_type is llama.cpp's key)"),
        ({"method": "ngarm", "k": 3}, "vLLM has no method 'ngarm'; the nearest is 'ngram'"),
        ({"method": ["ngram", "EAGLE3"], "k": 3}, "vLLM has no method 'EAGLE3'; the nearest is 'eagle3'"),
        ({"method": "zzz", "k": 3}, "there are ngram, eagle, draft_model, eagle3, medusa,"),
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
        ("sglang", {"method": "ngram"}, "(method is vLLM's key)"),
        ("sglang", {"type": "ngram-mod"}, "(type is llama.cpp's key)"),
        ("sglang", {"speculative_algorithm": "NGRAM"}, "write algorithm for speculative_algorithm"),
        ("sglang", {"algorithm": "EAGEL3"}, "SGLang has no algorithm 'EAGEL3'; the nearest is 'EAGLE3'"),
        ("llamacpp", {"method": "ngram"}, 'no type: name one, e.g. type = "ngram-simple" (method is vLLM\'s key)'),
        ("llamacpp", {"--spec-type": "ngram-mod"}, "write type for --spec-type"),
        ("llamacpp", {"type": "ngram-mud"}, "llama.cpp has no type 'ngram-mud'; the nearest is 'ngram-mod'"),
        ("llamacpp", {"type": "draft-mtp,ngram-mud"}, "llama.cpp has no type 'ngram-mud'"),
        ("trtllm", {"method": "x"}, "write each as [[arms]]"),
    ],
)
def test_what_is_wrong_in_another_engines_grid(engine: str, grid: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        candidates_of([grid], engine=engine)


@pytest.mark.parametrize(
    ("engine", "grid"),
    [
        ("sglang", {"algorithm": "ngram"}),  # 0.5.12 and later take any case
        ("llamacpp", {"type": "draft-mtp, ngram-mod"}),
        ("llamacpp", {"type": "mtp"}),  # a name of older builds
        ("vllm", {"method": "deepseek_mtp", "k": 1}),
        ("vllm", {"method": "custom_class", "k": 1}),
    ],
)
def test_methods_that_the_engines_own_data_knows_are_taken(engine: str, grid: dict[str, Any]) -> None:
    assert len(candidates_of([grid], engine=engine).candidates) == 1


def test_a_method_that_no_data_knows_is_refused_in_a_grid_alone() -> None:
    assert candidate_of("mine", {"method": "of_next_year", "num_speculative_tokens": 2}).method == "of_next_year"


def test_a_large_grid_is_refused_at_once_with_its_count() -> None:
    many = list(range(1, 4000))
    began = time.process_time()
    with pytest.raises(UsageError, match=r"has 15,992,001 combinations, more than 512"):
        candidates_of([{"method": "ngram", "k": many, "prompt_lookup_min": many}])
    assert time.process_time() - began < 1


def test_values_that_are_there_twice_do_not_make_a_grid_large() -> None:
    found = candidates_of([{"method": "ngram", "k": [3, 1, 3] * 500, "prompt_lookup_max": [2] * 400}])
    assert [one.name for one in found.candidates] == ["ngram-k3-2-2", "ngram-k1-2-2"]
    factor = candidates_of([{"method": "suffix", "k": 8, "suffix_decoding_max_spec_factor": [1, 1.0, 1.5]}])
    assert [one.name for one in factor.candidates] == ["suffix-k8-max_spec_factor1", "suffix-k8-max_spec_factor1.5"]


def test_the_candidates_of_several_grids_together_are_counted() -> None:
    grids = [{"method": "ngram", "k": list(range(low, low + 300))} for low in (1, 301)]
    with pytest.raises(UsageError, match=r"up to grid 2 there are 600 candidates, more than 512"):
        candidates_of(grids)


def test_a_full_grid_takes_no_time() -> None:
    began = time.process_time()
    grid = {"method": "ngram", "k": list(range(1, 33)), "prompt_lookup_max": list(range(1, 17))}
    assert len(candidates_of([grid]).candidates) == 512
    assert time.process_time() - began < 2


def test_k_of_an_eagle_grid_is_its_steps_and_its_tree_tells_candidates_apart() -> None:
    head = {"algorithm": "EAGLE3", "draft_model_path": "/h", "eagle_topk": 4}
    trees = candidates_of([{**head, "num_steps": [3, 5], "num_draft_tokens": [8, 16]}], engine="sglang").candidates
    assert [(one.name, one.k) for one in trees] == [
        ("EAGLE3-k3-num_draft_tokens8", 3),
        ("EAGLE3-k3-num_draft_tokens16", 3),
        ("EAGLE3-k5-num_draft_tokens8", 5),
        ("EAGLE3-k5-num_draft_tokens16", 5),
    ]
    assert trees[0].more == {"draft_model_path": "/h", "eagle_topk": 4, "num_draft_tokens": 8}
    # The same in all is not told.
    one = candidates_of([{**head, "num_steps": [3, 5], "num_draft_tokens": 8}], engine="sglang").candidates
    assert [each.name for each in one] == ["EAGLE3-k3", "EAGLE3-k5"]
    plain = candidates_of([{**head, "num_draft_tokens": [4, 8]}], engine="sglang").candidates
    assert [(each.name, each.k) for each in plain] == [("EAGLE3-k3", 3), ("EAGLE3-k7", 7)]


def test_steps_of_what_is_no_eagle_are_told_beside_k() -> None:
    grid = {"algorithm": "DFLASH", "num_draft_tokens": 4, "num_steps": [1, 5]}
    found = candidates_of([grid], engine="sglang").candidates
    assert [(one.name, one.k, one.more) for one in found] == [
        ("DFLASH-k3-num_steps1", 3, {"num_steps": 1}),
        ("DFLASH-k3-num_steps5", 3, {"num_steps": 5}),
    ]


def test_a_window_of_what_looks_nothing_up_is_in_no_name_and_makes_no_further_start() -> None:
    (one,) = candidates_of([{"method": "suffix", "k": 2, "prompt_lookup_max": 4}]).candidates
    assert (one.name, one.min, one.max) == ("suffix-k2", None, None)
    assert one.config["prompt_lookup_max"] == 4  # what was written is sent
    mixed = {"method": ["ngram", "suffix"], "k": 2, "prompt_lookup_min": [2, 5], "prompt_lookup_max": [3, 4]}
    found = candidates_of([mixed])
    assert [one.name for one in found.candidates] == ["ngram-k2-2-3", "ngram-k2-2-4", "suffix-k2"]
    assert len(found.refused) == 2  # of n-gram alone


def test_an_arm_of_no_grid_is_a_candidate_too() -> None:
    one = candidate_of("mine", {"model": "/draft", "num_speculative_tokens": 4})
    assert (one.name, one.method, one.k, one.config["model"]) == ("mine", "draft_model", 4, "/draft")
    assert candidate_of("file", {"file": "x.yaml"}, engine="trtllm").k is None
