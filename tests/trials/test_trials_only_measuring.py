"""What only measures cannot lose a trial: it hangs, fails, has a bug, and verdict, restore and record are whole."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import original, wait_for
from tests.trials.conftest import NGRAM, QUICK, Case

from draftworth.findings import Code
from draftworth.trials.downtime import Downtime
from draftworth.trials.measure import measure_block
from draftworth.trials.pace import Pace
from draftworth.trials.probing import sizes_of
from draftworth.trials.scoring import score_all
from draftworth.trials.steps import Kind, Step

pytestmark = pytest.mark.usefixtures("short")
DIAGNOSTICS = '[verdict]\ndiagnostics = ["{}"]\n'
SHORT = "start_timeout_s = 600\nstop_timeout_s = 2\ndowntime_s = 14"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after seconds. Without it the tests of what hangs take as long as `downtime_s` leaves, and pass too."""
    monkeypatch.setattr("draftworth.trials.only_measuring.LEAST_S", 2.0)


def about(record: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [found for found in record["findings"] if found["code"] == code]


def whole(case: Case, record: dict[str, Any]) -> None:
    """Assert that nothing of the trial is lost."""
    assert record["verdict"] == "faster", record["reason"]
    assert record["restored"]
    assert record["error"] is None
    assert [one["name"] for one in record["arms"] if one["starts"]][:2] == ["baseline", "ngram-5"]
    assert len(next(one for one in record["arms"] if one["name"] == "baseline")["starts"]) == 2
    case.nothing_left()


def test_a_null_draft_that_never_gets_ready_is_given_up_in_time(case: Case) -> None:
    case.write({**QUICK, "hang_null_draft": True}, extra=DIAGNOSTICS.format("null-draft"), limits=SHORT)
    record = case.run().json
    whole(case, record)
    (found,) = about(record, "diagnostic_failed")
    assert found["arm"] == "null-draft"
    assert "its time was up" in found["message"]
    assert next(one for one in record["arms"] if one["name"] == "null-draft")["given_up"]
    assert [one["arm"] for one in record["comparisons"]] == ["ngram-5"]


def test_a_profiler_that_never_stops_is_given_up_in_time(case: Case) -> None:
    case.write({**QUICK, "profiler": "hangs"}, extra=DIAGNOSTICS.format("profile"), limits=SHORT)
    record = case.run().json
    whole(case, record)
    hung, *_ = about(record, "not_profiled")
    assert hung["arm"] == "profile-baseline"
    assert "POST /stop_profile: no answer" in hung["message"]
    # The second had no room left, or hung as well: both are said.
    told = about(record, "not_profiled") + about(record, "diagnostic_failed")
    assert {one["arm"] for one in told} == {"profile-baseline", "profile-ngram-5"}


def test_the_running_original_is_back_too(case: Case) -> None:
    case.write({**QUICK, "hang_null_draft": True}, extra=DIAGNOSTICS.format("null-draft"), limits=SHORT)
    with original(case.original_command(), case.port, case.folder):
        began = time.monotonic()
        record = case.run().json
        assert record["verdict"] == "faster", record["reason"]
        assert record["restored"]
        assert about(record, "diagnostic_failed")
        assert time.monotonic() - began < 40


def test_one_that_does_not_fit_is_not_begun(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftworth.trials.only_measuring._LIKELY", 1e5)
    record = case.write(extra=DIAGNOSTICS.format("null-draft")).run().json
    whole(case, record)
    (found,) = about(record, "diagnostic_failed")
    assert "was left out: it would take about" in found["message"]
    assert not case.reached("start-null-draft")
    assert next(one for one in record["arms"] if one["name"] == "null-draft")["given_up"]


def test_what_is_kept_back_is_what_the_steps_so_far_say() -> None:
    def step(kind: Kind, arm: str = "") -> Step:
        return Step(f"01-{kind}-{arm}", kind, arm)

    pace = Pace(hold_s=100.0)
    for kind, arm, seconds in (
        (Kind.START, "baseline", 10.0),
        (Kind.MEASURE, "baseline", 20.0),
        (Kind.STOP, "baseline", 1.0),
        (Kind.START, "ngram", 12.0),
        (Kind.MEASURE, "ngram", 8.0),
        (Kind.STOP, "ngram", 2.0),
    ):
        pace.took(step(kind, arm), seconds)
    again = [step(Kind.START, "baseline"), step(Kind.MEASURE, "baseline"), step(Kind.SCORE, "baseline")]
    end = [step(Kind.STOP, "baseline"), step(Kind.RESTORE)]
    # Nothing ran before: a start, a measurement, scores taken for as long, a stop.
    assert pace.keep_back([*again, *end], running=False) == pytest.approx(1.25 * (10 + 20 + 20 + 1))
    # The original comes back (a start of the longest seen); what is measured on it then takes nothing from anybody,
    # and the next round stops it again.
    back = [step(Kind.RESTORE), step(Kind.MEASURE, "baseline"), step(Kind.LOOK)]
    more = [step(Kind.STOP_ORIGINAL), step(Kind.START, "ngram"), step(Kind.HOLD, "ngram"), step(Kind.RESTORE)]
    assert pace.keep_back(back, running=True) == pytest.approx(1.25 * 12)
    assert pace.keep_back([*back, *more], running=True) == pytest.approx(1.25 * (12 + 2 + 12 + 100 + 12))
    assert (pace.longest(Kind.START), pace.longest(Kind.PROFILE)) == (12.0, 0.0)


def test_a_bug_in_its_measurement_is_a_finding_with_its_traceback(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(block: Any, *arguments: Any, **options: Any) -> None:
        if block.arm == "null-draft":
            raise ZeroDivisionError("a bug")
        measure_block(block, *arguments, **options)

    monkeypatch.setattr("draftworth.trials.execute.measure_block", broken)
    record = case.write(extra=DIAGNOSTICS.format("null-draft")).run().json
    whole(case, record)
    (found,) = about(record, "diagnostic_failed")
    assert "ZeroDivisionError: a bug" in found["message"]
    kept = (case.trials()[-1] / "diagnostics-failed.txt").read_text()
    assert "in broken" in kept
    assert "ZeroDivisionError: a bug" in kept


@pytest.mark.parametrize("where", ["draftworth.costs.probe.probe", "draftworth.costs.subject.subject"])
def test_a_bug_in_the_probe_is_a_finding(case: Case, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(where, broken)
    record = case.write(extra=DIAGNOSTICS.format("probe")).run().json
    whole(case, record)
    assert "ZeroDivisionError: a bug" in about(record, "not_probed")[0]["message"]
    assert "in broken" in (case.trials()[-1] / "diagnostics-failed.txt").read_text()


def test_a_bug_in_profiling_is_a_finding(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("draftworth.trials.profiling.bounded", broken)
    record = case.write(extra=DIAGNOSTICS.format("profile")).run().json
    whole(case, record)
    assert all("ZeroDivisionError: a bug" in one["message"] for one in about(record, "diagnostic_failed"))


def test_ctrl_c_in_the_probe_restores_the_service(case: Case) -> None:
    case.write({**QUICK, "token_ms": 20.0}, extra=DIAGNOSTICS.format("probe"))
    with original(case.original_command(), case.port, case.folder) as pid:
        process = case.start("trial", "run", str(case.file), "--json")
        wait_for(lambda: case.reached("probe-baseline"), what="the probe has begun")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        record = json.loads(out)
        assert process.returncode == 6, err
        assert "interrupted" in record["error"]
        assert record["restored"]
        assert f"pid {pid}" in record["restore"], "it was never stopped"
        assert not case.reached("stop-original")


def test_the_probe_is_a_step_of_the_plan_with_what_it_sends(case: Case) -> None:
    case.write(extra="concurrency = 8\n" + DIAGNOSTICS.format("probe"), flags=["--max-num-seqs", "12"])
    steps = case.cli("trial", "plan", str(case.file), "--json").json["steps"]
    names = [one["id"] for one in steps]
    assert names[:4] == ["01-start-baseline", "02-measure-baseline", "03-probe-baseline", "04-stop-baseline"]
    text = next(one["about"] for one in steps if "probe" in one["id"])
    assert "up to 45 s" in text
    assert "up to 12 streams" in text
    assert "requests" in text


def test_its_sizes_are_capped_and_what_was_asked_is_among_them() -> None:
    assert sizes_of([1], [NGRAM]) == (1, 2, 4, 6)
    assert sizes_of([8], [NGRAM]) == (1, 2, 4, 8, 16, 32, 48)
    assert sizes_of([8, 64], [NGRAM])[-1] == 64
    assert sizes_of([8], [NGRAM], seats=12) == (1, 2, 4, 8, 12)
    assert sizes_of([128], [None], seats=256)[-1] == 64
    assert sizes_of([], []) == (1, 2)


def test_the_longest_absence_is_without_what_only_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("draftworth.trials.downtime.time.monotonic", lambda: now)
    clock = Downtime(100.0, running=True)
    clock.away()
    now += 60.0
    clock.aside(40.0)
    clock.back()
    assert clock.longest_s == 20.0
    assert clock.left_s == 40.0
    assert clock.too_short() is None, "a round takes 20 s and 40 are left"


def test_diagnostics_take_nothing_from_the_output_check(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[str] = []

    def spied(target: Any, rows: Any, **options: Any) -> Any:
        scored.extend(rows)
        return score_all(target, rows, **options)

    monkeypatch.setattr("draftworth.trials.score_step.score_all", spied)
    record = case.write(extra=DIAGNOSTICS.format("null-draft")).run().json
    whole(case, record)
    assert scored == ["baseline", "ngram-5"]
    assert record["comparison"]["output_check"]["status"] == "same"
    null = next(one for one in record["comparisons"] if one["arm"] == "null-draft")
    assert null["output_check"]["status"] == "unchecked"
    assert "only measures" in null["output_check"]["reason"]
    assert not about(record, "output_unchecked"), "it was not meant to be checked"


def test_the_folder_says_nothing_of_bugs_where_there_were_none(case: Case) -> None:
    case.write(extra=DIAGNOSTICS.format("null-draft")).run()
    folder: Path = case.trials()[-1]
    assert not (folder / "diagnostics-failed.txt").exists()
    assert Code.DIAGNOSTIC_FAILED.value not in (folder / "trial.json").read_text()
