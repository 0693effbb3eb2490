"""Reads the JSON pages of `trtllm-serve`: the iteration statistics of `/metrics`, and `/perf_metrics`.

`/metrics` is an array with one object an iteration (`enable_iter_perf_stats: true`), `specDecodingStats` among its
keys. Formats: C++ `executor/jsonSerialization` as used by 0.19 to 1.3.0rc, and `executor/iteration_stats` of the main
branch of autumn 2026, which adds `attentionDpRank`, `statsSequence` and `statsDroppedFrames`. Reading takes what is
read out of the server's queue, which holds the last `iter_stats_max_iterations` (1,000 by default) and drops older
ones silently.

The PyTorch backend fills `specDecodingStats` since PR #9855 (December 2025); before it only the n-gram drafter did.
A row pairs what the step accepted with the draft that its requests hold for the next one, and a draft's token of
number 0 is not counted where the drafter pads with it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from draftworth.engines.base import AcceptanceCounts, PageFacts, Told
from draftworth.engines.trtllm import perf_page, releases
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding, find

_SHOWN = 3
_CLOSE = 1e-3  # relative; lengths are told as 32-bit or 64-bit floats
_SPEC = ("numDraftTokens", "numAcceptedTokens", "numRequestsWithDraftTokens")
_NO_ROWS = "no iteration tells of speculation"
_ZERO = "every iteration tells 0 drafted tokens, which releases before PR #9855 write whatever was drafted"
_NOT_TOLD = "iteration statistics do not tell it"
_HELD = "the draft held for the next step, padding included"
_MEANING = {"drafted": _HELD, "drafting_steps": "requests that held a draft for their next step, added over iterations"}


def read_page(document: Any, version: str | None) -> PageFacts | None:
    """Return what a parsed page tells, or None where it is neither page of this engine (an empty array is neither).

    Raises:
        MeasureError: its figures contradict each other.
    """
    if not isinstance(document, list):
        return None
    if perf_page.is_one(document):
        return perf_page.read(document, version)
    rows = [row for row in document if isinstance(row, dict) and "iter" in row and "iterLatencyMS" in row]
    return _iterations(rows, len(document) - len(rows), version) if rows else None


class _Row(NamedTuple):
    number: int
    generating: int | None
    spec: tuple[int, int, int] | None
    length: float
    overhead: float
    average: float


def _iterations(rows: Sequence[Mapping[str, Any]], strangers: int, version: str | None) -> PageFacts:
    findings: list[Finding] = []
    own, left_out = _of_one_rank(rows)
    if left_out:
        findings.append(
            find(Code.PARTIAL_RANKS, f"{left_out} rows of other ranks repeat or lack speculation; rank 0's are read")
        )
    read, twice, bad = _read(own)
    if twice:
        findings.append(find(Code.METRICS_UNREADABLE, f"{twice} iterations are listed twice; each was counted once"))
    if strangers or bad:
        bad = [*bad, *([f"{strangers} entries are no iterations"] if strangers else [])]
        findings.append(find(Code.METRICS_UNREADABLE, f"{'; '.join(bad[:_SHOWN])}{'…' if len(bad) > _SHOWN else ''}"))
    findings += _lost(own)
    if not read:
        raise MeasureError(f"no iteration of /metrics can be read: {'; '.join(bad[:_SHOWN])}")
    counts = _counts(read, version, whole=not bad)
    if counts.drafted is None:
        code = Code.NOT_COUNTED if any(row.spec for row in read) else Code.NO_SPECULATION_SEEN
        findings.append(find(code, counts.not_given["drafted"]))
    return PageFacts(
        kind="/metrics of TensorRT-LLM (iteration statistics)",
        version=version,
        counts=counts,
        told=tuple(_told(read)),
        findings=tuple(findings),
    )


def _of_one_rank(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """Return the rows of the first rank, and how many others there were.

    With attention data parallelism every rank's row repeats the speculation of rank 0.
    """
    first: dict[str, int] = {}
    for key in ("attentionDpRank", "rank"):
        told = [row[key] for row in rows if _is_count(row.get(key))]
        if told:
            first[key] = min(told)
    own = [row for row in rows if all(row.get(key, value) == value for key, value in first.items())]
    return own, len(rows) - len(own)


def _read(rows: Sequence[Mapping[str, Any]]) -> tuple[list[_Row], int, list[str]]:
    """Return every readable row once, how many came twice, and what is wrong with the others."""
    seen: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    read: list[_Row] = []
    twice = 0
    bad: list[str] = []
    for row in rows:
        inflight = row.get("inflightBatchingStats")
        batch = inflight.get("microBatchId") if isinstance(inflight, dict) else None
        key = (repr(row.get("iter")), repr(batch), repr(row.get("timestamp")))
        if key in seen:
            if seen[key] != row:
                raise MeasureError(f"iteration {row['iter']} is listed twice with different figures")
            twice += 1
            continue
        seen[key] = row
        try:
            read.append(_row(row))
        except ValueError as error:
            bad.append(f"iteration {str(row.get('iter'))[:20]}: {error}")
    return read, twice, bad


def _row(row: Mapping[str, Any]) -> _Row:
    """Take one iteration apart. Raises ValueError with what is wrong, MeasureError where it contradicts itself."""
    number, spec = row["iter"], row.get("specDecodingStats")
    inflight = row.get("inflightBatchingStats")
    if not _is_count(number) or not isinstance(spec, dict | None) or not isinstance(inflight, dict | None):
        raise ValueError("not of the form TensorRT-LLM writes")
    inflight = inflight or {}
    generating = inflight.get("numGenRequests")
    if generating is not None and not _is_count(generating):
        raise ValueError(f"numGenRequests is {str(generating)[:20]}")
    average = _number(inflight.get("avgNumDecodedTokensPerIter"))
    if spec is None:
        return _Row(number, generating, None, 0.0, 0.0, average)
    values = [spec.get(name) for name in _SPEC]
    if not all(_is_count(value) for value in values):
        raise ValueError(f"specDecodingStats has {', '.join(str(value)[:20] for value in values)}")
    drafted, accepted, requests = (int(value) for value in values if value is not None)
    length = _number(spec.get("acceptanceLength"))
    expected = (accepted + requests) / requests if requests else 0.0
    if "acceptanceLength" in spec and not math.isclose(length, expected, rel_tol=_CLOSE, abs_tol=_CLOSE):
        raise MeasureError(
            f"iteration {number}: acceptanceLength {length:g} is not ({accepted} accepted + {requests}) / {requests}"
        )
    return _Row(number, generating, (drafted, accepted, requests), length, _number(spec.get("draftOverhead")), average)


def _counts(rows: Sequence[_Row], version: str | None, *, whole: bool) -> AcceptanceCounts:
    told = [row.spec for row in rows if row.spec is not None]
    drafted, accepted, requests = (sum(spec[i] for spec in told) for i in range(3))
    known = [row.generating for row in rows if row.generating is not None]
    steps = sum(known) if len(known) == len(rows) else None
    reasons = {"accepted_per_position": _NOT_TOLD, "emitted": _NOT_TOLD}
    if steps is None:
        reasons["steps"] = _NOT_TOLD
    zero_is_known = releases.before(version, 1, 3) is False
    if not told or (not drafted and not zero_is_known):
        why = _ZERO if told else _NO_ROWS
        return AcceptanceCounts(
            steps=steps,
            source=_source(rows, version, whole=whole),
            not_given={**reasons, **dict.fromkeys(("drafting_steps", "drafted", "accepted"), why)},
        )
    if accepted > drafted:
        raise MeasureError(f"/metrics tells {accepted:,} accepted tokens of {drafted:,} drafted ones")
    if steps is not None and requests > steps:
        raise MeasureError(f"/metrics tells {requests:,} requests with a draft in {steps:,} decode steps")
    return AcceptanceCounts(
        steps=steps,
        drafting_steps=requests,
        drafted=drafted,
        accepted=accepted,
        source=_source(rows, version, whole=whole),
        not_given=reasons,
        meaning=_MEANING,
    )


def _source(rows: Sequence[_Row], version: str | None, *, whole: bool) -> str:
    name = f"TensorRT-LLM {version}" if version else "TensorRT-LLM"
    numbers = sorted({row.number for row in rows})
    missing = numbers[-1] - numbers[0] + 1 - len(numbers)
    gap = f", {missing:,} numbers between them not listed" if missing else ""
    part = "" if whole else ", unreadable ones left out"
    return f"/metrics of {name}, iterations {numbers[0]:,} to {numbers[-1]:,}{gap}{part}"


def _lost(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what says that iterations were lost. A gap in the numbers alone does not: an idle loop counts too."""
    dropped = [row["statsDroppedFrames"] for row in rows if _is_count(row.get("statsDroppedFrames"))]
    grown = max(dropped) - min(dropped) if dropped else 0
    sequence = sorted({row["statsSequence"] for row in rows if _is_count(row.get("statsSequence"))})
    missing = sequence[-1] - sequence[0] + 1 - len(sequence) if sequence else 0
    lost = max(grown, missing)
    if lost:
        yield find(
            Code.ITERATIONS_LOST,
            f"{lost:,} iterations between these are missing: the queue dropped them, or somebody else read them",
        )


def _told(rows: Sequence[_Row]) -> Iterator[Told]:
    drafting = [row for row in rows if row.spec and row.spec[2]]
    if drafting:
        last = drafting[-1]
        scope = f"iteration {last.number}"
        formula = "(accepted tokens + requests that hold a draft) / requests that hold a draft"
        if math.isfinite(last.length) and last.length >= 1:
            yield Told(name="acceptanceLength", value=last.length, formula=formula, scope=scope)
        if 0 < last.overhead <= 1:
            formula = "time in the drafter / time of the iteration; only two-model drafters are timed"
            yield Told(name="draftOverhead", value=last.overhead, formula=formula, scope=scope)
    averaged = [row for row in rows if math.isfinite(row.average) and row.average >= 1]
    if averaged:
        formula = "mean over generating requests of each one's tokens / iterations since its start"
        last = averaged[-1]
        yield Told(
            name="avgNumDecodedTokensPerIter", value=last.average, formula=formula, scope=f"iteration {last.number}"
        )


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.nan
    return 0.0 if value is None else math.nan


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
