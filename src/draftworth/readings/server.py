"""Reads a live server: its metrics, its version, its own pages; reads only, and never sends a prompt."""

import json
from dataclasses import dataclass, field

from draftworth.bench.address import clean_url
from draftworth.bench.base import Access
from draftworth.bench.probes import fetch_text_sync
from draftworth.engines import CHOICES, engine
from draftworth.engines.base import Engine, MetricsSnapshot, PageFacts
from draftworth.errors import MeasureError, UsageError
from draftworth.findings import Code, Finding, find
from draftworth.readings.base import Reading
from draftworth.readings.page import engine_of, of_snapshot

_TIMEOUT = 10.0
_PAGES = ("/prometheus/metrics", "/metrics", "/server_info", "/props", "/health", "/v1/models")


@dataclass(slots=True)
class Live:
    """A server that answers.

    Attributes:
        base_url: without `/v1`.
        engine: what runs there.
        access: what lets the reader in.
        snapshot: its metrics; None where it shows none, `why` says why.
        pages: its own pages, as far as they answer.
        models: the names it serves.
        why: why there are no metrics.
        findings: what is wrong with it.
    """

    base_url: str
    engine: Engine
    access: Access
    snapshot: MetricsSnapshot | None
    pages: tuple[PageFacts, ...] = ()
    models: tuple[str, ...] = ()
    why: str | None = None
    findings: list[Finding] = field(default_factory=list)

    def scrape(self, model: str | None = None) -> MetricsSnapshot:
        """Read the metrics anew.

        Raises:
            MeasureError: they cannot be read.
        """
        text = fetch_text_sync(self.base_url, self.engine.metrics_path, timeout=_TIMEOUT, access=self.access)
        return self.engine.parse_metrics(text, model)


def find_server(url: str, *, access: Access, name: str | None = None, model: str | None = None) -> Live:
    """Find out what answers at a URL.

    Args:
        url: as a person wrote it.
        access: headers and certificates.
        name: the engine, where it is known.
        model: only this model's series.

    Raises:
        UsageError: nobody answers, or it is no engine that is known.
    """
    base = clean_url(url)
    for page in _PAGES:
        base = base.removesuffix(page)  # a person may paste the page's own address
    models, owner = _models(base, access)
    known = name or owner
    snapshot, chosen, why = _metrics(base, access, known, model)
    candidates = [chosen] if chosen else [engine(one) for one in ([known] if known else CHOICES)]
    pages: list[PageFacts] = []
    for one in candidates:
        pages = _pages(base, access, one)
        if pages:
            chosen = one
            break
    if chosen is None and known and models:
        chosen = engine(known)
    if chosen is None:
        titles = ", ".join(engine(one).title for one in CHOICES)
        if why is not None and why.startswith("GET "):
            why = f"{url}: {why.partition(': ')[2]}"  # it names a page that nobody typed
        raise UsageError(f"{why or base}; is it the base URL of a running server of {titles}?")
    chosen.version = next((page.version for page in pages if page.version), chosen.version)
    findings = [] if snapshot else [find(Code.METRICS_MISSING, f"no metrics: {why}")]
    return Live(base, chosen, access, snapshot, tuple(pages), models, why, findings)


def owner_of(base: str, access: Access) -> str | None:
    """Return the engine a server says it is in its list of models, or None where it does not tell."""
    return _models(base, access)[1]


def _metrics(
    base: str, access: Access, name: str | None, model: str | None
) -> tuple[MetricsSnapshot | None, Engine | None, str | None]:
    """Return the metrics, whose they are, and why there are none."""
    paths = list(dict.fromkeys(engine(one).metrics_path for one in ([name] if name else CHOICES)))
    # TensorRT-LLM's `/metrics` is a queue that whoever reads it empties: it comes last.
    paths.sort(key="/metrics".__eq__)
    why = None
    for path in paths:
        try:
            text = fetch_text_sync(base, path, timeout=_TIMEOUT, access=access)
            adapter, snapshot = engine_of(text, name, model)
        except MeasureError as error:
            why = why or str(error)
        else:
            return snapshot, adapter, None
    return None, None, why


def _pages(base: str, access: Access, adapter: Engine) -> list[PageFacts]:
    found = []
    for path in adapter.json_pages:
        try:
            page = adapter.read_page(json.loads(fetch_text_sync(base, path, timeout=_TIMEOUT, access=access)))
        except (MeasureError, ValueError, RecursionError):
            continue
        if page is not None:
            found.append(page)
    return found


def _models(base: str, access: Access) -> tuple[tuple[str, ...], str | None]:
    """Return the names a server lists, and the engine that lists them: each writes its own name as their owner."""
    try:
        text = fetch_text_sync(base, "/v1/models", timeout=_TIMEOUT, access=access)
        entries = [entry for entry in json.loads(text)["data"] if isinstance(entry, dict)]
    except (MeasureError, ValueError, KeyError, TypeError, RecursionError):
        return (), None
    engines = {engine(one).owner: one for one in CHOICES}
    owners = [known for entry in entries if (known := engines.get(str(entry.get("owned_by"))))]
    return tuple(str(entry["id"]) for entry in entries if "id" in entry), next(iter(owners), None)


def read_server(live: Live) -> Reading:
    """Return what a live server tells since its start."""
    adapter = live.engine
    told = tuple(one for page in live.pages for one in page.told)
    more = [finding for page in live.pages for finding in page.findings]
    if live.snapshot is not None:
        reading = of_snapshot(adapter, live.snapshot, source=live.base_url)
    else:
        counts = next((page.counts for page in live.pages if page.counts is not None), None)
        reading = Reading(source=live.base_url, kind="server", engine=adapter.name, title=adapter.title, counts=counts)
    return reading.model_copy(
        update={
            "kind": "server",
            "version": adapter.version,
            "models": reading.models or live.models,
            "pages": live.pages,
            "told": (*reading.told, *told),
            "findings": tuple(dict.fromkeys([*live.findings, *reading.findings, *more])),
        }
    )
