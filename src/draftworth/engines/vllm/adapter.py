"""vLLM as an engine: joins the files of this package behind the engine protocol."""

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
from draftworth.engines.vllm import command as commands
from draftworth.engines.vllm import confounders, failures, flags, log, metrics, pages, per_request, spec_lines, version


class VLLM:
    """vLLM's OpenAI server. Checked with 0.32.0; see each file for what older releases did otherwise.

    Attributes:
        name: the engine's name.
        version: vLLM's version where known; it only names the source of counts.
    """

    name = "vllm"
    title = "vLLM"
    owner = "vllm"
    joins_chunks = True
    default_port = 8000
    scores = True
    counters_mean_speculation = True
    metrics_path = "/metrics"
    at_hand: tuple[str, ...] = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    json_pages: tuple[str, ...] = ("/version",)
    log_signs: tuple[bytes, ...] = (
        b"vLLM API server version",
        b"LLM engine (v",
        b"SpecDecoding metrics: ",
        b"DiffusionDecoding metrics: ",
        b"Speculative metrics: Draft",
        b"Avg prompt throughput: ",
        b"Using V2 Model Runner",
        b"the V1 model runner instead",
    )
    # Warnings are found by their level; the others are what vLLM 0.32.0 says as INFO, and older releases did. Written
    # as they stand in JSON too, so nothing that JSON escapes is among them.
    log_needles: tuple[bytes, ...] = (
        b"WARNING",
        b"SpecDecoding metrics",
        b"Speculative metrics",
        b"DiffusionDecoding metrics",
        b"LLM engine (v",
        b" version ",
        b"args: ",
        b" Model Runner",
        b"V1 model runner",
        b"Starting to load model",
        b"KV cache size: ",
        b"cheduling ",
        b"parameters won't",
        b"max_num_scheduled_tokens is",
        b"Enforce eager",
        b"udagraph",
        b"CUDA graph",
        b"CUDA Graphs since",
        b"KV cache manager",
        b"Falling back to V0",
        b"peculative ",
        b"verriding ",
        b"draft decode metadata",
        b"compilation during inference",
        b"torch._dynamo hit",
    )

    def __init__(self, version: str | None = None) -> None:
        self.version = version

    def speculation_in(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return how the command or its environment asks for speculation, as written there, or None."""
        return flags.speculation_in(command, env)

    def with_speculation(self, command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command with `--speculative-config` and its compact JSON; a placeholder is filled.

        Raises:
            RefusedError: the command already speculates, or has no place where the flag can go.
            UsageError: the configuration is no JSON object with a `method` or a `model`.
        """
        return commands.with_speculation(command, config)

    def with_args(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
        """Return the command with further arguments for vLLM; a placeholder stays, behind them.

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
        """Return the arguments that make a speculating server of this version tell per-request figures."""
        return per_request.measuring_args(version)

    def log_reader(self) -> LogReader:
        """Return a reader for one start of a server."""
        return log.VLLMLogReader()

    def failure_hint(self, text: str) -> str | None:
        """Return why a start failed in one line, from its log, or None."""
        return failures.failure_hint(text)

    def version_of(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return the installed version the command would start, or None where that cannot be told."""
        return version.version_of(command, env)

    def parse_metrics(self, text: str, model: str | None = None) -> MetricsSnapshot:
        """Read a `/metrics` page, or only its series of one model.

        Raises:
            MeasureError: the text is no metrics page, not one of vLLM, or has no series of that model.
        """
        return metrics.parse_metrics(text, model)

    def counts(self, before: MetricsSnapshot, after: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of the window between two scrapes.

        Raises:
            MeasureError: a counter fell, appeared or went, or the server was started anew.
        """
        return metrics.counts(before, after, self.version)

    def requests_finished(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many requests of anybody's finished between two scrapes, or None.

        Raises:
            MeasureError: the counter fell, or the server was started anew.
        """
        return metrics.requests_finished(before, after)

    def generated_tokens(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many tokens were generated for anybody between two scrapes, first tokens included, or None.

        Raises:
            MeasureError: the counter fell, or the server was started anew.
        """
        return metrics.generated_tokens(before, after)

    def totals(self, snapshot: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts since the server's start, as one page of metrics tells them."""
        return metrics.totals(snapshot, self.version)

    def told(self, snapshot: MetricsSnapshot) -> tuple[Told, ...]:
        """Return the engine's own figures on a page of metrics: the rates of V0, and what a diffusion model counts."""
        return metrics.told(snapshot)

    def window_reader(self) -> WindowReader:
        """Return a reader for what one log tells of speculation."""
        return spec_lines.VLLMWindowReader()

    def read_page(self, document: Any) -> PageFacts | None:
        """Return what a parsed `/version` page, an answer, a last chunk or a list of them tells, or None.

        Raises:
            MeasureError: an answer's figures have another form, or contradict each other.
        """
        return pages.read_page(document)

    def request_stats(self, chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the figures of speculation a response, or a stream's last chunk, carries; None for none."""
        return per_request.request_stats(chunk)

    def request_fields(self) -> dict[str, Any]:
        """Return nothing: the server's own flag decides what answers tell (`measuring_args`)."""
        return {}

    def doubts(self, arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
        """Return what vLLM does not know, will refuse or will silently change of a planned arm."""
        from draftworth.engines.vllm import doubts  # noqa: PLC0415 - lazy: only where arms are judged before a start

        return doubts.doubts(arm, facts)

    def gives(self, arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
        """Return which counts a server of this release, started as this arm, will tell: one entry a count."""
        from draftworth.engines.vllm import gives  # noqa: PLC0415 - lazy: as above

        return gives.gives(arm, facts)

    def prefix_cache(self, before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
        """Return how many prompt tokens were looked up in the prefix cache and found there, or None.

        Raises:
            MeasureError: a counter fell, or the server was started anew.
        """
        return metrics.prefix_cache(before, after)

    def request_counts(self, stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
        """Sum the speculative figures of answers; None where no answer carried any.

        Raises:
            MeasureError: an object has another form, or its figures contradict each other.
        """
        return per_request.request_counts(stats, version)

    def confounders(self, baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
        """Return every difference of two starts beyond speculation itself."""
        return confounders.confounders(baseline, variant)
