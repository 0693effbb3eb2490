"""Trials between servers that run already: requests in turns, nothing stopped, ended when the evidence is enough."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.openai_server import Script, serving
from tests.helpers import Result
from tests.trials.conftest import Case

from draftworth.bench import client
from draftworth.bench.base import ClientHealth, Closed, Open, Prompt
from draftworth.bench.monitor import Monitor
from draftworth.bench.points import Point
from draftworth.errors import UsageError
from draftworth.trials.endpoints.config import EndpointArm, EndpointsConfig
from draftworth.trials.endpoints.prepare import access_to, split, turns

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
    assert record["look"] < record["looks"] == 4
    assert record["arms"][0]["requests"] < 20


def test_a_key_is_sent_and_never_written(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret-1234567")
    script = Script(token_ms=0.5, tokens=6, api_key="sk-very-secret-1234567")
    with serving(script) as one, serving(script) as other:
        write(case, one.base_url, [("again", other.base_url)], service='api_key_env = "MY_KEY"')
        case.file.write_text(case.file.read_text().replace("[[arms]]", "[[arms]]\nsame_access = true"))
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
    return of("c" * count)


def of(categories: Iterable[str]) -> list[Prompt]:
    """Return a prompt of each of these categories, in turn."""
    return [Prompt(str(number), name, ({"role": "user", "content": "x"},)) for number, name in enumerate(categories)]


def test_parts_hold_every_prompt_once_and_are_of_a_size() -> None:
    parts = split(prompts(22), 5)
    assert sorted(int(prompt.id) for part in parts for prompt in part) == list(range(22))
    assert {len(part) for part in parts} == {4, 5}
    assert len(split(prompts(7), 5)) == 1, "a part of fewer than four prompts tells nothing"


def test_each_look_sees_every_category() -> None:
    """Prompts come with their categories in turn: every fifth of five categories is always the same one."""
    parts = split(of("abcde" * 8), 5)
    assert [len(part) for part in parts] == [8] * 5
    for part in parts:
        shares = Counter(prompt.category for prompt in part)
        assert set(shares) == set("abcde")
        assert max(shares.values()) == 2
        assert [int(prompt.id) for prompt in part] == sorted(int(prompt.id) for prompt in part)


def test_a_rare_category_is_in_every_look_too() -> None:
    parts = split(of("a" * 17 + "b" * 3 + "c" * 9), 5)
    assert len(parts) == 3
    assert [Counter(prompt.category for prompt in part)["b"] for part in parts] == [1, 1, 1]
    assert sorted(len(part) for part in parts) == [9, 10, 10]


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=120), st.integers(1, 20), st.integers(1, 9))
def test_however_many_there_are_parts_are_alike(categories: list[str], looks: int, at_once: int) -> None:
    made = of(categories)
    parts = split(made, looks, at_once=at_once, repeats=2)
    assert sorted((prompt.id for part in parts for prompt in part), key=int) == [prompt.id for prompt in made]
    assert 1 <= len(parts) <= looks
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    for name, count in Counter(categories).items():
        shares = [sum(prompt.category == name for prompt in part) for part in parts]
        assert max(shares) - min(shares) <= 1
        assert min(shares) >= 1 or len(parts) == 1
        assert count >= len(parts)
    if len(parts) > 1:
        assert min(sizes) >= 4
        assert 2 * min(sizes) >= 4 * at_once, "the load stays up"


def test_turns_keep_a_closed_loop_full_and_an_open_loop_whole() -> None:
    one = Point(Closed(1), 8)
    assert [len(turn) for turn in turns(prompts(3), one)] == [1, 1, 1]
    four = Point(Closed(4), 8)
    assert [len(turn) for turn in turns(prompts(20), four)] == [20], "a rest of four would be one at a time at its end"
    assert [len(turn) for turn in turns(prompts(41), four)] == [20, 21]
    assert [len(turn) for turn in turns(prompts(20), four, repeats=2)] == [10, 10]
    assert [len(turn) for turn in turns(prompts(3), four)] == [3]
    assert [len(turn) for turn in turns(prompts(20), Point(Open(3.0), 8))] == [20]


@pytest.mark.parametrize(
    ("work", "looks", "note"),
    [
        ("", 4, "looks: 4, not the 5 of service.looks: each has every category, at least 4 prompts"),
        ("concurrency = [1, 2]", 2, "enough requests to keep 2 at a time up"),
        ("concurrency = [1, 2]\nrepeats = 2", 4, "enough requests to keep 2 at a time up"),
        ("concurrency = 8", 1, "20 conversations are fewer than 4 times 8, so the load does not stay up"),
        ("rate = 5.0", 4, "looks: 4"),
    ],
)
def test_a_look_has_enough_requests_for_the_load(case: Case, work: str, looks: int, note: str) -> None:
    with serving(Script()) as one, serving(Script()) as other:
        write(case, one.base_url, [("again", other.base_url)], extra=work)
        out = case.cli("trial", "plan", str(case.file)).out
    assert f"part {looks} of {looks}: " in out
    assert note in out


def test_a_replay_is_sent_whole(case: Case) -> None:
    """Every second request of a recording is half the traffic that was recorded."""
    lines = [json.dumps({"prompt": f"question {i}", "arrival_s": 0.02 * i}) for i in range(20)]
    (case.folder / "p.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with serving(Script(token_ms=0.1, tokens=6)) as one, serving(Script(token_ms=0.1, tokens=6)) as other:
        write(case, one.base_url, [("again", other.base_url)], extra='source = "p.jsonl"\nreplay_speed = 1.0')
        case.file.write_text(case.file.read_text().replace("prompts_per_category = 4\n", ""))
        plan = case.cli("trial", "plan", str(case.file)).out
        record = case.run().json
    assert "part 1 of 1: 20 requests" in plan
    assert "a replay is measured whole" in plan
    assert record["looks"] == 1
    for arm in ("baseline", "again"):
        sent = [row["started_unix"] for row in rows_of(case) if row["arm"] == arm]
        assert len(sent) == 20
        assert max(sent) - min(sent) == pytest.approx(0.38, abs=0.1)


def rows_of(case: Case) -> list[dict[str, Any]]:
    """Return the newest trial's rows in the order in which they were sent."""
    rows: list[dict[str, Any]] = pq.read_table(case.trials()[-1] / "requests.parquet").to_pylist()
    return sorted(rows, key=lambda row: float(row["started_unix"]))


def test_neither_server_is_always_the_first_of_a_part(case: Case) -> None:
    with serving(Script(token_ms=0.2, tokens=6)) as one, serving(Script(token_ms=0.2, tokens=6)) as other:
        # Servers so alike and priors so wide that no look is ever enough, so that every part is sent.
        wide = "rate = 200.0\n[verdict]\nrestart_sd_baseline = 0.5\nrestart_sd_variant = 0.5"
        write(case, one.base_url, [("again", other.base_url)], service="looks = 2", extra=wide)
        case.run()
    order = "".join("A" if row["arm"] == "baseline" else "B" for row in rows_of(case))
    assert order == "A" * 10 + "B" * 20 + "A" * 10


KEY = "sk-of-the-baseline-1"


def two_keys(case: Case, arm: str, own: str = KEY, *, service: str = "") -> tuple[Result, set[str | None]]:
    """Run a trial whose servers have keys; returns the result, and what keys the variant's server was sent."""
    with (
        serving(Script(token_ms=0.1, tokens=6, api_key=KEY)) as one,
        serving(Script(token_ms=0.1, tokens=6, api_key=own)) as other,
    ):
        write(case, one.base_url, [("again", other.base_url)], service=service or 'api_key_env = "BASELINE_KEY"')
        case.file.write_text(case.file.read_text().replace("[[arms]]", f"[[arms]]\n{arm}"))
        result = case.run()
        return result, {headers.get("Authorization") for headers in other.headers}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELINE_KEY", KEY)
    monkeypatch.setenv("OTHER_KEY", "sk-of-the-variant-1")
    monkeypatch.setenv("WHOLE", "Bearer sk-of-the-variant-1")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("service", ['api_key_env = "BASELINE_KEY"', 'headers_env = { X-Gate = "BASELINE_KEY" }'])
@pytest.mark.parametrize("arm", ["", "headers = { X-Team = 'search' }"])
def test_the_baselines_key_goes_to_no_other_server_unasked(case: Case, service: str, arm: str) -> None:
    result, sent = two_keys(case, arm, service=service)
    assert result.code == 1
    assert sent == set(), "not one request"
    assert len(result.err.strip().splitlines()) == 1
    for word in ("arms: again", "api_key_env", "same_access = true", "same_access = false"):
        assert word in result.err


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("arm", "own", "sent"),
    [
        ("same_access = true", KEY, f"Bearer {KEY}"),
        ('api_key_env = "OTHER_KEY"', "sk-of-the-variant-1", "Bearer sk-of-the-variant-1"),
        ('headers_env = { authorization = "WHOLE" }', "sk-of-the-variant-1", "Bearer sk-of-the-variant-1"),
        ("same_access = false", "", None),
    ],
)
def test_an_arm_says_what_lets_the_client_in(case: Case, arm: str, own: str, sent: str | None) -> None:
    result, keys = two_keys(case, arm, own)
    assert result.code in {0, 3}, result.err
    assert {key for key in keys if key} == {sent} - {None}
    written = b"".join(path.read_bytes() for path in case.home.rglob("*") if path.is_file())
    assert b"sk-of-the" not in written


@pytest.mark.parametrize(
    ("baseline", "variant", "shared"),
    [
        ("http://a:8000/one", "http://A:8000/two", True),
        ("https://a", "https://a:443", True),
        ("https://a", "http://a:443", False),
        ("http://a:8000", "http://a:8001", False),
        ("http://a:8000", "http://a.example:8000", False),
    ],
)
@pytest.mark.usefixtures("keys")
def test_a_key_stays_at_scheme_host_and_port(baseline: str, variant: str, *, shared: bool) -> None:
    service = EndpointsConfig(
        type="endpoints",
        baseline=baseline,
        api_key_env="BASELINE_KEY",
        headers={"X-Team": "search", "X-Where": "a"},
        headers_env={"X-Gate": "BASELINE_KEY"},
    )
    arm = EndpointArm(name="v", url=variant, headers={"x-where": "b"})
    if not shared:
        with pytest.raises(UsageError, match="same_access"):
            access_to(service, arm)
        arm = EndpointArm(name="v", url=variant, headers={"x-where": "b"}, same_access=False)
    found = access_to(service, arm).headers
    open_headers = {"X-Team": "search", "x-where": "b"}
    assert found == (open_headers | {"X-Gate": KEY, "Authorization": f"Bearer {KEY}"} if shared else open_headers)


def test_an_arms_file_of_authorities_is_named_whole(case: Case) -> None:
    write(case, "http://127.0.0.1:9", [("again", "http://127.0.0.1:8")])
    case.file.write_text(case.file.read_text().replace("[[arms]]", '[[arms]]\nca_file = "company.pem"'))
    result = case.run()
    assert result.code == 1
    assert "arms[0].ca_file: must be an absolute path, not 'company.pem'" in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_server_without_token_ids_is_asked_for_them_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn has a client of its own, and each had to be refused."""
    monkeypatch.setattr(client, "_without", {})
    script = Script(token_ms=0.2, tokens=6, reject_token_ids=True)
    with serving(script) as one, serving(script) as other:
        write(case, one.base_url, [("again", other.base_url)], service="looks = 1")
        case.run()
        for server in (one, other):
            assert sum("return_token_ids" in body for _, body in server.requests) == 1


def test_a_busy_client_is_told_once_for_each_arm_and_point(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is too short to say anything of the client; all of them together are not."""
    busy = ClientHealth(0.2, 0.19, {0.1: 4})
    monkeypatch.setattr(Monitor, "health", lambda _self, _late: busy)
    with serving(Script(token_ms=0.2, tokens=6)) as one, serving(Script(token_ms=0.2, tokens=6)) as other:
        write(case, one.base_url, [("again", other.base_url)], extra="concurrency = [1, 2]")
        record = case.run().json
    told = [one for one in record["findings"] if one["code"] == "client_saturated"]
    assert [(one["arm"], one["message"].split(":")[0]) for one in told] == [
        ("baseline", "baseline (1 at a time)"),
        ("again", "again (1 at a time)"),
    ]


def test_a_server_that_was_not_warmed_up_is_told(case: Case) -> None:
    with (
        serving(Script(token_ms=0.2, tokens=6)) as one,
        serving(Script(token_ms=0.2, tokens=6, busy=(503,))) as other,
    ):
        write(case, one.base_url, [("again", other.base_url)], service="looks = 1")
        record = case.run().json
    (told,) = [one for one in record["findings"] if one["code"] == "requests_failed"]
    assert told["arm"] == "again"
    assert "all 1 warm-up requests failed" in told["message"]
    assert "503" in told["message"]


def test_recorded_token_ids_are_warmed_up_with_token_ids(case: Case) -> None:
    lines = [json.dumps({"prompt_token_ids": [1, 1000 + i, 1001]}) for i in range(4)]
    (case.folder / "p.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with serving(Script(token_ms=0.1, tokens=6)) as one, serving(Script(token_ms=0.1, tokens=6)) as other:
        write(case, one.base_url, [("again", other.base_url)], extra='source = "p.jsonl"')
        case.file.write_text(case.file.read_text().replace("prompts_per_category = 4\n", ""))
        case.run()
        assert len([1 for path, body in one.requests if body.get("stream")]) == 5
        assert "/v1/chat/completions" not in {path for path, _ in one.requests}


def test_a_path_of_the_file_is_relative_to_it(case: Case, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n' * 1, encoding="utf-8")
    with serving(Script(tokens=4)) as one, serving(Script(tokens=4)) as other:
        write(case, one.base_url, [("again", other.base_url)], extra='source = "p.jsonl"')
        case.file.write_text(case.file.read_text().replace("prompts_per_category = 4\n", ""))
        assert case.run().json["arms"][0]["requests"] == 1
