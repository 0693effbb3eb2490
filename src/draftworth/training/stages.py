"""Manifests: written last and atomically, compared by name, and what makes the digest of an input."""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from draftworth.engines.install.base import sync_folder
from draftworth.errors import UsageError
from draftworth.training.base import MANIFEST, SCHEMA_VERSION, StageManifest, StageName

_BLOCK = 1 << 20
SMALL = 64 << 20
"""Files of a model folder up to this size are part of its digest by all of their content."""
_NO_PART = re.compile(r"\.(?:md|txt|png|jpg|svg|pdf|log|lock|tmp|bak|ipynb)$|^\.", re.IGNORECASE)
_TOKENIZER = ("tokenizer.json",)
_TEMPLATE = ("chat_template.jinja", "tokenizer_config.json")


def key_of(inputs: Mapping[str, str]) -> str:
    """Return the key of a stage's inputs: `sha256:` and the digest of them as canonical JSON."""
    text = json.dumps(dict(inputs), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_manifest(folder: Path) -> StageManifest | None:
    """Return the manifest of a stage's folder; None where there is none.

    Raises:
        UsageError: it is damaged, or a later version of Draftworth wrote it.
    """
    path = folder / MANIFEST
    try:
        found = StageManifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{path}: damaged ({where or 'no JSON'}: {first['msg']}); remove the file, and the stage runs again"
        ) from None
    if found.schema_version > SCHEMA_VERSION:
        raise UsageError(f"{path}: written by a later Draftworth (schema {found.schema_version}); update this one")
    return found


def required(folder: Path, stage: StageName) -> StageManifest:
    """Return the manifest of an earlier stage.

    Args:
        folder: the run folder.
        stage: the stage that is needed.

    Raises:
        UsageError: it has not run to its end; says which verb does.
    """
    found = read_manifest(stage.folder(folder))
    if found is None:
        raise UsageError(f"{stage.folder(folder)}: not there yet; run `draftworth train {stage.value}` first")
    return found


def output_key(folder: Path, stage: StageName) -> str:
    """Return what tells an earlier stage's output: the key of its inputs, and its files' digests where it has some.

    Equal inputs may give other files: answers that were missing come with a second try.

    Raises:
        UsageError: it has not run to its end.
    """
    found = required(folder, stage)
    files = found.facts.get("files")
    return section_digest({"key": found.key, "files": files}) if files else found.key


def is_fresh(folder: Path, key: str) -> bool:
    """Tell whether a stage's folder is finished and was made from inputs with this key."""
    found = read_manifest(folder)
    return found is not None and found.key == key


def why_stale(folder: Path, inputs: Mapping[str, str]) -> str:
    """Return why a stage must run, naming what changed; empty text where it need not.

    Args:
        folder: the stage's folder.
        inputs: what it would be made from now.
    """
    found = read_manifest(folder)
    if found is None:
        begun = folder.is_dir() and any(folder.iterdir())
        return "it was interrupted; what is whole is kept" if begun else "it has not run yet"
    if found.key == key_of(inputs):
        return ""
    names = [name for name in (*inputs, *found.inputs) if inputs.get(name) != found.inputs.get(name)]
    said = list(dict.fromkeys(names))
    return f"changed since: {', '.join(said)}" if said else "its manifest's key does not match its inputs"


def prepare(folder: Path) -> None:
    """Make a stage's folder ready for work: from now until `write_manifest` its content is not trusted.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / MANIFEST).unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None


def write_manifest(
    folder: Path,
    stage: StageName,
    *,
    inputs: Mapping[str, str],
    counts: Mapping[str, int],
    facts: Mapping[str, Any],
    began: float,
) -> StageManifest:
    """Write the manifest of a finished stage, after everything else of the folder is on the disk.

    Args:
        folder: the stage's folder.
        stage: which stage.
        inputs: everything the output depends on.
        counts: see `StageManifest`.
        facts: see `StageManifest`.
        began: `time.monotonic()` when the work began.

    Returns:
        What was written.
    """
    made = StageManifest(
        stage=stage,
        key=key_of(inputs),
        inputs=dict(inputs),
        counts=dict(counts),
        facts=dict(facts),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 3),
    )
    write_atomically(folder / MANIFEST, (made.model_dump_json(indent=1) + "\n").encode())
    return made


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file by a temporary one beside it, fsync and rename; the rename is on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def file_digest(path: Path) -> str:
    """Return `sha256:` and the digest of a file's content.

    Raises:
        UsageError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return f"sha256:{digest.hexdigest()}"


def files_digest(paths: Iterable[Path], *, root: Path) -> str:
    """Return one digest of several files' names and contents, in the order of their names.

    Raises:
        UsageError: one cannot be read.
    """
    lines = sorted(f"{path.relative_to(root).as_posix()} {file_digest(path)}" for path in paths)
    return f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


def section_digest(section: BaseModel | Mapping[str, Any], *, without: Iterable[str] = ()) -> str:
    """Return the digest of a section of the recipe.

    Args:
        section: the section, or what is left of it as JSON holds it.
        without: fields that change nothing of the output.
    """
    fields = section.model_dump(mode="json") if isinstance(section, BaseModel) else dict(section)
    kept = {name: value for name, value in fields.items() if name not in set(without)}
    return f"sha256:{hashlib.sha256(json.dumps(kept, sort_keys=True, ensure_ascii=True).encode()).hexdigest()}"


def target_inputs(target: Path) -> dict[str, str]:
    """Return the digests that name a target: `target`, `tokenizer`, `chat_template`.

    `target` is over every file that is part of the model: all of its content up to 64 MiB, of a larger one (weights)
    the size and three slices. A copy has the same digest, a further trained model has another.

    Raises:
        UsageError: the folder has no config.json or tokenizer.json.
    """
    for name in ("config.json", *_TOKENIZER):
        if not (target / name).is_file():
            raise UsageError(f"{target / name}: no such file; `target` is the folder of the model that is served")
    lines = []
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if not path.is_file() or any(_NO_PART.search(part) for part in name.split("/")):
            continue
        lines.append(f"{name} {_slices_digest(path) if path.stat().st_size > SMALL else file_digest(path)}")
    templates = [target / name for name in _TEMPLATE if (target / name).is_file()]
    return {
        "target": f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}",
        "tokenizer": file_digest(target / "tokenizer.json"),
        "chat_template": files_digest(templates, root=target) if templates else "none",
    }


def _slices_digest(path: Path) -> str:
    """Return a digest of a large file's size, beginning, middle and end."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    try:
        with path.open("rb") as file:
            for at in (0, size // 2, max(0, size - _BLOCK)):
                file.seek(at)
                digest.update(file.read(_BLOCK))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return f"sha256:{digest.hexdigest()}"


def package_inputs(*names: str) -> dict[str, str]:
    """Return `package.<name>` to version for packages of the tool's own environment; `missing` where there is none."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[f"package.{name}"] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[f"package.{name}"] = "missing"
    return found
