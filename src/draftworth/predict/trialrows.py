"""What a finished trial measured, arm by arm and point by point, as a check of predictions needs it.

Times, counts and contexts are read as `costs.arm_rows` reads them; here is what it leaves out: the answers' tokens, the
order in which a server was sent its requests, and the counts that answers tell of themselves.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from draftworth.bench.failures import one_line
from draftworth.costs.arm_rows import Place, places_of
from draftworth.engines import engine
from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import MeasureError, UsageError
from draftworth.traces.base import TraceBatch
from draftworth.trials.record import ArmRecord, TrialRecord, read

_COLUMNS = (
    "arm",
    "point",
    "block",
    "start",
    "repeat",
    "prompt_id",
    "category",
    "started_unix",
    "ok",
    "retries",
    "tokens",
    "token_source",
    "decode_ms",
    "tpot_ms",
    "prompt_token_ids",
    "token_ids",
    "spec_stats",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One answer.

    Attributes:
        prompt: its prompt's name.
        label: the sweep's point; empty where there is one.
        start: which start of the arm's server answered; its block in records that do not tell.
        repeat: which time the prompt was sent.
        timed: whether its time counts: answered at the first attempt, with a time.
        tokens: output tokens, None where they are not known.
        category: of the prompt.
        prompt_ids: the prompt's tokens; None where they or the output's are not told, or not all of them.
        ids: the output's tokens.
        stats: what the answer told of its own speculation, as JSON text.
        decode_ms: from its first chunk to its last; None where it has no time.
        behind: tokens behind the first chunk.
    """

    prompt: str
    label: str
    start: int
    repeat: int
    timed: bool
    tokens: int | None
    category: str
    prompt_ids: Sequence[int] | None
    ids: Sequence[int]
    stats: str | None
    decode_ms: float | None = None
    behind: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One arm at one point.

    Attributes:
        label: the point's; empty where there is one.
        place: what was measured there.
        rows: its answers, in the order in which they were sent.
    """

    label: str
    place: Place
    rows: Sequence[Row]

    @property
    def where(self) -> str:
        """The point, for a person."""
        return self.label or f"{self.place.batch} at a time"

    @property
    def arm(self) -> ArmRecord:
        """As it is in the record."""
        return self.place.arm

    def tpot(self, prompts: Sequence[str]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Return milliseconds a token of each of these prompts, its repeats together."""
        sums = self.place.sums.prompts
        return np.array([sums[name][0] / sums[name][1] for name in prompts])

    @property
    def counts(self) -> AcceptanceCounts | None:
        """Counts of speculation at this very point: the server's, else those its answers told; None for neither."""
        arm = self.arm
        whole = [one for one in arm.points if one.category is None]
        found = (
            arm.acceptance if not whole else next((one.acceptance for one in whole if one.label == self.label), None)
        )
        return found if found is not None and found.steps and found.emitted else told(arm, self.rows)


@dataclass(frozen=True, slots=True)
class Measured:
    """A trial's arms at their points.

    Attributes:
        folder: the trial's.
        record: the trial's.
        loads: arm's name and the point's label to what was measured there; closed loops only.
        sent: arm's name to every answer of it, in the order in which they were sent.
        missing: a line for each arm and point that cannot be checked at all, and why.
    """

    folder: Path
    record: TrialRecord
    loads: Mapping[tuple[str, str], Load]
    sent: Mapping[str, Sequence[Row]]
    missing: tuple[str, ...]

    @property
    def baseline(self) -> str:
        """The baseline's name."""
        return self.record.arms[0].name

    @property
    def arms(self) -> tuple[str, ...]:
        """The other arms' names, those that were never measured too."""
        names = dict.fromkeys([*(one.name for one in self.record.arms[1:]), *_planned(self.record)])
        return tuple(name for name in names if name != self.baseline)

    def server(self, name: str) -> str | None:
        """Return where an arm's server ran already when the trial began; None where the trial started it itself."""
        config = self.record.config
        service = config.get("service") or {}
        if service.get("type") != "endpoints":
            return None
        if name == self.baseline:
            return str(service.get("baseline"))
        return next((str(one.get("url")) for one in config.get("arms") or () if one.get("name") == name), None)

    def told(self, speculation: Mapping[str, Mapping[str, Any]]) -> "Measured":
        """Return the trial with what its arms were started with, where the record does not say it."""
        loads = {}
        for key, load in self.loads.items():
            config = speculation.get(key[0])
            if config is not None:
                arm = load.arm.model_copy(update={"declared": {**load.arm.declared, "speculative_config": config}})
                load = replace(load, place=replace(load.place, arm=arm))  # noqa: PLW2901 - the same load
            loads[key] = load
        return replace(self, loads=loads)


def measured(folder: Path) -> Measured:
    """Read a finished trial.

    Raises:
        UsageError: there is no such trial, its record or rows are damaged, or it measured no arm.
    """
    record = read(folder)
    if not record.arms:
        raise UsageError(f"{folder}: the trial measured no arm")
    sent = _rows(folder)
    loads: dict[tuple[str, str], Load] = {}
    for (name, _batch, label), place in places_of(record, folder, []).items():
        loads[name, label] = Load(label, place, [row for row in sent.get(name, ()) if row.label == label])
    return Measured(folder, record, loads, sent, tuple(_missing(record, loads, sent)))


def batch_of(rows: Sequence[Row]) -> TraceBatch:
    """Return answers, whose ids are all known, as recorded tokens."""
    tokens = [[*(row.prompt_ids or ()), *row.ids] for row in rows]
    return TraceBatch(
        request_ids=[f"{row.prompt}@{at}" for at, row in enumerate(rows)],
        tokens=np.concatenate([np.asarray(one, dtype=np.int32) for one in tokens]),
        offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int64),
        prompt_lengths=np.array([len(row.prompt_ids or ()) for row in rows], dtype=np.int32),
        thinking=np.full(len(rows), -1, dtype=np.int32),
        categories=[row.category for row in rows],
        temperatures=np.full(len(rows), np.nan),
        exact=np.ones(len(rows), dtype=np.bool_),
    )


def _rows(folder: Path) -> dict[str, list[Row]]:
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    path = folder / "requests.parquet"
    try:
        there = [name for name in _COLUMNS if name in pq.read_schema(path).names]
        table = cast("list[dict[str, Any]]", pq.read_table(path, columns=there).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read: {one_line(str(error))}") from None
    # The file is in this order already, unless it was written anew; rows that do not say when they were sent stay.
    table.sort(key=lambda row: (row.get("block") or 0, row.get("started_unix") or 0.0))
    found: dict[str, list[Row]] = defaultdict(list)
    for row in table:
        whole = row.get("prompt_token_ids") and row.get("token_ids") and row.get("token_source") != "chunks"
        answered = bool(row.get("ok"))
        timed = answered and not row.get("retries") and bool(row.get("decode_ms") and row.get("tpot_ms"))
        found[str(row["arm"])].append(
            Row(
                prompt=str(row["prompt_id"]),
                label=str(row.get("point") or ""),
                start=int(row.get("start") or row.get("block") or 1),
                repeat=int(row.get("repeat") or 1),
                timed=timed,
                tokens=row.get("tokens"),
                category=str(row.get("category") or ""),
                prompt_ids=row["prompt_token_ids"] if answered and whole else None,
                ids=row["token_ids"] if answered and whole else (),
                stats=row.get("spec_stats"),
                decode_ms=float(row["decode_ms"]) if timed else None,
                behind=float(row["decode_ms"]) / float(row["tpot_ms"]) if timed else None,
            )
        )
    return found


def _planned(record: TrialRecord) -> list[str]:
    return [str(one["name"]) for one in record.config.get("arms") or () if isinstance(one, dict) and "name" in one]


def _missing(
    record: TrialRecord, loads: Mapping[tuple[str, str], Load], sent: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    """Yield a line for each arm, but the baseline, and point of which nothing can be checked."""
    work = record.config.get("workload") or {}
    known = {arm.name for arm in record.arms}
    for arm in record.arms[1:]:
        labels = [one.label for one in arm.points if one.category is None] or [""]
        rows = sent.get(arm.name, ())
        for label in dict.fromkeys([*labels, *(row.label for row in rows)]):
            if (arm.name, label) not in loads:
                why = _why_not(arm, label, work, [row for row in rows if row.label == label])
                yield f"{record.id}, {arm.name}{f' at {label}' if label else ''}: {why}"
    for name in _planned(record):
        if name not in known:
            yield f"{record.id}, {name}: it was not measured"


def _why_not(arm: ArmRecord, label: str, work: Mapping[str, Any], rows: Sequence[Row]) -> str:
    point = next((one for one in arm.points if one.category is None and one.label == label), None)
    if (point is not None and point.load != "closed") or work.get("rate") or work.get("replay_speed"):
        return "an open loop: how many requests ran at a time is not set, and a prediction needs that"
    if not rows:
        return f"nothing was measured of it{f', {arm.failed} requests failed' if arm.failed else ''}"
    if not any(row.timed for row in rows):
        return f"none of its {len(rows)} answers has a time"
    return "the record does not say how many requests ran at a time"


def told(arm: ArmRecord, rows: Sequence[Row]) -> AcceptanceCounts | None:
    """Return the counts that answers told of their own speculation; None where one of them told none.

    An engine that tells no steps tells what was accepted; each step emits one token more. Tokens that the end of an
    answer cut from its last step count as accepted there, so that each of them makes the steps one too few.
    """
    timed = [row for row in rows if row.timed]
    if not timed or any(not row.stats or not row.tokens for row in timed):
        return None
    try:
        counts = engine(arm.engine).request_counts([json.loads(row.stats or "") for row in timed], arm.version)
    except (MeasureError, UsageError, ValueError):
        return None
    if counts is None:
        return None
    emitted = sum((row.tokens or 1) - 1 for row in timed)
    if counts.steps is None:
        if counts.accepted is None or counts.accepted >= emitted:
            return None
        counts = counts.model_copy(update={"steps": max(emitted - counts.accepted, counts.drafting_steps or 0)})
    return counts.model_copy(update={"emitted": emitted})
