"""Reads traces from Parquet: a file, or a folder of them, a few rows at a time.

Ids stay in Arrow's buffers until they are put into a batch: no Python number is made of any of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch
from draftworth.traces.columns import (
    EMPTY_OUTPUT,
    NO_MODEL,
    NO_OUTPUT,
    NO_PROMPT,
    OTHER_MODEL,
    ROWS_A_BATCH,
    SCHEMA_VERSION,
    THINKING,
    BadRow,
    OneOf,
)
from draftworth.traces.id_lists import IdLists, joined

if TYPE_CHECKING:
    import pyarrow as pa

_BUFFER = 1 << 20
IDS = ("prompt_token_ids", "output_token_ids")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a Parquet file keeps what.

    Attributes:
        columns: a trace's column to the file's; those that the file lacks may be left out.
        model: every row's, where the file has no such column.
        temperature: every row's, where the file has no such column.
    """

    columns: Mapping[str, str]
    model: str | None = None
    temperature: float = float("nan")


class ParquetTrace:
    """A trace in Parquet; see `traces.base.Trace`.

    Args:
        path: what a person named.
        files: the files, in order.
        source: where they keep what.
        model: the chosen model; None where there is one.
        vocabulary: ids at or above this make a row unusable.
    """

    def __init__(
        self,
        path: Path,
        files: Sequence[Path],
        source: Source,
        *,
        model: str | None = None,
        vocabulary: int | None = None,
    ) -> None:
        self.path = path
        self.bad = BadRows()
        self._files = files
        self._source = source
        self._model = model
        self._vocabulary = vocabulary
        self.requests: int | None = sum(_rows(file) for file in files)

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests; see `Trace.batches`."""
        self.bad = BadRows()
        one = OneOf(str(self.path), self._model)
        self._look_at_models(one)
        any_left = False
        for file in self._files:
            for batch in self._read(file, one, tokens):
                any_left = True
                yield batch
        if not any_left:
            one.nothing_left(self.bad)

    def leave_out(self, table: "pa.RecordBatch") -> list[tuple[NDArray[np.bool_], str | None]]:
        """Return masks of rows to be left out, each with the reason; None for those that are not meant at all."""
        del table
        return []

    def more_columns(self) -> tuple[str, ...]:
        """Return columns of the file that `leave_out` and `names` look at."""
        return ()

    def names(self, table: "pa.RecordBatch", first: int) -> list[str]:
        """Return every row's request id."""
        column = self._source.columns.get("request_id")
        if column is None or column not in table.schema.names:
            return [f"request-{first + at + 1}" for at in range(len(table))]
        texts = table.column(column).to_pylist()
        return [f"request-{first + at + 1}" if one is None else str(one) for at, one in enumerate(texts)]

    def _look_at_models(self, one: OneOf) -> None:
        """Refuse several models or tokenizers before anything is computed from a part of them."""
        wanted = [self._source.columns[name] for name in ("model", "tokenizer_hash") if name in self._source.columns]
        if self._source.model is not None:
            one.see(self._source.model, None)
        for file in self._files if wanted else ():
            with opened(file, read_dictionary=wanted) as table:
                there = [name for name in wanted if name in table.schema_arrow.names]
                for batch in table.iter_batches(batch_size=ROWS_A_BATCH, columns=there) if there else ():
                    for pair in _pairs(batch, self._source):
                        try:
                            one.see(*pair)
                        except BadRow:
                            continue
        one.refuse()

    def _read(self, path: Path, one: OneOf, tokens: int) -> Iterator[TraceBatch]:
        with opened(path) as file:
            there = set(file.schema_arrow.names)
            wanted = [name for name in (*self._source.columns.values(), *self.more_columns()) if name in there]
            first = 0
            for group in range(file.num_row_groups):
                size = _rows_at_a_time(file.metadata.row_group(group), tokens)
                for table in file.iter_batches(batch_size=size, row_groups=[group], columns=wanted):
                    yield from self._batches(path, table, first, one, tokens)
                    first += len(table)

    def _batches(
        self, path: Path, table: "pa.RecordBatch", first: int, one: OneOf, tokens: int
    ) -> Iterator[TraceBatch]:
        columns = self._source.columns
        prompts, outputs = (IdLists.of(table, columns.get(name), f"{path}") for name in IDS)
        thinking = _numbers(table, columns.get("thinking_tokens"), -1).astype(np.int64)
        left = np.ones(len(table), np.bool_)
        found: list[tuple[NDArray[np.bool_], str | None]] = [*self.leave_out(table), *self._other_models(table)]
        found += [(prompts.null, NO_PROMPT), (outputs.null, NO_OUTPUT), (outputs.lengths == 0, EMPTY_OUTPUT)]
        found += [*prompts.faults(self._vocabulary), *outputs.faults(self._vocabulary)]
        found.append(((thinking < -1) | (thinking > outputs.lengths), THINKING))
        for mask, reason in found:
            if reason is not None:
                for at in np.flatnonzero(mask & left):
                    self.bad.add(reason, f"{path}: row {first + int(at) + 1}")
            left &= ~mask
        kept = np.flatnonzero(left)
        if not len(kept):
            return
        names = self.names(table, first)
        categories = _texts(table, columns.get("category"))
        temperatures = _numbers(table, columns.get("temperature"), self._source.temperature)
        exact = self.exactness(table)
        sizes = prompts.lengths[kept] + outputs.lengths[kept]
        for begin, end in _cuts(sizes, tokens):
            some = kept[begin:end]
            yield TraceBatch(
                request_ids=[names[at] for at in some],
                tokens=joined(prompts, outputs, some),
                offsets=np.concatenate(([0], np.cumsum(sizes[begin:end]))).astype(np.int64),
                prompt_lengths=prompts.lengths[some].astype(np.int32),
                thinking=thinking[some].astype(np.int32),
                categories=[categories[at] for at in some],
                temperatures=temperatures[some],
                exact=exact[some],
                first_row=first + int(some[0]),
                model=one.model,
                tokenizer_hash=one.tokenizer,
            )

    def exactness(self, table: "pa.RecordBatch") -> NDArray[np.bool_]:
        """Return whether each row's ids came from the server; ids of unknown origin are taken as such."""
        column = self._source.columns.get("exact")
        if column is None or column not in table.schema.names:
            return np.ones(len(table), np.bool_)
        return np.array([one is not False for one in table.column(column).to_pylist()], np.bool_)

    def _other_models(self, table: "pa.RecordBatch") -> list[tuple[NDArray[np.bool_], str]]:
        column = self._source.columns.get("model")
        if self._model is None or column is None or column not in table.schema.names:
            return []
        models = _texts(table, column)
        named = np.array([bool(one) for one in models], np.bool_)
        other = np.array([one != self._model for one in models], np.bool_)
        return [(~named, NO_MODEL), (other, OTHER_MODEL)]


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Any]:
    """Open a Parquet file for reading a few rows at a time.

    Raises:
        UsageError: it cannot be read, whenever that shows.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER, **options) as file:
            version = (file.schema_arrow.metadata or {}).get(b"schema_version", b"1")
            ours = (file.schema_arrow.metadata or {}).get(b"draftworth") == b"trace"
            if ours and not (version.isdigit() and int(version) <= SCHEMA_VERSION):
                raise UsageError(
                    f"{path}: schema_version {version.decode(errors='replace')}; this Draftworth reads traces up to "
                    f"{SCHEMA_VERSION}: update Draftworth"
                )
            yield file
    except pa.ArrowException as error:
        raise UsageError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())}") from error
    except OSError as error:
        said = error.strerror or " ".join(str(error).split())
        raise UsageError(f"{path}: not a readable Parquet file: {said}") from error


def _rows(path: Path) -> int:
    with opened(path) as file:
        return int(file.metadata.num_rows)


def _rows_at_a_time(group: Any, tokens: int) -> int:
    """Return how many rows of a group have about so many tokens, by the number of values of its largest column."""
    values = max((int(group.column(at).num_values) for at in range(group.num_columns)), default=0)
    a_row = max(1, 2 * values // max(1, int(group.num_rows)))
    return int(min(ROWS_A_BATCH, max(1, tokens // a_row)))


def _cuts(sizes: NDArray[np.int64], tokens: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with at most so many tokens, or of one row."""
    ends = np.cumsum(sizes)
    begin, before = 0, 0
    while begin < len(sizes):
        end = max(begin + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        yield begin, end
        before, begin = int(ends[end - 1]), end


def _numbers(table: "pa.RecordBatch", name: str | None, missing: float) -> NDArray[np.float64]:
    """Return a column of numbers, `missing` where there is none."""
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.compute as pc  # noqa: PLC0415 - lazy

    if name is None or name not in table.schema.names or pa.types.is_null(table.column(name).type):
        return np.full(len(table), missing, np.float64)
    found = pc.fill_null(table.column(name).cast(pa.float64()), missing)
    return np.array(found.to_numpy(zero_copy_only=False), np.float64)


def _texts(table: "pa.RecordBatch", name: str | None) -> list[str]:
    if name is None or name not in table.schema.names:
        return [""] * len(table)
    return ["" if one is None else str(one) for one in table.column(name).to_pylist()]


def _pairs(table: "pa.RecordBatch", source: Source) -> list[tuple[str | None, str | None]]:
    """Return the models and tokenizers that occur together, in order of appearance."""
    import pyarrow as pa  # noqa: PLC0415 - lazy

    both = []
    for name in ("model", "tokenizer_hash"):
        column = source.columns.get(name)
        there = column is not None and column in table.schema.names
        both.append(table.column(column).cast(pa.string()) if there else pa.nulls(len(table), pa.string()))
    found = pa.table(both, names=["model", "tokenizer"])
    found = found.group_by(["model", "tokenizer"], use_threads=False).aggregate([])
    return [(one["model"] or source.model, one["tokenizer"]) for one in found.to_pylist()]
