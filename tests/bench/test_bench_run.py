"""Whole runs and questions to a server."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.fakes.openai_server import FakeServer, Script, serving
from tests.fakes.raw import raw_server

from draftworth.bench import run
from draftworth.bench.base import Prompt, RequestRow, Sampling, Target
from draftworth.errors import MeasureError

PROMPTS = tuple(Prompt(f"p-{i}", "c", ({"role": "user", "content": f"question {i}"},)) for i in range(4))
SHORT = Sampling(max_tokens=6)
QUICK = Script(token_ms=0.5, first_token_ms=1)


def measured(
    script: Script,
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    repeats: int = 1,
    concurrency: int = 1,
    warmup: int = 2,
) -> tuple[list[RequestRow], list[str]]:
    """Return the rows of a run and the texts the server was asked, in its order."""
    with serving(script) as server:
        rows = run.measure_sync(
            Target(server.base_url, "fake/model-1b"),
            prompts,
            SHORT,
            arm="v",
            block=2,
            repeats=repeats,
            concurrency=concurrency,
            warmup=warmup,
        )
        return rows, [body["messages"][0]["content"] for _, body in server.requests]


def test_rows_come_in_the_order_of_the_plan() -> None:
    rows, asked = measured(QUICK, repeats=2)
    assert [(r.repeat, r.prompt_id) for r in rows] == [(n, f"p-{i}") for n in (0, 1) for i in range(4)]
    assert all(r.ok and r.arm == "v" and r.block == 2 for r in rows)
    assert asked[2:] == [f"question {i}" for _ in range(2) for i in range(4)]


def test_warming_up_is_sent_first_with_other_prompts_and_not_returned() -> None:
    rows, asked = measured(QUICK, warmup=3)
    assert len(rows) == 4
    assert len(asked) == 7
    assert all(text.startswith("Warm-up") for text in asked[:3])
    assert run.failed_share(rows) == 0
    assert len(measured(QUICK, warmup=0)[1]) == 4


def test_a_failed_warm_up_spoils_nothing() -> None:
    rows, _ = measured(Script(error_every=5, token_ms=0), PROMPTS[:2], warmup=5)
    assert [r.ok for r in rows] == [True, True]


def test_so_many_requests_are_under_way_and_no_more() -> None:
    async def go(concurrency: int) -> tuple[int, list[str]]:
        async with FakeServer(Script(token_ms=4, first_token_ms=4)) as server:
            most = 0

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, server.metrics.engines[0].running)
                    await asyncio.sleep(0.001)

            watcher = asyncio.create_task(watch())
            target = Target(server.base_url, "fake/model-1b")
            rows = await run.measure(target, PROMPTS * 2, SHORT, arm="a", block=0, concurrency=concurrency)
            watcher.cancel()
            return most, [r.prompt_id for r in rows]

    for concurrency in (1, 3):
        most, ids = asyncio.run(go(concurrency))
        assert most == concurrency
        assert ids == [p.id for p in PROMPTS * 2]


def test_more_than_a_hundred_connections_at_once() -> None:
    prompts = [Prompt(f"p-{i}", "c", PROMPTS[0].messages) for i in range(150)]

    async def go() -> tuple[int, list[RequestRow]]:
        # A client that queued beyond its connection limit would never get 150 of them to the server at once.
        async with FakeServer(Script(token_ms=1, first_token_ms=400)) as server:
            target = Target(server.base_url, "fake/model-1b")
            run_ = asyncio.create_task(
                run.measure(target, prompts, Sampling(max_tokens=1), arm="a", block=0, concurrency=150, warmup=0)
            )
            most = 0
            while not run_.done():
                most = max(most, server.metrics.engines[0].running)
                await asyncio.sleep(0.02)
            return most, run_.result()

    most, rows = asyncio.run(go())
    assert most == 150
    assert all(r.ok for r in rows)


def test_progress_is_told_row_by_row() -> None:
    seen: list[tuple[str, int, int]] = []
    with serving(QUICK) as server:
        rows = run.measure_sync(
            Target(server.base_url, "fake/model-1b"),
            PROMPTS,
            SHORT,
            arm="a",
            block=0,
            on_row=lambda row, done, total: seen.append((row.prompt_id, done, total)),
        )
    assert seen == [(r.prompt_id, i, 4) for i, r in enumerate(rows, start=1)]


def test_failures_are_rows_and_a_share() -> None:
    rows, _ = measured(Script(error_every=2, token_ms=0), warmup=0)
    assert [r.ok for r in rows] == [True, False, True, False]
    assert run.failed_share(rows) == 0.5
    assert run.failed_share([]) == 1.0


def test_a_server_that_dies_leaves_failed_rows_not_an_exception() -> None:
    rows, _ = measured(Script(die_at="request:4", token_ms=0), warmup=2)
    assert [r.ok for r in rows] == [True, False, False, False]
    assert all(r.error and "\n" not in r.error for r in rows[1:])


def test_cancelling_keeps_what_was_measured() -> None:
    async def go() -> list[str]:
        seen: list[str] = []
        enough = asyncio.Event()

        def on_row(row: RequestRow, done: int, _total: int) -> None:
            seen.append(row.prompt_id)
            if done == 2:
                enough.set()

        async with FakeServer(Script(hang_at_request=5, token_ms=0)) as server:
            target = Target(server.base_url, "fake/model-1b")
            task = asyncio.create_task(run.measure(target, PROMPTS, SHORT, arm="a", block=0, on_row=on_row))
            await enough.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return seen

    assert asyncio.run(go()) == ["p-0", "p-1"]


def test_ctrl_c_keeps_what_was_measured() -> None:
    seen: list[str] = []

    def on_row(row: RequestRow, done: int, _total: int) -> None:
        seen.append(row.prompt_id)
        if done == 3:
            signal.raise_signal(signal.SIGINT)

    with serving(QUICK) as server, pytest.raises(KeyboardInterrupt):
        run.measure_sync(Target(server.base_url, "fake/model-1b"), PROMPTS, SHORT, arm="a", block=0, on_row=on_row)
    assert seen == ["p-0", "p-1", "p-2"]


def test_an_error_of_the_caller_is_the_callers() -> None:
    def on_row(_row: RequestRow, _done: int, _total: int) -> None:
        raise RuntimeError("disk full")

    with serving(QUICK) as server, pytest.raises(RuntimeError, match="disk full"):
        run.measure_sync(
            Target(server.base_url, "fake/model-1b"), PROMPTS, SHORT, arm="a", block=0, concurrency=3, on_row=on_row
        )


def test_a_probe_generates_one_token_and_names_the_model() -> None:
    with serving(names=("first", "second")) as server:
        assert run.probe_sync(server.base_url) == "first"
        assert run.probe_sync(server.base_url, model="second") == "second"
        assert server.requests[0] == (
            "/v1/completions",
            {"model": "first", "prompt": "Hello", "max_tokens": 1, "temperature": 0},
        )
        with pytest.raises(MeasureError, match="HTTP 404: The model `third` does not exist"):
            run.probe_sync(server.base_url, model="third")


def test_healthy_is_not_able_to_generate() -> None:
    with serving(Script(warm_seconds=30)) as server:
        assert run.healthy_sync(server.base_url)
        with pytest.raises(MeasureError, match=r"/v1/completions: HTTP 503: The model is not loaded yet"):
            run.probe_sync(server.base_url)


def test_questions_to_a_server() -> None:
    with serving(names=("a", "b")) as server:
        assert run.served_models_sync(server.base_url) == ("a", "b")
        assert json.loads(run.fetch_text_sync(server.base_url, "/version")) == {"version": "0.32.0"}
        with pytest.raises(MeasureError, match=r"GET http://127.0.0.1:\d+/nowhere: HTTP 404"):
            run.fetch_text_sync(server.base_url, "/nowhere")


def test_questions_to_nobody() -> None:
    with serving() as server:
        base_url = server.base_url
    assert not run.healthy_sync(base_url)
    with pytest.raises(MeasureError, match=r"GET .*/v1/models: connection refused by 127.0.0.1:\d+"):
        run.probe_sync(base_url)
    with pytest.raises(MeasureError, match=r"POST .*/v1/completions: connection refused"):
        run.probe_sync(base_url, model="m")


def test_an_answer_that_does_not_come_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up

    async def go() -> None:
        async with raw_server(silent) as base_url:
            assert not await run.healthy(base_url, timeout=0.1)
            with pytest.raises(MeasureError, match="no answer in time"):
                await run.probe(base_url, model="m", timeout=0.1)

    asyncio.run(go())


@pytest.mark.parametrize("module", ["base", "workload", "prompts", "run", "score", "client", "probes"])
def test_importing_the_bench_does_not_load_the_http_client(module: str) -> None:
    code = f"import sys, draftworth.bench.{module}; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
