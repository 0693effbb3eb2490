"""The columns of samples, `train.parquet` and `held_out.parquet`: written whole or not at all, read in batches."""

import contextlib
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from draftworth.engines.install.base import sync_folder
from draftworth.errors import UsageError
from draftworth.training.samples import Sample

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
_ROWS = 512


def schema() -> "pa.Schema":
    """Return the columns; `sample` is the row, `exact` whether the ids came from a server."""
    import pyarrow as pa  # noqa: PLC0415 - lazy

    return pa.schema(
        [
            pa.field("sample", pa.int64(), nullable=False),
            pa.field("conversation", pa.string(), nullable=False),
            pa.field("source", pa.string(), nullable=False),
            pa.field("category", pa.string(), nullable=False),
            pa.field("input_ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
            pa.field("loss_mask", pa.list_(pa.field("element", pa.uint8(), nullable=False)), nullable=False),
            pa.field("exact", pa.bool_(), nullable=False),
        ],
        metadata={"schema_version": str(SCHEMA_VERSION)},
    )


class SampleWriter:
    """Writes samples; a context manager. The file is there when it was left without an error, whole.

    Args:
        path: the file.

    Attributes:
        rows: how many samples were written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._held: list[tuple[str, str, str, Sample]] = []
        self._writer: Any = None

    def __enter__(self) -> Self:
        import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

        for old in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            old.unlink(missing_ok=True)  # of a run that was killed
        self._writer = pq.ParquetWriter(self._partial, schema(), compression="zstd")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
            self._partial.unlink(missing_ok=True)
            return
        self._flush()
        self._writer.close()
        descriptor = os.open(self._partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._partial.replace(self.path)
        sync_folder(self.path.parent)

    def add(self, conversation: str, source: str, category: str, sample: Sample) -> None:
        """Write a sample; its row is how many were written before."""
        self._held.append((conversation, source, category, sample))
        self.rows += 1
        if len(self._held) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 - lazy

        if not self._held:
            return
        held, self._held = self._held, []
        offsets = np.zeros(len(held) + 1, np.int32)
        np.cumsum([len(sample.ids) for *_, sample in held], out=offsets[1:])
        columns = schema()
        ids = np.concatenate([sample.ids for *_, sample in held]).astype(np.int32)
        mask = np.concatenate([sample.mask for *_, sample in held]).astype(np.uint8)
        table = pa.Table.from_arrays(
            [
                pa.array(np.arange(self.rows - len(held), self.rows)),
                *(pa.array([one[at] for one in held], pa.string()) for at in range(3)),
                pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids), type=columns.field("input_ids").type),
                pa.ListArray.from_arrays(pa.array(offsets), pa.array(mask), type=columns.field("loss_mask").type),
                pa.array([sample.exact for *_, sample in held]),
            ],
            schema=columns,
        )
        self._writer.write_table(table)


def read_samples(path: Path) -> Iterator[tuple[str, str, str, Sample]]:
    """Yield conversation, source, category and sample of every row, in order.

    Raises:
        UsageError: the file is missing or damaged, or a mask is not as long as its ids.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    row = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                names = [batch.column(name).to_pylist() for name in ("conversation", "source", "category", "exact")]
                ids, mask = _lists(batch.column("input_ids")), _lists(batch.column("loss_mask"))
                for at in range(batch.num_rows):
                    if len(ids[at]) != len(mask[at]):
                        raise UsageError(f"{path}: row {row}: {len(ids[at])} ids and {len(mask[at])} of the mask")
                    yield names[0][at], names[1][at], names[2][at], Sample(ids[at], mask[at], bool(names[3][at]))
                    row += 1
    except FileNotFoundError:
        raise UsageError(f"{path}: not there; run `draftworth train data` first") from None
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UsageError(f"{path}: not readable behind row {row}: {' '.join(str(error).split())[:200]}") from None


def _lists(column: Any) -> list[NDArray[Any]]:
    values, offsets = column.values.to_numpy(), column.offsets.to_numpy()
    return [values[start:end] for start, end in pairwise(offsets)]
