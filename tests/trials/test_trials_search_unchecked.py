"""What an interrupted search left unchecked: scored by the one that goes on with it, and judged as if it had been."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from draftworth.bench.base import RequestRow, ScoredOutput
from draftworth.bench.rows import write_rows
from draftworth.findings import Code, find
from draftworth.trials.base import Block, Outcome, Scores
from draftworth.trials.config import TrialConfig
from draftworth.trials.record import ArmComparison, TrialRecord, write
from draftworth.trials.remarks import ArmInfo
from draftworth.trials.score_step import _outputs
from draftworth.trials.search_unchecked import check_again, unchecked
from draftworth.verdicts.base import Interval, OutputCheck, Verdict

if TYPE_CHECKING:
    from draftworth.trials.execute import Execution

FIRST = "20261201-010203"
SPEED = "TPOT 2.00 → 1.00 ms (ratio 0.5): the whole interval lies below 1"
LEFT = ArmComparison(
    arm="draft-3",
    verdict=Verdict.INCONCLUSIVE,
    reason=f"faster, but the output was not checked: it was interrupted. Measured speed: {SPEED}",
    tpot_ratio=Interval(estimate=0.5, low=0.4, high=0.6),
    output_check=OutputCheck(status="unchecked", reason="it was interrupted"),
)


def config(**verdict: Any) -> TrialConfig:
    arm = {"name": "draft-3", "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}
    service = {"type": "process", "command": ["serve", "{speculative_args}"], "port": 1}
    return TrialConfig.model_validate({"service": service, "arms": [arm], "verdict": verdict})


def answers(arm: str) -> list[RequestRow]:
    told: dict[str, Any] = {"category": "c", "repeat": 0, "started_unix": 1.0, "ok": True}
    return [
        RequestRow(arm=arm, block=1, prompt_id=f"p{at}", prompt_token_ids=(1, 2), token_ids=(3, at), **told)
        for at in range(4)
    ]


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path))
    folder = tmp_path / "trials" / FIRST
    folder.mkdir(parents=True)
    write_rows([*answers("baseline"), *answers("draft-3")], folder)
    return folder


def kept(folder: Path, *codes: Code) -> None:
    """Write the record of the first trial, with these findings about its arm."""
    found = tuple(find(code, "x", arm="draft-3") for code in codes)
    told: dict[str, Any] = {"draftworth": "0.1.0", "created": "2026-12-01T01:02:03Z", "restored": True}
    write(TrialRecord(id=FIRST, verdict=Verdict.ERROR, reason="interrupted", findings=found, **told), folder)


def again(gap: float) -> ArmComparison:
    """Return the comparison once outputs were scored; the setting's worst token has this gap, in nats."""
    rows = unchecked({"draft-3": (FIRST, LEFT)}, config())
    gaps = {"baseline": 0.1, "draft-3": gap}
    scores = {
        arm: [ScoredOutput(f"p{at}", arm, (0.0,) * 99 + (worst,), 100) for at in range(4)]
        for arm, worst in gaps.items()
    }
    found = check_again({"draft-3": (FIRST, LEFT)}, rows, Outcome(scores=Scores(by_arm=scores)), config())
    assert found["draft-3"][0] == FIRST
    return found["draft-3"][1]


def test_the_answers_are_those_of_the_first_trial(first: Path) -> None:
    del first
    found = unchecked({"draft-3": (FIRST, LEFT)}, config())
    assert [(one.arm, tuple(one.token_ids)) for one in found["draft-3"]] == [("draft-3", (3, at)) for at in range(4)]


def test_what_was_checked_or_cannot_be_or_is_gone_is_left(first: Path) -> None:
    same = LEFT.model_copy(update={"output_check": OutputCheck(status="same", reason="")})
    assert unchecked({"draft-3": (FIRST, same)}, config()) == {}
    assert unchecked({"draft-3": (FIRST, LEFT)}, config(output_check=False)) == {}
    sampled = config().model_copy(update={"workload": config().workload.model_copy(update={"temperature": 0.8})})
    assert unchecked({"draft-3": (FIRST, LEFT)}, sampled) == {}
    (first / "requests.parquet").write_bytes(b"no parquet")
    assert unchecked({"draft-3": (FIRST, LEFT)}, config()) == {}
    assert unchecked({"draft-3": ("20200101-000000", LEFT)}, config()) == {}
    assert check_again({"draft-3": (FIRST, LEFT)}, {}, Outcome(), config()) == {"draft-3": (FIRST, LEFT)}


def test_what_is_measured_anew_is_checked_by_its_new_answers() -> None:
    new = Block("draft-3", 2, 1, check_rows=[replace(one, text="new") for one in answers("draft-3")])
    outcome = Outcome(blocks=[new], unchecked={"draft-3": answers("draft-3")})
    run = SimpleNamespace(outcome=outcome, arms=[ArmInfo("baseline"), ArmInfo("draft-3", speculates=True)])
    (rows,) = _outputs(cast("Execution", run)).values()
    assert {one.text for one in rows} == {"new"}


def test_with_the_same_output_it_is_what_was_measured(first: Path) -> None:
    kept(first)
    told = again(gap=0.1)
    assert (told.verdict, told.reason) == (Verdict.FASTER, SPEED)
    assert told.output_check is not None
    assert told.output_check.status == "same"


def test_a_wrong_output_is_an_error_however_fast(first: Path) -> None:
    kept(first)
    assert again(gap=20.0).verdict is Verdict.ERROR


def test_what_weakens_it_still_does(first: Path) -> None:
    kept(first, Code.CLIENT_SATURATED)
    told = again(gap=0.1)
    assert told.verdict is Verdict.INCONCLUSIVE
    assert told.reason.startswith("faster, but the client could not keep up")
