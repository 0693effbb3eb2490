"""Predictions against a trial whose every millisecond is known."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import run_cli
from tests.predict.simulated_trial import T, ngram, simulated

from draftworth.costs.base import Costs, StepCost
from draftworth.costs.file import save_costs
from draftworth.predict.check import check_trials
from draftworth.traces.store import open_trace

SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}
ARMS: dict[str, dict[str, Any] | None] = {
    "baseline": None,
    "null-draft": ngram(5, 60, 60),
    "synthetic-7": ngram(7, 1, 1, **SYNTHETIC),
    "ngram-1": ngram(1, 2, 4),
    "ngram-3": ngram(3, 2, 4),
    "ngram-7": ngram(7, 2, 3),
}


def costs() -> Costs:
    """T as a probe would have measured it, without modes."""
    points = [
        StepCost(
            batch=1, tokens=n, context=128, ms=ms, low=ms, high=ms, repeats=6, how="concurrency" if n == 1 else "prefix"
        )
        for n, ms in T.items()
    ]
    return Costs(created="2026", engine="vllm", graph_sizes=tuple(T), points=tuple(points), reload_s=600.0)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("home") / "trials" / "20260101-000000", ARMS)


def test_arms_are_predicted_from_the_baseline_and_arms_that_draft_nothing_of_their_own(trial: Path) -> None:
    checked = check_trials([trial], costs())
    assert [one.arm for one in checked.cells] == ["ngram-1", "ngram-3", "ngram-7"]
    for cell in checked.cells:
        # The outputs are the same in all arms here, so the replay is exact.
        assert cell.steps_per_token.value == pytest.approx(cell.measured_steps_per_token, rel=0.02)
        assert abs(cell.error) < 0.02, cell
        assert cell.sign_right is not False
    assert checked.median_error is not None
    assert checked.median_error < 0.015
    assert checked.wrong_signs == 0
    assert sum("was used to fit an engine mode" in text for text in checked.left_out) == 2


def test_without_the_engine_mode_the_same_arms_are_told_wrong(trial: Path) -> None:
    """The term is needed: with the library's instead of the measured one, the error is larger."""
    known = check_trials([trial], costs())
    plain = simulated(trial.parent / "20260101-000001", {name: ARMS[name] for name in ("baseline", "ngram-3")})
    other = check_trials([plain], costs())
    assert abs(other.cells[0].error) > abs(known.cells[1].error)
    assert other.cells[0].predicted.high - other.cells[0].predicted.low > 0.1


def test_what_cannot_be_checked_is_named(trial: Path) -> None:
    folder = simulated(
        trial.parent / "20260101-000002", {"baseline": None, "eagle": ngram(3, 2, 4), "bare": ngram(3, 2, 4)}, 4
    )
    record = json.loads((folder / "trial.json").read_text())
    record["arms"][1]["declared"]["speculative_config"] = {"method": "eagle3", "num_speculative_tokens": 3}
    record["arms"][2]["declared"] = {}
    (folder / "trial.json").write_text(json.dumps(record))
    checked = check_trials([folder], costs())
    assert not checked.cells
    assert "drafts of method 'eagle3' cannot be replayed" in " ".join(checked.left_out)
    assert "give --speculation ARM=JSON" in " ".join(checked.left_out)
    told = check_trials([folder], costs(), {"bare": ngram(3, 2, 4)})
    assert [one.arm for one in told.cells] == ["bare"]


def test_the_verb_predicts_a_trials_own_baseline(trial: Path, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    save_costs(costs(), file)
    done = run_cli(
        "predict",
        trial,
        "--costs",
        file,
        "--k",
        "1,3,7",
        "--min",
        "2",
        "--max",
        "3,4",
        "--json",
        "--concurrency",
        "1,4",
    )
    assert done.code == 0
    told = done.json
    assert {(one["k"], one["min"], one["max"], one["concurrency"]) for one in told["settings"]} == {
        (k, 2, high, load) for k in (1, 3, 7) for high in (3, 4) for load in (1, 4)
    }
    for one in told["settings"]:
        step = sum(one["parts"].values())
        assert one["speed_up"]["low"] <= one["speed_up"]["value"] <= one["speed_up"]["high"]
        assert one["parts"]["base_ms"] > 0
        assert step > 0
    assert told["trace"]["requests"] == 40
    shown = run_cli("predict", trial, "--costs", file, "--k", "1,3", "--heads", "--concurrency", "1")
    assert shown.code == 0
    assert "At 1 at a time (a step of the baseline takes 10.00 ms):" in shown.out
    assert "A head or draft model that does not exist yet must reach:" in shown.out
    assert "taken from the library" in shown.out


def test_the_verb_checks_trials(trial: Path, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    save_costs(costs(), file)
    done = run_cli("predict", "--check", trial, "--costs", file)
    assert done.code == 0
    assert "3 cells: median absolute error" in done.out
    assert "0 wrong signs" in done.out
    assert run_cli("predict", "--check", trial, "--costs", file, "--json").json["wrong_signs"] == 0
    by_name = run_cli(
        "predict", "--check", trial.name, "--costs", file, env={"DRAFTWORTH_HOME": str(trial.parent.parent)}
    )
    assert by_name.code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which trace?"),
        (("TRIAL",), "--costs FILE"),
        (("TRIAL", "--costs", "COSTS", "--url", "http://127.0.0.1:9"), "one of them"),
        (("TRIAL", "--costs", "COSTS", "--drafter", "none"), "unknown drafter 'none': choose one of vllm-ngram-v1"),
        (("TRIAL", "--costs", "COSTS", "--concurrency", "0"), "--concurrency"),
        (("TRIAL", "--costs", "COSTS", "--concurrency", "few"), "--concurrency"),
        (("TRIAL", "--costs", "COSTS", "--draft-share", "2"), "--draft-share"),
        (("TRIAL", "--costs", "COSTS", "--speculation", "a=1"), "--speculation goes with --check"),
        (("TRIAL", "--costs", "COSTS", "--check", "TRIAL"), "--check takes the traffic from the trials"),
        (("PLAIN", "--costs", "COSTS", "--arm", "ngram-3"), "--arm"),
        (("--check", "nowhere"), "nowhere"),
        (("--check", "TRIAL", "elsewhere"), "elsewhere"),
        (("--check",), "which trials"),
        (("--check", "TRIAL", "--speculation", "ngram-5"), "--speculation: must be like"),
        (("TRIAL", "--costs", "TRIAL"), "costs file"),
        (("TRIAL", "--costs", "EMPTY", "--k", "1"), "no points"),
    ],
)
def test_bad_input_is_one_line(trial: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    file, empty = tmp_path / "costs.json", tmp_path / "empty.json"
    save_costs(costs(), file)
    save_costs(Costs(created="2026"), empty)
    plain = tmp_path / "t.jsonl"
    plain.write_text('{"request_id": "a", "prompt_token_ids": [1, 2], "output_token_ids": [1, 2, 3]}\n')
    places = {"TRIAL": str(trial), "COSTS": str(file), "EMPTY": str(empty), "PLAIN": str(plain)}
    home = {"DRAFTWORTH_HOME": str(trial.parent.parent)}
    done = run_cli("predict", *(places.get(word, word) for word in words), env=home)
    assert done.code == 1
    assert said in done.err
    assert done.out == ""
    assert len([line for line in done.err.splitlines() if line.startswith("draftworth: ")]) == 1


def test_a_trial_is_a_trace(trial: Path) -> None:
    batches = list(open_trace(trial).batches())
    assert sum(map(len, batches)) == 40
