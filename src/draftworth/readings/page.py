"""Reads one page: Prometheus text, or JSON a server gave (`/server_info`, `/props`, an answer, many answers)."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from draftworth.engines import CHOICES, engine
from draftworth.engines.answers import answers_counts
from draftworth.engines.base import AcceptanceCounts, Engine, MetricsSnapshot, PageFacts
from draftworth.engines.counts import FIELDS, sum_counts
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
    counts = _spoilt(adapter.totals(snapshot), snapshot)
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


def _spoilt(counts: AcceptanceCounts, snapshot: MetricsSnapshot) -> AcceptanceCounts:
    """Return counts as far as the page allows: none of several models together, and reasons that say what was lost."""
    if len(snapshot.models) > 1:
        why = f"the page adds {len(snapshot.models)} models up; --model reads one"
        return AcceptanceCounts(source=counts.source, not_given=dict.fromkeys(FIELDS, why))
    if not any(one.code in {Code.METRICS_CUT, Code.METRICS_UNREADABLE} for one in snapshot.findings):
        return counts
    reasons = {name: f"{why} (or among the lines that could not be read)" for name, why in counts.not_given.items()}
    return counts.model_copy(update={"not_given": reasons})


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
        counts = _spoilt(adapter.counts(old, new), new)
    except MeasureError as error:
        reset = find(Code.COUNTER_RESET, f"{error}{_swapped(adapter, old, new)}")
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
        whole = [documents] if adapter.joins_chunks and len(documents) > 1 else documents
        pages, wrong = _answers(adapter, documents) or _read_pages(adapter, whole)
        if not pages and whole is not documents:
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


def _swapped(adapter: Engine, old: MetricsSnapshot, new: MetricsSnapshot) -> str:
    """Return what to try where the pages fit each other the other way round."""
    try:
        counts = adapter.counts(new, old)
    except MeasureError:
        return ""
    return "; are the two pages in the wrong order? The earlier one belongs behind --since" if counts.steps else ""


def _last_of_each(documents: Iterable[Any]) -> list[Any]:
    """Return the last document of each answer: chunks of one stream have its id, and the last tells what it came to."""
    found: dict[object, Any] = {}
    for number, one in enumerate(documents):
        own = one.get("id") if isinstance(one, dict) else None
        key = own if isinstance(own, str) and own else number
        stated = found.get(key)
        # A stream's usage comes in a chunk of its own, behind the one with the figures.
        found[key] = {**stated, **{name: value for name, value in one.items() if value}} if stated else one
    return list(found.values())


def _answers(adapter: Engine, documents: Sequence[Any]) -> tuple[list[PageFacts], list[str]] | None:
    """Return what answers carry, added, and what is wrong with some; None where none carries any.

    Answers may stand one a document, or several in a list.
    """
    if adapter.joins_chunks:
        return None
    flat = _last_of_each(one for each in documents for one in (each if isinstance(each, list) else [each]))
    stats = [adapter.request_stats(one) if isinstance(one, dict) else None for one in flat]
    if not any(stats):
        return None
    counts, wrong = answers_counts(adapter, stats, adapter.version)
    models = dict.fromkeys(str(one["model"]) for one in flat if isinstance(one, dict) and one.get("model"))
    wrong = [one if len(stats) > 1 else one.partition(": ")[2] for one in wrong]
    page = PageFacts(kind=f"answers of {adapter.title}", model=", ".join(models) or None, counts=counts)
    return ([page] if counts is not None else []), wrong


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
    known = [page.counts for page in pages if page.counts is not None]
    counts = sum_counts(known)
    findings: list[Finding] = [finding for page in pages for finding in page.findings]
    findings += contradictions(counts)
    if wrong:
        findings.append(find(Code.LINES_UNREADABLE, f"{len(wrong):,} of {documents:,} documents: {wrong[0]}"))
    if known and len(pages) > 1 and len(known) < documents - len(wrong):
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
