"""`draftworth probe` as a person calls it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.costs.costs_stair import stairs, step
from tests.helpers import Result

from draftworth import cli
from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs, save_costs

DATA = Path(__file__).parents[1] / "engines" / "data"
TRIALS = Path(__file__).parents[2] / "benchmarks" / "data"
QUICK = ("--concurrency", "1", "--tokens", "0", "--context", "64", "--repeats", "2", "--output", "16", "--wait", "0")

Run = Callable[[Sequence[str]], Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(cli._VERBS, "probe", ("draftworth.cli.probe:probe", ""))

    def call(arguments: Sequence[str]) -> Result:
        code = cli.run(["probe", *arguments])
        done = capsys.readouterr()
        return Result(code, done.out, done.err)

    return call


def test_a_probe_prints_the_staircase_and_keeps_the_file_under_the_home(run: Run, tmp_path: Path) -> None:
    log = DATA / "vllm_0.32_baseline.txt"
    with stairs() as server:
        done = run([server.base_url, *QUICK, "--log", str(log)])
    assert done.code == 0, done.err
    assert done.out.startswith("vllm 0.32.0: fake/model-1b")
    assert "T(B, n), B streams, one token each, 64 tokens of context" in done.out
    (path,) = (tmp_path / "home" / "costs").glob("*.json")
    assert done.out.endswith(f"Costs: {path}\n")
    costs = load_costs(path)
    assert [one.ms for one in costs.points] == pytest.approx([step(1)], rel=0.05)
    assert not any("no log was given" in note for note in costs.notes)


def test_json_is_the_file_and_nothing_else(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    with stairs() as server:
        done = run([server.base_url, *QUICK, "--json", "--out", str(out)])
    assert done.code == 0, done.err
    assert Costs.model_validate(done.json) == load_costs(out)
    assert json.loads(out.read_text()) == done.json
    assert "draftworth: " not in done.err, "progress alone"


def test_a_busy_server_ends_with_2_and_one_line(run: Run) -> None:
    with stairs() as server:
        server.metrics.engines[0].running = 3
        done = run([server.base_url, *QUICK])
    assert done.code == 2
    assert "3 requests of others are at hand" in done.err
    assert done.err.count("draftworth: ") == 1


def test_a_trial_is_added_to_a_file_without_a_server(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    save_costs(Costs(created="2026"), out)
    done = run(["--add-trial", str(TRIALS / "demo_trial"), "--out", str(out)])
    assert done.code == 0, done.err
    assert [one.how for one in load_costs(out).points] == ["arm"]
    assert "no null-draft or synthetic arm" in done.out


def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(run: Run, tmp_path: Path) -> None:
    there = tmp_path / "costs.json"
    save_costs(Costs(created="2026-01-01T00:00:00+00:00"), there)
    before = there.read_text()
    with stairs() as server:
        for out, why in (
            (there, "is there already: choose another name"),
            (tmp_path, "is a folder: name a file"),
            (tmp_path / "none" / "costs.json", "no such folder"),
        ):
            done = run([server.base_url, *QUICK, "--out", str(out)])
            assert done.code == 1
            assert why in done.err
        assert server.computed == [], "nothing was asked"
    assert there.read_text() == before


def test_a_trial_of_another_server_is_refused_and_nothing_changes(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    # The demo's baseline takes 14.4 ms a step on a CPU; these costs are of a server ten times as fast.
    point = {"batch": 1, "tokens": 1, "context": 64, "ms": 1.4, "low": 1.3, "high": 1.5, "repeats": 6}
    fast = Costs.model_validate({"created": "2026", "engine": "vllm", "points": [{**point, "how": "concurrency"}]})
    for costs, why in (
        (fast, "a step of its baseline takes 14.37 ms at 1 at a time, in the costs 1.40"),
        (fast.model_copy(update={"version": "0.25.0"}), "its version is 0.32.0, that of the costs 0.25.0"),
        (fast.model_copy(update={"engine": "sglang"}), "its engine is vllm, that of the costs sglang"),
    ):
        save_costs(costs, out)
        done = run(["--add-trial", str(TRIALS / "demo_trial"), "--out", str(out)])
        assert done.code == 2
        assert why in done.err
        assert load_costs(out) == costs
    done = run(["--add-trial", str(TRIALS / "demo_trial"), "--out", str(out), "--anyway"])
    assert done.code == 0
    assert any("its engine is vllm" in note for note in load_costs(out).notes)


def test_a_context_that_the_server_does_not_take_is_told_as_such(run: Run) -> None:
    with stairs() as server:
        done = run([server.base_url, "--context", "500000"])
    assert done.code == 1
    assert "--context 500000: the server takes at most " in done.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "give the URL of a running baseline"),
        (("--add-trial", "latest"), "give the URL of a running baseline"),
        (("http://127.0.0.1:9", "--concurrency", "1,x"), "--concurrency: must be whole numbers like 1,2,4"),
        (("http://127.0.0.1:9", "--tokens", "-1"), "--tokens: must be whole numbers of at least 1"),
        (("http://127.0.0.1:9", "--repeats", "1"), "--repeats: must be at least 2, not 1"),
        (("http://127.0.0.1:9", "--budget", "0"), "--budget: must be seconds above 0, not 0"),
        (("http://127.0.0.1:9", "--output", "4"), "--output: must be at least 16, not 4"),
        (("http://127.0.0.1:9",), "http://127.0.0.1:9"),
    ],
)
def test_wrong_input_ends_with_1_and_one_line(run: Run, arguments: Sequence[str], why: str) -> None:
    done = run(arguments)
    assert (done.code, done.out) == (1, "")
    assert why in done.err
    assert done.err.count("\n") == 1
