"""What a benchmark takes and returns: prompts in, one row a request out.

Times are seconds of `time.perf_counter()` unless a name ends in `_ms`. Tokens come from the server's usage or
token ids, never from counting chunks: a chunk may carry many tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

TokenSource = Literal["usage", "token_ids", "chunks"]
"""Where a row's token count came from; `chunks` is an approximation and always a finding."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to send.

    Attributes:
        id: unique within a workload; pairs rows between arms.
        category: what kind of work it is.
        messages: OpenAI chat messages.
    """

    id: str
    category: str
    messages: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are generated, the same in every arm.

    Attributes:
        max_tokens: most tokens an answer may have.
        temperature: 0 is greedy.
        seed: the sampling seed sent with each request.
        ignore_eos: keep generating past the end token (vLLM's extension); changes what is measured.
    """

    max_tokens: int = 192
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure.

    Attributes:
        base_url: without a trailing slash and without `/v1`, e.g. `http://127.0.0.1:8000`.
        model: the served model's name.
        token_timeout: seconds without any event of a stream after which the request has failed.
    """

    base_url: str
    model: str
    token_timeout: float = 120.0


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
    ok: bool = False
    error: str | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None
    first_chunk_tokens: int | None = None
    token_source: TokenSource | None = None
    chunks: int = 0
    ttft_ms: float | None = None
    decode_ms: float | None = None
    """From the first chunk with tokens to the last, in milliseconds."""
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    finish_reason: str | None = None
    text: str = ""
    prompt_token_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    spec_stats: dict[str, Any] | None = None
    """The server's own per-request speculative figures, as sent."""


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
