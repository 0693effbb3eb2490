"""Public reports 21 to 29: a chunk is not a token, and not all tokens are content."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving
from tests.public_reports.scripted import bench, bench_rows, codes, packed, spec, stream, text, usage

from draftworth.bench.base import Closed
from draftworth.bench.points import Point
from draftworth.bench.summary import summarise

CHUNKINGS = [[1] * 61, [1, *[4] * 15], [1, *[6] * 10], [1, *[1, 3, 2] * 10], [1, 60], [1, *[5] * 11, 3, 2]]
"""61 tokens, the first of them alone."""


@pytest.mark.parametrize("sizes", CHUNKINGS, ids=lambda sizes: f"{len(sizes)} chunks")
def test_21_to_25_times_and_rates_do_not_depend_on_how_tokens_are_packed(sizes: list[int]) -> None:
    """vllm #37666, #50677, #35471, sglang PR #33193, llama-benchy PR #11, inference-perf PR #410, guidellm #1145.

    61 tokens at 10 ms each behind a first one at 100 ms: 61 tokens in 700 ms.
    """
    row = packed(sizes, 10.0)
    assert row.tokens == 61
    assert row.ttft_ms == pytest.approx(100)
    assert row.tpot_ms == pytest.approx(10)
    (whole,) = summarise(Point(Closed(), 61), [row])
    assert whole.throughput == pytest.approx(61 / 0.7)


def test_21_vllm_37666_no_rate_is_below_the_mean_rate_of_tokens() -> None:
    """vllm-project/vllm #37666, PR #50677, #35471: a "peak" of 113 below the mean of 410 tok/s, since chunks counted.

    410 tok/s are 2.44 ms a token; 4 of them a chunk. All there is, is counted in tokens.
    """
    script = Script(tokens=121, token_ms=2.44, first_token_ms=2.44, tokens_per_chunk=(4,))
    with serving(script, speculative_config=spec(3)) as server:
        record = bench(server.base_url, "--limit", "3", "--max-tokens", "121")
    point = record["points"][0]
    assert point["tokens"] == 363
    assert point["throughput"] == pytest.approx(point["tokens"] / point["seconds"])
    assert point["throughput"] == pytest.approx(410, rel=0.25)
    assert 1000 / point["tpot_ms"]["mean"] == pytest.approx(410, rel=0.25)
    assert not any("peak" in name for name in point)


def test_22_sglang_12064_the_time_of_a_token_is_not_the_gap_between_chunks() -> None:
    """sgl-project/sglang PR #12064: 8.72 ms was the gap between chunks, 3.4 ms the time of a token."""
    row = packed([1, *[2, 3, 2, 3, 3] * 20], 3.4)
    assert row.decode_ms is not None
    assert row.decode_ms / (row.chunks - 1) == pytest.approx(8.84)  # 2.6 tokens a chunk
    assert row.tpot_ms == pytest.approx(3.4)


def test_23_llama_benchy_11_the_rate_is_of_tokens() -> None:
    """eugr/llama-benchy PR #11: 25.16 tok/s, shown as 5.51, the chunks a second."""
    row = packed([1, *[4, 5] * 10], 1000 / 25.16)
    assert row.tpot_ms is not None
    assert row.decode_ms is not None
    assert 1000 * (row.chunks - 1) / row.decode_ms == pytest.approx(5.59, abs=0.01)
    assert 1000 / row.tpot_ms == pytest.approx(25.16)


@pytest.mark.parametrize(
    ("shape", "source", "tokens"),
    [
        ({"token_ids": False}, "usage", 31),
        ({"usage": False}, "token_ids", 31),
        ({"usage": False, "token_ids": False}, "chunks", 11),
    ],
    ids=["usage", "ids", "neither"],
)
def test_24_inference_perf_364_tokens_are_told_by_the_server(
    shape: dict[str, Any],
    source: str,
    tokens: int,
    tmp_path: Path,
) -> None:
    """kubernetes-sigs/inference-perf #364, #564: chunks taken for tokens; a mark counted for each re-tokenised chunk.

    31 tokens in 11 chunks. Where nothing but chunks can be counted, that is said.
    """
    script = Script(tokens=31, tokens_per_chunk=(3,), token_ms=0.4, **shape)
    with serving(script) as server:
        record = bench(server.base_url, "--limit", "2", "--max-tokens", "31")
    assert {(row["tokens"], row["token_source"]) for row in bench_rows(tmp_path)} == {(tokens, source)}
    assert ("approximate_tokens" in codes(record)) is (source == "chunks")


@pytest.mark.parametrize("first", [2, 5, 8])
def test_26_aiperf_1279_tokens_of_the_first_chunk_are_in_no_time_per_token(first: int) -> None:
    """ai-dynamo/aiperf PR #1279: (latency - TTFT) / (tokens - 1) is too small where the first chunk carries several."""
    row = packed([first, *[4] * 5], 10.0)
    assert row.first_chunk_tokens == first
    assert row.tpot_ms == pytest.approx(10.0)  # not 200 / (first + 19)
    with serving(Script(tokens=40, first_chunk_tokens=first, token_ms=2.0, tokens_per_chunk=(4,))) as server:
        point = bench(server.base_url, "--limit", "2", "--max-tokens", "40")["points"][0]
    assert point["tpot_ms"]["mean"] == pytest.approx(2.0, rel=0.25)


def test_27_sglang_36272_a_call_held_back_has_its_tokens_and_no_time_per_token() -> None:
    """sgl-project/sglang PR #36272: 6400 tokens of a tool call came in few chunks, counted as 32 tokens, 5 tok/s."""
    script = Script(tokens=640, token_ms=0.1, tool_calls=True, buffered=True, token_ids=False)
    with serving(script) as server:
        point = bench(server.base_url, "--limit", "10", "--max-tokens", "640")["points"][0]
    assert point["tokens"] == 6400
    assert (point["tpot_ms"]["n"], point["tpot_ms"]["mean"]) == (0, None)
    assert point["throughput"] == pytest.approx(6400 / point["seconds"])
    assert point["throughput"] > 1000


def test_28_vllm_52853_the_servers_histogram_counts_steps_and_is_no_time_per_token() -> None:
    """vllm-project/vllm PR #52853, #55276: `inter_token_latency` is observed once an output, here of 3 tokens."""
    script = Script(tokens=31, tokens_per_chunk=(3,), token_ms=4.0)
    with serving(script, speculative_config=spec(3)) as server:
        point = bench(server.base_url, "--limit", "4", "--max-tokens", "31")["points"][0]
        observed = server.metrics.engines[0].inter_token_latency.values
    assert sum(observed) / len(observed) == pytest.approx(0.012, rel=0.25)
    assert point["tpot_ms"]["mean"] == pytest.approx(4.0, rel=0.25)
    assert point["acceptance"]["steps"] == 4 * 10


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_29_genai_bench_81_reasoning_is_output(name: str, tmp_path: Path) -> None:
    """sgl-project/genai-bench #81, triton perf_analyzer PR #433: 38 tokens of 512 counted, TTFT at the answer.

    474 tokens of reasoning from 20 ms on, 0.25 ms each; the answer's first is 118 ms later.
    """
    script = Script(tokens=512, reasoning_field=name, reasoning_tokens=474, token_ms=0.25, first_token_ms=20.0)
    with serving(script) as server:
        point = bench(server.base_url, "--limit", "2", "--max-tokens", "512")["points"][0]
    assert (point["tokens"], point["reasoning_tokens"]) == (1024, 948)
    assert point["tpot_ms"]["mean"] == pytest.approx(0.25, rel=0.25)
    for row in bench_rows(tmp_path):
        assert row["ttft_ms"] == pytest.approx(20, abs=40)
        assert row["ttfa_ms"] - row["ttft_ms"] == pytest.approx(118.5, rel=0.25)


@pytest.mark.parametrize("nothing", [{"content": None}, {"content": ""}, {}], ids=["null", "empty", "missing"])
def test_29_production_stack_873_an_answer_of_reasoning_alone_is_no_crash(nothing: dict[str, Any]) -> None:
    """vllm-project/production-stack PR #873: content is null while the model thinks."""
    thoughts: Sequence[tuple[float, dict[str, Any]]] = [
        (100.0 + 10 * i, text(2, reasoning_content="hm", **nothing)) for i in range(6)
    ]
    row = stream(*thoughts, (150.0, usage(12)))
    assert (row.tokens, row.reasoning_tokens, row.text) == (12, 12, "")
    assert row.ttft_ms == pytest.approx(100)
    assert row.ttfa_ms is None
    assert row.tpot_ms == pytest.approx(5)
