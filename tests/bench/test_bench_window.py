"""What a window of a measurement remarks: foreign use, a busy client, retries, late arrivals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.openai_server import FakeServer, Script, serving

from draftworth.bench import run
from draftworth.bench import window as window_module
from draftworth.bench.base import ClientHealth, Closed, Prompt, RequestRow, Sampling, Target
from draftworth.bench.doubts import client_findings, foreign_use, retry_findings
from draftworth.bench.monitor import together
from draftworth.bench.points import Point
from draftworth.bench.window import Job, Run, Window, _count, close, warm_up
from draftworth.engines.base import MetricsSnapshot
from draftworth.engines.vllm import VLLM
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding


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
        pytest.param(ClientHealth(10.0, 2.0, {0.1: 198, 40.0: 2}), False, id="on time"),
        pytest.param(ClientHealth(10.0, 9.0, {0.1: 200}), True, id="a core"),
        pytest.param(ClientHealth(10.0, 2.0, {4.0: 200}), True, id="median"),
        pytest.param(ClientHealth(10.0, 2.0, {0.1: 195, 60.0: 5}), True, id="often"),
        pytest.param(ClientHealth(4.0, 1.0, {0.1: 78, 60.0: 2}), False, id="two hiccups are the 99th percentile"),
        pytest.param(ClientHealth(60.0, 1.0, {0.1: 1195, 60.0: 5}), False, id="1 in 240"),
        pytest.param(ClientHealth(1.5, 1.4, {9.0: 20, 60.0: 10}), False, id="too short to say"),
        pytest.param(ClientHealth(10.0, 2.0, {450.0: 20}), True, id="blocked, so that there are few ticks"),
        pytest.param(ClientHealth(60.0, 2.0, {9.0: 3}), False, id="turns shorter than a tick"),
    ],
)
def test_a_busy_client_is_told(health: ClientHealth, saturated: bool) -> None:  # noqa: FBT001 - a table's column
    assert [one.code for one in client_findings("a", "", health)] == [Code.CLIENT_SATURATED] * saturated


def test_what_a_late_client_can_account_for_is_bounded_and_a_busy_one_is_not() -> None:
    # 5 of 200 ticks of 50 ms were late by 100 ms: 0.5 of 10.5 s, and twice that is allowed for.
    (late,) = client_findings("a", "", ClientHealth(10.5, 2.0, {0.0: 195, 100.0: 5}))
    assert late.accounts_for == pytest.approx(2 * 0.5 / 10.5)
    (busy,) = client_findings("a", "", ClientHealth(10.0, 9.0, {0.1: 200}))
    assert busy.accounts_for is None


def test_late_arrivals_are_told() -> None:
    health = ClientHealth(10.0, 1.0, {0.1: 200}, late={0.1: 90, 80.0: 10})
    assert [one.code for one in client_findings("a", "2 a second", health)] == [Code.ARRIVALS_LATE]


def test_windows_of_the_client_add_up() -> None:
    one = ClientHealth(1.0, 0.5, {0.1: 19, 9.0: 1})
    two = ClientHealth(9.0, 0.3, {0.1: 179, 30.0: 1}, late={0.1: 198, 7.0: 2})
    both = together([one, None, two, ClientHealth(1.0, 0.0, {}, late={500.0: 1})])
    assert both is not None
    assert (both.wall_s, both.cpu_s, both.ticks) == (11.0, 0.8, 200)
    assert both.lag_ms == (0.1, 0.1, 30.0), "quantiles of all ticks, not the worst of each window's"
    assert both.late_ms == 7.0
    assert together([None]) is None
    assert ClientHealth().lag_ms == (0.0, 0.0, 0.0)


def test_a_hiccup_in_a_short_window_does_not_make_the_client_busy() -> None:
    windows = [ClientHealth(0.5, 0.1, {0.1: 10}) for _ in range(19)] + [ClientHealth(0.5, 0.1, {0.1: 9, 80.0: 1})]
    whole = together(windows)
    assert whole is not None
    assert client_findings("a", "", whole) == []


def test_a_busy_client_is_told_with_the_arm_and_the_point() -> None:
    busy = ClientHealth(10.0, 2.0, {0.1: 190, 60.0: 10})
    (of_trial,) = client_findings("ngram", "8 at a time", busy)
    assert of_trial.arm == "ngram"
    assert of_trial.message.startswith("ngram (8 at a time): the client used 20% of a core")
    assert "10 of 200 ticks" in of_trial.message
    (of_bench,) = client_findings("", "8 at a time", busy)
    assert of_bench.arm is None
    assert of_bench.message.startswith("8 at a time: the client used")


@pytest.mark.parametrize("arm", ["", "ngram"])
def test_one_page_that_cannot_be_read_costs_one_window(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = MeasureError("/metrics: connection refused")
    pages: list[MetricsSnapshot | MeasureError] = [gone, gone, scrape(101, 1, 0), scrape(202, 2, 0)]
    monkeypatch.setattr(window_module, "scrape", lambda *_: pages.pop(0))
    job = Job(Target("u", "m"), VLLM("0.32.0"), Sampling(), 1, 0, {}, lambda *_: None)
    opening: MetricsSnapshot | None = scrape(0, 0, 0)
    windows = []
    for _ in range(3):
        made = Window(arm, POINT, rows=[full()])
        close(job, made, opening)
        opening = made.after
        windows.append(made)
    assert [one.counts is None for one in windows] == [True, True, False]
    assert [[one.code for one in made.findings] for made in windows] == [[Code.METRICS_MISSING], [], []]
    (told,) = windows[0].findings
    assert told.message == ("ngram: " if arm else "") + "/metrics: connection refused"
    assert told.arm == (arm or None)


def running(server: FakeServer) -> Run:
    target = Target(server.base_url, "fake/model-1b", token_timeout=5.0)
    return lambda **options: run.measure_sync(target, **options)


def warmed(server: FakeServer, prompts: Sequence[Prompt], *, arm: str = "base") -> list[Finding]:
    job = Job(Target(server.base_url, "fake/model-1b"), VLLM(), Sampling(max_tokens=8), 1, 0, {}, lambda *_: None)
    return warm_up(job, 3, POINT, running(server), prompts, arm=arm)


def test_a_warm_up_is_of_the_kind_of_what_is_measured() -> None:
    ids = [Prompt(f"p{i}", "c", token_ids=(1, 1000 + i, 1001)) for i in range(2)]
    with serving(Script(tokens=8, token_ms=0)) as server:
        assert warmed(server, ids) == []
        assert {path for path, _ in server.requests} == {"/v1/completions"}
        assert len(server.requests) == 3
        assert not {tuple(body["prompt"]) for _, body in server.requests} & {prompt.token_ids for prompt in ids}
    with serving(Script(tokens=8, token_ms=0)) as server:
        assert warmed(server, ()) == []
        assert {path for path, _ in server.requests} == {"/v1/chat/completions"}


def test_a_warm_up_that_nobody_answered_is_told() -> None:
    with serving(Script(error_every=1)) as server:
        (told,) = warmed(server, (), arm="ngram")
        assert len(server.requests) == 3
    assert (told.code, told.arm) == (Code.REQUESTS_FAILED, "ngram")
    assert told.message.startswith("ngram: all 3 warm-up requests failed, so the server is measured cold; the first: ")
    assert "EngineCore encountered an issue" in told.message
    with serving(Script(error_every=2, tokens=8, token_ms=0)) as server:
        assert warmed(server, ()) == [], "one of them warmed it up"


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
