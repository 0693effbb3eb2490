"""What a window of a measurement remarks: foreign use, a busy client, retries, late arrivals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from draftworth.bench.base import ClientHealth, Closed, RequestRow, Sampling, Target
from draftworth.bench.points import Point
from draftworth.bench.window import (
    Job,
    Window,
    _count,
    client_findings,
    foreign_use,
    retry_findings,
    together,
)
from draftworth.engines.base import MetricsSnapshot
from draftworth.engines.vllm import VLLM
from draftworth.findings import Code


def row(tokens: int = 10, *, ok: bool = True, retries: int = 0) -> RequestRow:
    return RequestRow(
        *("a", 1, "p", "c", 0, 0.0), ok=ok, tokens=tokens, token_source="usage", retries=retries,
        retry_reasons="HTTP 429" if retries else None,
    )  # fmt: skip


def test_requests_or_tokens_beyond_our_own_are_somebody_elses() -> None:
    rows = [row(), row()]
    assert foreign_use(rows, 2, 20) is None
    assert foreign_use(rows, 2, 22) is None, "two tokens may have been cut off behind the end"
    assert "3 requests" in str(foreign_use(rows, 3, 20))
    assert "30 tokens" in str(foreign_use(rows, 2, 30))
    assert foreign_use(rows, None, None) is None


def test_a_request_sent_twice_may_have_been_counted_twice() -> None:
    assert foreign_use([row(retries=1)], 2, 40) is None


def test_a_failed_request_says_nothing_of_tokens() -> None:
    assert foreign_use([row(), row(ok=False)], 1, 500) is None


@pytest.mark.parametrize(
    ("health", "saturated"),
    [
        (ClientHealth(10.0, 2.0, (0.1, 3.0, 40.0)), False),
        (ClientHealth(10.0, 9.0, (0.1, 3.0, 40.0)), True),
        (ClientHealth(10.0, 2.0, (4.0, 9.0, 40.0)), True),
        (ClientHealth(10.0, 2.0, (0.1, 60.0, 90.0)), True),
        (ClientHealth(0.2, 0.2, (9.0, 60.0, 90.0)), False),
    ],
)
def test_a_busy_client_is_told(health: ClientHealth, saturated: bool) -> None:  # noqa: FBT001 - a table's column
    assert [one.code for one in client_findings("a", "", health)] == [Code.CLIENT_SATURATED] * saturated


def test_late_arrivals_are_told() -> None:
    health = ClientHealth(10.0, 1.0, (0.1, 1.0, 2.0), late_ms=80.0)
    assert [one.code for one in client_findings("a", "2 a second", health)] == [Code.ARRIVALS_LATE]


def test_windows_of_the_client_add_up() -> None:
    one, two = ClientHealth(1.0, 0.5, (1.0, 5.0, 9.0)), ClientHealth(3.0, 0.3, (2.0, 4.0, 30.0), late_ms=7.0)
    both = together([one, None, two])
    assert both is not None
    assert (both.wall_s, both.cpu_s, both.late_ms) == (4.0, 0.8, 7.0)
    assert both.lag_ms == pytest.approx((1.75, 5.0, 30.0))
    assert together([None]) is None


def test_retries_are_told_with_their_reason() -> None:
    found = retry_findings("a", [row(), row(retries=2)])
    assert [one.code for one in found] == [Code.REQUESTS_RETRIED]
    assert "1 of 2 requests" in found[0].message
    assert "HTTP 429" in found[0].message


POINT = Point(Closed(1), 128)


def full(prompt: str = "p", **changes: Any) -> RequestRow:
    made = row(101)
    made.prompt_id, made.token_ids = prompt, list(range(101))
    return replace(made, **changes)


def counted(window: Window, engine: VLLM, before: MetricsSnapshot | None, after: MetricsSnapshot | None) -> None:
    job = Job(Target("u", "m"), engine, Sampling(), 1, 0, {}, lambda *_: None, engine.version)
    window.after = after
    _count(job, window, before)


def test_foreign_use_is_seen_by_requests_and_by_tokens() -> None:
    rows = [full(), full(prompt="q")]  # 202 tokens; 1 % and 2 tokens more are 206.02
    assert foreign_use(rows, 2, 202) is None
    assert foreign_use(rows, 2, 206) is None
    assert foreign_use(rows, 2, 207) == "the server generated 207 tokens in the window, 202 of them ours"
    assert foreign_use(rows, 3, None) == "the server finished 3 requests in the window, 2 of them ours"
    assert foreign_use(rows, None, None) is None


@pytest.mark.parametrize("change", [{"ok": False}, {"tokens": None}, {"token_source": "chunks"}])
def test_tokens_tell_nothing_where_ours_are_not_known(change: dict[str, Any]) -> None:
    assert foreign_use([full(), full(prompt="q", **change)], 2, 10_000) is None


def scrape(tokens: int, requests: int, drafts: int | None = None) -> MetricsSnapshot:
    counters = {
        "vllm:generation_tokens_total": float(tokens),
        "vllm:time_to_first_token_seconds_count": float(requests),
        "vllm:inter_token_latency_seconds_count": float(tokens - requests),
        "vllm:request_success_total": float(requests),
    }
    if drafts is not None:
        counters["vllm:spec_decode_num_drafts_total"] = float(drafts)
        counters["vllm:spec_decode_num_draft_tokens_total"] = float(5 * drafts)
        counters["vllm:spec_decode_num_accepted_tokens_total"] = 0.0
    return MetricsSnapshot(counters=counters, engines=1)


def codes_after(
    rows: Sequence[RequestRow], after: MetricsSnapshot, before: MetricsSnapshot | None = None
) -> list[Code]:
    made = Window(arm="ngram", point=POINT, rows=list(rows))
    counted(made, VLLM("0.32.0"), before or scrape(0, 0, 0), after)
    return [finding.code for finding in made.findings]


def test_a_foreign_stream_that_runs_through_the_window_is_found() -> None:
    assert codes_after([full(), full(prompt="q")], scrape(202, 2, 0)) == []
    assert codes_after([full(), full(prompt="q")], scrape(402, 2, 0)) == [Code.FOREIGN_REQUESTS]


STATS = {"num_spec_steps": 2, "num_draft_tokens": 10, "num_accepted_draft_tokens": 0, "acceptance_histogram": [2, 0]}


def test_figures_of_another_form_are_a_finding_and_the_rest_is_kept() -> None:
    made = Window(arm="ngram", point=POINT, rows=[full(spec_stats={"renamed": 1})])
    counted(made, VLLM("0.40.0"), scrape(0, 0, 0), scrape(101, 1, 2))
    assert [finding.code for finding in made.findings] == [Code.PER_REQUEST_UNREADABLE]
    assert made.per_request is None
    assert made.counts is not None
    assert made.counts.drafting_steps == 2


def test_figures_are_compared_only_where_every_answer_carried_them() -> None:
    both = [full(spec_stats=STATS), full(prompt="q", spec_stats=STATS)]
    assert codes_after(both, scrape(202, 2, 4)) == []
    assert codes_after(both, scrape(202, 2, 5)) == [Code.COUNTS_DISAGREE]
    assert codes_after([both[0], full(prompt="q")], scrape(202, 2, 4)) == []


def test_usage_and_token_ids_that_differ_are_told() -> None:
    made = Window(arm="ngram", point=POINT, rows=[full(), full(prompt="q", token_ids=[1, 2])])
    counted(made, VLLM(), None, None)
    (finding,) = made.findings
    assert finding.code is Code.TOKENS_DISAGREE
    assert "1 of 2 answers" in finding.message
    assert "q: 2 ids, usage 101" in finding.message
