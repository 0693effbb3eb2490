from collections.abc import Sequence
from pathlib import Path

import pytest

from draftworth.engines.layout import Place, find, until_dashes
from draftworth.engines.spellings import Spellings, block_keys


def locate(words: Sequence[str]) -> Place | None:
    return find(words, lambda words, i, name: until_dashes(words, i + 1, i) if name == "serve-it" else None)


SPELLINGS = Spellings(locate, lambda word: word.startswith("--spec"), short=frozenset({"-s"}))


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["serve-it", "--spec", "x", "y"], "--spec x"),
        (["start.sh", "--spec=x", "y"], "--spec=x"),
        (["serve-it", "-s.method", "x"], "-s.method x"),
        (["start.sh", "-s", "x"], None),
        (["env", "ARGS=-a --spec x", "start.sh"], "ARGS=-a --spec x"),
        (["bash", "-c", "cd /x; serve-it -s y"], "-s y"),
        (["bash", "-c", "serve-it --spec=x 'y"], "--spec=x"),
        (["serve-it", "--config", "/nowhere"], None),
        (["serve-it", "--spec", "x" * 200], "--spec " + "x" * 153 + "…"),
    ],
)
def test_speculation_is_found_however_the_command_carries_it(command: list[str], how: str | None) -> None:
    assert SPELLINGS.speculation_in(command, {}) == how


def test_the_environment_counts_too() -> None:
    assert SPELLINGS.speculation_in(["serve-it"], {"A": "x", "B": "-a --spec x"}) == "B=-a --spec x"


def test_the_keys_of_a_configuration_file_are_flags(tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    file.write_text("model: m\nspec-b: null\n  spec-c: 1\n'spec-a': 2 # x\n")
    assert block_keys(file.read_text()) == ["model", "spec-a"]
    assert SPELLINGS.speculation_in(["serve-it", "--config", str(file)], {}) == f"spec-a in {file}"
    assert SPELLINGS.speculation_in(["serve-it", f"--config={file}"], {}) == f"spec-a in {file}"
    assert SPELLINGS.speculation_in(["start.sh", "--config", str(file)], {}) is None
