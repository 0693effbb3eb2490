"""`progress.jsonl`: one line a step and an epoch, for people, for pages and for resuming. Nothing of torch in here."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ProgressFile:
    """The file of one training; several processes may read it, one writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, Any]] = read_progress(path)

    def resume(self, step: int) -> None:
        """Drop lines that lie behind a checkpoint's step: they will be written again.

        Args:
            step: optimizer steps that the checkpoint has seen; lines of steps count from 0.
        """
        kept = [one for one in self._lines if (one["step"] < step if one["kind"] == "step" else one["step"] <= step)]
        self._lines = kept
        beside = self._path.with_name(f".{self._path.name}.new")
        beside.write_text("".join(json.dumps(one) + "\n" for one in kept), "utf-8")
        beside.replace(self._path)

    def add(self, line: Mapping[str, Any], *, sync: bool = False) -> None:
        """Append one line, with the time."""
        full = {**line, "time": round(time.time(), 3)}
        self._lines.append(full)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(full) + "\n")
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def reread(self) -> None:
        """Read what another process wrote."""
        self._lines = read_progress(self._path)

    def walks(self) -> dict[int, dict[str, Any]]:
        """Return the walk of every epoch that was walked."""
        return {int(one["epoch"]): one["walk"] for one in self._lines if one["kind"] == "epoch"}


def read_progress(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a progress file; a last one that was cut off by a kill is left out."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and {"kind", "step", "epoch"} <= one.keys():
            found.append(one)
    return found
