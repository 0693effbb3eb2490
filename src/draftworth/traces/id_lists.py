"""A column of token ids in Arrow's buffers: checked and put together without making a Python number of any id."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.columns import BAD_ID, LARGE_ID, LARGEST_ID, NEGATIVE_ID, outside

if TYPE_CHECKING:
    import pyarrow as pa

_MISSING = -(1 << 40)
"""Stands for a missing id: below every 32-bit number."""


@dataclass(frozen=True, slots=True)
class IdLists:
    """A column of token ids: row i is `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    null: NDArray[np.bool_]

    @classmethod
    def of(cls, table: "pa.RecordBatch", name: str | None, where: str) -> "IdLists":
        """Take a column; one that is not there is null in every row.

        Raises:
            UsageError: it holds something else than lists of whole numbers.
        """
        import pyarrow as pa  # noqa: PLC0415 - lazy
        import pyarrow.compute as pc  # noqa: PLC0415 - lazy

        rows = len(table)
        column = table.column(name) if name in table.schema.names else pa.nulls(rows)
        if pa.types.is_null(column.type):
            none = np.zeros(rows, np.int64)
            return cls(np.empty(0, np.int32), none, none, np.ones(rows, np.bool_))
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        if not is_ids(column.type):
            raise UsageError(f'{where}: the column "{name}" holds {column.type}, not lists of token ids')
        values = column.values
        if values.null_count:
            values = pc.fill_null(values.cast(pa.int64()), _MISSING)
        offsets = column.offsets.to_numpy().astype(np.int64)
        null = column.is_null().to_numpy(zero_copy_only=False)
        return cls(values.to_numpy(), offsets[:-1], np.where(null, 0, np.diff(offsets)), null)

    def faults(self, vocabulary: int | None) -> list[tuple[NDArray[np.bool_], str]]:
        """Return masks of rows with a wrong id, each with what is wrong."""
        begin = int(self.starts[0]) if len(self.starts) else 0
        end = int(self.starts[-1] + self.lengths[-1]) if len(self.starts) else 0
        values = self.values[begin:end]
        limit = LARGEST_ID + 1 if vocabulary is None else min(vocabulary, LARGEST_ID + 1)
        if not len(values) or (int(values.min()) >= 0 and int(values.max()) < limit):
            return []
        large = LARGE_ID if vocabulary is None else outside(vocabulary)
        kinds = ((values == _MISSING, BAD_ID), (values < 0, NEGATIVE_ID), (values >= limit, large))
        found = []
        for wrong, reason in kinds:
            mask = np.zeros(len(self.starts), np.bool_)
            mask[np.searchsorted(self.starts, np.flatnonzero(wrong) + begin, side="right") - 1] = True
            found.append((mask & (self.lengths > 0), reason))
        return found


def is_ids(kind: "pa.DataType") -> bool:
    """Whether a column of this type holds lists of whole numbers."""
    import pyarrow as pa  # noqa: PLC0415 - lazy

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type)))


def joined(prompts: IdLists, outputs: IdLists, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return prompt and output of each row behind each other."""
    lengths = np.empty(2 * len(rows), np.int64)
    lengths[0::2], lengths[1::2] = prompts.lengths[rows], outputs.lengths[rows]
    tokens = np.empty(int(lengths.sum()), np.int32)
    of_prompt = np.repeat(np.tile(np.array((True, False)), len(rows)), lengths)
    tokens[of_prompt] = _taken(prompts, rows)
    tokens[~of_prompt] = _taken(outputs, rows)
    return tokens


def _taken(lists: IdLists, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values of some rows behind each other."""
    starts, lengths = lists.starts[rows], lists.lengths[rows]
    total = int(lengths.sum())
    if not total:
        return lists.values[:0]
    begin = int(starts[0])
    if int(starts[-1] + lengths[-1]) - begin == total:  # nothing was left out between them
        return lists.values[begin : begin + total]
    behind = np.cumsum(lengths) - lengths
    taken: NDArray[Any] = lists.values[np.arange(total) + np.repeat(starts - behind, lengths)]
    return taken
