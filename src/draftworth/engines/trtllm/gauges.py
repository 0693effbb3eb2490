"""Names on TensorRT-LLM's Prometheus page, and the figures it tells there itself.

Read in `metrics/collector.py` of the main branch at 1.3.0rc, with PR #12545 (iteration statistics, configuration,
March 2026) and PR #12636 (by position, April 2026). The releases 1.0 to 1.2 export only the names in `OLD`: requests,
latencies and, from 1.2, the cache's hit rate.
"""

import math

from draftworth.engines.base import MetricsSnapshot, Told
from draftworth.findings import Code, Finding, find

DRAFTED = "trtllm_spec_decode_num_draft_tokens_total"
ACCEPTED = "trtllm_spec_decode_num_accepted_tokens_total"
DRAFTED_POSITION = "trtllm_spec_decode_drafted_tokens_total"
ACCEPTED_POSITION = "trtllm_spec_decode_accepted_tokens_total"
POSITION_LABEL = "token_position"
FINISHED = "trtllm_request_success_total"
GENERATED = "trtllm_generation_tokens_total"
FIRST_TOKENS = "trtllm_time_to_first_token_seconds_count"
PROMPT = "trtllm_prompt_tokens_total"
CACHED = "trtllm_prompt_cached_tokens_total"
LENGTH = "trtllm_spec_decode_acceptance_length"
OVERHEAD = "trtllm_spec_decode_draft_overhead"
TOKENS_PER_ITERATION = "trtllm_avg_decoded_tokens_per_iter"
SPECULATES = "trtllm_speculative_config_info"
ITERATIONS_POLLED = "trtllm_iteration_latency_seconds"
GAUGES = frozenset({LENGTH, OVERHEAD, TOKENS_PER_ITERATION, SPECULATES, ITERATIONS_POLLED})

_FORMULAS = {
    LENGTH: "(accepted tokens + requests that hold a draft) / requests that hold a draft",
    OVERHEAD: "time in the drafter / time of the iteration; only two-model drafters are timed",
    TOKENS_PER_ITERATION: "mean over generating requests of each one's tokens / iterations since its start",
}
_SCOPE = "last iteration polled"


def told(snapshot: MetricsSnapshot) -> tuple[Told, ...]:
    """Return the engine's own figures; a zero, which stands for *not measured* in each of them, is left out."""
    found: list[Told] = []
    for name, formula in _FORMULAS.items():
        values = [value for value in snapshot.gauges.get(name, ()) if _tells(name, value)]
        scope = _SCOPE if len(values) == 1 else f"{_SCOPE}, one of {len(values)} processes"
        found += [
            Told(name=name.removeprefix("trtllm_"), value=value, formula=formula, scope=scope) for value in values
        ]
    return tuple(found)


def findings(snapshot: MetricsSnapshot) -> tuple[Finding, ...]:
    """Return what the page shows and does not measure, where the server speculates."""
    if not speculates(snapshot):
        return ()
    found: list[Finding] = []
    wrong = [
        f"{name} is {value}"
        for name in _FORMULAS
        for value in snapshot.gauges.get(name, ())
        if value != 0 and not _tells(name, value)
    ]
    if wrong:
        found.append(find(Code.METRICS_UNREADABLE, "; ".join(wrong)))
    zero = [name for name in (TOKENS_PER_ITERATION, OVERHEAD) if 0.0 in snapshot.gauges.get(name, ())]
    if zero:
        why = (
            "the PyTorch backend writes 0 for it"
            if zero == [TOKENS_PER_ITERATION]
            else ("the PyTorch backend writes 0 where nothing is timed or averaged")
        )
        found.append(find(Code.NOT_COUNTED, f"{' and '.join(zero)} at 0: {why}"))
    if not drafts_counted(snapshot):
        found.append(find(Code.NOT_COUNTED, f"the server speculates, and {why_no_drafts(snapshot)}"))
    return tuple(found)


def speculates(snapshot: MetricsSnapshot) -> bool:
    """Whether the page says that speculation is configured."""
    spec = (DRAFTED, ACCEPTED, ACCEPTED_POSITION)
    return SPECULATES in snapshot.gauges or any(name in snapshot.counters for name in spec)


def drafts_counted(snapshot: MetricsSnapshot) -> bool:
    """Whether a count of drafted tokens was ever raised; a counter left at 0 was not."""
    return any(snapshot.counters.get(name, 0) > 0 for name in (DRAFTED, DRAFTED_POSITION))


def why_no_drafts(snapshot: MetricsSnapshot) -> str:
    """Return why a speculating server's page has no count of drafts."""
    if ITERATIONS_POLLED in snapshot.gauges:
        return "no counter of drafts was ever raised: nothing was drafted yet, or this build does not count it"
    return "no counter of drafts was ever raised: enable_iter_perf_stats is off, or no request has finished yet"


def _tells(name: str, value: float) -> bool:
    if not math.isfinite(value) or value <= 0:
        return False
    return value <= 1 if name == OVERHEAD else value >= 1
