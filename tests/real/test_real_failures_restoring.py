"""Failures 47 to 54 and 57 to 64: what goes wrong while a unit is put back, and the tool or its machine failing."""

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guarantees.case import MEASURED, Case, made_case
from tests.guarantees.marks import failure, shows
from tests.helpers import free_port, listening, wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, Result

DROP_IN = 'append_args = true\nway = "drop-in"'
WAYS = ["append_args = true", DROP_IN]


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[Case]:
    with made_case(module_systemd, tmp_path) as made:
        yield made


def fails_while(folder: Path, *, once: bool = False) -> tuple[str, Path]:
    """Return settings of a unit that does not start while a file is there, and the file."""
    broken = folder / "broken"
    script = folder / "pre.sh"
    script.write_text(f"[ ! -e {broken} ] || {{ {f'rm {broken};' if once else ''} exit 1; }}\n", encoding="utf-8")
    return f"ExecStartPre=/bin/sh {script}\nRestart=no", broken


def remarks(done: Result) -> str:
    """Return the findings of a record as one text."""
    return "\n".join(one["message"] for one in done.json["findings"])


@failure(
    47,
    produced="ExecStartPre= of the original fails at its first start after the variant",
    outcome="the restore is tried again and the trial goes on to its verdict",
)
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_a_start_of_the_original_that_fails_once_is_tried_again(case: Case, service: str) -> None:
    settings, broken = fails_while(case.folder, once=True)
    case.serve(service=settings).trial(service=service).remember()
    done = case.run_while(case.runs_variant, broken.touch)
    assert not broken.exists(), "the original's start failed"
    assert done.code in MEASURED, done.err
    assert done.json["restored"] is True
    case.as_before()


@failure(
    47,
    produced="ExecStartPre= of the original fails until its cause is mended, after the trial has ended",
    outcome="exit code 4, on standard error what was tried, and the commands; the restore unit goes on and succeeds by "
    "itself as soon as that is possible, corrects the record and leaves nothing",
)
@shows("G6", "a restore that fails is repeated by the host until it is verified")
@shows("G18", "the record says NOT restored and the commands, and is corrected once the host has succeeded")
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_an_original_that_cannot_start_is_loud_and_the_host_goes_on_trying(case: Case, service: str) -> None:
    settings, broken = fails_while(case.folder)
    case.serve(service=settings).trial(service=service).remember()
    done = case.run_while(case.runs_variant, broken.touch)
    assert done.code == 4, done.err
    assert "NOT restored" in done.err
    assert f"sh /run/draftworth/{case.tag()}/restore.sh" in done.err
    assert case.record()["restored"] is False
    assert case.state(f"draftworth-restore-{case.tag()}.service") == "activating"
    broken.unlink()
    case.wait_back(30)
    wait_for(lambda: case.record()["restored"], 20, "the record tells that it is back")
    again = case.cli("trial", "restore")
    assert again.code == 0, again.err


@failure(
    47,
    produced="as above, and a person runs the printed command while Draftworth's Python is not there",
    outcome="the service is back and nothing of the trial's is left",
)
@shows("G1", "sh and systemctl alone put the service back, from a script written before the first change")
def test_the_printed_command_puts_the_service_back_by_hand(case: Case) -> None:
    settings, broken = fails_while(case.folder)
    case.serve(service=settings).trial().remember()
    done = case.run_while(case.runs_variant, broken.touch)
    assert done.code == 4, done.err
    command = next(line.strip() for line in done.err.splitlines() if line.strip().startswith("sh /run/draftworth"))
    case.systemd.systemctl("stop", f"draftworth-restore-{case.tag()}.service")
    broken.unlink()
    case.systemd.run(["env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", command])
    case.wait_back(10)


@failure(
    48,
    produced="StartLimitBurst=1 within an hour: every further start is refused (start-limit-hit)",
    outcome="the restore resets the counter first; the original runs",
)
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_a_start_limit_does_not_keep_the_original_away(case: Case, service: str) -> None:
    limits = "StartLimitIntervalSec=3600\nStartLimitBurst=1"
    case.serve({**QUICK, "speculating": {"die_at": "load"}}, unit=limits, service="Restart=no")
    refused = case.systemd.run(["systemctl", "restart", case.unit], check=False)
    assert refused.returncode != 0, "the limit works"
    case.systemd.systemctl("reset-failed", case.unit)
    case.systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.trial(service=service).remember()
    done = case.run()
    assert done.code == 6, done.err
    case.wait_back(10)
