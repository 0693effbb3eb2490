"""SGLang as an engine: joins the files of this package behind the engine protocol."""

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
from draftworth.engines.sglang import command as commands
from draftworth.engines.sglang import (
    confounders,
    doubts,
    failures,
    flags,
    gives,
    log,
    metrics,
    pages,
    per_request,
    spec_lines,
    version,
)


class SGLang:
    """SGLang's server. Read in the releases 0.4.6 to 0.5.23; each file names what changed where.

    Attributes:
        name: the engine's name.
        title: its name for a person.
        version: SGLang's version where known; it names the source of counts and decides what the accept rate means.
        metrics_path: where it serves Prometheus text, if it was started with --enable-metrics.
        json_pages: pages that tell its configuration and each rank's average; the second is the name before 0.5.6.
        log_signs: only its own lines hold one of these.
        log_needles: what `log_reader` and `window_reader` read holds one of these.
    """

    name = "sglang"
    title = "SGLang"
    owner = "sglang"
    joins_chunks = False
    default_port = 30000
    scores = False
    counters_mean_speculation = True
    metrics_path = "/metrics"
    at_hand: tuple[str, ...] = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
    json_pages: tuple[str, ...] = ("/server_info", "/get_server_info")
    log_signs: tuple[bytes, ...] = (
        b"#running-req: ",
        b"server_args=ServerArgs(",
        b"server_args={",
        b"The server is fired up and ready to roll!",
    )
    log_needles: tuple[bytes, ...] = tuple(dict.fromkeys((*spec_lines.NEEDLES, *log.NEEDLES)))

    def __init__(self, version: str | None = None) -> None:
        self.version = version

    def speculation_in(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return how the command or its environment asks for speculation, as written there, or None."""
        return flags.speculation_in(command, env)

    def with_speculation(self, command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command with `--speculative-algorithm` and the other flags of a configuration.

        Raises:
            RefusedError: the command already speculates, or has no place where the flags can go.
            UsageError: the configuration names no algorithm, or cannot be written as flags.
        """
        return commands.with_speculation(command, config)

    def with_args(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
        """Return the command with further arguments for SGLang; a placeholder stays, behind them.

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

    def model_in(self, command: Sequence[str]) -> str | None:
        """Return the model the command serves as it is written there, or None where that cannot be told."""
        return commands.model_in(command)

    def measuring_args(self, version: str | None) -> tuple[str, ...]:  # noqa: ARG002 - no release needs any
        """Return no arguments: an answer's figures are asked for by the request.

        `--enable-metrics` is not added here, since only speculating servers get these arguments and it would be a
        difference between the arms; `doubts` asks for it in every arm.
        """
        return ()

    def log_reader(self) -> LogReader:
        """Return a reader for one start of a server."""
        return log.SGLangLogReader(self.version)

    def failure_hint(self, text: str) -> str | None:
        """Return why a start failed in one line, from its log, or None."""
        return failures.failure_hint(text)

    def version_of(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return the installed version the command would start, or None where that cannot be told."""
        return version.version_of(command, env)

    def parse_metrics(self, text: str, model: str | None = None) -> MetricsSnapshot:
        """Read a `/metrics` page, or only its series of one model.

        Raises:
            MeasureError: the text is no metrics page, not one of SGLang, or has no series of that model.
        """
        return metrics.parse_metrics(text, model=model)

    def counts(self, before: MetricsSnapshot, after: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of the requests that finished between two scrapes.

        Raises:
            MeasureError: a counter fell or went between the scrapes.
        """
        return metrics.counts(before, after, self.version)

    def requests_finished(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many requests of anybody's finished between two scrapes, or None.

        Raises:
            MeasureError: the counter fell or went.
        """
        return metrics.requests_finished(before, after)

    def generated_tokens(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many tokens the requests that finished between two scrapes got, or None.

        Raises:
            MeasureError: the counter fell or went.
        """
        return metrics.generated_tokens(before, after)

    def totals(self, snapshot: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of all requests that finished since the server's start."""
        return metrics.totals(snapshot, self.version)

    def told(self, snapshot: MetricsSnapshot) -> tuple[Told, ...]:
        """Return SGLang's own gauges of speculation, each series for itself and with its formula."""
        return metrics.told(snapshot, self.version)

    def window_reader(self) -> WindowReader:
        """Return a reader for what one log tells of speculation."""
        return spec_lines.SGLangWindowReader(self.version)

    def read_page(self, document: Any) -> PageFacts | None:
        """Return what a parsed `/server_info` page tells, or None where it is none.

        Raises:
            MeasureError: an average acceptance length on it is not possible.
        """
        return pages.read_page(document)

    def request_stats(self, chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the figures of speculation an answer, or a stream's chunk, carries; None for none."""
        return per_request.request_stats(chunk)

    def request_fields(self) -> dict[str, Any]:
        """Return what a request asks for to be told its figures; releases before 0.5.19 ignore it."""
        return dict(per_request.REQUEST_FIELDS)

    def doubts(self, arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
        """Return what SGLang does not know, will refuse or will silently change of a planned arm."""
        return doubts.doubts(arm, self._with_version(facts))

    def gives(self, arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
        """Return which counts a server started as this arm will tell: one entry a count."""
        return gives.gives(arm, self._with_version(facts))

    def _with_version(self, facts: StartupFacts) -> StartupFacts:
        return facts if facts.version or not self.version else facts.model_copy(update={"version": self.version})

    def prefix_cache(self, before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
        """Return how many prompt tokens finished requests had and how many were found in the cache, or None.

        Raises:
            MeasureError: a counter fell or went.
        """
        return metrics.prefix_cache(before, after)

    def request_counts(self, stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
        """Sum the speculative figures of answers; None where no answer carried any.

        Raises:
            MeasureError: figures have another form, or contradict each other.
        """
        return per_request.request_counts(stats, version or self.version)

    def confounders(self, baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
        """Return every difference of two starts beyond speculation itself."""
        return confounders.confounders(baseline, variant)
