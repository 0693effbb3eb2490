"""The probe on a server whose steps cost a known staircase."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.costs.costs_stair import StairServer, stairs, step
from tests.fakes.openai_server import Script

from draftworth.bench.base import Access
from draftworth.costs.base import Costs
from draftworth.costs.cells import Cell, Results, cells, order
from draftworth.costs.concurrency import Stream, step_ms
from draftworth.costs.model import FittedModel
from draftworth.costs.passages import Passages
from draftworth.costs.probe import Options, probe
from draftworth.costs.subject import graph_sizes, start_seconds, subject
from draftworth.engines.base import StartupFacts
from draftworth.errors import MeasureError, RefusedError, UsageError
from draftworth.readings.log import read_log


def measured(server: StairServer, options: Options) -> Costs:
    return probe(subject(server.base_url, access=Access()), options)


def test_a_known_staircase_is_recovered_by_both_ways_and_nothing_is_smoothed() -> None:
    # What a prefill takes beyond that of two tokens is six times the staircase's, to stand out of the noise of CI.
    # That it runs as piecewise graphs, and one token as a full one, costs 20 ms, which are no part of a step's tokens.
    options = Options(concurrency=(1, 3), tokens=(3, 6), contexts=(128,), repeats=2, output=28, wait_s=0.0)
    with stairs(prefill=6.0, piecewise_ms=20.0) as server:
        costs = measured(server, options)
        news = [new for length, new in server.computed if 128 < length <= 128 + 6]
    found = {(one.how, one.batch, one.tokens): one for one in costs.points}
    assert found["concurrency", 1, 1].ms == pytest.approx(step(1), rel=0.05)
    assert found["concurrency", 3, 1].ms == pytest.approx(step(3), rel=0.05), "three streams cost what four do"
    for n in (3, 6):
        point = found["prefix", 1, n]
        assert point.ms == pytest.approx(step(2) + 6 * (step(n) - step(2)), rel=0.1)
        assert point.low <= point.ms <= point.high
        assert (point.context, point.repeats) == (128, 2)
    assert ("prefix", 1, 1) not in found
    assert set(news) - {1} == {2, 3, 6}, "the server computed exactly n new tokens, whatever was sent before"
    assert (costs.engine, costs.model, costs.version) == ("vllm", "fake/model-1b", "0.32.0")
    assert any("no log was given" in note for note in costs.notes)
    # What two new tokens take longer than one: the other graphs, and their part of the staircase.
    (prefill,) = costs.prefills
    assert (prefill.batch, prefill.context, prefill.repeats) == (1, 128, 2)
    assert prefill.ms == pytest.approx(20 + 6 * (step(2) - step(1)), rel=0.1)
    assert prefill.low <= prefill.ms <= prefill.high
    assert any("so that T(B, n) by prefix is a lower end only" in note for note in costs.notes)
    assert not FittedModel(costs).base([6], 128).measured


def test_prefills_that_cost_their_tokens_are_told_as_such() -> None:
    options = Options(concurrency=(1,), tokens=(3,), contexts=(128,), repeats=2, output=16, wait_s=0.0)
    with stairs() as server:
        costs = measured(server, options)
    (prefill,) = costs.prefills
    assert prefill.ms == pytest.approx(step(2) - step(1), abs=1.5)
    assert not any("lower end only" in note for note in costs.notes)


def test_several_prefixes_at_a_time_are_points_of_that_batch() -> None:
    options = Options(
        concurrency=(1,), tokens=(1, 2, 3), contexts=(128,), prefix_batch=(2,), repeats=2, output=28, wait_s=0.0
    )
    with stairs() as server:
        costs = measured(server, options)
    assert {(one.how, one.batch, one.tokens) for one in costs.points} == {
        ("concurrency", 1, 1),
        ("concurrency", 4, 1),
        ("prefix", 2, 3),
    }
    assert any("several at a time" in note for note in costs.notes)


@pytest.mark.parametrize("tells", ["usage", "metrics"])
def test_without_a_prefix_cache_there_are_no_prefix_points_and_it_is_said(tells: str) -> None:
    options = Options(concurrency=(1,), tokens=(3,), contexts=(128,), repeats=2, output=16, wait_s=0.0)
    with stairs(caches=False, tells=tells) as server:
        costs = measured(server, options)
    assert {one.how for one in costs.points} == {"concurrency"}
    assert any("0 of 128 prefix tokens came from the cache; is prefix caching off?" in note for note in costs.notes)


def test_a_server_that_tells_nothing_of_its_cache_is_measured_with_a_note() -> None:
    options = Options(concurrency=(1,), tokens=(4,), contexts=(64,), repeats=2, output=16, wait_s=0.0)
    with stairs(script=Script(tokenize=True), tells="nothing") as server:
        costs = measured(server, options)
    assert {one.how for one in costs.points} == {"concurrency", "prefix"}
    assert any("does not tell what came from its prefix cache" in note for note in costs.notes)


def test_a_server_without_tokenize_gives_the_ids_of_prompts_and_one_without_ids_gets_random_ones() -> None:
    options = Options(concurrency=(1,), tokens=(), contexts=(64,), repeats=2, output=16, wait_s=0.0)
    with stairs(script=Script(token_ids=True)) as server:
        costs = measured(server, options)
    assert any("random ids" in note for note in costs.notes), "the stair server streams no prompt ids"
    assert costs.points[0].ms == pytest.approx(step(1), rel=0.05)


def test_the_budget_ends_it_and_what_has_few_repeats_is_named() -> None:
    options = Options(concurrency=(1, 2), tokens=(), contexts=(64,), repeats=50, output=28, budget_s=2.5, wait_s=0)
    with stairs() as server:
        began = time.monotonic()
        costs = measured(server, options)
        took = time.monotonic() - began
    assert took < 3.5
    assert costs.points
    assert all(2 <= one.repeats < 50 for one in costs.points)
    assert any("of 50 repeats: " in note for note in costs.notes)


def test_ctrl_c_keeps_what_was_measured_and_says_so() -> None:
    options = Options(concurrency=(1,), tokens=(), contexts=(64,), repeats=50, output=16, wait_s=0)
    after = {"calls": 0}

    def interrupt(what: str, done: int, most: int) -> None:
        del what, most
        if done >= after["calls"]:
            raise KeyboardInterrupt

    with stairs() as server:
        mine = subject(server.base_url, access=Access())
        after["calls"] = 4
        costs = probe(mine, options, on_cell=interrupt)
        assert [2 <= one.repeats < 50 for one in costs.points] == [True]
        assert any(note.startswith("interrupted") for note in costs.notes)
        after["calls"] = 0
        with pytest.raises(KeyboardInterrupt):
            probe(mine, options, on_cell=interrupt)


def test_a_budget_too_short_for_anything_is_an_error() -> None:
    options = Options(concurrency=(4,), tokens=(), contexts=(64,), budget_s=0.2, wait_s=0)
    with stairs() as server, pytest.raises(MeasureError, match=r"the budget of 0\.2 s was too short"):
        measured(server, options)


def test_a_busy_server_is_refused_and_anyway_notes_it() -> None:
    options = Options(concurrency=(1,), tokens=(), contexts=(64,), repeats=2, output=16, wait_s=0.0)
    with stairs() as server:
        server.metrics.engines[0].running = 2
        with pytest.raises(RefusedError, match="2 requests of others are at hand"):
            measured(server, options)
        costs = measured(server, Options(**{**_fields(options), "anyway": True}))
        assert any("2 requests of others were at hand" in note for note in costs.notes)
        assert costs.points[0].ms == pytest.approx(step(3), rel=0.05)


def test_a_server_that_speculates_is_refused_and_anyway_notes_it() -> None:
    options = Options(concurrency=(1,), tokens=(), contexts=(64,), repeats=2, output=16, wait_s=0.0)
    with stairs(speculative_config={"method": "ngram", "num_speculative_tokens": 3}) as server:
        with pytest.raises(RefusedError, match="the server speculates"):
            measured(server, options)
        costs = measured(server, Options(**{**_fields(options), "anyway": True}))
        assert any("the server speculates" in note for note in costs.notes)


def test_measurements_that_others_requests_fall_into_are_left_out() -> None:
    options = Options(concurrency=(1, 2), tokens=(), contexts=(64,), repeats=3, output=28, wait_s=0.0)
    with stairs(foreign_every=5) as server:
        costs = measured(server, options)
        fell_into = len(server.computed) // 5  # the warm-up has three requests
    assert fell_into
    assert f"{fell_into} measurements left out: others' requests fell into them" in costs.notes


def test_more_streams_than_the_server_runs_at_a_time_are_no_point() -> None:
    options = Options(concurrency=(1, 4), tokens=(), contexts=(64,), repeats=5, output=16, wait_s=0.0)
    with stairs(most=2) as server:
        costs = measured(server, options)
        tried = [length for length, _ in server.computed]
    assert [(one.batch, one.repeats) for one in costs.points] == [(1, 5)]
    assert len(tried) == 5 + 5 + 3 * 4, "the warm-up, five rounds of one stream, and four streams given up after three"
    assert any("steps had all 4 streams decoding" in note for note in costs.notes)


def test_a_context_beyond_the_servers_is_left_out_and_named() -> None:
    options = Options(concurrency=(1,), tokens=(), contexts=(64, 4096), repeats=2, output=16, wait_s=0.0)
    with stairs() as server:
        costs = measured(server, options)
    assert {one.context for one in costs.points} == {64}
    assert any("context 4,096: left out, beyond the server's 2,048 tokens" in note for note in costs.notes)


def test_a_server_that_fails_is_an_error_in_one_line() -> None:
    options = Options(concurrency=(1,), tokens=(), contexts=(64,), repeats=2, output=16, wait_s=0.0)
    with stairs() as server:
        found = subject(server.base_url, access=Access())
        server.names = ("another",)
        with pytest.raises(MeasureError, match="HTTP 404"):
            probe(found, options)


def test_a_step_is_timed_only_while_all_streams_decode() -> None:
    early = Stream(times=[0.00, 0.01, 0.02, *(0.02 + 0.03 * n for n in range(1, 13))], tokens=[1] * 15)
    late = Stream(times=[0.02 + 0.03 * n for n in range(14)], tokens=[1] * 14)
    ms, middle = step_ms([early, late])
    assert ms == pytest.approx(30.0)
    assert middle == pytest.approx((9 + 7) / 2)


def test_tokens_that_came_in_one_chunk_count_as_their_steps() -> None:
    one = Stream(times=[0.0, 0.02, 0.06, 0.10], tokens=[1, 2, 4, 4])
    assert step_ms([one])[0] == pytest.approx(10.0)


def test_too_few_steps_are_an_error() -> None:
    with pytest.raises(MeasureError, match="only 3 steps had all 1 streams decoding"):
        step_ms([Stream(times=[0.0, 0.1, 0.2, 0.3], tokens=[1] * 4)])


def test_cells_have_what_others_build_on() -> None:
    found = cells(concurrency=(), tokens=(1, 2, 3), contexts=(64,), prefix_batch=(2,))
    assert found == [
        Cell("concurrency", 64, 1, 1),
        Cell("concurrency", 64, 4, 1),
        Cell("prefix", 64, 2, 1),
        Cell("prefix", 64, 2, 3),
    ]
    assert sorted(order(found, 1, 0)) == sorted(found)
    assert order(found, 1, 0) != order(found, 2, 0)
    with pytest.raises(UsageError, match="--context"):
        cells(concurrency=(1,), tokens=(), contexts=())


def test_a_prefix_point_is_a_stream_and_a_difference_of_the_same_round() -> None:
    plan = cells(concurrency=(1,), tokens=(4,), contexts=(64,))
    one, base, single, four = plan
    assert (base.batch, base.tokens) == (2, 1), "two tokens are taken to cost what two streams do"
    results = Results()
    for number, drift in ((1, 0.0), (2, 5.0)):
        results.add(one, number, 9.0)
        results.add(base, number, 10.0 + drift)
        results.add(four, number, 7.0)
        results.add(single, number, -0.5 - drift)  # beside two new tokens
    results.add(four, 3, 1000.0)  # a round without its stream
    assert dict(results.steps(four)) == {1: 17.0, 2: 22.0}
    assert results.notes(plan, 2) == []
    assert [(one.batch, one.tokens) for one in results.points(plan)] == [(1, 1), (2, 1), (1, 4)]
    assert [(one.batch, one.context, one.ms) for one in results.prefills(plan)] == [(1, 64, 3.0)]


def test_a_step_that_noise_takes_below_nothing_is_left_out_and_named() -> None:
    plan = cells(concurrency=(), tokens=(4,), contexts=(64,))
    results = Results()
    for number in (1, 2):
        for cell in plan:
            results.add(cell, number, 2.0 if cell.how == "concurrency" else -3.0)
    assert [(one.batch, one.tokens) for one in results.points(plan)] == [(1, 1), (2, 1)]
    assert results.notes(plan, 2) == [
        "left out, a repeat came to no time at all (noise above the step): 4 new tokens at 64"
    ]


def test_prompts_are_exact_repeatable_and_begin_with_another_token_each_time() -> None:
    some = Passages(range(500, 900), natural=True)
    assert len(some.prompt("a", 131)) == 131
    assert some.prompt("a", 131) == some.prompt("a", 131) != some.prompt("b", 131)
    assert len({some.fresh(3)[0] for _ in range(400)}) == 400
    assert [len(some.fresh(n)) for n in (1, 2, 9)] == [1, 2, 9]


BANNER = "(APIServer pid=1) INFO 11-30 {} [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\n"
SERVES = "(APIServer pid=1) INFO 11-30 {} [entry.py:140] Starting vLLM server on http://127.0.0.1:8801\n"


def test_the_log_tells_how_long_the_last_whole_start_took(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(BANNER.format("13:00:00") + BANNER.format("13:30:37") + SERVES.format("13:31:24"))
    assert start_seconds(log) == 47.0
    log.write_text(BANNER.format("13:30:37"))
    assert start_seconds(log) is None


def test_graph_sizes_are_those_the_log_prints() -> None:
    key = "compilation_config.cudagraph_capture_sizes"
    assert graph_sizes(StartupFacts(config={key: "[8, 4, 2, 1]"})) == (1, 2, 4, 8)
    assert graph_sizes(StartupFacts(config={key: "None"})) == graph_sizes(StartupFacts()) == ()
    log = read_log(Path(__file__).parents[1] / "engines" / "data" / "vllm" / "v2_0.25.0_eagle_h200.txt")
    assert graph_sizes(log.facts)[:4] == (1, 2, 4, 8)


def _fields(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}
