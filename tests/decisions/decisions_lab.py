"""A home folder with real and edited trials, for the tests of decisions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from tests.helpers import Result, run_cli

from draftworth import cli
from draftworth.trials.record import TrialRecord

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "benchmarks" / "data" / "demo_trial"
ARMS = ROOT / "benchmarks" / "data" / "prediction" / "h200-smollm2-a" / "all-1"
"""A trial of an H200 with null-draft, synthetic and four n-gram arms."""
VERBS = {
    "decide": ("draftworth.cli.decide:decide", "A decision record from a trial."),
    "decisions": ("draftworth.cli.decisions:app", "The options tree."),
}


def demo() -> dict[str, Any]:
    """Return the demo trial's record: n-gram on a CPU, ratio 0.750 (0.565 to 0.950), faster."""
    found: dict[str, Any] = json.loads((DEMO / "trial.json").read_text(encoding="utf-8"))
    return found


def edited(
    verdict: str = "faster",
    ratio: tuple[float, float, float] = (0.75, 0.565, 0.95),
    *,
    trial: str = "20261201-100000",
    version: str = "0.32.0",
    findings: list[Mapping[str, Any]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the demo's record with another verdict, ratio, id and version."""
    data = demo()
    interval = {"estimate": ratio[0], "low": ratio[1], "high": ratio[2], "confidence": 0.95, "method": "edited"}
    day = f"{trial[:4]}-{trial[4:6]}-{trial[6:8]}T{trial[9:11]}:{trial[11:13]}:{trial[13:15]}Z"
    reason = f"ratio {ratio[0]}, {ratio[1]} to {ratio[2]}"
    data |= {"id": trial, "created": day, "verdict": verdict, "reason": reason}
    for one in [data["comparison"], *data["comparisons"]]:
        one |= {"tpot_ratio": interval, "verdict": verdict, "reason": reason}
    for arm in data["arms"]:
        arm["version"] = version
        # The interval's own method, which tells a CPU's restarts, is gone.
        arm["device"] = "cpu"
    data["findings"] = [] if findings is None else findings
    return data | more


def record(data: Mapping[str, Any]) -> TrialRecord:
    return TrialRecord.model_validate(data)


def keep(home: Path, data: Mapping[str, Any]) -> Path:
    """Put a trial's record into a home folder. Returns the trial's folder."""
    folder = home / "trials" / str(data["id"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trial.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def run(home: Path, *words: object) -> Result:
    """Run the command line on a home folder."""
    with mock.patch.dict(cli._VERBS, VERBS):
        return run_cli(*words, env={"DRAFTWORTH_HOME": str(home)})


def tree(home: Path, text: str) -> Path:
    """Write a tree. Returns its folder."""
    folder = home / "decisions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tree.toml").write_text(text, encoding="utf-8")
    return folder
