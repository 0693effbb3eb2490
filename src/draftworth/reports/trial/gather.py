"""From a trial's folder to what a page needs; whatever is missing or damaged is told, never fatal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import RequestRow
from draftworth.bench.failures import one_line
from draftworth.bench.rows import NAME as ROWS
from draftworth.bench.rows import PARTS
from draftworth.errors import DraftworthError
from draftworth.explain.base import Explained
from draftworth.findings import Code
from draftworth.profiles.base import Profile
from draftworth.reports.markdown import on_endpoints
from draftworth.reports.trial.base import Subject
from draftworth.reports.words import ended, plural
from draftworth.trials.config import BASELINE
from draftworth.trials.diagnostics import PROFILE
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Event, Journal
from draftworth.trials.profiling import kept_or_lost
from draftworth.trials.record import TrialRecord
from draftworth.verdicts.base import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDED = ("arm", "block", "prompt_id", "category", "repeat", "started_unix")
_MORE = (
    "start",
    "point",
    "turn",
    "ok",
    "retries",
    "tokens",
    "first_chunk_tokens",
    "ttft_ms",
    "decode_ms",
    "tpot_ms",
    "e2e_ms",
)


def gather(folder: Path, record: TrialRecord, explained: Explained | None) -> Subject:
    """Read what there is of a trial. Nothing raises for a damaged file.

    Nothing is written but profiles whose traces nobody has read yet: that takes a while, and once is enough.
    """
    missing: list[str] = []
    rows = _rows(folder, missing)
    events = _events(folder, record, missing)
    if explained is None and record.verdict is Verdict.ERROR and not _variants(record, rows):
        missing.append("The account of the milliseconds: nothing was measured to the end.")
    elif explained is None:
        missing.append(
            f"The account of the milliseconds: `draftworth explain {record.id}` makes it. Without it the cause, the "
            "break-even and the step costs are not on this page."
        )
    else:
        missing += explained.left_out if explained else ()
    profiles = _profiles(folder, record, missing)
    return Subject(record, explained, tuple(rows), tuple(events), tuple(missing), profiles)


def _profiles(folder: Path, record: TrialRecord, missing: list[str]) -> dict[str, Profile]:
    """Return the profiles there are; one that is lost is told where the record's own findings do not tell it."""
    told = {one.arm for one in record.findings if one.code is Code.NOT_PROFILED}
    found = {}
    for arm in record.arms:
        profile, lost = kept_or_lost(folder, f"{PROFILE}-{arm.name}")
        if profile is not None:
            found[arm.name] = profile
        elif lost is not None and lost.arm not in told:
            missing.append(ended(one_line(lost.message)))
    return found


def _variants(record: TrialRecord, rows: Sequence[RequestRow]) -> bool:
    """Whether there are requests of the baseline and of another arm."""
    names = {row.arm for row in rows}
    return len(names) > 1 and (record.arms[0].name if record.arms else BASELINE) in names


def _rows(folder: Path, missing: list[str]) -> list[RequestRow]:
    whole = folder / ROWS
    paths = [whole] if whole.is_file() else sorted((folder / PARTS).glob("*.parquet"))
    if not paths:
        missing.append(f"{ROWS}: no request was kept, so nothing is shown by prompt or over time.")
        return []
    if paths != [whole]:
        missing.append(f"{ROWS}: the trial did not end by itself; what its windows left in {PARTS}/ is shown.")
    found: list[RequestRow] = []
    for path in paths:
        try:
            found += _read(path)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file does, the rest of the page is made
            why = one_line(str(error)) or type(error).__name__
            missing.append(f"{path.relative_to(folder)}: cannot be read, so its requests are not shown: {why}.")
    return found


def _read(path: Path) -> list[RequestRow]:
    """Return the rows of a file, without texts and token ids."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy: 100 ms to import

    there = pq.read_schema(path).names
    lacking = [name for name in _NEEDED if name not in there]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    table = pq.read_table(path, columns=[name for name in (*_NEEDED, *_MORE) if name in there])
    return _typed(table)


def _typed(table: "pa.Table") -> list[RequestRow]:
    names = table.schema.names
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    plain = {"start": 1, "point": "", "turn": 1, "ok": False, "retries": 0}
    for at, name in enumerate(names):
        if name in plain:
            columns[at] = [plain[name] if value is None else value for value in columns[at]]
    return [RequestRow(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]


def _events(folder: Path, record: TrialRecord, missing: list[str]) -> Sequence[Event]:
    path = folder / JOURNAL
    if not path.is_file():
        if not on_endpoints(record):
            missing.append(f"{JOURNAL}: the steps of the trial and their times are not shown.")
        return ()
    try:
        with Journal(path) as journal:
            return journal.events()
    except (DraftworthError, ValueError) as error:
        missing.append(f"{JOURNAL}: cannot be read, so the steps of the trial are not shown: {one_line(str(error))}.")
        return ()


def damaged(subject: Subject) -> str:
    """Return how many answered requests have no time that can be shown, as a sentence; nothing for none."""
    lost = sum(row.ok and not row.retries and row.tpot_ms is None and (row.tokens or 0) > 1 for row in subject.rows)
    return f"{plural(lost, 'answered request')} without a time per token: left out of the plots." if lost else ""
