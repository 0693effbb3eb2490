"""Joins what a server or a page tells with what its log tells."""

from draftworth.findings import Code, Finding
from draftworth.readings.base import Reading


def _of_log(log: Reading, *, told: bool) -> list[Finding]:
    """Return a log's findings; that it tells nothing of drafts is none where the page does."""
    return [one for one in log.findings if not (told and one.code is Code.NO_SPECULATION_SEEN)]


def with_log(reading: Reading, log: Reading) -> Reading:
    """Return a reading with its server's log: version, runner, configuration, warnings and windows come from there.

    The counts stay those of the page, which are exact; where it has none, the log's stand.

    Args:
        reading: of a page or a server.
        log: of its log.
    """
    page_has = reading.counts is not None and (reading.counts.drafted is not None or reading.counts.steps is not None)
    return reading.model_copy(
        update={
            "version": reading.version or log.version,
            "facts": log.facts,
            "counts": reading.counts if page_has or log.counts is None else log.counts,
            "told": (*reading.told, *(one for one in log.told if one not in reading.told)),
            "windows": log.windows,
            "windows_seen": log.windows_seen,
            "findings": tuple(dict.fromkeys([*reading.findings, *_of_log(log, told=page_has)])),
            "lines": log.lines,
            "size": reading.size + log.size,
        }
    )
