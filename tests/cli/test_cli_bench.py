"""`draftworth bench` on the scripted server: figures, sweeps, findings, bad input, Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.fakes.openai_server import Script, serving

from draftworth import cli
from draftworth.bench.rows import merge_parts


class Ran:
    """How a command ended and what it printed."""

    def __init__(self, *arguments: str) -> None:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            self.code = cli.run(("bench", *arguments))
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        assert self.code == 1, (self.code, self.err)
        assert len(self.err.strip().splitlines()) == 1, self.err
        return self.err


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))


def newest(tmp_path: Path) -> Path:
    return max((tmp_path / "home" / "benches").iterdir())


def codes(record: Any) -> set[str]:
    return {finding["code"] for finding in record["findings"]}


def test_one_point_gives_the_scripted_figures(tmp_path: Path) -> None:
    with serving(Script(token_ms=4.0, tokens=25, first_token_ms=30.0)) as server:
        ran = Ran(server.base_url, "--prompts-per-category", "2", "--max-tokens", "25", "--json")
    assert ran.code == 0, ran.err
    record = ran.json
    whole = record["points"][0]
    assert (whole["requests"], whole["failed"], whole["tokens"]) == (10, 0, 250)
    assert whole["tpot_ms"]["mean"] == pytest.approx(4.0, rel=0.1)
    assert whole["ttft_ms"]["p50"] == pytest.approx(30.0, rel=0.25)
    # One at a time: 30 ms and 24 x 4 ms for 25 tokens.
    assert whole["throughput"] == pytest.approx(25 / 0.126, rel=0.15)
    assert {one["category"] for one in record["points"][1:]} == {
        *("coding", "editing", "explanation", "math", "structured")
    }
    folder = newest(tmp_path)
    assert {path.name for path in folder.iterdir()} == {"bench.json", "requests.parquet", "report.html"}
    assert len(pq.read_table(folder / "requests.parquet")) == 10


def test_a_sweep_over_concurrency_has_one_line_each() -> None:
    with serving(Script(token_ms=2.0, tokens=12)) as server:
        ran = Ran(server.base_url, "--prompts-per-category", "2", "--concurrency", "1,4", "--max-tokens", "12")
        record = Ran(
            server.base_url, "--prompts-per-category", "2", "--concurrency", "1,4", "--max-tokens", "12", "--json"
        ).json
    assert ran.code == 0, ran.err
    assert "1 at a time" in ran.out
    assert "4 at a time" in ran.out
    one, four = (point for point in record["points"] if point["category"] is None)
    assert (one["concurrency"], four["concurrency"]) == (1, 4)
    assert four["throughput"] > 2 * one["throughput"], "the scripted server does not slow down under load"


def test_an_open_loop_sends_at_its_rate() -> None:
    with serving(Script(token_ms=0.5, tokens=4)) as server:
        record = Ran(server.base_url, "--rate", "40", "--max-tokens", "4", "--json").json
        again = Ran(server.base_url, "--rate", "40", "--max-tokens", "4", "--json").json
    point = record["points"][0]
    assert point["load"] == "open"
    assert point["request_rate"] == pytest.approx(40, rel=0.5)
    assert point["requests"] == again["points"][0]["requests"]


def test_goodput_counts_requests_that_met_the_limits() -> None:
    with serving(Script(token_ms=5.0, tokens=8)) as server:
        loose = Ran(server.base_url, "--limit", "5", "--max-tokens", "8", "--slo-tpot-ms", "50", "--json").json
        tight = Ran(server.base_url, "--limit", "5", "--max-tokens", "8", "--slo-tpot-ms", "1", "--json").json
    assert loose["points"][0]["good_share"] == 1.0
    assert tight["points"][0]["good_share"] == 0.0
    assert tight["points"][0]["goodput"] == 0.0


def test_a_speculating_server_shows_its_acceptance() -> None:
    script = Script(token_ms=1.0, tokens=24, tokens_per_chunk=(1, 3, 2))
    config = {"method": "ngram", "num_speculative_tokens": 5}
    with serving(script, speculative_config=config) as server:
        record = Ran(server.base_url, "--limit", "4", "--max-tokens", "24", "--json").json
    counts = record["points"][0]["acceptance"]
    # 24 tokens: 1 from prefill, then 12 steps of 1, 3, 2, …
    assert (counts["steps"], counts["drafted"], counts["accepted"]) == (4 * 12, 4 * 12 * 5, 4 * 11)


def test_findings_are_told_with_advice() -> None:
    with serving(Script(token_ms=0.5, tokens=8, foreign_requests=3)) as server:
        ran = Ran(server.base_url, "--limit", "4", "--max-tokens", "8", "--ignore-eos")
    assert "somebody else used the server" in ran.out
    assert "ignore_eos" in ran.out


def test_failed_requests_are_rows_and_too_many_end_it(tmp_path: Path) -> None:
    with serving(Script(tokens=8, malformed_every=3)) as server:
        few = Ran(
            server.base_url, "--limit", "9", "--max-tokens", "8", "--warmup", "0", "--failed-share", "0.5", "--json"
        )
        many = Ran(server.base_url, "--limit", "9", "--max-tokens", "8", "--warmup", "0", "--json")
    assert few.code == 0
    assert few.json["points"][0]["failed"] == 3
    assert "requests_failed" in codes(few.json)
    assert many.code == 6
    assert "3 of 9 requests failed" in many.json["error"]
    assert len(pq.read_table(newest(tmp_path) / "requests.parquet")) == 9, "what was measured is kept"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--model", "fake/modell-1b"), "fake/model-1b"),
        (("--categories", "codign"), "did you mean 'coding'"),
        (("--concurrency", "0"), "--concurrency: "),
        (("--concurrency", "two"), "must be numbers like 1,8,32"),
        (("--concurrency", "4", "--rate", "3"), "exclude each other"),
        (("--replay", "1"), "recorded time"),
        (("--api-key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (("--header", "nonsense"), "Name: value"),
        (("--slo-tpot-ms", "-1"), "must be above 0"),
        (("--ca-file", "/nowhere.pem"), "no such file"),
        (("--max-tokens", "1"), "--max-tokens: "),
        (("--format", "nosuch"), "nosuch"),
    ],
)
def test_bad_options_are_one_line(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    with serving(Script(tokens=4)) as server:
        assert expected in Ran(server.base_url, *arguments).complaint
    assert not (tmp_path / "home").exists(), "nothing is left of what never began"


def test_bad_urls_are_one_line(tmp_path: Path) -> None:
    assert "connection refused" in Ran("http://127.0.0.1:9").complaint
    assert "http://" in Ran("127.0.0.1:8000").complaint
    with serving(Script()) as server:
        assert "No such file" in Ran(server.base_url, str(tmp_path / "none.jsonl")).complaint
        assert "not an OpenAI" in Ran(server.base_url + "/elsewhere").complaint
        (tmp_path / "empty.jsonl").write_text("\n")
        assert "no prompts" in Ran(server.base_url, str(tmp_path / "empty.jsonl")).complaint


def test_a_prompt_longer_than_the_context_says_so(tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "many words " * 4000}) + "\n")
    with serving(Script(tokens=4, tokenize=True), max_model_len=512) as server:
        said = Ran(server.base_url, str(tmp_path / "long.jsonl")).complaint
        assert "8,004 tokens, which leaves no room for an answer in the server's context of 512 tokens" in said
        assert server.requests == [], "before anything is measured"
    assert not (tmp_path / "home").exists()


def test_a_load_that_was_not_reached_is_told() -> None:
    with serving(Script(token_ms=2.0, tokens=12)) as server:
        record = Ran(server.base_url, "--limit", "10", "--max-tokens", "12", "--concurrency", "1,8", "--json").json
    one, eight = (point for point in record["points"] if point["category"] is None)
    assert one["in_flight"] == pytest.approx(1.0, abs=0.3)
    assert 2.0 < eight["in_flight"] < 7.0, "ten requests at eight a time: eight, then two"
    (found,) = [one["message"] for one in record["findings"] if one["code"] == "load_not_reached"]
    assert found == (
        f"8 at a time: 10 requests were sent, {eight['in_flight']:.0f} under way on average; send at least 32"
    )


def test_a_key_that_the_server_says_in_an_error_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "zq-very-secret-123456")
    with serving(Script(tokens=4, echo_headers=True)) as server:
        ran = Ran(server.base_url, "--limit", "2", "--api-key-env", "MY_KEY", "--warmup", "0")
    assert ran.code == 6
    assert "(hidden)" in ran.out
    written = b"".join(path.read_bytes() for path in newest(tmp_path).iterdir() if path.suffix != ".parquet")
    errors = pq.read_table(newest(tmp_path) / "requests.parquet")["error"].to_pylist()
    for text in (ran.out, ran.err, written.decode(), *errors):
        assert "zq-v" not in text


def test_a_bug_loses_nothing_that_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with serving(Script(token_ms=0.5, tokens=8)) as server:
        monkeypatch.setattr("draftworth.bench.session.load_findings", broken)
        ran = Ran(server.base_url, "--limit", "5", "--max-tokens", "8")
    assert ran.code == 5
    assert "ZeroDivisionError: a bug" in ran.err
    folder = newest(tmp_path)
    assert str(folder) in ran.err, "where it is kept"
    assert len(pq.read_table(folder / "requests.parquet")) == 5
    record = json.loads((folder / "bench.json").read_text())
    assert "ZeroDivisionError" in record["error"]
    assert record["points"][0]["requests"] == 5


def test_a_killed_benchmark_leaves_the_points_it_measured(tmp_path: Path) -> None:
    with serving(Script(token_ms=5.0, tokens=24)) as server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "draftworth", "bench", server.base_url, "--json"),
                *("--limit", "4", "--warmup", "0", "--concurrency", "4,1"),
            ],
            cwd=tmp_path,
            env=dict(os.environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 20
        while len(server.requests) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    folder = newest(tmp_path)
    assert not (folder / "requests.parquet").exists()
    assert merge_parts(folder) == 4
    assert {one["point"] for one in pq.read_table(folder / "requests.parquet").to_pylist()} == {"4 at a time"}


def test_a_private_header_is_sent_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret-123456")
    with serving(Script(tokens=4, api_key="sk-very-secret-123456")) as server:
        refused = Ran(server.base_url, "--limit", "2").complaint
        ran = Ran(server.base_url, "--limit", "2", "--max-tokens", "4", "--api-key-env", "MY_KEY", "--json")
    assert "--api-key-env" in refused
    assert ran.code == 0, ran.err
    assert b"very-secret" not in b"".join(path.read_bytes() for path in newest(tmp_path).iterdir())


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    with serving(Script(token_ms=20.0, tokens=24)) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "draftworth", "bench", server.base_url, "--json"],
            cwd=tmp_path,
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 20
        while len(server.requests) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "what was measured is kept" in err
    record = json.loads(out)
    assert record["points"][0]["requests"] >= 2
    assert "interrupted" in record["error"]
