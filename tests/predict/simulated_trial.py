"""A trial as a simulated engine would have measured it: known step costs, real drafts, one stream.

Steps come from the plain replay of tests/drafters/naive.py with a lookup of its own, and not from the code that
predicts.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.drafters.naive import Step, steps_of

T = {1: 10.0, 2: 12.0, 4: 15.0, 8: 21.0}
"""T of a step: that of the next captured size; ms."""
IDLE, DRAFTING = 2.0, 4.5
"""Engine mode of steps that draft nothing and of steps that do; ms."""


def ngram(k: int, low: int, high: int, **more: object) -> dict[str, Any]:
    """Return vLLM's configuration."""
    return {
        "method": "ngram",
        "num_speculative_tokens": k,
        "prompt_lookup_min": low,
        "prompt_lookup_max": high,
        **more,
    }


def lookup(context: Sequence[int], k: int, low: int, high: int) -> list[int]:
    """Draft as vLLM's V1 runner says it does: the longest n-gram, its earliest earlier occurrence."""
    for n in range(min(high, len(context) - 1), low - 1, -1):
        wanted = list(context[-n:])
        for start in range(len(context) - n):
            if list(context[start : start + n]) == wanted:
                return list(context[start + n : start + n + k])
    return []


def texts(requests: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Return prompts and outputs that repeat passages of the prompt and of themselves."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(requests):
        prompt = random.integers(0, 400, int(random.integers(30, 90))).tolist()
        output: list[int] = random.integers(0, 400, 3).tolist()
        while len(output) < 110:
            known = prompt + output
            if random.random() < random.uniform(0.2, 0.8):
                at = int(random.integers(0, len(known) - 8))
                output += known[at : at + int(random.integers(3, 9))]
            else:
                output += random.integers(0, 400, int(random.integers(1, 6))).tolist()
        found.append((prompt, output[:110]))
    return found


def step_ms(step: Step, *, speculates: bool) -> float:
    """Return what a step costs."""
    base = T[min(size for size in T if size >= 1 + step.drafted)]
    return base + (0 if not speculates else DRAFTING if step.drafted else IDLE)


def simulated(folder: Path, arms: Mapping[str, dict[str, Any] | None], requests: int = 40) -> Path:
    """Write the trial; the first arm is the baseline, `synthetic` ones draft k tokens in every second step."""
    some = texts(requests)
    record_arms, rows = [], []
    for block, (name, config) in enumerate(arms.items(), 1):
        total = dict.fromkeys(("steps", "emitted", "drafting_steps", "drafted", "accepted"), 0)
        for number, (prompt, output) in enumerate(some):
            steps = _steps(prompt, output, config)
            ms = sum(step_ms(step, speculates=config is not None) for step in steps)
            for key, value in zip(
                total,
                (
                    len(steps),
                    len(output) - 1,
                    sum(step.drafted > 0 for step in steps),
                    sum(step.drafted for step in steps),
                    sum(step.accepted for step in steps),
                ),
                strict=True,
            ):
                total[key] += value
            rows.append(
                {
                    "arm": name,
                    "point": "",
                    "block": block,
                    "repeat": 1,
                    "prompt_id": f"p{number}",
                    "category": "code" if number % 2 else "chat",
                    "ok": True,
                    "token_source": "token_ids",
                    "retries": 0,
                    "prompt_tokens": len(prompt),
                    "tokens": len(output),
                    "decode_ms": ms,
                    "tpot_ms": ms / (len(output) - 1),
                    "prompt_token_ids": prompt,
                    "token_ids": output,
                }
            )
        record_arms.append(
            {
                "name": name,
                "engine": "vllm",
                "runner": "V1",
                "declared": {"speculative_config": config},
                "acceptance": {**total, "source": "simulated"},
            }
        )
    folder.mkdir(parents=True)
    record = {
        "schema_version": 2,
        "id": folder.name,
        "draftworth": "0",
        "created": "2026",
        "verdict": "inconclusive",
        "reason": "",
        "restored": True,
        "config": {"workload": {"concurrency": [1]}},
        "arms": record_arms,
    }
    (folder / "trial.json").write_text(json.dumps(record))
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    return folder


def _steps(prompt: list[int], output: list[int], config: dict[str, Any] | None) -> list[Step]:
    if config is None:
        return [Step(at, 0, 0, 1) for at in range(1, len(output))]
    k, low, high = (config[name] for name in ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"))
    if "synthetic_acceptance_length" not in config:
        return steps_of(prompt, output, lambda context: lookup(context, k, low, high))
    found: list[Step] = []
    at = 1
    while at < len(output):
        drafts = len(found) % 2 == 0
        emitted = min(2 if drafts else 1, len(output) - at)
        found.append(Step(at, k if drafts else 0, emitted - 1, emitted))
        at += emitted
    return found
