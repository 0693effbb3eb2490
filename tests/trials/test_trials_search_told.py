"""What a search predicts of its settings, from a baseline whose step is known."""

import math
from pathlib import Path

import pytest
from tests.costs.test_costs_graphs import _server

from draftworth.bench.base import Closed, RequestRow
from draftworth.bench.points import Point
from draftworth.costs.file import save_costs
from draftworth.search.grid import candidate_of
from draftworth.trials.probing import COSTS
from draftworth.trials.search_told import predicted

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
LOOP = [11, 12, 13, 14, 15, 16]


def _rows(tpot_ms: float, ttft_ms: float) -> list[RequestRow]:
    return [
        RequestRow(
            arm="baseline",
            block=0,
            prompt_id=f"p{at}",
            category="chat",
            repeat=0,
            started_unix=float(at),
            ok=True,
            prompt_tokens=12,
            tokens=61,
            first_chunk_tokens=1,
            ttft_ms=ttft_ms,
            decode_ms=60 * tpot_ms,
            tpot_ms=tpot_ms,
            prompt_token_ids=LOOP * 2,
            token_ids=(LOOP * 11)[:61],
        )
        for at in range(8)
    ]


def _speed(folder: Path, tpot_ms: float, ttft_ms: float) -> float:
    """Return the predicted speed-up at 4 at a time of a server whose step takes 10 ms, drafts or not."""
    folder.mkdir()
    flat = (("idle", 4, 1, 0.0), ("drafting", 4, 4, 0.0))
    save_costs(_server(*flat, graphs=()), folder / COSTS)
    one = candidate_of("ngram-3", NGRAM, engine="vllm", runner="V1")
    sweep = (Point(load=Closed(4), max_tokens=61),)
    (told,), why = predicted((one,), _rows(tpot_ms, ttft_ms), folder, sweep, runner="V1")
    assert why is None
    assert told.predicted is not None
    return math.exp(told.predicted[4].value)


def test_prefills_of_others_do_not_shrink_with_the_steps(tmp_path: Path) -> None:
    alone = _speed(tmp_path / "alone", 10.0, 10.0)
    assert alone > 2, "the answers repeat their prompts"
    # A token takes 12 ms where a step takes 10: 2 ms are others' prefills, which each token of either arm waits for.
    steps = 1 / alone
    assert _speed(tmp_path / "under load", 12.0, 100.0) == pytest.approx(12 / (10 * steps + 2), rel=1e-6)
