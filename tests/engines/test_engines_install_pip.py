"""What is asked of pip, asked of a real one (the one that new virtual environments get), over wheels made here."""

import ensurepip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from draftworth.engines.install.children import PINNED, Runner, child_env
from draftworth.engines.install.torch_wheel import CPU_INDEX, TorchWheel, choose, is_cpu_build
from draftworth.errors import RefusedError


@pytest.fixture(scope="session")
def pip(tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    folder = tmp_path_factory.mktemp("pip")
    with zipfile.ZipFile(next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))) as wheel:
        wheel.extractall(folder)
    return [sys.executable, folder / "pip"]


def make_wheel(folder: Path, version: str, *needs: str, name: str = "torch") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def offline(tmp_path: Path, wheels: Path, *, index: bool = False) -> Runner:
    env = child_env(os.environ) | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "0" if index else "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return Runner(env, tmp_path / "engine.log", lambda _line: None)


def test_a_cpu_build_that_pip_knows_of_is_taken_before_the_cuda_build(tmp_path: Path, pip: list[str | Path]) -> None:
    make_wheel(tmp_path / "wheels", "2.13.0", "nvidia-cublas==13; platform_system == 'Linux'", "filelock")
    make_wheel(tmp_path / "wheels", "2.13.0+cpu", "filelock")
    make_wheel(tmp_path / "wheels", "2.14.1+cpu", "filelock")
    found = choose(pip, "2.13.0", None, offline(tmp_path, tmp_path / "wheels"))
    assert found == TorchWheel("torch==2.13.0+cpu", (), "torch-2.13.0+cpu-py3-none-any.whl")
    assert not list(tmp_path.glob("*.json"))


def test_where_there_is_only_the_cuda_build_nothing_is_taken_and_the_way_out_is_named(
    tmp_path: Path, pip: list[str | Path]
) -> None:
    make_wheel(tmp_path / "wheels", "2.13.0", "nvidia-cublas==13; platform_system == 'Linux'", "filelock")
    with pytest.raises(RefusedError, match=r"finds only the CUDA build of torch 2\.13\.0") as caught:
        choose(pip, "2.13.0", None, offline(tmp_path, tmp_path / "wheels"))
    assert f"--torch-index {CPU_INDEX}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_torch_index_is_asked_for_the_cpu_build_alone(tmp_path: Path, pip: list[str | Path]) -> None:
    make_wheel(tmp_path / "wheels", "2.13.0", "nvidia-cublas==13")
    index = tmp_path / "index" / "torch"
    wheel = make_wheel(index, "2.13.0+cpu")
    (index / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    runner = offline(tmp_path, tmp_path / "wheels", index=True)
    url = f"file://{tmp_path / 'index'}"
    assert choose(pip, "2.13.0", url, runner) == TorchWheel("torch==2.13.0+cpu", ("--index-url", url), wheel.name)


def test_where_there_is_no_such_torch_pips_own_words_are_shown(tmp_path: Path, pip: list[str | Path]) -> None:
    make_wheel(tmp_path / "wheels", "2.12.0+cpu")
    with pytest.raises(RefusedError, match=r"looking for torch==2\.13\.0 failed .*from versions: 2\.12\.0\+cpu"):
        choose(pip, "2.13.0", None, offline(tmp_path, tmp_path / "wheels"))


def test_a_wheel_that_is_not_the_pinned_one_is_not_installed(tmp_path: Path, pip: list[str | Path]) -> None:
    wheel = make_wheel(tmp_path / "wheels", "1.0", name="numba")
    wanted = tmp_path / "list.txt"
    wanted.write_text(f"numba==1.0 --hash=sha256:{'0' * 64}\n")
    runner = offline(tmp_path, wheel.parent)
    command = [*pip, "install", *PINNED, "--target", tmp_path / "site", "--require-hashes", "--requirement", wanted]
    with pytest.raises(RefusedError, match=f"installing failed .*Expected sha256 {'0' * 64} / .*Got"):
        runner.run(command, "installing")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("version", "needs", "is_cpu"),
    [
        ("2.13.0+cpu", ["filelock"], True),
        ("2.13.0+cpu.cxx11.abi", [], True),
        ("2.13.0+cu130", [], False),
        ("2.13.0+rocm7.0", [], False),
        ("2.13.0", ["filelock", "sympy>=1.13.3"], True),
        ("2.13.0", ["filelock", "nvidia-cudnn-cu13==9.1; platform_system == 'Linux'"], False),
        ("2.13.0", ["cuda-toolkit[cublas]==13.0"], False),
        ("2.13.0", ["triton==3.5.0; platform_machine == 'x86_64'"], False),
        ("2.13.0", ["nvidia-cutlass; extra == 'cutlass'"], True),
    ],
)
def test_a_cpu_build_is_told_from_its_metadata(version: str, needs: list[str], is_cpu: bool) -> None:  # noqa: FBT001 - a column
    assert is_cpu_build({"version": version, "requires_dist": needs}) is is_cpu
    if not needs:
        assert is_cpu_build({"version": version}) is is_cpu


def test_a_real_pip_takes_the_environment_as_meant(tmp_path: Path, pip: list[str | Path]) -> None:
    # The system's own interpreter is no virtual environment, so the caller's setting does stop a pip that gets it.
    command = [Path(sys.base_prefix) / "bin" / "python3", *pip[1:], "download", "--no-index", "no-such-package"]
    environ = dict(os.environ) | {"PIP_REQUIRE_VIRTUALENV": "1", "PIP_USER": "1", "PIP_CONSTRAINT": "/no/such/file"}
    words = [
        subprocess.run(command, env=env, cwd=tmp_path, check=False, capture_output=True, encoding="utf-8").stderr
        for env in (environ, child_env(environ))
    ]
    assert "Could not find an activated virtualenv (required)" in words[0]
    assert "No matching distribution found for no-such-package" in words[1]
