"""The fake server's counters and the /metrics page they make, in the form of vLLM 0.32.0."""

import time
from dataclasses import dataclass, field

_REASONS = ("stop", "length", "abort", "error", "repetition")
_HISTOGRAM_BOUNDS = (0.01, 0.1, 1.0, 10.0)


@dataclass(slots=True)
class Histogram:
    """Observations of one histogram."""

    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        """Take one observation."""
        self.values.append(value)


@dataclass(slots=True)
class EngineCounters:
    """What one engine (data-parallel rank) has counted."""

    generation_tokens: int = 0
    prompt_tokens: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    running: int = 0
    success: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_REASONS, 0))
    time_to_first_token: Histogram = field(default_factory=Histogram)
    inter_token_latency: Histogram = field(default_factory=Histogram)
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def step(self, tokens: int, seconds: float, *, first: bool) -> None:
        """Count one engine step of one request."""
        self.generation_tokens += tokens
        (self.time_to_first_token if first else self.inter_token_latency).add(seconds)

    def draft(self, k: int, accepted: int) -> None:
        """Count one drafting step."""
        self.drafts += 1
        self.draft_tokens += k
        self.accepted += accepted
        per_position = self.accepted_per_position
        per_position.extend([0] * (k - len(per_position)))
        for i in range(accepted):
            per_position[i] += 1


class Metrics:
    """The counters of every engine of one server."""

    def __init__(self, engines: int, k: int | None, *, prefix_cache: bool = False, shown: int = 0) -> None:
        """Start from zero. `k` is num_speculative_tokens, None where the server does not speculate."""
        self.k = k
        self.prefix_cache = prefix_cache
        self.shown = shown or engines
        self.engines: list[EngineCounters] = []
        self.created = 0.0
        self._count = engines
        self.reset()

    def reset(self) -> None:
        """Start again from zero, as a restarted engine does."""
        self.engines = [EngineCounters(accepted_per_position=[0] * (self.k or 0)) for _ in range(self._count)]
        self.created = max(time.time(), self.created + 1)

    def engine_of(self, number: int) -> EngineCounters:
        """Return the engine that serves a request: they take turns."""
        return self.engines[number % len(self.engines)]

    def foreign(self, requests: int, tokens: int = 10) -> None:
        """Count requests of somebody else, on the first engine."""
        engine = self.engines[0]
        for _ in range(requests):
            engine.success["length"] += 1
            engine.prompt_tokens += 12
            for i in range(tokens):
                engine.step(1, 0.01, first=i == 0)

    def render(self, model: str) -> str:
        """Return the page."""
        page = _Page(model, self.created)
        rows = list(enumerate(self.engines[: self.shown]))
        if self.k is not None:
            page.counter("spec_decode_num_drafts", "Number of spec decoding drafts.", [(i, e.drafts) for i, e in rows])
            page.counter(
                "spec_decode_num_draft_tokens", "Number of draft tokens.", [(i, e.draft_tokens) for i, e in rows]
            )
            page.counter(
                "spec_decode_num_accepted_tokens", "Number of accepted tokens.", [(i, e.accepted) for i, e in rows]
            )
            page.labelled(
                "spec_decode_num_accepted_tokens_per_pos",
                "Accepted tokens per draft position.",
                "position",
                [(i, str(p), n) for i, e in rows for p, n in enumerate(e.accepted_per_position)],
            )
        page.gauge(
            "num_requests_running", "Number of requests in model execution batches.", [(i, e.running) for i, e in rows]
        )
        page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", [(i, 0) for i, _ in rows])
        if self.prefix_cache:
            page.counter(
                "prefix_cache_queries",
                "Prefix cache queries, in terms of number of queried tokens.",
                [(i, e.cache_queries) for i, e in rows],
            )
            page.counter(
                "prefix_cache_hits",
                "Prefix cache hits, in terms of number of cached tokens.",
                [(i, e.cache_hits) for i, e in rows],
            )
        page.counter("prompt_tokens", "Number of prefill tokens processed.", [(i, e.prompt_tokens) for i, e in rows])
        page.counter(
            "generation_tokens", "Number of generation tokens processed.", [(i, e.generation_tokens) for i, e in rows]
        )
        page.labelled(
            "request_success",
            "Count of successfully processed requests.",
            "finished_reason",
            [(i, reason, e.success[reason]) for i, e in rows for reason in _REASONS],
        )
        page.histogram(
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            [(i, e.time_to_first_token) for i, e in rows],
        )
        page.histogram(
            "inter_token_latency_seconds",
            "Histogram of inter-token latency in seconds.",
            [(i, e.inter_token_latency) for i, e in rows],
        )
        return page.text()


class _Page:
    def __init__(self, model: str, created: float) -> None:
        self._model = model
        self._created = created
        self._lines = [
            "# HELP python_info Python platform information",
            "# TYPE python_info gauge",
            'python_info{implementation="CPython",major="3",minor="12",patchlevel="0",version="3.12.0"} 1.0',
        ]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, description: str, kind: str) -> None:
        self._lines += [f"# HELP vllm:{name} {description}", f"# TYPE vllm:{name} {kind}"]

    def _labels(self, engine: int, **more: str) -> str:
        labels = {"engine": str(engine), "model_name": self._model, **more}
        return "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels.items())) + "}"

    def _sample(self, name: str, engine: int, value: float, **more: str) -> None:
        self._lines.append(f"vllm:{name}{self._labels(engine, **more)} {float(value)!r}")

    def gauge(self, name: str, description: str, rows: list[tuple[int, int]]) -> None:
        self._head(name, description, "gauge")
        for engine, value in rows:
            self._sample(name, engine, value)

    def counter(self, name: str, description: str, rows: list[tuple[int, int]]) -> None:
        self._head(f"{name}_total", description, "counter")
        for engine, value in rows:
            self._sample(f"{name}_total", engine, value)
        self._head(f"{name}_created", description, "gauge")
        for engine, _ in rows:
            self._sample(f"{name}_created", engine, self._created)

    def labelled(self, name: str, description: str, label: str, rows: list[tuple[int, str, int]]) -> None:
        self._head(f"{name}_total", description, "counter")
        for engine, of, value in rows:
            self._sample(f"{name}_total", engine, value, **{label: of})
        self._head(f"{name}_created", description, "gauge")
        for engine, of, _ in rows:
            self._sample(f"{name}_created", engine, self._created, **{label: of})

    def histogram(self, name: str, description: str, rows: list[tuple[int, Histogram]]) -> None:
        self._head(name, description, "histogram")
        for engine, histogram in rows:
            for bound in _HISTOGRAM_BOUNDS:
                below = sum(v <= bound for v in histogram.values)
                self._sample(f"{name}_bucket", engine, below, le=str(bound))
            self._sample(f"{name}_bucket", engine, len(histogram.values), le="+Inf")
            self._sample(f"{name}_count", engine, len(histogram.values))
            self._sample(f"{name}_sum", engine, sum(histogram.values))
        self._head(f"{name}_created", description, "gauge")
        for engine, _ in rows:
            self._sample(f"{name}_created", engine, self._created)
