"""What an engine takes and tells: the protocol every engine's file implements, and its result types.

An engine's file knows flags, log lines, metric names and fields. It never starts a process, never opens a
connection and knows nothing of trials: text in, typed facts out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from draftworth.engines.counts import AcceptanceCounts, derived, sum_counts
from draftworth.findings import Finding
from draftworth.models import Frozen

__all__ = [
    "AcceptanceCounts",
    "Confounder",
    "Doubt",
    "Engine",
    "Given",
    "LogReader",
    "LogWarning",
    "MetricsSnapshot",
    "PageFacts",
    "Planned",
    "StartupFacts",
    "Told",
    "Window",
    "WindowReader",
    "derived",
    "sum_counts",
    "synthetic_in",
]


_SYNTHETIC_VARIABLES = ("SGLANG_SIMULATE_ACC_LEN", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS")


def synthetic_in(config: Mapping[str, Any] | None, env: Mapping[str, str] | None = None) -> str | None:
    """Return the setting by which an engine accepts drafts at a configured rate, or None.

    vLLM: `rejection_sample_method: synthetic` with `synthetic_acceptance_rates` or `…_length` in the speculative
    configuration; its log prints them with the prefix `speculative_config.`. SGLang and TensorRT-LLM: variables of the
    environment (`srt/environ.py` of 0.5.23, `_torch/speculative` of 1.2). llama.cpp: `spec_synth_len`, `…_rates`.

    Args:
        config: the speculative configuration, or what a log printed of it.
        env: the server's environment.
    """
    for name in _SYNTHETIC_VARIABLES:
        value = (env or {}).get(name, "")
        if value not in {"", "0", "-1", "0.0"}:
            return f"{name} = {value}"
    for name, value in (config or {}).items():
        last = str(name).rpartition(".")[2]
        if last == "rejection_sample_method" and str(value).strip("'\"") == "synthetic":
            return f"{last} = synthetic"
        if last.replace("-", "_").startswith(("synthetic_acceptance", "spec_synth", "synth_")) and value not in (
            None,
            "None",
            "null",
            "",
        ):
            return f"{last} = {value}"
    return None


class MetricsSnapshot(Frozen):
    """One scrape of an engine's counters, summed over its engines, `_created` series left out."""

    counters: dict[str, float]
    """Full sample name (with `_total`, `_count`, `_sum`) to its sum over all label sets."""
    per_position: tuple[float, ...] | None = None
    """Accepted tokens by draft position, position 0 first; None where the series is absent."""
    engines: int = 0
    """How many engine label values (data-parallel ranks) were summed."""
    created: dict[str, float] = {}
    """Sample name to the latest `_created` time of its series, in Unix seconds: it changes when a server restarts."""
    gauges: dict[str, tuple[float, ...]] = {}
    """Name of a gauge that tells of speculation to its value in each series, in the page's order."""
    models: tuple[str, ...] = ()
    """Every model name the series carry; more than one means counts of several models were added."""
    series: dict[str, tuple[str, ...]] = {}
    """Counter to its label sets, as text: a set that comes or goes between two pages makes their difference wrong."""
    fixed_series: bool = False
    """Whether the engine makes every series when it starts, so that one that appears later is another server's."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the page: cut off, NaN, below zero; what was wrong is not counted."""


class Told(Frozen):
    """A figure as an engine itself tells it: shown beside the counts, never averaged, never mixed with another's."""

    name: str
    """As the engine calls it: `accept len`."""
    value: float
    formula: str
    """What this release computes under that name."""
    scope: str
    """What it is about: `since the start`, `window`, `last iteration`."""


class Window(Frozen):
    """What one line of a log, or the difference of two scrapes, tells of speculation."""

    at: str | None = None
    """The time as the line has it."""
    counts: AcceptanceCounts | None = None
    told: tuple[Told, ...] = ()
    line: str = ""
    """The line, without what stands in front; empty for scrapes."""


class PageFacts(Frozen):
    """What a JSON page, or an answer, of a server tells: `/server_info`, `/props`, iteration statistics."""

    kind: str
    """What it is, for a person: `/server_info of SGLang`."""
    version: str | None = None
    model: str | None = None
    config: dict[str, str] = {}
    """The effective configuration, key to value as text."""
    counts: AcceptanceCounts | None = None
    told: tuple[Told, ...] = ()
    findings: tuple[Finding, ...] = ()


class Planned(Frozen):
    """One arm as it is planned, for `doubts`."""

    name: str
    command: tuple[str, ...] = ()
    """The whole command, without the speculative flags of `speculation`; empty where only the flags are known."""
    env: dict[str, str] = {}
    speculation: dict[str, Any] | None = None
    """The speculative configuration; None for an arm without."""
    args: tuple[str, ...] = ()
    sampling: frozenset[str] = frozenset()
    """Sampling parameters that requests will set: `min_p`, `logit_bias`, `structured_outputs`, …"""


class Doubt(Frozen):
    """Something an engine will not do as a planned arm asks."""

    code: str
    """Stable name: `unknown_key`, `async_scheduling_off`, …"""
    severity: Literal["refused", "unknown", "changed", "costs", "note"]
    """`refused`: the server will not start, or will answer such requests with an error. `unknown`: this release does
    not know it, and refuses it. `changed`: something else happens than what was asked for, without an error. `costs`:
    it works, and slower than it could. `note`: good to know."""
    what: str
    """The flag or setting, and what will happen, in one sentence."""
    fix: str
    since: str | None = None
    """The releases this is known for: `0.10.2 and later`."""


class Given(Frozen):
    """Whether a server will tell one of the counts, and how; or why not."""

    name: str
    """One of `counts.FIELDS`."""
    given: bool
    how: str
    """Where it is told: `/metrics, difference of two scrapes`; or why it is not."""


class LogWarning(Frozen):
    """A line of a server's log that matters to the comparison."""

    code: str
    """Stable name: `async_scheduling_off`, `sampling_params_ignored`, `runner_v1`, …"""
    line: str
    """The server's own words, without its prefix."""
    advice: str
    confounds: bool = False
    """True where its presence in one arm only is a second difference between the arms."""


class StartupFacts(Frozen):
    """What a server's log has told so far."""

    phase: str = "starting"
    """What the server is doing, in words for a person: `loading weights, 40 %`."""
    version: str | None = None
    runner: str | None = None
    """`V1` or `V2` where the log tells."""
    device: str | None = None
    """The kind of device the model runs on, as the engine calls it: `cuda`, `cpu`; None where the log does not tell."""
    speculating: bool | None = None
    """Whether the engine's own configuration line names a speculative method; None before it was seen."""
    config: dict[str, str] = {}
    """The effective configuration, key to printed value, nested keys joined with dots."""
    warnings: tuple[LogWarning, ...] = ()


class LogReader(Protocol):
    """Reads one server's log as it grows."""

    starts: int
    """How many starts of a server the log has shown so far; 0 before the first sign of one."""

    def feed(self, text: str) -> None:
        """Take the next piece of the log; it may end in the middle of a line. Never raises on odd text."""

    def facts(self) -> StartupFacts:
        """Everything told so far."""


class WindowReader(Protocol):
    """Reads what one log tells of speculation, line by line."""

    told_only: str | None
    """What every line has whose figures are only told and never added up, for an engine that writes many such lines: of
    those only the newest need to be read. None where lines give counts."""

    def take(self, line: str) -> Window | Finding | None:
        """Take one line as it stands in the file (prefixes of journald, Docker, … included). Never raises."""


class Confounder(Frozen):
    """A difference between two arms that nobody declared."""

    name: str
    """Configuration key or warning code."""
    baseline: str
    variant: str
    note: str = ""


class Engine(Protocol):
    """One engine."""

    name: str
    title: str
    """The name for a person: `vLLM`."""
    version: str | None
    """The engine's version where it is known; it names the source of counts and decides what a figure means."""
    owner: str
    """What it writes as the owner of its models in `/v1/models`."""
    joins_chunks: bool
    """Whether `read_page` takes answers and joins the chunks of one stream; else `request_stats` reads answers."""
    default_port: int
    """The port it listens on where its command names none."""
    scores: bool
    """Whether its server tells the log-probabilities of given tokens the way the output check asks for them."""
    counters_mean_speculation: bool
    """Whether counters of drafts, be they 0, show that the server was set up to speculate."""
    metrics_path: str
    """Where it serves its Prometheus text."""
    at_hand: tuple[str, ...]
    """Gauges of that text whose sum is the requests that are being answered or wait; empty: it has none."""
    json_pages: tuple[str, ...]
    """Paths of further pages worth reading on a live server, newest name first: `/server_info`, `/props`."""
    log_signs: tuple[bytes, ...]
    """A line of a log that holds one of these was written by this engine and by no other."""
    log_needles: tuple[bytes, ...]
    """A line without any tells nothing of speculation, version, runner, configuration or warnings."""

    def speculation_in(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return how the command already asks for speculation (`--speculative-config=…`), or None."""

    def with_speculation(self, command: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command with the speculative configuration added.

        Raises:
            RefusedError: the command already speculates, or has no place where the flag can go.
        """

    def with_args(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...]:
        """Return the command with further arguments for the engine.

        Raises:
            RefusedError: the command has no place where arguments can go.
        """

    def without_placeholder(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return the command for an arm that does not speculate: a `{speculative_args}` word is taken out."""

    def measuring_args(self, version: str | None) -> tuple[str, ...]:
        """Return the arguments that make a *speculating* server of this version tell per-request figures."""

    def log_reader(self) -> LogReader:
        """Return a reader for one start of a server."""

    def model_in(self, command: Sequence[str]) -> str | None:
        """Return the model the command names (a folder or a hub's name), or None where it names none plainly."""

    def failure_hint(self, text: str) -> str | None:
        """Return the line of a failed start's log that says why, or None."""

    def version_of(self, command: Sequence[str], env: Mapping[str, str]) -> str | None:
        """Return the installed version a command would start, without starting it; None where that cannot be told."""

    def parse_metrics(self, text: str, model: str | None = None) -> MetricsSnapshot:
        """Read a page of metrics, all series or one model's. Raises MeasureError where it is not of this engine."""

    def counts(self, before: MetricsSnapshot, after: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of the window between two scrapes. Raises MeasureError on a counter reset."""

    def requests_finished(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many requests of anybody's the server finished between two scrapes; None where it is not told."""

    def generated_tokens(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many tokens the server generated for anybody between two scrapes; None where it is not told."""

    def totals(self, snapshot: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts since the server's start, as one page of metrics tells them."""

    def told(self, snapshot: MetricsSnapshot) -> tuple[Told, ...]:
        """Return the engine's own figures of speculation on a page of metrics, each with its formula."""

    def window_reader(self) -> WindowReader:
        """Return a reader for what one log tells of speculation."""

    def read_page(self, document: Any) -> PageFacts | None:
        """Return what a parsed JSON page or answer of this engine tells, or None where it is none.

        Raises:
            MeasureError: it is one, and contradicts itself.
        """

    def request_stats(self, chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the figures of speculation a response, or a stream's last chunk, carries; None for none."""

    def request_fields(self) -> dict[str, Any]:
        """Return what a request must ask for to be told its figures; servers that do not know it ignore it."""

    def doubts(self, arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
        """Return what the engine does not know, will refuse or will silently change of a planned arm.

        Args:
            arm: the arm.
            facts: what is known of the server: version, runner, configuration. An unknown version is told as such and
                what depends on it is said of all releases it holds for.
        """

    def gives(self, arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
        """Return which counts a server of this release, started as this arm, will tell: one entry a count."""

    def prefix_cache(self, before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
        """Return how many prompt tokens were looked up in the prefix cache and found there; None where not told."""

    def request_counts(self, stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
        """Sum the per-request speculative figures of answers; None where no answer carried any."""

    def confounders(self, baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
        """Return every difference of two effective configurations beyond speculation itself."""
