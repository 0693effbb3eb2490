"""Times by hand: events with made-up arrival times, no server and no sleeping."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftworth.bench.base import RequestRow
from draftworth.bench.sse import DONE, SseParser, decode
from draftworth.bench.timing import StreamTimer

RECORDED = Path(__file__).parent / "data" / "vllm-0.32-stream.txt"


def row_of(events: list[tuple[float, dict[str, Any]]], started: float = 100.0) -> RequestRow:
    timer = StreamTimer(started)
    for at, event in events:
        timer.add(at, decode(json.dumps(event).encode()))
    row = RequestRow(arm="a", block=0, prompt_id="p", category="c", repeat=0, started_unix=0.0)
    timer.fill(row, events[-1][0])
    return row


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
    assert row.token_ids == [7, 8, 9]
    assert row.prompt_token_ids == [1, 2, 3]
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
    assert row.token_ids == [5, 2]
    assert row.tpot_ms == pytest.approx(200)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_output(name: str) -> None:
    think = {"choices": [{"delta": {name: "hm "}}]}
    row = row_of([(100.1, think), (100.2, think), (100.3, piece("so", finish="stop"))])
    assert row.ttft_ms == pytest.approx(100)
    assert row.text == "hm hm so"
    assert row.chunks == 3


def test_both_names_of_the_reasoning_are_one_text() -> None:
    row = row_of([(100.1, {"choices": [{"delta": {"reasoning": "a", "reasoning_content": "a"}}]})])
    assert row.text == "a"


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
    timer = StreamTimer(0.0)
    for i, event in enumerate(events):
        timer.add(i * 0.1, decode(event))
    row = RequestRow(arm="a", block=0, prompt_id="p", category="c", repeat=0, started_unix=0.0)
    timer.fill(row, 1.0)
    # By eye: a role chunk, then 1 + 1 + 1 + 6 + 6 tokens and the end token in a chunk without text.
    assert row.text == "One two three four, one two three four, one two three four."
    assert row.token_ids == [2705, 827, 1296, 1876, 28, 582, 827, 1296, 1876, 28, 582, 827, 1296, 1876, 30, 2]
    assert (row.tokens, row.first_chunk_tokens, row.chunks) == (16, 1, 6)
    assert row.tpot_ms == pytest.approx(500 / 15)
    assert row.prompt_tokens == len(row.prompt_token_ids) == 55
    assert row.finish_reason == "stop"
    assert row.spec_stats is not None
    assert row.spec_stats["num_draft_tokens"] == 15
