"""What engines write into the names of their ranges: how many requests a step carries, and of which kind.

- vLLM (v1/worker/gpu_worker.py, annotate_profile): `execute_context_1(50)_generation_3(15)`, each as requests and
  their tokens, with its detailed form, and as NVTX ranges under its `cuda` profiler; with
  VLLM_CUSTOM_SCOPES_FOR_PROFILING=1 also `gpu_model_runner: forward` and others, which do not tell what a step carries.
- SGLang (srt/utils/profile_utils.py, build_step_span_name): `step[DECODE bs=4]`, `step[VERIFY bs=4]`,
  `step[EXTEND bs=1 toks=512]`; a draft model's steps are `step[DRAFT …]` and belong to the step around them.
- PyTorch: `ProfilerStep#7`.
"""

import re
from dataclasses import dataclass

_VLLM = re.compile(
    r"execute_(?:\d+_)?context_(\d{1,9})\((?:sq)?(\d{1,9})[^)]*\)_generation_(\d{1,9})\((?:sq)?(\d{1,9})[^)]*\)",
    re.ASCII,
)
_SGLANG = re.compile(r"step\[(\w+)(?: bs=(\d{1,9}))?(?: toks=(\d{1,9}))?(.*)\]", re.ASCII)
_SGLANG_WIDE = re.compile(r"\bg_sq=(\d{1,9})", re.ASCII)
_FORWARD = re.compile(r"gpu_model_runner: forward|ProfilerStep#\d+")


@dataclass(frozen=True)
class Step:
    """What a mark says of its step."""

    prefill: bool
    decoding: int
    """Requests past their prompt."""
    carried: int | None
    """Tokens of these requests."""


def parse(name: str) -> Step | None:
    """Return what an engine's mark tells of its step; None where it is no mark of a step."""
    if match := _VLLM.search(name):
        prompts, _, decoding, carried = (int(one) for one in match.groups())
        return Step(prefill=prompts > 0, decoding=decoding, carried=carried)
    if match := _SGLANG.search(name):
        kind, batch = match[1], int(match[2] or 0)
        if kind in {"DECODE", "VERIFY", "TARGET_VERIFY"}:
            wide = _SGLANG_WIDE.search(match[4])
            return Step(
                prefill=False, decoding=batch, carried=int(wide[1]) if wide else batch if kind == "DECODE" else None
            )
        if kind.startswith("DRAFT"):
            return None
        return Step(prefill=kind != "IDLE", decoding=batch if kind == "MIXED" else 0, carried=None)
    return None


def tells(name: str) -> bool:
    """Whether a mark tells what its step carries."""
    return parse(name) is not None


def begins(name: str) -> bool:
    """Whether a mark stands for a step without telling what it carries."""
    return _FORWARD.search(name) is not None
