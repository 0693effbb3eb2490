"""From rows to the figures of one point of a sweep: what tables, plots and records show."""

from collections.abc import Sequence

from draftworth.bench.base import Closed, Open, RequestRow
from draftworth.bench.points import Point
from draftworth.engines.base import AcceptanceCounts
from draftworth.findings import Code, Finding, find
from draftworth.models import Frozen
from draftworth.verdicts.rules import Limits

_ROUNDS = 4
"""How often a closed loop must be filled to be at its load for most of its time."""


class Spread(Frozen):
    """How one figure is spread over requests; None where nothing was measured."""

    n: int = 0
    mean: float | None = None
    low: float | None = None
    """Of the 95 % interval of the mean over prompts; None for fewer than two."""
    high: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class PointSummary(Frozen):
    """One point of a sweep in one arm, over all categories or one of them."""

    label: str = ""
    category: str | None = None
    """None for all together."""
    load: str = "closed"
    """`closed`, `open` or `replay`."""
    concurrency: int | None = None
    rate: float | None = None
    """Requests a second that were asked for."""
    context_tokens: int | None = None
    """About how many tokens prompts were filled up to."""
    max_tokens: int
    requests: int
    """Sent, failed ones too."""
    failed: int
    retried: int
    """Answered after being sent again: in no time."""
    seconds: float | None = None
    """From the first request's start to the last one's end."""
    tokens: int | None = None
    """Output tokens of the answered requests."""
    reasoning_tokens: int | None = None
    """Of them, tokens of reasoning, where every answer tells."""
    prompt_tokens: float | None = None
    """Mean over the answered requests."""
    cached_share: float | None = None
    """Prompt tokens that came from the server's prefix cache, where it tells."""
    ttft_ms: Spread = Spread()
    tpot_ms: Spread = Spread()
    e2e_ms: Spread = Spread()
    throughput: float | None = None
    """Output tokens a second, all requests together, over `seconds`."""
    request_rate: float | None = None
    """Answered requests a second."""
    in_flight: float | None = None
    """Mean number of requests under way over `seconds`; below a closed loop's concurrency where requests ran out."""
    goodput: float | None = None
    """Requests a second that met every stated limit; None where none is stated."""
    good_share: float | None = None
    """Requests that met every stated limit / requests sent."""
    acceptance: AcceptanceCounts | None = None


def summarise(
    point: Point,
    rows: Sequence[RequestRow],
    *,
    limits: Limits | None = None,
    acceptance: AcceptanceCounts | None = None,
    cache: tuple[int, int] | None = None,
) -> tuple[PointSummary, ...]:
    """Return the figures of a point: all categories together first, then each, in order of name.

    Args:
        point: what was asked for.
        rows: its requests.
        limits: what a request must meet to count for goodput.
        acceptance: the server's counts of the window.
        cache: prompt tokens looked up in the server's prefix cache, and found there.
    """
    names = sorted({row.category for row in rows})
    whole = _one(point, rows, None, limits)
    share = cache[1] / cache[0] if cache and cache[0] else whole.cached_share
    whole = whole.model_copy(update={"acceptance": acceptance, "cached_share": share})
    if len(names) < 2:  # noqa: PLR2004 - one category is all
        return (whole,)
    # A category shares the server with the others, so it has times of its own but no rates.
    unknown = dict.fromkeys(("throughput", "request_rate", "in_flight", "goodput", "seconds"))
    parts = (_one(point, [row for row in rows if row.category == name], name, limits) for name in names)
    return whole, *(part.model_copy(update=unknown) for part in parts)


def _one(point: Point, rows: Sequence[RequestRow], category: str | None, limits: Limits | None) -> PointSummary:
    from draftworth.verdicts.pairing import meets  # noqa: PLC0415 - lazy: numpy

    load = point.load
    answered = [row for row in rows if row.ok]
    timed = [row for row in rows if row.timed]
    seconds = duration_s(rows, busy=isinstance(load, Closed) and any(row.retries for row in rows))
    tokens = sum(row.tokens or 0 for row in answered) if answered else None
    prompts = [row.prompt_tokens for row in answered if row.prompt_tokens is not None]
    cached = [(row.cached_tokens, row.prompt_tokens) for row in answered if row.cached_tokens is not None]
    looked_up = sum(prompt or 0 for _, prompt in cached)
    reasoning = [row.reasoning_tokens for row in answered]
    known_reasoning = [value for value in reasoning if value is not None]
    stated = limits is not None and limits.stated
    good = sum(meets(row, limits) for row in rows) if limits is not None and stated else None
    return PointSummary(
        label=point.label,
        category=category,
        load="closed" if isinstance(load, Closed) else "open" if isinstance(load, Open) else "replay",
        concurrency=load.concurrency if isinstance(load, Closed) else None,
        rate=load.rate if isinstance(load, Open) else None,
        context_tokens=point.context_tokens,
        max_tokens=point.max_tokens,
        requests=len(rows),
        failed=len(rows) - len(answered),
        retried=len(answered) - len(timed),
        seconds=seconds,
        tokens=tokens,
        reasoning_tokens=sum(known_reasoning) if answered and len(known_reasoning) == len(reasoning) else None,
        prompt_tokens=sum(prompts) / len(prompts) if prompts else None,
        cached_share=sum(some or 0 for some, _ in cached) / looked_up if looked_up else None,
        ttft_ms=spread([(row.conversation, row.ttft_ms) for row in timed]),
        tpot_ms=spread([(row.conversation, row.tpot_ms) for row in timed]),
        e2e_ms=spread([(row.conversation, row.e2e_ms) for row in timed]),
        throughput=tokens / seconds if tokens is not None and seconds else None,
        request_rate=len(answered) / seconds if answered and seconds else None,
        in_flight=in_flight(rows, seconds),
        goodput=good / seconds if good is not None and seconds else None,
        good_share=good / len(rows) if good is not None and rows else None,
    )


def in_flight(rows: Sequence[RequestRow], seconds: float | None) -> float | None:
    """Return how many requests were under way on average; None where that is not known."""
    took = [row.e2e_ms for row in rows if row.e2e_ms is not None]
    return sum(took) / 1000 / seconds if took and seconds else None


def load_findings(point: Point, rows: Sequence[RequestRow], arm: str = "") -> list[Finding]:
    """Return whether a closed loop ran out of requests: it then empties for much of its time."""
    load = point.load
    if not isinstance(load, Closed) or load.concurrency == 1:
        return []
    wanted = _ROUNDS * load.concurrency
    if not rows or len(rows) >= wanted:
        return []
    under_way = in_flight(rows, duration_s(rows))
    on_average = "" if under_way is None else f", {under_way:.0f} under way on average"
    message = f"{load.label}: {len(rows)} requests were sent{on_average}; send at least {wanted}"
    return [find(Code.LOAD_NOT_REACHED, f"{arm}, {message}" if arm else message, arm=arm or None)]


def duration_s(rows: Sequence[RequestRow], *, busy: bool = False) -> float | None:
    """Return seconds from the first request's start to the last one's end; None where nothing was answered.

    Starts are by a clock that is not set while the process runs (`bench.moment`), so a step of the wall clock changes
    nothing.

    Args:
        rows: the requests.
        busy: leave out the time in which none was under way: a closed loop is only idle while it waits to send a
            refused request again, which is no time of the server's.
    """
    spans = sorted((row.started_unix, row.started_unix + row.e2e_ms / 1000) for row in rows if row.e2e_ms is not None)
    if not spans:
        return None
    if not busy:
        return max(end for _, end in spans) - min(row.started_unix for row in rows) or None
    total, until = 0.0, spans[0][0]
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total or None


def spread(values: Sequence[tuple[str, float | None]]) -> Spread:
    """Return the spread of a figure over requests; its interval over prompts, whose repeats are no new evidence.

    Args:
        values: prompt and figure, one a request; None where it has none.
    """
    from draftworth.verdicts.running import mean_interval  # noqa: PLC0415 - lazy: scipy

    known = sorted(value for _, value in values if value is not None)
    if not known:
        return Spread()
    by_prompt: dict[str, list[float]] = {}
    for prompt, value in values:
        if value is not None:
            by_prompt.setdefault(prompt, []).append(value)
    found = mean_interval([sum(some) / len(some) for _, some in sorted(by_prompt.items())])
    return Spread(
        n=len(known),
        mean=sum(known) / len(known),
        low=found.low if found else None,
        high=found.high if found else None,
        p50=quantile(known, 0.5),
        p90=quantile(known, 0.9),
        p99=quantile(known, 0.99),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, linear between order statistics (type 7 of Hyndman and Fan)."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
