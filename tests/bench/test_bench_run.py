"""Whole runs and questions to a server."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import FakeServer, Script, serving
from tests.fakes.raw import raw_server
from tests.fakes.tls import private_authority

from draftworth.bench import arrivals, probes, run
from draftworth.bench.base import (
    Access,
    Closed,
    Load,
    Measured,
    Open,
    Prompt,
    Replay,
    RequestRow,
    Sampling,
    Target,
    Turn,
)
from draftworth.errors import MeasureError, UsageError

PROMPTS = tuple(Prompt(f"p-{i}", "c", ({"role": "user", "content": f"question {i}"},)) for i in range(4))
SHORT = Sampling(max_tokens=6)
ONE = Closed(1)
QUICK = Script(token_ms=0.5, first_token_ms=1)


class Enough(KeyboardInterrupt):
    """What a caller may raise from anywhere."""


def measured(
    script: Script,
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    repeats: int = 1,
    load: Load = ONE,
    warmup: int = 2,
    retries: int = 0,
    answers: dict[str, str] | None = None,
) -> tuple[list[RequestRow], list[str]]:
    """Return the rows of a run and the texts the server was asked last, in its order."""
    with serving(script) as server:
        measured_ = run.measure_sync(
            Target(server.base_url, "fake/model-1b"),
            prompts,
            SHORT,
            arm="v",
            block=2,
            repeats=repeats,
            start=2,
            point="4 at a time",
            load=load,
            warmup=warmup,
            retries=retries,
            answers=answers,
        )
        return measured_.rows, [body["messages"][-1]["content"] for _, body in server.requests]


def test_rows_come_in_the_order_of_the_plan() -> None:
    rows, asked = measured(QUICK, repeats=2)
    assert [(r.repeat, r.prompt_id) for r in rows] == [(n, f"p-{i}") for n in (0, 1) for i in range(4)]
    assert all(r.ok and r.arm == "v" and r.block == 2 and r.start == 2 and r.point == "4 at a time" for r in rows)
    assert asked[2:] == [f"question {i}" for _ in range(2) for i in range(4)]


def test_rows_of_one_prompt_share_its_token_ids() -> None:
    rows, _ = measured(QUICK, PROMPTS[:2], repeats=3)
    for name in ("p-0", "p-1"):
        mine = [row.prompt_token_ids for row in rows if row.prompt_id == name]
        assert len(mine) == 3
        assert len(mine[0]) == 6
        assert all(ids is mine[0] for ids in mine)
    assert rows[0].prompt_token_ids != rows[1].prompt_token_ids


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
            done = await run.measure(target, PROMPTS * 2, SHORT, arm="a", block=0, load=Closed(concurrency))
            watcher.cancel()
            return most, [r.prompt_id for r in done.rows]

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
                run.measure(target, prompts, Sampling(max_tokens=1), arm="a", block=0, load=Closed(150), warmup=0)
            )
            most = 0
            while not run_.done():
                most = max(most, server.metrics.engines[0].running)
                await asyncio.sleep(0.02)
            return most, run_.result().rows

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
        ).rows
    assert seen == [(r.prompt_id, i, 4) for i, r in enumerate(rows, start=1)]


def test_failures_are_rows_and_a_share() -> None:
    rows, _ = measured(Script(error_every=2, token_ms=0), warmup=0)
    assert [r.ok for r in rows] == [True, False, True, False]
    assert run.failed_share(rows) == 0.5
    assert run.failed_share([]) == 1.0


def test_refused_requests_are_sent_again_and_said_to_be() -> None:
    rows, _ = measured(Script(busy=(503,), retry_after="0", token_ms=0), PROMPTS[:2], warmup=0, retries=2)
    assert [(r.ok, r.retries, r.retry_reasons, r.timed) for r in rows] == [
        (True, 1, "HTTP 503", False),
        (True, 0, None, True),
    ]


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
            Target(server.base_url, "fake/model-1b"), PROMPTS, SHORT, arm="a", block=0, load=Closed(3), on_row=on_row
        )


def test_an_interrupt_from_the_caller_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    def on_row(_row: RequestRow, _done: int, _total: int) -> None:
        raise Enough("by a person")

    with serving(QUICK) as server, pytest.raises(Enough, match="by a person"):
        run.measure_sync(
            Target(server.base_url, "fake/model-1b"), PROMPTS, SHORT, arm="a", block=0, load=Closed(3), on_row=on_row
        )
    assert capfd.readouterr() == ("", "")


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


@pytest.mark.parametrize("module", ["base", "run", "score", "client", "probes", "http", "monitor"])
def test_importing_the_bench_does_not_load_the_http_client(module: str) -> None:
    code = f"import sys, draftworth.bench.{module}; print({{'aiohttp', 'httptools', 'uvloop'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


TALK = (
    Prompt(
        "a", "c", ({"role": "user", "content": "hello"},), turns=(Turn("and then?"), Turn("why?", answer="because"))
    ),
    Prompt("b", "c", ({"role": "user", "content": "bye"},)),
)


def talked(script: Script, answers: dict[str, str] | None, load: Load = ONE) -> tuple[Measured, list[Any]]:
    with serving(script) as server:
        done = run.measure_sync(
            Target(server.base_url, "fake/model-1b"),
            TALK,
            SHORT,
            arm="v",
            block=0,
            load=load,
            warmup=0,
            retries=0,
            answers=answers,
        )
        return done, [body["messages"] for _, body in server.requests]


def test_turns_follow_each_other_and_carry_what_was_said() -> None:
    answers: dict[str, str] = {}
    done, asked = talked(Script(token_ms=0, answers={"hello": "well met"}), answers)
    assert [(r.prompt_id, r.turn, r.ok) for r in done.rows] == [
        ("a", 1, True),
        ("a#2", 2, True),
        ("a#3", 3, True),
        ("b", 1, True),
    ]
    assert answers == {"a": "well met"}  # the third turn's answer is the source's
    assert asked[2] == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "well met"},
        {"role": "user", "content": "and then?"},
        {"role": "assistant", "content": "because"},
        {"role": "user", "content": "why?"},
    ]


def test_a_later_arm_is_sent_what_the_first_one_was() -> None:
    answers: dict[str, str] = {}
    _, first = talked(Script(token_ms=0), answers)
    _, second = talked(Script(token_ms=0, corrupt_every=1), answers)
    assert first == second


def test_a_failed_turn_ends_its_conversation() -> None:
    seen: list[tuple[int, int]] = []
    with serving(Script(token_ms=0, error_every=2)) as server:
        done = run.measure_sync(
            Target(server.base_url, "fake/model-1b"),
            TALK,
            SHORT,
            arm="v",
            block=0,
            warmup=0,
            retries=0,
            on_row=lambda _row, ended, total: seen.append((ended, total)),
        )
    assert [(r.prompt_id, r.ok) for r in done.rows] == [("a", True), ("a#2", False), ("b", True)]
    assert seen == [(1, 4), (2, 4), (3, 4)]


def test_an_open_loop_sends_when_it_is_due_whatever_the_server_does() -> None:
    # Every answer takes 300 ms; ten requests come within half of that.
    prompts = [Prompt(f"p-{i}", "c", PROMPTS[0].messages, arrival_s=7 + i * 0.03) for i in range(10)]
    with serving(Script(first_token_ms=300, token_ms=0)) as server:
        target = Target(server.base_url, "fake/model-1b")
        done = run.measure_sync(target, prompts, SHORT, arm="a", block=0, load=Replay(speed=2), warmup=0)
    sent = [row.started_unix - done.rows[0].started_unix for row in done.rows]
    assert sent == pytest.approx([i * 0.015 for i in range(10)], abs=0.1)
    assert max(sent) < 0.3
    assert all(row.late_ms is not None and 0 <= row.late_ms < 100 for row in done.rows)
    assert done.client.late_ms is not None


def test_arrivals_are_those_of_the_seed_and_turns_are_not_late() -> None:
    done, _ = talked(Script(token_ms=0, first_token_ms=0), {}, Open(rate=20, seed=3))
    assert [row.late_ms is None for row in done.rows] == [False, True, True, False]
    first, second = (row.started_unix for row in done.rows if row.turn == 1)
    due = arrivals.poisson(20, 3, 2)
    assert second - first == pytest.approx(due[1] - due[0], abs=0.1)


def test_a_load_that_makes_no_sense_is_told_before_anything_is_sent() -> None:
    target = Target("http://127.0.0.1:9", "m")
    for load, text in (
        (Closed(0), "0 requests at a time"),
        (Open(rate=0), "a rate of 0"),
        (Replay(), "prompt 'p-0' has no arrival time"),
    ):
        with pytest.raises(UsageError, match=text):
            run.measure_sync(target, PROMPTS, SHORT, arm="a", block=0, load=load)
    odd = Prompt("x", "c", token_ids=(1,), turns=(Turn("and?"),))
    with pytest.raises(UsageError, match="'x': token ids cannot have later turns"):
        run.measure_sync(target, [odd], SHORT, arm="a", block=0)


def test_how_the_client_fared_is_told() -> None:
    with serving(Script(first_token_ms=300, token_ms=0)) as server:
        target = Target(server.base_url, "fake/model-1b")
        health = run.measure_sync(target, PROMPTS[:1], SHORT, arm="a", block=0, warmup=0).client
    assert 0.3 < health.wall_s < 3
    assert 0 < health.cpu_s < 2
    assert 0 <= health.lag_ms[0] <= health.lag_ms[1] <= health.lag_ms[2]
    assert health.late_ms is None


@pytest.mark.parametrize("error", [Enough("by a person"), RuntimeError("the service died")])
def test_a_tick_may_end_the_run(error: BaseException) -> None:
    ticks: list[float] = []

    def on_tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 3:
            raise error

    with serving(Script(hang_at_request=1)) as server:
        target = Target(server.base_url, "fake/model-1b")
        with pytest.raises(type(error)) as raised:
            run.measure_sync(target, PROMPTS, SHORT, arm="a", block=0, warmup=0, load=Closed(2), on_tick=on_tick)
    assert raised.value is error
    assert 0.35 < ticks[2] - ticks[0] < 1.5  # two times 0.2 s
    assert time.monotonic() - ticks[2] < 1


SIGNALLED = """
import signal, sys, threading, time
from draftworth.bench import arrivals, probes, run
from draftworth.bench.base import Closed, Prompt, Sampling, Target

class Interrupt(KeyboardInterrupt):
    pass

def handle(number, frame):
    raise Interrupt(signal.Signals(number).name)

if sys.argv[2] != "default":
    signal.signal(getattr(signal, sys.argv[2]), handle)
prompts = [Prompt(f"p{i}", "c", ({"role": "user", "content": "x"},)) for i in range(8)]
print("ready", flush=True)
try:
    run.measure_sync(
        Target(sys.argv[1], "fake/model-1b"), prompts, Sampling(), arm="a", block=0, warmup=0, load=Closed(4)
    )
except KeyboardInterrupt as error:
    print(type(error).__name__, error, signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
"""


@pytest.mark.parametrize(
    ("handler", "number", "said"),
    [
        ("default", signal.SIGINT, "KeyboardInterrupt  True"),
        ("SIGINT", signal.SIGINT, "Interrupt SIGINT False"),
        ("SIGTERM", signal.SIGTERM, "Interrupt SIGTERM True"),
    ],
)
@pytest.mark.parametrize("script", [Script(first_token_ms=60_000), Script(tokens=5_000, token_ms=0.3)])
def test_a_signal_ends_a_run_at_once(script: Script, handler: str, number: signal.Signals, said: str) -> None:
    """Against a server that hangs, and against one that keeps the client busy with bytes."""
    with (
        serving(script, max_model_len=10_000) as server,
        subprocess.Popen(
            [sys.executable, "-c", SIGNALLED, server.base_url, handler], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 20
        while len(server.requests) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        sent = time.monotonic()
        process.send_signal(number)
        assert process.stdout.read().strip() == said.strip()
        assert process.wait(10) == 0
        assert time.monotonic() - sent < 2


def test_a_server_is_recognised_whatever_is_behind_its_name() -> None:
    with serving(names=("a", "b")) as server:
        for tail in ("", "/", "/v1", "/v1/"):
            assert probes.identify_sync(server.base_url + tail) == (server.base_url, ("a", "b"))


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost", "ftp://x", "http://", "http://a b", "http://x:99999"])
def test_what_is_no_url_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="is no URL") as error:
        probes.identify_sync(url)
    assert "\n" not in str(error.value)


def test_what_is_no_openai_server_is_told() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b"<html>welcome</html>"
        status = b"404 Not Found" if b"/lost/" in head else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()

    async def go() -> list[str]:
        said = []
        async with raw_server(page) as url:
            for path in ("", "/lost"):
                with pytest.raises(UsageError) as error:
                    await probes.identify(url + path)
                said.append(str(error.value).replace(url, "URL"))
        with pytest.raises(UsageError) as error:
            await probes.identify(url)
        return [*said, str(error.value).replace(url, "URL")]

    page_, lost, gone = asyncio.run(go())
    assert page_ == (
        "URL is not an OpenAI-compatible server: GET URL/v1/models said not a list of models: an HTML page: welcome"
    )
    assert lost == (
        "URL/lost is not an OpenAI-compatible server: GET URL/lost/v1/models said HTTP 404: an HTML page: welcome"
    )
    assert gone.startswith("URL does not answer: connection refused by 127.0.0.1:")


def test_a_key_that_is_asked_for_is_explained() -> None:
    with serving(Script(api_key="k")) as server:
        access = Access(headers={"Authorization": "Bearer k"})
        assert run.probe_sync(server.base_url, access=access) == "fake/model-1b"
        with pytest.raises(UsageError, match=r"HTTP 401: .*set service.api_key_env \(or --api-key-env\)"):
            probes.identify_sync(server.base_url)
        with pytest.raises(MeasureError, match="does not accept the key"):
            run.probe_sync(server.base_url, access=Access(headers={"Authorization": "Bearer x"}))


def test_a_private_authority_is_believed_where_it_is_named(tmp_path: Path) -> None:
    authority, context = private_authority(tmp_path)
    with serving(tls=context) as server:
        assert run.probe_sync(server.base_url, access=Access(ca_file=authority)) == "fake/model-1b"
        with pytest.raises(UsageError, match=r"is not believed .* set service.ca_file \(or --ca-file\)"):
            probes.identify_sync(server.base_url)


def test_the_model_is_chosen_by_name() -> None:
    names = ("mistral-7b", "llama-3-8b", "llama-3-70b")
    assert probes.choose_model(names, None) == "mistral-7b"
    assert probes.choose_model(names, "llama-3-70b") == "llama-3-70b"
    with pytest.raises(
        UsageError,
        match="the model 'llama3-70b' is not served; the server has: llama-3-70b, llama-3-8b, mistral-7b",
    ):
        probes.choose_model(names, "llama3-70b")


def test_each_request_has_a_seed_of_its_own_and_the_same_in_every_arm() -> None:
    def seeds(seed: int, prompts: Sequence[Prompt] = PROMPTS) -> list[int]:
        with serving(QUICK) as server:
            target, sampling = Target(server.base_url, "fake/model-1b"), Sampling(4, temperature=0.9, seed=seed)
            run.measure_sync(target, prompts, sampling, arm="v", block=1, repeats=3, warmup=0)
            return [body["seed"] for _, body in server.requests]

    first = seeds(7)
    assert len(set(first)) == len(first) == 12
    assert first == seeds(7)
    assert not set(first) & set(seeds(8))
    assert all(0 <= one < 2**31 for one in first)  # what every engine takes
    # In whatever part of a trial a prompt is sent.
    assert seeds(7, PROMPTS[2:]) == [first[at] for at in (2, 3, 6, 7, 10, 11)]
    talk = (Prompt("t", "c", PROMPTS[0].messages, turns=(Turn("and?"), Turn("so?"))),)
    assert len(set(seeds(7, talk))) == 9
