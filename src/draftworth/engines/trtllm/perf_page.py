"""Reads `/perf_metrics` of `trtllm-serve`: one object a finished request, taken out of the server's list by reading.

It needs `return_perf_metrics: true` and `perf_metrics_max_requests` above 0 (`serve/openai_server.py`, 1.2 and the
main branch at 1.3.0rc). A request without drafted tokens has no `speculative_decoding`, and before PR #17082 (August
2026) none has it on the PyTorch backend, whatever was drafted.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import AcceptanceCounts, PageFacts
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding, find

_CLOSE = 1e-3  # relative; the rate is told as a 32-bit float
_NOT_COUNTED = "no request tells of drafts: none was drafted, or the build is from before PR #17082, which counts them"
_NOT_TOLD = "/perf_metrics tells drafted and accepted tokens only"
_TOTALS = ("total_draft_tokens", "total_accepted_draft_tokens")


def is_one(document: Sequence[Any]) -> bool:
    """Whether a parsed page is this one."""
    return any(isinstance(row, dict) and _metrics(row) is not None for row in document)


def read(document: Sequence[Any], version: str | None) -> PageFacts:
    """Return what the page tells.

    Raises:
        MeasureError: a request's figures contradict each other.
    """
    requests: dict[str, Mapping[str, Any]] = {}
    twice = bad = 0
    for index, row in enumerate(document):
        metrics = _metrics(row) if isinstance(row, dict) else None
        if metrics is None:
            bad += 1
            continue
        key = repr(row["request_id"]) if "request_id" in row else f"row {index}"
        twice += key in requests
        requests.setdefault(key, metrics)
    findings: list[Finding] = []
    if twice:
        findings.append(find(Code.METRICS_UNREADABLE, f"{twice} requests are listed twice; each was counted once"))
    if bad:
        findings.append(find(Code.METRICS_UNREADABLE, f"{bad} entries are no requests and were left out"))
    told = [found for key, metrics in requests.items() if (found := _totals(key, metrics)) is not None]
    if not told:
        findings.append(find(Code.NOT_COUNTED, _NOT_COUNTED))
    return PageFacts(
        kind="/perf_metrics of TensorRT-LLM",
        version=version,
        counts=_counts(told, len(requests), version),
        findings=tuple(findings),
    )


def _metrics(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a request's metrics; behind a disaggregated server those of the part that generates."""
    inner = row.get("gen_perf_metrics", row)
    metrics = inner.get("perf_metrics") if isinstance(inner, dict) else None
    return metrics if isinstance(metrics, dict) and "timing_metrics" in metrics else None


def _totals(key: str, metrics: Mapping[str, Any]) -> tuple[int, int] | None:
    spec = metrics.get("speculative_decoding")
    if spec is None:
        return None
    values = [spec.get(name) for name in _TOTALS] if isinstance(spec, dict) else []
    told = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    if len(told) != len(_TOTALS):
        raise MeasureError(f"request {key}: speculative_decoding is not of the form TensorRT-LLM writes")
    drafted, accepted = told
    rate = spec.get("acceptance_rate")
    fits = not isinstance(rate, int | float) or not drafted or math.isclose(rate, accepted / drafted, rel_tol=_CLOSE)
    if accepted > drafted or not fits:
        raise MeasureError(
            f"request {key}: {accepted} accepted of {drafted} drafted tokens at a rate of {rate} contradict each other"
        )
    return drafted, accepted


def _counts(told: Sequence[tuple[int, int]], requests: int, version: str | None) -> AcceptanceCounts:
    name = f"TensorRT-LLM {version}" if version else "TensorRT-LLM"
    fields = ("steps", "drafting_steps", "accepted_per_position", "emitted")
    reasons = dict.fromkeys(fields, _NOT_TOLD)
    if not told:
        reasons |= dict.fromkeys(("drafted", "accepted"), _NOT_COUNTED)
    return AcceptanceCounts(
        drafted=sum(drafted for drafted, _ in told) if told else None,
        accepted=sum(accepted for _, accepted in told) if told else None,
        source=f"/perf_metrics of {name}, {len(told)} of {requests} requests",
        not_given=reasons,
    )
