"""What a benchmark takes and returns: prompts in, one row a request out.

Times are seconds of `time.perf_counter()` unless a name ends in `_ms`. Tokens come from the server's usage or
token ids, never from counting chunks: a chunk may carry many tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TokenSource = Literal["usage", "token_ids", "chunks"]
"""Where a row's token count came from; `chunks` is an approximation and always a finding."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A later turn of a conversation.

    Attributes:
        content: what the user says.
        answer: what the assistant said to the turn before, where the source has it; None where it is the server's own
            answer (of the first block that gave one, so that every arm is sent the same request).
    """

    content: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to send.

    Attributes:
        id: unique within a workload; pairs rows between arms. Later turns have the ids `<id>#2`, `<id>#3`, …
        category: what kind of work it is.
        messages: OpenAI chat messages of the first request; empty where `token_ids` are sent.
        token_ids: a recorded prompt as token ids, sent to `/v1/completions` as it is.
        turns: later turns of the conversation, each sent when the one before was answered.
        max_tokens: most tokens of this answer, where that differs from the sampling's.
        arrival_s: seconds after the first request of a recording at which this one came, where it was recorded.
    """

    id: str
    category: str
    messages: tuple[Mapping[str, Any], ...] = ()
    token_ids: tuple[int, ...] | None = None
    turns: tuple[Turn, ...] = ()
    max_tokens: int | None = None
    arrival_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are generated, the same in every arm.

    Attributes:
        max_tokens: most tokens an answer may have.
        temperature: 0 is greedy.
        seed: the sampling seed sent with a request; of a run, what each request's is made of (`run.seed_of`).
        ignore_eos: keep generating past the end token (vLLM's extension); changes what is measured.
    """

    max_tokens: int = 192
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """What it takes to be let in by a server. Never part of a record; `repr` hides the values.

    Attributes:
        headers: sent with every request (`Authorization` for a key).
        ca_file: PEM file of the authorities to believe instead of the system's, for a private one.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None


StatsOf = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Takes an answer's fields that engines put figures of speculation into, and returns those figures."""


def metrics_of(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the figures vLLM puts into `metrics.speculative_decoding` of an answer, or None."""
    metrics = answer.get("metrics")
    stats = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    return stats if isinstance(stats, Mapping) else None


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure.

    Attributes:
        base_url: without a trailing slash and without `/v1`, e.g. `http://127.0.0.1:8000` or
            `https://gateway.example/team-a`.
        model: the served model's name.
        token_timeout: seconds without any event of a stream after which the request has failed.
        access: headers and certificates.
        fields: sent with every request, for the engine to tell its figures.
        stats_of: finds those figures in an answer.
    """

    base_url: str
    model: str
    token_timeout: float = 120.0
    access: Access = Access()
    fields: Mapping[str, Any] = field(default_factory=dict)
    stats_of: StatsOf = metrics_of


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: `concurrency` requests are under way at any time; the next is sent when one ends."""

    concurrency: int = 1

    @property
    def label(self) -> str:
        """The name of this load in tables."""
        return f"{self.concurrency} at a time"


@dataclass(frozen=True, slots=True)
class Open:
    """An open loop: requests come at `rate` a second whatever the server does, as a seeded Poisson process.

    The same seed gives the same arrival times, in every arm.
    """

    rate: float
    seed: int = 0

    @property
    def label(self) -> str:
        """The name of this load in tables."""
        return f"{self.rate:g} a second"


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests come at the times they were recorded at, `speed` times as fast."""

    speed: float = 1.0

    @property
    def label(self) -> str:
        """The name of this load in tables."""
        return "as recorded" if self.speed == 1 else f"as recorded, {self.speed:g} times as fast"


Load = Closed | Open | Replay


@dataclass(slots=True)
class RequestRow:
    """One request as it went: what requests.parquet stores.

    TPOT follows docs/numbers.md: (time of the last chunk with tokens - time of the first) / (tokens - tokens of the
    first chunk), None where the answer had no second chunk.
    """

    arm: str
    block: int
    prompt_id: str
    category: str
    repeat: int
    started_unix: float
    """Seconds since 1970, by a clock that is not set while the process runs (`bench.moment`)."""
    start: int = 1
    """Which start of the arm's server answered, from 1: blocks of one start share what a restart draws anew."""
    point: str = ""
    """The point of a sweep: load, context and output length; empty where there is one."""
    turn: int = 1
    ok: bool = False
    error: str | None = None
    retries: int = 0
    """How often the request was sent again. A row with retries is answered (`ok`) but enters no time."""
    retry_reasons: str | None = None
    late_ms: float | None = None
    """Open loop: how much later than its arrival time the client sent it."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens the server took from its prefix cache, where it tells."""
    tokens: int | None = None
    reasoning_tokens: int | None = None
    """Of the tokens, those of the reasoning before the answer, where that can be told exactly."""
    first_chunk_tokens: int | None = None
    token_source: TokenSource | None = None
    chunks: int = 0
    ttft_ms: float | None = None
    ttfa_ms: float | None = None
    """Time to the first chunk of the answer itself, behind the reasoning."""
    decode_ms: float | None = None
    """From the first chunk with tokens to the last, in milliseconds."""
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    finish_reason: str | None = None
    tool_calls: int = 0
    text: str = ""
    """The answer, without its reasoning."""
    reasoning: str = ""
    prompt_token_ids: Sequence[int] = ()
    """As arrays of 4 bytes a token; rows of one run share those of the same prompt."""
    token_ids: Sequence[int] = ()
    spec_stats: dict[str, Any] | None = None
    """The server's own per-request speculative figures, as sent."""

    @property
    def timed(self) -> bool:
        """Whether the row's times count: it was answered, at the first attempt."""
        return self.ok and self.retries == 0

    @property
    def conversation(self) -> str:
        """The prompt this is a turn of: what counts as one piece of evidence."""
        return self.prompt_id.removesuffix(f"#{self.turn}") if self.turn > 1 else self.prompt_id


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """How the client itself fared while it measured: whether the times are the server's.

    Attributes:
        wall_s: seconds of the measured window.
        cpu_s: processor seconds this process used in it.
        lags: how late the client's own clock ticks came, one each 50 ms: how many ticks by how many milliseconds, to a
            hundredth of one.
        late: open loop: how much later than due requests were sent, the same way; None in a closed loop.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    lags: Mapping[float, int] = field(default_factory=dict)
    late: Mapping[float, int] | None = None

    @property
    def ticks(self) -> int:
        """How many ticks there were."""
        return sum(self.lags.values())

    @property
    def lag_ms(self) -> tuple[float, float, float]:
        """Lateness of the ticks: median, 99th percentile, largest."""
        return _quantile(self.lags, 0.5), _quantile(self.lags, 0.99), _quantile(self.lags, 1.0)

    @property
    def late_ms(self) -> float | None:
        """Open loop: 99th percentile of how much later than due a request was sent; None in a closed loop."""
        return None if self.late is None else _quantile(self.late, 0.99)


def _quantile(counts: Mapping[float, int], share: float) -> float:
    """Return the nearest-rank quantile of values with their counts, 0 of nothing."""
    rank, seen = share * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    return 0.0


@dataclass(slots=True)
class Measured:
    """One measured run.

    Attributes:
        rows: one a request, in the order in which they were planned; requests that were never sent are not there.
        client: how the client fared.
    """

    rows: list[RequestRow]
    client: ClientHealth


@dataclass(frozen=True, slots=True)
class ScoredOutput:
    """One output scored by a server, position by position.

    Attributes:
        prompt_id: whose output it is.
        arm: the arm that wrote it.
        gaps: nats between the most likely token and the written one at each scored output position; 0 where the
            written token is the most likely one.
        tokens: how many output tokens there were; more than `len(gaps)` where the length was bounded.
    """

    prompt_id: str
    arm: str
    gaps: tuple[float, ...]
    tokens: int


def median(values: Sequence[float]) -> float | None:
    """Return the median, or None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
