"""Failures 38 to 46 on a unit: what goes wrong in a measurement. tests/trials shows most of them for processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guarantees.case import SLOW, Case, made_case
from tests.guarantees.marks import failure, shows
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK

DROP_IN = 'append_args = true\nway = "drop-in"'
WAYS = ["append_args = true", DROP_IN]


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[Case]:
    with made_case(module_systemd, tmp_path) as made:
        yield made


@failure(
    43,
    produced="the variant is killed with SIGKILL in the middle of its measurement, as by the kernel out of memory",
    outcome="exit code 6, the server died while it was measured; the original serves again, started by systemd itself",
)
@shows("G1", "a variant that dies is answered by systemd with the original, whether or not the tool acts")
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_a_variant_that_dies_while_it_is_measured(case: Case, service: str) -> None:
    case.serve(SLOW).trial(service=service).remember()
    kill = lambda: case.kill(case.pid(next(iter(case.variants()), case.unit)))  # noqa: E731 - one act
    done = case.run_while(lambda: case.reached("measure-ngram-5"), kill)
    assert done.code == 6, done.err
    assert "died while it was measured" in done.json["reason"]
    assert done.json["restored"] is True
    case.wait_back(10)


@failure(
    39,
    produced="one stream of the variant's hangs after its first chunk; limits.token_timeout_s = 2",
    outcome="the request fails in its time and enters no figure; the service is put back",
)
def test_a_stream_that_hangs_ends_in_its_time(case: Case) -> None:
    limits = "start_timeout_s = 20\ndrain_s = 1\ntoken_timeout_s = 2"
    case.serve({**QUICK, "speculating": {"hang_at_request": 2}}).trial(limits=limits).remember()
    done = case.run()
    assert done.code == 6, done.err
    case.wait_back(10)


@failure(
    43,
    produced="the original itself dies while the baseline is measured on it, before anything was changed",
    outcome="exit code 6; its own Restart= brings it back and the trial waits until it generates",
)
def test_an_original_that_dies_while_it_is_measured(case: Case) -> None:
    case.serve({**QUICK, "token_ms": 150.0}).trial().remember()
    kill = lambda: case.kill(case.pid())  # noqa: E731 - one act
    done = case.run_while(lambda: case.reached("measure-baseline"), kill)
    assert done.code == 6, done.err
    assert done.json["restored"] is True
    case.wait_back(10)


@shows("G7", "the declared downtime ends the measuring; the restore comes first")
def test_the_declared_downtime_ends_the_measuring(case: Case) -> None:
    limits = "start_timeout_s = 20\ndrain_s = 1\ndowntime_s = 4"
    slow = {**QUICK, "speculating": {"tokens_per_chunk": [1], "token_ms": 2000.0}}
    case.serve(slow).trial(limits=limits).remember()
    done = case.run()
    assert done.code == 6, done.err
    case.wait_back(10)
