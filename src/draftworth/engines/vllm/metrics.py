"""Reads vLLM's `/metrics` page: the counts between two scrapes, and since the start.

The V1 engine (`v1/spec_decode/metrics.py` and `v1/metrics/loggers.py`, read in 0.8.5, 0.9.2, 0.10.2, 0.11.2, 0.14.1,
0.20.2, 0.24.0, 0.29.0, 0.32.0 and 0.33.0) keeps the same names throughout: `num_drafts`, `num_draft_tokens`,
`num_accepted_tokens` and `num_accepted_tokens_per_pos`, all with `_total`. Steps are the observations of
`inter_token_latency` (before 0.10.2 `time_per_output_token`): one a request and decode step, however many tokens the
step gave. `num_drafts` counts the steps that verified at least one drafted token; from 0.14 on drafts that a grammar
refused are taken out of `num_draft_tokens`, and the step stays. A token that a stop condition cut off was still counted
as accepted. Series of data-parallel engines carry the label `engine` and are added.

Diffusion models (0.24.0 and later) export `vllm:diffusion_…` instead, which count other things.

The V0 engine (`engine/metrics.py`, `spec_decode/metrics.py`, 0.8.5 and 0.9.2; gone in 0.10.1.1) gives no counts:

- `num_accepted_tokens`, `num_draft_tokens` and `num_emitted_tokens` are running totals of the sampler, and at every log
  interval the whole total is added to the counter again. Neither a counter nor a difference counts tokens.
- With speculation `generation_tokens` grows by one a sequence and step, however many tokens the step gave.

Its totals stand in its log (`spec_lines.py`), its rates in two gauges.
"""

import math

from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot, Told
from draftworth.engines.counts import FIELDS
from draftworth.engines.prometheus import Layout, delta, first_of, positions, read, since_start
from draftworth.errors import MeasureError
from draftworth.findings import Code

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
V0_EMITTED = "vllm:spec_decode_num_emitted_tokens_total"

_V0_FORMULAS = {
    "vllm:spec_decode_draft_acceptance_rate": "drafts the target agreed with, also behind a refused one / drafted",
    "vllm:spec_decode_efficiency": "emitted / (drafted / k x (k + 1)), of drafting steps",
}
_DIFFUSION = {
    "vllm:diffusion_num_denoising_steps_total": "denoising steps, each of one canvas",
    "vllm:diffusion_num_canvas_positions_total": "canvas positions evaluated, every one anew in each denoising step",
    "vllm:diffusion_num_committed_tokens_total": "tokens committed: positions whose token is final",
}
_LAYOUT = Layout(
    title="vLLM",
    prefix="vllm:",
    per_position=PER_POSITION,
    gauges=frozenset(_V0_FORMULAS),
    rank_labels=("engine",),
    together=(DRAFTING_STEPS, DRAFTED, ACCEPTED),
    fixed_series=True,
    hint="does the URL lead to a vLLM started without --disable-log-stats?",
)

_NO_SPECULATION = "the server does not speculate: it exports no spec_decode series"
_NO_STEPS = "the server exports no inter-token latency (was it started with --disable-log-stats?)"
_NO_TOKENS = "the server exports no token counts (was it started with --disable-log-stats?)"
_NO_POSITIONS = "the server exports no accepted tokens by position"
_NOT_THERE = "the page has other spec_decode series and not this one"
_NOT_READ = "it is not on the page, of which a part could not be read"
_IS_DIFFUSION = "a diffusion model: it counts denoising steps and canvas positions, which are no drafts"
_V0_ADDED = (
    "the V0 engine adds its running totals to its counters again at every log interval, so they count no tokens; its "
    "log tells the totals"
)
_V0_UNKNOWN = "the V0 engine exports none"
_V0_GENERATED = "with speculation the V0 engine counts one generated token a step, however many the step gave"
_UNREADABLE = frozenset({Code.METRICS_CUT, Code.METRICS_UNREADABLE})


def parse_metrics(text: str, model: str | None = None) -> MetricsSnapshot:
    """Read a `/metrics` page: every `vllm:` counter and histogram, summed over label sets, buckets left out.

    Args:
        text: the page.
        model: take only series of this model; None for all.

    Raises:
        MeasureError: the text is no metrics page, not one of vLLM, or has no series of that model.
    """
    snapshot = read(text, _LAYOUT, model=model)
    if not snapshot.counters and not snapshot.gauges:
        why = snapshot.findings[0].message if snapshot.findings else "it is empty"
        raise MeasureError(f"/metrics shows no vllm: counters that can be read ({why}); {_LAYOUT.hint}")
    return snapshot


def counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of the window between two scrapes.

    Args:
        before: the scrape that opens the window.
        after: the scrape that closes it.
        version: vLLM's version, for the name of the source.

    Raises:
        MeasureError: a counter fell, appeared or went between the scrapes, or the server was started anew.
    """
    return _counts(before, after, f"{_source(after.engines, version)}, difference of two scrapes")


def totals(snapshot: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts since the server's start, as one page tells them.

    Args:
        snapshot: the page.
        version: vLLM's version, for the name of the source.
    """
    return _counts(since_start(snapshot), snapshot, f"{_source(snapshot.engines, version)}, since the server's start")


def told(snapshot: MetricsSnapshot) -> tuple[Told, ...]:
    """Return the engine's own figures on a page: the rates of V0, and what a diffusion model counts."""
    gauges = (
        Told(name=_named(name, index, len(values)), value=value, formula=_V0_FORMULAS[name], scope="since the start")
        for name, values in snapshot.gauges.items()
        for index, value in enumerate(values)
        if math.isfinite(value)
    )
    twins = (
        Told(name=_named(name, 0, 1), value=snapshot.counters[name], formula=formula, scope="since the start")
        for name, formula in _DIFFUSION.items()
        if name in snapshot.counters
    )
    return (*gauges, *twins)


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

    None too for a V0 engine that speculates: it counts steps under this name.

    Raises:
        MeasureError: the counter fell or the server was started anew.
    """
    return None if _is_v0(after) else _delta(before, after, GENERATED)


def prefix_cache(before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
    """Return how many prompt tokens were looked up in the prefix cache and found there between two scrapes, or None.

    Raises:
        MeasureError: a counter fell or the server was started anew.
    """
    queries, hits = _delta(before, after, CACHE_QUERIES), _delta(before, after, CACHE_HITS)
    return None if queries is None or hits is None else (queries, hits)


def _counts(before: MetricsSnapshot, after: MetricsSnapshot, source: str) -> AcceptanceCounts:
    if _is_diffusion(after):
        return AcceptanceCounts(source=source, not_given=dict.fromkeys(FIELDS, _IS_DIFFUSION))
    v0 = _is_v0(after)
    steps = _delta(before, after, first_of(after, STEPS))
    generated, first = generated_tokens(before, after), _delta(before, after, FIRST_TOKENS)
    emitted = None if generated is None or first is None else generated - first
    drafting = _delta(before, after, DRAFTING_STEPS)
    drafted = None if v0 else _delta(before, after, DRAFTED)
    accepted = None if v0 else _delta(before, after, ACCEPTED)
    by_position = None if _spoilt(before, after, PER_POSITION) else positions(before, after, PER_POSITION)
    not_given = {
        "steps": _missing(after, _NO_STEPS),
        "emitted": _V0_GENERATED if v0 else _missing(after, _NO_TOKENS),
        "drafting_steps": _V0_UNKNOWN if v0 else _missing_draft(after),
        "drafted": _V0_ADDED if v0 else _missing_draft(after),
        "accepted": _V0_ADDED if v0 else _missing_draft(after),
        "accepted_per_position": _V0_UNKNOWN if v0 else _missing_draft(after, _NO_POSITIONS),
    }
    given = {
        "steps": steps,
        "emitted": emitted,
        "drafting_steps": drafting,
        "drafted": drafted,
        "accepted": accepted,
        "accepted_per_position": by_position,
    }
    return AcceptanceCounts(
        steps=steps,
        drafting_steps=drafting,
        drafted=drafted,
        accepted=accepted,
        accepted_per_position=by_position,
        emitted=emitted,
        source=source,
        not_given={name: why for name, why in not_given.items() if given[name] is None},
    )


def _is_v0(snapshot: MetricsSnapshot) -> bool:
    """Whether a V0 engine that speculates wrote the page; V1 never exports emitted tokens nor these rates."""
    return DRAFTING_STEPS not in snapshot.counters and (V0_EMITTED in snapshot.counters or bool(snapshot.gauges))


def _is_diffusion(snapshot: MetricsSnapshot) -> bool:
    names = snapshot.counters.keys()
    return bool(_DIFFUSION.keys() & names) and not {DRAFTING_STEPS, DRAFTED, ACCEPTED} & names


def _missing(page: MetricsSnapshot, why: str) -> str:
    return _NOT_READ if any(finding.code in _UNREADABLE for finding in page.findings) else why


def _missing_draft(page: MetricsSnapshot, otherwise: str = _NOT_THERE) -> str:
    speculates = bool({DRAFTING_STEPS, DRAFTED, ACCEPTED} & page.counters.keys())
    return _missing(page, otherwise if speculates else _NO_SPECULATION)


def _spoilt(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> bool:
    """Whether a series is lacking on one of two pages that could not be read whole."""
    broken = any(finding.code in _UNREADABLE for page in (before, after) for finding in page.findings)
    return broken and (name in before.counters) != (name in after.counters)


def _delta(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> int | None:
    return None if _spoilt(before, after, name) else delta(before, after, name)


def _named(name: str, index: int, of: int) -> str:
    short = name.removeprefix("vllm:").removesuffix("_total")
    return short if of == 1 else f"{short}, series {index + 1}"


def _source(engines: int, version: str | None) -> str:
    name = f"vLLM {version}" if version else "vLLM"
    return f"/metrics of {name}, {engines} engine{'' if engines == 1 else 's'}"
