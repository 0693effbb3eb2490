"""A trial decides the option that it is of, and no other; a gate that does not hold is told."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.decisions.decisions_lab import DEMO, ROOT, edited, keep, record, run, tree

from draftworth.decisions.account import method_of
from draftworth.decisions.records import read_all

EXAMPLE = ROOT / "examples" / "kimi-k2.5"
HEAD = '[[options]]\nname = "C"\ntitle = "an n-gram head"\narm = "ngram-5"\n'
NOT_SAID = "the option does not say which method decides it"


@pytest.fixture
def kimi(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "home")
    return tmp_path / "home"


def test_an_n_gram_trial_does_not_adopt_a_head(kimi: Path) -> None:
    done = run(kimi, "decide", DEMO, "--option", "C")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "option C: ngram-5 drafts by ngram, and trials of eagle3 decide it" in done.err
    assert "SmolLM2-135M-Instruct, and trials of Kimi-K2.5 decide it" in done.err
    assert '--although "REASON"' in done.err
    assert len(read_all(kimi / "decisions")) == 1


def test_an_exception_is_recorded_with_its_reason_and_the_gate(kimi: Path) -> None:
    done = run(kimi, "decide", DEMO, "--option", "C", "--although", "a  rehearsal")
    assert done.code == 0, done.err
    _, made = read_all(kimi / "decisions")
    assert made.decision.although == "a rehearsal"
    assert "- Decided all the same: a rehearsal\n" in made.body
    for said in (
        "not what decides C: ngram-5 drafts by ngram, and trials of eagle3 decide it",
        "its gate is not known to hold: The head fits the model",
    ):
        assert f"- Against it: {said}" in made.body
        assert said in done.err
    checked = run(kimi, "decisions", "check").out
    assert f"C: {made.path.name} rests on a trial of something else, although: a rehearsal" in checked
    # The same trial again keeps the reason.
    again = run(kimi, "decide", DEMO, "--option", "C", "--json")
    assert (again.code, again.json["written_again"]) == (0, True), again.err
    assert read_all(kimi / "decisions")[1].decision == made.decision


def test_every_option_of_the_example_refuses_the_demo(kimi: Path) -> None:
    for option in ("A", "A1", "B", "C", "D", "D1"):
        assert run(kimi, "decide", DEMO, "--option", option).code == 1


def test_the_model_alone_is_reason_enough(tmp_path: Path) -> None:
    keep(tmp_path, edited())
    tree(tmp_path, HEAD + 'decides = { methods = ["suffix", "ngram"], model = "Qwen3-8B" }\n')
    done = run(tmp_path, "decide", "latest", "--option", "C")
    assert done.code == 1
    assert "ngram-5 drafts" not in done.err
    assert "SmolLM2-135M-Instruct, and trials of Qwen3-8B decide it" in done.err
    # Nor is it told to be decided on.
    assert "nothing was decided on it" not in run(tmp_path, "decisions", "check").out


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        ("", 0, NOT_SAID),
        ('decides = { model = "org/SmolLM2-135M-Instruct" }\n', 0, NOT_SAID),
        ('method = "eagle3"\n', 1, "trials of eagle3 decide it"),
        ('assumptions = { model = "Qwen3-8B" }\n', 1, "trials of Qwen3-8B decide it"),
        ('method = "eagle3"\ndecides = { methods = ["N-Gram", "NGRAM"] }\n', 0, ""),
        ('decides = { methods = ["ngram"], model = "org/smollm2-135m-instruct" }\n', 0, ""),
    ],
)
def test_what_an_option_says_decides_and_its_title_says_nothing(
    tmp_path: Path, more: str, code: int, told: str
) -> None:
    keep(tmp_path, edited())
    tree(tmp_path, HEAD + more)
    done = run(tmp_path, "decide", "latest", "--option", "C")
    assert (done.code, told in done.err) == (code, True), done.err
    if not told:
        assert done.err == ""
    if code == 0:
        (made,) = read_all(tmp_path / "decisions")
        assert (NOT_SAID in made.body) is (told == NOT_SAID)


def test_a_reason_that_is_not_needed_is_not_kept_and_an_empty_one_refused(tmp_path: Path) -> None:
    keep(tmp_path, edited())
    tree(tmp_path, HEAD + 'decides = { methods = ["ngram"] }\n')
    assert "say why" in run(tmp_path, "decide", "latest", "--option", "C", "--although", " ").err
    done = run(tmp_path, "decide", "latest", "--option", "C", "--although", "why not")
    assert "--although is not kept" in done.err
    (made,) = read_all(tmp_path / "decisions")
    assert made.decision.although == ""
    assert run(tmp_path, "decide", "--option", "C", "--state", "reopened", "--although", "x").code == 1


def test_a_trial_that_tells_no_method_is_said_to(tmp_path: Path) -> None:
    data = edited()
    data["arms"][1]["declared"] = {}
    data["config"]["arms"] = []
    keep(tmp_path, data)
    tree(tmp_path, HEAD + 'decides = { methods = ["ngram"] }\n')
    done = run(tmp_path, "decide", "latest", "--option", "C", "--arm", "ngram-5")
    assert (done.code, "the trial does not tell the method of ngram-5" in done.err) == (0, True), done.err


@pytest.mark.parametrize(
    ("declared", "method"),
    [
        ({"method": "ngram"}, "ngram"),
        ({"algorithm": "EAGLE3"}, "eagle3"),
        ({"speculative_algorithm": "NGRAM"}, "ngram"),
        ({"num_speculative_tokens": 3}, ""),
        ("ngram", ""),
    ],
)
def test_the_method_is_that_of_the_engine_that_was_asked(declared: Any, method: str) -> None:
    data = edited()
    data["arms"][1]["declared"] = {"speculative_config": declared}
    assert method_of(record(data), "ngram-5") == method


@pytest.mark.parametrize(("state", "word"), [('["ruled out"]', "does not hold"), ('["open"]', "")])
def test_a_gate_that_does_not_hold_is_remarked_whatever_is_decided(tmp_path: Path, state: str, word: str) -> None:
    keep(tmp_path, edited())
    gate = f'[options.gate]\nwords = "B is out."\nall = [{{ option = "B", state = {state} }}]\n'
    other = '[[options]]\nname = "B"\ntitle = "b"\n'
    tree(tmp_path, HEAD + 'decides = { methods = ["ngram"] }\n' + gate + other)
    taken_up = run(tmp_path, "decide", "--option", "C", "--state", "running")
    assert (f"its gate {word}: B is out. option B is open" in taken_up.err) is bool(word)
    done = run(tmp_path, "decide", "latest", "--option", "C")
    assert done.code == 0
    for said in (done.err, read_all(tmp_path / "decisions")[-1].body):
        assert ("its gate does not hold: B is out." in said) is bool(word)


def test_an_exception_says_of_no_other_option_which_service_it_is_of(kimi: Path) -> None:
    keep(kimi, json.loads((DEMO / "trial.json").read_text(encoding="utf-8")))
    assert run(kimi, "decide", "latest", "--option", "C", "--although", "x").code == 0
    steps = {one["option"]: one for one in run(kimi, "decisions", "next", "--json").json["steps"]}
    # D is of Kimi-K2.5: the demo's start of half a minute is not its reload.
    assert steps["D"]["minutes"] is None
