"""What a starting vLLM is doing, in words for a person, from the lines it logs (read in 0.32.0, older forms kept)."""

import re

from draftworth.engines.phases import Phase, table, told_by

FIRST = "starting Python"
SERVING = "serving"
SERVES = 5
"""The stage from which on a server serves."""

_PERCENT = r".*?(?P<percent>\d{1,3})\s?%"

_COMPILING = (
    r"(?:\[[\w-]+\] )?(?:Starting torch\.compile|Using cache directory: .* torch\.compile|Dynamo bytecode transform"
    r"|Compiling (?:a graph|model again)|Directly load (?:the|AOT)|Cache the graph|torch\.compile (?:takes|took)"
    r"|Initial profiling)"
)

# Tried in order on the message of a line; the first that matches at its beginning counts.
_LINES = table(
    (
        (6, "stopping", r"\[shutdown\]|Shutting down$|(?:INFO:\s+)Shutting down"),
        (5, SERVING, r"(?:INFO:\s+)?Application startup complete"),
        (5, SERVING, r'INFO:\s+\S+ - "[A-Z]+ \S+ HTTP/[\d.]+" \d{3}'),
        (5, SERVING, r"Engine \d+: Avg prompt throughput"),
        (4, "starting the HTTP server", r"init engine \(profile|Starting vLLM (?:API )?server|Supported tasks:"),
        (3, "capturing CUDA graphs", r"Capturing .*?(?:cuda ?graph|shapes)" + _PERCENT),
        (3, "capturing CUDA graphs", r"Capturing (?:.*CUDA ?graph|cudagraphs|the model for|model for)"),
        (
            3,
            "warming up",
            r"Graph capturing finished|JIT kernel warmup|Running FlashInfer autotune|Skipping CUDA graph",
        ),
        (
            3,
            "warming up",
            r"Running warmup|Compile and warming up model for size|Warming up (?!model for the comp|done)",
        ),
        (3, "allocating the KV cache", r"Available KV cache memory|(?:\w+ )?KV cache size|Explicitly set \("),
        (3, "allocating the KV cache", r"Profiling CUDA graph memory|Memory profiling takes|# \w+ blocks"),
        (3, "compiling (torch.compile)", r"Warming up model for the compilation"),
        (3, "compiling (torch.compile)", _COMPILING),
        (3, "loading the draft", r"Loading drafter model"),
        (
            3,
            "loading weights",
            r"(?:Multi-thread )?Loading .*?(?:shards|weights|safetensors|checkpoint|loader)" + _PERCENT,
        ),
        (3, "loading weights", r"Starting to load model|Loading model weights|Loading weights took"),
        (
            2,
            "starting the engine",
            r"Initializing an? (?:V\d )?LLM engine|Using V2 Model Runner|(?:rank \d+ in )?world.?size",
        ),
        (
            1,
            "reading the model's configuration",
            r"non-default args|args: Namespace|Resolved architecture|.*version \d",
        ),
        (1, "reading the model's configuration", r"Using max model len|This model supports multiple tasks"),
    ),
    re.IGNORECASE,
)


def phase_of(message: str) -> tuple[Phase, str] | None:
    """Return the phase a line tells of and the words to show, or None where it tells of none."""
    return told_by(message, _LINES)
