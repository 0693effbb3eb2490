"""States that a server stores while it writes answers, kept beside the answers: one pass over the tokens, not two.

vLLM 0.32's connector (`example_hidden_states_connector.py`, `request_finished`) stores with `include_output_tokens` the
states of the prompt and of every generated token but the last: that one was never an input, so there is no state of it.
Its row is written as zeros. Nothing that is learned reads it: from position t on token t + 2 is drafted, and behind the
last token there is none (the trainer's loss leaves it out, `workers/fit_worker.py`).
"""

import json
import shutil
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import UnreadableError, read
from draftworth.training.answers import Answer
from draftworth.training.shape import TargetShape
from draftworth.training.stages import key_of, target_inputs, write_atomically
from draftworth.training.states_files import MADE_FROM, TOKENS, Dtype, bytes_of, write_states
from draftworth.training.states_vllm import UnsoundError, discard, named_file, taken

CAPTURED = "states"
"""The folder in that of the stage `data`."""
ASK: Mapping[str, Any] = {"kv_transfer_params": {"include_output_tokens": True}}
"""Fields of a request that has the states of its answer stored too."""
KEPT = "answers whose states were kept"
FULL = "answers whose states were not kept: no more room under disk_gib"
UNSOUND = "answers whose states were not kept: the server's file is not sound"
_FREE = 0.9
_GIB = 2**30


def made_from(target: Path, shape: TargetShape, dtype: Dtype) -> dict[str, str]:
    """Return what states depend on beside the tokens, by name."""
    return {**target_inputs(target), "layers": ",".join(map(str, shape.aux)), "dtype": dtype}


class Capture:
    """Takes the states out of a server's files, answer by answer; for several threads.

    Args:
        folder: where they are kept; what was made for another target, other layers or settings is removed from it.
        shape: the target's.
        dtype: what they are kept as.
        made_from: see there.
        answers: the key of the answers' settings.
        disk_gib: most GiB they may take; None: nine tenths of what is free.

    Attributes:
        counts: answers by what became of their states.
        first_unsound: why the first one could not be used; empty where all could.
    """

    def __init__(
        self,
        folder: Path,
        shape: TargetShape,
        dtype: Dtype,
        *,
        made_from: Mapping[str, str],
        answers: str,
        disk_gib: float | None,
    ) -> None:
        self._folder, self.shape, self._dtype = folder, shape, dtype
        self._storage: Path | None = None
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.first_unsound = ""
        self._begin({**made_from, "answers": answers})
        self._used = sum(one.stat().st_size for one in folder.glob("*.safetensors"))
        self._most = self._used + shutil.disk_usage(folder).free * _FREE if disk_gib is None else disk_gib * _GIB

    def only_from(self, storage: Path) -> None:
        """Take files of this folder alone: a server names them, and they are removed."""
        self._storage = storage

    def keep(self, said: Mapping[str, Any], answer: Answer) -> None:
        """Keep an answer's states; the server's file is removed whatever becomes of them. Waits for the file.

        Args:
            said: the server's response.
            answer: what it says, with the place where it belongs.
        """
        named = named_file(said)
        if named is None or named.parent != self._storage:
            self._count(UNSOUND, f"the answer names {named or 'no file'}")
            return
        ids = np.array([*(answer.prompt_ids or ()), *(answer.output_ids or ())], np.int32)
        need = bytes_of([len(ids)], self.shape, self._dtype)
        if answer.error or not answer.prompt_ids or not answer.output_ids or not self._reserve(need):
            discard(named)
            return
        written = 0
        try:
            states = taken(named, ids[:-1], self.shape)
            path = self._path(answer, answer.turn)
            write_states(path, ids, np.pad(states, ((0, 1), (0, 0), (0, 0))), self._dtype)
            written = path.stat().st_size
            self._count(KEPT)
            written -= self._without_beginning(answer, ids)
        except UnsoundError as error:
            self._count(UNSOUND, str(error))
        except OSError as error:
            # The disk is full, for one: answers are worth more than their states, which can be computed later.
            self._count(UNSOUND, f"{self._folder}: cannot be written: {error.strerror}")
        with self._lock:
            self._used += written - need

    def _path(self, answer: Answer, turn: int) -> Path:
        place = {"conversation": answer.conversation, "sample": str(answer.sample), "turn": str(turn)}
        return self._folder / f"{key_of(place).removeprefix('sha256:')[:32]}.safetensors"

    def _without_beginning(self, answer: Answer, ids: NDArray[np.int32]) -> int:
        """Remove the states of the turn before where this one's begin with them. Returns the bytes."""
        before = self._path(answer, answer.turn - 1)
        try:
            known = tokens_of(before)
        except (UnreadableError, OSError):
            return 0
        if not np.array_equal(known, ids[: len(known)]):
            return 0
        size = before.stat().st_size
        before.unlink()
        return size

    def _reserve(self, need: int) -> bool:
        with self._lock:
            if self._used + need > self._most:
                self.counts[FULL] += 1
                return False
            self._used += need
            return True

    def _count(self, what: str, why: str = "") -> None:
        with self._lock:
            self.counts[what] += 1
            self.first_unsound = self.first_unsound or why

    def _begin(self, made: Mapping[str, str]) -> None:
        try:
            if read_made_from(self._folder) != dict(made):
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder.mkdir(mode=0o700)
                write_atomically(self._folder / MADE_FROM, json.dumps(dict(made), indent=1).encode())
            for part in self._folder.glob(".*.tmp"):
                part.unlink()
        except OSError as error:
            raise UsageError(f"{self._folder}: cannot be written: {error.strerror}") from None


def read_made_from(folder: Path) -> dict[str, str] | None:
    """Return what states in a folder were made from; None where that is not known."""
    with suppress(OSError, ValueError):
        found = json.loads((folder / MADE_FROM).read_text("utf-8"))
        return found if isinstance(found, dict) else None
    return None


def tokens_of(path: Path) -> NDArray[np.int32]:
    """Return the tokens that a file of states is of.

    Raises:
        UnreadableError: it is no such file.
        OSError: it cannot be read.
    """
    tokens = read_header(path).get(TOKENS)
    if tokens is None:
        raise UnreadableError("tensors are missing")
    return read(tokens).astype(np.int32)
