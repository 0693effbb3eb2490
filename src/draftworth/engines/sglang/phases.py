"""What a starting SGLang is doing, in words for a person, from the lines it logs (read in 0.4.6 to 0.5.23)."""

import re

from draftworth.engines.phases import Phase, table, told_by

FIRST = "starting Python"
SERVING = "serving"
SERVES = 5
"""The stage from which on a server serves."""

# Tried in order on the message of a line; the first that matches at its beginning counts.
_LINES = table(
    (
        (6, "stopping", r"(?:INFO:\s+)?Shutting down|Gracefully exiting|.*SIGTERM received"),
        (5, SERVING, r"The server is fired up and ready to roll"),
        (4, "answering a first request", r"(?:INFO:\s+)?(?:Application startup complete|Uvicorn running on)"),
        (4, "starting the HTTP server", r"(?:INFO:\s+)?(?:Started server process|Waiting for application startup)"),
        (3, "capturing CUDA graphs", r"Capturing .*?(?P<percent>\d{1,3})\s?%"),
        (3, "capturing CUDA graphs", r"Capture (?:\w+ )*(?:cuda ?graph|draft cuda graph)|Capturing batches"),
        (3, "allocating the KV cache", r"KV Cache is allocated|Memory pool end|max_total_num_tokens="),
        (3, "loading weights", r".*Loading .*?(?:shards|weights|safetensors).*?(?P<percent>\d{1,3})\s?%"),
        (3, "loading weights", r"Load weight (?:begin|end)"),
        (2, "starting the engine", r"Init torch distributed (?:begin|ends)"),
        (1, "reading the model's configuration", r"server_args=|Attention backend not|Using default HuggingFace"),
    ),
    re.IGNORECASE,
)


def phase_of(message: str) -> tuple[Phase, str] | None:
    """Return the phase a line tells of and the words to show, or None where it tells of none."""
    return told_by(message, _LINES)
