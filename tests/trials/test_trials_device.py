"""What a trial's servers ran on: as the log told it, kept in the record; of older records by their priors."""

import pytest
from tests.reports.reports_trials import comparison, record

from draftworth.engines.base import StartupFacts
from draftworth.trials.base import Block
from draftworth.trials.config import CommonConfig
from draftworth.trials.device import device_of
from draftworth.trials.outcome import _arm
from draftworth.trials.record import ArmRecord, TrialRecord
from draftworth.trials.remarks import ArmInfo
from draftworth.verdicts.base import Interval, Verdict


@pytest.mark.parametrize(
    ("told", "machine", "kept"),
    [("cuda", None, "cuda"), (None, "cpu", "cpu"), ("cuda", "cpu", "cuda"), (None, None, None)],
)
def test_a_record_keeps_what_the_verdict_took(told: str | None, machine: str | None, kept: str | None) -> None:
    facts = StartupFacts(device=told, config={"device_config": told} if told else {})
    block = Block(arm="ngram-3", number=1, facts=facts)
    found = _arm(ArmInfo(name="ngram-3", device=machine), [block], CommonConfig(), given_up=False)
    assert found.device == kept


def test_an_arm_that_does_not_tell_is_on_its_baselines_device() -> None:
    arms = (ArmRecord(name="baseline", engine="vllm", device="cpu"), ArmRecord(name="ngram-5", engine="vllm"))
    found = record(("ngram-5",), arms=arms)
    assert (device_of(found), device_of(found, "ngram-5")) == ("cpu", "cpu")


def older(stated: str, **rules: float) -> TrialRecord:
    """A record of an earlier version whose comparison was made with this restart spread, one start of each arm."""
    ratio = Interval(
        estimate=1.0, low=0.9, high=1.1, method=f"clustered bootstrap over 8 prompts; restart sd {stated} %"
    )
    found = comparison("ngram-5", 1.0, Verdict.NO_DIFFERENCE).model_copy(update={"tpot_ratio": ratio})
    return record(("ngram-5",), comparisons=(found,), config={"verdict": rules})


@pytest.mark.parametrize(("stated", "device"), [("11", "cpu"), ("8", None), ("5", None)])
def test_an_older_record_tells_a_cpu_by_the_priors_of_its_comparison(stated: str, device: str | None) -> None:
    """By hand: hypot(7, 8) is 10.6 %, which is written as 11, and hypot(0.6, 8) is 8.02 %."""
    assert device_of(older(stated)) == device


def test_a_spread_that_the_file_states_tells_no_device() -> None:
    assert device_of(older("11", restart_sd_baseline=0.07)) is None
