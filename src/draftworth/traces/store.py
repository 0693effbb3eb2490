"""Opens whatever holds recorded requests as a trace, and writes traces."""

from pathlib import Path

from draftworth.errors import UsageError
from draftworth.traces.base import Trace
from draftworth.traces.columns import NAMES, BadRow
from draftworth.traces.id_lists import is_ids
from draftworth.traces.parquet import IDS, ParquetTrace, Source, opened
from draftworth.traces.writing import PARTS, TraceWriter

__all__ = ["BadRow", "TraceWriter", "open_trace"]


def open_trace(
    path: Path,
    *,
    tokenizer: Path | None = None,
    model: str | None = None,
    arm: str | None = None,
    vocabulary: int | None = None,
) -> Trace:
    """Open a trace.

    Args:
        path: a Parquet trace, JSON lines with the same fields (also packed by gzip or zstd), a folder of Parquet traces
            that are read as one, a trial's or benchmark's folder or its requests.parquet (answers of one arm). With a
            tokenizer also a file that `trace import` reads; ids made of text are marked as not exact.
        tokenizer: a model's folder, or its tokenizer.json, for rows that are text.
        model: of several models in one trace, the one to take.
        arm: of a trial, whose answers; None for the baseline's.
        vocabulary: ids at or above this make a row unusable; None where it is not known. Of a file that the tokenizer
            is needed for, the tokenizer's own.

    Raises:
        UsageError: there is no such file, it is no trace, or it is damaged; one line that says what to do.
    """
    found = _trace(path, model, arm, vocabulary)
    return found or _imported(path, tokenizer, model, vocabulary)


def is_trace(path: Path, *, arm: str | None = None) -> bool:
    """Whether a file or folder holds ids where a trace has them, so that no importer is needed.

    Raises:
        UsageError: there is no such file, it is damaged, or a trial has no such arm.
    """
    return _trace(path, None, arm, None) is not None


def _trace(path: Path, model: str | None, arm: str | None, vocabulary: int | None) -> Trace | None:
    from draftworth.traces.imports.base import is_table  # noqa: PLC0415 - imports pull in msgspec

    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:  # a name that is too long, a folder that is another's
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if is_folder:
        return _folder(path, model, arm, vocabulary)
    if not is_there:
        parts = path.with_name(f"{path.name}{PARTS}")
        if parts.is_dir():
            raise UsageError(f"{path}: the recording was cut off before its end; what it had written is in {parts}")
        raise UsageError(f"{path}: no such file")
    return _table(path, model, arm, vocabulary) if is_table(path) else _lines(path, model, vocabulary)


def _folder(path: Path, model: str | None, arm: str | None, vocabulary: int | None) -> Trace:
    from draftworth.traces.trial import REQUESTS, TrialTrace  # noqa: PLC0415 - numpy only where needed

    if (path / REQUESTS).is_file():
        return TrialTrace(path, path / REQUESTS, arm=arm, model=model, vocabulary=vocabulary)
    files = sorted(one for one in path.glob("*.parquet") if not one.name.startswith("."))
    if not files:
        raise UsageError(f"{path} is no trace: it has neither Parquet files nor a trial's {REQUESTS}")
    for file in files:
        if _columns(file) is None:
            raise UsageError(f"{file} is no trace: it lacks {' and '.join(IDS)}")
    return ParquetTrace(path, files, Source({name: name for name in NAMES}), model=model, vocabulary=vocabulary)


def _table(path: Path, model: str | None, arm: str | None, vocabulary: int | None) -> Trace | None:
    from draftworth.traces.trial import TrialTrace, is_trial  # noqa: PLC0415 - numpy only where needed

    with opened(path) as file:
        trial = is_trial(frozenset(file.schema_arrow.names))
    if trial:
        return TrialTrace(path, path, arm=arm, model=model, vocabulary=vocabulary)
    columns = _columns(path)
    if columns is None:
        return None
    return ParquetTrace(path, [path], columns, model=model, vocabulary=vocabulary)


def _columns(path: Path) -> Source | None:
    """Return where a table keeps a trace's columns; None where it has no lists of ids."""
    from draftworth.traces.imports.plain import NAME, OUTPUT_IDS, PROMPT_IDS  # noqa: PLC0415 - lazy

    with opened(path) as file:
        kinds = {field.name: field.type for field in file.schema_arrow}
    found = {name: name for name in NAMES if name in kinds}
    for name, others in zip((*IDS, "request_id"), (PROMPT_IDS, OUTPUT_IDS, NAME), strict=True):
        for other in others:
            if name not in found and other in kinds and (name == "request_id" or is_ids(kinds[other])):
                found[name] = other
    return Source(found) if found.keys() >= set(IDS) else None


def _lines(path: Path, model: str | None, vocabulary: int | None) -> Trace | None:
    """Return the trace that a text file is; None where its first row is none of a trace."""
    from draftworth.traces.imports.base import sample  # noqa: PLC0415 - lazy
    from draftworth.traces.jsonl import JsonlTrace  # noqa: PLC0415 - lazy

    begins = sample(path)
    if not begins.text.strip():
        raise UsageError(f"{path} is empty")
    # A list is read by the importers, a line at a time only lines.
    if begins.first.keys() >= set(IDS) and begins.text.lstrip().startswith("{"):
        return JsonlTrace(path, model=model, vocabulary=vocabulary)
    return None


def _imported(path: Path, tokenizer: Path | None, model: str | None, vocabulary: int | None) -> Trace:
    from draftworth.traces.imports import (  # noqa: PLC0415 - lazy
        ImportedTrace,
        PromptsOnlyError,
        UnreadableError,
        importers,
        recognised,
    )
    from draftworth.traces.tokenizing import Tokenizer  # noqa: PLC0415 - lazy

    try:
        importer = recognised(path, importers())
    except (PromptsOnlyError, UnreadableError):
        raise
    except UsageError as error:
        raise UsageError(
            f"{path} is no trace: it lacks {' and '.join(IDS)}, and `draftworth trace import` does not know its format"
        ) from error
    made = Tokenizer(tokenizer) if tokenizer is not None else None
    if made is not None and vocabulary is None:
        vocabulary = made.vocabulary
    return ImportedTrace(path, importer, made, model=model, vocabulary=vocabulary)
