"""The remaining time is known from the first step on, once a trial of the same service was run."""

from tests.helpers import original
from tests.trials.conftest import Case

from draftworth.trials.history import typical_seconds
from draftworth.trials.prepare import prepare


def test_an_earlier_trial_tells_what_each_kind_of_step_takes(case: Case) -> None:
    case.write()
    assert typical_seconds(prepare(case.file).plan) == {}
    case.run()
    seconds = typical_seconds(prepare(case.file).plan)
    assert set(seconds) >= {"start", "measure", "score", "stop", "restore"}
    assert 0.2 < seconds["start"] < 15
    again = case.cli("trial", "run", str(case.file))
    assert "left" in again.err.splitlines()[0], "said with the very first step"


def test_it_is_known_with_a_running_original_too(case: Case) -> None:
    case.write()
    with original(case.original_command(), case.port, case.folder):
        case.run()
        seconds = typical_seconds(prepare(case.file).plan)
        assert set(seconds) >= {"stop-original", "start", "measure", "score", "stop", "restore"}
        assert seconds["restore"] > 0.2


def test_another_service_tells_nothing(case: Case) -> None:
    case.write().run()
    case.write(flags=["--max-model-len", "512"])
    assert typical_seconds(prepare(case.file).plan) == {}
