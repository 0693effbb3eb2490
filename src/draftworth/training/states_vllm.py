"""States from a vLLM server over HTTP: one request a sample, its file read, checked and put in its place.

The request is `/v1/completions` with the sample's ids, one token to make, and `return_token_ids`; the answer names the
file in `kv_transfer_params.hidden_states_path`, beside which a `.lock` is held until it is written (vLLM 0.32,
`example_hidden_states_connector.py`). A sample that is not sound is asked for once more, then the stage ends.
"""

import fcntl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import MeasureError
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import UnreadableError, read
from draftworth.training.asked import StatusError, ask
from draftworth.training.shape import TargetShape
from draftworth.training.states_files import STATES, TOKENS, Dtype, path_of, write_states

_TRIES = 3
_LOCK_S = 120.0
_REQUEST_S = 600.0
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sample whose states are missing.

    Attributes:
        row: its row.
        folder: where they go.
        ids: its tokens.
    """

    row: int
    folder: Path
    ids: NDArray[np.int32]

    @property
    def place(self) -> tuple[str, int]:
        """What names it in a run: its split and its row."""
        return self.folder.name, self.row


_ENDING = ".safetensors"


class UnsoundError(Exception):
    """States that cannot be used; the text says why."""


def extract(
    url: str,
    model: str,
    wanted: Sequence[Wanted],
    shape: TargetShape,
    dtype: Dtype,
    *,
    at_a_time: int,
    told: Callable[[Wanted], None],
    only: Path | None = None,
) -> None:
    """Take the states of samples from a server.

    Args:
        url: the server's.
        model: the name it serves the target by.
        wanted: which samples.
        shape: the target's.
        dtype: what states are kept as.
        at_a_time: requests at a time.
        told: is called with every sample that is done, in this thread.
        only: the folder that the server puts its files into; one that it names elsewhere is neither read nor removed.

    Raises:
        MeasureError: the server is gone, or gives states that are not sound, after three tries.
    """
    left = iter(wanted)
    with ThreadPoolExecutor(at_a_time, thread_name_prefix="states") as pool:
        running: dict[Future[None], Wanted] = {}
        try:
            while True:
                for one in left:
                    running[pool.submit(_take, url, model, one, shape, dtype, only)] = one
                    if len(running) >= 2 * at_a_time:
                        break
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    told(running.pop(future))
        finally:
            for future in running:
                future.cancel()


def _take(  # noqa: PLR0917 - private, of one sample
    url: str, model: str, one: Wanted, shape: TargetShape, dtype: Dtype, only: Path | None
) -> None:
    why = ""
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S * 2**number)
        try:
            states = requested(url, model, one.ids, shape, only)
        except (UnsoundError, MeasureError, StatusError) as error:
            why = str(error)
            continue
        write_states(path_of(one.folder, one.row), one.ids, states, dtype)
        return
    raise MeasureError(f"sample {one.row}: no sound states from {url} in {_TRIES} tries: {why}")


def requested(
    url: str, model: str, ids: NDArray[np.int32], shape: TargetShape, only: Path | None = None
) -> NDArray[np.float32]:
    """Ask for one sample's states and return them, [T, slots, hidden], checked; the server's file is removed.

    Raises:
        UnsoundError: other tokens, another length or width, or values that are not finite.
        StatusError, MeasureError: the server does not answer as it should.
    """
    prompt = ids.tolist()
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
    answer: dict[str, Any] = ask(url, "/v1/completions", body, timeout=_REQUEST_S)
    path = named_file(answer)
    if path is None:
        raise UnsoundError("the answer names no hidden_states_path")
    if only is not None and path.resolve().parent != only.resolve():
        raise UnsoundError(f"the server names {path}, which is not in {only} as the first one was")
    choice = (answer.get("choices") or [{}])[0]
    if choice.get("prompt_token_ids", answer.get("prompt_token_ids")) != prompt:
        raise UnsoundError("the server read other token ids than were sent")
    return taken(path, ids, shape)


def named_file(answer: Mapping[str, Any]) -> Path | None:
    """Return the file of states that an answer names; None where it names none."""
    named = (answer.get("kv_transfer_params") or {}).get("hidden_states_path")
    return Path(named) if isinstance(named, str) else None


def taken(path: Path, ids: NDArray[np.int32], shape: TargetShape) -> NDArray[np.float32]:
    """Return the states in a server's file, [T, slots, hidden], checked, once it is written; the file is removed.

    Args:
        path: the file.
        ids: the tokens that it should be of, [T].
        shape: the target's.

    Raises:
        UnsoundError: as `requested`.
    """
    try:
        _await(_lock_of(path))
        return _checked(path, ids, shape)
    finally:
        _remove(path)


def discard(path: Path) -> None:
    """Remove a server's file of states that nobody wants, once it is written."""
    with suppress(UnsoundError):
        _await(_lock_of(path))
    _remove(path)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _remove(path: Path) -> None:
    if path.suffix != _ENDING:  # what a wrong answer names may be anybody's file
        return
    for used in (path, _lock_of(path)):
        with suppress(OSError):
            used.unlink()


def _await(lock: Path) -> None:
    """Wait until the server has written the file: it holds the lock until then."""
    deadline = time.monotonic() + _LOCK_S
    try:
        with lock.open("rb") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise UnsoundError(f"{lock}: held for more than {_LOCK_S:.0f} s") from None
                    time.sleep(0.01)
                else:
                    return
    except FileNotFoundError:
        return  # a server that was started without locks


def _checked(path: Path, ids: NDArray[np.int32], shape: TargetShape) -> NDArray[np.float32]:
    try:
        header = read_header(path)
        tensor, tokens = header[STATES], read(header[TOKENS])
        expected = (len(ids), shape.slots, shape.hidden)
        if tensor.shape != expected:
            raise UnsoundError(
                f"states {list(tensor.shape)}, expected {list(expected)}"
                + ("; it extracts other layers" if tensor.shape[1:] != expected[1:] else "")
                + ("; try --no-enable-prefix-caching" if tensor.shape[0] < expected[0] else "")
            )
        if not np.array_equal(tokens, ids):
            raise UnsoundError("states of other tokens than were sent")
        states = read(tensor).astype(np.float32).reshape(expected)
    except (KeyError, UnreadableError, OSError) as error:
        raise UnsoundError(f"{path}: {error}") from None
    if not np.isfinite(states).all():
        raise UnsoundError(f"{int((~np.isfinite(states)).sum()):,} values are not finite")
    return states
