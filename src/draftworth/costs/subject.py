"""What a running server tells of itself before it is probed: engine, load, speculation, graphs, time of a start."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from draftworth.bench.base import Access, Target
from draftworth.bench.server import look_at
from draftworth.engines.base import MetricsSnapshot, StartupFacts
from draftworth.engines.scan import opened
from draftworth.errors import MeasureError, UsageError
from draftworth.readings.log import read_log
from draftworth.readings.server import Live, find_server
from draftworth.trials.driver.busy import requests_at_hand

_GRAPHS = "compilation_config.cudagraph_capture_sizes"
_STAMP = re.compile(rb"(?:INFO|WARNING|ERROR|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) \[")
_BEGINS = re.compile(rb"  version \d+\.\d|vLLM API server version \d")
_SERVES = re.compile(rb"Application startup complete|Starting vLLM (?:API )?server")


@dataclass(slots=True)
class Subject:
    """A server that is to be probed.

    Attributes:
        target: where and how it is asked.
        live: what answers there.
        facts: what its log tells; empty without one.
        max_model_len: its longest context, None where it does not tell.
        reload_s: seconds of its start, by its log; None where that does not tell.
        notes: what was not told, for the costs file.
    """

    target: Target
    live: Live
    facts: StartupFacts = field(default_factory=StartupFacts)
    max_model_len: int | None = None
    reload_s: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def version(self) -> str | None:
        """The engine's version, from its page or its log."""
        return self.live.engine.version or self.facts.version

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Token counts with CUDA graphs, where the log tells them."""
        return graph_sizes(self.facts)

    @property
    def machine(self) -> str:
        """What is known of the machine, for a person."""
        return self.facts.device or ""

    def others(self) -> int | None:
        """Return how many requests the server has at hand now; None where it does not tell."""
        return requests_at_hand(self.target.base_url, self.live.engine, self.target.access)

    def speculates(self) -> bool:
        """Whether its log or its metrics show that it speculates."""
        if self.facts.speculating is not None:
            return self.facts.speculating
        if self.live.snapshot is None:
            return False
        counts = self.live.engine.totals(self.live.snapshot)
        if self.live.engine.counters_mean_speculation:
            return counts.drafting_steps is not None or counts.drafted is not None
        return counts.speculated

    def cache(self) -> tuple[int, int] | None:
        """Return the prompt tokens looked up in the prefix cache, and those found, since the start; None: not told."""
        pages = self._pages()
        try:
            return None if pages is None else self.live.engine.prefix_cache(*pages)
        except MeasureError:
            return None

    def finished(self) -> int | None:
        """Return how many requests the server has finished since its start; None where it does not tell."""
        pages = self._pages()
        try:
            return None if pages is None else self.live.engine.requests_finished(*pages)
        except MeasureError:
            return None

    def _pages(self) -> tuple[MetricsSnapshot, MetricsSnapshot] | None:
        """Return the metrics as they were at the server's start, and now."""
        try:
            now = self.live.scrape(self.target.model)
        except MeasureError:
            return None
        return now.model_copy(update={"counters": dict.fromkeys(now.counters, 0.0)}), now


def subject(
    url: str,
    *,
    access: Access,
    model: str | None = None,
    engine: str | None = None,
    log: Path | None = None,
    token_timeout_s: float = 120.0,
) -> Subject:
    """Find out what is to be probed.

    Args:
        url: as a person wrote it.
        access: what lets the client in.
        model: the served name, None for the first.
        engine: its name where it is known.
        log: the server's log, for what only a log tells.
        token_timeout_s: seconds without any event after which a request has failed.

    Raises:
        UsageError: the URL leads to no server that is known, or the log is none of its engine.
    """
    live = find_server(url, access=access, name=engine)
    found = look_at(live.base_url, access=access, model=model, token_timeout_s=token_timeout_s, engine=live.engine.name)
    made = Subject(found.target, live, max_model_len=found.max_model_len)
    if log is None:
        made.notes.append("no log was given (--log): CUDA-graph sizes, runner and the time of a start are not known")
        return made
    made.facts = read_log(log, name=live.engine.name).facts
    made.reload_s = start_seconds(log)
    if made.facts.version and live.engine.version and made.facts.version != live.engine.version:
        raise UsageError(
            f"{log}: its last start is of version {made.facts.version}, the server at {url} is {live.engine.version}; "
            "give the log of the server that runs"
        )
    return made


def graph_sizes(facts: StartupFacts) -> tuple[int, ...]:
    """Return the token counts with CUDA graphs that vLLM's log prints, sorted; empty where it prints none."""
    try:
        sizes = json.loads(facts.config.get(_GRAPHS, "[]"))
    except ValueError:
        return ()
    return tuple(sorted({one for one in sizes if isinstance(one, int)})) if isinstance(sizes, list) else ()


def start_seconds(log: Path) -> float | None:
    """Return the seconds of the last start in a vLLM log: from its banner to the line that says it serves.

    Stamps have no year; a start across New Year is taken modulo a year. None where the log shows no whole start.
    """
    first: bytes | None = None
    last: bytes | None = None
    whole: tuple[bytes, bytes] | None = None
    with opened(log) as file:
        rest = b""
        while block := file.read(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                stamp = _STAMP.search(line)
                last = stamp[1] if stamp else last
                if stamp and _BEGINS.search(line):
                    first = stamp[1]
                elif first is not None and last is not None and _SERVES.search(line):
                    whole, first = (first, last), None
    if whole is None:
        return None
    began, ended = (datetime.strptime(f"2000-{one.decode()}", "%Y-%m-%d %H:%M:%S") for one in whole)  # noqa: DTZ007
    seconds = (ended - began).total_seconds()
    return seconds if seconds >= 0 else seconds + 366 * 86_400
