"""The figures of a point: whether the load was there, and that the wall clock does not enter them."""

import time
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving

from draftworth.bench import run
from draftworth.bench.base import Closed, Open, Prompt, RequestRow, Sampling, Target
from draftworth.bench.points import Point
from draftworth.bench.summary import load_findings, summarise
from draftworth.findings import Code


def row(started: float, e2e_ms: float | None = 1000.0, category: str = "c") -> RequestRow:
    return RequestRow("", 1, f"p-{started}", category, 0, started, ok=e2e_ms is not None, e2e_ms=e2e_ms, tokens=5)


def test_requests_under_way_are_told() -> None:
    # Two at a time for two seconds, then one for one more.
    rows = [row(0.0), row(0.0), row(1.0), row(1.0), row(2.0)]
    (whole,) = summarise(Point(Closed(2), 8), rows)
    assert whole.seconds == pytest.approx(3.0)
    assert whole.in_flight == pytest.approx(5 / 3)
    assert summarise(Point(Closed(2), 8), [row(0.0, None)])[0].in_flight is None


def test_a_category_has_no_load_of_its_own() -> None:
    whole, *parts = summarise(Point(Closed(2), 8), [row(0.0), row(0.0, category="d")])
    assert whole.in_flight == pytest.approx(2.0)
    assert [part.in_flight for part in parts] == [None, None]


def test_a_closed_loop_that_runs_out_of_requests_is_told() -> None:
    rows = [row(0.0, 1000.0) for _ in range(20)] + [row(0.0, 500.0) for _ in range(20)]
    (found,) = load_findings(Point(Closed(64), 8), rows)
    assert found.code is Code.LOAD_NOT_REACHED
    assert found.message == "64 at a time: 40 requests were sent, 30 under way on average; send at least 256"
    (of_arm,) = load_findings(Point(Closed(64), 8), rows, "ngram-5")
    assert of_arm.arm == "ngram-5"
    assert of_arm.message.startswith("ngram-5, 64 at a time: ")


@pytest.mark.parametrize(("load", "count"), [(Closed(1), 2), (Closed(10), 40), (Closed(10), 0), (Open(5.0), 3)])
def test_a_load_that_was_there_is_not_remarked_on(load: Any, count: int) -> None:
    assert load_findings(Point(load, 8), [row(float(n)) for n in range(count)]) == []


def test_a_step_of_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [Prompt(f"p-{n}", "c", ({"role": "user", "content": f"q {n}"},)) for n in range(8)]
    real, calls = time.time, 0

    def stepped() -> float:
        nonlocal calls
        calls += 1
        return real() + 600.0 * calls  # set forward at every look

    with serving(Script(token_ms=2, tokens=8)) as server:
        target = Target(server.base_url, "fake/model-1b")
        monkeypatch.setattr(time, "time", stepped)
        began = time.perf_counter()
        rows = run.measure_sync(target, prompts, Sampling(8), arm="", block=1, warmup=0).rows
        took = time.perf_counter() - began
        monkeypatch.undo()
    (whole,) = summarise(Point(Closed(1), 8), rows)
    assert whole.seconds is not None
    assert whole.seconds <= took
    assert rows == sorted(rows, key=lambda one: one.started_unix)
    assert abs(rows[0].started_unix - time.time()) < 60
