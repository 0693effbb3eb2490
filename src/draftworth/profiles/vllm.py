"""How a vLLM server is started so that it can be profiled: by flags at its start, then over HTTP.

Source: vllm/config/profiler.py and vllm/entrypoints/serve/profile/api_router.py of 0.19 and 0.32. A server with these
flags answers POST /start_profile and /stop_profile (unauthenticated: loopback only) and each rank writes
`<prefix>_rank<n>.<time>.pt.trace.json.gz` into the folder when it is stopped; `read_profile([folder])` reads the newest
of them.
"""

import json
from pathlib import Path

START, STOP = "/start_profile", "/stop_profile"
"""Paths to POST to. STOP answers when the traces are written, which takes as long as the profiled run or longer."""
ENV = {"VLLM_CUSTOM_SCOPES_FOR_PROFILING": "1"}
"""Names the parts of a step on the host too: preprocess, forward, sample, draft, bookkeep."""


def profiler_arguments(folder: Path) -> list[str]:
    """Return the words behind `vllm serve` that let its torch profiler be started.

    Call stacks are left out, which slow steps and swell traces; the API server's own trace too, which has no step.

    Args:
        folder: where traces go, on the server's machine; absolute.
    """
    config = {
        "profiler": "torch",
        "torch_profiler_dir": str(folder),
        "torch_profiler_with_stack": False,
        "ignore_frontend": True,
    }
    return ["--profiler-config", json.dumps(config)]
