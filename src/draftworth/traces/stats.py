"""What a trace holds: how many requests and tokens, of what kinds, how exact, how repetitive.

Memory does not grow with the requests: lengths are counted by value, prompts and request ids are compared by 64-bit
digests of at most `PROMPTS` of them.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.models import Frozen
from draftworth.reports.words import plural
from draftworth.traces.base import BadRows, Trace, TraceBatch

SCHEMA_VERSION = 1
PROMPTS = 2_000_000
"""How many prompts, and request ids, are compared with each other."""
_CATEGORIES = 1000
MORE = "(further categories)"


class Lengths(Frozen):
    """How long something is, over requests: exact nearest-rank quantiles, in tokens."""

    total: int
    mean: float
    least: int
    median: int
    p90: int
    p99: int
    most: int


class CategoryStats(Frozen):
    """One category of a trace."""

    requests: int
    output_tokens: int
    continued_share: float
    """See `TraceStats.continued_share`."""


class TraceStats(Frozen):
    """A whole trace."""

    schema_version: int = SCHEMA_VERSION
    path: str
    requests: int
    exact: int
    """Requests whose ids came from the server."""
    model: str | None
    tokenizer_hash: str | None
    prompt: Lengths
    output: Lengths
    no_prompt: int
    """Requests with an empty prompt."""
    one_token: int
    """Requests with one output token: they have no step in which anything could be drafted."""
    largest_id: int
    thinking_known: int
    """Requests that say how much of their output is reasoning."""
    thinking_share: float | None
    """Reasoning tokens over output tokens of those; None where no request tells."""
    temperatures: dict[str, int]
    """Requests by temperature, the most frequent first; `unknown` where it is not recorded."""
    categories: dict[str, CategoryStats]
    """By category, the most frequent first; the empty name where none is recorded."""
    repeated_prompts: int
    """Requests whose prompt is that of one before."""
    compared_prompts: int
    """How many requests that was looked for in."""
    repeated_ids: int
    """Requests, among those, whose request id is that of one before: ids are meant to be unique."""
    continued_share: float
    """Output tokens that are what followed the newest earlier place of the three tokens before them in their request,
    over all output tokens: what a drafter that looks things up in its context could live on."""
    left_out: dict[str, int] = {}
    """Rows that could not be used, by reason."""
    left_out_first: dict[str, str] = {}
    """Where the first of each is."""

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return self.model_dump(mode="json")


@dataclass(slots=True)
class _Category:
    requests: int = 0
    output: int = 0
    continued: int = 0


@dataclass(slots=True)
class _Sums:
    requests: int = 0
    exact: int = 0
    no_prompt: int = 0
    one_token: int = 0
    largest: int = 0
    thinking_known: int = 0
    thinking: int = 0
    of_thinking: int = 0
    prompts: Counter[int] = field(default_factory=Counter)
    outputs: Counter[int] = field(default_factory=Counter)
    temperatures: Counter[str] = field(default_factory=Counter)
    categories: dict[str, _Category] = field(default_factory=dict)
    digests: list[NDArray[np.uint64]] = field(default_factory=list)
    names: list[NDArray[np.uint64]] = field(default_factory=list)
    digested: int = 0
    model: str | None = None
    tokenizer: str | None = None

    def add(self, batch: TraceBatch) -> None:
        from draftworth.traces.repeats import continued  # noqa: PLC0415 - numba only where it is used

        outputs = batch.output_lengths
        self.requests += len(batch)
        self.exact += int(batch.exact.sum())
        self.no_prompt += int((batch.prompt_lengths == 0).sum())
        self.one_token += int((outputs == 1).sum())
        self.largest = max(self.largest, int(batch.tokens.max(initial=0)))
        known = batch.thinking >= 0
        self.thinking_known += int(known.sum())
        self.thinking += int(batch.thinking[known].sum())
        self.of_thinking += int(outputs[known].sum())
        self.model, self.tokenizer = batch.model, batch.tokenizer_hash
        _count(self.prompts, batch.prompt_lengths)
        _count(self.outputs, outputs)
        self._temperatures(batch.temperatures)
        self._categories(batch, outputs, continued(batch.tokens, batch.offsets, batch.prompt_lengths))
        self._digests(batch)

    def _temperatures(self, found: NDArray[np.float64]) -> None:
        values, counts = np.unique(found, return_counts=True)
        for value, count in zip(values, counts, strict=True):
            self.temperatures["unknown" if np.isnan(value) else f"{value:g}"] += int(count)

    def _categories(self, batch: TraceBatch, outputs: NDArray[np.int64], continued: NDArray[np.int64]) -> None:
        for name, output, more in zip(batch.categories, outputs.tolist(), continued.tolist(), strict=True):
            known = name if name in self.categories or len(self.categories) < _CATEGORIES else MORE
            one = self.categories.setdefault(known, _Category())
            one.requests += 1
            one.output += output
            one.continued += more

    def _digests(self, batch: TraceBatch) -> None:
        some = min(len(batch), PROMPTS - self.digested)
        self.digests.append(_digests(batch.prompt(at).tobytes() for at in range(some)))
        self.names.append(_digests(name.encode(errors="surrogatepass") for name in batch.request_ids[:some]))
        self.digested += some


def _digests(texts: Iterable[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(hashlib.blake2b(one, digest_size=8).digest() for one in texts), np.uint64)


def stats(trace: Trace) -> TraceStats:
    """Read a trace and return what it holds.

    Raises:
        UsageError: see `Trace.batches`.
    """
    sums = _Sums()
    for batch in trace.batches():
        sums.add(batch)
    output = _lengths(sums.outputs)
    ordered = sorted(sums.categories.items(), key=lambda item: -item[1].requests)
    return TraceStats(
        path=str(trace.path),
        requests=sums.requests,
        exact=sums.exact,
        model=sums.model,
        tokenizer_hash=sums.tokenizer,
        prompt=_lengths(sums.prompts),
        output=output,
        no_prompt=sums.no_prompt,
        one_token=sums.one_token,
        largest_id=sums.largest,
        thinking_known=sums.thinking_known,
        thinking_share=sums.thinking / sums.of_thinking if sums.thinking_known else None,
        temperatures=dict(sums.temperatures.most_common()),
        categories={
            name: CategoryStats(
                requests=one.requests, output_tokens=one.output, continued_share=one.continued / one.output
            )
            for name, one in ordered
        },
        repeated_prompts=sums.digested - len(np.unique(np.concatenate(sums.digests))),
        compared_prompts=sums.digested,
        repeated_ids=sums.digested - len(np.unique(np.concatenate(sums.names))),
        continued_share=sum(one.continued for _, one in ordered) / output.total,
        left_out=dict(trace.bad.counts),
        left_out_first=dict(trace.bad.first),
    )


def _count(counts: Counter[int], lengths: NDArray[Any]) -> None:
    values, many = np.unique(lengths, return_counts=True)
    for value, count in zip(values.tolist(), many.tolist(), strict=True):
        counts[value] += count


def _lengths(counts: Mapping[int, int]) -> Lengths:
    values = np.array(sorted(counts), np.int64)
    many = np.array([counts[int(value)] for value in values], np.int64)
    ranks, requests = np.cumsum(many), int(many.sum())
    total = int((values * many).sum())

    def quantile(share: float) -> int:
        return int(values[np.searchsorted(ranks, max(1, int(np.ceil(share * requests))))])

    return Lengths(
        total=total,
        mean=total / requests,
        least=int(values[0]),
        median=quantile(0.5),
        p90=quantile(0.9),
        p99=quantile(0.99),
        most=int(values[-1]),
    )


def lines(found: TraceStats) -> list[str]:
    """Return the figures for a terminal."""
    model = found.model or "model not known"
    made = [f"{found.path}: {plural(found.requests, 'request')}, {model}, {_exact(found)}", ""]
    made.append(f"{'tokens':<10}{'total':>15}{'mean':>10}{'least':>8}{'median':>8}{'p90':>8}{'p99':>8}{'most':>10}")
    for name, one in (("prompt", found.prompt), ("output", found.output)):
        made.append(
            f"{name:<10}{one.total:>15,}{one.mean:>10,.1f}{one.least:>8,}{one.median:>8,}{one.p90:>8,}{one.p99:>8,}"
            f"{one.most:>10,}"
        )
    made += ["", f"{found.continued_share:.1%} of the output continues three tokens as they went on before"]
    if found.thinking_share is not None:
        of = "" if found.thinking_known == found.requests else f" of the {_telling(found)}"
        made.append(f"{found.thinking_share:.1%} of the output{of} is reasoning")
    among = "" if found.compared_prompts == found.requests else f" among the first {found.compared_prompts:,}"
    made.append(f"{plural(found.repeated_prompts, 'prompt repeats', 'prompts repeat')} one before{among}")
    if found.repeated_ids:
        has = plural(found.repeated_ids, "request has", "requests have")
        made.append(f"{has} the request_id of one before{among}: ids are not unique, was something recorded twice?")
    if found.no_prompt:
        has = plural(found.no_prompt, "request has", "requests have")
        made.append(f"{has} no prompt: what a drafter finds in prompts is not known")
    if found.one_token:
        has = plural(found.one_token, "request has", "requests have")
        made.append(f"{has} one output token: nothing could be drafted for {'it' if found.one_token == 1 else 'them'}")
    shown = ", ".join(f"{count:,} at {name}" for name, count in list(found.temperatures.items())[:_SHOWN])
    made.append(f"temperature: {shown}")
    if list(found.categories) != [""]:
        made += ["", f"{'category':<24}{'requests':>10}{'output tokens':>15}{'continued':>11}"]
        for name, category in list(found.categories.items())[:_SHOWN]:
            made.append(
                f"{(name or '(none)')[:23]:<24}{category.requests:>10,}{category.output_tokens:>15,}"
                f"{category.continued_share:>11.1%}"
            )
        if len(found.categories) > _SHOWN:
            made.append(f"{len(found.categories) - _SHOWN} further categories: --json has all")
    bad = BadRows(found.left_out, found.left_out_first).lines()
    return [*made, "", *bad] if bad else made


def _telling(found: TraceStats) -> str:
    return plural(found.thinking_known, "request that tells", "requests that tell")


def _exact(found: TraceStats) -> str:
    if found.exact == found.requests:
        return "all ids from the server"
    if not found.exact:
        return "all ids made from text" if found.tokenizer_hash else "no request with all ids from the server"
    return f"{found.exact:,} with ids from the server"


_SHOWN = 20
