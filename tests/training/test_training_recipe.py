"""A recipe's mistakes are one line; its reference is a recipe itself."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.training.training_making import chat, make_target, write_recipe, write_rows

from draftworth.errors import UsageError
from draftworth.training.recipe_file import load_recipe, source_name, toml_schema


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_target(tmp_path / "target")
    write_rows(tmp_path / "chat.jsonl", [chat("a", "b")])
    return tmp_path


def test_a_short_recipe_has_sensible_defaults_and_absolute_paths(folder: Path) -> None:
    read = load_recipe(write_recipe(folder))
    assert read.target == folder / "target"
    assert read.folder == folder / "recipe-run"
    assert read.data.sources[0].path == folder / "chat.jsonl"
    assert source_name(read.data.sources[0]) == "chat"
    assert (read.data.held_out, read.data.max_tokens, read.data.regenerate) == (0.1, 4096, None)
    assert (read.states.way, read.fit.ttt_steps, read.eval.k) == ("vllm", 3, (1, 2, 3, 4, 5, 6, 7, 8))
    assert read.vocab.size is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[fit]\nepoch = 3", "recipe.toml:7: fit.epoch: unknown field; did you mean 'epochs'?"),
        ("[fits]", "recipe.toml:6: fits: unknown field; did you mean 'fit'?"),
        ("[fit]\nepochs = 0", "recipe.toml:7: fit.epochs: input should be greater than 0, not 0"),
        ("[fit]\nepochs = 'two'", "recipe.toml:7: fit.epochs: must be a whole number, not 'two'"),
        ("[data.regenerate]\nmodel = 'm'", "data.regenerate.url: missing; `draftworth train schema` says what it is"),
        (
            "[data.regenerate]\nurl = 'http://x'\nsamples = 2\ntemperature = 0.0",
            "samples: at temperature 0 all of them are the same",
        ),
        ("[states]\nlayers = [2, 2, 3]", "layers: the same layer twice"),
        ("[states]\nurl = 'http://x'\nserve = true", "either a url or serve = true, not both"),
        ("[[data.sources]]\npath = 'nowhere'", "recipe.toml:7: data.sources[1].path:"),
        ("[[data.sources]]\npath = 'chat.jsonl'", "two are called 'chat'; give each a name of its own"),
        ("= 3", "recipe.toml:6: not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(folder: Path, more: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe(write_recipe(folder, more))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_target_or_file_is_told(folder: Path) -> None:
    recipe = write_recipe(folder)
    (folder / "target").rename(folder / "elsewhere")
    with pytest.raises(UsageError, match=r"recipe.toml:1: target: .*target: no such folder"):
        load_recipe(recipe)
    with pytest.raises(UsageError, match="no such file; `draftworth train schema`"):
        load_recipe(folder / "other.toml")


def test_the_reference_is_a_recipe_itself(folder: Path) -> None:
    text = toml_schema().replace('"/models/my-model"', '"target"').replace('"traffic.parquet"', '"chat.jsonl"')
    (folder / "reference.toml").write_text(text, encoding="utf-8")
    read = load_recipe(folder / "reference.toml")
    assert read.model_copy(update={"out": None}) == load_recipe(write_recipe(folder)).model_copy(update={"out": None})


def test_every_shown_default_and_example_is_valid(folder: Path) -> None:
    lines = []
    for line in toml_schema().splitlines():
        bare = line.removeprefix("# ")
        field = bare.split(" = ")[0]
        shown = line.startswith("# ") and (
            bare.startswith("[data.regenerate]") or (" = " in bare and field.isidentifier())
        )
        lines.append(bare if shown else line)
    text = "\n".join(lines).replace('"/models/my-model"', '"target"').replace('"traffic.parquet"', '"chat.jsonl"')
    write_rows(folder / "humaneval.jsonl", [chat("a", "b")])
    (folder / "reference.toml").write_text(text, encoding="utf-8")
    read = load_recipe(folder / "reference.toml")
    assert read.data.regenerate is not None
    assert read.states.layers == (2, 16, 29)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text(max_size=80))
def test_no_text_is_more_than_a_usage_error(folder: Path, text: str) -> None:
    path = folder / "any.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(UsageError):
        load_recipe(path)


def test_the_costs_lie_beside_the_recipe(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_recipe(folder, '[eval]\ncosts = "costs.json"')
    monkeypatch.chdir(tmp_path.parent)
    assert load_recipe(path).eval.costs == folder / "costs.json"
