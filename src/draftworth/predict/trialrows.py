"""What a finished trial measured, arm by arm and load by load, as a check of predictions needs it."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch
from draftworth.trials.record import ArmRecord, TrialRecord, read

_COLUMNS = (
    "arm",
    "point",
    "prompt_id",
    "category",
    "ok",
    "retries",
    "prompt_tokens",
    "tokens",
    "decode_ms",
    "tpot_ms",
    "prompt_token_ids",
    "token_ids",
)


@dataclass(slots=True)
class Answers:
    """The timed answers of one arm at one load.

    Attributes:
        decode: prompt to decode milliseconds and decoded tokens, summed over its repeats.
        rows: the rows as they were recorded.
    """

    decode: dict[str, tuple[float, float]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def tpot(self, prompts: Sequence[str]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Return milliseconds a token of each of these prompts."""
        return np.array([self.decode[name][0] / self.decode[name][1] for name in prompts])

    @property
    def context(self) -> int:
        """Mean tokens in the KV cache half-way an answer."""
        return round(sum((row["prompt_tokens"] or 0) + (row["tokens"] or 0) / 2 for row in self.rows) / len(self.rows))

    def batch(self, prompts: frozenset[str]) -> TraceBatch | None:
        """Return the answers to these prompts as recorded tokens; None where the server told no ids."""
        rows = [row for row in self.rows if row["prompt_id"] in prompts]
        if not rows or any(not row["prompt_token_ids"] or not row["token_ids"] for row in rows):
            return None
        tokens = [[*row["prompt_token_ids"], *row["token_ids"]] for row in rows]
        return TraceBatch(
            request_ids=[f"{row['prompt_id']}@{at}" for at, row in enumerate(rows)],
            tokens=np.concatenate([np.asarray(one, dtype=np.int32) for one in tokens]),
            offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int64),
            prompt_lengths=np.array([len(row["prompt_token_ids"]) for row in rows], dtype=np.int32),
            thinking=np.full(len(rows), -1, dtype=np.int32),
            categories=[row["category"] or "" for row in rows],
            temperatures=np.full(len(rows), np.nan),
            exact=np.ones(len(rows), dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True)
class Load:
    """One arm at one load.

    Attributes:
        arm: as it is in the record.
        concurrency: requests that ran at a time.
        answers: what it answered.
        counts: its counts of speculation, None where they were not read for this load.
    """

    arm: ArmRecord
    concurrency: int
    answers: Answers
    counts: AcceptanceCounts | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A trial's loads.

    Attributes:
        record: the trial's.
        loads: arm's name and concurrency to what was measured; closed loops only.
    """

    record: TrialRecord
    loads: Mapping[tuple[str, int], Load]

    @property
    def baseline(self) -> str:
        """The baseline's name."""
        return self.record.arms[0].name


def measured(folder: Path) -> Measured:
    """Read a finished trial.

    Raises:
        UsageError: there is no such trial, or its record or rows are damaged.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    record = read(folder)
    path = folder / "requests.parquet"
    try:
        there = [name for name in _COLUMNS if name in pq.read_schema(path).names]
        rows = cast("list[dict[str, Any]]", pq.read_table(path, columns=there).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read: {json.dumps(str(error))}") from None
    if not record.arms:
        raise UsageError(f"{folder}: the trial measured no arm")
    answers: dict[tuple[str, str], Answers] = defaultdict(Answers)
    for row in rows:
        if not row.get("ok") or row.get("retries") or not row.get("decode_ms") or not row.get("tpot_ms"):
            continue
        one = answers[str(row["arm"]), str(row.get("point") or "")]
        ms, tokens = one.decode.get(str(row["prompt_id"]), (0.0, 0.0))
        one.decode[str(row["prompt_id"])] = ms + row["decode_ms"], tokens + row["decode_ms"] / row["tpot_ms"]
        one.rows.append(row)
    loads: dict[tuple[str, int], Load] = {}
    for arm in record.arms:
        for label, concurrency, counts in _points(record, arm):
            found = answers.get((arm.name, label))
            if found is not None and concurrency is not None:
                loads[arm.name, concurrency] = Load(arm, concurrency, found, counts)
    return Measured(record, loads)


def _points(record: TrialRecord, arm: ArmRecord) -> list[tuple[str, int | None, AcceptanceCounts | None]]:
    whole = [one for one in arm.points if one.category is None]
    if whole:
        return [(one.label, one.concurrency, one.acceptance) for one in whole]
    work = record.config.get("workload") or {}
    asked = work.get("concurrency", 1)
    values = asked if isinstance(asked, list | tuple) else [asked]
    closed = len(values) == 1 and not work.get("rate") and not work.get("replay_speed")
    return [("", int(values[0]) if closed else None, arm.acceptance)]
