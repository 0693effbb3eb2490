"""Accounts of a trial whose every millisecond is known: each part comes back, and nothing is left."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers import run_cli
from tests.predict.simulated_trial import DRAFTING, IDLE, MIXED, Server, T, ngram, simulated, texts

from draftworth.costs.base import Costs, StepCost
from draftworth.costs.file import save_costs
from draftworth.errors import UsageError
from draftworth.explain.base import CAUSES, Account, Cause
from draftworth.explain.whole import explain_trial, summary
from draftworth.predict.base import Range

SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}
ARMS: dict[str, dict[str, Any] | None] = {
    "baseline": None,
    "null-draft": ngram(5, 60, 60),
    "synthetic-7": ngram(7, 1, 1, **SYNTHETIC),
    "ngram-1": ngram(1, 2, 4),
    "ngram-3": ngram(3, 2, 4),
    "ngram-7": ngram(7, 2, 3),
}
REQUESTS = 40


def costs(**more: Any) -> Costs:
    """T as a probe would have measured it, without modes."""
    points = tuple(
        StepCost(
            batch=1, tokens=n, context=128, ms=ms, low=ms, high=ms, repeats=6, how="concurrency" if n == 1 else "prefix"
        )
        for n, ms in T.items()
    )
    return Costs(created="2026", engine="vllm", graph_sizes=tuple(T), points=points, **more)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("home") / "trials" / "20260101-000000", ARMS, REQUESTS)


@pytest.fixture(scope="module")
def accounts(trial: Path) -> dict[str, Account]:
    return {one.arm: one for one in explain_trial(trial, costs()).accounts}


def parts(one: Account) -> dict[Cause, Range]:
    return {part.cause: part.ms for part in one.parts}


def truth(config: dict[str, Any]) -> dict[str, float]:
    """The parts by adding up each step's own milliseconds, mean over prompts of milliseconds a token."""
    k, server = config["num_speculative_tokens"], Server(config)
    each: list[tuple[float, float, float]] = []
    for prompt, output in texts(REQUESTS):
        steps, tokens = server.steps(prompt, output), len(output) - 1
        mode = sum(IDLE if not step.drafted else DRAFTING if step.drafted == k else MIXED for step in steps)
        verify = sum(T[min(size for size in T if size > step.drafted)] - T[1] for step in steps)
        each.append((mode / tokens, verify / tokens, (len(steps) / tokens - 1) * T[1]))
    mode, verify, gained = np.array(each).mean(axis=0)
    return {"engine mode": mode, "verification": verify, "tokens gained": gained}


@pytest.mark.parametrize("arm", ["ngram-1", "ngram-3", "ngram-7"])
def test_each_part_is_what_it_truly_was(accounts: dict[str, Account], arm: str) -> None:
    found, true = parts(accounts[arm]), truth(ARMS[arm] or {})
    for cause in ("engine mode", "verification", "tokens gained"):
        assert found[cause].value == pytest.approx(true[cause], abs=0.06), cause
        assert found[cause].low - 0.06 <= true[cause] <= found[cause].high + 0.06, cause
    assert abs(found["rest"].value) < 0.1
    assert found["rest"].low <= 0 <= found["rest"].high


@pytest.mark.parametrize("arm", [name for name in ARMS if name != "baseline"])
def test_parts_add_up_to_the_difference(accounts: dict[str, Account], arm: str) -> None:
    one = accounts[arm]
    assert sum(part.ms.value for part in one.parts) == pytest.approx(one.difference.value)
    assert one.difference.value == pytest.approx(one.arm_ms - one.baseline_ms)
    assert [part.cause for part in one.parts] == [cause for cause in CAUSES if cause != "drafter"]
    assert all(part.evidence for part in one.parts if part.cause != "rest")


def test_nine_tenths_have_a_cause(accounts: dict[str, Account]) -> None:
    for one in accounts.values():
        assert one.assigned is not None
        assert one.assigned > 0.9, one.arm


def test_arms_that_only_measure_are_told_as_such(accounts: dict[str, Account]) -> None:
    assert [name for name, one in accounts.items() if one.diagnostic] == ["null-draft", "synthetic-7"]
    rest = accounts["null-draft"].parts[-1]
    assert rest.evidence == ("a mode was fitted to this arm, so this rest is no test of it",)
    assert parts(accounts["null-draft"])["engine mode"].value == pytest.approx(IDLE)


def test_the_cause_is_a_sentence(trial: Path) -> None:
    found = explain_trial(trial, costs())
    one = next(each for each in found.accounts if each.arm == "ngram-7")
    assert "switching speculation on adds" in one.main_cause
    assert "accepted drafts save" in one.main_cause
    assert found.summary == "", "the trial's verdict is about no arm"
    best = json.loads((trial / "trial.json").read_text()) | {"best": "ngram-7"}
    folder = trial.parent / "20260101-000009"
    folder.mkdir()
    (folder / "trial.json").write_text(json.dumps(best))
    (folder / "requests.parquet").write_bytes((trial / "requests.parquet").read_bytes())
    assert explain_trial(folder, costs()).summary == one.main_cause


def test_a_cause_is_never_told_of_another_arm_than_the_verdict_is_about(trial: Path) -> None:
    found = explain_trial(trial, costs())
    assert summary(found.accounts, "ngram-3").startswith("ngram-3 takes")
    assert summary(found.accounts, "suffix") == ""
    # Of an earlier version's record, whose best only measures: the candidate that lost least.
    least = min((one for one in found.accounts if not one.diagnostic), key=lambda one: one.arm_ms / one.baseline_ms)
    assert summary(found.accounts, "null-draft") == least.main_cause


def test_a_real_drafter_that_found_nothing_is_no_null_draft(trial: Path, tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000010"
    folder.mkdir()
    record = json.loads((trial / "trial.json").read_text())
    for arm in record["arms"]:
        if arm["name"] == "ngram-3":
            arm["acceptance"] |= {
                "drafting_steps": 0,
                "drafted": 0,
                "accepted": 0,
                "steps": arm["acceptance"]["emitted"],
            }
    (folder / "trial.json").write_text(json.dumps(record))
    (folder / "requests.parquet").write_bytes((trial / "requests.parquet").read_bytes())
    one = next(each for each in explain_trial(folder, costs()).accounts if each.arm == "ngram-3")
    assert not one.diagnostic
    assert "arm ngram-3" not in " ".join(one.parts[0].evidence)


def test_a_cost_nobody_measured_lands_in_the_rest(trial: Path, tmp_path: Path) -> None:
    """A drafter that takes 3 ms a step beyond the modes' arms is not hidden in another part."""
    import pyarrow as pa  # noqa: PLC0415 - this test alone
    import pyarrow.parquet as pq  # noqa: PLC0415 - this test alone

    folder = tmp_path / "20260101-000001"
    folder.mkdir()
    (folder / "trial.json").write_text((trial / "trial.json").read_text())
    rows = pq.read_table(trial / "requests.parquet").to_pylist()
    for row in rows:
        if row["arm"] == "ngram-3":
            row["decode_ms"] += 3.0 * (row["tokens"] - 1)
            row["tpot_ms"] += 3.0
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    one = next(each for each in explain_trial(folder, costs()).accounts if each.arm == "ngram-3")
    rest = one.parts[-1].ms
    assert rest.value == pytest.approx(3.0, abs=0.1)
    assert rest.low > 0
    assert "have no known cause, and more than the measurements' errors" in one.main_cause
    assert one.assigned is not None
    assert one.assigned < 0.9
    told = explain_trial(folder, costs(), drafter_ms={"ngram-3": Range(value=1.0, low=1.0, high=1.0)})
    one = next(each for each in told.accounts if each.arm == "ngram-3")
    assert parts(one)["drafter"].value == pytest.approx(one.steps_per_token)
    assert sum(part.ms.value for part in one.parts) == pytest.approx(one.difference.value)


def test_what_would_change_it_is_told_with_its_gain(accounts: dict[str, Account]) -> None:
    for name in ("ngram-3", "ngram-7"):
        one = accounts[name]
        settings = [change for change in one.changes if change.kind == "setting"]
        assert settings
        measured = one.baseline_ms / one.arm_ms
        proposed = [change for change in settings if change.arguments]
        assert all(change.speed_up is not None and change.speed_up.value > measured for change in proposed)
        assert proposed or any("None of" in change.text for change in settings)
        if one.difference.value > 0:
            assert any(change.kind == "acceptance" and "has to yield" in change.text for change in one.changes)
            assert any(change.kind == "engine" for change in one.changes)


def test_break_even_is_where_the_arm_would_cost_nothing(accounts: dict[str, Account]) -> None:
    one = accounts["ngram-3"]
    assert one.break_even.length is not None
    assert one.break_even.measured_length is not None
    # At the break-even length each step yields what it costs: 1 + c (length - 1) = S / T.
    server = Server(ARMS["ngram-3"])
    steps = [step for prompt, output in texts(REQUESTS) for step in server.steps(prompt, output)]
    coverage = sum(step.drafted > 0 for step in steps) / len(steps)
    assert 1 + coverage * (one.break_even.length - 1) == pytest.approx(one.arm_step_ms / one.baseline_step_ms, rel=0.02)
    assert one.break_even.longest == 4


def test_without_a_mode_of_its_own_the_library_is_told_and_asked_to_be_replaced(trial: Path, tmp_path: Path) -> None:
    plain = simulated(trial.parent / "20260101-000002", {name: ARMS[name] for name in ("baseline", "ngram-3")}, 12)
    one = explain_trial(plain, costs()).accounts[0]
    mode = one.parts[0]
    assert not mode.measured
    assert any("library" in text for text in mode.evidence)
    assert any(change.kind == "measure" and "null-draft" in change.text for change in one.changes)
    own = next(each for each in explain_trial(trial, costs()).accounts if each.arm == "ngram-3").parts[0].ms
    assert mode.ms.high - mode.ms.low > own.high - own.low
    told = explain_trial(plain, costs(), [trial])
    assert any("cannot be told that one server was measured in both" in text for text in told.left_out)
    same = tmp_path / "20260101-000000"
    same.mkdir()
    (same / "requests.parquet").write_bytes((trial / "requests.parquet").read_bytes())
    for start, folder in ((trial, same), (plain, plain)):
        record = json.loads((start / "trial.json").read_text())
        record["config"]["service"] = {"type": "endpoints", "baseline": "http://gpu:8000"}
        (folder / "trial.json").write_text(json.dumps(record))
    other = explain_trial(plain, costs(), [same]).accounts[0].parts[0]
    assert "arm null-draft" in " ".join(other.evidence), "another trial of the same server tells it"


def test_costs_of_another_engine_are_refused(trial: Path) -> None:
    with pytest.raises(UsageError, match="the costs file is of sglang"):
        explain_trial(trial, costs().model_copy(update={"engine": "sglang"}))


def test_an_arm_without_counts_is_left_out_and_named(trial: Path, tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000003"
    folder.mkdir()
    record = json.loads((trial / "trial.json").read_text())
    for arm in record["arms"]:
        if arm["name"] == "ngram-3":
            arm["acceptance"] = None
    (folder / "trial.json").write_text(json.dumps(record))
    (folder / "requests.parquet").write_bytes((trial / "requests.parquet").read_bytes())
    found = explain_trial(folder, costs())
    assert "ngram-3" not in {one.arm for one in found.accounts}
    assert any("ngram-3" in text and "not known" in text for text in found.left_out)


def test_the_verb_prints_keeps_and_speaks_json(trial: Path, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    save_costs(costs(), file)
    told = run_cli("explain", str(trial), "--costs", str(file))
    assert told.code == 0
    assert "engine mode" in told.out
    assert "What would change it:" in told.out
    kept = json.loads((trial / "explained.json").read_text())
    as_json = json.loads(run_cli("explain", str(trial), "--costs", str(file), "--json").out)
    assert as_json == kept
    assert {one["arm"] for one in kept["accounts"]} == set(ARMS) - {"baseline"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing"], "no trial"),
        (["{trial}", "--speculation", "a"], "--speculation: must be like"),
        (["{trial}", "--drafter-ms", "a=x"], "--drafter-ms: must be like"),
        (["{trial}", "--drafter-ms", "a=-1"], "--drafter-ms: must be like"),
        (["{trial}", "--costs", "nothing.json"], "nothing.json"),
    ],
)
def test_wrong_input_is_one_line(trial: Path, words: list[str], text: str) -> None:
    told = run_cli("explain", *(word.format(trial=trial) for word in words))
    assert told.code == 1
    assert text in told.err
    assert told.err.count("\n") == 1
