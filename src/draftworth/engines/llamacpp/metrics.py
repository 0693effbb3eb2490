"""Reads the `/metrics` page of llama.cpp's server: the counts between two scrapes, and since the start.

Names and sums of `tools/server/server-task.cpp` and `server-context.cpp` in 11434, `server-context.cpp` before; read in
9093, 9873, 10289, 10448 and 11434. The page is served only with `--metrics`. Measured on 11434: every counter of
speculation is the sum of the answers' timings.

- A request is counted when it ends, a cancelled one too, with all it generated, its first token included.
- There is no counter of requests and none of decode steps. `n_decode_total` counts `llama_decode()` calls: prompts are
  among them, and one call serves every busy slot. It leaves out the drafter's calls and counts the verifying ones.
- `spec_decode_num_drafts_total` counts drafts that were verified. A recurrent or hybrid model that refused part of a
  draft verifies the rest once more: one draft, two steps.
- The counters of speculation are there from 10289 on, at zero where nothing speculates; accepted tokens by position
  appear with the first draft.
- Values have six significant digits (`rounding.py`); those by position have all.

Forks carry the names of three pull requests that were not merged (25327 and 24850, 23328); they are read and said.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot, Told
from draftworth.engines.counts import FIELDS
from draftworth.engines.llamacpp import releases, rounding
from draftworth.engines.prometheus import Layout, delta, positions, read, since_start
from draftworth.errors import MeasureError
from draftworth.findings import Code

TOKENS = "llamacpp:tokens_predicted_total"
PROMPT = "llamacpp:prompt_tokens_total"
CACHED = "llamacpp:prompt_tokens_cached_total"
PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"


class Names(NamedTuple):
    """What the counters of speculation are called.

    Attributes:
        drafted: drafted tokens.
        accepted: accepted tokens.
        drafting_steps: verified drafts; None where there is none.
        fork: which fork's names these are; empty for llama.cpp's own.
    """

    drafted: str
    accepted: str
    drafting_steps: str | None
    fork: str = ""


OWN = Names(
    "llamacpp:spec_decode_num_draft_tokens_total",
    "llamacpp:spec_decode_num_accepted_tokens_total",
    "llamacpp:spec_decode_num_drafts_total",
)
_FORKS = (
    Names(
        "llamacpp:draft_tokens_total",
        "llamacpp:draft_tokens_accepted_total",
        "llamacpp:draft_verify_steps_total",
        "pull requests 25327 and 24850",
    ),
    Names(
        "llamacpp:spec_tokens_drafted_total",
        "llamacpp:spec_tokens_accepted_total",
        None,
        "pull request 23328",
    ),
)
_FORK_FORMULAS = {
    "llamacpp:draft_acceptance_rate": "accepted / drafted, since the start (a fork's gauge, pull request 25327)",
    "llamacpp:draft_mean_accept_len": "1 + accepted / verified drafts, since the start (a fork's gauge, the same)",
}
_LAYOUT = Layout(
    title="llama.cpp",
    prefix="llamacpp:",
    per_position=PER_POSITION,
    gauges=frozenset(_FORK_FORMULAS),
    hint="does the URL lead to a llama-server started with --metrics?",
)

EMITTED_MEANS = "all generated tokens: each request's first one, which comes from its prompt, is among them"
STEPS_MEAN = (
    "generated tokens less accepted ones: each request's prompt is one step more, and tokens that a stop cut off a "
    "draft are too few steps"
)
_NO_COUNTERS = (
    f"the page has no counters of speculation: builds before {releases.named(releases.COUNTERS)} export none; the log "
    "and each answer's timings tell"
)
_NO_STEPS = "without accepted tokens it cannot be told how many steps the generated tokens took"
_NO_TOKENS = f"the page has no {TOKENS}"
_NO_DRAFT_YET = "the server exports accepted tokens by position only once a draft was verified"
_NO_POSITIONS = "the page has no accepted tokens by position"
_OF_FORK = "{} are a fork's names; they do not give it"
_NOT_READ = "it is not on the page, of which a part could not be read"
_UNREADABLE = frozenset({Code.METRICS_CUT, Code.METRICS_UNREADABLE})


def parse_metrics(text: str, model: str | None = None) -> MetricsSnapshot:
    """Read a `/metrics` page: every `llamacpp:` counter.

    Args:
        text: the page.
        model: has no meaning here: a page is of one model and does not name it.

    Raises:
        MeasureError: the text is no metrics page, or not one of llama.cpp.
    """
    del model
    snapshot = read(text, _LAYOUT)
    if not snapshot.counters and not snapshot.gauges:
        why = snapshot.findings[0].message if snapshot.findings else "it is empty"
        raise MeasureError(f"/metrics shows no llamacpp: counters that can be read ({why}); {_LAYOUT.hint}")
    return snapshot


def counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of the requests that ended between two scrapes.

    Args:
        before: the scrape that opens the window.
        after: the scrape that closes it.
        version: llama.cpp's build, for the name of the source.

    Raises:
        MeasureError: a counter fell, appeared or went between the scrapes.
    """
    return _counts(before, after, f"/metrics of {releases.title(version)}, difference of two scrapes")


def totals(snapshot: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of every request that ended since the server's start, as one page tells them."""
    source = f"/metrics of {releases.title(version)}, since the server's start"
    return _counts(since_start(snapshot), snapshot, source)


def told(snapshot: MetricsSnapshot) -> tuple[Told, ...]:
    """Return the figures of speculation a page shows by itself: only forks have some."""
    return tuple(
        Told(name=name.removeprefix("llamacpp:"), value=value, formula=_FORK_FORMULAS[name], scope="since the start")
        for name, values in snapshot.gauges.items()
        for value in values
        if value == value and abs(value) != float("inf")  # noqa: PLR0124 - NaN is not equal to itself
    )


def generated_tokens(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many tokens the requests that ended between two scrapes had, first tokens included.

    None where the page does not tell, or tells it rounded: from a million tokens on.

    Raises:
        MeasureError: the counter fell.
    """
    ends = _grown(before, after, TOKENS)
    return ends[0] if ends and ends[0] == ends[1] else None


def prefix_cache(before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
    """Return how many prompt tokens were looked up in the cache and found there; None before 10448, or rounded.

    Raises:
        MeasureError: a counter fell.
    """
    read_ends, cached = _grown(before, after, PROMPT), _grown(before, after, CACHED)
    if not read_ends or not cached or read_ends[0] != read_ends[1] or cached[0] != cached[1]:
        return None
    return read_ends[0] + cached[0], cached[0]


def _counts(before: MetricsSnapshot, after: MetricsSnapshot, source: str) -> AcceptanceCounts:
    names = _names(after)
    ranges = {
        "drafted": _grown(before, after, names.drafted),
        "accepted": _grown(before, after, names.accepted),
        "drafting_steps": _grown(before, after, names.drafting_steps) if names.drafting_steps else None,
        "emitted": _grown(before, after, TOKENS),
    }
    by_position = _by_position(before, after, names, ranges["drafting_steps"])
    ranges["accepted"] = _narrowed(ranges["accepted"], by_position)
    ranges["steps"] = _steps(ranges)
    exact = {name: ends[0] for name, ends in ranges.items() if ends is not None and ends[0] == ends[1]}
    between: dict[str, tuple[int, int | None]] = {
        name: ends for name, ends in ranges.items() if ends is not None and ends[0] != ends[1]
    }
    given = {**exact, **between, "accepted_per_position": by_position}
    reasons = _reasons(after, names, ranges)
    meaning = {name: why for name, why in (("emitted", EMITTED_MEANS), ("steps", STEPS_MEAN)) if name in given}
    if names.fork:
        words = f"as a fork counts it that has the names of {names.fork}"
        meaning |= {name: words for name in ("drafted", "accepted", "drafting_steps") if name in given}
    numbers: dict[str, Any] = {**exact}
    return AcceptanceCounts(
        **numbers,
        accepted_per_position=by_position,
        source=source,
        between=between,
        not_given={name: reasons[name] for name in FIELDS if given.get(name) is None},
        meaning=meaning,
    )


def _names(page: MetricsSnapshot) -> Names:
    return next((names for names in (OWN, *_FORKS) if {names.drafted, names.accepted} & page.counters.keys()), OWN)


def _grown(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> tuple[int, int] | None:
    """Return by how much a counter grew, at least and at most; None where the pages do not have it.

    Raises:
        MeasureError: it fell, appeared or went.
    """
    broken = any(finding.code in _UNREADABLE for page in (before, after) for finding in page.findings)
    if broken and (name in before.counters) != (name in after.counters):
        return None
    if delta(before, after, name) is None:
        return None
    return rounding.difference(before.counters[name], after.counters[name])


def _by_position(
    before: MetricsSnapshot, after: MetricsSnapshot, names: Names, drafting: tuple[int, int] | None
) -> tuple[int, ...] | None:
    if names.fork or drafting is None or after.per_position is None:
        return None
    if before.per_position is None:
        if before.counters.get(OWN.drafting_steps or "") != 0:
            return None
        # Nothing was verified before: the series has begun at zero since.
        before = before.model_copy(
            update={
                "per_position": (0.0,) * len(after.per_position),
                "counters": {**before.counters, PER_POSITION: 0.0},
            }
        )
    return positions(before, after, PER_POSITION)


def _narrowed(accepted: tuple[int, int] | None, by_position: tuple[int, ...] | None) -> tuple[int, int] | None:
    """Return accepted tokens as exactly as known: by position they are not rounded."""
    if accepted is None or by_position is None or accepted[0] == accepted[1]:
        return accepted
    total = sum(by_position)
    return (total, total) if accepted[0] <= total <= accepted[1] else accepted


def _steps(ranges: Mapping[str, tuple[int, int] | None]) -> tuple[int, int] | None:
    tokens, accepted, drafting = ranges["emitted"], ranges["accepted"], ranges["drafting_steps"]
    if tokens is None or accepted is None:
        return None
    least = drafting or (0, 0)  # a draft that a stop cut nearly whole was a step nevertheless
    return max(tokens[0] - accepted[1], least[0], 0), max(tokens[1] - accepted[0], least[1], 0)


def _reasons(page: MetricsSnapshot, names: Names, ranges: Mapping[str, tuple[int, int] | None]) -> dict[str, str]:
    if any(finding.code in _UNREADABLE for finding in page.findings):
        return dict.fromkeys(FIELDS, _NOT_READ)
    if names.fork:
        lacking = by_position = _OF_FORK.format(f"{names.drafted.removesuffix('_total')}, …")
    elif ranges["drafted"] is None and ranges["accepted"] is None:
        lacking = by_position = _NO_COUNTERS
    else:
        lacking = "the page has other counters of speculation and not this one"
        by_position = _NO_POSITIONS if ranges["drafting_steps"] != (0, 0) else _NO_DRAFT_YET
    return {
        "steps": _NO_TOKENS if ranges["emitted"] is None else _NO_STEPS,
        "emitted": _NO_TOKENS,
        "drafting_steps": lacking,
        "drafted": lacking,
        "accepted": lacking,
        "accepted_per_position": by_position,
    }
