"""What to be careful with in a replay's figures."""

from draftworth.drafters.base import Drafter, Limits
from draftworth.drafters.gathered import MOST_COMPARED, Seen
from draftworth.drafters.replay import Replayed
from draftworth.findings import Code, Finding, find

FEW_REQUESTS = 30
"""Fewer different requests than this are remarked upon, and give no verdict."""


def different(seen: Seen) -> int:
    """Return how many replayed requests have steps and are no earlier one again."""
    return seen.requests - seen.repeated


def remarks(replayed: Replayed, drafter: Drafter, limits: Limits) -> list[Finding]:
    """Return findings on what was replayed; rows left out are no findings, they are counted by reason."""
    seen, found = replayed.seen, []
    of = f"of {seen.requests:,} request{'s' * (seen.requests != 1)}"
    if seen.inexact:
        found.append(
            find(Code.INEXACT_TRACE, f"the ids of {seen.inexact:,} {of} come from text that was tokenised again")
        )
    if seen.repeated:
        first = f"of {seen.requests:,}" if seen.requests <= MOST_COMPARED else f"of the first {MOST_COMPARED:,} or more"
        found.append(
            find(Code.REQUESTS_REPEAT, f"{seen.repeated:,} {first} requests are an earlier one again, token by token")
        )
    if drafter.shared:
        at_a_time = f"{limits.concurrency:,} request{'s' * (limits.concurrency != 1)} at a time"
        found.append(find(Code.ORDER_MATTERS, f"{drafter.name} was replayed in the recorded order, {at_a_time}"))
    if seen.sampled:
        found.append(find(Code.SAMPLED_TRACE, f"{seen.sampled:,} {of} were sampled at a temperature above 0"))
    if seen.thinking_not_known:
        found.append(
            find(
                Code.THINKING_NOT_KNOWN,
                f"{seen.thinking_not_known:,} {of} do not say how many of their tokens are reasoning",
            )
        )
    if (some := different(seen)) < FEW_REQUESTS:
        which = "different " if seen.repeated else ""
        has = f"{which}request has" if some == 1 else f"{which}requests have"
        found.append(find(Code.FEW_REQUESTS, f"only {some:,} {has} steps; a verdict takes {FEW_REQUESTS}"))
    return found
