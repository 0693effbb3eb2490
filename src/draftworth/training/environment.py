"""The environment that trains: speculators, torch and transformers, in a virtual environment of its own.

It is made as the engines' environments are (`engines/install`), from a list with hashes. Whether an environment can
train is told by what it can do, not by its numbers: a script runs in it (`workers/check_worker.py`) and names the
module, function or argument that is missing.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from draftworth.engines.install.base import (
    ENGINE_MARKER,
    UNFINISHED,
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
from draftworth.engines.install.machine import check_platform, check_space
from draftworth.engines.install.torch_wheel import choose
from draftworth.engines.install.vllm_cpu import TORCH_VERSION, Progress
from draftworth.errors import RefusedError, UsageError
from draftworth.training.requirements import REQUIREMENTS, SPECULATORS_VERSION

VARIABLE = "DRAFTWORTH_TRAIN_PYTHON"
"""Names the interpreter of a person's own environment, which is used instead."""
NAME = "train"
BOOT = Path(__file__).with_name("workers") / "boot.py"
_GPU = Path("/dev/nvidiactl")
_SCHEMA = 1
_NEED_CPU, _NEED_GPU = 4_000_000_000, 16_000_000_000
_NO_FIT = ("torchvision", "torchaudio", "torchcodec")
"""The package index's builds of these do not fit a CPU build of torch, and break the import of transformers."""


@dataclass(frozen=True, slots=True)
class TrainingEnvironment:
    """An environment that can train.

    Attributes:
        python: its interpreter.
        home: its folder; None for a person's own.
        versions: of speculators, torch and transformers, as its marker has them; empty for a person's own.
    """

    python: Path
    home: Path | None
    versions: dict[str, str]


def home() -> Path:
    """Return the folder it is, or would be, installed in."""
    return engines_dir() / f"{NAME}-speculators-{SPECULATORS_VERSION}"


def installed() -> TrainingEnvironment | None:
    """Return the environment: a person's own where one is named, else the installed one; None where there is none.

    Raises:
        UsageError: the person's own is no interpreter.
    """
    own = os.environ.get(VARIABLE)
    if own:
        python = Path(own).expanduser()
        if not os.access(python, os.X_OK) or python.is_dir():
            raise UsageError(f"{VARIABLE}: {python}: no such interpreter")
        return TrainingEnvironment(python.absolute(), None, {})
    marker = read_marker(home() / ENGINE_MARKER)
    python = home() / "bin" / "python"
    if marker.get("requirements_sha256") != list_digest() or not python.exists():
        return None
    return TrainingEnvironment(python, home(), dict(marker.get("versions", {})))


def required() -> TrainingEnvironment:
    """Return the environment.

    Raises:
        RefusedError: there is none.
    """
    found = installed()
    if found is None:
        raise RefusedError(
            f"there is no environment to train in: `draftworth train install` makes it in {home()}, or name the "
            f"interpreter of your own with {VARIABLE}"
        )
    return found


def environment_inputs() -> dict[str, str]:
    """Return what a stage's output depends on of the environment: its packages, or a person's own interpreter."""
    own = os.environ.get(VARIABLE)
    return {"environment": f"own: {own}"} if own else {"environment": f"speculators {SPECULATORS_VERSION}"}


def has_gpu() -> bool:
    """Tell whether this machine has an NVIDIA GPU with a driver."""
    return _GPU.exists()


def install(
    *, torch_index: str | None = None, force: bool = False, gpu: bool | None = None, tell: Tell
) -> TrainingEnvironment:
    """Make the environment, or return it at once where it is installed.

    The build for a GPU was written but not run here: torch's own wheel comes with its CUDA packages, all else is the
    same list.

    Args:
        torch_index: a wheel index to take torch from, where pip is configured with none.
        force: remove an installed one and make it anew.
        gpu: whether torch is to be built for CUDA; None: where the machine has a GPU.
        tell: takes what comes, before any download, and then how far it is.

    Raises:
        UsageError: not for this platform or Python.
        RefusedError: no room, pip failed, or what came out cannot train.
    """
    with_gpu = has_gpu() if gpu is None else gpu
    if not force and os.environ.get(VARIABLE) is None and (found := installed()):
        return found
    check_platform("the training environment")
    place = home()
    with only_one(place.with_name(f".{place.name}.lock"), "the training environment", tell):
        if not force and (found := installed()) and found.home is not None:
            return found
        if using := users(place):
            raise RefusedError(f"process {using[0]} runs from {place}; stop it, then repeat")
        check_ours(place, ENGINE_MARKER)
        free = check_space(place, _NEED_GPU if with_gpu else _NEED_CPU)
        kind = "CUDA" if with_gpu else "CPU"
        tell(f"speculators {SPECULATORS_VERSION}, torch {TORCH_VERSION} ({kind}) and {count_pins()} more packages")
        tell(f"  disk      about {'9' if with_gpu else '2'} GB in {place} ({gigabytes(free)} free)")
        clear(place, ENGINE_MARKER)
        make_folder(place)
        (place / UNFINISHED).touch()
        try:
            _fill(place, torch_index, with_gpu=with_gpu, tell=tell)
        except BaseException:
            clear(place, ENGINE_MARKER)
            raise
        (place / UNFINISHED).unlink()
    made = installed()
    assert made is not None, "just made, and checked"
    return made


def _fill(place: Path, torch_index: str | None, *, with_gpu: bool, tell: Tell) -> None:
    scratch = place / "tmp"
    scratch.mkdir()
    runner = Runner(child_env(os.environ, scratch), place.with_name(f"{place.name}.log"), tell)
    runner.log.write_text("", "utf-8")
    python = place / "bin" / "python"
    try:
        runner.run([sys.executable, "-m", "venv", place], "making the virtual environment")
    except RefusedError as error:
        raise RefusedError(f"{error}; on Debian, install python3-venv") from error
    pip = pip_of(python)
    if with_gpu:
        index = ["--index-url", torch_index] if torch_index else []
        wanted = f"torch=={TORCH_VERSION}"
        command = [*pip, "install", "--only-binary", ":all:", "--progress-bar", "off", *index, wanted]
        runner.run(command, f"installing {wanted} with its CUDA packages")
    else:
        wheel = choose(pip, TORCH_VERSION, torch_index, runner)
        wanted = wheel.requirement
        runner.run([*pip, "install", *PINNED, *wheel.options, wanted], f"installing {wanted}")
    runner.say(f"{wanted} is in")
    listed = [*pip, "install", *PINNED, "--require-hashes", "--requirement", REQUIREMENTS]
    runner.run(listed, f"installing {count_pins()} packages", Progress(count_pins()))
    runner.say("all packages are in; checking what they can do")
    facts = told(runner.run(check_command(python), "checking the environment"), runner.log, "missing", "versions")
    if facts["missing"]:
        raise RefusedError(f"the environment came out unable to train: {'; '.join(facts['missing'])}; see {runner.log}")
    shutil.rmtree(scratch)
    write_marker(
        place / ENGINE_MARKER,
        {
            "schema_version": _SCHEMA,
            "name": NAME,
            "version": SPECULATORS_VERSION,
            "versions": facts["versions"],
            "requirements_sha256": list_digest(),
            "installed": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(runner.seconds, 1),
            "bytes": disk_bytes(place),
        },
    )


def check_command(python: Path) -> list[str | Path]:
    """Return the argv that tells what an environment lacks: JSON with `missing` and `versions` as its last line."""
    return [python, "-I", BOOT.with_name("check_worker.py"), *_NO_FIT]


def lacking(found: TrainingEnvironment) -> dict[str, str]:
    """Return an environment's versions, after trying what it can do.

    Raises:
        RefusedError: names what is missing.
    """
    command = [str(one) for one in check_command(found.python)]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    text = next((line for line in reversed(ran.stdout.splitlines()) if line.startswith("{")), "")
    try:
        facts = json.loads(text)
    except ValueError:
        raise RefusedError(f"{found.python}: cannot be checked: {' / '.join(ran.stderr.splitlines()[-3:])}") from None
    if facts["missing"]:
        raise RefusedError(f"{found.python} cannot train: {'; '.join(facts['missing'])}")
    versions: dict[str, str] = facts["versions"]
    return versions


def count_pins() -> int:
    """Return how many packages the list has."""
    return sum(line[:1].isalnum() for line in REQUIREMENTS.read_text("utf-8").splitlines())


def list_digest() -> str:
    """Return what an installation is made from, as one SHA-256: the pinned list and torch's version."""
    lines = [line for line in REQUIREMENTS.read_text("utf-8").splitlines() if not line.startswith("#")]
    return sha256("\n".join([f"torch=={TORCH_VERSION}", *lines]).encode()).hexdigest()
