"""Scoring outputs: gaps by hand, from a recorded answer and from a scripted server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import FakeServer, Script, serving

from draftworth.bench import run, score
from draftworth.bench.base import Prompt, RequestRow, Sampling, ScoredOutput, Target
from draftworth.errors import MeasureError

RECORDED = Path(__file__).parent / "data" / "vllm-0.32-scoring.json"
PROMPTS = tuple(Prompt(f"p-{i}", "c", ({"role": "user", "content": f"question {i}"},)) for i in range(2))
FAST: dict[str, Any] = {"token_ms": 0, "first_token_ms": 0}


def row(**changes: Any) -> RequestRow:
    values: dict[str, Any] = {
        "arm": "v",
        "block": 0,
        "prompt_id": "p",
        "category": "c",
        "repeat": 0,
        "started_unix": 0.0,
        "ok": True,
        "prompt_token_ids": [1, 3, 4],
        "token_ids": [1000, 1001],
        **changes,
    }
    return RequestRow(**values)


def written_and_scored(
    writer: Script, judge: Script, tokens: int = 40, max_positions: int = 2000
) -> list[ScoredOutput]:
    """Let one server write and another one score."""
    with serving(writer, speculative_config={"num_speculative_tokens": 3}) as server:
        target = Target(server.base_url, "fake/model-1b")
        rows = run.measure_sync(target, PROMPTS, Sampling(max_tokens=tokens), arm="v", block=0).rows
    with serving(judge) as server:
        return score.score_sync(Target(server.base_url, "fake/model-1b"), rows, max_positions=max_positions)


def test_gaps_of_a_recorded_answer() -> None:
    answer = json.loads(RECORDED.read_text())
    ids = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365]
    # Read off the recording: top minus written, 0 where the written one is the only entry.
    assert score.gaps_of(answer, ids, 3) == pytest.approx(
        (
            4.2318010330200195 - 1.9818012714385986,
            0,
            1.699566125869751 - 0.5120661854743958,
            3.198371648788452 - 2.635871648788452,
            1.7399303913116455 - 0.3649303615093231,
            0,
            13.935330390930176 - 1.2478301525115967,
        )
    )


def test_a_tie_is_no_gap_whatever_the_rank_says() -> None:
    entry = {"7": {"logprob": -1.5, "rank": 2}, "9": {"logprob": -1.5, "rank": 1}}
    assert score.gaps_of({"choices": [{"prompt_logprobs": [None, entry]}]}, [1, 7], 1) == (0.0,)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"prompt_logprobs": None}]},
        {"choices": [{"prompt_logprobs": [None]}]},
        {"choices": [{"prompt_logprobs": [None, None]}]},
        {"choices": [{"prompt_logprobs": [None, {"8": {"logprob": -1.0}}]}]},
        {"choices": [{"prompt_logprobs": [None, {"7": {"rank": 1}}]}]},
    ],
)
def test_an_answer_of_another_form_is_one_line(answer: dict[str, Any]) -> None:
    with pytest.raises(MeasureError, match="prompt_logprobs") as caught:
        score.gaps_of(answer, [1, 7], 1)
    assert "\n" not in str(caught.value)


def test_what_the_model_writes_itself_has_no_gap() -> None:
    scored = written_and_scored(Script(**FAST, tokens=20), Script(tokens=20))
    assert [(s.prompt_id, s.arm, s.tokens) for s in scored] == [("p-0", "v", 20), ("p-1", "v", 20)]
    assert all(s.gaps == (0.0,) * 20 for s in scored)  # the end token among them


def test_a_corrupt_writer_is_found_where_it_is_corrupt() -> None:
    (first, _) = written_and_scored(Script(**FAST, corrupt_every=10), Script())
    assert first.gaps == pytest.approx(tuple(9.0 if i in (9, 19, 29, 39) else 0.0 for i in range(40)))


def test_near_ties_are_small_gaps() -> None:
    (first, _) = written_and_scored(Script(**FAST, tie_every=8), Script(noise_every=7))
    expected = [0.1 if i % 8 == 7 else 0.2 if i % 7 == 6 else 0.0 for i in range(40)]
    assert first.gaps == pytest.approx(tuple(expected))


def test_long_outputs_are_cut() -> None:
    # The prompt has 6 tokens: start, turn, role, two words, answer mark.
    scored = written_and_scored(Script(**FAST), Script(), max_positions=16)
    assert [(len(s.gaps), s.tokens) for s in scored] == [(10, 40), (10, 40)]
    scored = written_and_scored(Script(**FAST), Script(), max_positions=6)
    assert [(s.gaps, s.tokens) for s in scored] == [((), 40), ((), 40)]


def test_the_request_for_a_score_and_who_gets_one() -> None:
    rows = [
        row(),
        row(prompt_id="f", ok=False),
        row(prompt_id="a", token_ids=[]),
        row(prompt_id="b", prompt_token_ids=[]),
    ]
    progress: list[tuple[int, int]] = []

    async def go() -> tuple[list[ScoredOutput], list[tuple[str, dict[str, Any]]]]:
        async with FakeServer() as server:
            target = Target(server.base_url, "fake/model-1b")
            scored = await score.score(target, rows, max_positions=99, on_done=lambda *p: progress.append(p))
            return scored, server.requests

    scored, requests = asyncio.run(go())
    assert [s.prompt_id for s in scored] == ["p"]
    assert progress == [(1, 1)]
    assert requests == [
        (
            "/v1/completions",
            {
                "model": "fake/model-1b",
                "prompt": [1, 3, 4, 1000, 1001],
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 1,
            },
        )
    ]


def test_the_servers_message_is_passed_on() -> None:
    with (
        serving(Script(score_error="CUDA out of memory")) as server,
        pytest.raises(MeasureError, match=r"scoring the output of 'p' \(v\): POST .* HTTP 500: CUDA out of memory"),
    ):
        score.score_sync(Target(server.base_url, "fake/model-1b"), [row()], max_positions=99)


def test_one_position_more_than_the_server_takes_is_its_error() -> None:
    # vLLM writes a token more: 5 tokens do not fit into a context of 5.
    with serving(max_model_len=5) as server:
        target = Target(server.base_url, "fake/model-1b")
        with pytest.raises(MeasureError, match="maximum context length is 5"):
            score.score_sync(target, [row()], max_positions=5)
        assert len(score.score_sync(target, [row()], max_positions=4)[0].gaps) == 1


@pytest.mark.parametrize(
    ("vocab", "free", "share", "batched", "expected"),
    [
        (100_000, 4_800_000_000, 0.25, None, 1000),  # 1.2 GB at 1.2 MB a position
        (100_000, 4_800_000_000, 0.25, 1000, score.UNBOUNDED),
        (100_000, 4_800_000_000, 0.25, 1001, 1000),
        (100_000, 4_800_000_000, 0.5, None, 2000),
        (100_000, 307_200_000, 0.25, None, 64),
        (100_000, 307_199_999, 0.25, None, 0),
        (100_000, 0, 0.25, 2048, 0),
        (100_000, -5, 0.25, None, 0),
    ],
)
def test_how_much_fits_into_memory(vocab: int, free: int, share: float, batched: int | None, expected: int) -> None:
    assert score.scored_length_limit(vocab, free, share=share, max_batched_tokens=batched) == expected
