"""The scripted server itself: shapes as recorded from vLLM, counters that add up, a process that lives and dies."""

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.model import pace
from tests.fakes.openai_server import FakeServer, Script, serving

from draftworth.bench import run
from draftworth.bench.base import Prompt, RequestRow, Sampling, Target
from draftworth.bench.probes import new_session
from draftworth.bench.sse import DONE, SseParser
from draftworth.errors import MeasureError

DATA = Path(__file__).parent / "data"
SERVER = Path(__file__).parents[1] / "fakes" / "openai_server.py"
SPECULATE = {"method": "ngram", "num_speculative_tokens": 5}
PROMPTS = tuple(Prompt(f"p-{i}", "c", ({"role": "user", "content": f"question {i}"},)) for i in range(3))
STILL: dict[str, Any] = {"token_ms": 0.0, "first_token_ms": 0.0}


def shape(value: Any) -> Any:
    """Return the keys and types of decoded JSON; numbers are one type, lists have the shape of their first entry."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


async def stream_of(server: FakeServer, body: dict[str, Any]) -> list[bytes]:
    async with new_session() as session, session.post(server.base_url + "/v1/chat/completions", json=body) as response:
        return SseParser().feed(await response.read())


def rows_of(server: FakeServer, tokens: int = 12, prompts: tuple[Prompt, ...] = PROMPTS) -> list[RequestRow]:
    target = Target(server.base_url, "fake/model-1b")
    return run.measure_sync(target, prompts, Sampling(max_tokens=tokens), arm="a", block=0, warmup=0).rows


def counters(server: FakeServer) -> dict[str, float]:
    """Return the samples of /metrics, without `_created`, buckets and the model's name, summed over engines."""
    sums: dict[str, float] = {}
    for line in run.fetch_text_sync(server.base_url, "/metrics").splitlines():
        found = re.fullmatch(r"vllm:(\w+)\{(.*)\} (\S+)", line)
        if found and not found[1].endswith(("_created", "_bucket")):
            labels = ",".join(x for x in found[2].split(",") if not x.startswith(("engine", "model_name")))
            name = found[1] + (f"{{{labels}}}" if labels else "")
            sums[name] = sums.get(name, 0) + float(found[3])
    return sums


def test_a_stream_has_the_shape_of_a_recorded_one() -> None:
    async def go() -> list[bytes]:
        script = Script(**STILL, tokens=16, tokens_per_chunk=(1, 1, 6, 6, 1))
        async with FakeServer(script, speculative_config=SPECULATE, spec_stats="summary") as server:
            return await stream_of(
                server,
                {
                    "model": "fake/model-1b",
                    "messages": [{"role": "user", "content": "Repeat this line"}],
                    "max_tokens": 64,
                    "stream": True,
                    "stream_options": {"include_usage": True},
                    "return_token_ids": True,
                },
            )

    recorded = SseParser().feed((DATA / "vllm-0.32-stream.txt").read_bytes())
    faked = asyncio.run(go())
    assert faked.pop() == recorded.pop() == DONE
    assert [shape(json.loads(event)) for event in faked] == [shape(json.loads(event)) for event in recorded]


def test_scores_have_the_shape_of_recorded_ones() -> None:
    recorded = json.loads((DATA / "vllm-0.32-scoring.json").read_text())

    async def go() -> Any:
        body = {"prompt": [1, 3, 4, 1000, 1001], "max_tokens": 1, "prompt_logprobs": 1}
        async with (
            FakeServer() as server,
            new_session() as session,
            session.post(server.base_url + "/v1/completions", json=body) as response,
        ):
            return await response.json()

    faked = asyncio.run(go())
    ours, theirs = faked["choices"][0]["prompt_logprobs"], recorded["choices"][0]["prompt_logprobs"]
    assert ours[0] is theirs[0] is None
    assert len(ours) == 5
    entry = {"logprob": "number", "rank": "number", "decoded_token": "str"}
    for logprobs in (ours, theirs):
        assert all(shape(e) == entry for at in logprobs[1:] for e in at.values())
        assert all(min(e["rank"] for e in at.values()) == 1 for at in logprobs[1:])
    assert set(faked) <= set(recorded)
    assert shape(faked["usage"]).items() <= shape(recorded["usage"]).items()


def test_the_same_prompt_gets_the_same_tokens_in_every_server() -> None:
    outputs = []
    for config in (None, SPECULATE):
        with serving(Script(**STILL), speculative_config=config) as server:
            outputs.append([row.token_ids for row in rows_of(server)])
    assert outputs[0] == outputs[1]
    assert len({tuple(ids) for ids in outputs[0]}) == len(PROMPTS)


def test_the_speculating_part_of_a_script_is_for_the_speculating_server() -> None:
    script = Script(**STILL, speculating={"corrupt_every": 4})
    with serving(script) as baseline, serving(script, speculative_config=SPECULATE) as variant:
        (before, after) = (rows_of(server)[0].token_ids for server in (baseline, variant))
    assert [i for i in range(12) if before[i] != after[i]] == [3, 7, 11]
    with pytest.raises(ValueError, match="no such field: corupt_every"):
        Script.from_dict({"speculating": {"corupt_every": 4}})


@pytest.mark.parametrize("engines", [1, 2])
def test_the_counters_add_up(engines: int) -> None:
    script = Script(**STILL, engines=engines, tokens_per_chunk=(4, 1))
    with serving(script, speculative_config=SPECULATE) as server:
        rows = rows_of(server)
        seen = counters(server)
        page = run.fetch_text_sync(server.base_url, "/metrics")
    # 12 tokens: the first, then 4 + 1 + 4 + 1 and the 1 that is left: five steps, 3 + 0 + 3 + 0 + 0 accepted.
    assert sum(row.tokens or 0 for row in rows) == seen["generation_tokens_total"] == 36
    assert seen["prompt_tokens_total"] == sum(row.prompt_tokens or 0 for row in rows)
    assert seen['request_success_total{finished_reason="length"}'] == 3
    assert seen["time_to_first_token_seconds_count"] == 3
    assert seen["inter_token_latency_seconds_count"] == 15
    assert seen["spec_decode_num_drafts_total"] == 15
    assert seen["spec_decode_num_draft_tokens_total"] == 75
    assert seen["spec_decode_num_accepted_tokens_total"] == 18
    positions = [seen[f'spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}}'] for i in range(5)]
    assert positions == [6, 6, 6, 0, 0]
    assert set(re.findall(r'engine="(\d)"', page)) == {str(i) for i in range(engines)}


def test_a_step_that_does_not_draft_emits_one_token() -> None:
    script = Script(**STILL, tokens_per_chunk=(4,), draft_every=2)
    with serving(script, speculative_config=SPECULATE) as server:
        rows_of(server, prompts=PROMPTS[:1])
        seen = counters(server)
    # 1 | 1 (no draft), 4, 1 (no draft), 4 and the 1 that is left (no draft).
    assert seen["inter_token_latency_seconds_count"] == 5
    assert seen["spec_decode_num_drafts_total"] == 2
    with serving(Script(**STILL, draft_every=0, tokens_per_chunk=(4,)), speculative_config=SPECULATE) as server:
        rows_of(server, prompts=PROMPTS[:1])
        assert counters(server)["spec_decode_num_drafts_total"] == 0


def test_foreign_requests_come_with_every_scrape() -> None:
    with serving(Script(foreign_requests=2)) as server:
        first, second = counters(server), counters(server)
    name = 'request_success_total{finished_reason="length"}'
    assert (first[name], second[name]) == (2, 4)
    assert second["generation_tokens_total"] == 40


def test_a_reset_starts_from_zero_with_a_later_creation_time() -> None:
    def created(server: FakeServer) -> float:
        page = run.fetch_text_sync(server.base_url, "/metrics")
        return float(re.findall(r"vllm:generation_tokens_created\{.*\} (\S+)", page)[0])

    with serving(Script(**STILL, reset_counters_after=2)) as server:
        before = created(server)
        rows_of(server)
        assert counters(server)["generation_tokens_total"] == 12  # the third request only
        assert created(server) > before


def test_metrics_can_be_missing() -> None:
    with serving(Script(metrics=False)) as server, pytest.raises(MeasureError, match="/metrics: HTTP 404"):
        run.fetch_text_sync(server.base_url, "/metrics")
    with serving(log_stats=False) as server:
        assert "vllm:" not in run.fetch_text_sync(server.base_url, "/metrics")


def test_jitter_is_seeded_and_by_request() -> None:
    script = Script(token_ms=4, jitter=0.1, seed=1)
    logs = [math.log(pace(script, number) / 4) for number in range(500)]
    assert logs == [math.log(pace(script, number) / 4) for number in range(500)]
    assert statistics.stdev(logs) == pytest.approx(0.1, rel=0.1)
    assert statistics.mean(logs) == pytest.approx(0, abs=0.02)
    assert pace(script, 3) != pace(dataclasses.replace(script, seed=2), 3)
    assert pace(Script(token_ms=4), 3) == 4


# The process.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Process:
    """One start of the server as a process, its log in a file."""

    def __init__(self, folder: Path, script: Script, *args: str) -> None:
        (folder / "script.json").write_text(script.to_json())
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "log"
        command = [
            sys.executable,
            str(SERVER),
            "--script",
            str(folder / "script.json"),
            "--port",
            str(self.port),
            *args,
        ]
        with self.log.open("wb") as out:
            self.popen = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, cwd=folder)

    def ready(self) -> None:
        deadline = time.monotonic() + 10
        while not run.healthy_sync(self.base_url):
            assert self.popen.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)


@contextlib.contextmanager
def process(folder: Path, script: Script, *args: str) -> Iterator[Process]:
    started = Process(folder, script, *args)
    try:
        yield started
    finally:
        workers = [int(pid) for pid in re.findall(r"\(Worker pid=(\d+)\).*Worker started", started.log.read_text())]
        for pid in (started.popen.pid, *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        started.popen.wait()


def test_a_start_tells_what_vllm_tells(tmp_path: Path) -> None:
    script = Script(load_seconds=0.4)
    with process(
        tmp_path, script, "--served-model-name", "smol", "--dtype=bfloat16", "--max_model_len", "512"
    ) as server:
        assert not run.healthy_sync(server.base_url)
        server.ready()
        assert run.probe_sync(server.base_url) == "smol"
        text = server.log.read_text()
        assert "speculative_config=None" in text
        assert "Async scheduling" not in text
        assert re.search(
            r"^\(EngineCore pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[core.py:133\] "
            r"Initializing a V1 LLM engine \(v0.32.0\) with config: model='fake/model-1b', ",
            text,
            re.MULTILINE,
        )
        server.popen.terminate()
        assert server.popen.wait(5) == 0


def test_a_speculating_start_says_so(tmp_path: Path) -> None:
    args = ("--speculative-config", json.dumps(SPECULATE), "--per-request-spec-decode-metrics", "detailed")
    with process(tmp_path, Script(**STILL, warm_seconds=0.3, tokens_per_chunk=(3,)), *args) as server:
        server.ready()
        with pytest.raises(MeasureError, match="HTTP 503"):
            run.probe_sync(server.base_url)
        text = server.log.read_text()
        assert "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=5), " in text
        assert "Async scheduling not supported with ngram-based speculative decoding and will be disabled." in text
        time.sleep(0.3)
        (row,) = run.measure_sync(
            Target(server.base_url, run.probe_sync(server.base_url)),
            PROMPTS[:1],
            Sampling(max_tokens=7),
            arm="v",
            block=0,
            warmup=0,
        ).rows
        assert row.spec_stats is not None
        assert row.spec_stats["per_step_accepted"] == [2, 2]


@pytest.mark.parametrize(
    ("script", "args", "code", "text"),
    [
        (Script(die_at="load", exit_code=7), (), 7, "RuntimeError: Engine core initialization failed."),
        (Script(), ("--speculativ-config", "{}"), 2, "error: unrecognized arguments: --speculativ-config {}"),
        (Script(), ("--speculative-config", "{"), 2, "Value { cannot be converted"),
        (
            Script(),
            ("--per-request-spec-decode-metrics", "summary"),
            1,
            "ValueError: --per-request-spec-decode-metrics",
        ),
    ],
)
def test_a_start_can_fail(tmp_path: Path, script: Script, args: tuple[str, ...], code: int, text: str) -> None:
    with process(tmp_path, script, *args) as server:
        assert server.popen.wait(10) == code
        assert text in server.log.read_text()


def test_a_taken_port_is_found_before_loading(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        with process(tmp_path, Script(load_seconds=9), "--port", port) as server:
            assert server.popen.wait(5) == 1
            assert "Address already in use" in server.log.read_text()


@pytest.mark.parametrize("die_at", ["first_request", "request:2"])
def test_a_server_can_die_in_a_request(tmp_path: Path, die_at: str) -> None:
    with process(tmp_path, Script(**STILL, die_at=die_at, exit_code=9)) as server:
        server.ready()
        target = Target(server.base_url, "fake/model-1b")
        rows = run.measure_sync(target, PROMPTS, Sampling(max_tokens=4), arm="a", block=0, warmup=0).rows
        assert [row.ok for row in rows] == ([False] * 3 if die_at == "first_request" else [True, False, False])
        assert server.popen.wait(5) == 9


def test_a_server_can_refuse_to_end_and_leave_children(tmp_path: Path) -> None:
    script = Script(ignore_sigterm=True, spawn_children=1, detached_children=1, stubborn_children=1)
    with process(tmp_path, script) as server:
        server.ready()
        pids = [int(pid) for pid in re.findall(r"\(Worker pid=(\d+)\).*Worker started", server.log.read_text())]
        plain, detached, stubborn = pids
        leader = server.popen.pid
        assert [os.getsid(pid) for pid in pids] == [leader, detached, leader]
        server.popen.terminate()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.popen.wait(0.3)
        assert [state(pid) for pid in (plain, detached)] == ["Z", "Z"]  # ended; their parent has not looked
        assert state(stubborn) == "S"
        server.popen.kill()
        server.popen.wait(5)
        assert state(stubborn) == "S"


def state(pid: int) -> str:
    """Return the letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
