import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from draftworth.engines.asking import ELSEWHERE, Package, has_absolute_path, interpreter_of, is_python, started, told
from draftworth.engines.layout import Place, find, until_dashes


def locate(words: Sequence[str]) -> Place | None:
    return find(words, lambda words, i, name: until_dashes(words, i + 1, i) if name == "serve-it" else None)


PACKAGE = Package(names=("it", "it-cpu"), script="serve-it", locate=locate, elsewhere=ELSEWHERE)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which it-cpu 1.2.3 is installed and `serve-it` is on PATH."""
    metadata = tmp_path / "site" / "it_cpu-1.2.3.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: it-cpu\nVersion: 1.2.3\n")
    script(tmp_path / "bin" / "serve-it", f"#!{sys.executable}\n")
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "site")}


def test_the_installation_behind_a_command_is_asked(env: dict[str, str]) -> None:
    assert PACKAGE.version(["nohup", "serve-it", "m"], env, 10) == "1.2.3"
    assert PACKAGE.version([sys.executable, "/x/serve-it", "m"], env, 10) == "1.2.3"
    assert PACKAGE.version(["bash", "-c", "exec serve-it m"], env, 10) == "1.2.3"


@pytest.mark.parametrize(
    "command",
    [
        ["other"],
        ["conda", "run", "serve-it"],
        ["bin/serve-it"],
        ["/nowhere/serve-it"],
        ["bash", "-c", "source env/bin/activate; serve-it m"],
        ["bash", "-c", "serve-it 'm"],
    ],
)
def test_what_cannot_be_told_is_none(command: list[str], env: dict[str, str]) -> None:
    assert PACKAGE.version(command, env, 10) is None


def test_a_package_that_is_not_there_and_one_that_answers_too_late_are_none(env: dict[str, str]) -> None:
    assert PACKAGE.version(["serve-it"], env | {"PYTHONPATH": ""}, 10) is None
    assert PACKAGE.version(["serve-it"], env, 0.0001) is None


def test_an_earlier_command_keeps_the_meaning_of_a_whole_path() -> None:
    def words_of(text: str) -> Sequence[str] | None:
        found = started(["bash", "-c", text], locate, has_absolute_path)
        return None if found is None else found[0]

    assert words_of("cd /x; /opt/serve-it m") == ["/opt/serve-it", "m"]
    assert words_of("cd /x; serve-it m") is None
    assert words_of("echo") is None
    assert started(["serve-it", "m"], locate, has_absolute_path) == (["serve-it", "m"], Place(1, 2))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('#!/bin/sh\n\'\'\'exec\' "/a b/python" "$0" "$@"\n', "/a b/python"),
        ("#!/usr/bin/env -S mypython\n", None),
        ("#!/usr/bin/env lua\n", None),
        ("#!\n", None),
        ("import x\n", None),
        ("", None),
    ],
)
def test_the_interpreter_of_a_script_is_in_its_first_lines(text: str, found: str | None, tmp_path: Path) -> None:
    assert interpreter_of(script(tmp_path / "script", text), {}) == found


def test_the_interpreter_of_a_script_may_be_looked_up(tmp_path: Path) -> None:
    python = script(tmp_path / "bin" / "python3.12", "#!/bin/sh\n")
    path = script(tmp_path / "script", "#!/usr/bin/env -S python3.12 -u\n")
    assert interpreter_of(path, {"PATH": str(python.parent)}) == str(python)


def test_an_interpreter_is_known_by_its_name() -> None:
    assert [name for name in ("python", "/x/python3.12", "pythonw", "ipython") if is_python(name)] == [
        "python",
        "/x/python3.12",
    ]


def test_what_fails_while_asking_is_none_and_an_environment_without_a_path_gets_this_ones() -> None:
    def fail(_words: list[str], _env: Mapping[str, str]) -> str | None:
        raise OSError

    assert told(["a"], {}, fail) is None
    assert told(["a"], {"X": "1"}, lambda _words, env: env["PATH"]) == os.environ["PATH"]
    assert told(["a"], {"PATH": "/x"}, lambda words, env: f"{words} {dict(env)}") == "['a'] {'PATH': '/x'}"
