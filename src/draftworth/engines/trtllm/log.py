"""Reads the log of a starting `trtllm-serve` as it grows.

What is read, and where it was found: the version that importing the package prints (`__init__.py`, 0.x to 1.3.0rc),
the backend (`llmapi/llm.py`), the phases of the PyTorch backend, its warnings of `py_executor_creator.py`, the
configuration `LLM Args:` (1.2 and later) and Uvicorn's line that the server is up.
"""

import re

from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.phases import Phase, table, told_by
from draftworth.engines.trtllm import config_text, log_lines

NEEDLES: tuple[bytes, ...] = (
    b"[TensorRT-LLM] TensorRT",
    b"Using LLM with ",
    b"LLM Args:",
    b"speculative_config=",
    b"Disable overlap scheduler for speculation",
    b"Falling back to greedy decoding for",
    b"Speculative decoding disabled",
    b"-model is deprecated",
    b"SaveHiddenStatesDecodingConfig is active",
    b"Disabling block reuse for",
    b"Application startup complete",
)
"""A line without any tells nothing of version, backend, configuration or warnings."""

_LONGEST = 1 << 20  # characters of one line that are kept
_ENDS = re.compile(r"[\r\n]+")
_BACKEND = re.compile(r"Using LLM with (?P<backend>\w+) backend")
_FIRST = "starting"
_SERVES = 5

_PHASES = table(
    (
        (6, "stopping", r"(?:INFO:\s+)?Shutting down$"),
        (_SERVES, "serving", r"(?:INFO:\s+)?Application startup complete"),
        (4, "starting the HTTP server", r"(?:INFO:\s+)?(?:Started server process|Waiting for application startup)"),
        (3, "warming up", r"\[Autotuner\]|Run(?:ning)? (?:autotuning|.* warmup)|Creating CUDA graph|LLM Args:"),
        (3, "allocating the KV cache", r"\[MemUsageChange\]|.*(?:Allocated|allocate) .*KV cache|.*Max KV cache"),
        (2, "loading weights", r"Loading weights|Prefetching|Loading .*(?:shards|safetensors)|.*weights loading"),
        (2, "the model is loaded", r"Model init total -- "),
        (1, "reading the model's configuration", r"Using LLM with |Using default gpus_per_node|Set dtype to"),
    )
)
_WARNINGS: tuple[tuple[str, re.Pattern[str], str, bool], ...] = tuple(
    (code, re.compile(pattern), advice, confounds)
    for code, pattern, advice, confounds in (
        (
            "overlap_scheduler_off",
            r"Disable overlap scheduler for speculation mode \S+",
            "this drafter brings it: give the baseline disable_overlap_scheduler: true to see what it costs by itself",
            True,
        ),
        (
            "sampling_greedy",
            r"Falling back to greedy decoding for \S+?\. ",
            "answers are greedy whatever is asked for: set allow_advanced_sampling: true, or measure at temperature 0",
            True,
        ),
        (
            "speculation_gate_off",
            r"\[SpeculationGate\] Speculative decoding disabled",
            "speculation went off for good while the server ran: take acceptance_window out to measure the drafter",
            True,
        ),
        (
            "two_model_deprecated",
            r".*2-model.* is deprecated",
            "release 1.4 takes two-model drafting out; use the one-model form",
            False,
        ),
        (
            "hidden_states_saved",
            r"SaveHiddenStatesDecodingConfig is active",
            "this arm collects training data: batches of 1, no CUDA graphs; do not compare its speed",
            True,
        ),
        ("block_reuse_off", r"Disabling block reuse for", "prompts are not shared in this arm's KV cache", True),
    )
)


class TRTLLMLogReader:
    """Takes a log in pieces of any size; the facts do not depend on where the pieces end.

    Every process prints the version, so a start begins at one only after the server before it was up.

    Attributes:
        starts: how many starts the log has shown.
    """

    def __init__(self) -> None:
        self.starts = 0
        self._pending = ""
        self._forget()

    def _forget(self) -> None:
        self._phase = Phase(0, _FIRST)
        self._version: str | None = None
        self._backend: str | None = None
        self._config: dict[str, str] = {}
        self._config_follows = False
        self._warnings: dict[str, LogWarning] = {}

    def feed(self, text: str) -> None:
        """Take the next piece of the log; it may end in the middle of a line. Never raises on odd text."""
        *lines, rest = _ENDS.split(self._pending + text)
        self._pending = rest[:_LONGEST]
        for line in lines:
            if line:
                self._take(log_lines.parse(line[:_LONGEST]))

    def facts(self) -> StartupFacts:
        """Everything told so far."""
        configured = self._config.get("speculative_config")
        return StartupFacts(
            phase=self._phase.words,
            version=self._version,
            runner=self._backend,
            speculating=None if configured is None else configured != "None",
            config=dict(self._config),
            warnings=tuple(self._warnings.values()),
        )

    def _take(self, line: log_lines.Line) -> None:
        if line.version is not None:
            if self._phase.stage >= _SERVES:
                self._forget()
                self.starts += 1
            self.starts = max(self.starts, 1)
            self._version = line.version
            return
        message = line.message
        if self._config_follows or (message.startswith("model=") and " speculative_config=" in message):
            self._config |= config_text.flat(message)
            self._config_follows = False
        if message.startswith("LLM Args:"):
            rest = message.removeprefix("LLM Args:").strip()
            self._config_follows = not rest
            self._config |= config_text.flat(rest)
        if backend := _BACKEND.match(message):
            self._backend = backend["backend"]
            self.starts = max(self.starts, 1)
        told = told_by(message, _PHASES)
        if told and told[0].stage >= self._phase.stage:
            self._phase = told[0]
        for code, pattern, advice, confounds in _WARNINGS:
            if pattern.match(message):
                warning = LogWarning(code=code, line=message, advice=advice, confounds=confounds)
                self._warnings.setdefault(code, warning)
