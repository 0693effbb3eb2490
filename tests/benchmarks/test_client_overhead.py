"""The comparison of load generators: its server does what it says, and its arithmetic is right."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.overhead_docs import render, table
from benchmarks.overhead_drain import drain
from benchmarks.overhead_figures import Run
from benchmarks.overhead_lab import Cores, Server, run_tree, serving
from benchmarks.overhead_script import Script, template

from benchmarks import client_overhead, overhead_figures, overhead_ours, overhead_peers

ANYWHERE = Cores(None, None, None)
RECORDED = Path(__file__).parents[1] / "bench" / "data" / "vllm-0.32-stream.txt"


class Stream:
    """One answer, as a client that parses by hand sees it."""

    def __init__(self, server: Server, path: str = "/v1/chat/completions", **body: Any) -> None:
        data = json.dumps({"stream": True, "stream_options": {"include_usage": True}, **body}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
            sock.sendall(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data))
            self.raw = b""
            self.seen: list[tuple[float, bytes]] = []
            while not self.raw.endswith(b"0\r\n\r\n"):
                piece = sock.recv(65536)
                self.seen.append((time.perf_counter(), piece))
                self.raw += piece
        self.head, _, rest = self.raw.partition(b"\r\n\r\n")
        self.events = []
        while not rest.startswith(b"0\r\n\r\n"):
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            self.events.append(rest[:length])
            assert rest[length : length + 2] == b"\r\n"
            rest = rest[length + 2 :]
        self.data = [event.removeprefix(b"data: ").removesuffix(b"\n\n") for event in self.events]
        self.chunks = [json.loads(data) for data in self.data[:-1]]
        self.content = [chunk for chunk in self.chunks if "sent" in chunk]


def shape(chunk: Any) -> Any:
    """The keys of a chunk, at all depths, without the stamp."""
    if isinstance(chunk, dict):
        return {key: shape(value) for key, value in chunk.items() if key != "sent"}
    return [shape(value) for value in chunk] if isinstance(chunk, list) and chunk and isinstance(chunk[0], dict) else 0


def test_the_server_sends_what_it_says() -> None:
    with serving(ANYWHERE, 200, 5, "--tokens", "2") as server:
        stream = Stream(server, return_token_ids=True)
        stats = server.stats()
    assert b"transfer-encoding: chunked" in stream.head
    assert len(stream.content) == 5
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in stream.content)
    assert text == " one two two three three four four five five six"
    assert [len(chunk["choices"][0]["token_ids"]) for chunk in stream.content] == [2] * 5
    assert [chunk["choices"][0]["finish_reason"] for chunk in stream.content] == [None] * 4 + ["length"]
    assert stream.chunks[-1]["usage"] == {"prompt_tokens": 3, "total_tokens": 13, "completion_tokens": 10}
    assert stream.data[-1] == b"[DONE]"
    assert (stats["requests"], stats["chunks"], stats["most_at_once"], stats["blocked_sends"]) == (1, 5, 1, 0)


def test_chunks_have_the_recorded_shape() -> None:
    recorded = [
        json.loads(line.removeprefix("data: "))
        for line in RECORDED.read_text().splitlines()
        if line.startswith("data: {")
    ]
    with serving(ANYWHERE, 500, 3) as server:
        chunks = Stream(server, return_token_ids=True).chunks
    assert shape(chunks[0]) == shape(recorded[0])  # the role
    assert shape(chunks[1]) == shape(recorded[1])  # content
    assert shape(chunks[3]) == shape(recorded[-2])  # the end
    assert recorded[-1].keys() >= chunks[-1].keys()  # the usage


def test_chunks_come_at_the_pace_and_the_stamps_say_so() -> None:
    with serving(ANYWHERE, 50, 11) as server:
        stream = Stream(server)
        late = server.stats()["late_ms"]
    stamps = [chunk["sent"] for chunk in stream.content]
    assert stamps[-1] - stamps[0] == pytest.approx(10 / 50, abs=0.05)
    assert late["median"] < 10
    behind = overhead_ours.behind_ms(stream.seen)
    assert behind["chunks"] == 11
    assert 0 < behind["median"] < 20


def test_streams_of_steps_send_at_the_same_moments() -> None:
    with serving(ANYWHERE, 10, 1, "--steps") as server:
        stamp = Stream(server).content[0]["sent"]
    assert stamp % 0.1 < 0.03


def test_fewer_tokens_and_plain_completions() -> None:
    with serving(ANYWHERE, 500, 20) as server:
        stream = Stream(server, "/v1/completions", max_tokens=2)
    assert [chunk["choices"][0]["text"] for chunk in stream.content] == [" one", " two"]
    assert stream.chunks[0]["object"] == "text_completion"


def test_without_a_pace_it_sends_as_fast_as_it_can() -> None:
    with serving(ANYWHERE, 0, 2000) as server:
        assert drain(server.port, 4, tokens=2000) > 2000 * 4 * 100
        stats = server.stats()
    assert stats["chunks"] == 8000
    assert stats["chunks"] / stats["seconds"] > 5000


def test_every_chunk_of_a_kind_has_the_same_length() -> None:
    for word in (0, 3):
        before, after = template(Script(), word, chat=True, ids=False, last=False)
        size, _, event = (before + b"%17.6f" % 1.5 + after).partition(b"\r\n")
        assert int(size, 16) == len(event.removesuffix(b"\r\n"))
        assert json.loads(event.removeprefix(b"data: "))["sent"] == 1.5


def test_ours_counts_what_the_server_sent(tmp_path: Path) -> None:
    with serving(ANYWHERE, 100, 10) as server:
        job = overhead_peers.Job(server.url, 3, 6, 10, tmp_path)
        subprocess.run([*overhead_peers.ours_command(job), "--stamps"], check=True, timeout=60)
        stats = server.stats()
    told = json.loads((tmp_path / "ours.json").read_text())
    assert overhead_peers.ours_completed(tmp_path) == 6
    assert (told["ok"], told["chunks"], told["error"]) == (6, 60, None)
    assert told["behind_ms"]["chunks"] == 60
    assert (stats["requests"], stats["chunks"], stats["most_at_once"]) == (6, 60, 3)


def test_the_tree_counts_orphans(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"  # ends before its child
    account = run_tree([sys.executable, "-c", script], ANYWHERE, tmp_path / "log")
    assert account["exit_code"] == 0
    assert 0.4 <= account["cpu_s"] < 2
    assert account["processes_left_behind"] == 0
    assert account["course"][-1][1] > 0.1


def test_what_peers_say_they_did(tmp_path: Path) -> None:
    guidellm = {"benchmarks": [{"scheduler_state": {"successful_requests": 128, "errored_requests": 1}}]}
    (tmp_path / "guidellm.json").write_text(json.dumps(guidellm))
    aiperf = {"request_count": {"unit": "requests", "avg": 127.0}}
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(aiperf))
    (tmp_path / "vllm.json").write_text(json.dumps({"completed": 126, "failed": 0}))
    found = [client.completed(tmp_path) for client in overhead_peers.PEERS.values()]
    assert found == [128, 127, 126]


def test_peers_run_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    env = overhead_peers.environ(overhead_peers.GUIDELLM, tmp_path)
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["GUIDELLM__MAX_WORKER_PROCESSES"] == "1"
    assert "https_proxy" not in env
    snapshot = Path(env["HF_HOME"]) / "hub" / "models--HuggingFaceTB--SmolLM2-135M-Instruct" / "snapshots" / "local"
    assert (snapshot / "tokenizer.json").readlink().name == "tokenizer.json"


def test_the_slope_by_hand() -> None:
    short = Run(chunks=5_000, cpu_s=6.0, before_s=5.0, stream_s=1.0, rss_mb=100)
    long = Run(chunks=35_000, cpu_s=9.5, before_s=5.5, stream_s=7.0, rss_mb=120)
    # (9.5 - 5.5) - (6 - 5) = 3 s for 30,000 chunks, in 6 s.
    assert overhead_figures.slope(short, long) == pytest.approx(
        {"cpu_s_per_10k": 1.0, "core_share": 0.5, "rest_cpu_s": 5.5, "rss_mb": 120}
    )


def test_cpu_used_by_a_moment() -> None:
    course = [(10.0, 0.0), (11.0, 0.5), (12.0, 1.5)]
    assert overhead_figures.used_by(course, 11.5) == 1.0
    assert overhead_figures.used_by(course, 9.0) == 0.0
    assert overhead_figures.used_by(course, 13.0) == 1.5


def point(concurrency: int, ours: float, best: float, rest: float) -> dict[str, Any]:
    """A point at which AIPerf is the best peer."""
    costs = {"draftworth": ours, "guidellm": best * 2, "aiperf": best}
    one = {"rss_mb": 50.0, "core_share": 0.2, "rest_cpu_s": rest}
    clients = {name: overhead_figures.summary([one | {"cpu_s_per_10k": cost}]) for name, cost in costs.items()}
    return {
        "concurrency": concurrency,
        "chunks_per_s_each": 20,
        "clients": clients,
        "errors": {"vllm-bench": "exit 1: no"},
        "ratio_to_draftworth": overhead_figures.ratios(clients, "draftworth"),
        "server": {},
    }


@pytest.mark.parametrize(("best", "met"), [(0.5, True), (0.49, False)])
def test_the_goal_is_a_fifth_of_the_best_peer(best: float, met: bool) -> None:  # noqa: FBT001 - pytest passes it
    points = [point(64, 1, 1, 0), point(256, 0.1, best, 0)]
    goal = overhead_figures.share_goal(points, 256, "draftworth")
    assert goal is not None
    assert (goal["best_peer"], goal["met"]) == ("aiperf", met)
    assert goal["measured"] == pytest.approx(0.1 / best)
    assert overhead_figures.share_goal(points[:1], 256, "draftworth") is None
    other = overhead_figures.share_goal(points, 256, "draftworth", no_peers=["aiperf"])
    assert other is not None
    assert other["best_peer"] == "guidellm"


def test_a_request_costs_what_runs_of_more_requests_cost_more() -> None:
    points = [point(1, 1, 1, rest=4.0), point(101, 1, 1, rest=4.5)]
    assert overhead_figures.request_cost(points, "aiperf") == pytest.approx(5.0)
    assert overhead_figures.request_cost(points[:1], "aiperf") is None


def test_the_table_names_failures_and_ratios() -> None:
    text = table({"points": [point(256, 0.1, 0.5, 0)]})
    assert "| 256 | AIPerf | 0.500 (0.500 to 0.500) | 5.0 times | 20% | 50 MB |" in text
    assert "| 256 | vLLM's serve benchmark | failed: exit 1: no |" in text


@pytest.mark.skipif(not client_overhead.RESULT.exists(), reason="nothing measured yet")
def test_the_page_says_what_was_measured() -> None:
    found = json.loads(client_overhead.RESULT.read_text())
    assert client_overhead.DOCS.read_text() == render(found)
