"""How fast vLLM's suffix drafter is replayed, beside Arctic Inference's own code over the same trace.

    python benchmarks/replay_suffix.py --arctic-python PATH [--arctic-path DIR] [--out FILE]

PATH is a Python that can import `arctic_inference.suffix_decoding` 0.1.1 (DIR is put on its path). Three things are run
in turn, three times, and the fastest counts, in CPU seconds: the replay; a plain loop over SuffixDecodingCache as vLLM
makes it; Arctic's simulator (`suffix_decode`, drafting paths). Drafts of the replay and of vLLM's loop are compared
token by token. The grid's time is compared with the loop's time for one setting of it after the other.

Two traces: edits of source code (this repository's, cut into words and marks: most of an answer is in its prompt), and
text without repeats of more than chance, where there is little to draft.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

RESULT = Path(__file__).parent / "results" / "replay_suffix.json"
REPEATS = 3
REQUESTS, PROMPT, OUTPUT = 20, 4000, 1000
DEPTH, CACHED = 24, 10_000
Requests = list[tuple[NDArray[np.int32], NDArray[np.int32]]]


def code_edits(seed: int) -> Requests:
    """Return prompts of source code and answers that copy it with changes."""
    rolls = np.random.default_rng(seed)
    names: dict[str, int] = {}
    words: list[int] = []
    for path in sorted((Path(__file__).parents[1] / "src").rglob("*.py")):
        words += [names.setdefault(word, len(names)) for word in re.findall(r"\w+|\s+|[^\w\s]", path.read_text())]
    text = np.array(words, np.int32)
    requests = []
    for _ in range(REQUESTS):
        start = int(rolls.integers(len(text) - PROMPT))
        prompt = text[start : start + PROMPT]
        answer: list[int] = []
        at = int(rolls.integers(PROMPT // 2))
        while len(answer) < OUTPUT:
            run = int(rolls.geometric(0.05))
            answer += prompt[at : at + run].tolist()
            answer += text[rolls.integers(len(text), size=rolls.integers(1, 4))].tolist()
            at = (at + run) % (PROMPT // 2)
        requests.append((prompt, np.array(answer[:OUTPUT], np.int32)))
    return requests


def chance(seed: int) -> Requests:
    """Return tokens that are drawn alike from Zipf's law."""
    rolls = np.random.default_rng(seed)
    draw = (rolls.zipf(1.3, size=(REQUESTS, PROMPT + OUTPUT)) % 32_000).astype(np.int32)
    return [(row[:PROMPT], row[PROMPT:]) for row in draw]


def arctic_loop(requests: Requests, k: int, factor: float, least: float) -> tuple[float, str]:
    """Step Arctic's cache as vLLM's proposer does, one request after the other; return CPU seconds and a digest."""
    from arctic_inference.suffix_decoding import SuffixDecodingCache  # type: ignore[import-not-found] # noqa: PLC0415

    whole = [np.concatenate(pair) for pair in requests]
    digest = hashlib.sha256()
    began = time.process_time()
    cache = SuffixDecodingCache(max_tree_depth=DEPTH, max_cached_requests=CACHED)
    drafts = []
    for number, (prompt, output) in enumerate(requests):
        tokens, end, known, at = whole[number], len(whole[number]), len(prompt), len(prompt) + 1
        answer = output.tolist()
        cache.start_request(number, prompt)
        while True:
            cache.add_active_response(number, tokens[known:at])
            if at >= end:
                break
            draft = cache.speculate(
                number,
                tokens[max(0, at - DEPTH) : at],
                max_spec_tokens=k,
                max_spec_factor=factor,
                min_token_prob=least,
            ).token_ids
            drafts.append(draft)
            rest = answer[at - len(prompt) : at - len(prompt) + len(draft)]
            agreed = 0
            while agreed < len(rest) and rest[agreed] == draft[agreed]:
                agreed += 1
            known, at = at, min(at + agreed + 1, end)
        cache.stop_request(number)
    took = time.process_time() - began
    for draft in drafts:
        digest.update(np.array([len(draft), *draft], np.int32).tobytes())
    return took, digest.hexdigest()


def arctic_simulator(requests: Requests, k: int, factor: float, least: float) -> float:
    """Run Arctic's simulator over the requests; return CPU seconds."""
    for name in ("pandas", "tqdm", "transformers"):  # imported for reading files, which is not measured
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["pandas"].DataFrame = object  # type: ignore[attr-defined]
    sys.modules["tqdm"].tqdm = sys.modules["transformers"].AutoTokenizer = object  # type: ignore[attr-defined]
    from arctic_inference.suffix_decoding import SuffixDecodingCache  # noqa: PLC0415
    from arctic_inference.suffix_decoding.simulator import suffix_decode  # type: ignore[import-not-found] # noqa: PLC0415

    began = time.process_time()
    cache = SuffixDecodingCache(max_tree_depth=DEPTH, max_cached_requests=CACHED)
    for number, (prompt, output) in enumerate(requests):
        suffix_decode(cache, number, prompt, output, k, factor, least, use_tree_spec=False, use_cached_prompt=True)
    return time.process_time() - began


def worker(trace: Path) -> None:
    """Run Arctic's code once for each setting of a file; print what it took."""
    job = json.loads(trace.read_text())
    requests = [(np.array(prompt, np.int32), np.array(output, np.int32)) for prompt, output in job["requests"]]
    loops = [arctic_loop(requests, *setting) for setting in job["settings"]]
    print(json.dumps({"loop": loops, "simulator": arctic_simulator(requests, *job["settings"][0])}))


def ours(requests: Requests, *, grid: bool) -> tuple[float, list[tuple[int, float, float]], list[str]]:
    """Replay the requests; return CPU seconds, the settings and their drafts' digests."""
    from draftworth.drafters.base import Limits  # noqa: PLC0415
    from draftworth.drafters.vllm_suffix import VLLMSuffix  # noqa: PLC0415
    from draftworth.traces.base import TraceBatch  # noqa: PLC0415

    count = len(requests)
    lengths = [len(prompt) + len(output) for prompt, output in requests]
    batch = TraceBatch(
        request_ids=[str(number) for number in range(count)],
        tokens=np.concatenate([part for pair in requests for part in pair]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=np.array([len(prompt) for prompt, _ in requests], np.int32),
        thinking=np.full(count, -1, np.int32),
        categories=[""] * count,
        temperatures=np.full(count, np.nan),
        exact=np.ones(count, bool),
    )
    drafter = VLLMSuffix()
    settings = drafter.grid() if grid else drafter.settings()
    groups = np.zeros((count, 2), np.int32)
    drafter.session(settings, Limits()).feed(batch, groups, 1)  # compiled, or read from the disk
    began = time.process_time()
    drafter.session(settings, Limits()).feed(batch, groups, 1)
    took = time.process_time() - began
    _, record = drafter.session(settings, Limits()).drafts(batch)
    digests = []
    for rows in record:
        digest = hashlib.sha256()
        for row in rows[rows[:, 0] >= 0]:
            digest.update(row[: row[0] + 1].tobytes())
        digests.append(digest.hexdigest())
    names = ("suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob")
    return took, [(one.k, one.more[names[0]], one.more[names[1]]) for one in settings], digests


def measure(name: str, requests: Requests, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return one trace's row."""
    one = min(ours(requests, grid=False)[0] for _ in range(REPEATS))
    grids = [ours(requests, grid=True) for _ in range(REPEATS)]
    grid = min(took for took, _, _ in grids)
    _, settings, digests = grids[0]
    _, default, default_digest = ours(requests, grid=False)
    job = {
        "requests": [[prompt.tolist(), output.tolist()] for prompt, output in requests],
        "settings": [*default, *settings],
    }
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        environment = {**os.environ, "PYTHONPATH": str(arguments.arctic_path or "")}
        for _ in range(REPEATS):
            command = [arguments.arctic_python, str(Path(__file__).resolve()), "--worker", str(path)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            runs.append(json.loads(done.stdout))
    equal = [digest for _, digest in runs[0]["loop"]] == [*default_digest, *digests]
    if not equal:
        raise SystemExit(f"{name}: the drafts differ from Arctic's")
    loop = min(run["loop"][0][0] for run in runs)
    simulator = min(run["simulator"] for run in runs)
    loops = min(sum(took for took, _ in run["loop"][1:]) for run in runs)
    return {
        "trace": name,
        "tokens": sum(len(prompt) + len(output) for prompt, output in requests),
        "outputs": sum(len(output) for _, output in requests),
        "one_setting_s": one,
        "arctic_loop_s": loop,
        "arctic_simulator_s": simulator,
        "loop_times": loop / one,
        "simulator_times": simulator / one,
        "grid_settings": len(settings),
        "grid_s": grid,
        "arctic_loop_grid_s": loops,
        "grid_loop_times": loops / grid,
        "drafts_equal": equal,
    }


def main() -> None:
    """Measure both traces and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arctic-python")
    parser.add_argument("--arctic-path", type=Path)
    parser.add_argument("--worker", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker)
        return
    if not arguments.arctic_python:
        raise SystemExit("give --arctic-python: a Python that has arctic-inference 0.1.1")
    from draftworth.bench.machine import machine  # noqa: PLC0415

    rows = [measure(name, make(1), arguments) for name, make in (("code edits", code_edits), ("chance", chance))]
    result = {"machine": machine(), "repeats": REPEATS, "rows": rows}
    arguments.out.write_text(json.dumps(result, indent=2, default=str) + "\n")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
