"""Failures 25 to 37: a variant that does not start, starts as something else, or says odd things while it does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.guarantees.case import MEASURED, Case, made_case, remarks
from tests.guarantees.marks import failure, shows
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK

DROP_IN = 'append_args = true\nway = "drop-in"'
WAYS = ["append_args = true", DROP_IN]


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[Case]:
    with made_case(module_systemd, tmp_path) as made:
        yield made


def variant(**script: Any) -> dict[str, Any]:
    """Return a script whose variant alone does something."""
    return {**QUICK, "speculating": {**QUICK["speculating"], **script}}


@failure(
    25,
    produced="the variant runs out of memory in the middle of its load and exits with 1",
    outcome="exit code 6 with the cause out of its own log; the original serves again at once",
)
@failure(
    30,
    produced="the original has Restart=always; the variant dies at load, which OnFailure= answers with the original",
    outcome="the variant has Restart=no, so that the two do not take turns: one start of each",
)
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_a_variant_that_dies_at_load_is_started_once(case: Case, service: str) -> None:
    case.serve(variant(die_at="load"), service="Restart=always\nRestartSec=100ms").trial(service=service).remember()
    done = case.run()
    assert done.code == 6, done.err
    assert "out of memory" in done.json["reason"]
    case.wait_back(10)
    started = f"--grep=^Started .*variant ngram-5 of trial {case.tag()}"
    said = case.systemd.run(["journalctl", "-o", "cat", "--no-pager", "-t", "systemd", started])
    assert len(said.stdout.splitlines()) == 1, "the variant was started once"
    assert case.systemd.systemctl("show", "-p", "NRestarts", "--value", case.unit) == "0"


@failure(
    26,
    produced="the variant dies with the first request that generates, as at the capture of its graphs",
    outcome="exit code 6, the server died while it started; the original serves again",
)
def test_a_variant_that_dies_at_its_first_request(case: Case) -> None:
    case.serve(variant(die_at="first_request", exit_code=3)).trial().remember()
    done = case.run()
    assert done.code == 6, done.err
    assert "the server ended while it started" in done.json["reason"]
    case.wait_back(10)


@failure(
    27,
    produced="an arm with a flag that the engine does not know: it exits at once with 2",
    outcome="exit code 6 with the engine's own words; the original serves again",
)
def test_a_flag_that_the_engine_does_not_know(case: Case) -> None:
    case.serve().trial().remember()
    text = case.file.read_text(encoding="utf-8")
    case.file.write_text(text.replace('name = "ngram-5"', 'name = "ngram-5"\nargs = ["--no-such-flag"]'), "utf-8")
    done = case.run()
    assert done.code == 6, done.err
    assert "--no-such-flag" in "".join(done.json["error_tail"])
    case.wait_back(10)


@failure(
    31,
    produced="Type=notify and TimeoutStartSec=2 in the unit; the variant loads for 4 s",
    outcome="the variant has the limit of the trial's file instead, and is measured; the original keeps its own",
)
def test_a_start_limit_of_the_unit_does_not_kill_a_slow_load(case: Case) -> None:
    script = {**variant(load_seconds=4.0), "notify": True}
    case.serve(script, service="Type=notify\nNotifyAccess=all\nTimeoutStartSec=2").trial(service=DROP_IN).remember()
    done = case.run()
    assert done.code in MEASURED, done.err
    case.wait_back(10)


@failure(
    32,
    produced="the variant's load sleeps for 600 s: no line, no processor time; limits.silent_s = 3",
    outcome="it is taken for hung after 3 s and ended, long before limits.start_timeout_s; the original serves again",
)
@shows("G7", "a load that hangs is ended by limits.silent_s, long before the limit of a start")
def test_a_load_that_hangs_is_ended(case: Case) -> None:
    limits = "start_timeout_s = 60\ndrain_s = 1\nsilent_s = 3"
    case.serve(variant(load_seconds=600, load_silent=True)).trial(limits=limits).remember()
    done = case.run()
    assert done.code == 6, done.err
    assert "the server hangs" in done.json["reason"]
    case.wait_back(10)


@failure(
    32,
    produced="the variant loads for 6 s, a line every 0.4 s; limits.silent_s = 3",
    outcome="it is slow and alive, so it is waited for",
)
@failure(
    36,
    produced="bytes that are no UTF-8, control characters, NUL and a line of 100 kB in the variant's output",
    outcome="the log is kept as journald has it and read without an error",
)
@failure(
    37,
    produced="a harmless line with `error`, `Error` and `out of memory` in it while the variant loads",
    outcome="no alarm: the start succeeds and no finding names it",
)
def test_a_slow_load_that_says_odd_things_is_waited_for(case: Case) -> None:
    limits = "start_timeout_s = 60\ndrain_s = 1\nsilent_s = 3"
    case.serve(variant(load_seconds=6, odd_log=True)).trial(limits=limits).remember()
    done = case.run()
    assert done.code in MEASURED, done.err
    assert "errors=0" not in remarks(done)
    assert b"\xff\xfe caf\xe9" in next((case.trials()[-1] / "logs").glob("*start-ngram-5.log")).read_bytes()
    case.wait_back(10)


@failure(
    35,
    produced="the variant is healthy 2 s before it can generate: 503 until then",
    outcome="ready is the first token, not the first 200",
)
def test_healthy_is_not_ready(case: Case) -> None:
    case.serve(variant(warm_seconds=2.0)).trial().remember()
    done = case.run()
    assert done.code in MEASURED, done.err
    times = {event.kind: event.unix for event in case.events() if "start-ngram-5" in event.step}
    assert times["note"] - times["effect"] >= 2.0, "from the process to the first token"
    case.wait_back(10)


@failure(
    36,
    produced="LogRateLimitBurst=20 in the unit: journald drops most of what the variant says while it loads",
    outcome="the trial goes on; the record says how many lines of which arm are missing",
)
def test_lines_that_journald_dropped_are_told(case: Case) -> None:
    limit = "LogRateLimitIntervalSec=2s\nLogRateLimitBurst=20"
    case.serve(variant(chatter=500, load_seconds=3), service=limit).trial().remember()
    done = case.run()
    assert done.code in MEASURED, done.err
    assert "lines of its output are missing: journald's rate limit" in remarks(done)
    case.wait_back(10)
