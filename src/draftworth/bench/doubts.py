"""What makes a window's figures doubtful: other users, a busy client, retries, counts that contradict each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth.bench.base import ClientHealth, RequestRow
from draftworth.engines.base import AcceptanceCounts
from draftworth.findings import Code, Finding, find

if TYPE_CHECKING:
    from draftworth.bench.window import Window

_CUT_OFF_SHARE = 0.01
_CUT_OFF_TOKENS = 2
_CPU_SHARE = 0.85
_LAG_MEDIAN_MS = 2.0
_LAG_MS = 25.0
_LAGGING_SHARE = 0.02
_LAGGING_TICKS = 3  # a hiccup or two are no busy client
_TICK_S = 0.05
_LOST_TWICE = 2.0
"""A time is longer by the standstills within it: on average by their share. Twice that is allowed for, since answers
end when the client has most to do."""
_LATE_MS = 50.0
_SHORTEST_S = 2.0  # below, a share of processor time and of 40 ticks is noise


def named(arm: str, text: str) -> str:
    """Return what is said of an arm; a benchmark has none."""
    return f"{arm}: {text}" if arm else text


def plausible(window: "Window", counts: AcceptanceCounts) -> AcceptanceCounts:
    """Return counts without those that contradict each other, which become a finding."""
    wrong = _contradiction(counts)
    if wrong is None:
        return counts
    arm = window.arm
    window.findings.append(find(Code.COUNTS_DISAGREE, named(arm, f"{wrong} ({counts.source})"), arm=arm or None))
    lost = ("drafting_steps", "drafted", "accepted", "accepted_per_position")
    reasons = {**counts.not_given, **dict.fromkeys(lost, f"the server's counters contradict each other: {wrong}")}
    return counts.model_copy(update={**dict.fromkeys(lost), "not_given": reasons})


def _contradiction(counts: AcceptanceCounts) -> str | None:
    """Return what in the counts cannot be true together, or None."""
    if counts.accepted is not None and counts.drafted is not None and counts.accepted > counts.drafted:
        return f"{counts.accepted} drafted tokens were accepted of {counts.drafted}"
    if counts.accepted is None or not counts.steps or counts.emitted is None:
        return None
    # A step emits one token and the accepted ones; tokens cut off behind an end were counted as accepted.
    most = counts.steps + counts.accepted
    if counts.emitted > most * (1 + _CUT_OFF_SHARE) + _CUT_OFF_TOKENS:
        return f"{counts.steps} steps emitted {counts.emitted} tokens and accepted {counts.accepted}"
    return None


def foreign_use(rows: Sequence[RequestRow], finished: int | None, generated: int | None) -> str | None:
    """Return what the server did for somebody else in the window, or None.

    Requests are counted when they finish, so one that ran all through the window shows by its tokens alone. Tokens are
    compared only where every request of ours was answered and counted; 1 % and 2 tokens are allowed, since a server
    may count tokens that it cuts off behind the end of an answer.

    Args:
        rows: every request that was sent.
        finished: requests the server finished, None where it does not tell.
        generated: tokens the server generated, None where it does not tell.
    """
    parts = []
    sent = len(rows) + sum(row.retries for row in rows)
    if finished is not None and finished > sent:
        parts.append(f"the server finished {finished} requests in the window, {sent} of them ours")
    ours = _exact_tokens(rows)
    if generated is not None and ours is not None and generated > ours * (1 + _CUT_OFF_SHARE) + _CUT_OFF_TOKENS:
        parts.append(f"the server generated {generated} tokens in the window, {ours} of them ours")
    return "; ".join(parts) or None


def client_findings(arm: str, point: str, client: ClientHealth) -> list[Finding]:
    """Return whether the client itself was the bottleneck.

    Args:
        arm: whose server was measured; empty in a benchmark.
        point: the point's name.
        client: how the client fared, all that was measured at the point together.
    """
    where = f"{arm} ({point})" if arm and point else arm or point
    findings: list[Finding] = []
    if client.wall_s < _SHORTEST_S:
        return findings
    share = client.cpu_s / client.wall_s
    if share > _CPU_SHARE or _lags(client):
        late = sum(count for lag, count in client.lags.items() if lag > _LAG_MS)
        middle, high, _ = client.lag_ms
        message = named(
            where,
            f"the client used {share:.0%} of a core and its clock was late by {middle:.1f} ms (median), {high:.1f} ms "
            f"(p99), in {late} of {client.ticks} ticks by more than {_LAG_MS:g} ms",
        )
        # A client at the end of its processor holds the server up too, by what nobody knows.
        most = None if share > _CPU_SHARE else _LOST_TWICE * _lost(client)
        findings.append(find(Code.CLIENT_SATURATED, message, arm=arm or None, accounts_for=most))
    if client.late_ms is not None and client.late_ms > _LATE_MS:
        message = named(where, f"one request in a hundred left {client.late_ms:.0f} ms or more after it was due")
        findings.append(find(Code.ARRIVALS_LATE, message, arm=arm or None))
    return findings


def _lags(client: ClientHealth) -> bool:
    """Whether the client's clock shows that it could not keep up.

    A client that is blocked has fewer ticks in the same time, so it is the time they stand for that must be enough.
    """
    watched_s = sum(count * (_TICK_S + lag / 1000) for lag, count in client.lags.items())
    if watched_s < _SHORTEST_S:
        return False
    late = sum(count for lag, count in client.lags.items() if lag > _LAG_MS)
    often = late >= _LAGGING_TICKS and late >= _LAGGING_SHARE * client.ticks
    return often or client.lag_ms[0] > _LAG_MEDIAN_MS


def _lost(client: ClientHealth) -> float:
    """Return the share of its time in which the client stood still."""
    late_s = sum(count * lag / 1000 for lag, count in client.lags.items())
    return late_s / (late_s + _TICK_S * client.ticks)


def retry_findings(arm: str, rows: Sequence[RequestRow]) -> list[Finding]:
    """Return whether requests had to be sent again."""
    again = [row for row in rows if row.retries]
    if not again:
        return []
    why = next((row.retry_reasons for row in again if row.retry_reasons), "no reason recorded")
    message = named(arm, f"{len(again)} of {len(rows)} requests were sent again; the first: {why}")
    return [find(Code.REQUESTS_RETRIED, message, arm=arm or None)]


def _exact_tokens(rows: Sequence[RequestRow]) -> int | None:
    """Return the tokens of all rows, or None where one failed or was not counted exactly."""
    total = 0
    for row in rows:
        if not row.ok or row.retries or row.tokens is None or row.token_source == "chunks":  # noqa: S105 - no secret
            return None
        total += row.tokens
    return total


def check_tokens(window: "Window") -> None:
    """Remark where the server's usage is not the number of token ids it sent."""
    both = [row for row in window.rows if row.ok and row.token_ids and row.token_source == "usage"]  # noqa: S105 - same
    apart = [row for row in both if row.tokens != len(row.token_ids)]
    if apart:
        one = apart[0]
        message = named(
            window.arm,
            f"{len(apart)} of {len(both)} answers have another number of token ids than their usage says; the first, "
            f"{one.prompt_id}: {len(one.token_ids)} ids, usage {one.tokens}",
        )
        window.findings.append(find(Code.TOKENS_DISAGREE, message, arm=window.arm or None))


def cross_check(window: "Window") -> None:
    """Compare the server's totals with the answers' own figures, where every answer carried some."""
    totals, answers = window.counts, window.per_request
    if totals is None or answers is None or any(not row.ok or not row.spec_stats for row in window.rows):
        return
    for name in ("drafting_steps", "drafted", "accepted"):
        one, other = getattr(totals, name), getattr(answers, name)
        if totals.meaning.get(name) != answers.meaning.get(name):
            continue  # the two count different things under one name
        if one is not None and other is not None and one != other:
            message = named(window.arm, f"{name} is {one} by {totals.source} and {other} by {answers.source}")
            window.findings.append(find(Code.COUNTS_DISAGREE, message, arm=window.arm or None))
            return
