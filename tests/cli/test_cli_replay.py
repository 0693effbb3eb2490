"""`draftworth replay` as a person calls it: the table, the document, wrong input."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.drafters.naive import Request, steps_of
from tests.drafters.toy import earliest

from draftworth.cli import run
from draftworth.drafters import CHOICES
from draftworth.drafters.base import Setting

ROOT = Path(__file__).parents[2]
NGRAM = ("--drafter", "vllm-ngram-v1")
ROWS = [
    Request([5, 6, 7, 8], [5, 6, 7, 9, 5, 6], thinking=3, category="code"),
    Request([1, 2, 3], [1, 2, 3, 1, 2, 3, 1, 2], thinking=0, category="chat"),
    Request([4, 4], [9, 8, 7], thinking=3, category="code"),
    Request([4], [9], thinking=0, category="chat"),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return written(tmp_path / "trace.jsonl", ROWS)


def written(path: Path, rows: list[Request], **more: Any) -> Path:
    lines = [
        {
            "request_id": f"r{at}",
            "prompt_token_ids": one.prompt,
            "output_token_ids": one.output,
            "thinking_tokens": one.thinking,
            "category": one.category,
            "temperature": 0.0,
            "model": "smol",
            "exact": True,
            **more,
        }
        for at, one in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@dataclass(frozen=True)
class Done:
    """What a call printed and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def replay(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Call the program in this process: starting one for each call would take a minute in all."""

    def call(*arguments: str | Path) -> Done:
        capfd.readouterr()
        code = run(["replay", *map(str, arguments)])
        return Done(code, *capfd.readouterr())

    return call


@pytest.fixture
def document(replay: Callable[..., Done]) -> Callable[..., Any]:
    def call(*arguments: str | Path) -> Any:
        done = replay(*arguments, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return call


Call = Callable[..., Done]
Document = Callable[..., Any]


def test_the_document_has_the_promised_names_and_the_counts_of_a_plain_replay(trace: Path, document: Document) -> None:
    found = document(trace, *NGRAM, "--k", "1,3", "--min", "1", "--max", "2")
    assert found["schema_version"] == 1
    assert found["requests"] == 3
    assert found["left_out"] == [
        {"reason": "one output token, which comes from prefill, so no steps", "count": 1, "first": None}
    ]
    assert (found["trace"]["models"], found["trace"]["output_tokens"]) == (["smol"], 18)
    assert found["drafter"]["name"] == "vllm-ngram-v1"
    assert [one["code"] for one in found["findings"]] == ["few_requests"]
    for one, k in zip(found["settings"], (1, 3), strict=True):
        steps = [s for r in ROWS for s in steps_of(r.prompt, r.output, partial(earliest, setting=Setting(k, 1, 2)))]
        assert (one["k"], one["min"], one["max"], one["more"]) == (k, 1, 2, {})
        assert one["steps"] == len(steps)
        assert one["drafting_steps"] == sum(step.drafted > 0 for step in steps)
        assert one["drafted"] == sum(step.drafted for step in steps)
        assert one["accepted"] == sum(step.accepted for step in steps)
        assert one["accepted_per_position"] == [sum(step.accepted > i for step in steps) for i in range(k)]
        assert one["drafted_per_position"] == [sum(step.drafted > i for step in steps) for i in range(k)]
        assert one["draft_lengths"] == [sum(step.drafted == d for step in steps) for d in range(k + 1)]
        assert one["emitted"] == sum(step.emitted for step in steps) == 14
        assert one["coverage"] == one["drafting_steps"] / one["steps"]
        assert one["acceptance_rate"] == one["accepted"] / one["drafted"]
        assert one["length_per_drafting_step"] == 1 + one["accepted"] / one["drafting_steps"]
        assert one["length_per_step"] == 14 / one["steps"]
        assert one["length_per_step_low"] <= one["length_per_step"] <= one["length_per_step_high"]
        assert set(one["by_category"]) == {"code", "chat"}
        assert one["by_category"]["chat"]["emitted"] == 7
        assert set(one["by_phase"]) == {"thinking", "answer"}
        assert sum(part["steps"] for part in one["by_phase"].values()) == one["steps"]


def test_a_person_sees_the_best_setting_first_its_parts_and_what_to_do_next(trace: Path, replay: Call) -> None:
    done = replay(trace, *NGRAM, "--k", "1,3", "--min", "1", "--max", "2")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == f"{trace}: 3 of 4 requests replayed, 10 prompt and 18 output tokens"
    [best] = [line for line in lines if line.strip().startswith("best")]
    assert best.split()[1:4] == ["3", "1", "2"]
    for said in (
        "of k 3, min 1, max 2",
        "chat",
        "thinking",
        "answer",
        "1 left out: one output token",
        "draftworth probe",
    ):
        assert said in done.out
    assert "replay 2 settings" in done.err
    assert "4 requests read" in done.err or "4/4 requests read" in done.err


def test_a_drafter_that_gains_nothing_is_said_to(tmp_path: Path, replay: Call) -> None:
    rows = [Request(list(range(at, at + 9)), list(range(at + 100, at + 120))) for at in range(0, 400, 10)]
    done = replay(written(tmp_path / "t.jsonl", rows), *NGRAM, "--grid")
    assert "At most 0 % faster" in done.out
    assert "This drafter is not worth a reload on this traffic." in done.out
    assert "No step drafted anything." in done.out
    few_settings = replay(tmp_path / "t.jsonl", *NGRAM).out
    assert "Not worth a reload with these settings; try --grid." in few_settings
    assert "This drafter" not in few_settings


def test_of_a_handful_of_requests_there_is_no_verdict_but_how_many_are_needed(
    tmp_path: Path, replay: Call, document: Document
) -> None:
    rows = [Request(list(range(at, at + 9)), list(range(at + 100, at + 120))) for at in (0, 10)]
    path = written(tmp_path / "two.jsonl", rows)
    said = replay(path, *NGRAM, "--grid").out
    assert "That is no verdict: 2 requests with steps; 30 are needed." in said
    assert "reload" not in said
    again = written(tmp_path / "again.jsonl", rows * 20)
    assert "no verdict: 2 different requests with steps; 30 are needed" in replay(again, *NGRAM, "--grid").out
    [few] = [one for one in document(again, *NGRAM)["findings"] if one["code"] == "few_requests"]
    assert few["message"] == "only 2 different requests have steps; a verdict takes 30"


def test_requests_longer_than_the_servers_context_are_left_out_and_said(
    trace: Path, replay: Call, document: Document
) -> None:
    # 10, 11, 5 and 2 tokens: a server of 10 takes three, one of 4 only the one that has no step.
    found = document(trace, *NGRAM, "--max-model-len", "10")
    assert found["requests"] == 2
    reason = "longer than --max-model-len 10 with their answers; nothing is drafted beyond it"
    assert found["left_out"][0] == {"reason": reason, "count": 1, "first": "trace.jsonl, request r1"}
    done = replay(trace, *NGRAM, "--max-model-len", "4")
    assert (done.code, done.out) == (1, "")
    assert "no request to replay: 1 with fewer than two output tokens; 3 left out: longer than --max" in done.err


def test_an_arm_of_a_trace_without_arms_is_an_error(trace: Path, replay: Call) -> None:
    done = replay(trace, *NGRAM, "--arm", "ngram-5")
    assert (done.code, done.out) == (1, "")
    assert f"--arm: {trace} is no trial's folder, so it has no arms" in done.err


def test_one_request_is_one(tmp_path: Path, replay: Call) -> None:
    done = replay(written(tmp_path / "t.jsonl", [Request([1], [2, 3])]), *NGRAM)
    assert "1 request replayed" in done.out
    assert "only 1 request has steps" in done.out
    assert "1 requests" not in done.out + done.err


def test_without_settings_the_engines_defaults_are_replayed(trace: Path, document: Document) -> None:
    found = document(trace, *NGRAM)["settings"]
    assert {(one["min"], one["max"]) for one in found} == {(5, 5)}  # vLLM's where neither is given


def test_a_grid_is_longer_than_the_table_and_whole_in_the_document(
    trace: Path, replay: Call, document: Document
) -> None:
    done = replay(trace, *NGRAM, "--grid", "--top", "5")
    count = len(document(trace, *NGRAM, "--grid")["settings"])
    assert count > 20
    assert f"{count - 5} further settings: --top {count}" in done.out


def test_only_some_categories(trace: Path, document: Document) -> None:
    found = document(trace, *NGRAM, "--category", "code")
    assert (found["requests"], found["trace"]["categories"]) == (2, {"code": 2})
    assert found["left_out"] == [{"reason": "other categories", "count": 2, "first": None}]
    assert document(trace, *NGRAM, "--category", "code,chat")["requests"] == 3


def test_requests_with_ids_outside_the_vocabulary_are_left_out_and_named(trace: Path, document: Document) -> None:
    found = document(trace, *NGRAM, "--vocabulary", "9")
    assert found["requests"] == 1
    assert found["left_out"] == [
        {"reason": "token ids outside the vocabulary of 9", "count": 3, "first": "trace.jsonl, request r0"}
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--drafter", "ngram"), "unknown drafter 'ngram': choose one of vllm-ngram-v1, "),
        ((*NGRAM, "--k", "one"), "--k: must be whole numbers like 1,2,5, not 'one'"),
        ((*NGRAM, "--k", "1,,2"), "--k: must be whole numbers"),
        ((*NGRAM, "--min", "1.5"), "--min: must be whole numbers"),
        ((*NGRAM, "--max", ""), "--max: must be whole numbers"),
        ((*NGRAM, "--k", "3,0"), "--k: must be from 1 to 1,000,000, not 0"),
        ((*NGRAM, "--max", str(10**30)), "--max: must be from 1 to 1,000,000"),
        ((*NGRAM, "--min", "5", "--max", "4"), "--min 5 --max 4: prompt_lookup_min=5 must be <= "),
        ((*NGRAM, "--set", "speed"), "--set: must be like name=1,2, not 'speed'"),
        ((*NGRAM, "--set", "a=fast"), "--set a: must be numbers like 0.1,0.5, not 'fast'"),
        ((*NGRAM, "--set", "a=nan"), "--set a: must be numbers"),
        ((*NGRAM, "--set", "suffix_decoding_max_tree_depth=24"), "suffix_decoding_max_tree_depth"),
        (("--drafter", "vllm-suffix", "--min", "2"), "--min 2: "),
        ((*NGRAM, "--grid", "--k", "1"), "--grid takes the settings worth trying"),
        ((*NGRAM, "--concurrency", "0"), "--concurrency: must be at least 1, not 0"),
        ((*NGRAM, "--max-model-len", "-1"), "--max-model-len: must be at least 1"),
        ((*NGRAM, "--vocabulary", "0"), "--vocabulary: must be at least 1"),
        ((*NGRAM, "--vocabulary", "3"), "no request to replay: 4 left out: token ids outside the vocabulary of 3"),
        ((*NGRAM, "--category", "poems"), "no request of the category 'poems'; it has chat, code"),
        ((*NGRAM, "--model", "other"), "other"),
    ],
)
def test_wrong_input_is_one_line_and_exit_1(trace: Path, arguments: tuple[str, ...], says: str, replay: Call) -> None:
    done = replay(trace, *arguments)
    told = [line for line in done.err.splitlines() if line.startswith("draftworth: ")]
    assert (done.code, done.out, len(told)) == (1, "", 1), done.err
    assert says in told[0]


def test_a_trace_is_needed_and_must_be_there(tmp_path: Path, replay: Call) -> None:
    for arguments, says in (((), "which trace?"), ((tmp_path / "none.jsonl", *NGRAM), "none.jsonl")):
        done = replay(*arguments)
        assert (done.code, done.out) == (1, "")
        assert says in done.err


def test_every_drafter_is_listed_with_its_source_and_defaults(replay: Call) -> None:
    listed = json.loads(replay("--list", "--json").out)
    assert listed["schema_version"] == 1
    found = listed["drafters"]
    assert [one["name"] for one in found] == list(CHOICES)
    for one in found:
        assert one["title"]
        assert any(mark.isdigit() for mark in one["source"]), "a source names its version"
        assert one["defaults"][0]["k"] >= 1
    said = replay("--list").out
    assert all(f"\n{name}\n" in f"\n{said}" for name in CHOICES)


def test_a_trials_folder_is_a_trace_of_its_baseline_or_of_a_named_arm(document: Document) -> None:
    found = document(
        ROOT / "benchmarks" / "data" / "demo_trial", *NGRAM, "--arm", "ngram-5", "--k", "5", "--min", "2", "--max", "4"
    )
    assert (found["requests"], found["settings"][0]["steps"]) == (10, 639)


def test_a_process_prints_one_document_and_shows_progress_beside_it(trace: Path) -> None:
    command = [sys.executable, "-m", "draftworth", "replay", str(trace), *NGRAM, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, json.loads(done.stdout)["requests"]) == (0, 3)
    assert "[1/1] replay" in done.stderr
    assert "requests read; 28 tokens" in done.stderr


def test_the_page_shows_what_the_program_prints() -> None:
    command = [sys.executable, "benchmarks/replay_example.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
