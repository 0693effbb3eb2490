"""The predicted speed-up of a head, against arithmetic by hand."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.heads import heads_making
from tests.predict.edited_trial import costs, mode
from tests.predict.simulated_trial import T
from tests.training.speedup_making import run_folder
from tests.training.training_making import Said

from draftworth.costs.base import Costs
from draftworth.costs.file import save_costs
from draftworth.costs.model import FittedModel
from draftworth.errors import UsageError
from draftworth.predict.base import Range
from draftworth.search.bounds import draft_share
from draftworth.search.grid import candidate_of
from draftworth.training import evaluate
from draftworth.training.acceptance import WalkReport
from draftworth.training.base import StageName
from draftworth.training.speedup import (
    SpeedUpAt,
    SpeedUps,
    best_of,
    head_share,
    mode_known,
    notes_of,
    predict_at,
)
from draftworth.training.speedup_lengths import lengths
from draftworth.training.speedup_lines import table, trial_lines, verdict
from draftworth.training.stages import read_manifest, write_manifest
from draftworth.trials.config import ArmConfig

SURE = Range(value=2.5, low=2.5, high=2.5)


def at(model: FittedModel, k: int, length: Range = SURE, **more: tuple[float, float, float]) -> SpeedUpAt:
    (found,) = predict_at(model, {k: length}, share=0.1, context=128, concurrency=1, **more)
    return found


def test_conversations_count_alike_and_not_by_their_tokens() -> None:
    found = lengths([10, 90], {3: [10, 30]})[3]
    # Steps per token 1 and 1 / 3: their mean is 2 / 3. Pooled it would be 100 / 40.
    assert found.value == pytest.approx(1.5)
    assert (found.low, found.high) == (1.0, 4.0)  # two say next to nothing: all that k = 3 can give


def test_one_conversation_has_the_interval_of_all_that_is_possible() -> None:
    assert lengths([10], {2: [5]})[2] == Range(value=2.0, low=1.0, high=3.0)
    assert lengths([], {2: []}) == {}


def test_the_interval_over_many_conversations_is_that_of_a_mean() -> None:
    random = np.random.default_rng(1)
    steps = random.integers(30, 70, 400)
    found = lengths([100] * 400, {3: steps.tolist()})[3]
    mean, error = steps.mean() / 100, steps.std(ddof=1) / 100 / math.sqrt(400)
    assert found.value == pytest.approx(1 / mean)
    assert 1 / found.high == pytest.approx(mean - 1.97 * error, rel=2e-3)
    assert 1 / found.low == pytest.approx(mean + 1.97 * error, rel=2e-3)


def test_without_a_mode_it_is_the_step_and_the_drafting_up_to_what_ngram_adds() -> None:
    model = FittedModel(costs("ngram"))
    found = at(model, 3)
    # T(1, 4) = 15 and three drafts of a tenth of T(1, 1) = 10: 18 / 10. n-gram's mode was measured with k = 7, where it
    # is 4.5; carried to another length it may be 1.4 times that.
    assert found.needed.value == pytest.approx(1.8)
    assert found.needed.high == pytest.approx((15 + 3 + 1.4 * 4.5) / 10)
    assert found.speed_up.value == pytest.approx(2.5 / 1.8)
    assert found.speed_up.low == pytest.approx(2.5 / 2.43)
    assert found.speed_up.high == pytest.approx(2.5 / found.needed.low)
    assert found.possible
    assert found.pays
    assert mode_known(model) == "bounded"


def test_a_measured_mode_has_its_drafter_in_it() -> None:
    model = FittedModel(costs("eagle3"))  # measured with k = 7
    seven, three = at(model, 7), at(model, 3)
    assert seven.needed.value == pytest.approx((T[8] + 4.5) / 10)
    # The mode of the nearest length, less the four tokens that k = 3 does not draft.
    assert three.needed.value == pytest.approx((T[4] + 4.5 - 4 * 1.0) / 10)
    assert mode_known(model) == "measured"
    assert notes_of(model, [seven], 0.1, 128) == (
        "the engine's mode with such a head was measured; its drafter's time is in it",
    )


def test_drafting_beyond_the_measured_lengths_is_added() -> None:
    one = mode("drafting", "eagle3", 4).model_copy(update={"step_ms": T[4] + 4.5, "base_ms": T[4]})
    model = FittedModel(costs().model_copy(update={"modes": (one,)}))
    assert at(model, 3).needed.value == pytest.approx((T[4] + 4.5) / 10)
    assert at(model, 7).needed.value == pytest.approx((T[8] + 4.5 + 4 * 1.0) / 10)


def test_nothing_bounds_a_mode_of_an_engine_nobody_measured() -> None:
    model = FittedModel(costs().model_copy(update={"engine": "other"}))
    found = at(model, 3)
    assert mode_known(model) == "unknown"
    assert found.needed.high == pytest.approx(found.needed.value)
    assert "figures are at best" in notes_of(model, [found], 0.1, 128)[0]


def test_both_intervals_add_up_as_independent_ones() -> None:
    model = FittedModel(costs("ngram"))
    found = at(model, 3, Range(value=2.5, low=2.0, high=3.0))
    assert math.log(found.speed_up.value / found.speed_up.low) == pytest.approx(
        math.hypot(math.log(2.5 / 2.0), math.log(found.needed.high / 1.8))
    )
    assert math.log(found.speed_up.high / found.speed_up.value) == pytest.approx(
        math.hypot(math.log(3.0 / 2.5), math.log(1.8 / found.needed.low))
    )
    assert found.speed_up.high <= 3.0


def test_prefills_of_others_pull_it_towards_one() -> None:
    found = at(FittedModel(costs("ngram")), 3, prefill=(5.0, 0.0, 10.0))
    # (10 + 5) / (10 x 1.8 / 2.5 + 5)
    assert found.speed_up.value == pytest.approx(15 / (7.2 + 5))
    without, most = 10 / 7.2, 20 / 17.2
    needed = 15 / (10 * found.needed.high / 2.5 + 5)
    assert math.log(found.speed_up.value / found.speed_up.low) == pytest.approx(
        math.hypot(math.log(15 / 12.2 / needed), math.log(15 / 12.2 / most))
    )
    assert 1 < found.speed_up.low < most < found.speed_up.value < without < found.speed_up.high


def test_a_head_takes_the_share_of_its_export(tmp_path: Path) -> None:
    target = heads_making.target().write(tmp_path / "target")
    head = heads_making.eagle3().write(tmp_path / "head")
    config = {"method": "eagle3", "model": str(head), "num_speculative_tokens": 3}
    # The files of these heads are of the target's type, and so is the export.
    written = heads_making.eagle3().tensors["fc.weight"].dtype.itemsize
    dtype = {2: "bfloat16", 4: "float32"}[written]
    assert head_share(head, target, dtype) == pytest.approx(draft_share(candidate_of("head", config), target))
    other = {"bfloat16": "float32", "float32": "bfloat16"}[dtype]
    factor = 2.0 if other == "float32" else 0.5
    assert head_share(head, target, other) == pytest.approx(factor * (head_share(head, target, dtype) or 0.0))


def some(*speeds: tuple[int, int, float]) -> list[SpeedUpAt]:
    return [
        SpeedUpAt(
            k=k,
            concurrency=load,
            length=SURE,
            needed=SURE,
            speed_up=Range(value=speed, low=speed * 0.9, high=speed * 1.1),
            possible=True,
            measured=True,
        )
        for k, load, speed in speeds
    ]


def speed_ups(*speeds: tuple[int, int, float]) -> SpeedUps:
    rows = some(*speeds)
    return SpeedUps(
        costs={"file": "costs.json", "engine": "vllm", "version": "0.32.0", "model": None, "machine": "cpu"},
        context=300,
        draft_share=0.1,
        mode="bounded",
        rows=tuple(rows),
        best=best_of(rows),
        categories={"coding": tuple(rows)},
        notes=("careful",),
    )


def test_the_best_k_is_that_of_all_loads_together() -> None:
    found = speed_ups((1, 1, 1.3), (3, 1, 1.6), (1, 4, 1.25), (3, 4, 0.9))
    assert found.best == 1  # 1.3 x 1.25 > 1.6 x 0.9
    assert found.best_at(1).k == 3
    told = table(found)
    assert told[0] == "predicted speed-up, by costs.json (vllm 0.32.0 cpu), at a context of 300 tokens:"
    assert told[3].startswith("   * k = 3: ")
    assert told[3].endswith("1.60 (1.44 to 1.76) times as fast (best)")
    assert "  coding, k = 1: 1.30 (1.17 to 1.43) at 1, 1.25 (1.12 to 1.38) at 4" in told
    assert told[-2] == "  careful"
    assert verdict(found).endswith("times as fast: it pays")


@pytest.mark.parametrize(
    ("speed", "answer"), [(0.8, "it does not pay"), (1.05, "whether it pays at each load cannot be told")]
)
def test_what_does_not_pay_is_said(speed: float, answer: str) -> None:
    assert answer in verdict(speed_ups((3, 1, speed)))


def test_the_closing_lines_hold_an_arm_that_a_trial_takes() -> None:
    found = speed_ups((2, 1, 1.4), (3, 1, 1.2))
    served = {"vllm": {"method": "eagle3", "model": '/runs/my "head"/export', "num_speculative_tokens": 3}}
    told = trial_lines({"speed_up": found.model_dump(mode="json")}, served)
    assert told[0] == "Predicted best k = 2: 1.40 (1.26 to 1.54) at 1 times as fast: it pays."
    (arm,) = tomllib.loads("\n".join(told[2:]))["arms"]
    read = ArmConfig.model_validate(arm)
    assert read.speculative_config == {
        "method": "eagle3",
        "model": '/runs/my "head"/export',
        "num_speculative_tokens": 2,
    }
    without = trial_lines({"speed_up": None, "why_no_speed_up": "not known without costs"}, served)
    assert without[0] == "Predicted speed-up: not known without costs."
    assert "num_speculative_tokens = 3" in without[-1]
    assert trial_lines({}, {}) == []


def test_the_evaluation_walks_once_and_predicts_anew_when_only_the_costs_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, workers = run_folder(tmp_path, monkeypatch, "[eval]\nk = [1, 3]")
    said = Said()
    evaluate.run(recipe, recipe.folder, said)
    assert "predicted speed-up: not known without costs: `draftworth probe URL --out costs.json`" in said.text
    report = evaluate.report_of(recipe.folder)
    assert report.speed_up is None
    assert report.context == 40  # 20 tokens of prompt, 40 of answer
    assert report.conversations is not None
    assert report.conversations.tokens == (39,) * 12
    three = report.at(3)
    assert three is not None
    assert sum(report.conversations.steps[3]) == three.steps
    assert workers.asked == ["walk_worker"]

    path = tmp_path / "costs.json"
    save_costs(costs("eagle3"), path)
    with_costs = recipe.model_copy(
        update={"eval": recipe.eval.model_copy(update={"costs": path, "concurrency": (1, 4)})}
    )
    said = Said()
    manifest = evaluate.run(with_costs, recipe.folder, said)
    assert workers.asked == ["walk_worker"]
    assert "the walk of before stands" in said.text
    speed_up = evaluate.report_of(recipe.folder).speed_up
    assert speed_up is not None
    assert [(one.k, one.concurrency) for one in speed_up.rows] == [(1, 1), (3, 1), (1, 4), (3, 4)]
    each = [39 / steps for steps in report.conversations.steps[3]]
    one = speed_up.at(3, 1)
    assert one is not None
    assert one.length.value == pytest.approx(1 / np.mean([1 / value for value in each]))
    assert one.length.low < one.length.value < one.length.high
    assert set(speed_up.categories) == {"coding", "chat"}
    assert manifest.facts["speed_up"]["best"] == speed_up.best
    # Asked to run again, it walks again.
    evaluate.run(with_costs, recipe.folder, Said())
    assert workers.asked == ["walk_worker"] * 2


def test_another_head_is_walked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, workers = run_folder(tmp_path, monkeypatch)
    evaluate.run(recipe, recipe.folder, Said())
    fit = StageName.FIT.folder(recipe.folder)
    write_manifest(fit, StageName.FIT, inputs={"lr": "2"}, counts={}, facts={}, began=0.0)
    evaluate.run(recipe, recipe.folder, Said())
    assert workers.asked == ["walk_worker"] * 2


def test_costs_that_are_none_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, _ = run_folder(tmp_path, monkeypatch)
    named = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"costs": tmp_path / "gone.json"})})
    with pytest.raises(UsageError, match=r"gone.json: no such file; `draftworth probe URL --out"):
        evaluate.inputs(named, recipe.folder)
    (tmp_path / "gone.json").write_text(Costs(created="2026").model_dump_json(), "utf-8")
    with pytest.raises(UsageError, match="has no points"):
        evaluate.run(named, recipe.folder, Said())
    assert read_manifest(StageName.EVAL.folder(recipe.folder)) is None


def test_reports_of_version_1_are_read() -> None:
    old = {"schema_version": 1, "checkpoint": "fit/3", "samples": 1, "loss_tokens": 9, "first_choices": 9}
    read = WalkReport.model_validate({**old, "total": [], "categories": {}, "device": "cpu"})
    assert read.conversations is None
    assert read.speed_up is None
