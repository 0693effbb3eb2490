"""Stages run where something changed, are skipped where nothing did, and resume where they were killed."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.training.training_making import Said, chat, make_target, write_recipe, write_rows
from tests.training.training_server import AnsweringServer, answering

from draftworth.errors import RefusedError, UsageError
from draftworth.training.base import StageName
from draftworth.training.recipe import Recipe
from draftworth.training.recipe_file import load_recipe
from draftworth.training.registry import STAGES
from draftworth.training.run import run_stages, up_to
from draftworth.training.stages import read_manifest

BOTH = [StageName.DATA, StageName.VOCAB]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    make_target(tmp_path / "target")
    write_rows(tmp_path / "chat.jsonl", [chat(f"question {at}", f"answer {at}") for at in range(10)])
    return load_recipe(write_recipe(tmp_path))


def done(recipe: Recipe, *, again: bool = False) -> dict[str, str]:
    return {one.stage: one.done for one in run_stages(recipe, BOTH, Said(), again=again).stages}


def test_stages_run_once_and_are_then_unchanged(recipe: Recipe) -> None:
    assert done(recipe) == {"data": "made", "vocab": "made"}
    said = Said()
    report = run_stages(recipe, BOTH, said)
    assert [one.done for one in report.stages] == ["unchanged", "unchanged"]
    assert said.skipped == 2
    assert said.lines[0].startswith("data: unchanged since ")
    assert done(recipe, again=True) == {"data": "made", "vocab": "made"}


def test_only_what_depends_on_a_change_runs_again_and_the_reason_is_told(recipe: Recipe) -> None:
    done(recipe)
    smaller = recipe.model_copy(update={"vocab": recipe.vocab.model_copy(update={"size": 4})})
    said = Said()
    report = run_stages(smaller, BOTH, said)
    assert [one.done for one in report.stages] == ["unchanged", "made"]
    assert said.steps == ["vocab: the draft's vocabulary (changed since: recipe.vocab)"]
    write_rows(recipe.data.sources[0].path, [chat(f"question {at}", "x") for at in range(10)])
    said = Said()
    run_stages(recipe, BOTH, said)
    assert "(changed since: source.chat)" in said.steps[0]
    assert "manifest.data" in said.steps[1]


def test_a_stage_is_not_built_on_an_old_one(recipe: Recipe) -> None:
    done(recipe)
    write_rows(recipe.data.sources[0].path, [chat(f"question {at}", "x") for at in range(10)])
    with pytest.raises(
        UsageError, match=r"the stage data is old \(changed since: source.chat\); run `draftworth train data`"
    ):
        run_stages(recipe, [StageName.VOCAB], Said())


def test_a_stage_without_its_earlier_one_says_which_verb(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="not there yet; run `draftworth train data` first"):
        run_stages(recipe, [StageName.VOCAB], Said())


def test_two_at_a_time_are_refused(recipe: Recipe) -> None:
    done(recipe)
    with (recipe.folder / ".lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RefusedError, match=rf"another draftworth \(process {os.getpid()}\) works in it"):
            done(recipe)


def test_the_stages_are_a_pipeline() -> None:
    names = list(STAGES)
    assert names == list(StageName)
    assert up_to(StageName.VOCAB) == names[:3]
    assert up_to(None) == names
    for at, name in enumerate(names):
        assert set(STAGES[name].needs) <= set(names[:at])


class Gate:
    """Lets a server answer so many requests and holds all others, so that a kill meets a known moment."""

    def __init__(self) -> None:
        self.answers = 0
        self.open = threading.Event()

    def answer(self, server: AnsweringServer, last: str) -> str:
        if len(server.asked) > self.answers:
            self.open.wait(60)
        return f"new {last}"


def killed(recipe: Path, server: AnsweringServer, gate: Gate, answers: int) -> None:
    """Start `train data` in a process of its own and kill it once the server has answered so often."""
    gate.answers = answers
    code = "import sys; from draftworth.cli.train import app; app(sys.argv[1:], exit_on_error=False)"
    command = [sys.executable, "-c", code, "data", str(recipe)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        until = time.monotonic() + 60
        while len(server.asked) <= answers:
            assert child.poll() is None, child.stderr.read() if child.stderr else ""
            assert time.monotonic() < until
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    gate.open.set()  # what was in flight is answered to nobody
    time.sleep(0.05)
    gate.open.clear()


def test_killed_again_and_again_every_answer_is_asked_for_about_once(tmp_path: Path) -> None:
    make_target(tmp_path / "target")
    write_rows(tmp_path / "chat.jsonl", [chat(f"q{at}", "old") for at in range(40)])
    gate = Gate()
    with answering(tmp_path / "target", lambda last: gate.answer(server, last)) as server:
        recipe = write_recipe(tmp_path, f'[data.regenerate]\nurl = "{server.url}"\nconcurrency = 2')
        for answers in (10, 25):
            killed(recipe, server, gate, answers)
            assert read_manifest(tmp_path / "recipe-run/data") is None
        gate.answers = 1000
        read = load_recipe(recipe)
        run_stages(read, [StageName.DATA], Said())
        # At most what was in flight at each kill was asked for twice.
        assert 40 <= len(server.asked) <= 40 + 2 * 2
    found = read_manifest(read.folder / "data")
    assert found is not None
    assert found.counts["train_samples"] + found.counts["held_out_samples"] == 40
