"""States that were kept while answers were written, found again by their tokens for the stage `states`."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftworth.engines.install.base import sync_folder
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import UnreadableError, read
from draftworth.training.capture import read_made_from, tokens_of
from draftworth.training.shape import TargetShape
from draftworth.training.states_files import SCALES, STATES, Dtype, path_of, why_not, write_states
from draftworth.training.states_vllm import Wanted


class Captured:
    """What is kept in a folder.

    A sample is there where a file's tokens are its own, or begin with them: a sample is cut at its end alone, and no
    state depends on what comes behind it.

    Args:
        folder: the folder; may be missing.
        made: `capture.made_from` of now. States of anything else are not used.
        shape: the target's.
        dtype: what states are kept as.
        longest: at how many tokens samples are cut.
    """

    def __init__(
        self, folder: Path, made: Mapping[str, str], shape: TargetShape, dtype: Dtype, *, longest: int
    ) -> None:
        self._folder, self._shape, self._dtype = folder, shape, dtype
        found = read_made_from(folder)
        self.is_of_another = found is not None and {name: found.get(name) for name in made} != dict(made)
        """Whether the folder holds states of another target, of other layers or of another type."""
        self._files: dict[bytes, tuple[Path, int]] = {}
        if found is None or self.is_of_another:
            return
        for path in sorted(folder.glob("*.safetensors")):
            try:
                ids = tokens_of(path)
            except (UnreadableError, OSError):
                continue  # not whole: computed instead
            if len(ids) > longest:
                self._files.setdefault(_key(ids[:longest]), (path, len(ids)))
            self._files[_key(ids)] = (path, len(ids))

    def __contains__(self, ids: NDArray[np.int32]) -> bool:
        return _key(ids) in self._files

    def adds(self, ids: NDArray[np.int32]) -> bool:
        """Tell whether a sample's states take room of their own: those of a cut one do, others are linked."""
        return self._files[_key(ids)][1] > len(ids)

    def take_over(self, one: Wanted) -> bool:
        """Put a sample's states in their place, whole or not at all.

        Returns:
            Whether they are there and sound; if not they are to be computed.
        """
        source, length = self._files[_key(one.ids)]
        path = path_of(one.folder, one.row)
        try:
            if length > len(one.ids):
                write_states(path, one.ids, _states(source, one.ids, self._shape), self._dtype)
            else:
                _link(source, path)
        except (UnreadableError, KeyError, OSError):
            return False
        if why_not(path, one.ids, self._shape, self._dtype):
            path.unlink(missing_ok=True)
            return False
        return True

    def remove(self) -> None:
        """Remove all of it: it must not be used."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._files.clear()


def _key(ids: NDArray[np.int32]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(ids, "<i4").tobytes()).digest()


def _states(path: Path, ids: NDArray[np.int32], shape: TargetShape) -> NDArray[np.float32]:
    """Return the states of a file's first tokens."""
    header = read_header(path)
    size = (len(ids), shape.slots, shape.hidden)
    states = read(header[STATES], 0, int(np.prod(size))).astype(np.float32).reshape(size)
    if SCALES in header:
        states *= read(header[SCALES], 0, len(ids)).astype(np.float32)[:, None, None]
    return states


def _link(source: Path, path: Path) -> None:
    """Give a file a second name, or copy it where the file system has no second names."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(FileNotFoundError):
        beside.unlink()
    try:
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        beside.replace(path)
    finally:
        # Also behind a rename: of two names of one file it would leave both.
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)
