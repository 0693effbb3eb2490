import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.llamacpp import LlamaCpp
from draftworth.engines.llamacpp.pages import read_page
from draftworth.engines.llamacpp.per_request import request_counts, request_stats
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data" / "llamacpp"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def last(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = one.get("answer") or one["chunks"][-1]
    return found


@pytest.mark.parametrize("name", ["baseline", "ngram_simple", "ngram_mod"])
def test_each_answer_of_a_real_server_took_the_steps_its_timings_tell(name: str) -> None:
    # Each decode call behind the one that read the prompt is a step: one request ran at a time.
    for one in load(f"{name}_answers.json"):
        stats = request_stats(last(one))
        found = request_counts([stats], "b11434")
        assert stats is not None
        assert found is not None
        assert found.steps == one["decode_calls"] - 1
        assert found.emitted == stats["predicted_n"] - 1


def test_a_stop_inside_a_draft_makes_the_steps_too_few_and_that_is_said() -> None:
    # 44 tokens, 43 accepted: the last draft's tokens behind the stop were accepted and cut off, so no step seems left.
    one = load("ngram_mod_stopped.json")
    timings = one["answer"]["timings"]
    assert (timings["predicted_n"], timings["draft_n_accepted"]) == (44, 43)
    found = request_counts([timings], "b11434")
    assert found is not None
    assert found.steps == 1
    assert one["decode_calls"] - 1 == 6
    assert "a stop cut off" in found.meaning["steps"]


def test_the_answers_of_a_real_server_are_added() -> None:
    stats = [request_stats(last(one)) for one in load("ngram_simple_answers.json")]
    found = request_counts(stats, "b11434")
    assert found is not None
    assert (found.drafted, found.accepted) == (245, 183)
    assert found.emitted == 390 - 9
    assert found.steps == 390 - 9 - 183
    assert found.drafting_steps is None
    assert "draft_n_verif_steps" in found.not_given["drafting_steps"]
    assert "/metrics" in found.not_given["accepted_per_position"]
    assert found.source == "timings of 9 of 9 answers of llama.cpp b11434"


def test_a_stream_tells_its_timings_on_the_last_chunk_beside_the_usage() -> None:
    stream = next(one for one in load("ngram_simple_answers.json") if "chunks" in one)
    assert [request_stats(chunk) is not None for chunk in stream["chunks"]] == [False, False, False, True]
    assert stream["chunks"][-1]["usage"]["completion_tokens"] == stream["chunks"][-1]["timings"]["predicted_n"]
    assert LlamaCpp().request_fields() == {}


def test_an_answer_without_drafts_beside_one_with_drafted_nothing() -> None:
    found = request_counts(
        [{"predicted_n": 10}, {"predicted_n": 20, "draft_n": 8, "draft_n_accepted": 5}, None], version=None
    )
    assert found is not None
    assert (found.drafted, found.accepted, found.emitted, found.steps) == (8, 5, 28, 9 + 14)
    assert found.source == "timings of 2 of 3 answers of llama.cpp"


def test_without_any_draft_and_without_a_build_nothing_is_known_of_drafts() -> None:
    found = request_counts([{"predicted_n": 10}, {"predicted_n": 1}], version=None)
    assert found is not None
    assert found.emitted == 9
    assert found.drafted is found.accepted is found.steps is found.drafting_steps is None
    assert "does not report it" in found.not_given["drafted"]


def test_without_any_draft_a_build_that_reports_them_drafted_nothing() -> None:
    found = request_counts([{"predicted_n": 10}, {"predicted_n": 1}], "b9093")
    assert found is not None
    assert (found.drafted, found.accepted, found.drafting_steps, found.steps) == (0, 0, 0, 9)


def test_older_builds_count_otherwise() -> None:
    answer = {"predicted_n": 10, "draft_n": 8, "draft_n_accepted": 5}
    meanings = [request_counts([answer], version) for version in ("b11434", "b10204", "b9093", None)]
    assert [sorted(one.meaning) if one else None for one in meanings] == [
        ["steps"],
        ["accepted", "steps"],
        ["accepted", "drafted", "steps"],
        ["steps"],
    ]


def test_no_answer_with_timings_is_no_count() -> None:
    assert request_counts([None, None], "b11434") is None
    assert request_counts([], None) is None
    assert request_stats({"timings": {"save_ms": 3.0}}) is None
    assert request_stats({"timings": None}) is None


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        ({"predicted_n": "10"}, "not of the form"),
        ({"predicted_n": -1}, "not of the form"),
        ({"predicted_n": True}, "not of the form"),
        ({"predicted_n": 3.5}, "not of the form"),
        ({"predicted_n": 10, "draft_n": 5}, "without the other"),
        ({"predicted_n": 10, "draft_n": 5, "draft_n_accepted": 6}, "contradict"),
        ({"predicted_n": 10, "draft_n": 5, "draft_n_accepted": 3, "draft_n_verif_steps": 6}, "contradict"),
        ({"predicted_n": 10, "draft_n": float("nan"), "draft_n_accepted": 1}, "not of the form"),
    ],
)
def test_timings_that_cannot_be_are_refused(stats: dict[str, Any], message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        request_counts([stats], "b11434")


def test_props_of_a_real_server_tell_build_model_and_slots_and_not_that_nothing_speculates() -> None:
    document = load("ngram_simple_props.json")
    assert document["default_generation_settings"]["params"]["speculative.types"] == "none"
    found = read_page(document)
    assert found is not None
    assert (found.kind, found.version) == ("/props of llama.cpp", "b11434")
    assert found.model == "/models/SmolLM2-135M-Instruct-bf16.gguf"
    assert found.config == {
        "total_slots": "4",
        "model_ftype": "BF16",
        "endpoint_slots": "true",
        "endpoint_metrics": "true",
        "n_ctx_slot": "4096",
    }
    assert found.counts is None


def test_slots_of_a_real_server_tell_by_what_they_speculate() -> None:
    found = read_page(load("ngram_mod_slots.json"))
    assert found is not None
    assert found.config == {
        "n_slots": "4",
        "n_ctx_slot": "4096",
        "speculative.type": "ngram-mod",
        "speculative.slots": "true",
    }
    plain = read_page(load("baseline_slots.json"))
    assert plain is not None
    assert plain.config["speculative.slots"] == "false"
    assert "speculative.type" not in plain.config


def test_an_answer_is_a_page_with_its_counts() -> None:
    found = read_page(load("ngram_simple_answers.json")[0]["answer"])
    assert found is not None
    assert (found.kind, found.version) == ("an answer of llama.cpp", "b11434")
    assert found.counts is not None
    assert (found.counts.drafted, found.counts.accepted) == (63, 49)
    native = read_page(load("ngram_mod_answers.json")[7]["answer"])
    assert native is not None
    assert native.config == {"speculative.type": "ngram-mod"}
    assert native.findings == ()


def test_settings_that_deny_what_was_drafted_are_a_finding() -> None:
    answer = {
        "generation_settings": {"speculative.types": "none"},
        "timings": {"predicted_n": 10, "draft_n": 8, "draft_n_accepted": 5},
    }
    found = read_page(answer)
    assert found is not None
    assert [one.code for one in found.findings] == [Code.COUNTS_CONTRADICT]
    assert "8 tokens were drafted" in found.findings[0].message


@pytest.mark.parametrize("document", [None, 3, "x", [], [3], {}, {"total_slots": 4}, [{"id": 0}], {"timings": {}}])
def test_what_is_no_page_of_llama_cpp_is_none(document: object) -> None:
    assert read_page(document) is None


@settings(max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "timings",
                        "predicted_n",
                        "draft_n",
                        "draft_n_accepted",
                        "total_slots",
                        "id",
                        "n_ctx",
                        "speculative",
                        "default_generation_settings",
                        "params",
                        "speculative.types",
                        "build_info",
                        "generation_settings",
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=12,
    )
)
def test_any_document_is_a_page_none_or_refused(document: Any) -> None:
    try:
        found = read_page(document)
    except MeasureError:
        return
    if found is not None and found.counts is not None and found.counts.drafted is not None:
        assert (found.counts.accepted or 0) <= found.counts.drafted


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.integers(0, 300), st.integers(0, 300)).filter(lambda one: one[2] <= one[1]),
        min_size=1,
        max_size=8,
    )
)
def test_what_answers_send_is_added_up(answers: list[tuple[int, int, int]]) -> None:
    # (steps, drafted, accepted) of answers that their length ended: one token each step, and what was accepted.
    stats = [
        {"predicted_n": 1 + steps + good, **({"draft_n": drafted, "draft_n_accepted": good} if drafted else {})}
        for steps, drafted, good in answers
    ]
    found = request_counts(stats, "b11434")
    assert found is not None
    assert found.steps == sum(steps for steps, _, _ in answers)
    assert found.drafted == sum(drafted for _, drafted, _ in answers)
    assert found.accepted == sum(good for _, _, good in answers)
