"""What only measured changes no verdict, and what comes behind a trial's record: traces, account, page, Ctrl-C."""

import gzip
import json
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving
from tests.helpers import wait_for
from tests.trials.conftest import NGRAM, QUICK, Case
from tests.trials.test_trials_endpoints import write
from tests.trials.test_trials_outcome import block, config_of, record_of

from draftworth.findings import Code, find
from draftworth.services.base import Observed, ProcessId, Running
from draftworth.trials import only_measuring
from draftworth.trials.explaining import FAILED, PAGE, explain_and_draw
from draftworth.trials.judge import arms_of, decided
from draftworth.trials.profiling import kept, read_taken
from draftworth.trials.record import read
from draftworth.trials.steps import Kind, Step
from draftworth.verdicts.base import Verdict

BLOCKS = (("baseline", 1, 1.0), ("ngram", 2, 0.5), ("null-draft", 3, 0.9), ("baseline", 4, 1.0))


def with_null() -> tuple[Any, list[Any]]:
    return config_of(diagnostics=["null-draft"]), [block(*one) for one in BLOCKS]


def test_what_befell_a_server_that_only_measured_weakens_no_candidate() -> None:
    config, blocks = with_null()
    blocks[2].findings.append(find(Code.FOREIGN_REQUESTS, "null-draft: 9 of theirs", arm="null-draft"))
    found = record_of(blocks, config)
    assert found.verdict is Verdict.FASTER, found.reason
    assert {one.verdict for one in found.categories} <= {Verdict.FASTER}
    null = next(one for one in found.comparisons if one.arm == "null-draft")
    assert null.verdict is Verdict.INCONCLUSIVE, "its own comparison is weakened"
    assert any(one.code is Code.FOREIGN_REQUESTS for one in found.findings), "and it is told"
    arms = arms_of(config, {arm.name: () for arm in (config.baseline, *config.variants)})
    assert decided(blocks, arms, config, look=1, looks=2)
    blocks[1].findings.append(find(Code.FOREIGN_REQUESTS, "ngram: 9 of theirs", arm="ngram"))
    assert record_of(blocks, config).verdict is Verdict.INCONCLUSIVE
    assert not decided(blocks, arms, config, look=1, looks=2)


def test_an_arm_that_was_given_up_is_marked_and_compared_with_nothing() -> None:
    config, blocks = with_null()
    found = record_of(blocks, config, given_up={"null-draft"})
    assert [one.arm for one in found.comparisons] == ["ngram"]
    assert {arm.name: arm.given_up for arm in found.arms} == {"baseline": False, "ngram": False, "null-draft": True}
    assert found.arms[2].requests == 10, "what it answered is kept"


def test_giving_an_arm_up_ends_its_own_process_and_no_other() -> None:
    def running(pid: int, arm: str) -> Running:
        leader = ProcessId(pid=pid, started=1, boot="b")
        return Running(leader=leader, session=pid, mark=f"t/x/{arm}", log=Path("log"))

    null, last = running(1, "04-start-null"), running(2, "06-start-other")
    stray = ProcessId(pid=9, started=1, boot="b")
    stopped: list[int] = []
    cleared: list[int] = []

    def stop(one: Running, _tell: object) -> Sequence[str]:
        stopped.append(one.leader.pid)
        return ()

    def clear(_started: object, marked: Sequence[ProcessId], _tell: object) -> Sequence[str]:
        cleared.extend(one.pid for one in marked)
        return ()

    @contextmanager
    def step(*_: object, **__: object) -> Any:
        yield {}

    run: Any = SimpleNamespace(
        observed=Observed(running=False),
        marks={"null": null.mark, "other": last.mark, "unborn": "t/x/08-start-unborn"},
        started={one.leader: one for one in (null, last)},
        service=SimpleNamespace(
            refresh=lambda one: one,
            stop=stop,
            clear=clear,
            find_marked=lambda mark: [stray] if mark.endswith("unborn") else [],
        ),
        journal=SimpleNamespace(step=step),
        progress=SimpleNamespace(now=lambda _: None),
    )
    only_measuring._end(run, Step("05-measure-null", Kind.MEASURE, "null"))
    assert (stopped, cleared) == ([1], [])
    only_measuring._end(run, Step("08-start-unborn", Kind.START, "unborn"))
    assert (stopped, cleared) == ([1], [9]), "one whose start failed is known by its mark alone"
    only_measuring._end(run, Step("10-start-never", Kind.START, "never"))
    assert (stopped, cleared) == ([1], [9])


def test_between_endpoints_the_probe_is_the_last_step(case: Case) -> None:
    with (
        serving(Script(token_ms=3.0, tokens=24)) as one,
        serving(Script(token_ms=1.5, tokens=24), speculative_config=NGRAM) as other,
    ):
        write(case, one.base_url, [("spec", other.base_url)], extra='[verdict]\ndiagnostics = ["probe"]\n')
        told = case.cli("trial", "plan", str(case.file)).out
        assert "probe-baseline: probe what a step of the baseline costs: up to 45 s, up to 2 streams" in told
        steps = case.cli("trial", "plan", str(case.file), "--json").json["steps"]
        assert steps[-1]["id"].endswith("-probe-baseline")
        assert steps[-2]["id"].endswith("-score")
        began = len(one.requests)
        record = case.run().json
        assert record["verdict"] == "faster"
        assert (case.trials()[-1] / "costs.json").exists()
        sent = one.requests[began:]
        scores = [at for at, (_, body) in enumerate(sent) if "prompt_logprobs" in body]
        probes = [at for at, (path, body) in enumerate(sent) if path == "/v1/completions" and body.get("stream")]
        assert scores
        assert probes
        assert all("chat" in path for path, _ in sent[: min(scores)]), "the parts, and nothing else, come first"
        assert max(scores) < min(probes)


# --- behind the record


@pytest.fixture
def explained(case: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.delenv("DRAFTWORTH_PAGE")
    case.env.pop("DRAFTWORTH_PAGE")
    return case


def test_a_trial_that_did_not_end_gets_the_account_of_what_it_has(explained: Case) -> None:
    # Of two variants the second does not start.
    arms: list[tuple[str, Mapping[str, Any] | None]] = [("good", NGRAM), ("null", {**NGRAM, "prompt_lookup_min": 60})]
    script = {**QUICK, "hang_null_draft": True}
    limits = "start_timeout_s = 4\nstop_timeout_s = 2"
    result = explained.write(script, arms=arms, limits=limits).run()
    assert result.code == 6, result.err
    record = result.json
    folder = explained.trials()[-1]
    assert record["verdict"] == "error"
    found = json.loads((folder / "explained.json").read_text())
    assert [one["arm"] for one in found["accounts"]] == ["good"]
    assert found["left_out"][0].startswith("the trial did not end (")
    assert found["summary"].startswith(("Of what was measured before the trial ended: ", "The trial did not end "))
    assert (folder / PAGE).exists()


def test_ctrl_c_while_it_is_explained_ends_that_at_once_with_the_record_whole(
    explained: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_folder: Path) -> None:
        assert (explained.trials()[-1] / "trial.json").exists(), "the record is written before"
        locks = list((explained.folder / "locks").glob("port-*.lock"))
        assert [one.read_text() for one in locks] == [""], "nobody holds the service any more"
        signal.raise_signal(signal.SIGINT)
        time.sleep(30)

    monkeypatch.setattr("draftworth.explain.whole.explain_trial", endless)
    result = explained.write().run()
    folder = explained.trials()[-1]
    assert result.code == 0
    assert result.json["verdict"] == "faster"
    assert read(folder).verdict is Verdict.FASTER
    assert "ended by Ctrl-C" in (folder / FAILED).read_text()
    assert not (folder / PAGE).exists()


def test_ctrl_c_ends_it_also_where_one_ended_the_trial(explained: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    explained.write().run()
    folder = explained.trials()[-1]

    def endless(_folder: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(30)

    monkeypatch.setattr("draftworth.explain.whole.explain_trial", endless)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        told = explain_and_draw(read(folder), folder, again=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert told.cause == ""


def test_a_trial_that_was_killed_gets_a_page_from_whoever_restores_it(explained: Case) -> None:
    explained.write({**QUICK, "token_ms": 20.0})
    process = explained.start("trial", "run", str(explained.file))
    wait_for(lambda: explained.reached("measure-baseline"), what="it measures")
    process.kill()
    process.communicate()
    folder = explained.trials()[-1]
    wait_for(lambda: (folder / PAGE).exists() or (folder / FAILED).exists(), 30, what="the guard draws the page")
    assert not (folder / FAILED).exists(), (folder / FAILED).read_text()
    assert "process died before it was complete" in (folder / PAGE).read_text()
    assert read(folder).restored
    explained.nothing_left()


def test_a_signal_right_behind_the_trial_takes_nothing_away(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("draftworth.trials.run.with_page", interrupted)
    with suppress(KeyboardInterrupt):
        case.write().run()
    assert read(case.trials()[-1]).verdict is Verdict.FASTER


# --- profiles


def test_traces_are_read_behind_the_trial_once(tmp_path: Path) -> None:
    traces = tmp_path / "profiles" / "profile-baseline"
    traces.mkdir(parents=True)
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7}
    with gzip.open(traces / "rank0.pt.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": [kernel, {**kernel, "ts": 5.0}]}, file)
    assert kept(tmp_path, "profile-baseline") is None, "the profiler was not stopped in order"
    (tmp_path / "profiles" / "profile-baseline.taken.json").write_text('{"tokens": 4}')
    assert read_taken(tmp_path) == []
    found = kept(tmp_path, "profile-baseline")
    assert found is not None
    assert (tmp_path / "profiles" / "profile-baseline.json").exists()


def test_a_bug_in_reading_a_trace_is_a_finding_and_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "profiles" / "profile-a").mkdir(parents=True)
    (tmp_path / "profiles" / "profile-a.taken.json").write_text('{"tokens": 4}')

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("draftworth.profiles.read.read_profile", broken)
    (found,) = read_taken(tmp_path)
    assert found.code is Code.NOT_PROFILED
    assert "ZeroDivisionError: a bug" in found.message
    assert "in broken" in (tmp_path / "diagnostics-failed.txt").read_text()
    assert read_taken(tmp_path) == []
    assert kept(tmp_path, "profile-a") is None


def test_what_a_profile_could_not_tell_is_in_the_record(explained: Case) -> None:
    explained.write({**QUICK, "profiler": "works"}, extra='[verdict]\ndiagnostics = ["profile"]\n')
    record = explained.run().json
    assert record["verdict"] == "faster"
    told = [one["arm"] for one in record["findings"] if one["code"] == "not_profiled"]
    assert told == ["profile-baseline", "profile-ngram-5"], "the profiler wrote no trace"
    assert [one.arm for one in read(explained.trials()[-1]).findings if one.code is Code.NOT_PROFILED] == told
