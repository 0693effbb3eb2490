"""The verbs: one JSON document on standard output, one line for a mistake, exit codes."""

import json
from pathlib import Path

import pytest
from tests.training.training_making import chat, make_target, write_recipe, write_rows

from draftworth.cli.train import app
from draftworth.training.recipe_file import load_recipe


def call(*words: str | Path) -> int:
    return int(app([str(word) for word in words], exit_on_error=False, result_action="return_value"))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    make_target(tmp_path / "target")
    write_rows(tmp_path / "chat.jsonl", [chat(f"question {at}", f"answer {at}") for at in range(10)])
    return write_recipe(tmp_path)


def test_data_and_vocab_print_one_document(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, name in (("data", "train_samples"), ("vocab", "size")):
        assert call(verb, recipe, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert told["stages"][0]["done"] == "made"
        assert told["stages"][0]["counts"][name] > 0
        assert call(verb, recipe) == 0
        printed = capsys.readouterr()
        assert printed.out.splitlines()[0].startswith(f"{verb:<7} unchanged")
    assert call("data", recipe, "--again") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("data    made")


def test_run_until_a_stage(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", recipe, "--until", "data", "--json") == 0
    assert [one["stage"] for one in json.loads(capsys.readouterr().out)["stages"]] == ["data"]


def test_plan_prints_lines_or_a_document(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", recipe, "--acceptance", "1.5") == 0
    assert "The head must reach 1.50 tokens per step." in capsys.readouterr().out
    assert call("plan", recipe, "--json") == 0
    assert json.loads(capsys.readouterr().out)["layers"] == 8


def test_the_schema_is_a_recipe(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("schema") == 0
    text = (
        capsys.readouterr().out.replace('"/models/my-model"', '"target"').replace('"traffic.parquet"', '"chat.jsonl"')
    )
    recipe.write_text(text, encoding="utf-8")
    assert load_recipe(recipe).fit.epochs > 0
    assert call("schema", "--json") == 0
    assert "properties" in json.loads(capsys.readouterr().out)
