"""llama.cpp's server as an engine: joins the files of this package behind the engine protocol."""

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
from draftworth.engines.llamacpp import command as commands
from draftworth.engines.llamacpp import (
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


class LlamaCpp:
    """llama.cpp's `llama-server`. Read in the builds 9093 to 11434; each file names what changed where.

    Attributes:
        name: the engine's name.
        title: its name for a person.
        version: llama.cpp's build (`b11434`) where known; it names the source of counts and decides what they mean.
        default_port: where it listens where its command names no port.
        metrics_path: where it serves Prometheus text, if it was started with --metrics.
        json_pages: pages that tell its build, model and slots.
        log_signs: only its own lines hold one of these.
        log_needles: what `log_reader` and `window_reader` read holds one of these.
    """

    name = "llamacpp"
    title = "llama.cpp"
    owner = "llamacpp"
    joins_chunks = False
    default_port = 8080  # b11434 warns that a later build will take 9931
    scores = False
    counters_mean_speculation = False
    metrics_path = "/metrics"
    at_hand: tuple[str, ...] = ("llamacpp:requests_processing", "llamacpp:requests_deferred")
    json_pages: tuple[str, ...] = pages.JSON_PAGES
    log_signs: tuple[bytes, ...] = (
        b"slot print_timing: ",
        b"slot      release: ",
        b"srv    load_model: ",
        b"srv  update_slots: ",
        b"srv  llama_server: ",
        b"common_params_print_info: ",
        b"llama_model_loader: ",
        b"draft acceptance = ",
        b"draft acceptance rate = ",
    )
    log_needles: tuple[bytes, ...] = tuple(dict.fromkeys((*spec_lines.NEEDLES, *log.NEEDLES)))

    def __init__(self, version: str | None = None) -> None:
        self.version = version

    def speculation_in(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return how the command or its environment asks for speculation, as written there, or None."""
        return flags.speculation_in(command, env)

    def with_speculation(self, command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command with `--spec-type` and the other flags of a configuration; a placeholder is filled.

        Raises:
            RefusedError: the command already speculates, or has no place where the flags can go.
            UsageError: the configuration names no way to speculate, or cannot be written as flags.
        """
        return commands.with_speculation(command, config)

    def with_args(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
        """Return the command with further arguments for llama.cpp; a placeholder stays, behind them.

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

    def measuring_args(self, version: str | None) -> tuple[str, ...]:
        """Return nothing: timings come with every answer, and `--metrics` belongs to every arm, as `doubts` says."""
        del version
        return ()

    def log_reader(self) -> LogReader:
        """Return a reader for one start of a server."""
        return log.LlamaLogReader()

    def window_reader(self) -> WindowReader:
        """Return a reader for the lines that tell of each request's drafts."""
        return spec_lines.SpecReader()

    def failure_hint(self, text: str) -> str | None:
        """Return why a start failed in one line, from its log, or None."""
        return failures.failure_hint(text)

    def version_of(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return the build the command would start, as its `--version` says, or None where that cannot be told."""
        return version.version_of(command, env)

    def parse_metrics(self, text: str, model: str | None = None) -> MetricsSnapshot:
        """Read a `/metrics` page.

        Raises:
            MeasureError: the text is no metrics page, or not one of llama.cpp.
        """
        return metrics.parse_metrics(text, model)

    def counts(self, before: MetricsSnapshot, after: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of the requests that ended between two scrapes.

        Raises:
            MeasureError: a counter fell, appeared or went.
        """
        return metrics.counts(before, after, self.version)

    def totals(self, snapshot: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts since the server's start, as one page tells them."""
        return metrics.totals(snapshot, self.version)

    def told(self, snapshot: MetricsSnapshot) -> tuple[Told, ...]:
        """Return the figures of speculation a page shows by itself; llama.cpp's own has none, forks have."""
        return metrics.told(snapshot)

    def requests_finished(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return None: llama.cpp does not count requests."""
        del before, after
        return None

    def generated_tokens(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many tokens the requests that ended between two scrapes had, or None where only known rounded.

        Raises:
            MeasureError: the counter fell.
        """
        return metrics.generated_tokens(before, after)

    def prefix_cache(self, before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
        """Return how many prompt tokens were looked up in the cache and found there; None before b10448.

        Raises:
            MeasureError: a counter fell.
        """
        return metrics.prefix_cache(before, after)

    def read_page(self, document: Any) -> PageFacts | None:
        """Return what `/props`, `/slots` or an answer tells, or None where it is none of them.

        Raises:
            MeasureError: an answer's timings contradict each other.
        """
        return pages.read_page(document)

    def request_stats(self, chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the timings of a response or a stream's last chunk; None for none."""
        return per_request.request_stats(chunk)

    def request_fields(self) -> dict[str, Any]:
        """Return nothing: timings come with every answer and with a stream's last chunk."""
        return {}

    def request_counts(self, stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
        """Sum the timings of answers; None where no answer carried any.

        Raises:
            MeasureError: timings have another form, or contradict each other.
        """
        return per_request.request_counts(stats, version)

    def doubts(self, arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
        """Return what llama.cpp does not know, will refuse or will silently change of a planned arm."""
        return doubts.doubts(arm, facts)

    def gives(self, arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
        """Return which counts a server started as this arm will tell: one entry a count."""
        return gives.gives(arm, facts)

    def confounders(self, baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
        """Return every difference of two starts beyond speculation itself."""
        return confounders.confounders(baseline, variant)
