"""Reads what a log of TensorRT-LLM tells of speculation: only the speculation gate tells anything.

The lines of `print_iter_log: true` (`iter = 7, … states = {'num_ctx_requests': 0, …}`) hold no accepted tokens in any
release from 0.20 to 1.3.0rc, so they are not read. With `acceptance_window` and `acceptance_length_threshold` set,
`_torch/speculative/speculation_gate.py` (1.2 and later) writes a finished request's average and the window's mean.
"""

import math
import re

from draftworth.engines.base import Told, Window
from draftworth.engines.shown import shortened
from draftworth.engines.trtllm import log_lines
from draftworth.findings import Code, Finding, find

NEEDLES: tuple[bytes, ...] = (b"record_avg_decoded called", b"Rolling window reached")
"""A line without any tells no figure of speculation."""

_GATE = "[SpeculationGate] "
_NUMBER = r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|nan|inf)"
_REQUEST = re.compile(
    rf"record_avg_decoded called with avg_decoded_tokens_per_iter=(?P<value>{_NUMBER}|None), "
    r"request_id=(?P<request>\d+|None)"
)
_ROLLING = re.compile(
    rf"Rolling window reached: avg_accept=(?P<value>{_NUMBER}), threshold={_NUMBER}, window_size=(?P<size>\d+)"
)
_STARTS = ("record_avg_decoded called", "Rolling window reached")
_SHOWN = 120


class TRTLLMWindowReader:
    """Reads one log's lines; each stands for itself."""

    told_only: str | None = None

    def take(self, line: str) -> Window | Finding | None:
        """Take one line as it stands in the file. Never raises."""
        parsed = log_lines.parse(line)
        message = parsed.message.removeprefix(_GATE)
        if message == parsed.message or not message.startswith(_STARTS):
            return None
        told = _told(message)
        if told is None and "avg_decoded_tokens_per_iter=None" in message:
            return None
        if told is None:
            shown = shortened(parsed.message, _SHOWN)
            return find(Code.LINES_UNREADABLE, f"a line of TensorRT-LLM's speculation gate: {shown}")
        return Window(at=parsed.at, told=(told,), line=parsed.message)


def _told(message: str) -> Told | None:
    if match := _REQUEST.fullmatch(message):
        value = math.nan if match["value"] == "None" else float(match["value"])
        return _figure(
            "avg_decoded_tokens_per_iter",
            value,
            1.0,
            "tokens / iterations of a request, the prefill's among both",
            f"request {match['request']}",
        )
    if match := _ROLLING.fullmatch(message):
        return _figure(
            "avg_accept",
            float(match["value"]),
            0.0,
            "mean over the last finished requests of avg_decoded_tokens_per_iter - 1",
            f"last {match['size']} requests",
        )
    return None


def _figure(name: str, value: float, least: float, formula: str, scope: str) -> Told | None:
    if not math.isfinite(value) or value < least:
        return None
    return Told(name=name, value=value, formula=formula, scope=scope)
