"""Traces of vLLM's CPU backend: a cut of two real ones (0.32.0, SmolLM2-135M), and one by hand."""

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.profiles.profiles_traces import BASE, NGRAM, mark, on_host, trace

from draftworth.profiles.kernels import load_table
from draftworth.profiles.read import read_profile


def naive(path: Path) -> tuple[int, float, dict[str, float]]:
    """Own times by class over the decode steps, told apart event by event."""
    events = [one for one in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if one.get("ph") == "X"]
    marks = sorted((one["ts"], one["name"]) for one in events if one["name"].startswith("execute_context"))
    running = [int(re.findall(r"generation_(\d+)", name)[0]) for _, name in marks]
    windows = [
        (marks[at][0], marks[at + 1][0])
        for at in range(len(marks) - 1)
        if "context_0(" in marks[at][1] and running[at] and running[at + 1]
    ]
    table = load_table()
    found: dict[str, float] = defaultdict(float)
    for start, end in windows:
        inside = sorted(
            ((one["ts"], -one["dur"], one) for one in events if start <= one["ts"] < end), key=lambda one: one[:2]
        )
        own: dict[int, float] = {}
        stack: list[dict[str, Any]] = []
        for ts, minus, one in inside:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= ts:
                stack.pop()
            if stack:
                own[id(stack[-1])] += minus
            own[id(one)] = -minus
            stack.append(one)
        for _, _, one in inside:
            host = one["cat"] != "cpu_op"
            found["host" if host else table.classify(one["name"], "op")] += own[id(one)] / 1e3
    return len(windows), sum(end - start for start, end in windows) / 1e3, dict(found)


@pytest.mark.parametrize("path", [BASE, NGRAM])
def test_a_real_trace_against_a_naive_account(path: Path) -> None:
    found = read_profile([path])
    steps, span, classes = naive(path)
    assert found.steps == steps == 2
    assert found.span_ms == pytest.approx(span, rel=1e-6)
    host = classes.pop("host")
    assert found.host_ms == pytest.approx(host, rel=1e-3)
    assert {one.name: one.ms for one in found.classes} == pytest.approx(classes, rel=1e-3, abs=1e-3)
    assert found.idle_ms == pytest.approx(span - host - sum(classes.values()), rel=1e-3)


def test_a_real_trace_tells_engine_and_drafting() -> None:
    base, ngram = read_profile([BASE]), read_profile([NGRAM])
    assert (base.engine, base.device, base.rank) == ("vllm 0.32.0", "cpu", 0)
    assert (base.carried, base.tokens, base.request_steps) == (6, 6.0, 6)
    # three requests that verify up to four drafts each: 11 and 15 tokens
    assert (ngram.carried, ngram.tokens, ngram.request_steps) == (26, None, 6)
    assert not base.unknown
    assert not ngram.unknown
    # 30 layers, 4 products each, and the head
    assert next(one for one in base.classes if one.name == "matrix work").count == 2 * 121
    assert "gpu_model_runner: draft" in {one.name for one in ngram.scopes}
    assert ngram.of("sampling") > 3 * base.of("sampling")


def test_nested_operations_count_once(tmp_path: Path) -> None:
    events = [mark(0, 1, 1, 0, 900), mark(0, 1, 1, 1000, 900)]
    events += [
        on_host("cpu_op", "aten::linear", 100, 500),
        on_host("cpu_op", "_C::onednn_mm", 150, 400),
        on_host("cpu_op", "aten::as_strided", 160, 100),
        on_host("cpu_op", "aten::linear", 300, 9999, tid=2),  # another thread's
    ]
    found = read_profile([trace(tmp_path / "a.json", events, deviceProperties=[])])
    assert found.span_ms == 1.0
    assert found.of("matrix work") == pytest.approx(0.1 + 0.3)
    # the mark without its operation, and the view
    assert found.host_ms == pytest.approx(0.4 + 0.1)
    assert found.idle_ms == pytest.approx(0.1)
    assert any("VLLM_CUSTOM_SCOPES_FOR_PROFILING" in note for note in found.notes)
