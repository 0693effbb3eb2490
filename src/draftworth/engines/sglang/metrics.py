"""Reads SGLang's `/metrics` page (`--enable-metrics`) and the counts of the window between two scrapes.

Names are those of `metrics/collector.py` (to 0.5.9) and `observability/metrics_collector.py` (0.5.10 to 0.5.23).
`spec_verify_calls_total` (0.5.13 and later), `generation_tokens_total`, `prompt_tokens_total`, `cached_tokens_total`
and `num_requests_total` grow when a request finishes, by all of the request (`observe_one_finished_request`), in the
tokenizer's process: one series a server, whatever its ranks. The gauges are those of the schedulers: one series a data
parallel rank, or one a tensor parallel rank with `--enable-metrics-for-all-schedulers`; they are never added. A
counter has no series before its first increment, so a window may open without it.
"""

import math
from typing import Any

from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot, Told
from draftworth.engines.prometheus import Layout, delta, read, since_start
from draftworth.engines.sglang import releases
from draftworth.findings import Code, Finding, find

VERIFY_CALLS = "sglang:spec_verify_calls_total"
GENERATED = "sglang:generation_tokens_total"
PROMPT = "sglang:prompt_tokens_total"
CACHED = "sglang:cached_tokens_total"
FINISHED = "sglang:num_requests_total"

_LENGTH, _RATE = "sglang:spec_accept_length", "sglang:spec_accept_rate"
_CAP, _BLOCK = "sglang:spec_cap_length", "sglang:spec_block_accept_length"
_STEPS, _WIDTH = "sglang:spec_num_steps", "sglang:spec_num_draft_tokens"
_GAUGES = (_LENGTH, _RATE, _CAP, _BLOCK, _STEPS, _WIDTH)
LAYOUT = Layout(
    title="SGLang",
    prefix="sglang:",
    gauges=frozenset(_GAUGES),
    rank_labels=("dp_rank",),
    hint="does the URL lead to an SGLang started with --enable-metrics?",
)

_WINDOW = "the last log interval (40 decode steps unless --decode-log-interval is set)"
_FORMULAS = {
    _LENGTH: releases.LENGTH,
    _CAP: "draft slots that were allowed / steps (variable-length verification)",
    _BLOCK: "tokens that block verification would accept / steps",
    _STEPS: "configured draft steps, as they are now",
    _WIDTH: "N: configured tokens of a verify step, the root counted, as they are now",
}
_MEANING = {
    "steps": releases.STEPS_MEAN,
    "drafting_steps": "verify calls; NGRAM's with nothing but filler are among them",
    "accepted": "emitted - verify calls: without what a stop or the length limit cut off",
    "emitted": "generated tokens - finished requests: a request retracted or ended before its first token shifts it",
}
_NO_DRAFTED = (
    "the page counts no drafted tokens; ask each answer for them (return_spec_tokens_details, 0.5.19 and later)"
)
_NO_POSITIONS = "the page counts no accepted tokens by position; answers carry a histogram"
_CUT = "the page that opens or closes the window is damaged there"


def parse_metrics(text: str, *, model: str | None = None) -> MetricsSnapshot:
    """Read a `/metrics` page.

    Args:
        text: the page.
        model: take only series of this model; None for all.

    Raises:
        MeasureError: the text is no metrics page, or not one of SGLang.
    """
    page = read(text, LAYOUT, model=model)
    found: list[Finding] = []
    gauges = dict(page.gauges)
    for name, low, high in ((_LENGTH, 0.0, math.inf), (_RATE, 0.0, 1.0)):
        bad = [value for value in gauges.get(name, ()) if not (math.isfinite(value) and low <= value <= high)]
        if bad:
            found.append(find(Code.COUNTS_CONTRADICT, f"{name} is {bad[0]:g}, which is not possible; it is left out"))
            gauges[name] = tuple(math.nan if value in bad or math.isnan(value) else value for value in gauges[name])
    return page.model_copy(update={"gauges": gauges, "findings": (*page.findings, *found)}) if found else page


def counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of the requests that finished between two scrapes.

    Args:
        before: the scrape that opens the window.
        after: the scrape that closes it.
        version: SGLang's version, for the name of the source and the reasons.

    Raises:
        MeasureError: a counter fell or went between the scrapes.
    """
    source = f"{_source(after.engines, version)}, requests that finished between two scrapes"
    return _counts(before, after, version, source)


def totals(snapshot: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of all requests that finished since the server's start."""
    source = f"{_source(snapshot.engines, version)}, requests that finished since the start"
    # What is damaged on the page is not in its counters, and not in the page at zero either.
    return _counts(since_start(snapshot), snapshot, version, source)


def _counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None, source: str) -> AcceptanceCounts:
    calls = _grown(before, after, VERIFY_CALLS)
    generated, finished = _grown(before, after, GENERATED), _grown(before, after, FINISHED)
    emitted = None if generated is None or finished is None or generated < finished else generated - finished
    if not calls:  # no call at all: nothing here speculates, and steps of plain decoding are counted nowhere
        calls = None
    accepted = None if calls is None or emitted is None or emitted < calls else emitted - calls
    why = _why_no_calls(after, version)
    not_given = {"drafted": why if calls is None else _NO_DRAFTED, "accepted_per_position": _NO_POSITIONS}
    if calls is None:
        not_given |= dict.fromkeys(("steps", "drafting_steps", "accepted", "accepted_per_position"), why)
    elif accepted is None:
        not_given["accepted"] = (
            "the page does not tell how many tokens left decode steps"
            if emitted is None
            else f"{emitted:,} emitted tokens of {calls:,} verify calls contradict each other"
        )
    if emitted is None:
        not_given["emitted"] = _why_no_tokens(before, after, generated, finished)
    values: dict[str, Any] = {"steps": calls, "drafting_steps": calls, "accepted": accepted, "emitted": emitted}
    return AcceptanceCounts(
        **values,
        source=source,
        not_given=not_given,
        meaning={name: how for name, how in _MEANING.items() if values.get(name) is not None},
    )


def _why_no_calls(after: MetricsSnapshot, version: str | None) -> str:
    release = releases.number(version)
    first = releases.text(releases.VERIFY_CALLS)
    if release is not None and release < releases.VERIFY_CALLS:
        return f"SGLang {version} counts no verify calls on its page ({first} and later do)"
    if _damaged(after):
        return f"the page has no readable {VERIFY_CALLS}"
    if release is not None:
        return "no speculating request finished"
    return f"no speculating request finished, or the release is older than {first} and counts no verify calls"


def _why_no_tokens(before: MetricsSnapshot, after: MetricsSnapshot, generated: int | None, finished: int | None) -> str:
    if generated is not None and finished is not None:
        return f"{generated:,} generated tokens of {finished:,} finished requests contradict each other"
    return _CUT if _damaged(before) or _damaged(after) else "no request has finished yet"


def requests_finished(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many requests of anybody's finished between two scrapes, or None.

    Raises:
        MeasureError: the counter fell or went.
    """
    return _grown(before, after, FINISHED)


def generated_tokens(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many tokens the requests that finished between two scrapes got, first tokens included, or None.

    Raises:
        MeasureError: the counter fell or went.
    """
    return _grown(before, after, GENERATED)


def prefix_cache(before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
    """Return how many prompt tokens finished requests had and how many of them the prefix cache held, or None.

    The counter of cached tokens has no series before the first hit; then there was none.

    Raises:
        MeasureError: a counter fell or went.
    """
    prompt, cached = _grown(before, after, PROMPT), _grown(before, after, CACHED)
    if prompt is None or (cached is None and (_damaged(before) or _damaged(after))):
        return None
    return prompt, cached or 0


def told(snapshot: MetricsSnapshot, version: str | None = None) -> tuple[Told, ...]:
    """Return SGLang's own gauges of speculation, each series for itself.

    A length of 0 means that nothing was verified yet, and its rate is then no rate.
    """
    lengths, rates = snapshot.gauges.get(_LENGTH, ()), snapshot.gauges.get(_RATE, ())
    widths = snapshot.gauges.get(_WIDTH, ())
    found: list[Told] = []
    for index, length in enumerate(lengths):
        rate, width = _at(rates, index, len(lengths)), _at(widths, index, len(lengths))
        if length == 0:
            continue
        formulas = dict(_FORMULAS)
        formulas[_RATE] = releases.rate_formula(version)
        if width:  # the gauge of N came in 0.5.13
            formulas[_RATE] = releases.RATE_NEW
        scope = _WINDOW if len(lengths) == 1 else f"{_WINDOW} of series {index + 1} of {len(lengths)}"
        values = {_LENGTH: length, _RATE: rate}
        values |= {name: _at(snapshot.gauges.get(name, ()), index, len(lengths)) or None for name in _GAUGES[2:]}
        found += [
            Told(name=name.removeprefix("sglang:"), value=value, formula=formulas[name], scope=scope)
            for name, value in values.items()
            if value is not None and math.isfinite(value)
        ]
    return tuple(found)


def _at(values: tuple[float, ...], index: int, of: int) -> float | None:
    """Return one series' value; None where the gauge has other series."""
    return values[index] if len(values) == of else None


def _grown(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> int | None:
    """Return by how much a counter grew; one that appeared began at zero, if the page before was whole."""
    if name not in before.counters and name in after.counters:
        if _damaged(before) or not math.isfinite(after.counters[name]):
            return None
        return round(after.counters[name])
    if name in before.counters and name not in after.counters and _damaged(after):
        return None
    return delta(before, after, name)


def _damaged(page: MetricsSnapshot) -> bool:
    """Tell whether a counter may be missing because the page could not be read there."""
    return any(one.code in (Code.METRICS_CUT, Code.METRICS_UNREADABLE) for one in page.findings)


def _source(engines: int, version: str | None) -> str:
    many = "" if engines == 1 else f", {engines} data-parallel ranks"
    return f"/metrics of {releases.name(version)}{many}"
