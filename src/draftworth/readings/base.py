"""The result of reading a server, a page or a log, and what is common to reading them."""

from itertools import pairwise
from typing import Any

from draftworth.engines.base import AcceptanceCounts, PageFacts, StartupFacts, Told, Window
from draftworth.engines.counts import BELOW_ZERO, FIELDS, figures
from draftworth.findings import Code, Finding, find
from draftworth.models import Frozen

SCHEMA_VERSION = 1
_BETWEEN_UPDATES = 0.002


class Reading(Frozen):
    """What was read.

    A count is a number or None; `counts.not_given` says why. Windows are the newest ones; `windows_seen` is how many
    there were, and the counts are of all of them.
    """

    source: str
    """The file or the URL; `standard input`."""
    kind: str
    """`log`, `metrics`, `page` or `server`."""
    engine: str
    title: str
    version: str | None = None
    models: tuple[str, ...] = ()
    facts: StartupFacts = StartupFacts()
    """What the log tells of the server's last start."""
    pages: tuple[PageFacts, ...] = ()
    counts: AcceptanceCounts | None = None
    """Of a page: since the server's start. Of a log: all windows of its last start, added."""
    told: tuple[Told, ...] = ()
    """The engine's own figures, each with its formula."""
    windows: tuple[Window, ...] = ()
    windows_seen: int = 0
    findings: tuple[Finding, ...] = ()
    lines: int = 0
    """Of a log: lines of this engine that mattered."""
    size: int = 0
    """Bytes read."""

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `draftworth metrics --json`."""
        counts = self.counts
        whole = self.model_dump(mode="json", exclude={"counts", "windows", "findings", "facts"})
        return {
            "schema_version": SCHEMA_VERSION,
            **whole,
            **{name: None if counts is None else getattr(counts, name) for name in (*FIELDS, "drafted_per_position")},
            "not_given": {} if counts is None else {n: counts.why_not(n) for n in FIELDS if getattr(counts, n) is None},
            "between": {} if counts is None else counts.between,
            "meaning": {} if counts is None else counts.meaning,
            "counts_source": None if counts is None else counts.source,
            "figures": [] if counts is None else [one.model_dump(mode="json") for one in figures(counts)],
            "survival": None if counts is None else counts.survival,
            "conditional": None if counts is None else counts.conditional,
            "runner": self.facts.runner,
            "speculating": self.facts.speculating,
            "warnings": [one.model_dump(mode="json") for one in self.facts.warnings],
            "windows": [one.model_dump(mode="json") for one in self.windows],
            "findings": [one.model_dump(mode="json") for one in self.findings],
        }


def contradictions(counts: AcceptanceCounts | None) -> list[Finding]:
    """Return what in counts cannot be."""
    if counts is None:
        return []
    found = []
    drafted, accepted, drafting = counts.drafted, counts.accepted, counts.drafting_steps
    if drafted is not None and accepted is not None and accepted > drafted:
        found.append(f"{accepted:,} tokens accepted of {drafted:,} drafted")
    if drafted is not None and drafting is not None and drafting > drafted:
        found.append(f"{drafting:,} steps that drafted and {drafted:,} drafted tokens")
    if counts.steps is not None and drafting is not None and drafting > counts.steps and "steps" not in counts.meaning:
        found.append(f"{drafting:,} of {counts.steps:,} steps drafted")
    chain = counts.accepted_per_position
    if chain is not None and any(late > early for early, late in pairwise(chain)):
        found.append(f"a later position was accepted more often than an earlier one ({', '.join(map(str, chain))})")
    # A scrape may fall between the updates of two counters.
    if chain is not None and accepted is not None and abs(sum(chain) - accepted) > _BETWEEN_UPDATES * accepted:
        found.append(f"{sum(chain):,} accepted tokens by position and {accepted:,} in all")
    found += [f"{name}: {why}" for name, why in counts.not_given.items() if why.startswith(BELOW_ZERO)]
    return [find(Code.COUNTS_CONTRADICT, "; ".join(found))] if found else []
