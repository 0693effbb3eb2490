"""Three steps of a real vLLM on an H200, without and with speculation (benchmarks/gpu_profile_page.py cut them)."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from draftworth.profiles.compare import compare
from draftworth.profiles.read import read_profile

DATA = Path(__file__).parent / "data"
ROWS_A_BLOCK = 192
"""Blocks of the first expert kernel for one row."""
LAYERS = 48


def path_of(arm: str) -> Path:
    return DATA / f"vllm_h200_moe_{arm}.pt.trace.json.gz"


def kernels(arm: str) -> list[dict[str, Any]]:
    """The GPU's events of the whole steps, by plain reading: launched from the first mark to the last one."""
    events = json.loads(gzip.decompress(path_of(arm).read_bytes()))["traceEvents"]
    marks = sorted(
        one["ts"] for one in events if one.get("cat") == "user_annotation" and one["name"].startswith("execute_context")
    )
    launched = {
        one["args"]["correlation"]
        for one in events
        if one.get("cat") in {"cuda_runtime", "cuda_driver"} and marks[0] <= one["ts"] < marks[-1]
    }
    return [one for one in events if one.get("cat") == "kernel" and one["args"]["correlation"] in launched]


@pytest.mark.parametrize(("arm", "steps", "carried"), [("baseline", 3, 3), ("null-draft", 2, 2), ("synthetic", 3, 12)])
def test_steps_and_the_experts_of_a_captured_graph_are_found(arm: str, steps: int, carried: int) -> None:
    found = read_profile([path_of(arm)])
    assert (found.steps, found.carried, found.request_steps) == (steps, carried, steps)
    assert found.device == "gpu 0: NVIDIA H200"
    moe = [one for one in kernels(arm) if one["name"] == "fused_moe_kernel"]
    (experts,) = [one for one in found.classes if one.name == "experts"]
    top = next(one for one in experts.top if one.name == "fused_moe_kernel")
    assert (top.count, len(moe)) == (2 * LAYERS * steps, 2 * LAYERS * steps)
    assert top.ms == pytest.approx(sum(one["dur"] for one in moe) / 1000, rel=0.02)  # some overlap with others
    assert sum(one.ms for one in found.classes) + found.idle_ms + (found.host_ms or 0) == pytest.approx(found.span_ms)
    assert found.unknown == ()


def test_a_null_draft_waits_for_the_host_and_loads_experts_of_padding_rows() -> None:
    told = compare(read_profile([path_of("baseline")]), read_profile([path_of("null-draft")]))
    more = {one.name: (one.variant_ms or 0) - (one.base_ms or 0) for one in told.per_step if one.name != "total"}
    assert max(more, key=lambda name: more[name]) == "host"
    blocks = {
        arm: min(one["args"]["grid"][0] for one in kernels(arm) if one["name"] == "fused_moe_kernel")
        for arm in ("baseline", "null-draft", "synthetic")
    }
    # One token in both: without drafts it runs as one row, with n-gram's mode as the four of a drafting step.
    assert blocks == {"baseline": ROWS_A_BLOCK, "null-draft": 4 * ROWS_A_BLOCK, "synthetic": 4 * ROWS_A_BLOCK}
    assert more["experts"] == pytest.approx(1.3, abs=0.1)
