"""Reads vLLM's `/metrics` page and the counts of the window between two scrapes.

Names are those of `v1/metrics/loggers.py` and `v1/spec_decode/metrics.py` of vLLM 0.32.0. `inter_token_latency` is
observed once a request and decode step, however many tokens the step gave, so its count is the number of steps;
`num_drafts` counts the steps that verified at least one drafted token. A token that a stop condition cut off was still
counted as accepted. Diffusion models' `vllm:diffusion_…` twins count other things and are not read.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot
from draftworth.errors import MeasureError

STEPS = ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count")  # the latter before 0.11
GENERATED = "vllm:generation_tokens_total"
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
PROMPT = "vllm:prompt_tokens_total"
CACHE_QUERIES = "vllm:prefix_cache_queries_total"
CACHE_HITS = "vllm:prefix_cache_hits_total"
FINISHED = "vllm:request_success_total"
DRAFTING_STEPS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

_NO_SPECULATION = "the server does not speculate: it exports no spec_decode series"
_NO_STEPS = "the server exports no inter-token latency (was it started with --disable-log-stats?)"
_NO_TOKENS = "the server exports no token counts (was it started with --disable-log-stats?)"
_CREATED = "_created"
_SAME_TIME = 1e-3  # seconds


def parse_metrics(text: str) -> MetricsSnapshot:
    """Read a `/metrics` page: every `vllm:` counter and histogram, summed over label sets, buckets left out.

    Raises:
        MeasureError: the text is no metrics page, or not one of vLLM.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - lazy: only when measuring

    page = _Page(defaultdict(float), defaultdict(float), {}, set())
    try:
        for family in text_string_to_metric_families(text):
            if family.name.startswith("vllm:"):
                for sample in family.samples:
                    page.add(family.type, sample.name, sample.labels, sample.value)
    except (ValueError, IndexError, KeyError) as error:
        raise MeasureError(
            f"/metrics is no Prometheus text ({_one_line(error)}); does the URL lead to vLLM?"
        ) from error
    if not page.counters:
        raise MeasureError(
            "/metrics shows no vllm: counters; does the URL lead to a vLLM started without --disable-log-stats?"
        )
    last = max(page.positions, default=-1)
    return MetricsSnapshot(
        counters=dict(page.counters),
        per_position=tuple(page.positions[i] for i in range(last + 1)) if page.positions else None,
        engines=max(1, len(page.engines)),
        created=page.created,
    )


class _Page(NamedTuple):
    counters: defaultdict[str, float]
    positions: defaultdict[int, float]
    created: dict[str, float]
    engines: set[str]

    def add(self, kind: str, name: str, labels: Mapping[str, str], value: float) -> None:
        if name.endswith(_CREATED):
            self.created[name] = max(value, self.created.get(name, value))
        elif _counts(kind, name) and "quantile" not in labels:
            self.counters[name] += value
            if "engine" in labels:
                self.engines.add(labels["engine"])
            if name == PER_POSITION and labels.get("position", "").isdecimal():
                self.positions[int(labels["position"])] += value


def _counts(kind: str, name: str) -> bool:
    if kind == "unknown":  # a proxy took the TYPE lines out
        return name.endswith(("_total", "_count", "_sum"))
    return kind in ("counter", "histogram", "summary") and not name.endswith("_bucket")


def counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of the window between two scrapes.

    Args:
        before: the scrape that opens the window.
        after: the scrape that closes it.
        version: vLLM's version, for the name of the source.

    Raises:
        MeasureError: a counter fell, appeared or went between the scrapes, or the server was started anew.
    """
    steps_name = next((name for name in STEPS if name in after.counters), STEPS[0])
    generated, first = _delta(before, after, GENERATED), _delta(before, after, FIRST_TOKENS)
    drafting = _delta(before, after, DRAFTING_STEPS)
    values = {
        "steps": _delta(before, after, steps_name),
        "drafting_steps": drafting,
        "drafted": _delta(before, after, DRAFTED),
        "accepted": _delta(before, after, ACCEPTED),
        "emitted": None if generated is None or first is None else generated - first,
    }
    per_position = _positions(before, after)
    reasons = {"steps": _NO_STEPS, "emitted": _NO_TOKENS}
    not_given = {name: reasons.get(name, _NO_SPECULATION) for name, value in values.items() if value is None}
    if per_position is None:
        not_given["accepted_per_position"] = (
            _NO_SPECULATION if drafting is None else "the server exports no accepted tokens by position"
        )
    return AcceptanceCounts(
        **values,
        accepted_per_position=per_position,
        source=_source(after.engines, version),
        not_given=not_given,
    )


def requests_finished(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many requests of anybody's finished between two scrapes, for whatever reason, or None.

    Raises:
        MeasureError: the counter fell or the server was started anew.
    """
    return _delta(before, after, FINISHED)


def prompt_tokens(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many prompt tokens were read between two scrapes, cached ones included or not as the release counts.

    Raises:
        MeasureError: the counter fell or the server was started anew.
    """
    return _delta(before, after, PROMPT)


def generated_tokens(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many tokens were generated between two scrapes, first tokens included, or None.

    Raises:
        MeasureError: the counter fell or the server was started anew.
    """
    return _delta(before, after, GENERATED)


def prefix_cache(before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
    """Return how many prompt tokens were looked up in the prefix cache and found there between two scrapes, or None.

    Raises:
        MeasureError: a counter fell or the server was started anew.
    """
    queries, hits = _delta(before, after, CACHE_QUERIES), _delta(before, after, CACHE_HITS)
    return None if queries is None or hits is None else (queries, hits)


def _delta(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> int | None:
    old, new = before.counters.get(name), after.counters.get(name)
    if old is None and new is None:
        return None
    if old is None or new is None:
        raise MeasureError(
            f"{name} {'appeared' if old is None else 'went'} between two scrapes of /metrics; "
            "the server was restarted with another configuration"
        )
    _check_created(before, after, name)
    if new < old:
        raise MeasureError(f"{name} fell from {old:.0f} to {new:.0f} between two scrapes; the server was restarted")
    return round(new - old)


def _check_created(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> None:
    key = re.sub(r"_(?:total|count|sum)$", "", name) + _CREATED
    old, new = before.created.get(key), after.created.get(key)
    if old is not None and new is not None and abs(new - old) > _SAME_TIME:
        raise MeasureError(f"{key} changed from {old:.3f} to {new:.3f} between two scrapes; the server was restarted")


def _positions(before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, ...] | None:
    _delta(before, after, PER_POSITION)  # a restart is the same for every position
    if before.per_position is None or after.per_position is None:
        return None
    if len(before.per_position) != len(after.per_position):
        raise MeasureError(
            f"{PER_POSITION} has {len(after.per_position)} positions after {len(before.per_position)} before; "
            "the server was restarted with another num_speculative_tokens"
        )
    return tuple(round(new - old) for old, new in zip(before.per_position, after.per_position, strict=True))


def _source(engines: int, version: str | None) -> str:
    name = f"vLLM {version}" if version else "vLLM"
    return f"/metrics of {name}, {engines} engine{'' if engines == 1 else 's'}, difference of two scrapes"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
