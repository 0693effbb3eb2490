"""What `decide --cite` names, and evidence of the tree and the records that leads nowhere."""

import json
import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from draftworth.costs.file import load_costs
from draftworth.decisions.base import Evidence
from draftworth.decisions.reported import is_told, load_reported
from draftworth.errors import UsageError
from draftworth.predict.base import Prediction
from draftworth.profiles.base import Profile
from draftworth.trials import record as trial_records

if TYPE_CHECKING:
    from draftworth.decisions.known import Known

_PUBLISHED = re.compile(r"^(?P<source>.+?),\s*(?P<date>\d{4}(?:-\d{2}){0,2}):\s*(?P<says>.+)$", re.DOTALL)
_ID = re.compile(r"\d{8}-\d{6}(?:-\d+)?")
_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_WHOLE = 64 * 2**20
"""A larger file is no prediction, costs or read profile; it may be a profiler's trace."""
_HEAD = 2**20
"""Bytes within which a trace tells that it is one."""


def citation(text: str, root: Path) -> Evidence:
    """Return what `--cite` names: a trial's id, a file of ours, or `SOURCE, DATE: WHAT IT SAYS` of others.

    Args:
        text: as it was typed.
        root: the home folder, which paths are told relative to.

    Raises:
        UsageError: it is none of the three, or leads nowhere.
    """
    if _ID.fullmatch(text):
        if not has_trial(root, text):
            raise UsageError(
                f"--cite: no trial {text} in {root / 'trials'}; `draftworth trial list` shows those there are"
            )
        return Evidence(kind="trial", trial=text)
    path = Path(text)
    if path.is_file():
        return _of_file(path, root)
    found = _PUBLISHED.match(text)
    if not found:
        raise UsageError(
            f'--cite: {text!r} is no trial\'s id, no file, and no published result like "SOURCE, 2026-09: WHAT IT SAYS"'
        )
    try:
        return Evidence(
            kind="published", ours=False, source=found["source"], date=found["date"], says=found["says"].strip()
        )
    except ValidationError as error:
        raise UsageError(f"--cite: {str(error.errors()[0]['msg']).removeprefix('Value error, ')}") from None


def relative(path: Path, root: Path) -> str:
    """Return a path relative to a folder, also where it lies outside of it: a record is kept with what is beside it."""
    return os.path.relpath(path.absolute(), root.absolute())


def has_trial(root: Path, trial: str) -> bool:
    """Whether a home folder keeps a trial."""
    return (root / "trials" / trial / trial_records.NAME).is_file()


def dead_ends(known: "Known") -> list[str]:
    """Return the evidence that names no trial and no file there is: of the tree, and of each option's newest record."""
    lines = []
    for option in known.tree.options:
        last = known.newest(option.name)
        named = [("tree.toml", one) for one in option.evidence]
        named += [(last.path.name, one) for one in last.decision.evidence] if last else []
        for where, one in named:
            if where != "tree.toml" and one in option.evidence:
                continue
            if one.trial and not has_trial(known.root, one.trial):
                lines.append(f"{where}, option {option.name}: trial {one.trial} is not in {known.root / 'trials'}")
            if one.path and not (known.root / one.path).is_file():
                lines.append(f"{where}, option {option.name}: there is no file {one.path} in {known.root}")
            elif one.path and Path(one.path).is_absolute():
                said = f"{one.path} is found on this machine only: name it relative to {known.root}"
                lines.append(f"{where}, option {option.name}: {said}")
    return list(dict.fromkeys(lines))


def _of_file(path: Path, root: Path) -> Evidence:
    """Return a file as evidence, by what it holds.

    Raises:
        UsageError: it is nothing that evidence can be.
    """
    where = relative(path, root)
    kind = _kind_of(path)
    if kind == "reported":
        told = load_reported(path)
        return Evidence(kind="reported", ours=False, source=told.source, date=told.date, path=where)
    return Evidence(kind=kind, path=where)


def _kind_of(path: Path) -> Literal["prediction", "costs", "profile", "reported"]:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head.startswith(_SQLITE) or b'"traceEvents"' in _plain(head):
            return "profile"
        data = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= _WHOLE else None
    except OSError as error:
        raise UsageError(f"--cite: {path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        data = None
    if is_told(data):
        return "reported"
    if isinstance(data, dict) and "points" in data:
        load_costs(path)
        return "costs"
    for kind, model in (("prediction", Prediction), ("profile", Profile)):
        try:
            model.model_validate(data)
        except ValidationError:
            continue
        return kind  # type: ignore[return-value]
    raise UsageError(
        f"--cite: {path} is no prediction, no costs file, no profile and no reported trial: nothing in it is evidence"
    )


def _plain(head: bytes) -> bytes:
    """Return the beginning of a file as it is without gzip."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    except zlib.error:
        return b""
