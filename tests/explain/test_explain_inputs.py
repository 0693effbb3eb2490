"""What an account was made with is kept with it, and what is only stated is never told as measured."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.explain.test_explain_trial import costs
from tests.helpers import Result, run_cli
from tests.predict.simulated_trial import ngram, simulated

from draftworth.costs.file import save_costs
from draftworth.explain.kept import load
from draftworth.explain.whole import explain_trial
from draftworth.predict.base import Range

ARMS: dict[str, dict[str, Any] | None] = {
    "baseline": None,
    "null-draft": ngram(5, 60, 60),
    "synthetic-7": ngram(7, 1, 1, rejection_sample_method="synthetic", synthetic_acceptance_length=2.0),
    "ngram-3": ngram(3, 2, 4),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("home") / "trials" / "20260101-000000", ARMS, 12)


@pytest.fixture
def trial(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run" / made.name))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    save_costs(costs().model_copy(update={"created": "2026-11-30T10:00:00Z"}), path)
    return path


def told(*words: object) -> Result:
    found = run_cli("explain", *words)
    assert found.code == 0, found.err
    return found


def test_a_stated_drafter_is_never_measured(trial: Path) -> None:
    found = explain_trial(trial, costs(), drafter_ms={"ngram-3": Range(value=1.0, low=0.5, high=2.0)})
    plain = next(one for one in explain_trial(trial, costs()).accounts if one.arm == "ngram-3")
    one = next(one for one in found.accounts if one.arm == "ngram-3")
    parts = {part.cause: part for part in one.parts}
    drafter, mode, whole = parts["drafter"], parts["engine mode"], plain.parts[0]
    assert (drafter.stated, drafter.measured, mode.measured) == (True, False, False)
    assert "stated by hand" in drafter.evidence[0]
    assert "profile" not in " ".join(drafter.evidence)
    assert drafter.ms.low == pytest.approx(0.5 * one.steps_per_token)
    assert drafter.ms.high == pytest.approx(2.0 * one.steps_per_token)
    # What is taken for the drafter is taken from the mode, whose interval then has its error as well.
    assert drafter.ms.value + mode.ms.value == pytest.approx(whole.ms.value)
    assert mode.ms.high - mode.ms.low > whole.ms.high - whole.ms.low
    assert parts["rest"].ms == plain.parts[-1].ms
    assert sum(detail.ms.value for detail in mode.details) == pytest.approx(mode.ms.value)
    # The sentence leads with what was measured.
    assert f"switching speculation on adds {whole.ms.value:.2f} ms" in one.main_cause
    assert one.main_cause.index("switching") < one.main_cause.index("of it the drafter")
    assert "stated by hand)" in one.main_cause
    asked = [change.text for change in one.changes if change.kind == "measure"]
    assert len(asked) == 1
    assert "a profile measures it" in asked[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--drafter-ms", "ngram-3=1e9"], "its drafter cannot take 1e+09"),
        (["--drafter-ms", "foo=1"], "has no variant 'foo'; it has null-draft"),
        (["--drafter-ms", "baseline=1"], "has no variant 'baseline'"),
        (["--drafter-ms", "ngram-3=1", "--drafter-ms", "ngram-3=2"], "stated twice"),
        (["--drafter-ms", "=1"], "must be like"),
        (["--speculation", 'foo={"method": "ngram"}'], "--speculation: trial 20260101-000000 has no variant 'foo'"),
        (["--with", ""], "is no trial's folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(trial: Path, file: Path, words: list[str], says: str) -> None:
    found = run_cli("explain", trial, "--costs", file, *words)
    assert (found.code, found.err.count("\n"), found.out) == (1, 1, "")
    assert says in found.err
    assert not (trial / "explained.json").exists()


def test_an_empty_name_is_no_trial() -> None:
    found = run_cli("explain", "")
    assert found.code == 1
    assert "names no trial" in found.err


def test_inputs_are_kept_and_shown(trial: Path, file: Path) -> None:
    found = told(trial, "--costs", file, "--drafter-ms", "ngram-3=1.5", "--keep")
    line = "Made with: costs mine.json of 2026-11-30; drafter's ms a step stated by hand: ngram-3=1.5."
    assert line in found.out.splitlines()
    kept = load(trial)
    assert kept is not None
    assert kept.inputs is not None
    assert (kept.inputs.costs, kept.inputs.costs_given, kept.inputs.drafter_ms) == ("mine.json", True, ("ngram-3=1.5",))
    page = trial / "report.html"
    assert run_cli("report", trial, "--out", page).code == 0
    text = page.read_text()
    assert "stated by hand: ngram-3=1.5" in text
    assert "stated by hand</td>" in text


def test_what_is_kept_does_not_hang_on_who_typed_last(trial: Path, file: Path) -> None:
    path = trial / "explained.json"
    assert told(trial).out.splitlines()[-1] == f"Kept: {path}."
    # Evidence takes the place of none, and says so; nothing takes the place of evidence unless asked.
    assert "in place of one with other inputs. That was: Made with: no costs file." in told(trial, "--costs", file).out
    best = path.read_bytes()
    for words in ([], ["--costs", file, "--drafter-ms", "ngram-3=1.5"], ["--drafter-ms", "ngram-3=1.5"]):
        line = told(trial, *words).out.splitlines()[-1]
        assert line.startswith("Not kept: explained.json, which report and decide use, stays")
        assert "costs mine.json of 2026-11-30" in line
        assert path.read_bytes() == best
    assert told(trial, "--costs", file).out.splitlines()[-1] == f"Kept: {path}."
    assert path.read_bytes() == best
    assert "in place of one with other inputs" in told(trial, "--keep").out


def test_a_stated_figure_alone_is_not_kept(trial: Path) -> None:
    assert "stated by hand; --keep" in told(trial, "--drafter-ms", "ngram-3=1").out
    assert not (trial / "explained.json").exists()


def test_json_stays_one_document(trial: Path, file: Path) -> None:
    told(trial, "--costs", file)
    found = told(trial, "--json")
    assert json.loads(found.out)["inputs"]["costs"] == ""
    assert found.err.startswith("Not kept: ")


def test_a_folder_that_cannot_be_written_is_said(trial: Path) -> None:
    (trial / "explained.json").mkdir()
    found = told(trial)
    assert "engine mode" in found.out
    assert found.out.splitlines()[-1].startswith(f"Not kept: {trial / 'explained.json'}: ")


def test_an_account_of_an_earlier_version_is_read_and_replaced(trial: Path, file: Path) -> None:
    told(trial, "--costs", file)
    old = json.loads((trial / "explained.json").read_text())
    del old["inputs"]
    (trial / "explained.json").write_text(json.dumps(old))
    assert "That was: Made with: not known" in told(trial).out


@pytest.mark.parametrize("place", ["..", "."])
def test_a_costs_file_beside_the_trial_is_named(trial: Path, place: str) -> None:
    path = trial / place / "costs-baseline.json"
    save_costs(costs().model_copy(update={"created": "2026-11-30T10:00:00Z"}), path)
    other = costs().model_copy(update={"engine": "sglang", "created": "2027"})
    save_costs(other, trial.parent / "costs-other.json")
    (trial.parent / "costs-broken.json").write_text("{")
    lines = [one for one in explain_trial(trial).left_out if "--costs" in one]
    assert len(lines) == 1
    assert "costs-baseline.json" in lines[0]
    assert "2026-11-30" in lines[0]
    assert not [one for one in explain_trial(trial, costs()).left_out if "--costs" in one]
