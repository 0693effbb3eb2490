"""What has to be carried to a machine without network, in bundles of pieces; and unpacking there.

The machine has Python 3.12 and a CUDA build of torch 2.11 with transformers 5.17, and keeps them: of what speculators
0.9 and the tool need, `MISSING` is what such a machine usually lacks, in the versions that `draftworth train install`
pins. `check` imports it there and names what does not fit.
"""

import importlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.train_gpu_carry import cut, join

BUNDLE = 32_000_000
MISSING = {
    # the trainer
    "speculators": "0.9.0",
    "hs-connectors": "0.9.0",
    "datasets": "5.1.0",
    "dill": "0.4.1",
    "multiprocess": "0.70.19",
    "loguru": "0.7.3",
    "openai": "3.57.0",
    "httpx2": "2.16.2",
    "httpcore2": "2.16.2",
    "jiter": "0.19.0",
    "sniffio": "1.3.1",
    "truststore": "0.10.5",
    "pydantic": "2.14.4",
    "pydantic-core": "2.50.5",
    "pydantic-settings": "2.16.3",
    "python-dotenv": "1.2.4",
    "annotated-types": "0.8.0",
    "typing-inspection": "0.4.5",
    # the tool
    "altair": "6.3.0",
    "cyclopts": "5.5.2",
    "docstring-parser": "0.18.0",
    "httptools": "0.9.0",
    "jsonschema": "4.26.0",
    "jsonschema-specifications": "2025.9.1",
    "msgspec": "0.23.0",
    "referencing": "0.37.0",
    "rich-rst": "2.2.0",
    "rpds-py": "2026.9.1",
}
_PLATFORMS = (*(f"manylinux_2_{minor}" for minor in (34, 31, 28, 27, 24, 17, 12, 5)), "manylinux2014", "manylinux1")
MODULES = (
    "speculators.train.trainer",
    "speculators.train.cli",
    "speculators.models.eagle3",
    "speculators.losses",
    "draftworth.training.run",
    "vllm",
    "draftworth.cli",
)


def wheels(folder: Path) -> int:
    """Download what is missing there; returns the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    command += ["--python-version", "3.12", "--implementation", "cp"]
    command += [word for one in _PLATFORMS for word in ("--platform", f"{one}_x86_64")]
    subprocess.run([*command, *(f"{name}=={version}" for name, version in MISSING.items())], check=True)
    return sum(one.stat().st_size for one in folder.glob("*.whl"))


def pack(out: Path, bundles: Mapping[str, Path]) -> dict[str, int]:
    """Write folders as bundles: `OUT/<name>/piece-NNN` and an index; returns how many pieces each has."""
    return {name: len(cut(folder.parent, [folder.name], out / name, BUNDLE)) for name, folder in bundles.items()}


def unpack(pieces: Path, to: Path, site: Path | None) -> None:
    """Put a bundle together; install the wheels in it, where a site is named, with no network and no dependencies.

    Files `p_aa`, `p_ab`, … are pieces of one wheel that was too large to travel: vLLM's.
    """
    names = join(pieces, to)
    parts = sorted((to / name for name in names if Path(name).name.startswith("p_")), key=lambda one: one.name)
    if site is not None and parts:
        with tempfile.TemporaryFile() as whole:
            for one in parts:
                with one.open("rb") as part:
                    shutil.copyfileobj(part, whole)
            with zipfile.ZipFile(whole) as wheel:
                wheel.extractall(site)
    found = sorted(str(to / name) for name in names if name.endswith(".whl"))
    if site is not None and found:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
        subprocess.run([*command, "--no-cache-dir", "--upgrade", "--target", str(site), *found], check=True)


def check(modules: Sequence[str] = MODULES) -> dict[str, str]:
    """Import what will be needed; returns versions, and what failed by module."""
    found: dict[str, str] = {"python": sys.version.split()[0]}
    for name in ("torch", "transformers", "triton", "numpy", "datasets", "huggingface_hub", *modules):
        try:
            module = importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - any failure is what is looked for
            found[name] = f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        else:
            found[name] = str(getattr(module, "__version__", "imported"))
    return found
