"""What the fake server is told to do: one frozen record, read from JSON."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Every behaviour of the fake server; all fields optional.

    Request numbers count POSTs to /v1/chat/completions and streams of /v1/completions from 1, warm-ups included.
    Zero or None switches a behaviour off. `speculating` holds fields that replace these when the server got
    `--speculative-config`.
    """

    # Speed. The time between two chunks is token_ms times the tokens of the later one, so TPOT is token_ms.
    token_ms: float = 1.0
    first_token_ms: float = 5.0
    tokens_per_chunk: tuple[int, ...] = (1,)
    """Cycled over the chunks after the first. When speculating, each of them is one step."""
    first_chunk_tokens: int = 1
    jitter: float = 0.0
    """Relative standard deviation of one request's token_ms (log-normal, seeded, by request number)."""
    seed: int = 0
    slow_headers_ms: float = 0.0
    crowd_ms: float = 0.0
    """Added to token_ms for each other request under way: what a full batch costs."""
    cached_token_ms: float | None = None
    """token_ms of a request whose prompt is in the prefix cache."""
    rejected_token_ms: float | None = None
    """token_ms of a request none of whose drafts is accepted, for one of the reasons below."""

    # What is written.
    answers: Mapping[str, str] = field(default_factory=dict)
    """The text of the last message to the answer; others get deterministic pseudo-text of their own prompt."""
    tokens: int = 48
    """Length of a pseudo-text, its end token included."""
    corrupt_every: int = 0
    """Every nth written token is one the model would not write: gap `corrupt_gap` when scored."""
    corrupt_gap: float = 9.0
    tie_every: int = 0
    """Every nth written token is the other side of a near tie: gap `tie_gap` when scored."""
    tie_gap: float = 0.1
    noise_every: int = 0
    """Every nth position scores a gap of `noise_gap` although it is what the model writes, for either arm."""
    noise_gap: float = 0.2

    # The shape of the stream.
    usage: bool = True
    token_ids: bool = True
    reject_token_ids: bool = False
    """Answer 400 where `return_token_ids` is asked for."""
    role_chunk: bool = True
    empty_chunks: bool = False
    """An empty delta before every chunk with tokens."""
    reasoning_field: str | None = None
    """`reasoning` or `reasoning_content`: the first `reasoning_tokens` tokens go there."""
    reasoning_tokens: int = 8
    tool_calls: bool = False
    """Everything is written as the arguments of one tool call."""
    buffered: bool = False
    """All but the first chunk's worth is held back and sent as one chunk when the last token is there."""
    continuous_usage: bool = False
    """Usage so far on every chunk."""
    usage_more: int = 0
    """Tokens that the closing usage counts beyond those that were sent."""
    usage_details: bool = False
    """The closing usage tells the reasoning's tokens, and that all but one of the prompt's were cached."""

    # Speculation as the server tells it.
    draft_every: int = 1
    """Every nth step drafts `num_speculative_tokens`; a step that does not emits one token. 0: nothing is drafted."""
    draft_limit: int = 0
    """In answers to prompts of more tokens than this, drafts are made and counted, and none is accepted."""
    greedy_drafts: bool = False
    """At a temperature above 0 no draft is accepted."""
    placeholders: bool = False
    """The counters take a step that drafts nothing for one that drafted `num_speculative_tokens`."""
    zero_spec_counters: bool = False
    """Its counters of drafts stay at zero although it speculates."""
    zero_spec_stats: bool = False
    """The figures in the answers stay at zero."""

    tokenize: bool = False
    """Answer /tokenize, as vLLM does; a gateway passes on nothing of it."""

    # /metrics
    metrics: bool = True
    metrics_missing: tuple[int, ...] = ()
    """The scrapes, from 1, that are answered 503."""
    prefix_cache: bool = False
    """Prompts sent before are found in the prefix cache but for their last token; its counters are on the page."""
    engines: int = 1
    engines_shown: int = 0
    """The page shows only the first so many of them, as behind a gateway. 0: all."""
    foreign_requests: int = 0
    """Requests of somebody else, ten tokens each, added to the counters at every scrape."""
    reset_counters_after: int = 0
    """After this many requests the counters start again from zero."""

    # The life of the process.
    version: str = "0.32.0"
    load_seconds: float = 0.0
    """Before it listens, spread over the log lines of the start."""
    warm_seconds: float = 0.0
    """Healthy, but answers 503 to anything that generates."""
    load_silent: bool = False
    """`load_seconds` pass in one go, without a line and without work, after half of the lines."""
    notify: bool = False
    """Tell systemd that it is ready, as a service of Type=notify does."""
    odd_log: bool = False
    """Its start prints bytes that are no UTF-8, control characters, and harmless lines with `error` in them."""
    chatter: int = 0
    """Lines that it prints at once when it begins to load."""
    shm_mib: int = 0
    """Size of a file in /dev/shm that it maps, with a name as Python's shared memory has, and never removes."""
    hang_null_draft: bool = False
    """With a lookup that can hardly match (`prompt_lookup_min` of 30 or more) it loads for ever."""
    profiler: str = ""
    """What answers at /start_profile and /stop_profile: nothing, `works` (and writes no trace) or `hangs` when it is
    stopped."""
    die_at: str | None = None
    """`load`, `first_request` (the first that generates, chat or completion) or `request:N`."""
    exit_code: int = 1
    hang_at_request: int = 0
    """The Nth request gets headers and the role chunk, then nothing."""
    ignore_sigterm: bool = False
    stop_seconds: float = 0.0
    """How long it takes to end after SIGTERM."""
    spawn_children: int = 0
    """Child processes in its session, left behind when it ends."""
    detached_children: int = 0
    """Child processes in sessions of their own."""
    stubborn_children: int = 0
    """Child processes in its session that ignore SIGTERM."""

    # Failures of requests.
    busy: tuple[int, ...] = ()
    """HTTP statuses that the first chat requests are answered with, one each."""
    retry_after: str | None = None
    """The header of those answers."""
    api_key: str | None = None
    """Everything below /v1 asks for it."""
    echo_headers: bool = False
    """Every POST is answered 400 with the headers it came with in the message."""
    error_every: int = 0
    """HTTP 500."""
    reset_every: int = 0
    """Connection reset after half of the tokens."""
    truncate_every: int = 0
    """The stream ends after half of the tokens, without finish_reason and `[DONE]`."""
    error_event_every: int = 0
    """An `error` event after half of the tokens."""
    malformed_every: int = 0
    """An event that is no JSON after half of the tokens."""
    score_error: str | None = None
    """HTTP 500 with this message where prompt_logprobs are asked for."""

    speculating: Mapping[str, Any] = field(default_factory=dict)
    by_k: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields that replace these, and those of `speculating`, at this `num_speculative_tokens`."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Script":
        """Build a script; a field nobody knows is a ValueError."""
        known = {f.name for f in dataclasses.fields(cls)}
        inner = [data.get("speculating", {}), *data.get("by_k", {}).values()]
        unknown = sorted(set(data).union(*inner) - known)
        if unknown:
            message = f"no such field: {', '.join(unknown)}"
            raise ValueError(message)
        values = dict(data)
        chunk = values.get("tokens_per_chunk", (1,))
        values["tokens_per_chunk"] = (chunk,) if isinstance(chunk, int) else tuple(chunk)
        values["busy"] = tuple(values.get("busy", ()))
        values["metrics_missing"] = tuple(values.get("metrics_missing", ()))
        return cls(**values)

    @classmethod
    def load(cls, path: Path) -> "Script":
        """Read a script from a JSON file."""
        return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))

    def effective(self, *, speculating: bool, k: object = None) -> "Script":
        """Return the script with the overrides applied that apply."""
        more = {**self.speculating, **self.by_k.get(str(k), {})} if speculating else {}
        if not more:
            return self
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Script.from_dict({**own, **more, "speculating": {}, "by_k": {}})

    def to_json(self) -> str:
        """Return the JSON that `load` reads."""
        return json.dumps(dataclasses.asdict(self))
