"""A baseline that changed during the trial is in every interval, and no cause is named where it can be all."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.explain.test_explain_inputs import ARMS
from tests.explain.test_explain_trial import costs
from tests.predict.simulated_trial import simulated

from draftworth.explain.base import Account, Part
from draftworth.explain.drift import Drift, drift_of
from draftworth.explain.whole import explain_trial
from draftworth.explain.words import main_cause
from draftworth.predict.base import Range
from draftworth.trials.record import read

ARM = "ngram-3"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("home") / "trials" / "20260101-000000", ARMS, 12)


def recorded(made: Path, folder: Path, drift: dict[str, Any] | None, arm: str) -> Path:
    """The trial, where a comparison of `arm` says that the baseline drifted."""
    shutil.copytree(made, folder)
    record = json.loads((folder / "trial.json").read_text())
    record["comparisons"] = [
        {"arm": arm, "pairs": 12, "verdict": "slower", "reason": "", "drift": drift, "tpot_ratio": {"estimate": 1.2}}
    ]
    (folder / "trial.json").write_text(json.dumps(record))
    return folder


def drifted(made: Path, folder: Path, drift: dict[str, Any] | None, arm: str = ARM) -> Account:
    """The account of a variant."""
    folder = recorded(made, folder, drift, arm)
    return next(one for one in explain_trial(folder, costs()).accounts if one.arm == ARM)


def test_drift_is_said_and_widens_every_part(made: Path, tmp_path: Path) -> None:
    plain = drifted(made, tmp_path / "a", None)
    found = drifted(made, tmp_path / "b", {"estimate": 1.04, "low": 1.03, "high": 1.05})
    # By hand: of two baselines a and 1.04 a with the mean m, one is 2 m 0.04 / 2.04 above the other.
    assert found.drift_ms == pytest.approx(2 * found.baseline_ms * 0.04 / 2.04)
    assert abs(found.difference.value) > found.drift_ms
    assert "the baseline took 1.040 times as long (1.030 to 1.050)" in found.main_cause
    assert "switching speculation on adds" in found.main_cause
    for one, other in zip(found.parts, plain.parts, strict=True):
        assert one.ms.value == other.ms.value
        assert one.ms.high - one.ms.low > other.ms.high - other.ms.low, one.cause
    # An arm's own time tells the mode, so all of the drift may be in it.
    assert found.parts[0].ms.high - found.parts[0].ms.value > found.drift_ms
    assert found.difference.high - found.difference.value > found.drift_ms
    assert (plain.drift, plain.drift_ms) == (None, 0.0)


def test_no_cause_is_named_where_drift_can_be_all_of_it(made: Path, tmp_path: Path) -> None:
    plain = drifted(made, tmp_path / "a", None)
    ratio = 1 + 2 * abs(plain.difference.value) / plain.baseline_ms
    found = drifted(made, tmp_path / "b", {"estimate": ratio, "low": ratio - 0.01, "high": ratio + 0.01}, "null-draft")
    assert "No cause can be named" in found.main_cause
    assert "can be all of the difference" in found.main_cause
    assert "switching" not in found.main_cause
    assert "it may be nothing" in found.main_cause
    assert (found.of_difference, found.assigned) == (None, None)


@pytest.mark.parametrize(
    ("drift", "ratio"),
    [
        ({"estimate": 1.02, "low": 0.99, "high": 1.05}, None),
        ({"estimate": 1.02, "low": 1.01, "high": 1.03}, 1.02),
        ({"estimate": 0.98, "low": 0.97, "high": 0.99}, 0.98),
        ({"estimate": 1.05, "low": 0.9, "high": 1.2}, 1.05),
        ({"estimate": 1.02}, None),
        ({"estimate": 1.05}, 1.05),
    ],
)
def test_drift_counts_beyond_its_interval_or_a_few_percent(
    made: Path, tmp_path: Path, drift: dict[str, Any], ratio: float | None
) -> None:
    record = read(recorded(made, tmp_path / "a", drift, ARM))
    found = drift_of(record, ARM)
    assert (None if found is None else found.ratio.value) == ratio
    assert drift_of(record, "null-draft") == found, "the baseline is the same"


def test_a_drift_below_a_percent_is_in_the_intervals_and_not_worth_a_word(made: Path, tmp_path: Path) -> None:
    found = drifted(made, tmp_path / "a", {"estimate": 0.997, "low": 0.996, "high": 0.998})
    assert found.drift_ms == pytest.approx(2 * found.baseline_ms * 0.003 / 1.997)
    assert "times as long" not in found.main_cause
    assert "drift" not in found.main_cause


def test_where_it_can_be_all_of_a_tiny_difference_it_is_named_however_small() -> None:
    drift = Drift(Range(value=0.997, low=0.996, high=0.998))
    rest = Part(cause="rest", ms=Range(value=0.01, low=-0.1, high=0.1))
    words = main_cause("ngram-3", 1, 10.0, Range(value=0.01, low=-0.1, high=0.1), [rest], drift=drift)
    assert "No cause can be named: the baseline took 0.997 times as long" in words
