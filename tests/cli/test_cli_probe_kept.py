"""`draftworth probe`: what is refused before any load, and what is kept when it ends early."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.costs.costs_stair import StairServer, stairs
from tests.helpers import Result

from draftworth import cli
from draftworth.costs import file as costs_file
from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs
from draftworth.errors import UsageError

TRIALS = Path(__file__).parents[2] / "benchmarks" / "data"
QUICK = ("--concurrency", "1", "--tokens", "0", "--context", "64", "--repeats", "2", "--output", "16", "--wait", "0")
ENDLESS = (*QUICK[:6], "--repeats", "1000", *QUICK[8:])

Run = Callable[[Sequence[str]], Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))

    def call(arguments: Sequence[str]) -> Result:
        code = cli.run(["probe", *arguments])
        done = capsys.readouterr()
        return Result(code, done.out, done.err)

    return call


@contextmanager
def signalled(server: StairServer, requests: int, number: signal.Signals = signal.SIGINT) -> Iterator[None]:
    """Send this process a signal once a server has read so many requests."""

    def wait() -> None:
        until = time.monotonic() + 20
        while len(server.computed) < requests and time.monotonic() < until:
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_folder_that_takes_no_file_is_found_by_trying_before_any_load(run: Run, more: Sequence[str]) -> None:
    # For root, permissions say that /proc can be written; no file can be made there.
    with stairs() as server:
        done = run([server.base_url, *QUICK, "--out", "/proc/costs.json", *more])
        assert server.computed == [], "nothing was asked"
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("draftworth: /proc/costs.json: cannot be written: ")
    assert done.err.count("\n") == 1


def test_trying_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    with stairs() as server:
        done = run([server.base_url, *QUICK, "--out", str(tmp_path / "costs.json")])
    assert done.code == 0, done.err
    assert [one.name for one in tmp_path.iterdir()] == ["costs.json"]


def test_costs_that_cannot_be_written_in_the_end_are_shown_except_as_a_document(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_costs: Costs, path: Path) -> None:
        raise UsageError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr(costs_file, "save_costs", full)
    with stairs() as server:
        for more, shown in (((), True), (("--json",), False)):
            done = run([server.base_url, *QUICK, "--out", str(tmp_path / "costs.json"), *more])
            assert done.code == 1
            assert "No space left on device" in done.err
            assert ("T(B, n), B streams" in done.out) == shown
            assert bool(done.out) == shown
            assert "Costs: " not in done.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_has_an_interval_and_says_so(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "costs.json"
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stairs() as server, signalled(server, 6, number):
        done = run([server.base_url, *ENDLESS, "--out", str(out)])
    assert done.code == 130
    assert f"{number.name}: ending the probe; what was measured is kept" in done.err
    assert f"Costs: {out}" in done.out
    assert "interrupted: what was measured until then" in done.out
    (point,) = load_costs(out).points
    assert (point.batch, point.tokens) == (1, 1)
    assert point.repeats >= 2
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_signal_in_the_first_round_says_why_nothing_is_kept(run: Run, tmp_path: Path, more: Sequence[str]) -> None:
    out = tmp_path / "costs.json"
    with stairs() as server, signalled(server, 1):
        done = run([server.base_url, *ENDLESS, "--out", str(out), *more])
    assert (done.code, done.out) == (130, "")
    assert "nothing is kept: no cell was measured in two rounds yet, and one value has no interval" in done.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--concurrency", "1,100000"), "--concurrency: must be at most 4,096, not 100000"),
        (("--prefix-batch", "2049"), "--prefix-batch: must be at most 2,048, not 2049"),
        (("--context", "10000001"), "--context: must be at most 10,000,000, not 10000001"),
        (("--tokens", "10000001"), "--tokens: must be at most 10,000,000, not 10000001"),
        (("--add-trial", "nowhere"), "nowhere"),
        (("--output", "500000"), "--output 500000: behind a context of 512 (--context) the server generates at most "),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_load(run: Run, arguments: Sequence[str], why: str) -> None:
    with stairs() as server:
        done = run([server.base_url, *arguments])
        assert server.computed == [], "nothing was asked"
    assert (done.code, done.out) == (1, "")
    assert why in done.err
    assert done.err.count("\n") == 1


def test_more_streams_than_the_system_opens_files_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    with stairs() as server:
        done = run([server.base_url, "--concurrency", "1024"])
        assert server.computed == []
    assert done.code == 1
    assert done.err == "draftworth: 1,024 streams at a time: the system allows 1,024 open files (`ulimit -Hn`)\n"


def test_what_was_measured_is_kept_where_a_trial_is_of_another_server(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    with stairs() as server:
        arguments = [server.base_url, *QUICK, "--add-trial", str(TRIALS / "h200_moe_trial"), "--out", str(out)]
        done = run(arguments)
    assert done.code == 2
    assert "it is of another server" in done.err
    assert f"what was measured is kept in {out}" in done.err
    assert [one.how for one in load_costs(out).points] == ["concurrency"]
