"""TensorRT-LLM as an engine: joins the files of this package behind the engine protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import (
    AcceptanceCounts,
    Confounder,
    Doubt,
    Given,
    LogReader,
    MetricsSnapshot,
    PageFacts,
    Planned,
    StartupFacts,
    Told,
    WindowReader,
)
from draftworth.engines.trtllm import command as commands
from draftworth.engines.trtllm import (
    confounders,
    doubts,
    failures,
    gauges,
    log,
    measuring,
    metrics,
    pages,
    per_request,
    spec_lines,
    version,
)


class TensorRTLLM:
    """`trtllm-serve`, TensorRT-LLM's OpenAI server. Read in sources of 0.20 to 1.3.0rc; none was run.

    Attributes:
        name: the engine's name.
        title: its name for a person.
        version: the release where known; it names the source of counts and decides what they mean.
        metrics_path: where it serves Prometheus text; `/metrics` is JSON.
        json_pages: none to read without being asked: `/metrics` and `/perf_metrics` are emptied by whoever reads them.
        log_signs: a line with one of these was written by this engine.
        log_needles: lines without any tell nothing.
    """

    name = "trtllm"
    title = "TensorRT-LLM"
    owner = "tensorrt_llm"
    joins_chunks = False
    default_port = 8000
    scores = False
    counters_mean_speculation = True
    metrics_path = "/prometheus/metrics"
    at_hand: tuple[str, ...] = ()
    json_pages: tuple[str, ...] = ()
    log_signs: tuple[bytes, ...] = (b"[TRT-LLM] [", b"[TensorRT-LLM]")
    log_needles: tuple[bytes, ...] = (*spec_lines.NEEDLES, *log.NEEDLES)

    def __init__(self, version: str | None = None) -> None:
        self.version = version

    def speculation_in(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return how the command asks for speculation, its options file included where it can be read, or None."""
        return commands.speculation_in(command, env)

    def with_speculation(self, command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command with the options file of a speculating arm, `{"extra_llm_api_options": FILE}`.

        Raises:
            RefusedError: the configuration is one of keys and values, which only a file can carry (the message has
                its lines); or the command speculates already, or has no place for arguments.
            UsageError: the file has no `speculative_config`, or nothing was given.
        """
        return commands.with_speculation(command, config)

    def with_args(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
        """Return the command with further arguments; a placeholder stays, behind them.

        Raises:
            RefusedError: the command has no place where arguments can go.
        """
        return commands.with_args(command, args)

    def without_placeholder(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return the command with every `{speculative_args}` taken out.

        Raises:
            RefusedError: it stands inside quotes or inside a longer word.
        """
        return commands.without_placeholder(command)

    def measuring_args(self, version: str | None) -> tuple[str, ...]:
        """Return nothing: what makes a server tell figures is in its options file; `doubts` says what is missing."""
        del version
        return ()

    def log_reader(self) -> LogReader:
        """Return a reader for one start of a server."""
        return log.TRTLLMLogReader()

    def model_in(self, command: Sequence[str]) -> str | None:
        """Return the model the command serves as it is written there, or None where that cannot be told."""
        return commands.model_in(command)

    def failure_hint(self, text: str) -> str | None:
        """Return why a start failed in one line, from its log, or None."""
        return failures.failure_hint(text)

    def version_of(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return the installed version the command would start, or None where that cannot be told."""
        return version.version_of(command, env)

    def parse_metrics(self, text: str, model: str | None = None) -> MetricsSnapshot:
        """Read a `/prometheus/metrics` page, all of it or the series of one model.

        Raises:
            MeasureError: the text is no metrics page, or not one of TensorRT-LLM, or has no series of that model.
        """
        return metrics.parse_metrics(text, model)

    def counts(self, before: MetricsSnapshot, after: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of the window between two scrapes.

        Raises:
            MeasureError: a counter fell or went: the server was started anew.
        """
        return metrics.counts(before, after, self.version)

    def requests_finished(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many requests of anybody's finished between two scrapes, or None.

        Raises:
            MeasureError: the counter fell or went.
        """
        return metrics.requests_finished(before, after)

    def generated_tokens(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many tokens the requests had that finished between two scrapes, or None.

        Raises:
            MeasureError: the counter fell or went.
        """
        return metrics.generated_tokens(before, after)

    def totals(self, snapshot: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts since the server's start."""
        return metrics.totals(snapshot, self.version)

    def told(self, snapshot: MetricsSnapshot) -> tuple[Told, ...]:
        """Return the engine's own figures on a page of metrics, each with its formula."""
        return gauges.told(snapshot)

    def window_reader(self) -> WindowReader:
        """Return a reader for what one log tells of speculation."""
        return spec_lines.TRTLLMWindowReader()

    def read_page(self, document: Any) -> PageFacts | None:
        """Return what `/metrics` (iteration statistics) or `/perf_metrics` tells, or None where it is neither.

        Raises:
            MeasureError: it contradicts itself.
        """
        return pages.read_page(document, self.version)

    def request_stats(self, chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the figures of speculation a response, or a stream's chunk, carries; None for none."""
        return per_request.request_stats(chunk)

    def request_fields(self) -> dict[str, Any]:
        """Return nothing: choices carry their average unasked, and counts only where the server was told to."""
        return {}

    def doubts(self, arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
        """Return what the engine does not know, will refuse or will silently change of a planned arm."""
        return doubts.doubts(arm, facts)

    def gives(self, arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
        """Return which counts a server of this release, started as this arm, will tell: one entry a count."""
        return measuring.gives(arm, facts)

    def prefix_cache(self, before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
        """Return how many prompt tokens finished requests had, and how many came from the cache; None if not told.

        Raises:
            MeasureError: a counter fell or went.
        """
        return metrics.prefix_cache(before, after)

    def request_counts(self, stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
        """Sum the figures of answers; None where no answer carried any.

        Raises:
            MeasureError: an object has another form, or its figures contradict each other.
        """
        return per_request.request_counts(stats, version)

    def confounders(self, baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
        """Return every difference of two starts beyond speculation itself."""
        return confounders.confounders(baseline, variant)
