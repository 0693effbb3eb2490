"""Several starts of each arm, looks at the evidence in between, and what the trial does when it is enough."""

import json
import os
import signal
import time
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.helpers import listening, original, wait_for
from tests.trials.conftest import NGRAM, QUICK, Case

from draftworth.services.processes import listener


def steps(case: Case) -> list[str]:
    return [step["id"] for step in case.cli("trial", "plan", str(case.file), "--json").json["steps"]]


def test_a_plan_with_three_starts_is_a_b_a_b_a_b_a_with_looks(case: Case) -> None:
    case.write(extra="[verdict]\nstarts = 3\noutput_check = false")
    arms = [step.split("-", 1)[1] for step in steps(case) if "measure" in step or "look" in step]
    assert arms == [
        *("measure-baseline", "measure-ngram-5", "measure-baseline", "look"),
        *("measure-ngram-5", "measure-baseline", "look"),
        *("measure-ngram-5", "measure-baseline", "look"),
    ]


def test_a_running_original_is_put_back_between_the_starts(case: Case) -> None:
    case.write(extra="[verdict]\nstarts = 2")
    with original(case.original_command(), case.port, case.folder):
        kinds = [step.split("-", 1)[1] for step in steps(case)]
    assert kinds == [
        "measure-baseline",
        *("stop-original", "start-ngram-5", "measure-ngram-5", "stop-ngram-5", "restore", "measure-baseline", "look"),
        *("stop-original", "start-ngram-5", "measure-ngram-5", "stop-ngram-5", "restore", "measure-baseline", "look"),
        "score-baseline",
    ]


def test_enough_evidence_ends_the_trial_before_the_last_start(case: Case) -> None:
    # 40 % faster and no spread worth speaking of: clear at the first look.
    case.write(extra="[verdict]\nstarts = 3\nrestart_sd_variant = 0.01", prompts=6)
    result = case.run()
    record = result.json
    assert (result.code, record["verdict"]) == (0, "faster"), result.err
    assert (record["look"], record["looks"]) == (1, 3)
    assert "ended_early" in {finding["code"] for finding in record["findings"]}
    assert [len(arm["starts"]) for arm in record["arms"]] == [2, 1]
    assert record["comparison"]["tpot_ratio"]["confidence"] > 0.95, "an early look must be surer"
    assert record["comparison"]["output_check"]["status"] == "same", "the closing steps are done all the same"
    assert record["restored"] is True
    case.nothing_left()


def test_without_enough_evidence_every_start_is_made(case: Case) -> None:
    case.write({"token_ms": 2.0, "tokens": 24, "jitter": 0.05}, arms=[("again", None)], extra="[verdict]\nstarts = 2")
    record = case.run().json
    assert record["verdict"] in {"no difference", "inconclusive"}
    if record["verdict"] == "inconclusive":
        assert (record["look"], record["looks"]) == (2, 2)
        assert [len(arm["starts"]) for arm in record["arms"]] == [3, 2]
    rows = pq.read_table(case.trials()[0] / "requests.parquet").to_pylist()
    starts = {(row["arm"], row["start"]) for row in rows}
    assert {("baseline", 1), ("baseline", 2), ("again", 1)} <= starts


def test_an_original_that_was_stopped_twice_serves_again(case: Case) -> None:
    case.write(
        {**QUICK, "jitter": 0.3, "speculating": {"token_ms": 1.95, "tokens_per_chunk": [1, 3, 2]}},
        extra="[verdict]\nstarts = 2\noutput_check = false",
    )
    with original(case.original_command(), case.port, case.folder):
        result = case.run()
        record: dict[str, Any] = result.json
        assert record["restored"] is True, result.err
        effects = [event.step for event in case.events() if event.kind == "effect"]
        assert sum("stop-original" in step for step in effects) == len(record["arms"][1]["starts"])
        wait_for(lambda: case.cli("trial", "list", "--json").code == 0)


def test_the_plan_says_what_it_takes_to_see_the_stated_difference(case: Case) -> None:
    case.write(extra="[verdict]\ndifference = 0.01")
    out = case.cli("trial", "plan", str(case.file)).out
    assert "1 %" in out
    assert "starts" in out
    found = json.dumps(case.cli("trial", "plan", str(case.file), "--json").json)
    assert "power" in found


def test_a_sweep_is_measured_in_every_start_and_judged_by_point(case: Case) -> None:
    case.write(extra="concurrency = [1, 4]", prompts=3, arms=[("ngram-5", NGRAM)])
    record = case.run().json
    points = [one for one in record["categories"] if one["kind"] == "point"]
    assert [one["category"] for one in points] == ["1 at a time", "4 at a time"]
    assert [point["label"] for point in record["arms"][0]["points"]] == ["1 at a time", "4 at a time"]
    assert record["arms"][1]["requests"] == 2 * 3 * 2, "two categories of three prompts at two points"


ROUNDS = "[verdict]\nstarts = 3\noutput_check = false\nrestart_sd_variant = 0.3"
SLOW_ROUNDS = {"token_ms": 12.0, "tokens": 24, "speculating": {"token_ms": 11.0}}


def rounds(case: Case) -> int:
    """How often the variant's measurement has begun."""
    return sum(event.kind == "intent" and "measure-ngram" in event.step for event in case.events())


@pytest.mark.parametrize("load", ["", "rate = 20.0\n"])
def test_a_tool_killed_in_a_later_round_leaves_the_original_serving(case: Case, load: str) -> None:
    case.write(SLOW_ROUNDS, extra=load + ROUNDS)
    with original(case.original_command(), case.port, case.folder) as pid:
        tool = case.start("trial", "run", str(case.file), "--json")
        # The second time the variant is measured: the original was put back and stopped again.
        wait_for(lambda: case.reached("look", "note") and rounds(case) == 2, 40)
        time.sleep(0.2)
        tool.kill()
        tool.communicate()
        wait_for((case.trials()[0] / "trial.json").is_file, 40, "the guard has restored, and written it down")
        holder = listener(case.port)
        assert holder is not None
        assert holder.pid != pid
        assert case.cli("trial", "list", "--json").json["trials"][0]["state"] == "restored"
    rows = pq.read_table(case.trials()[0] / "requests.parquet").to_pylist()
    assert {row["arm"] for row in rows} == {"baseline", "ngram-5"}, "what was measured before is kept"


def test_a_restore_does_not_need_the_key(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-key-1234")
    case.write({**SLOW_ROUNDS, "api_key": "sk-secret-key-1234"}, extra=ROUNDS)
    case.file.write_text(case.file.read_text().replace("[service]\n", '[service]\napi_key_env = "MY_KEY"\n', 1))
    with original(case.original_command(), case.port, case.folder):
        tool = case.start("trial", "run", str(case.file), "--json")
        wait_for(lambda: case.reached("measure-ngram"), 40)
        guard = next(e.data["pid"] for e in case.events() if e.step == "guard")
        os.kill(int(guard), signal.SIGKILL)
        tool.kill()
        tool.communicate()
        monkeypatch.delenv("MY_KEY")
        result = case.cli("trial", "restore")
        assert result.code == 0, result.err
        assert "is healthy; it was not asked to generate: its key is not set" in result.out
        assert listening(case.port)
        written = b"".join(
            path.read_bytes() for path in case.home.rglob("*") if path.is_file() and "logs" not in str(path)
        )
    assert b"sk-secret-key-1234" not in written


def test_the_original_is_not_stopped_again_with_too_little_time_left(case: Case) -> None:
    # A round of this server takes a second or two: after one of them less than another is left.
    limits = "start_timeout_s = 20\nstop_timeout_s = 2\ndowntime_s = 6"
    case.write({**SLOW_ROUNDS, "load_seconds": 1.0}, extra=ROUNDS, limits=limits)
    with original(case.original_command(), case.port, case.folder):
        record = case.run().json
        assert record["restored"] is True
        assert record["verdict"] != "error", record["reason"]
        assert 1 <= record["look"] < 3
        found = {finding["code"] for finding in record["findings"]}
        assert "rounds_left_out" in found
        assert "ended_early" not in found
        assert listening(case.port)


def test_what_was_complete_before_a_later_round_failed_is_judged(case: Case) -> None:
    case.write(SLOW_ROUNDS, extra=ROUNDS)
    script = case.folder / f"script-{case.port}.json"
    tool = case.start("trial", "run", str(case.file), "--json")
    wait_for(lambda: case.reached("look", "note"), 40)
    script.write_text(json.dumps({**SLOW_ROUNDS, "die_at": "load"}))
    out, err = tool.communicate(timeout=60)
    record = json.loads(out)
    assert tool.returncode == 6, err
    assert record["verdict"] == "error"
    assert "not measured to the end" in record["reason"]
    assert "look 1 of 3 before it" in record["reason"]
    assert record["comparisons"][0]["tpot_ratio"]["estimate"] == pytest.approx(11 / 12, abs=0.06)
