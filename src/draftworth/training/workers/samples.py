"""The samples of a run folder and their states, as workers read them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from draftworth.training.workers.channel import WorkerRefusedError
from draftworth.training.workers.eagle3 import Draft
from draftworth.training.workers.walking import Walked, anchors, matches, spans, walk

SCALES = "hidden_states_scales"
"""The tensor of scales beside fp8 states, [T, 1, 1] (hs-connectors 0.9, `fp8_utils.py`)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample.

    Attributes:
        row: its row, which names its file of states.
        source: where it came from.
        category: what kind of work it is.
        ids: token ids, [T].
        mask: which of them the target wrote, [T].
    """

    row: int
    source: str
    category: str
    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]


def read_samples(path: Path, limit: int | None = None) -> list[Sample]:
    """Return the samples of `data/<split>.parquet`; of a limit, every n-th one, so that all sources are there."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    table = pq.read_table(path)
    rows = np.arange(len(table))
    if limit is not None and limit < len(rows):
        rows = np.unique(np.linspace(0, len(rows) - 1, limit).round().astype(np.int64))
    columns = {name: table.column(name) for name in ("sample", "source", "category", "input_ids", "loss_mask")}
    return [
        Sample(
            row=int(columns["sample"][row].as_py()),
            source=str(columns["source"][row].as_py() or ""),
            category=str(columns["category"][row].as_py() or ""),
            ids=np.asarray(columns["input_ids"][row].values, np.int64),
            mask=np.asarray(columns["loss_mask"][row].values, np.int64).astype(np.bool_),
        )
        for row in rows.tolist()
    ]


def read_states(folder: Path, sample: Sample) -> torch.Tensor:
    """Return a sample's states in float32, [T, slots, hidden].

    Raises:
        WorkerRefusedError: the file is missing, or is of other tokens.
    """
    from safetensors.torch import load_file  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's

    path = folder / f"hs_{sample.row}.safetensors"
    try:
        found = load_file(path)
    except Exception as error:  # noqa: BLE001 - the library raises its own type
        raise WorkerRefusedError(f"{path}: cannot be read ({error}); run `draftworth train states` again") from None
    if not np.array_equal(found["token_ids"].numpy(), sample.ids):
        raise WorkerRefusedError(f"{path}: of other tokens than the sample's; run `draftworth train states` again")
    states: torch.Tensor = found["hidden_states"].float()
    return states * found[SCALES].float() if SCALES in found else states


def walk_sample(
    draft: Draft, sample: Sample, states: torch.Tensor, ks: tuple[int, ...], stop_after: int | None = None
) -> dict[int, Walked]:
    """Return the walks of one sample, by k.

    Args:
        draft: the draft.
        sample: the sample.
        states: its states, [T, slots, hidden]; the last slot is not an auxiliary one.
        ks: how many tokens a step drafts.
        stop_after: walk as a server that stops after so many tokens of the last answer, alone; the text behind them
            says what it verified and cut off. For comparisons with a server's counters.
    """
    mask, known = sample.mask, None
    if stop_after is not None:
        first, last = spans(mask)[-1]
        mask, known = np.zeros_like(mask), last
        mask[first : first + stop_after] = True
    where = anchors(mask)
    if not len(where):
        return {k: Walked(k) for k in ks}
    drafts = draft.chain(torch.from_numpy(sample.ids), states[:, :-1].flatten(1), torch.from_numpy(where), max(ks))
    agreeing = matches(drafts.cpu().numpy(), sample.ids, where)
    return {k: walk(agreeing, where, mask, k, known) for k in ks}
