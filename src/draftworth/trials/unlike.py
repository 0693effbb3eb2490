"""Which arms' figures of speculation must not be compared, since their engines count in different ways."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from draftworth.engines.base import AcceptanceCounts
from draftworth.engines.counts import FIGURES, WORDS, figure, not_comparable
from draftworth.findings import Code, Finding, find


def not_compared(arms: Sequence[tuple[str, AcceptanceCounts | None]]) -> list[Finding]:
    """Return a finding for every two arms that both tell a figure, each made of counts of another meaning.

    Args:
        arms: name and counts of each.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (one, mine), (other, yours) in combinations(arms, 2):
        if mine is None or yours is None:
            continue
        for name in FIGURES:
            why = not_comparable(name, mine, yours)
            if why and _told(mine, name) and _told(yours, name):
                found.setdefault((one, other), {}).setdefault(why, []).append(WORDS[name])
    return [
        find(Code.NOT_COMPARED, f"{one} and {other}: {', '.join(names)}: {why}")
        for (one, other), reasons in found.items()
        for why, names in reasons.items()
    ]


def _told(counts: AcceptanceCounts, name: str) -> bool:
    return figure(counts, name).value is not None


def other_engines(engines: Mapping[str, str]) -> list[Finding]:
    """Return a finding for every variant that another engine than the baseline's serves.

    Args:
        engines: arm to engine, the baseline first.
    """
    (baseline, first), *others = engines.items()
    return [
        find(
            Code.CONFOUNDED,
            f"{arm} is served by {engine} and {baseline} by {first}: the difference is of the engines and of "
            "speculation together",
            arm=arm,
        )
        for arm, engine in others
        if engine != first
    ]
