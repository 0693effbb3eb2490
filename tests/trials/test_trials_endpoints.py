"""Trials between servers that run already: requests in turns, nothing stopped, ended when the evidence is enough."""

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.fakes.openai_server import Script, serving
from tests.trials.conftest import Case

from draftworth.bench.base import Closed, Open, Prompt
from draftworth.bench.points import Point
from draftworth.trials.endpoints.prepare import split, turns

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}


def write(
    case: Case, baseline: str, variants: Sequence[tuple[str, str]], *, service: str = "", extra: str = ""
) -> Case:
    arms = "".join(f'[[arms]]\nname = "{name}"\nurl = "{url}"\n' for name, url in variants)
    case.file.write_text(
        f'[service]\ntype = "endpoints"\nbaseline = "{baseline}"\n{service}\n{arms}\n'
        f"[workload]\nprompts_per_category = 4\nmax_tokens = 24\nwarmup = 1\n{extra}\n",
        encoding="utf-8",
    )
    return case


def test_a_faster_replica_is_found_and_nothing_is_stopped(case: Case) -> None:
    with (
        serving(Script(token_ms=3.0, tokens=24)) as one,
        serving(Script(token_ms=1.5, tokens=24), speculative_config=NGRAM) as other,
    ):
        result = write(case, one.base_url, [("spec", other.base_url)]).run()
        record = result.json
        assert (result.code, record["verdict"]) == (0, "faster"), result.err
        assert record["restored"] is True
        assert "nothing was started or stopped" in record["restore"]
        assert record["comparison"]["tpot_ratio"]["estimate"] == pytest.approx(0.5, abs=0.1)
        assert record["comparison"]["output_check"]["status"] == "same"
        assert record["arms"][1]["acceptance"]["drafted"] > 0
        # Both are sent the same requests.
        sent = [
            [body["messages"] for path, body in server.requests if path.endswith("chat/completions")]
            for server in (one, other)
        ]
        assert sorted(map(str, sent[0])) == sorted(map(str, sent[1]))


def test_the_servers_take_turns_request_by_request(case: Case) -> None:
    with serving(Script(token_ms=0.5, tokens=6)) as one, serving(Script(token_ms=0.5, tokens=6)) as other:
        write(case, one.base_url, [("again", other.base_url)], service="looks = 1", extra="").run()
    rows = sorted(
        pq.read_table(case.trials()[0] / "requests.parquet").to_pylist(), key=lambda row: float(row["started_unix"])
    )
    order = "".join("A" if row["arm"] == "baseline" else "B" for row in rows)
    assert order == "ABBA" * (len(rows) // 4)


def test_a_trial_that_is_decided_ends_early(case: Case) -> None:
    with serving(Script(token_ms=4.0, tokens=24)) as one, serving(Script(token_ms=1.0, tokens=24)) as other:
        record = write(case, one.base_url, [("fast", other.base_url)]).run().json
    assert record["look"] < record["looks"] == 5
    assert record["arms"][0]["requests"] < 20


def test_a_key_is_sent_and_never_written(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret-1234567")
    script = Script(token_ms=0.5, tokens=6, api_key="sk-very-secret-1234567")
    with serving(script) as one, serving(script) as other:
        write(case, one.base_url, [("again", other.base_url)], service='api_key_env = "MY_KEY"')
        result = case.run()
    assert result.code in {0, 3}, result.err
    written = b"".join(path.read_bytes() for path in case.home.rglob("*") if path.is_file())
    assert b"very-secret" not in written
    assert "very-secret" not in result.out + result.err
    assert result.json["config"]["service"]["api_key_env"] == "MY_KEY"


def test_a_missing_key_is_one_line(case: Case) -> None:
    with serving(Script(api_key="k")) as one, serving(Script(api_key="k")) as other:
        write(case, one.base_url, [("again", other.base_url)])
        result = case.run()
    assert result.code == 1
    assert "asks for a key" in result.err
    assert "api_key_env" in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("service", "arms", "expected"),
    [
        ('model = "nothing"', None, "is not served; the server has"),
        ('api_key_env = "NOT_SET_ANYWHERE"', None, "NOT_SET_ANYWHERE is not set"),
        ("", [("again", "ftp://x")], "must be a URL like"),
        ("", [("again", "http://127.0.0.1:9/v1")], "connection refused"),
        ("", [("baseline", "http://127.0.0.1:9")], "another name"),
        ('headers = { X-Api-Key = "s" }', None, "headers_env"),
        ("commmand = 3", None, "unknown field"),
    ],
)
def test_bad_input_is_one_line(case: Case, service: str, arms: Any, expected: str) -> None:
    with serving(Script(tokens=4)) as one:
        write(case, one.base_url, arms or [("again", one.base_url + "/x")], service=service)
        result = case.run()
    assert result.code == 1, result.err
    assert expected in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_ctrl_c_keeps_what_was_measured(case: Case) -> None:
    with serving(Script(token_ms=20.0, tokens=24)) as one, serving(Script(token_ms=20.0, tokens=24)) as other:
        write(case, one.base_url, [("again", other.base_url)])
        process = case.start("trial", "run", str(case.file), "--json")
        deadline = time.monotonic() + 20
        while len([1 for path, _ in one.requests if "chat" in path]) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    record = json.loads(out)
    assert process.returncode == 6
    assert record["verdict"] == "error"
    assert record["error"] == "interrupted by SIGINT"
    assert "what was measured is kept" in err
    rows = pq.read_table(next(iter((case.home / "trials").iterdir())) / "requests.parquet").to_pylist()
    assert len(rows) >= 3


def test_the_plan_names_the_servers(case: Case) -> None:
    with serving(Script()) as one, serving(Script()) as other:
        write(case, one.base_url, [("again", other.base_url)])
        out = case.cli("trial", "plan", str(case.file)).out
        found = case.cli("trial", "plan", str(case.file), "--json").json
    assert one.base_url in out
    assert other.base_url in out
    assert "Nothing is started and nothing is stopped" in out
    assert [server["arm"] for server in found["servers"]] == ["baseline", "again"]
    assert found["requests"] == 2 * 20


def prompts(count: int) -> list[Prompt]:
    return [Prompt(str(number), "c", ({"role": "user", "content": "x"},)) for number in range(count)]


def test_parts_hold_every_prompt_once_and_are_of_a_size() -> None:
    parts = split(prompts(22), 5)
    assert sorted(int(prompt.id) for part in parts for prompt in part) == list(range(22))
    assert {len(part) for part in parts} == {4, 5}
    assert len(split(prompts(7), 5)) == 1, "a part of fewer than four prompts tells nothing"


def test_turns_keep_a_closed_loop_full_and_an_open_loop_whole() -> None:
    one = Point(Closed(1), 8)
    assert [len(turn) for turn in turns(prompts(3), one)] == [1, 1, 1]
    assert [len(turn) for turn in turns(prompts(20), Point(Closed(4), 8))] == [16, 4]
    assert [len(turn) for turn in turns(prompts(20), Point(Open(3.0), 8))] == [20]


def test_a_path_of_the_file_is_relative_to_it(case: Case, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n' * 1, encoding="utf-8")
    with serving(Script(tokens=4)) as one, serving(Script(tokens=4)) as other:
        write(case, one.base_url, [("again", other.base_url)], extra='source = "p.jsonl"')
        case.file.write_text(case.file.read_text().replace("prompts_per_category = 4\n", ""))
        assert case.run().json["arms"][0]["requests"] == 1
