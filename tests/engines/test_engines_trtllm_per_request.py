import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.bench.base import RequestRow
from draftworth.bench.sse import decode
from draftworth.bench.timing import StreamTimer
from draftworth.engines.base import AcceptanceCounts
from draftworth.engines.trtllm import TensorRTLLM
from draftworth.errors import MeasureError

DATA = Path(__file__).parent / "data" / "trtllm"
ENGINE = TensorRTLLM()


def answer(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return loaded


def float32(value: float) -> float:
    result: float = struct.unpack("f", struct.pack("f", value))[0]
    return result


def counts(*answers: dict[str, Any] | None) -> AcceptanceCounts:
    found = ENGINE.request_counts([a and ENGINE.request_stats(a) for a in answers], "1.2.1")
    assert found is not None
    return found


def ended(tokens: int, iterations: int, finish: str | None = "stop", **choice: object) -> dict[str, Any]:
    return {
        "choices": [
            {"index": 0, "avg_decoded_tokens_per_iter": float32(tokens / iterations), "finish_reason": finish, **choice}
        ],
        "usage": {"completion_tokens": tokens},
    }


def test_steps_come_back_from_the_average_and_the_tokens() -> None:
    # 55 tokens in 30 iterations, the first of each from prefill: 54 tokens left 29 decode steps.
    found = counts(answer("answer_1.1.json"))
    assert (found.steps, found.emitted) == (29, 54)
    assert found.length_per_step == 54 / 29
    assert found.drafted is None
    assert "PR #19311" in found.not_given["drafted"]
    assert set(found.not_given) == {"drafting_steps", "drafted", "accepted", "accepted_per_position"}
    assert found.source == "choices of 1 of 1 answers of TensorRT-LLM 1.2.1"


def test_exact_counts_on_the_choice_are_read() -> None:
    found = counts(answer("answer_pr19311.json"), None)
    assert (found.drafting_steps, found.drafted, found.accepted) == (20, 60, 30)
    assert found.accepted_per_position == (12, 12, 6)
    assert found.length_per_drafting_step == 2.5
    assert (found.steps, found.emitted) == (20, 50)
    assert found.not_given == {}
    assert "1 of 2 answers" in found.source


def test_an_end_token_that_may_not_be_shown_makes_the_steps_a_range() -> None:
    # 1 token an iteration: 10 tokens took 10 iterations, or 11 with an end token that the answer does not show.
    found = counts(ended(10, 10))
    assert found.steps is None
    assert found.between == {"steps": (9, 10)}
    assert found.emitted == 9
    assert "9 to 10" in found.why_not("steps")
    assert counts(ended(10, 10, "length")).steps == 9


def test_a_figure_that_was_rounded_on_the_way_gives_a_range() -> None:
    found = counts(ended(1000, 545, "length", avg_decoded_tokens_per_iter=1.83))
    assert found.between["steps"] == (544, 546)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"choices": [{"avg_decoded_tokens_per_iter": 1.5}]}, "number of tokens"),
        (ended(10, 5, "stop", stop_reason="###"), "stop string"),
        (
            {"choices": [ended(10, 5)["choices"][0], ended(10, 5)["choices"][0]], "usage": {"completion_tokens": 20}},
            "several choices",
        ),
    ],
)
def test_what_an_answer_does_not_tell_is_not_guessed(item: dict[str, Any], reason: str) -> None:
    found = counts(ended(10, 5), item)
    assert found.steps is None
    assert found.emitted is None
    assert reason in found.not_given["steps"]


def test_the_tokens_may_be_told_by_the_caller_as_a_stream_has_them_apart() -> None:
    chunk = {"choices": [{"delta": {}, "avg_decoded_tokens_per_iter": 2.0, "finish_reason": "length"}], "usage": None}
    stats = ENGINE.request_stats(chunk)
    assert stats is not None
    assert "completion_tokens" not in stats
    found = ENGINE.request_counts([{**stats, "completion_tokens": 8}], None)
    assert found is not None
    assert (found.steps, found.emitted) == (3, 7)


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": ["odd"]},
        {"choices": [], "usage": {"completion_tokens": 4}},
        {"choices": [{"avg_decoded_tokens_per_iter": None}]},
    ],
)
def test_chunks_without_figures_give_none(chunk: dict[str, Any]) -> None:
    assert ENGINE.request_stats(chunk) is None
    assert ENGINE.request_counts([None, None], None) is None
    assert ENGINE.request_fields() == {}


def streamed(finish: str, stop: object = None) -> dict[str, Any]:
    """Return what the bench keeps of an answer whose last chunk and usage came apart, as trtllm-serve streams them."""
    end = {"delta": {}, "finish_reason": finish, "stop_reason": stop, "avg_decoded_tokens_per_iter": 2.0}
    usage = {"completion_tokens": 8, "prompt_tokens": 3, "total_tokens": 11}
    timer = StreamTimer(ENGINE.request_stats)
    chunks = ({"choices": [{"delta": {"content": "x"}}]}, {"choices": [end]}, {"choices": [], "usage": usage})
    for at, chunk in enumerate(chunks):
        timer.add(float(at), decode(json.dumps(chunk).encode()))
    row = RequestRow(arm="a", block=1, prompt_id="p", category="c", repeat=0, started_unix=0.0)
    timer.fill(row, started=0.0, ended=3.0)
    assert row.spec_stats is not None
    return row.spec_stats


def test_a_streamed_answer_tells_how_it_ended() -> None:
    cut = ENGINE.request_counts([streamed("length")], "1.2.1")
    assert cut is not None
    assert (cut.steps, cut.emitted) == (3, 7)
    # A stop string is cut from the answer, so its tokens are not those that were counted.
    stopped = ENGINE.request_counts([streamed("stop", "###")], "1.2.1")
    assert stopped is not None
    assert (stopped.steps, stopped.emitted) == (None, None)
    assert "stop string" in stopped.not_given["steps"]
    token = ENGINE.request_counts([streamed("stop", 151645)], "1.2.1")
    assert token is not None
    assert token.emitted == 7


def test_a_bad_answer_raises_for_itself_only() -> None:
    good, bad = ended(10, 5, "length"), ended(10, 5, "length", avg_decoded_tokens_per_iter=0.5)
    stats = [ENGINE.request_stats(one) for one in (good, bad, good)]
    read = []
    for one in stats:
        try:
            read.append(ENGINE.request_counts([one], "1.2.1"))
        except MeasureError:
            read.append(None)
    assert [one and one.steps for one in read] == [4, None, 4]
    assert counts(good, good).steps == 8


@pytest.mark.parametrize("average", [0.5, float("nan"), "2", 3.7])
def test_an_average_that_cannot_be_is_refused(average: object) -> None:
    with pytest.raises(MeasureError, match="answer 0"):
        counts(ended(10, 5, "length", avg_decoded_tokens_per_iter=average))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"num_spec_steps": 21}, "contradict"),
        ({"total_accepted_draft_tokens": 31}, "contradict"),
        ({"total_draft_tokens": 29}, "contradict"),
        ({"acceptance_histogram": None}, "not of the form"),
        ({"total_draft_tokens": -1}, "not of the form"),
    ],
)
def test_counts_that_contradict_each_other_are_refused(update: dict[str, object], message: str) -> None:
    item = answer("answer_pr19311.json")
    item["choices"][0]["speculative_decoding"] |= update
    with pytest.raises(MeasureError, match=message):
        counts(item)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4000), st.floats(0, 1), st.booleans()), min_size=1, max_size=5))
def test_the_true_steps_are_always_within_what_is_told(rows: list[tuple[int, float, bool]]) -> None:
    answers = []
    steps = 0
    for tokens, share, cut in rows:
        iterations = max(1, round(tokens * max(share, 1 / tokens)))
        steps += iterations - 1
        answers.append(ended(tokens, iterations, "length" if cut else "stop"))
    found = counts(*answers)
    low, high = found.between.get("steps", (found.steps, found.steps))
    assert low is not None
    assert high is not None
    assert low <= steps <= high
    assert found.emitted == sum(tokens - 1 for tokens, _, _ in rows)
    if all(cut for _, _, cut in rows):
        assert low == high


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["avg_decoded_tokens_per_iter", "speculative_decoding", "finish_reason", "stop_reason"]),
        st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.none()),
    ),
    st.none() | st.integers() | st.text(max_size=3),
)
def test_no_odd_answer_raises_anything_but_a_measure_error(choice: dict[str, object], tokens: object) -> None:
    stats = ENGINE.request_stats({"choices": [choice], "usage": {"completion_tokens": tokens}})
    try:
        ENGINE.request_counts([stats], None)
    except MeasureError as error:
        assert "answer 0" in str(error)  # noqa: PT017 - most inputs do not raise
