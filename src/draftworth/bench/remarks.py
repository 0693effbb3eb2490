"""What is remarkable about a benchmark's rows and between its points."""

from collections.abc import Sequence

from draftworth.bench.summary import PointSummary
from draftworth.bench.window import Window
from draftworth.findings import Code, Finding, find

_CACHE_APART = 0.05
_FEW_REQUESTS = 20
_SHORT_SHARE = 0.5


def remarks(windows: Sequence[Window], points: Sequence[PointSummary]) -> list[Finding]:
    """Return what is remarkable about the rows and between the points."""
    found = [finding for window in windows for finding in window.findings]
    rows = [row for window in windows for row in window.rows]
    failed = [row for row in rows if not row.ok]
    if failed:
        message = f"{len(failed)} of {len(rows)} requests failed; the first: {failed[0].error}"
        found.append(find(Code.REQUESTS_FAILED, message))
    rough = sum(row.ok and row.token_source == "chunks" for row in rows)  # noqa: S105 - a count's source
    if rough:
        message = f"{rough} of {len(rows) - len(failed)} answers have their tokens counted from chunks"
        found.append(find(Code.APPROXIMATE_TOKENS, message))
    few = [point for point in points if point.tpot_ms.n < _FEW_REQUESTS]
    if few:
        message = f"{few[0].label or 'the run'} has {few[0].tpot_ms.n} requests with a time per token"
        found.append(find(Code.FEW_PAIRS, f"{message}; below {_FEW_REQUESTS} a 99th percentile is the largest value"))
    shares = [point.cached_share for point in points if point.cached_share is not None]
    if len(shares) > 1 and max(shares) - min(shares) > _CACHE_APART:
        message = (
            f"prompt tokens found in the prefix cache: {min(shares):.0%} at one point, {max(shares):.0%} at another"
        )
        found.append(find(Code.PREFIX_CACHE_WARMER, message))
    lengths = {window.point.max_tokens for window in windows}
    if len(lengths) > 1:
        found += [find(Code.LENGTH_SHORT, text) for text in map(_short, windows) if text]
    return found


def _short(window: Window) -> str | None:
    answered = [row for row in window.rows if row.ok]
    ended = sum(row.finish_reason != "length" for row in answered)
    if not answered or ended / len(answered) <= _SHORT_SHARE:
        return None
    mean = sum(row.tokens or 0 for row in answered) / len(answered)
    return f"{window.point.label}: {ended} of {len(answered)} answers ended by themselves, {mean:.0f} tokens on average"
