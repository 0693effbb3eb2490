"""What a trial leaves beside its record: an account in milliseconds and a page, neither of which can lose it."""

import json
from typing import Any

import pytest
from tests.trials.conftest import NGRAM, Case

from draftworth.trials.explaining import FAILED, PAGE


@pytest.fixture
def explained(case: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.delenv("DRAFTWORTH_PAGE")
    case.env.pop("DRAFTWORTH_PAGE")
    return case


def test_a_trial_ends_with_its_cause_and_its_page(explained: Case) -> None:
    told = explained.write(extra='[verdict]\ndiagnostics = ["probe"]\n').cli("trial", "run", str(explained.file))
    folder = explained.trials()[0]
    found = json.loads((folder / "explained.json").read_text())
    (one,) = found["accounts"]
    assert one["arm"] == "ngram-5"
    assert sum(part["ms"]["value"] for part in one["parts"]) == pytest.approx(one["difference"]["value"])
    assert f"Cause: {found['summary']}" in told.out
    assert f"Report: {folder / PAGE} and {folder / 'report.md'}" in told.out
    assert not (folder / FAILED).exists()
    page = (folder / PAGE).read_text()
    assert "ngram-5" in page
    assert len(page) < 1.5e6


def test_the_probe_is_kept_and_used_or_a_finding_says_why_not(explained: Case) -> None:
    record = explained.write(extra='[verdict]\ndiagnostics = ["probe"]\n').run().json
    folder = explained.trials()[0]
    findings = [one for one in record["findings"] if one["code"] == "not_probed"]
    assert (folder / "costs.json").exists() != bool(findings)
    assert record["verdict"] == "faster"


def test_a_trial_that_was_not_measured_has_a_page_of_what_there_is(explained: Case) -> None:
    script: dict[str, Any] = {"token_ms": 2.0, "tokens": 24, "speculating": {"exit_on_start": 3}}
    record = explained.write(script).run().json
    folder = explained.trials()[0]
    assert record["verdict"] == "error"
    assert not (folder / "explained.json").exists()
    assert (folder / PAGE).exists()


def test_a_bug_in_explaining_loses_neither_verdict_nor_record(explained: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("draftworth.explain.whole.explain_trial", broken)
    told = explained.write().cli("trial", "run", str(explained.file))
    folder = explained.trials()[0]
    assert told.code == 0
    assert "Verdict: faster" in told.out
    assert "ZeroDivisionError: a bug" in (folder / FAILED).read_text()
    assert f"Not all of it could be explained or drawn: {folder / FAILED}" in told.out


def test_it_can_be_left_for_later(case: Case) -> None:
    case.write(arms=[("ngram-5", NGRAM)]).run()
    folder = case.trials()[0]
    assert not (folder / PAGE).exists()
    assert case.cli("explain", folder.name).code == 0
    assert (folder / "explained.json").exists()
