"""How much memory and time a grid takes of drafters whose requests share something, and the page's tables of speed.

    python -m benchmarks.replay_memory [--docs]

Tokens are drawn as frequent as words (Zipf's law): almost no text is met again, so that what is learned grows as fast
as it can. Each row is a process of its own. Writes benchmarks/results/replay_memory.json and, with what
benchmarks/replay.py and benchmarks/replay_suffix.py measured, the tables in docs/replay.md; `--docs` only the latter.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from draftworth.drafters import drafter
from draftworth.drafters.base import Limits
from draftworth.drafters.replay import replay
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RESULT = RESULTS / "replay_memory.json"
PAGE = ROOT / "docs" / "replay.md"
BEGIN, END = "<!-- speed -->\n", "<!-- end -->"
PROMPT, OUTPUT, VOCABULARY, SKEW = 50, 500, 32_000, 1.3
CASES = (
    ("sglang-ngram", 1, 100, True),
    ("sglang-ngram", 1, 1200, False),
    ("vllm-suffix", 8, 100, True),
    ("vllm-suffix", 8, 400, True),
    ("llamacpp-ngram-mod", 1, 400, True),
)
"""Drafter, requests at a time, requests, and whether its grid is replayed or its defaults."""


class Words:
    """A trace that is made as it is read."""

    def __init__(self, requests: int) -> None:
        self.path = Path("words.parquet")
        self.bad = BadRows()
        self.requests: int | None = requests
        self._total = requests

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests, all in one batch."""
        del tokens
        each = PROMPT + OUTPUT
        yield TraceBatch(
            request_ids=[str(at) for at in range(self._total)],
            tokens=(np.random.default_rng(0).zipf(SKEW, self._total * each) % VOCABULARY).astype(np.int32),
            offsets=np.arange(self._total + 1, dtype=np.int64) * each,
            prompt_lengths=np.full(self._total, PROMPT, dtype=np.int32),
            thinking=np.full(self._total, -1, dtype=np.int32),
            categories=[""] * self._total,
            temperatures=np.zeros(self._total),
            exact=np.ones(self._total, dtype=np.bool_),
        )


def measure(name: str, concurrency: int, requests: int, *, grid: bool) -> dict[str, Any]:
    """Replay in this process; kernels are compiled before."""
    chosen = drafter(name)
    settings = chosen.grid() if grid else chosen.settings()
    limits = Limits(concurrency=concurrency)
    replay(Words(1), chosen, settings[:1], limits)
    began = time.process_time()
    replay(Words(requests), chosen, settings, limits)
    return {
        "drafter": name,
        "concurrency": concurrency,
        "output_tokens": requests * OUTPUT,
        "settings": len(settings),
        "cpu_s": round(time.process_time() - began, 2),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def tables() -> str:
    """Return the page's tables from what was measured, as Markdown."""
    lines = ["| shared drafters | settings | output tokens | memory | CPU time |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| `{one['drafter']}`, {one['concurrency']} at a time | {one['settings']} | {one['output_tokens']:,} "
        f"| {one['peak_rss_mib']:,} MiB | {one['cpu_s']:.1f} s |"
        for one in _read(RESULT.name)
    ]
    found = _read("replay.json")
    lines += ["", "| beside the engine's own code, one thread | settings | engine | replay | times less |"]
    lines += ["|---|---:|---:|---:|---:|"]
    lines += [
        f"| vLLM's n-gram, contexts of {one['context']:,} tokens, {one['output_tokens']:,} output tokens "
        f"| {one['settings']} | {one['vllm_cpu_s']:.2f} s | {1000 * one['draftworth_cpu_s']:.1f} ms "
        f"| {one['times_less']:.0f} |"
        for one in found["beside_vllm"]
    ]
    lines += [
        f"| Arctic Inference's suffix decoding, {one['trace']}, {one['outputs']:,} output tokens "
        f"| {one['grid_settings']} | {one['arctic_loop_grid_s']:.1f} s | {1000 * one['grid_s']:.0f} ms "
        f"| {one['grid_loop_times']:.0f} |"
        for one in _read("replay_suffix.json")["rows"]
    ]
    spans = [f"{one['ns_per_token']:.0f} ns of {one['tokens']:,}" for one in found["by_length"]]
    large = found["large_trace"]
    lines += [
        "",
        (
            "By length, `vllm-ngram-v1`, the 64 settings of its grid in one pass, time a token of a request: "
            f"{', '.join(spans)} tokens. So the time grows with the tokens, and beyond the caches somewhat faster. "
            f"A trace of {large['tokens']:,} tokens takes {large['cpu_s']:.0f} s and {large['peak_rss_mib']} MiB."
        ),
        "",
    ]
    return "\n".join(lines)


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text("utf-8"))


def main() -> int:
    """Measure, keep it and write the tables."""
    if sys.argv[1:2] == ["--case"]:
        sys.stdout.write(json.dumps(measure(*CASES[int(sys.argv[2])][:3], grid=CASES[int(sys.argv[2])][3])))
        return 0
    if "--docs" not in sys.argv:
        found = []
        for at in range(len(CASES)):
            command = [sys.executable, "-m", "benchmarks.replay_memory", "--case", str(at)]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            found.append(json.loads(done.stdout))
        RESULT.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    head, mark, rest = PAGE.read_text("utf-8").partition(BEGIN)
    if not mark:
        raise SystemExit(f"{PAGE}: no line {BEGIN.strip()}")
    PAGE.write_text(f"{head}{BEGIN}{tables()}{END}{rest.partition(END)[2]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
