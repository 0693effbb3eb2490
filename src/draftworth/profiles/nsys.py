"""Nsight Systems: the SQLite file of `nsys export --type sqlite`; one file may hold all ranks, each on its GPU.

Tables and columns as in NVIDIA's description of the export (Nsight Systems user guide, "SQLite schema reference"):
times in ns, names as numbers into StringIds, a thread as a number whose upper bits are its process.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.profiles.events import NO_LINK, Names, Recorded, interval_of, link_of

SQLITE = b"SQLite format 3\x00"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_TIMED = {
    _KERNELS,
    _GRAPHS,
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
}
_NUMBERS = """typeof("start") NOT IN ('text', 'blob') AND typeof("end") NOT IN ('text', 'blob')"""
"""To SQLite every text is above 0."""
_COPIES = {0: "Unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD"}
_COPIES |= {9: "HtoH", 10: "PtoP"}
_RANGES = (59, 60)
"""NVTX_EVENTS.eventType of push/pop and of start/end ranges."""
_BITS = 40
_CORRELATIONS = 1 << _BITS
_PROCESS = ~0xFFFFFF
"""What of a globalTid is its globalPid."""


def read_nsys(path: Path) -> Recorded:
    """Read an nsys export.

    Raises:
        UsageError: another SQLite file, a damaged one, or no kernels in it.
    """
    found = Recorded(source=str(path))
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda data: data.decode("utf-8", errors="replace")
            _read(base, found, path)
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{path}: not readable as an nsys export: {error}; export it again") from error
    return found


def _read(base: sqlite3.Connection, found: Recorded, path: Path) -> None:
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if "StringIds" not in tables:
        raise UsageError(f"{path}: an SQLite file, but not an export of nsys: it has no table StringIds")
    if not tables & {_KERNELS, _GRAPHS}:
        raise UsageError(
            f"{path}: no GPU kernels in it; record with `nsys profile --trace=cuda,nvtx --cuda-graph-trace=node`"
        )
    texts = {number: _text(value) for number, value in base.execute("SELECT id, value FROM StringIds")}
    _device(base, found, tables, texts)
    _host(base, found, tables, texts)
    for table in sorted(tables & _TIMED):
        asked = f"SELECT count(*) FROM {table} WHERE NOT ({_NUMBERS})"  # noqa: S608 - this module's own names
        if left := base.execute(asked).fetchone()[0]:
            found.notes.append(f"left out, their start or end is no number: {left:,} rows of {table}")


def _device(base: sqlite3.Connection, found: Recorded, tables: set[str], texts: dict[Any, str]) -> None:
    names = _columns(base, _KERNELS) if _KERNELS in tables else set()
    of_kernel = next((one for one in ("demangledName", "shortName", "mangledName") if one in names), "")
    kinds: list[tuple[str, str, Callable[[Any], str]]] = [
        (_KERNELS, of_kernel, lambda number: texts.get(number, str(number))),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", lambda kind: f"Memcpy {_COPIES.get(kind, kind)}"),
        ("CUPTI_ACTIVITY_KIND_MEMSET", "", lambda _: "Memset"),
        (_GRAPHS, "", lambda _: "CUDA graph recorded as one piece"),
    ]
    for table, column, name in kinds:
        if table in tables:
            for row in _rows(base, table, "deviceId", "streamId", "correlationId", "globalPid", column):
                if _work(found, row, name(row[6])):
                    found.graphs_whole += table == _GRAPHS


def _work(found: Recorded, row: tuple[Any, ...], name: str) -> bool:
    """Keep what a GPU ran. Returns whether its time can be one."""
    start, end, device, stream, correlation, process = row[:6]
    when = interval_of(start / 1e3, (end - start) / 1e3)
    if when is None:
        return False
    found.seen(*when)
    lane, link = found.lanes(f"{process} {stream}"), _link(found, process, correlation)
    found.device(device if isinstance(device, int) else 0).add(*when, found.names(name), lane, link)
    return True


def _host(base: sqlite3.Connection, found: Recorded, tables: set[str], texts: dict[Any, str]) -> None:
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        for start, end, thread, correlation, number in _rows(
            base, "CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid", "correlationId", "nameId"
        ):
            link = _link(found, thread & _PROCESS if isinstance(thread, int) else None, correlation)
            name = found.names(texts.get(number, str(number)).partition("_v")[0])
            if when := interval_of(start / 1e3, (end - start) / 1e3):
                found.calls.add(*when, name, found.lanes(f"thread {thread}"), link)
    if "NVTX_EVENTS" in tables:
        for start, end, text, number, thread, kind in _rows(
            base, "NVTX_EVENTS", "text", "textId", "globalTid", "eventType"
        ):
            said = _text(text) if text is not None else texts.get(number)
            when = interval_of(start / 1e3, (end - start) / 1e3)
            if said is not None and kind in _RANGES and when is not None:
                found.marks.add(*when, found.names(said), found.lanes(f"thread {thread}"))


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _rows(base: sqlite3.Connection, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
    """Yield start, end and the wanted columns; NULL for those a version of nsys does not write.

    Raises:
        sqlite3.DatabaseError: the table has no start or no end.
    """
    there = _columns(base, table)
    # SQLite takes the name of a column that is not there, in quotes, for a text.
    if lacking := [one for one in ("start", "end") if one not in there]:
        raise sqlite3.DatabaseError(f"{table} has no column `{lacking[0]}`")
    chosen = ", ".join(f'"{one}"' if one in there else "NULL" for one in wanted)
    # A mark of an instant has no end. Names of tables and columns are this module's own.
    asked = f'SELECT "start", "end", {chosen} FROM {table} WHERE {_NUMBERS} AND "start" >= 0 AND "end" >= 0'  # noqa: S608
    yield from base.execute(asked)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}


def _link(found: Recorded, process: Any, correlation: Any) -> int:
    """Return what joins a call to its kernels: correlations count anew in each process."""
    if not isinstance(correlation, int) or not 0 <= correlation < _CORRELATIONS:
        return NO_LINK
    processes: Names = found.meta.setdefault("processes_seen", Names())
    return link_of(processes(str(process)) << _BITS | correlation)
