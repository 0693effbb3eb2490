"""Reads one page: Prometheus text, or JSON a server gave (`/server_info`, `/props`, an answer, many answers)."""

import json
from collections.abc import Sequence
from typing import Any

from draftworth.engines import CHOICES, engine
from draftworth.engines.base import Engine, MetricsSnapshot, PageFacts
from draftworth.engines.counts import sum_counts
from draftworth.errors import MeasureError, UsageError
from draftworth.findings import Code, Finding, find
from draftworth.readings.base import Reading, contradictions


def engine_of(text: str, name: str | None = None, model: str | None = None) -> tuple[Engine, MetricsSnapshot]:
    """Return the engine whose metrics a page shows, and what it shows.

    Args:
        text: the page.
        name: the engine, where it is known.
        model: only series of this model.

    Raises:
        MeasureError: it shows none, or those of several engines; says whose.
    """
    errors: list[str] = []
    found: list[tuple[Engine, MetricsSnapshot]] = []
    for one in [name] if name else CHOICES:
        adapter = engine(one)
        try:
            found.append((adapter, adapter.parse_metrics(text, model)))
        except MeasureError as error:
            errors.append(str(error))
    if len(found) > 1:
        raise MeasureError(
            f"the page has series of {' and '.join(one.title for one, _ in found)}; --engine says which to read"
        )
    if not found:
        of_models = [error for error in errors if "no series of the model" in error]
        raise MeasureError(of_models[0] if of_models else errors[0] if name else _nobodys(text, errors))
    return found[0]


def _nobodys(text: str, errors: Sequence[str]) -> str:
    looks = "# TYPE" in text or "# HELP" in text
    if not looks:
        return errors[0]
    names = list(dict.fromkeys(line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1].isalpha()))
    shown = ", ".join(names[:3]) or "nothing"
    titles = ", ".join(engine(one).title for one in CHOICES)
    return f"these are metrics of another program ({shown}); {titles} are known"


def read_metrics(text: str, source: str, *, name: str | None = None, model: str | None = None) -> Reading:
    """Read a page of metrics as the counts since the server's start.

    Raises:
        MeasureError: it is no engine's page, or of several.
    """
    adapter, snapshot = engine_of(text, name, model)
    return of_snapshot(adapter, snapshot, source=source, size=len(text.encode("utf-8", "replace")))


def of_snapshot(adapter: Engine, snapshot: MetricsSnapshot, *, source: str, size: int = 0) -> Reading:
    """Return what one page of metrics tells."""
    counts = adapter.totals(snapshot)
    told = adapter.told(snapshot)
    findings = [*snapshot.findings, *contradictions(counts)]
    if counts.drafted is None and counts.accepted is None and not told:
        findings.append(find(Code.NO_SPECULATION_SEEN, counts.why_not("drafted")))
    return Reading(
        source=source,
        kind="metrics",
        engine=adapter.name,
        title=adapter.title,
        version=adapter.version,
        models=snapshot.models,
        counts=counts,
        told=told,
        findings=tuple(findings),
        size=size,
    )


def read_difference(before: str, after: str, source: str, *, name: str | None, model: str | None) -> Reading:
    """Read two pages of one server as the counts between them.

    Where a counter fell, there are no counts and a finding says which.

    Raises:
        MeasureError: one is no engine's page.
    """
    adapter, old = engine_of(before, name, model)
    _, new = engine_of(after, adapter.name, model)
    return of_difference(adapter, old, new, source=source, size=len(after))


def of_difference(
    adapter: Engine, old: MetricsSnapshot, new: MetricsSnapshot, *, source: str, size: int = 0
) -> Reading:
    """Return what two pages of one server tell of the time between them."""
    whole = of_snapshot(adapter, new, source=source, size=size)
    spoilt = [*old.findings, *new.findings]
    try:
        counts = adapter.counts(old, new)
    except MeasureError as error:
        reset = find(Code.COUNTER_RESET, str(error))
        return whole.model_copy(update={"counts": None, "findings": tuple(dict.fromkeys([*spoilt, reset]))})
    found = dict.fromkeys([*spoilt, *contradictions(counts)])
    return whole.model_copy(update={"counts": counts, "findings": tuple(found)})


def read_json(text: str, source: str, *, name: str | None = None) -> Reading:
    """Read one JSON document, or one a line, that a server gave.

    Raises:
        UsageError: it is no JSON, nothing of it is of a known engine, or all of it contradicts itself.
    """
    documents = _documents(text, source)
    for one in [name] if name else CHOICES:
        adapter = engine(one)
        pages, wrong = _read_pages(adapter, documents)
        if pages:
            return _of_pages(adapter, pages, wrong, source=source, size=len(text), documents=len(documents))
        if wrong:
            raise UsageError(f"{source}: {wrong[0]}")
    kinds = ", ".join(sorted(documents[0])[:5]) if documents and isinstance(documents[0], dict) else "no object"
    raise UsageError(f"{source}: JSON of no known engine's page or answer (it has {kinds}); see docs/metrics.md")


def _documents(text: str, source: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    documents = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                documents.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{source}:{number}: no JSON ({error}); is the file cut off?") from None
    return documents


def _read_pages(adapter: Engine, documents: Sequence[Any]) -> tuple[list[PageFacts], list[str]]:
    """Return what documents tell, and what is wrong with those that contradict themselves."""
    pages: list[PageFacts] = []
    wrong: list[str] = []
    for number, document in enumerate(documents, 1):
        try:
            page = adapter.read_page(document)
        except MeasureError as error:
            wrong.append(f"document {number}: {error}" if len(documents) > 1 else str(error))
        else:
            if page is not None:
                pages.append(page)
    return pages, wrong


def _of_pages(
    adapter: Engine, pages: Sequence[PageFacts], wrong: Sequence[str], *, source: str, size: int, documents: int
) -> Reading:
    told_counts = [page.counts for page in pages]
    known = [one for one in told_counts if one is not None]
    counts = sum_counts(known)
    findings: list[Finding] = [finding for page in pages for finding in page.findings]
    findings += contradictions(counts)
    if wrong:
        findings.append(find(Code.LINES_UNREADABLE, f"{len(wrong):,} of {documents:,} documents: {wrong[0]}"))
    if known and len(known) < documents - len(wrong):
        message = f"{len(known):,} of {documents:,} documents carry figures of speculation; the others are in no count"
        findings.append(find(Code.NO_SPECULATION_SEEN, message))
    elif not known and not any(page.told for page in pages):
        findings.append(find(Code.NO_SPECULATION_SEEN, f"{pages[0].kind} tells nothing of it"))
    return Reading(
        source=source,
        kind="page",
        engine=adapter.name,
        title=adapter.title,
        version=next((page.version for page in pages if page.version), None),
        models=tuple(dict.fromkeys(page.model for page in pages if page.model)),
        pages=tuple(pages[:20]),
        counts=counts,
        told=pages[-1].told,
        findings=tuple(dict.fromkeys(findings)),
        size=size,
    )
