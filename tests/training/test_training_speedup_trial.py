"""A head's walk and predicted speed-up against simulated trials, whose engine and counts are known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.predict.edited_trial import costs, edited, rewritten
from tests.predict.simulated_trial import ngram, simulated
from tests.training.speedup_making import Workers, drafts, exported, run_folder
from tests.training.training_making import Said

from draftworth.costs.file import save_costs
from draftworth.errors import RefusedError, UsageError
from draftworth.training import evaluate, speedup_answers
from draftworth.training.recipe import Recipe
from draftworth.training.speedup_held import HELD_OUT, OWN, TrialCheck, lines
from draftworth.training.speedup_trial import check_trial

K = 3


def head(model: Path) -> dict[str, Any]:
    """The arm's drafts are those of a lookup, as the walk's are."""
    return {**ngram(K, 1, 2), "method": "eagle3", "model": str(model)}


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Recipe, Workers]:
    path = tmp_path / "costs.json"
    save_costs(costs("eagle3"), path)
    recipe, workers = run_folder(tmp_path, monkeypatch, f"[eval]\nk = [1, {K}]")
    recipe = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"costs": path})})
    evaluate.run(recipe, recipe.folder, Said())
    exported(recipe)
    return recipe, workers


def trial(folder: Path, model: Path, ratio: float = 0.8) -> Path:
    simulated(folder, {"baseline": None, "head": head(model)}, 12)

    def change(record: dict[str, Any]) -> None:
        interval = {"estimate": ratio, "low": ratio * 0.98, "high": ratio * 1.02}
        record["comparisons"] = [{"arm": "head", "tpot_ratio": interval}]
        counts = record["arms"][1]["acceptance"]
        counts["accepted_per_position"] = [counts["accepted"], 0, 0]
        record["created"] = "2099-01-01T00:00:00+00:00"

    return edited(folder, change)


def steps_per_token(folder: Path) -> list[float]:
    """Walk each of the arm's answers by itself."""
    rows = [row for row in pq.read_table(folder / "requests.parquet").to_pylist() if row["arm"] == "head"]
    found = []
    for row in rows:
        ids, start = [*row["prompt_token_ids"], *row["token_ids"]], len(row["prompt_token_ids"])
        steps, at = 0, start
        while at < len(ids) - 1:
            steps += 1
            drafted = drafts(ids[: at + 1], K)
            run = 0
            while run < len(drafted) and at + 1 + run < len(ids) and drafted[run] == ids[at + 1 + run]:
                run += 1
            at += run + 1
        found.append(steps / (len(ids) - 1 - start))
    return found


def held(found: TrialCheck, what: str, by: str) -> Any:
    return next(one for one in found.points[0].held if (one.what, one.by) == (what, by))


def test_the_walk_over_the_arms_own_answers_takes_the_steps_that_the_server_counted(
    case: tuple[Recipe, Workers], tmp_path: Path
) -> None:
    recipe, _ = case
    folder = trial(tmp_path / "20260101-000000", recipe.folder / "export")
    found = check_trial(recipe, folder, Said())
    (point,) = found.points
    assert point.counts is not None
    assert point.walk is not None
    assert (point.answers, point.walked) == (12, 12)
    assert (point.walk.steps, point.walk.emitted) == (point.counts.steps, point.counts.emitted)
    own = held(found, "tokens a step", OWN)
    assert own.off == 0.0
    assert own.within
    # Other text, another walk: told beside it, and not within.
    other = held(found, "tokens a step", HELD_OUT)
    assert other.measured == own.measured
    assert not other.within
    # Its counts say that every accepted token was a first one.
    assert held(found, "accepted at 2", OWN).measured.value == 0.0
    speed = held(found, "speed-up", OWN)
    assert speed.measured.value == pytest.approx(1 / 0.8)
    assert speed.measured.low == pytest.approx(1 / (0.8 * 1.02))
    # What is needed is the same; the lengths, prompts alike, are not.
    each = steps_per_token(folder)
    report = evaluate.report_of(recipe.folder).conversations
    assert report is not None
    before = [steps / tokens for steps, tokens in zip(report.steps[K], report.tokens, strict=True)]
    assert speed.told.value / held(found, "speed-up", HELD_OUT).told.value == pytest.approx(
        np.mean(before) / np.mean(each)
    )
    assert speed.off == pytest.approx(speed.told.value * 0.8 - 1)
    told = lines(found)
    assert told[0] == "trial 20260101-000000, head (k = 3), 1 at a time, 12 answers:"
    assert "0.0%, within 2%" in next(line for line in told if "tokens a step" in line)
    assert any("NOT within" in line for line in told)
    assert "the head was trained on 1 of the 12 prompts that the trial asked" in told[-1]
    assert not any("was trained until" in line for line in told)
    kept = (recipe.folder / "eval" / "trial-20260101-000000.json").read_text("utf-8")
    assert TrialCheck.model_validate_json(kept) == found
    assert json.loads(kept)["points"][0]["held"][0]["within"]
    # Nothing of the texts is left.
    assert not (recipe.folder / "eval" / "trial_answers").exists()


def test_a_trial_without_this_head_is_one_line(case: tuple[Recipe, Workers], tmp_path: Path) -> None:
    recipe, _ = case
    folder = trial(tmp_path / "20260101-000001", tmp_path / "another")
    with pytest.raises(UsageError, match=r"no arm drafts with .*export \(head with .*another\); --arm names one"):
        check_trial(recipe, folder, Said())
    assert check_trial(recipe, folder, Said(), arm="head").model == str(tmp_path / "another")
    with pytest.raises(UsageError, match="has no arm 'x' with a head; there are head"):
        check_trial(recipe, folder, Said(), arm="x")
    without = simulated(tmp_path / "20260101-000002", {"baseline": None, "ngram": ngram(3, 1, 2)}, 4)
    with pytest.raises(UsageError, match="none has a head"):
        check_trial(recipe, without, Said())


def test_what_is_missing_is_told_and_the_rest_is_held(
    case: tuple[Recipe, Workers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, _ = case
    folder = trial(tmp_path / "20260101-000003", recipe.folder / "export")
    edited(folder, lambda record: record.update(comparisons=[], created="2020-01-01T00:00:00+00:00"))
    bare = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"costs": None})})

    def refuses(*_: object, **__: object) -> dict[str, Any]:
        raise RefusedError("no room")

    monkeypatch.setattr(speedup_answers, "run_worker", refuses)
    found = check_trial(bare, folder, Said())
    assert found.points[0].missing == (
        "the arm's own answers were not walked: no room",
        "the trial has no TPOT ratio at this load",
    )
    assert {one.by for one in found.points[0].held} == {HELD_OUT}
    assert "the head was trained until" in found.notes[-1]
    assert not (recipe.folder / "eval" / "trial_answers").exists()


def test_without_costs_the_speed_up_is_said_to_be_missing(case: tuple[Recipe, Workers], tmp_path: Path) -> None:
    recipe, _ = case
    folder = trial(tmp_path / "20260101-000004", recipe.folder / "export")
    bare = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"costs": None})})
    (missing,) = check_trial(bare, folder, Said()).points[0].missing
    assert missing.startswith("the speed-up was not predicted: there are no costs: `draftworth probe URL")
    # Costs of another server are not used.
    save_costs(costs("eagle3", version="0.25.0"), tmp_path / "costs.json")
    (missing,) = check_trial(recipe, folder, Said()).points[0].missing
    assert "the costs file is of vllm 0.25.0, this trial's server is vllm 0.32.0" in missing


def test_answers_without_ids_are_counted(case: tuple[Recipe, Workers], tmp_path: Path) -> None:
    recipe, _ = case
    folder = trial(tmp_path / "20260101-000005", recipe.folder / "export")
    rewritten(folder, lambda row: {**row, "token_ids": None} if row["prompt_id"] == "p1" else row)
    (point,) = check_trial(recipe, folder, Said()).points
    assert point.walked == 11
    assert point.missing == ("1 of 12 answers have no token ids and were not walked",)


def test_the_same_answer_twice_is_walked_once_and_counted_twice(case: tuple[Recipe, Workers], tmp_path: Path) -> None:
    recipe, workers = case
    folder = trial(tmp_path / "20260101-000006", recipe.folder / "export")
    (once,) = check_trial(recipe, folder, Said()).points
    table = pq.read_table(folder / "requests.parquet")
    pq.write_table(pa.concat_tables([table, table]), folder / "requests.parquet")
    (twice,) = check_trial(recipe, folder, Said()).points
    assert once.walk is not None
    assert twice.walk is not None
    assert twice.walk.steps == 2 * once.walk.steps
    assert workers.asked.count("states_worker") == 2
