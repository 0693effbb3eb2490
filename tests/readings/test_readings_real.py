"""What real servers wrote: a log, a page and a client that count the same thing tell the same counts."""

import json
from pathlib import Path

from draftworth.doctor.examine import mode_of
from draftworth.readings.file import read_file, read_two
from draftworth.readings.log import read_log

DATA = Path(__file__).parents[1] / "engines" / "data" / "vllm"
REQUESTS, TOKENS = 25, 25 * 120
"""Of the recording: one request before the first page, 24 after it, 120 tokens each (`benchmarks/vllm_fixtures.py`)."""


def test_two_ranks_logs_rounded_figures_are_exactly_their_pages_sums() -> None:
    log, page = (
        read_log(DATA / "dp2_0.32.0_ngram_log.txt").counts,
        read_file(DATA / "dp2_0.32.0_ngram_metrics_after.txt").counts,
    )
    assert log is not None
    assert page is not None
    assert "2 engines" in page.source
    # Two decimals of a length and three of each rate, in six lines of two ranks, are enough for every whole number.
    for name in ("drafting_steps", "drafted", "accepted", "accepted_per_position"):
        assert getattr(log, name) == getattr(page, name), name
    assert (page.drafting_steps, page.drafted, page.accepted) == (763, 3805, 1885)
    assert page.accepted_per_position == (413, 393, 379, 362, 338)
    # And the client: all tokens but each request's first left decode steps.
    assert page.emitted == TOKENS - REQUESTS


def test_what_lies_between_two_pages_of_two_ranks() -> None:
    between = read_two(DATA / "dp2_0.32.0_ngram_metrics_before.txt", DATA / "dp2_0.32.0_ngram_metrics_after.txt").counts
    assert between is not None
    assert between.emitted == 24 * 120 - 24
    assert between.steps is not None
    assert between.accepted is not None
    assert between.drafting_steps is not None
    # A step emits one token and what was accepted, less what the end cut off: at most 5 a request.
    assert 0 <= between.steps + between.accepted - between.emitted <= 5 * 24
    assert between.drafting_steps <= between.steps


def test_a_gpus_log_of_the_second_runner_tells_runner_device_and_method() -> None:
    found = read_log(DATA / "v2_0.25.0_eagle_h200.txt")
    assert (found.version, found.facts.runner, found.facts.device) == ("0.25.0", "V2", "cuda")
    assert mode_of(found.facts, [found]) == "eagle, 3 tokens"
    assert found.facts.speculating is True


def test_a_reading_is_one_json_document() -> None:
    document = read_log(DATA / "dp2_0.32.0_ngram_log.txt").document()
    assert json.loads(json.dumps(document))["drafted"] == 3805
