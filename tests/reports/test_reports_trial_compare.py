"""Several trials side by side, and the verb `report`."""

import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.helpers import Result, run_cli
from tests.reports.reports_trials import account, around, comparison, explained, folder_of, record

from draftworth import cli
from draftworth.explain.base import Explained, Inputs
from draftworth.reports.compare import compared, lines, page
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.head import cause_of
from draftworth.reports.trial.named import told_model
from draftworth.trials.record import TrialRecord, write
from draftworth.verdicts.base import Verdict

VERB = {"report": ("draftworth.cli.report:app", "A trial as a page that stands on its own; several side by side.")}


def named(id_: str, model: str = "llama", engine: str = "vllm", **other: Any) -> TrialRecord:
    found = record(("eagle3",), id=id_, **other)
    command = ("vllm", "serve", *([model] if model else []))
    arms = tuple(one.model_copy(update={"engine": engine, "command": command}) for one in found.arms)
    service = {**found.config["service"], "model": model}
    return found.model_copy(update={"arms": arms, "config": {**found.config, "service": service}})


def run(*words: object, home: Path | None = None) -> Result:
    with mock.patch.dict(cli._VERBS, VERB):
        return run_cli("report", *words, env={"DRAFTWORTH_HOME": str(home)} if home else None)


def test_a_cause_is_at_a_load_at_which_the_arm_did_what_its_verdict_says() -> None:
    """ngram-5 is faster over all loads, and slower where it differs most: the cause is not of that load alone."""
    found = comparison("ngram-5", 0.93, Verdict.FASTER)
    trial = record(("ngram-5",), comparisons=(found,), comparison=found, verdict=Verdict.FASTER, best="ngram-5")
    faster, slower = (
        one.model_copy(update={"difference": around(value, 0.5), "main_cause": f"At {one.concurrency}"})
        for one, value in ((account("ngram-5", 0.85, 1), -3.0), (account("ngram-5", 1.2, 16), 4.0))
    )
    told = Explained(trial=trial.id, accounts=(slower, faster))
    (group,) = compared([(trial, told)]).groups
    assert group.arms[0].cause == "At 1. But it takes 20% more time a token at 16 at a time."
    assert cause_of(Subject(trial, told)).startswith("At 1. ")


def stored(home: Path, id_: str, **other: Any) -> Path:
    folder = folder_of(home / "trials" / id_)
    write(named(id_, **other), folder)
    return folder


# --- compare


def test_arms_of_one_model_stand_in_one_group_with_their_own_ratios() -> None:
    found = compared([(named("20260101-000000"), explained(("eagle3",))), (named("20260102-000000"), None)])
    assert len(found.groups) == 1
    arms = found.groups[0].arms
    assert [(one.trial, one.arm, str(one.verdict)) for one in arms] == [
        ("20260101-000000", "eagle3", "faster"),
        ("20260102-000000", "eagle3", "faster"),
    ]
    assert arms[0].ratio is not None
    assert arms[0].ratio.estimate == 0.75
    assert arms[0].setting == "ngram: k 5"
    assert arms[0].cause.startswith("eagle3 pays 6.00 ms")
    assert arms[1].cause == ""
    assert arms[0].version == "0.32.0"
    assert found.notes == ()


@pytest.mark.parametrize("other", [{"model": "qwen"}, {"engine": "sglang"}])
def test_other_models_and_engines_are_told_apart(other: dict[str, str]) -> None:
    found = compared([(named("20260101-000000"), None), (named("20260102-000000", **other), None)])
    assert len(found.groups) == 2
    assert any("2 different engines or models, told apart" in note for note in found.notes)
    text = "\n".join(lines(found))
    assert text.index("vllm 0.32.0, llama") < text.index("20260102-000000")


def test_what_else_differs_within_a_group_is_said() -> None:
    found = compared(
        [(named("20260101-000000"), None), (named("20260102-000000", machine={"processor": "Xeon", "cores": 2}), None)]
    )
    assert len(found.groups) == 1
    assert any("differ in machines (EPYC, 16 cores, Xeon, 2 cores)" in note for note in found.notes)
    assert "Xeon, 2 cores" in "\n".join(lines(found))


def test_what_causes_were_made_with_is_said_beside_others() -> None:
    inputs = Inputs(costs="mine.json", costs_created="2026-11-30T10:00:00Z", costs_given=True, drafter_ms=("eagle3=2",))
    made = explained().model_copy(update={"inputs": inputs})
    found = compared([(named("20260101-000000"), made), (named("20260102-000000"), explained())])
    (note,) = (one for one in found.notes if "Made with" in one)
    assert note.startswith("20260101-000000, its causes: Made with: costs mine.json of 2026-11-30; drafter's ms")
    assert "stated by hand: eagle3=2" in note


def test_a_trial_without_a_comparison_is_named_and_not_dropped() -> None:
    lost = named("20260103-000000", comparison=None, comparisons=(), best=None, arms=(), error="it did not start")
    found = compared([(named("20260101-000000"), None), (lost, None)])
    assert [one.trial for group in found.groups for one in group.arms] == ["20260101-000000"]
    assert any("20260103-000000" in note and "it did not start" in note for note in found.notes)
    assert lines(compared([(lost, None)]))[0] == "No trial has an arm that was compared."


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (("vllm", "serve", "meta/llama-8b", "--port", "1"), "meta/llama-8b"),
        (("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/data/models/llama"), "llama"),
        (("python", "-m", "sglang.launch_server", "--model-path=Qwen/Qwen3"), "Qwen/Qwen3"),
        (("llama-server", "-m", "/m/q4.gguf"), "q4.gguf"),
        (("server",), "model not known (20261202-101010)"),
    ],
)
def test_the_model_is_read_off_the_baselines_command(command: tuple[str, ...], model: str) -> None:
    found = record()
    arms = (found.arms[0].model_copy(update={"command": command}), *found.arms[1:])
    assert told_model(found.model_copy(update={"arms": arms})) == model


def test_models_that_no_trial_names_are_not_taken_for_one_in_silence() -> None:
    trials = []
    for id_ in ("20260101-000000", "20260102-000000"):
        found = named(id_, model="")
        arms = tuple(one.model_copy(update={"command": (), "declared": {"url": "http://a:1"}}) for one in found.arms)
        trials.append((found.model_copy(update={"arms": arms}), None))
    assert any("do not name their model" in note for note in compared(trials).notes)


def test_the_page_of_several_trials_stands_on_its_own() -> None:
    found = compared([(named("20260101-000000"), explained(("eagle3",))), (named("20260102-000000", "qwen"), None)])
    text = page(found, "0.2.0")
    assert "<h1>2 trials: 2 of 2 arms are faster</h1>" in text
    assert text.count("<svg") == 2
    assert re.findall("<h2>([^<]*)</h2>", text) == ["vllm 0.32.0, llama", "vllm 0.32.0, qwen"]
    assert not re.search(r"<script|<link|https?://", text)


# --- the verb


def test_a_page_is_written_beside_the_record_and_what_is_missing_is_told(tmp_path: Path) -> None:
    folder = stored(tmp_path, "20260101-000000")
    result = run("20260101-000000", home=tmp_path)
    assert result.code == 0, result.err
    assert f"Report: {folder / 'report.html'}" in result.out
    assert "Not on the page: The account of the milliseconds" in result.out
    assert "eagle3 is faster" in (folder / "report.html").read_text(encoding="utf-8")


def test_an_account_in_the_folder_is_on_the_page(tmp_path: Path) -> None:
    folder = stored(tmp_path, "20260101-000000")
    (folder / "explained.json").write_text(explained(("eagle3",)).model_dump_json())
    out = tmp_path / "page.html"
    result = run(folder, "--out", out, "--json")
    assert result.code == 0, result.err
    assert set(result.json) == {"trial", "explained", "missing", "page"}
    assert result.json["page"] == str(out)
    assert result.json["missing"] == []
    assert "<dd>eagle3 pays 6.00 ms" in out.read_text(encoding="utf-8")
    assert not (folder / "report.html").exists()


def test_a_damaged_account_is_told_and_the_page_is_made_without_it(tmp_path: Path) -> None:
    folder = stored(tmp_path, "20260101-000000")
    (folder / "explained.json").write_text("{")
    result = run(folder, "--json")
    assert result.code == 0, result.err
    assert result.json["explained"] is None
    assert "explained.json: damaged" in result.json["missing"][0]


def test_what_is_no_trial_is_refused_in_one_line(tmp_path: Path) -> None:
    for words in ((), ("nope",), (tmp_path,), ("compare",), ("compare", "nope")):
        result = run(*words, home=tmp_path / "empty")
        assert result.code == 1, words
        assert len(result.err.strip().splitlines()) == 1
        assert result.out == ""


def test_compare_prints_a_table_or_one_document_and_writes_a_page(tmp_path: Path) -> None:
    for id_ in ("20260101-000000", "20260102-000000"):
        stored(tmp_path, id_)
    out = tmp_path / "page.html"
    result = run("compare", "20260101-000000", "20260102-000000", "--out", out, home=tmp_path)
    assert result.code == 0, result.err
    assert "TPOT 0.750 (0.675 to 0.825)" in result.out
    assert f"Report: {out}" in result.out
    assert "2 trials" in out.read_text(encoding="utf-8")
    result = run("compare", "20260101-000000", "20260102-000000", "20260101-000000", "--json", home=tmp_path)
    found = json.loads(result.out)
    assert [one["trial"] for one in found["groups"][0]["arms"]] == ["20260101-000000", "20260102-000000"]
    assert found["schema_version"] == 1
