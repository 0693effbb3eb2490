"""The arms of a finished trial at the points of its sweep: counts, and decode times by prompt and by start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from draftworth.bench.failures import one_line
from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import UsageError
from draftworth.trials.record import ArmRecord, TrialRecord


@dataclass(frozen=True, slots=True)
class Sums:
    """Decode milliseconds and decoded tokens of one arm at one point: prompt to their sums, and one pair a start."""

    prompts: Mapping[str, tuple[float, float]]
    starts: tuple[tuple[float, float], ...]

    @property
    def tpot(self) -> float:
        """Mean over prompts of decode time over decoded tokens, in milliseconds: as a verdict weighs them."""
        return sum(ms / tokens for ms, tokens in self.prompts.values()) / len(self.prompts)

    def tpot_of(self, prompts: Sequence[str]) -> float:
        """Return the same over some of the prompts."""
        return sum(self.prompts[name][0] / self.prompts[name][1] for name in prompts) / len(prompts)


@dataclass(frozen=True, slots=True)
class Place:
    """One arm at one point of the trial's sweep.

    Attributes:
        arm: its record.
        batch: requests at a time.
        context: mean tokens of a request in the KV cache half way through its answer.
        counts: its counts of speculation at this point; where only the arm's are known, as in trials between endpoints,
            those of all its points together. None where there are none.
        sums: its decode times.
        ttft_ms: median time to the first token; None where it is not known.
        tokens: mean tokens behind the first of an answer.
    """

    arm: ArmRecord
    batch: int
    context: int
    counts: AcceptanceCounts | None
    sums: Sums
    ttft_ms: float | None = None
    tokens: float = 0.0

    @property
    def speculation(self) -> Mapping[str, Any]:
        """The declared speculative configuration; empty for an arm without."""
        config = self.arm.declared.get("speculative_config")
        return config if isinstance(config, Mapping) else {}

    @property
    def method(self) -> str:
        """The speculative method; vLLM takes a configuration that names only a model for a draft model."""
        return str(self.speculation.get("method") or "draft_model")


def places_of(record: TrialRecord, folder: Path, told: list[str]) -> dict[tuple[str, int, str], Place]:
    """Return the arms at their points, by name, concurrency and the point's label.

    Args:
        record: the trial.
        folder: its folder, with `requests.parquet`.
        told: takes a line for each arm and point that has no times.

    Raises:
        UsageError: the rows cannot be read.
    """
    sums = _sums(folder)
    found: dict[tuple[str, int, str], Place] = {}
    work = record.config.get("workload") or {}
    for arm in record.arms:
        if arm.given_up:
            told.append(f"{arm.name}: it was given up, so what was measured of it is not used")
            continue
        for label, batch, counts in _points(arm, work):
            entry = sums.get((arm.name, label))
            if batch is None or entry is None:
                told.append(f"{arm.name}{f' at {label}' if label else ''}: no closed loop, or no times of it")
                continue
            found[arm.name, batch, label] = Place(
                arm, batch, round(entry.context), counts, entry.sums, entry.ttft_ms, entry.tokens
            )
    return found


def _points(arm: ArmRecord, work: Mapping[str, Any]) -> Iterator[tuple[str, int | None, AcceptanceCounts | None]]:
    whole = [one for one in arm.points if one.category is None]
    for one in whole:
        yield one.label, one.concurrency, one.acceptance or arm.acceptance
    if not whole:
        asked = work.get("concurrency", 1)
        values = asked if isinstance(asked, list | tuple) else [asked]
        closed = len(values) == 1 and not work.get("rate") and not work.get("replay_speed")
        yield "", int(values[0]) if closed else None, arm.acceptance


@dataclass(frozen=True, slots=True)
class _Entry:
    """One arm at one point: its sums, mean tokens in the KV cache half way an answer, and what tells of prefills."""

    sums: Sums
    context: float
    ttft_ms: float | None
    tokens: float


def _sums(folder: Path) -> dict[tuple[str, str], _Entry]:
    """Return what the rows tell of each arm at each point."""
    import pyarrow as pa  # noqa: PLC0415 - lazy: 100 ms to import
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    path = folder / "requests.parquet"
    wanted = ("arm", "point", "block", "prompt_id", "ok", "retries", "prompt_tokens", "tokens", "decode_ms", "tpot_ms")
    try:
        there = [name for name in (*wanted, "ttft_ms") if name in pq.read_schema(path).names]
        rows = cast("list[dict[str, Any]]", pq.read_table(path, columns=there).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read: {one_line(str(error))}") from None
    prompts: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    starts: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    contexts: dict[tuple[str, str], list[float]] = {}
    firsts: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if not row.get("ok") or row.get("retries") or not row.get("decode_ms") or not row.get("tpot_ms"):
            continue
        key, ms = (str(row["arm"]), str(row.get("point") or "")), float(row["decode_ms"])
        pair = ms, ms / float(row["tpot_ms"])  # the tokens behind the first chunk
        _add(prompts.setdefault(key, {}), str(row["prompt_id"]), pair)
        _add(starts.setdefault(key, {}), int(row["block"]), pair)
        contexts.setdefault(key, []).append((row.get("prompt_tokens") or 0) + (row.get("tokens") or 0) / 2)
        if row.get("ttft_ms"):
            firsts.setdefault(key, []).append(float(row["ttft_ms"]))
    return {
        key: _Entry(
            Sums(found, tuple(starts[key].values())),
            sum(contexts[key]) / len(contexts[key]),
            median(firsts[key]) if firsts.get(key) else None,
            sum(tokens for _, tokens in found.values()) / len(contexts[key]),
        )
        for key, found in prompts.items()
    }


def _add(to: dict[Any, tuple[float, float]], key: str | int, pair: tuple[float, float]) -> None:
    before = to.get(key, (0.0, 0.0))
    to[key] = before[0] + pair[0], before[1] + pair[1]
