"""Times by hand: events with made-up arrival times, no server and no sleeping."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.bench.base import RequestRow
from draftworth.bench.sse import DONE, SseParser, decode
from draftworth.bench.timing import StreamTimer

RECORDED = Path(__file__).parent / "data" / "vllm-0.32-stream.txt"


def row_of(events: list[tuple[float, dict[str, Any]]], started: float = 100.0) -> RequestRow:
    times, chunks = [at for at, _ in events], [decode(json.dumps(event).encode()) for _, event in events]
    one, batch = StreamTimer(), StreamTimer()
    for at, chunk in zip(times, chunks, strict=True):
        one.add(at, chunk)
    batch.add_all(times, chunks)
    rows = []
    for timer in (one, batch):
        row = RequestRow(arm="a", block=0, prompt_id="p", category="c", repeat=0, started_unix=0.0)
        timer.fill(row, started=started, ended=times[-1])
        rows.append(row)
    assert rows[0] == rows[1]
    return rows[0]


def piece(text: str = "x", ids: list[int] | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text, **delta}, "finish_reason": finish, "token_ids": ids}]}


ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2, 3]}


def usage(tokens: int, prompt: int = 3) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}}


def test_one_token_a_chunk() -> None:
    row = row_of(
        [
            (100.1, ROLE),
            (100.2, piece(ids=[7])),
            (100.25, piece(ids=[8])),
            (100.3, piece("y", [9], "stop")),
            (100.3, usage(3)),
        ]
    )
    assert row.ttft_ms == pytest.approx(200)  # not 100, when the role came
    assert row.decode_ms == pytest.approx(100)
    assert row.tpot_ms == pytest.approx(50)  # 100 ms for the two tokens after the first
    assert (row.tokens, row.token_source, row.first_chunk_tokens, row.chunks) == (3, "usage", 1, 3)
    assert list(row.token_ids) == [7, 8, 9]
    assert list(row.prompt_token_ids) == [1, 2, 3]
    assert row.prompt_tokens == 3
    assert (row.text, row.finish_reason) == ("xxy", "stop")


def test_many_tokens_a_chunk_are_counted_as_tokens() -> None:
    # 2 tokens first, then 4 + 5 = 9 tokens in 90 ms: 10 ms a token. By chunks it would be 45 ms.
    row = row_of(
        [
            (100.2, piece(ids=[1, 2])),
            (100.24, piece(ids=[3, 4, 5, 6])),
            (100.29, piece(ids=[7] * 5, finish="length")),
            (100.3, usage(11)),
        ]
    )
    assert row.first_chunk_tokens == 2
    assert row.tpot_ms == pytest.approx(10)
    assert row.chunks == 3
    assert row.e2e_ms == pytest.approx(300)


def test_token_ids_count_where_the_server_gives_no_usage() -> None:
    row = row_of([(100.1, piece(ids=[1])), (100.2, piece(ids=[2, 3, 4, 5, 6], finish="stop"))])
    assert (row.tokens, row.token_source) == (6, "token_ids")
    assert row.tpot_ms == pytest.approx(20)


def test_usage_without_token_ids_takes_the_first_chunk_for_one_token() -> None:
    row = row_of([(100.1, piece()), (100.2, piece()), (100.3, piece(finish="stop")), (100.3, usage(11))])
    assert (row.tokens, row.token_source, row.first_chunk_tokens) == (11, "usage", 1)
    assert row.tpot_ms == pytest.approx(20)


def test_without_any_count_chunks_are_a_named_approximation() -> None:
    row = row_of([(100.1, piece()), (100.2, piece()), (100.3, piece(finish="stop"))])
    assert (row.tokens, row.token_source) == (3, "chunks")
    assert row.tpot_ms == pytest.approx(100)


def test_one_chunk_has_a_ttft_but_no_tpot() -> None:
    row = row_of([(100.1, piece(ids=[1, 2, 3], finish="stop")), (100.2, usage(3))])
    assert row.ttft_ms == pytest.approx(100)
    assert row.tpot_ms is None
    assert row.decode_ms is None


def test_chunks_of_one_network_read_are_one_chunk_in_time() -> None:
    # The reader was late: 1 + 4 tokens are seen at 100.1, then 5 tokens take 50 ms. Dividing by 9 would say 5.6 ms.
    row = row_of([(100.1, piece(ids=[1])), (100.1, piece(ids=[2] * 4)), (100.15, piece(ids=[3] * 5, finish="stop"))])
    assert row.first_chunk_tokens == 5
    assert row.tpot_ms == pytest.approx(10)
    assert row.chunks == 3


def test_everything_in_one_network_read_has_no_tpot() -> None:
    row = row_of([(100.1, piece(ids=[1])), (100.1, piece(ids=[2], finish="stop")), (100.1, usage(2))])
    assert row.tpot_ms is None
    assert row.tokens == 2


def test_empty_chunks_carry_nothing() -> None:
    empty: dict[str, Any] = {"choices": [{"delta": {}}]}
    blank = {"choices": [{"delta": {"content": "", "reasoning": None, "tool_calls": []}, "token_ids": []}]}
    end = {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]}
    row = row_of([(100.1, empty), (100.2, piece()), (100.3, blank), (100.4, piece()), (100.9, end), (101.0, usage(2))])
    assert row.chunks == 2
    assert row.ttft_ms == pytest.approx(200)
    assert row.tpot_ms == pytest.approx(200)
    assert row.finish_reason == "stop"


def test_a_finishing_chunk_may_carry_only_the_end_token() -> None:
    row = row_of([(100.1, piece(ids=[5])), (100.3, piece("", [2], "stop")), (100.3, usage(2))])
    assert list(row.token_ids) == [5, 2]
    assert row.tpot_ms == pytest.approx(200)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_output(name: str) -> None:
    think = {"choices": [{"delta": {name: "hm "}}]}
    row = row_of([(100.1, think), (100.2, think), (100.3, piece("so", finish="stop"))])
    assert row.ttft_ms == pytest.approx(100)
    assert (row.reasoning, row.text) == ("hm hm ", "so")
    assert row.ttfa_ms == pytest.approx(300)
    assert row.chunks == 3
    assert row.reasoning_tokens is None  # no ids, no usage: chunks are not tokens


def test_both_names_of_the_reasoning_are_one_text() -> None:
    row = row_of([(100.1, {"choices": [{"delta": {"reasoning": "a", "reasoning_content": "a"}}]})])
    assert (row.reasoning, row.text, row.ttfa_ms) == ("a", "", None)


def test_tool_calls_are_output_but_no_text() -> None:
    call = {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}}]}
    nothing = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}}]}
    row = row_of([(100.1, nothing), (100.2, call), (100.4, call), (100.4, usage(2))])
    assert row.chunks == 2
    assert row.ttft_ms == pytest.approx(200)
    assert row.tpot_ms == pytest.approx(200)
    assert row.text == ""


def test_no_output_at_all_measures_nothing() -> None:
    row = row_of([(100.1, ROLE), (100.2, {"choices": [{"delta": {}, "finish_reason": "stop"}]})])
    assert (row.ttft_ms, row.tpot_ms, row.tokens, row.token_source) == (None, None, None, None)


def test_a_stream_recorded_from_vllm() -> None:
    events = SseParser().feed(RECORDED.read_bytes())
    assert events.pop() == DONE
    timer = StreamTimer()
    for i, event in enumerate(events):
        timer.add(i * 0.1, decode(event))
    row = RequestRow(arm="a", block=0, prompt_id="p", category="c", repeat=0, started_unix=0.0)
    timer.fill(row, started=0.0, ended=1.0)
    # By eye: a role chunk, then 1 + 1 + 1 + 6 + 6 tokens and the end token in a chunk without text.
    assert row.text == "One two three four, one two three four, one two three four."
    assert list(row.token_ids) == [2705, 827, 1296, 1876, 28, 582, 827, 1296, 1876, 28, 582, 827, 1296, 1876, 30, 2]
    assert (row.tokens, row.first_chunk_tokens, row.chunks) == (16, 1, 6)
    assert row.tpot_ms == pytest.approx(500 / 15)
    assert row.prompt_tokens == len(row.prompt_token_ids) == 55
    assert row.finish_reason == "stop"
    assert row.spec_stats is not None
    assert row.spec_stats["num_draft_tokens"] == 15


def counted(event: dict[str, Any], tokens: int) -> dict[str, Any]:
    return {**event, "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


def test_continuous_usage_counts_the_first_chunk_without_ids() -> None:
    # 4 tokens first, 12 at the end: 8 in 80 ms. Taking the first chunk for one token would say 80/11.
    row = row_of(
        [
            (100.1, counted(ROLE, 0)),
            (100.2, counted(piece(), 4)),
            (100.24, counted(piece(), 9)),
            (100.28, counted(piece(finish="stop"), 12)),
            (100.28, usage(12)),
        ]
    )
    assert (row.tokens, row.first_chunk_tokens) == (12, 4)
    assert row.tpot_ms == pytest.approx(10)


def test_usage_on_the_last_chunk_alone_says_nothing_of_the_first() -> None:
    row = row_of([(100.1, piece()), (100.2, piece()), (100.3, counted(piece(finish="stop"), 5))])
    assert (row.tokens, row.first_chunk_tokens) == (5, 1)
    assert row.tpot_ms == pytest.approx(50)


def think(ids: list[int] | None = None, text: str = "hm ") -> dict[str, Any]:
    return {"choices": [{"delta": {"reasoning": text}, "token_ids": ids}]}


def test_reasoning_tokens_come_from_the_ids_of_its_chunks() -> None:
    # <think> (1), 2 + 3 tokens, one whose character is not whole yet (1), 1 more, </think> (1), then the answer.
    row = row_of(
        [
            (100.1, {"choices": [{"delta": {}, "token_ids": [90]}]}),
            (100.2, think([1, 2])),
            (100.3, think([3, 4, 5])),
            (100.4, {"choices": [{"delta": {"content": ""}, "token_ids": [6]}]}),
            (100.5, think([7])),
            (100.6, {"choices": [{"delta": {}, "token_ids": [91]}]}),
            (100.7, piece("so", [8, 9], "stop")),
            (100.7, usage(11)),
        ]
    )
    assert row.reasoning_tokens == 7
    assert row.ttft_ms == pytest.approx(100)
    assert row.ttfa_ms == pytest.approx(700)
    assert row.first_chunk_tokens == 1


def test_a_chunk_of_both_kinds_leaves_the_reasoning_uncounted() -> None:
    both = {"choices": [{"delta": {"reasoning": "hm", "content": "so"}, "token_ids": [3, 4]}]}
    row = row_of([(100.1, think([1, 2])), (100.2, both), (100.3, piece("!", [5], "stop"))])
    assert row.reasoning_tokens is None
    assert (row.reasoning, row.text) == ("hm hm", "so!")
    assert row.ttfa_ms == pytest.approx(200)


def test_the_servers_own_count_of_reasoning_wins_unless_it_is_a_placeholder() -> None:
    def closing(reasoning: int) -> dict[str, Any]:
        details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
        more = {"prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": None}}
        return {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, **details, **more}}

    told = row_of([(100.1, think([1])), (100.2, piece("a", [2, 3, 4], "stop")), (100.2, closing(2))])
    assert (told.reasoning_tokens, told.cached_tokens) == (2, 2)
    zero = row_of([(100.1, think([1])), (100.2, piece("a", [2, 3, 4], "stop")), (100.2, closing(0))])
    assert zero.reasoning_tokens == 1
    none = row_of([(100.1, piece("a", [1, 2, 3, 4], "stop")), (100.2, closing(0))])
    assert none.reasoning_tokens == 0


def call(index: int, text: str, name: str | None = None) -> dict[str, Any]:
    entry = {"index": index, "function": {"name": name, "arguments": text}}
    return {"choices": [{"delta": {"tool_calls": [entry]}}]}


def test_tool_calls_are_counted_by_their_index() -> None:
    row = row_of(
        [(100.1, piece("Let me")), (100.2, call(0, "", "find")), (100.3, call(0, "{")), (100.4, call(1, "{}"))]
    )
    assert (row.tool_calls, row.chunks, row.text) == (2, 4, "Let me")
    assert row.ttfa_ms == pytest.approx(100)


def test_a_call_behind_the_reasoning_is_the_answer() -> None:
    row = row_of([(100.1, think([1])), (100.3, call(0, "{", "find"))])
    assert row.ttfa_ms == pytest.approx(300)


def test_a_call_held_back_by_the_server_has_no_tpot() -> None:
    # The parser of the server let go of 60 tokens in two chunks; how many came first is unknown.
    row = row_of([(100.1, call(0, "", "find")), (100.9, call(0, "{...}")), (100.9, usage(60))])
    assert (row.tokens, row.first_chunk_tokens, row.tpot_ms) == (60, None, None)
    assert row.decode_ms == pytest.approx(800)
    # Everything in one chunk at the end: there is nothing to divide.
    row = row_of([(100.9, call(0, "{...}", "find")), (100.9, usage(60))])
    assert (row.tool_calls, row.tpot_ms) == (1, None)


def test_a_completion_is_text_and_brings_its_prompt_in_the_choice() -> None:
    first = {"choices": [{"index": 0, "text": "a", "token_ids": [4], "prompt_token_ids": [1, 2]}]}
    last = {"choices": [{"index": 0, "text": " b c", "token_ids": [5, 6], "finish_reason": "length"}]}
    row = row_of([(100.1, first), (100.2, last)])
    assert (row.text, row.prompt_tokens) == ("a b c", 2)
    assert (list(row.token_ids), list(row.prompt_token_ids)) == ([4, 5, 6], [1, 2])
    assert row.tpot_ms == pytest.approx(50)


SHAPE = st.sampled_from(["content", "reasoning", "role", "empty", "ids only", "call"])


@given(
    chunks=st.lists(
        st.tuples(st.integers(min_value=0, max_value=3), SHAPE, st.integers(min_value=1, max_value=5)), max_size=25
    ),
    usage_on=st.sampled_from(["none", "last", "every"]),
    with_ids=st.booleans(),
)
def test_any_mixture_of_chunks_is_counted_as_by_hand(
    chunks: list[tuple[int, str, int]], usage_on: str, *, with_ids: bool
) -> None:
    """A naive reference: tokens, the first read's tokens and times, worked out from the plan of the stream."""
    at, sent = 100.0, 0
    events: list[tuple[float, dict[str, Any]]] = [(at, ROLE)]
    outputs: list[tuple[float, int, int, str]] = []  # time, tokens, tokens up to here, shape
    for pause, shape, size in chunks:
        at += pause
        carries = shape not in ("role", "empty") and (with_ids or shape != "ids only")
        if carries:
            sent += size
            outputs.append((at, size, sent, shape))
        deltas: dict[str, dict[str, Any]] = {
            "content": {"content": "x"},
            "reasoning": {"reasoning": "y"},
            "role": {"role": "assistant", "content": ""},
            "call": {"tool_calls": [{"index": 0, "function": {"arguments": "z"}}]},
        }
        choice: dict[str, Any] = {"index": 0, "delta": deltas.get(shape, {})}
        if with_ids and carries:
            choice["token_ids"] = [7] * size
        event: dict[str, Any] = {"choices": [choice]}
        if usage_on == "every":
            event = counted(event, sent)
        events.append((at, event))
    if usage_on != "none":
        events.append((at, usage(sent)))
    row = row_of(events)
    assert row.chunks == len(outputs)
    shapes = [shape for _, _, _, shape in outputs]
    assert (len(row.text), len(row.reasoning)) == (shapes.count("content"), shapes.count("reasoning"))
    if not outputs:
        assert (row.ttft_ms, row.tpot_ms) == (None, None)
        return
    first_at, last_at = outputs[0][0], outputs[-1][0]
    first = [entry for entry in outputs if entry[0] == first_at]
    assert row.ttft_ms == pytest.approx((first_at - 100) * 1000)
    answers = [when for when, _, _, shape in outputs if shape in ("content", "call")]
    assert row.ttfa_ms == (pytest.approx((answers[0] - 100) * 1000) if answers else None)
    exact = with_ids or usage_on == "every"
    assert row.tokens == (sent if with_ids or usage_on != "none" else len(outputs))
    if exact:
        assert row.first_chunk_tokens == first[-1][2]
        rest = sent - first[-1][2]
        assert row.tpot_ms == (pytest.approx((last_at - first_at) * 1000 / rest) if last_at > first_at else None)
    elif usage_on == "last" and at == first_at:
        assert row.first_chunk_tokens == sent  # everything came with the first read
    elif any(entry[3] == "call" for entry in first) and (row.tokens or 0) > len(outputs) + 1:
        assert (row.first_chunk_tokens, row.tpot_ms) == (None, None)
    else:
        assert row.first_chunk_tokens == len(first)
