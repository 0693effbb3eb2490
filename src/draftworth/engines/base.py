"""What an engine takes and tells: the protocol every engine's file implements, and its result types.

An engine's file knows flags, log lines, metric names and fields. It never starts a process, never opens a
connection and knows nothing of trials: text in, typed facts out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from draftworth.models import Frozen


class AcceptanceCounts(Frozen):
    """Raw counts of one measured window. `None` means the engine did not give it; `not_given` says why."""

    steps: int | None = None
    """Decode steps: target forwards of one request each, prefill left out."""
    drafting_steps: int | None = None
    """Steps that verified at least one drafted token."""
    drafted: int | None = None
    accepted: int | None = None
    accepted_per_position: tuple[int, ...] | None = None
    """Drafting steps whose position i was accepted; position 0 first."""
    emitted: int | None = None
    """Tokens that left decode steps (the first token of a request comes from prefill and is not counted)."""
    source: str
    """Where the counts were read, for a person: `/metrics of vLLM 0.32.0, 1 engine, difference of two scrapes`."""
    not_given: dict[str, str] = {}
    """Field name to the reason it is None."""

    @property
    def coverage(self) -> float | None:
        """Draft coverage: drafting steps / steps."""
        if self.drafting_steps is None or not self.steps:
            return None
        return self.drafting_steps / self.steps

    @property
    def acceptance_rate(self) -> float | None:
        """Draft acceptance rate: accepted / drafted. None where the counts contradict each other."""
        if self.accepted is None or not self.drafted or self.accepted > self.drafted:
            return None
        return self.accepted / self.drafted

    @property
    def length_per_drafting_step(self) -> float | None:
        """Acceptance length per drafting step: 1 + accepted / drafting steps (what vLLM 0.9 and later print)."""
        if self.accepted is None or not self.drafting_steps:
            return None
        return 1 + self.accepted / self.drafting_steps

    @property
    def length_per_step(self) -> float | None:
        """Acceptance length per step: emitted / steps. This is what the speed depends on."""
        if self.emitted is None or not self.steps:
            return None
        return self.emitted / self.steps

    @property
    def survival(self) -> tuple[float, ...] | None:
        """Share of drafting steps whose position i was accepted (unconditional), position 0 first."""
        if self.accepted_per_position is None or not self.drafting_steps:
            return None
        return tuple(n / self.drafting_steps for n in self.accepted_per_position)


def sum_counts(counts: Sequence[AcceptanceCounts | None]) -> AcceptanceCounts | None:
    """Return the counts of several windows added; a field that one window lacks is lacking in the sum."""
    known = [one for one in counts if one is not None]
    if not known or len(known) < len(counts):
        return None
    total: dict[str, Any] = {}
    for name in ("steps", "drafting_steps", "drafted", "accepted", "emitted"):
        values = [getattr(one, name) for one in known]
        total[name] = None if None in values else sum(values)
    positions = [one.accepted_per_position for one in known]
    if all(position is not None for position in positions):
        width = max(len(position or ()) for position in positions)
        padded = [(*(position or ()), *([0] * (width - len(position or ())))) for position in positions]
        total["accepted_per_position"] = tuple(sum(column) for column in zip(*padded, strict=True))
    not_given = {name: why for one in known for name, why in one.not_given.items()}
    source = known[0].source if len(known) == 1 else f"{known[0].source}, {len(known)} windows added"
    return AcceptanceCounts(**total, source=source, not_given=not_given)


def derived(counts: AcceptanceCounts | None) -> dict[str, float | None]:
    """Return the rates of an arm by their names in docs/numbers.md."""
    if counts is None:
        return {}
    return {
        "coverage": counts.coverage,
        "acceptance_rate": counts.acceptance_rate,
        "length_per_drafting_step": counts.length_per_drafting_step,
        "length_per_step": counts.length_per_step,
    }


def synthetic_in(config: Mapping[str, Any] | None) -> str | None:
    """Return the setting by which an engine accepts drafts at a configured rate, or None.

    vLLM: `rejection_sample_method: synthetic` with `synthetic_acceptance_rates` or `…_length` in the speculative
    configuration; its log prints them with the prefix `speculative_config.`.
    """
    for name, value in (config or {}).items():
        last = str(name).rpartition(".")[2]
        if last == "rejection_sample_method" and str(value).strip("'\"") == "synthetic":
            return f"{last} = synthetic"
        if last.startswith("synthetic_acceptance") and value not in (None, "None", "null", ""):
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
    speculating: bool | None = None
    """Whether the engine's own configuration line names a speculative method; None before it was seen."""
    config: dict[str, str] = {}
    """The effective configuration, key to printed value, nested keys joined with dots."""
    warnings: tuple[LogWarning, ...] = ()


class LogReader(Protocol):
    """Reads one server's log as it grows."""

    def feed(self, text: str) -> None:
        """Take the next piece of the log; it may end in the middle of a line. Never raises on odd text."""

    def facts(self) -> StartupFacts:
        """Everything told so far."""


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
    version: str | None
    """The engine's version where it is known; it only names the source of counts."""

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

    def parse_metrics(self, text: str) -> MetricsSnapshot:
        """Read a `/metrics` page. Raises MeasureError where the page is not of this engine."""

    def counts(self, before: MetricsSnapshot, after: MetricsSnapshot) -> AcceptanceCounts:
        """Return the counts of the window between two scrapes. Raises MeasureError on a counter reset."""

    def requests_finished(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many requests of anybody's the server finished between two scrapes; None where it is not told."""

    def generated_tokens(self, before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
        """Return how many tokens the server generated for anybody between two scrapes; None where it is not told."""

    def prefix_cache(self, before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
        """Return how many prompt tokens were looked up in the prefix cache and found there; None where not told."""

    def request_counts(self, stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
        """Sum the per-request speculative figures of answers; None where no answer carried any."""

    def confounders(self, baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
        """Return every difference of two effective configurations beyond speculation itself."""
