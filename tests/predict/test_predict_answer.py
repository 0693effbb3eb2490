"""The lines of a prediction are of one answer: it pays, none pays, or it cannot be told without these reloads."""

import pytest
from tests.predict.test_predict_advice import told

from draftworth.drafters import drafter
from draftworth.predict.advice import duration, pays, reloads, undecided, verdict
from draftworth.predict.base import Predicted
from draftworth.predict.settings import common, describe

V1 = drafter("vllm-ngram-v1")
SUFFIX = {"suffix_decoding_max_tree_depth": 24.0, "suffix_decoding_max_spec_factor": 1.0}


def at_best(one: Predicted) -> Predicted:
    return one.model_copy(update={"parts": one.parts.model_copy(update={"mode_ms": None})})


@pytest.mark.parametrize(
    ("speed", "width", "answer"),
    [(1.4, 0.05, "pays"), (1.12, 0.5, "open"), (0.49, 1.0, "open"), (0.9, 0.05, "none"), (1.0, 0.019, "none")],
)
def test_there_are_three_answers_by_the_interval(speed: float, width: float, answer: str) -> None:
    one = told(3, 1, speed, width=width)
    assert (pays(one), undecided(one)) == (answer == "pays", answer == "open")
    said = verdict([one], chosen=reloads([one], V1, 60.0), arms=["null-draft"], reload_s=60.0)
    begins = {
        "pays": "It pays: ",
        "none": "None of them pays. ",
        "open": "It cannot be told without 2 reloads of 60 s (",
    }
    assert said.startswith(begins[answer])
    # What to reload is named where something is to be reloaded, and nowhere else.
    assert bool(reloads([one], V1, 60.0)) == (speed > 1.02)


def test_what_cannot_be_told_names_its_reloads_and_what_they_take() -> None:
    some = [told(3, 1, 1.12, width=0.5), told(5, 1, 1.1, width=0.5)]
    said = verdict(some, chosen=reloads(some, V1, 600.0), arms=["null-draft"], reload_s=600.0)
    assert said.startswith(
        "It cannot be told without 3 reloads of 10 min "
        "(k = 3 (n-grams of 2 to 4); k = 5 (n-grams of 2 to 4); and back)."
    )
    wide = [told(3, 1, 0.5, width=0.9)]
    said = verdict(wide, chosen=(), arms=["null-draft", "synthetic-5"], reload_s=25.0)
    assert said.startswith(
        "It cannot be told without 3 reloads of 25 s (null-draft; synthetic-5; and back), which measure the engine's "
        "mode; by its best value none pays."
    )
    measured = verdict(wide, chosen=(), arms=(), reload_s=None)
    assert measured.startswith("It cannot be told without 2 reloads (k = 3 (n-grams of 2 to 4); and back); by its best")


def test_without_any_engine_mode_nothing_is_ranked_as_worth_a_trial() -> None:
    some = [at_best(told(3, 1, 1.42)), at_best(told(5, 1, 1.3))]
    assert reloads(some, drafter("sglang-ngram"), 60.0) == ()
    assert not any(map(pays, some))
    said = verdict(some, chosen=(), arms=(), reload_s=60.0)
    assert said.startswith("It cannot be told: what speculation itself adds to a step is not known.")
    assert "k = 3 (n-grams of 2 to 4) at 1 at a time, is predicted at best, without engine mode, 1.42 times" in said
    # Even at best slower: that needs no measurement.
    assert verdict([at_best(told(3, 1, 0.9))]).startswith("None of them pays.")


def test_a_load_that_was_not_probed_may_be_open_where_none_pays() -> None:
    said = verdict([told(3, 1, 0.9), told(3, 64, 1.2, width=0.5, probed=False)])
    assert said.startswith("None of them pays. The nearest, k = 3 (n-grams of 2 to 4) at 1 at a time")
    assert "it cannot be told at 64 at a time" in said


def test_a_k_that_drafts_never_reach_is_no_second_candidate() -> None:
    one = told(12, 1, 1.4)
    assert [found.k for found in reloads([one, one.model_copy(update={"k": 16})], V1, None)] == [12]


def test_settings_are_told_apart_by_what_differs() -> None:
    some = [told(5, 1, 1.1, more={**SUFFIX, "suffix_decoding_min_token_prob": p}) for p in (0.05, 0.4)]
    some = [one.model_copy(update={"min": None, "max": None, "drafter": "vllm-suffix"}) for one in some]
    assert [describe(one, some) for one in some] == ["k = 5 (min_token_prob 0.05)", "k = 5 (min_token_prob 0.4)"]
    assert common(some) == ["All with suffix_decoding_max_tree_depth 24, suffix_decoding_max_spec_factor 1"]
    assert describe(some[0]) == "k = 5 (max_tree_depth 24, max_spec_factor 1, min_token_prob 0.05)"
    both = [*some, told(5, 1, 1.1).model_copy(update={"drafter": "vllm-ngram-v1"})]
    assert describe(both[0], both) == "vllm-suffix, k = 5 (min_token_prob 0.05)"
    assert describe(both[2], both) == "vllm-ngram-v1, k = 5 (n-grams of 2 to 4)"


def test_times_are_seconds_below_two_minutes() -> None:
    assert [duration(one) for one in (25.0, 119.0, 120.0, 1800.0)] == ["25 s", "119 s", "2 min", "30 min"]
