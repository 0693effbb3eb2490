"""Whole trials on the scripted server: the verdict, the record, what is refused, what ends badly and is put back."""

import json
import os
import signal
import sqlite3
import sys
import time
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.helpers import listening, original, pids_with, wait_for
from tests.trials.conftest import NGRAM, QUICK, Case

from draftworth.errors import MeasureError
from draftworth.services.process import ProcessService
from draftworth.trials.journal import Journal


def codes(record: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in record["findings"]}


def arm(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["arms"] if one["name"] == name)


def test_a_faster_variant_gives_the_whole_record(case: Case) -> None:
    result = case.write().run()
    assert result.code == 0, result.err
    record = result.json
    assert record["schema_version"] == 2
    assert record["verdict"] == "faster"
    assert record["restored"] is True
    # Scripted: 1.2 ms a token against 2.0.
    assert record["comparison"]["tpot_ratio"]["estimate"] == pytest.approx(0.6, abs=0.08)
    assert record["comparison"]["tpot_ratio"]["low"] < 0.6 < record["comparison"]["tpot_ratio"]["high"]
    assert {category["category"] for category in record["categories"]} == {"coding", "editing"}
    baseline, variant = arm(record, "baseline"), arm(record, "ngram-5")
    assert (baseline["requests"], variant["requests"]) == (8, 4), "two baseline blocks, one of the variant"
    assert (baseline["tokens"], variant["tokens"]) == (8 * 24, 4 * 24)
    assert baseline["engine"] == "vllm"
    assert variant["version"] == "0.32.0"
    # 24 tokens: 1 from prefill, then steps of 1, 3, 2, 1, 3, 2, 1, 3, 2, 1, 3 and 1 tokens: 12 steps, each drafted.
    # Of a request's 12 steps, 7 emitted more than one token (position 1 accepted) and 4 of them three.
    counts = variant["acceptance"]
    assert (counts["steps"], counts["drafting_steps"], counts["drafted"]) == (4 * 12, 4 * 12, 4 * 12 * 5)
    assert counts["accepted"] == 4 * (23 - 12)
    assert counts["accepted_per_position"][:3] == [4 * 7, 4 * 4, 0]
    assert "difference of two scrapes" in counts["source"]
    assert {w["code"] for w in variant["warnings"]} >= {"async_scheduling_off", "sampling_params_ignored"}
    assert record["confounders"] == []
    case.nothing_left()


def test_the_baseline_has_null_and_a_reason_where_the_engine_gives_no_count(case: Case) -> None:
    counts = arm(case.write().run().json, "baseline")["acceptance"]
    assert counts["drafted"] is None
    assert counts["accepted"] is None
    assert counts["not_given"]["drafted"]
    assert counts["steps"] == 8 * 23


def test_the_files_of_a_trial(case: Case) -> None:
    case.write().run()
    folder = case.trials()[0]
    names = {path.name for path in folder.iterdir() if not path.name.startswith("journal.db-")}
    assert names == {"trial.json", "requests.parquet", "journal.db", "metrics.jsonl", "logs", "report.md"}
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    assert [(row["arm"], row["block"]) for row in rows] == (
        [("baseline", 1)] * 4 + [("ngram-5", 2)] * 4 + [("baseline", 3)] * 4
    )
    assert all(row["ok"] and row["tokens"] == 24 and len(row["token_ids"]) == 24 for row in rows)
    scrapes = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {(s["arm"], s["when"]) for s in scrapes} >= {("baseline", "before"), ("ngram-5", "after")}
    assert len(list((folder / "logs").glob("*.log"))) == 4, "three starts and the guard"
    report = (folder / "report.md").read_text()
    assert report.startswith(f"# Trial {folder.name}: faster (ngram-5)")
    assert "nothing ran before the trial" in report


def test_effects_happen_in_the_order_of_the_plan(case: Case) -> None:
    case.write()
    planned = [step["id"] for step in case.cli("trial", "plan", str(case.file), "--json").json["steps"]]
    case.run()
    effects = [event.step for event in case.events() if event.kind == "effect"]
    assert [step for step in effects if step != "restore"] == [s for s in planned if "restore" not in s]
    assert planned == [
        *("01-start-baseline", "02-measure-baseline", "03-stop-baseline"),
        *("04-start-ngram-5", "05-measure-ngram-5", "06-stop-ngram-5"),
        *("07-start-baseline", "08-measure-baseline", "09-score-baseline", "10-stop-baseline", "11-restore"),
    ]


def test_the_baseline_against_itself_is_neither_faster_nor_slower(case: Case) -> None:
    script = {"token_ms": 3.0, "tokens": 24}
    record = case.write(script, arms=[("again", None)], prompts=6).run().json
    assert record["verdict"] in {"no difference", "inconclusive"}
    assert record["confounders"] == []


def test_a_slower_variant_is_slower_and_exits_0(case: Case) -> None:
    script = {**QUICK, "speculating": {"token_ms": 3.0}}
    result = case.write(script).run()
    assert (result.code, result.json["verdict"]) == (0, "slower")


def test_corrupted_output_overrides_faster(case: Case) -> None:
    script = {**QUICK, "speculating": {"tokens_per_chunk": [3], "token_ms": 0.8, "corrupt_every": 6}}
    result = case.write(script).run()
    record = result.json
    assert result.code == 6
    assert record["verdict"] == "error"
    assert record["comparison"]["output_check"]["status"] == "diverged"
    assert record["comparison"]["tpot_ratio"]["estimate"] < 0.8, "the speed is kept, it is only not a verdict"
    assert "output_diverged" in codes(record)
    assert record["restored"] is True


def test_near_ties_that_flip_are_not_wrong_output(case: Case) -> None:
    script = {**QUICK, "noise_every": 5, "noise_gap": 0.2}
    script["speculating"] = {**QUICK["speculating"], "tie_every": 6, "tie_gap": 0.2}  # type: ignore[dict-item]
    record = case.write(script).run().json
    check = record["comparison"]["output_check"]
    assert check["status"] == "same"
    assert check["identical_outputs"] < check["compared_outputs"]
    assert record["verdict"] == "faster"


def test_an_output_that_could_not_be_checked_is_not_called_faster(case: Case) -> None:
    result = case.write({**QUICK, "score_error": "out of memory"}).run()
    assert (result.code, result.json["verdict"]) == (3, "inconclusive")
    assert "output_unchecked" in codes(result.json)
    assert "out of memory" in result.json["comparison"]["output_check"]["reason"]


def test_several_variants_are_compared_and_the_best_is_named(case: Case) -> None:
    arms = [("k5", NGRAM), ("same", None), ("k3", {**NGRAM, "num_speculative_tokens": 3})]
    record = case.write(arms=arms).run().json
    assert [one["arm"] for one in record["comparisons"]] == ["k5", "same", "k3"]
    assert record["best"] in {"k5", "k3"}
    assert record["comparison"]["tpot_ratio"]["confidence"] == pytest.approx(1 - 0.05 / 3)


def test_an_arms_own_args_and_env_reach_its_server_only(case: Case) -> None:
    case.write(arm_lines='args = ["--max-model-len", "1024"]\nenv = { MY_SWITCH = "on", MY_TOKEN = "hush" }\n')
    record = case.run().json
    assert arm(record, "ngram-5")["command"][-4:-2] == ["--max-model-len", "1024"]
    assert "--max-model-len" not in arm(record, "baseline")["command"]
    assert arm(record, "ngram-5")["declared"]["env"] == {"MY_SWITCH": "on", "MY_TOKEN": "(hidden)"}
    for path in case.trials()[0].rglob("*"):
        if path.is_file() and "log" not in path.suffix:
            assert b"hush" not in path.read_bytes(), path


def test_sampling_above_zero_still_checks_the_output_greedily(case: Case) -> None:
    record = case.write(extra="temperature = 0.8\n").run().json
    assert record["comparison"]["output_check"]["status"] == "same"
    assert arm(record, "ngram-5")["requests"] == 4, "the check's own requests are not counted"


# --- findings from the server's counters


def test_foreign_requests_are_found(case: Case) -> None:
    record = case.write({**QUICK, "foreign_requests": 3}).run().json
    assert "foreign_requests" in codes(record)


def test_a_counter_reset_is_found_and_its_counts_are_dropped(case: Case) -> None:
    record = case.write({**QUICK, "reset_counters_after": 5}).run().json
    assert "counter_reset" in codes(record)
    assert arm(record, "ngram-5")["acceptance"]["drafted"] is None


def test_a_server_without_metrics_is_measured_all_the_same(case: Case) -> None:
    record = case.write({**QUICK, "metrics": False}).run().json
    assert record["verdict"] == "faster"
    assert "metrics_missing" in codes(record)
    assert arm(record, "ngram-5")["acceptance"]["drafted"] is None
    assert arm(record, "ngram-5")["acceptance"]["not_given"]["drafted"]


def test_two_engines_are_summed(case: Case) -> None:
    record = case.write({**QUICK, "engines": 2}).run().json
    assert arm(record, "ngram-5")["acceptance"]["drafting_steps"] == 4 * 12
    assert "2 engines" in arm(record, "ngram-5")["acceptance"]["source"]


def test_speculation_that_drafts_nothing_is_found(case: Case) -> None:
    script = {**QUICK, "speculating": {"draft_every": 0}}
    assert "nothing_drafted" in codes(case.write(script).run().json)


def test_missing_usage_falls_back_to_token_ids(case: Case) -> None:
    record = case.write({**QUICK, "usage": False}).run().json
    assert record["verdict"] == "faster"
    assert arm(record, "ngram-5")["tokens"] == 96


# --- refused before anything was changed


def refused(case: Case, code: int, *words: str) -> None:
    result = case.run()
    assert result.code == code, result.err
    assert result.out == ""
    lines = result.err.strip().splitlines()
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]
    assert case.trials() == []
    case.nothing_left()


def test_a_missing_file(case: Case) -> None:
    refused(case, 1, "draftworth.toml: no such file")


def test_an_engine_that_is_not_installed(case: Case) -> None:
    case.write(command=["/no/such/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"])
    refused(case, 2, "/no/such/python: no such program", "draftworth engine install")


def test_a_model_folder_that_is_missing(case: Case) -> None:
    case.write(command=["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/no/such/model"])
    refused(case, 2, "the model /no/such/model: no such folder")


def test_a_command_that_speculates_already(case: Case) -> None:
    case.write(flags=["--speculative-config", '{"method":"ngram"}'])
    refused(case, 2, "speculates already", "--speculative-config")


def test_a_wrapper_script_with_no_place_for_the_flag(case: Case) -> None:
    case.write(command=["sh", "serve.sh"])
    (case.folder / "serve.sh").write_text("exec true\n", encoding="utf-8")
    refused(case, 2, "{speculative_args}")


def test_a_port_taken_by_a_stranger(case: Case) -> None:
    case.write()
    with original(
        ["python3", "-m", "http.server", str(case.port), "--bind", "127.0.0.1"], case.port, case.folder
    ) as pid:
        result = case.run()
        assert result.code == 2
        assert f"port {case.port} is taken by pid {pid}" in result.err
        assert listening(case.port), "the stranger was not touched"


def test_too_many_requests(case: Case) -> None:
    case.write(limits="requests = 5")
    refused(case, 2, "the plan sends 12 requests and limits.requests is 5")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ('categories = ["codng"]\n', "codng"),
        ('source = "none.jsonl"\n', "none.jsonl"),
        ("prompts_per_category = 400\n", "400"),
    ],
)
def test_a_workload_that_is_not_there(case: Case, extra: str, words: str) -> None:
    case.write()
    text = case.file.read_text()
    key = extra.split(" = ", maxsplit=1)[0]
    kept = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
    case.file.write_text("\n".join(kept).replace("[workload]", f"[workload]\n{extra}"), encoding="utf-8")
    refused(case, 1, words)


# --- servers that fail


def failed(case: Case, *words: str) -> dict[str, Any]:
    result = case.run()
    record: dict[str, Any] = result.json
    assert result.code == 6, result.err
    assert record["verdict"] == "error"
    assert record["restored"] is True
    text = " ".join([record["error"], *record["error_tail"]])
    for word in words:
        assert word in text
    case.nothing_left()
    return record


def test_a_flag_the_engine_does_not_know_shows_its_own_words(case: Case) -> None:
    case.write(arms=[("odd", NGRAM)], arm_lines='args = ["--no-such-flag"]\n')
    record = failed(case, "--no-such-flag", "exit code 2")
    assert arm(record, "baseline")["requests"] == 4, "what was measured is kept"
    assert "The server's last lines" in (case.trials()[0] / "report.md").read_text()


def test_a_server_that_dies_while_it_loads(case: Case) -> None:
    failed(case.write({**QUICK, "die_at": "load", "exit_code": 3}), "ended while it started", "exit code 3")


def test_a_variant_that_dies_while_it_loads(case: Case) -> None:
    script = {**QUICK, "speculating": {"die_at": "load"}}
    record = failed(case.write(script), "ended while it started")
    assert arm(record, "baseline")["requests"] == 4


def test_a_server_that_dies_at_its_first_request(case: Case) -> None:
    failed(case.write({**QUICK, "speculating": {"die_at": "first_request"}}), "ended while it started")


def test_a_server_that_dies_in_the_middle(case: Case) -> None:
    record = failed(case.write({**QUICK, "speculating": {"die_at": "request:4"}}), "died while it was measured")
    assert arm(record, "ngram-5")["requests"] == 2, "one warm-up and two answered before the fourth"


def test_a_server_that_never_gets_ready(case: Case) -> None:
    case.write({**QUICK, "warm_seconds": 60}, limits="start_timeout_s = 2\nstop_timeout_s = 2")
    failed(case, "not ready in time")


def test_a_server_that_ignores_sigterm_and_leaves_children(case: Case) -> None:
    script = {**QUICK, "ignore_sigterm": True, "spawn_children": 1, "detached_children": 1, "stubborn_children": 1}
    record = case.write(script, limits="stop_timeout_s = 0.5").run().json
    assert record["verdict"] == "faster"
    assert "leftovers" in codes(record)
    case.nothing_left()


def test_failing_requests_are_rows_and_too_many_end_the_trial(case: Case) -> None:
    record = case.write({**QUICK, "malformed_every": 9}, prompts=6, limits="failed_share = 0.5").run().json
    assert "requests_failed" in codes(record)
    assert arm(record, "baseline")["failed"] > 0
    failed(case.write({**QUICK, "error_every": 2}, extra="retries = 0"), "limits.failed_share", "500")


def test_requests_that_were_refused_and_sent_again_enter_no_time(case: Case) -> None:
    record = case.write({**QUICK, "error_every": 9}, prompts=6).run().json
    assert "requests_retried" in codes(record)
    assert arm(record, "baseline")["retried"] > 0
    assert arm(record, "baseline")["failed"] == 0
    assert record["comparison"]["pairs"] < 12, "a prompt without a time in every start is not compared"
    rows = pq.read_table(case.trials()[-1] / "requests.parquet").to_pylist()
    again = [row for row in rows if row["retries"]]
    assert {row["retry_reasons"] for row in again} == {"HTTP 500"}


def test_a_hanging_stream_ends_at_its_deadline(case: Case) -> None:
    case.write({**QUICK, "hang_at_request": 2}, limits="token_timeout_s = 0.5\nfailed_share = 0.5")
    record = case.run().json
    assert arm(record, "baseline")["failed"] == 2


def test_the_time_limit_ends_the_trial(case: Case) -> None:
    case.write({**QUICK, "token_ms": 40}, limits="downtime_s = 3")
    failed(case, "limits.downtime_s")


# --- the original


def test_a_running_original_is_measured_put_back_and_measured_again(case: Case) -> None:
    case.write()
    with original(case.original_command(), case.port, case.folder, {"MY_API_KEY": "hush"}) as pid:
        result = case.run()
        record = result.json
        assert result.code == 0, result.err
        assert record["verdict"] == "faster"
        assert listening(case.port)
        assert record["restored"] is True
        assert "has generated a token with fake" in record["restore"]
        starts = arm(record, "baseline")["starts"]
        assert starts[0]["seconds"] is None, "the first baseline is the original, untouched"
        assert starts[1]["seconds"] > 0
        (now,) = [p for p in pids_with(f"script-{case.port}.json") if p != pid]
        assert f"pid {now}," in record["restore"]
        folder = case.trials()[0]
        assert not (folder / "original.json").exists()
        for path in folder.rglob("*"):
            if path.is_file():
                assert b"hush" not in path.read_bytes(), path
        shown = case.cli("trial", "restore", folder.name)
        assert (shown.code, "restored already" in shown.out) == (0, True)


def test_a_variant_that_fails_does_not_cost_the_original(case: Case) -> None:
    case.write({**QUICK, "speculating": {"die_at": "load"}})
    with original(case.original_command(), case.port, case.folder):
        result = case.run()
        assert result.code == 6
        assert result.json["restored"] is True
        assert listening(case.port)


def test_an_original_that_does_not_come_back_is_exit_4_with_the_commands(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftworth.trials.restore._PAUSE_S", 0.05)
    case.write(limits="start_timeout_s = 3\nstop_timeout_s = 2")
    script = case.folder / f"script-{case.port}.json"
    with original(case.original_command(), case.port, case.folder):
        # From now on nothing starts any more.
        script.write_text(json.dumps({**QUICK, "die_at": "load"}), encoding="utf-8")
        result = case.run()
    assert result.code == 4
    record = result.json
    assert record["restored"] is False
    assert record["verdict"] == "error"
    (command,) = record["restore_commands"]
    assert command == f"sh {case.trials()[0] / 'restore.sh'}"
    assert (case.trials()[0] / "restore.sh").is_file()
    assert "NOT RESTORED" in (case.trials()[0] / "report.md").read_text()
    listed = case.cli("trial", "list").out
    assert "NOT RESTORED" in listed
    # The next trial is refused until that is mended, and mending works once the server does.
    assert "draftworth trial restore" in case.run().err
    script.write_text(json.dumps(QUICK), encoding="utf-8")
    assert case.cli("trial", "restore").code == 0
    assert listening(case.port)


def test_an_original_that_dies_after_its_restore_is_brought_back_again(case: Case) -> None:
    # In the output check, say: prompt log-probabilities ran the server out of memory.
    case.write({**QUICK, "token_ms": 15.0})
    with original(case.original_command(), case.port, case.folder) as pid:
        tool = case.start("trial", "run", str(case.file), "--json")
        wait_for(lambda: case.reached("07-measure"), 30)
        (restored,) = [p for p in pids_with(f"script-{case.port}.json") if p != pid]
        os.kill(restored, signal.SIGKILL)
        out, err = tool.communicate(timeout=60)
        record = json.loads(out)
        assert tool.returncode == 6, err
        assert record["error"].startswith("the server died while it was measured")
        assert record["restored"] is True
        (now,) = pids_with(f"script-{case.port}.json")
        assert f"pid {now}," in record["restore"]
        assert listening(case.port)


def test_an_original_killed_in_the_output_check_is_brought_back_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score_and_kill(*_: Any, **__: Any) -> Any:
        for pid in pids_with(f"script-{case.port}.json"):
            os.kill(pid, signal.SIGKILL)
        raise MeasureError("connection reset")

    monkeypatch.setattr("draftworth.trials.score_step.score_all", score_and_kill)
    case.write()
    with original(case.original_command(), case.port, case.folder):
        record = case.run().json
        assert record["verdict"] == "error"
        assert "the server died" in record["error"]
        assert record["restored"] is True
        assert listening(case.port)


@pytest.mark.parametrize("error", [OSError("no space left on device"), sqlite3.OperationalError("disk is full")])
def test_an_error_nobody_expected_does_not_end_the_restore(
    case: Case, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("draftworth.trials.restore._PAUSE_S", 0.05)
    start_original, calls = ProcessService.start_original, []

    def fail_once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise error
        return start_original(*args)

    monkeypatch.setattr(ProcessService, "start_original", fail_once)
    case.write()
    with original(case.original_command(), case.port, case.folder):
        result = case.run()
        assert result.json["restored"] is True, result.err
        assert listening(case.port)


def test_a_journal_that_cannot_be_written_does_not_keep_the_original_away(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append

    def full_disk(self: Journal, kind: Any, step: str = "", **data: Any) -> None:
        if "ngram" in step or "restore" in step or "original" in step:
            raise sqlite3.OperationalError("database or disk is full")
        append(self, kind, step, **data)

    monkeypatch.setattr(Journal, "append", full_disk)
    case.write()
    with original(case.original_command(), case.port, case.folder):
        result = case.cli("trial", "run", str(case.file))
        assert result.code in {5, 6}, result.err
        assert "Service: restored" in result.out
        assert listening(case.port)


def test_a_service_with_another_port_or_a_key_is_refused(case: Case) -> None:
    vllm = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(case.folder)]
    case.write(command=[*vllm, "--port", "1"])
    refused(case, 1, f"service.port is {case.port} and the command says --port 1")
    case.write(command=vllm)
    refused(case, 1, "names no --port, so the server listens on 8000")
    case.write(command=[*vllm, "--port", str(case.port), "--api-key", "hush"])
    refused(case, 2, "asks for an API key")


def test_a_wrong_model_name_does_not_wait_for_the_deadline(case: Case) -> None:
    case.write()
    text = case.file.read_text().replace(f"port = {case.port}\n", f'port = {case.port}\nmodel = "other"\n', 1)
    case.file.write_text(text, encoding="utf-8")
    began = time.monotonic()
    failed(case, "refuses to generate", "404")
    assert time.monotonic() - began < 10


def test_a_model_the_running_service_does_not_serve_is_refused(case: Case) -> None:
    case.write()
    text = case.file.read_text().replace(f"port = {case.port}\n", f'port = {case.port}\nmodel = "other"\n', 1)
    case.file.write_text(text, encoding="utf-8")
    with original(case.original_command(), case.port, case.folder) as pid:
        result = case.run()
        assert result.code == 1
        assert "service.model: 'other' is not served; the service has: fake" in result.err
        assert pids_with(f"script-{case.port}.json") == [pid]
        assert case.trials() == []


def test_a_running_service_of_another_engine_than_the_file_says_is_refused(case: Case) -> None:
    case.write(arms=[("ngram", {"type": "ngram-simple"})])
    text = case.file.read_text().replace("[service]\n", '[service]\nengine = "llamacpp"\n', 1)
    case.file.write_text(text, encoding="utf-8")
    with original(case.original_command(), case.port, case.folder) as pid:
        result = case.run()
        assert result.code == 1
        assert 'service.engine is "llamacpp"' in result.err
        assert 'set service.engine = "vllm"' in result.err
        assert pids_with(f"script-{case.port}.json") == [pid]


def test_a_host_without_an_address_and_a_draft_that_is_missing(case: Case) -> None:
    case.write(arms=[("draft", {"method": "draft_model", "model": "/no/such/draft"})])
    refused(case, 2, "arms: draft: speculative_config.model /no/such/draft: no such folder")
    case.write()
    text = case.file.read_text().replace(
        f"port = {case.port}\n", f'port = {case.port}\nhost = "no.such.host.invalid"\n', 1
    )
    case.file.write_text(text, encoding="utf-8")
    refused(case, 1, "service.host: 'no.such.host.invalid' has no address")


def test_a_guard_that_cannot_start_refuses_the_trial(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.write()
    with original(case.original_command(), case.port, case.folder) as pid:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        result = case.run()
        assert result.code == 2
        assert "guard" in result.err
        assert pids_with(f"script-{case.port}.json") == [pid]


# --- show and list


def test_show_and_list(case: Case) -> None:
    case.write().run()
    name = case.trials()[0].name
    shown = case.cli("trial", "show", "latest")
    assert shown.code == 0
    assert "Verdict: faster (ngram-5)" in shown.out
    assert case.cli("trial", "show", name, "--json").json["id"] == name
    listed = case.cli("trial", "list", "--json").json["trials"]
    assert listed[0]["verdict"] == "faster"
    assert listed[0]["state"] == "restored"
    assert case.cli("trial", "show", "20000101-000000").code == 1


def test_a_record_of_a_later_version_is_refused_in_one_line(case: Case) -> None:
    case.write().run()
    path = case.trials()[0] / "trial.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 99', 1), encoding="utf-8")
    result = case.cli("trial", "show", "latest")
    assert result.code == 1
    assert "schema_version 99" in result.err
    path.write_text("{", encoding="utf-8")
    assert "damaged" in case.cli("trial", "show", "latest").err
