"""The comparison of load generators: its server does what it says, and its arithmetic is right."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.overhead_docs import goals_table, main_table, others_table, render
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
    # (9.5 - 5.5) - (6 - 5) = 3 s for 30,000 chunks, in 6 s; the whole long run: 4 s for 35,000.
    assert overhead_figures.slope(short, long) == pytest.approx(
        {"cpu_s_per_10k": 1.0, "whole_s_per_10k": 4 / 3.5, "core_share": 0.5, "rest_cpu_s": 5.5, "rss_mb": 120}
    )


def test_cpu_used_by_a_moment() -> None:
    course = [(10.0, 0.0), (11.0, 0.5), (12.0, 1.5)]
    assert overhead_figures.used_by(course, 11.5) == 1.0
    assert overhead_figures.used_by(course, 9.0) == 0.0
    assert overhead_figures.used_by(course, 13.0) == 1.5


def point(concurrency: int, ours: float, best: float, rest: float, sending: str = "evenly spread") -> dict[str, Any]:
    """A point at which AIPerf is the best peer; whole runs cost a quarter more."""
    costs = {"floor": best / 8, "draftworth": ours, "guidellm": best * 2, "aiperf": best}
    one = {"rss_mb": 50.0, "core_share": 0.2, "rest_cpu_s": rest}
    clients = {
        name: overhead_figures.summary([one | {"cpu_s_per_10k": cost, "whole_s_per_10k": cost * 1.25}])
        for name, cost in costs.items()
    }
    return {
        "concurrency": concurrency,
        "sending": sending,
        "chunks_per_s_each": 20,
        "clients": clients,
        "errors": {"vllm-bench": "exit 1: no"},
        "ratio_to_draftworth": overhead_figures.ratios(clients, "draftworth"),
        "server": {},
    }


@pytest.mark.parametrize(("best", "met"), [(0.5, True), (0.49, False)])
def test_the_goal_is_a_fifth_of_the_best_peer(best: float, met: bool) -> None:  # noqa: FBT001 - pytest passes it
    for figure in overhead_figures.FIGURES:
        goal = overhead_figures.share_goal(point(256, 0.1, best, 0), figure, "draftworth", "floor")
        assert goal is not None
        assert (goal["best_peer"], goal["met"]) == ("aiperf", met)
        assert goal["measured"] == pytest.approx(0.1 / best)
        assert goal["floor_share"] == pytest.approx(1 / 8)


def test_without_peers_there_is_no_such_goal() -> None:
    alone = point(256, 0.1, 0.5, 0)
    for name in ("aiperf", "guidellm"):
        del alone["clients"][name]
    assert overhead_figures.share_goal(alone, "cpu_s_per_10k", "draftworth", "floor") is None


def run(behind: dict[str, float] | None = None) -> dict[str, Any]:
    return {"core_share": 0.2, "stream_s": 10.1, "planned_s": 10.0, "rss_mb": 50.0, "behind_ms": behind}


LOAD = {"plain": [run()], "stamped": [run({"median": 0.1, "p99": 6.0})], "stamped_steps": []}


def test_goals_are_told_for_both_ways_of_sending_and_counting() -> None:
    points = [point(64, 1, 1, 0), point(256, 0.1, 0.6, 0), point(256, 0.1, 0.4, 0, "in lockstep")]
    found = client_overhead.goals(points, LOAD)
    assert [(goal["met"], goal["what"]) for goal in found[:4]] == [
        (met, f"CPU of a {what}, 256 streams {sending}, of the best peer's")
        for met, sending in ((True, "evenly spread"), (False, "in lockstep"))
        for what in ("further chunk", "chunk of the whole run")
    ]
    assert [goal["met"] for goal in found[4:]] == [True, True, True, True, False]
    text = goals_table({"goals": found})
    assert "256 streams in lockstep, of the best peer's (AIPerf) | 0.2 | 0.25 | **missed** | 0.125 |" in text
    assert "ms, p99, 512 streams of 20 chunks a second | 5 | 6 | **missed** |  |" in text


def test_a_request_costs_what_the_whole_run_costs_more_than_its_chunks() -> None:
    found = point(256, 0.1, 0.4, 0) | {"chunks_per_answer": [20, 100]}
    # 0.1 s for 10,000 chunks, which are 100 requests.
    assert overhead_figures.request_cost(found, "aiperf") == pytest.approx(1.0)
    assert overhead_figures.request_cost(found, "vllm-bench") is None


def test_the_tables_name_failures_and_ratios() -> None:
    found = {
        "main_concurrency": 256,
        "points": [point(512, 0.1, 1.0, 0), point(256, 0.1, 0.5, 0), point(256, 0.1, 0.4, 0, "in lockstep")],
    }
    text = main_table(found)
    assert "| evenly spread | AIPerf | 0.500 | 5.0 times | 0.625 | 5.0 times | 20% | 50 MB |" in text
    assert "| in lockstep | AIPerf | 0.400 | 4.0 times | 0.500 | 4.0 times | 20% | 50 MB |" in text
    assert "| in lockstep | vLLM's serve benchmark | failed: exit 1: no |" in text
    assert "| 512 |" not in text
    assert "| 512 | AIPerf | 1.000 | 10.0 times |" in others_table(found)


SHORTENED = {
    "quick": True,
    "measured": "2026-11-30",
    "machine": {"cpu": "c", "cores": 2, "memory_gb": 1, "kernel": "k"},
    "pinning": "nothing pinned",
    "versions": {"draftworth": "0"},
    "called": {"draftworth": "so"},
    "not_measured": {"aiperf": "no disk"},
    "server_limit": {"chunks_per_s": 1000.0},
    "cpu_ms_per_request": {"draftworth": 0.1, "aiperf": None},
    "main_concurrency": 256,
}


@pytest.mark.parametrize(
    ("best", "says"),
    [
        (0.6, "Bare reading alone is 12% of the best peer's cost here. A share of 20% is met in all of these 2"),
        (0.4, "A share of 20% is missed in 2 of 2 rows.\n"),
    ],
)
def test_the_page_says_whether_the_share_is_met(best: float, says: str) -> None:
    points = [point(256, 0.1, best, 0) | {"chunks_per_answer": [20, 140]}]
    found = SHORTENED | {"points": points, "sustained": LOAD, "goals": client_overhead.goals(points, LOAD)}
    page = render(found)
    assert says in page
    assert "These figures are from a quick run" in page
    assert "of answers of 140.\n" in page


def measured() -> dict[str, Any]:
    """The results that are kept; nothing where there are none of this schema."""
    found: dict[str, Any] = json.loads(client_overhead.RESULT.read_text()) if client_overhead.RESULT.exists() else {}
    return found if found.get("schema_version") == client_overhead.SCHEMA else {}


@pytest.mark.skipif(not measured(), reason="nothing measured yet")
def test_the_page_says_what_was_measured() -> None:
    assert client_overhead.DOCS.read_text() == render(measured())
