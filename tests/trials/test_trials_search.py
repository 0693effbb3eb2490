"""Searches on the scripted server: the best setting is found with few starts, and what fails fails alone."""

import json
import math
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import original, wait_for
from tests.trials.conftest import Case

from draftworth.search.spending import divisor
from draftworth.trials.config import TrialConfig
from draftworth.trials.measure import in_turns, parts_of

# Settings whose drafts cannot be replayed: nothing is predicted, so what is measured decides alone.
SPEEDS = {"1": {"token_ms": 1.4}, "3": {"token_ms": 1.0}, "5": {"token_ms": 1.2}, "8": {"token_ms": 1.8}}
SCRIPT: dict[str, Any] = {"token_ms": 2.0, "tokens": 24, "speculating": {"tokens_per_chunk": [1, 3, 2]}}
TIGHT = "[verdict]\nrestart_sd_baseline = 0.005\nrestart_sd_variant = 0.01\noutput_check = false\n"


@pytest.fixture
def unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the probe, which takes seconds: nothing is predicted of these settings anyway."""
    monkeypatch.setattr("draftworth.trials.only_measuring.probe_baseline", lambda *_, **__: None)


ALL = "looks = 1\nmin_gain = 0.0\nmin_chance = 0.0\n"


def searching(
    case: Case,
    ks: Sequence[int] = (1, 3, 5, 8),
    *,
    by_k: Mapping[str, Any] | None = None,
    search: str = "",
    extra: str = "",
    verdict: str = TIGHT,
    prompts: int = 2,
    limits: str = "start_timeout_s = 20\nstop_timeout_s = 2",
) -> Case:
    arms = [(f"draft-{k}", {"method": "draft_model", "model": "d", "num_speculative_tokens": k}) for k in ks]
    return case.write(
        {**SCRIPT, "by_k": SPEEDS if by_k is None else by_k},
        arms=arms,
        arm_lines="check = false\n",
        prompts=prompts,
        limits=limits,
        extra=f"{extra}\n{verdict}\n[search]\n{search}",
    )


def find(case: Case, *arguments: str) -> Any:
    result = case.cli("trial", "search", str(case.file), "--json", *arguments)
    assert result.out, result.err
    return result


def test_the_best_setting_is_found_and_what_was_not_tried_is_told(case: Case) -> None:
    result = find(searching(case))
    assert result.code == 0, result.err
    record = result.json
    search = record["search"]
    assert (record["verdict"], record["best"]) == ("faster", "draft-3")
    assert record["restored"] is True
    assert search["candidates"] == 4
    assert search["complete"] is True
    winner = search["best"][0]
    assert (winner["arm"], winner["load"], winner["verdict"]) == ("draft-3", None, "faster")
    # Scripted: 1.0 ms a token against 2.0.
    assert winner["ratio"]["estimate"] == pytest.approx(0.5, abs=0.1)
    assert winner["flags"][0] == "--speculative-config"
    assert json.loads(winner["flags"][1])["num_speculative_tokens"] == 3
    tried = [one["name"] for one in search["tried"]]
    assert {*tried, *(one["name"] for one in search["not_tried"])} == {"draft-1", "draft-3", "draft-5", "draft-8"}
    measured = next(one for one in search["tried"] if one["name"] == "draft-3")["measured"]["1"]
    assert measured["value"] == pytest.approx(math.log(2), abs=0.2)
    assert all(one["why"] for one in [*search["tried"], *search["not_tried"]])
    assert [arm["name"] for arm in record["arms"]] == ["baseline", *sorted(tried)]
    rows = pq.read_table(case.trials()[0] / "requests.parquet").to_pylist()
    order = list(dict.fromkeys(row["arm"] for row in sorted(rows, key=lambda row: (row["block"], row["started_unix"]))))
    assert order == ["baseline", *tried], "blocks are numbered in the order of time"
    report = (case.trials()[0] / "report.md").read_text(encoding="utf-8")
    assert "## The search" in report
    assert "**Best setting:** draft-3" in report
    case.nothing_left()


@pytest.mark.usefixtures("unprobed")
def test_the_same_search_for_a_person(case: Case) -> None:
    shown = searching(case, [3]).cli("trial", "search", str(case.file))
    assert shown.code == 0, shown.err
    assert "Search: 1 of 1 settings started; it ended: every candidate was measured or given up" in shown.out
    assert "Best setting: draft-3" in shown.out
    assert re.search(r"--speculative-config '\{.*\"num_speculative_tokens\": ?3", shown.out)
    assert "next is draft-3: expected" in shown.err


@pytest.mark.usefixtures("unprobed")
def test_a_setting_that_cannot_beat_the_best_is_left_before_its_end(case: Case) -> None:
    record = find(searching(case, [8], by_k={"8": {"token_ms": 4.0}}, prompts=6, extra="repeats = 2\n")).json
    (tried,) = record["search"]["tried"]
    assert tried["name"] == "draft-8"
    assert (tried["parts"] < tried["of_parts"], tried["of_parts"]) == (True, 4)
    requests = {arm["name"]: arm["requests"] for arm in record["arms"]}
    assert requests == {"baseline": 48, "draft-8": 24 * tried["parts"] // 4}
    assert record["verdict"] == "slower"
    # Judged as what may end at any of four looks: the first has a quarter of the error, none has more than half.
    assert record["comparison"]["tpot_ratio"]["confidence"] >= (0.9875 if tried["parts"] == 1 else 0.975)
    assert record["search"]["best"] == [
        {**dict.fromkeys(record["search"]["best"][0]), "load": None, "arm": "baseline", "flags": []}
    ]


@pytest.mark.usefixtures("unprobed")
def test_a_setting_that_dies_fails_alone(case: Case) -> None:
    broken = {**SPEEDS, "5": {"die_at": "load"}, "8": {"error_every": 1}}
    result = find(searching(case, [3, 5, 8], by_k=broken, search="min_gain = 0.0\nmin_chance = 0.0\n"))
    assert result.code == 0, result.err
    record = result.json
    assert (record["verdict"], record["best"], record["restored"]) == ("faster", "draft-3", True)
    failed = {one["name"]: one["failed"] for one in record["search"]["tried"] if one["failed"]}
    assert failed.keys() == {"draft-5", "draft-8"}
    assert "the server ended while it started" in failed["draft-5"]
    assert "requests to draft-8 failed" in failed["draft-8"]
    codes = {(one["code"], one["arm"]) for one in record["findings"]}
    assert {("setting_failed", "draft-5"), ("setting_failed", "draft-8")} <= codes
    case.nothing_left()


def test_a_search_that_was_interrupted_goes_on_where_it_stopped(case: Case) -> None:
    # One setting is slow to answer, so that there is time to interrupt it.
    slow = {"3": {"token_ms": 1.0}, "5": {"token_ms": 90.0}}
    searching(case, [3, 5], by_k=slow, search=ALL)
    first = case.start("trial", "search", str(case.file), "--json")
    wait_for(lambda: case.reached("measure-draft-5"), 60.0, "the second setting is measured")
    os.kill(first.pid, signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 6, err
    cut = json.loads(out)
    done = [one["name"] for one in cut["search"]["tried"]]
    assert cut["search"]["complete"] is False
    assert "draft-5" not in done
    assert done == ["draft-3"]
    assert {one["name"]: one["why"] for one in cut["search"]["not_tried"]} == {
        "draft-5": "it was being measured when the trial ended"
    }
    searching(
        case, [3, 5], by_k={**slow, "5": {"token_ms": 3.0}}, search="looks = 1\nmin_gain = 0.0\nmin_chance = 0.0\n"
    )
    again = find(case)
    assert again.code == 0, again.err
    record = again.json
    assert f"going on with the search of trial {cut['id']}" in again.err
    tried = {one["name"]: one["trial"] for one in record["search"]["tried"]}
    assert tried == {"draft-3": cut["id"], "draft-5": None}
    assert [arm["name"] for arm in record["arms"]] == ["baseline", "draft-5"], "it is not measured again"
    winner = record["search"]["best"][0]
    assert (winner["arm"], winner["trial"]) == ("draft-3", cut["id"])
    case.nothing_left()


@pytest.mark.usefixtures("unprobed")
def test_again_starts_anew(case: Case) -> None:
    searching(case, [3, 8], search="minutes = 0.0001\n")
    nothing = find(case)
    assert nothing.code == 3, nothing.err
    record = nothing.json
    assert record["verdict"] == "inconclusive"
    assert record["reason"].startswith("no setting was measured: the time is up")
    assert record["search"]["complete"] is False
    assert {one["name"] for one in record["search"]["not_tried"]} == {"draft-3", "draft-8"}
    case.file.write_text(case.file.read_text(encoding="utf-8").replace("minutes = 0.0001\n", ""), encoding="utf-8")
    assert {one["trial"] for one in find(case, "--again").json["search"]["tried"]} == {None}


@pytest.mark.usefixtures("unprobed")
def test_a_drafter_that_learns_is_sent_each_prompt_once(case: Case) -> None:
    suffix = {"method": "suffix", "num_speculative_tokens": 3}
    work = f"concurrency = [1, 4]\nrepeats = 2\n{TIGHT}\n[search]\n{ALL}"
    case.write(
        {**SCRIPT, "by_k": SPEEDS}, arms=[("suffix", suffix)], arm_lines="check = false\n", prompts=8, extra=work
    )
    record = find(case).json
    rows = pq.read_table(case.trials()[0] / "requests.parquet").to_pylist()
    sent = [(row["prompt_id"], row["point"]) for row in rows if row["arm"] == "suffix"]
    assert len(sent) == len({prompt for prompt, _ in sent}) == 16
    assert {point for _, point in sent} == {"1 at a time", "4 at a time"}
    assert len([row for row in rows if row["arm"] == "baseline"]) == 2 * 16 * 2 * 2
    assert not [one for one in record["findings"] if one["code"] == "drafts_remembered"]
    assert record["verdict"] == "faster"


@pytest.mark.usefixtures("unprobed")
def test_it_ends_before_it_sends_too_many_requests(case: Case) -> None:
    limits = "start_timeout_s = 20\nstop_timeout_s = 2\nrequests = 12\n"
    record = find(searching(case, [1, 3, 5], limits=limits, search="min_gain = 0.0\nmin_chance = 0.0\n")).json
    assert len(record["search"]["tried"]) == 1
    assert record["search"]["ended"] == "limits.requests (12) would be reached"
    assert sum(arm["requests"] for arm in record["arms"]) == 12


@pytest.mark.usefixtures("unprobed")
def test_each_load_has_its_own_best(case: Case) -> None:
    # k = 3 is best alone, and the worst where four are under way.
    crowd = {"1": {"token_ms": 1.5}, "3": {"token_ms": 1.0, "crowd_ms": 1.5}}
    apart = "together = false\nmin_gain = 0.0\nlooks = 1\n"
    found = find(searching(case, [1, 3], by_k=crowd, extra="concurrency = [1, 4]\n", prompts=8, search=apart))
    search = found.json["search"]
    assert search["loads"] == [1, 4]
    best = {one["load"]: one["arm"] for one in search["best"]}
    assert best.get(1, best[None]) == "draft-3"
    assert best.get(4, best[None]) == "draft-1"


def test_the_plan_lists_settings_without_an_order(case: Case) -> None:
    searching(case)
    shown = case.cli("trial", "plan", str(case.file))
    assert shown.code == 0, shown.err
    assert "in an order that is chosen as it goes; of 4:" in shown.out
    assert len(re.findall(r"^    draft-\d: \$ ", shown.out, re.MULTILINE)) == 4
    assert "At most 6 server starts" in shown.out
    assert "starts those of 4 settings that can change the answer" in shown.out


BAD = {
    "": "there is nothing to search among",
    'grid = [{ method = "ngram" }]': "search.grid: the grid: ngram needs k",
    'grid = [{ method = "ngram", k = 0 }]': "k is 0 and not a whole number of at least 1",
    'grid = [{ method = "eagle3", k = 3 }]': "eagle3 needs a model",
    'grid = [{ method = "ngram", k = 3 }]\nminute = 3': "minute",
    'grid = [{ method = "ngram", k = 3 }]\nmin_gain = -1': "min_gain",
    'grid = [{ method = "ngram", k = 3 }]\n[verdict]\nstarts = 3': "a search starts each setting once",
    'grid = [{ method = "ngram", k = 3 }]\n[workload]\nrate = 2': "a search needs `concurrency`",
    'grid = [{ method = "ngram", k = 3 }]\n[verdict]\nmetric = "ttft"': "best tpot or throughput",
    'grid = "ngram"': "grid",
}


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_search_is_one_line(case: Case, text: str) -> None:
    case.file.write_text(f'[service]\ncommand = ["x"]\nport = {case.port}\n[search]\n{text}\n', encoding="utf-8")
    shown = case.cli("trial", "search", str(case.file))
    assert shown.code == 1
    assert BAD[text] in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.err.startswith(f"error: {case.file}") or str(case.file) in shown.err


def test_a_file_without_a_search_says_what_to_add(case: Case) -> None:
    shown = case.write().cli("trial", "search", str(case.file))
    assert shown.code == 1
    assert "has no [search]; add one" in shown.err


def test_a_grid_that_became_arms_can_be_read_again() -> None:
    data = {
        "service": {"command": ["vllm"], "port": 8000},
        "search": {"grid": [{"method": "ngram", "k": [1, 3]}]},
        "arms": [{"name": "mine", "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}],
    }
    one = TrialConfig.model_validate(data)
    assert [arm.name for arm in one.arms] == ["mine", "ngram-k1"], "what is an arm already is no second one"
    assert one.verdict.diagnostics == ("probe",)
    again = TrialConfig.model_validate_json(one.model_dump_json())
    assert again == one


@given(st.integers(1, 400))
def test_the_error_of_a_search_is_shared_by_its_settings(count: int) -> None:
    shares = [1 / divisor(number, count) for number in range(1, count + 1)]
    assert math.fsum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares, reverse=True)
    assert divisor(1, 1) == 1.0


def test_turns_send_every_request_once_at_each_point() -> None:
    config = TrialConfig.model_validate(
        {
            "service": {"command": ["vllm"], "port": 8000},
            "workload": {"concurrency": [1, 8]},
            "arms": [{"name": "a", "args": ["--x"]}],
        }
    )
    from draftworth.bench.requests import sweep_of  # noqa: PLC0415 - used here alone

    sweep = sweep_of(config.workload)
    assert parts_of(26, sweep, 4) == (4, 1)
    turns = in_turns(sweep, (4, 1))
    assert [len(turn) for turn in turns] == [2, 1, 1, 1]
    sent: dict[str, list[int]] = {point.label: [] for point in sweep}
    for turn in turns:
        for point, number, of in turn:
            sent[point.label] += list(range(26))[number::of]
    assert [sorted(some) for some in sent.values()] == [list(range(26))] * 2


@pytest.mark.usefixtures("unprobed")
def test_an_original_is_not_stopped_where_nothing_is_worth_a_start(case: Case) -> None:
    searching(case, [3], search="min_gain = 0.9\n")
    with original(case.original_command(), case.port, case.folder, case.env) as pid:
        result = find(case)
        os.kill(pid, 0)  # the very process that ran before
    record = result.json
    assert result.code == 3
    assert record["reason"].startswith("no setting was measured: no candidate is worth it")
    assert record["search"]["complete"] is True
    assert [(one["load"], one["arm"]) for one in record["search"]["best"]] == [(None, "baseline")]
    assert not [event for event in case.events() if "stop-original" in event.step]


@pytest.mark.usefixtures("unprobed")
def test_what_the_time_ended_is_not_tried_and_not_its_own_failure(case: Case) -> None:
    slow = {"3": {"token_ms": 1.0}, "5": {"load_seconds": 60.0}}
    limits = "start_timeout_s = 100\nstop_timeout_s = 2\ndowntime_s = 12\n"
    record = find(searching(case, [3, 5], by_k=slow, search=ALL, limits=limits)).json
    assert record["restored"] is True
    assert [one["name"] for one in record["search"]["tried"]] == ["draft-3"]
    assert record["search"]["complete"] is False
    (left,) = record["search"]["not_tried"]
    assert left["name"] == "draft-5"
    assert "time" in left["why"]


@pytest.mark.usefixtures("unprobed")
def test_an_interrupt_behind_the_last_setting_keeps_what_was_measured(case: Case) -> None:
    searching(case, [3], search=ALL, by_k={"3": {"token_ms": 1.0}})
    script = case.folder / f"script-{case.port}.json"
    first = case.start("trial", "search", str(case.file), "--json")
    wait_for(lambda: case.reached("stop-draft-3", "effect"), 60.0, "the setting was measured")
    os.kill(first.pid, signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 6, err
    assert json.loads(out)["search"]["complete"] is False
    assert script.is_file()
    again = find(case).json
    winner = again["search"]["best"][0]
    assert (winner["arm"], winner["trial"]) == ("draft-3", json.loads(out)["id"])
    assert json.loads(winner["flags"][1])["num_speculative_tokens"] == 3, "a line to paste, wherever it was measured"
    assert (again["verdict"], again["best"]) == ("faster", "draft-3")
    assert [arm["name"] for arm in again["arms"]] == ["baseline"]


@pytest.mark.usefixtures("unprobed")
def test_figures_of_another_service_are_not_used(case: Case) -> None:
    searching(case, [3, 5], by_k={"3": {"token_ms": 1.0}}, search=f"minutes = 0.0001\n{ALL}")
    find(case)
    first = case.trials()[0] / "trial.json"
    record = json.loads(first.read_text(encoding="utf-8"))
    record["search"]["tried"] = [
        {"name": "draft-3", "why": "", "measured": {"1": {"value": 0.7, "sd": 0.01}}, "seconds": 1.0}
    ]
    record["comparisons"] = [{"arm": "draft-3", "verdict": "faster", "tpot_ratio": {"estimate": 0.5}}]
    record["arms"][0]["tpot_ms"] *= 3
    first.write_text(json.dumps(record), encoding="utf-8")
    text = case.file.read_text(encoding="utf-8").replace("minutes = 0.0001\n", "")
    case.file.write_text(text, encoding="utf-8")
    shown = find(case)
    assert "measured is not used: its baseline took" in shown.err
    assert {one["trial"] for one in shown.json["search"]["tried"]} == {None}
    assert shown.json["earlier"] == [], "nor is it there to be adopted"


def test_a_trial_is_not_run_by_mistake_as_a_search(case: Case) -> None:
    shown = searching(case).cli("trial", "run", str(case.file))
    assert shown.code == 1
    assert "has a [search]: `draftworth trial search" in shown.err


def test_the_plan_says_what_it_left_out_and_how_many_requests_it_needs(case: Case) -> None:
    windows = '{ method = "ngram", k = 3, prompt_lookup_min = [2, 5], prompt_lookup_max = 4 }'
    shown = case.write(SCRIPT, extra=f"[search]\ngrid = [{windows}]\n").cli("trial", "plan", str(case.file))
    assert "left out prompt_lookup_min = 5 with prompt_lookup_max = 4" in shown.out
    few = searching(case, limits="requests = 11").cli("trial", "plan", str(case.file))
    assert few.code == 2
    assert "a search sends at least 12 requests (the baseline twice and one setting)" in few.err
