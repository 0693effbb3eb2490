"""A Hugging Face dataset folder, read with pyarrow alone; a row is what `chat` says a row is.

Names of files: `data-00000-of-00002.arrow` in a split's folder, as `save_to_disk` writes them (datasets,
arrow_dataset.py), and `train-00000-of-00002.parquet`, `train.jsonl` or a split's folder in a hub's clone (docs of
datasets: file names and splits).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import records
from draftworth.training.recipe import SourceConfig
from draftworth.training.sources.base import Found
from draftworth.training.sources.chat import of_row

_ENDS = (".arrow", ".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".json")
_NO_DATA = re.compile(r"^(?:cache-|\.)|^(?:dataset_info|dataset_dict|dataset_infos|state|config|tokenizer)[^/]*\.json$")
_SHARD = re.compile(r"-\d{4,}(?:-of-\d{4,})?(?:-[0-9a-f]+)?$")
_NOT_A_SPLIT = {"data", "dataset", "part", "default", "", "parquet"}


class Dataset:
    """A folder of Arrow, Parquet or JSON lines files, one or several splits; see the module's text."""

    name = "dataset"

    def fits(self, path: Path) -> bool:
        """Return whether it is a folder with files of data."""
        return path.is_dir() and bool(_data(path))

    def files(self, source: SourceConfig) -> Sequence[Path]:
        """Return the split's files, in the order of their names.

        Raises:
            UsageError: there is no data, there are several splits and none is named, or the named one is not there.
        """
        if source.path.is_file():
            return (source.path,)
        splits: dict[str, list[Path]] = {}
        for file in _data(source.path):
            splits.setdefault(split_of(file.relative_to(source.path)), []).append(file)
        if not splits:
            raise UsageError(f"{source.path}: no Arrow, Parquet or JSON lines file in this folder")
        names = ", ".join(sorted(name or "(none)" for name in splits))
        if source.split is None and len(splits) > 1:
            raise UsageError(f"{source.path}: several splits: {names}; name one by `split`")
        chosen = next(iter(splits)) if source.split is None else source.split
        if chosen not in splits:
            raise UsageError(f"{source.path}: no split {chosen!r}; there are: {names}")
        return splits[chosen]

    def read(self, source: SourceConfig, name: str, target: Path) -> Iterator[Found]:  # noqa: ARG002 - no ids are made
        """Yield every conversation; see `Source.read`."""
        number = 0
        for file in self.files(source):
            for where, row in _rows(file):
                number += 1
                yield where, row if isinstance(row, BadRow) else of_row(row, source, name, number, where)


def split_of(file: Path) -> str:
    """Return the split that a file of a dataset belongs to, by its name and folder; empty text for none."""
    stem = file.name.split(".")[0]
    own = _SHARD.sub("", stem)
    if own not in _NOT_A_SPLIT and (own != stem or len(file.parts) == 1):
        return own
    return next((part for part in reversed(file.parts[:-1]) if part not in _NOT_A_SPLIT), "")


def _data(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.name.endswith(_ENDS)
        and not _NO_DATA.search(file.name)
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and file.is_file()
    )


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any] | BadRow]]:
    if file.suffix != ".arrow":
        yield from records(file)
        return
    import pyarrow as pa  # noqa: PLC0415 - lazy

    number = 0
    try:
        with pa.memory_map(str(file)) as mapped:
            for batch in _batches(mapped):
                # A batch may be as large as a file: what is decoded at a time stays small.
                for start in range(0, batch.num_rows, 256):
                    for row in batch.slice(start, 256).to_pylist():
                        number += 1
                        # A table has every column in every row: an empty cell is what a missing key is in JSON.
                        yield f"{file}: row {number}", {key: value for key, value in row.items() if value is not None}
    except (pa.ArrowException, OSError, ValueError) as error:
        after = f" after row {number}" if number else ""
        raise UsageError(f"{file}: not a readable Arrow file{after}: {' '.join(str(error).split())[:200]}") from error


def _batches(mapped: Any) -> Iterator[Any]:
    """Yield the batches of an Arrow file, which `datasets` writes as a stream and others as a file."""
    import pyarrow as pa  # noqa: PLC0415 - lazy

    try:
        reader = pa.ipc.open_stream(mapped)
    except pa.ArrowInvalid:
        mapped.seek(0)
        file = pa.ipc.open_file(mapped)
        yield from (file.get_batch(at) for at in range(file.num_record_batches))
        return
    yield from reader
