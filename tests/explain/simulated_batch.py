"""A trial as a continuously batching engine would have measured it, whose every millisecond is known.

Slots are filled as requests end; a step costs T of its tokens plus the mode of its kind, with noise; a request's
prefill holds everybody up. It knows nothing of the code that explains.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Engine:
    """What an engine costs.

    Attributes:
        shared: F, scheduling.
        pieces: P, steps outside the full graph.
        sampling: R, verifying.
        hidden: how much of what pieces can hide under verification they do.
        a_token: T of N tokens is 10 + a_token x N, without stairs.
        prefill_ms: of one request, which all others wait for.
        noise: standard deviation of a step, as a share.
    """

    shared: float = 1.0
    pieces: float = 3.0
    sampling: float = 1.5
    hidden: float = 0.5
    a_token: float = 0.25
    prefill_ms: float = 0.0
    noise: float = 0.0

    def t(self, tokens: int) -> float:
        """Return T of a step."""
        return 10 + self.a_token * tokens

    def mode(self, drafts: list[int], k: int) -> float:
        """Return M of a step whose requests draft so many tokens each."""
        some, full = any(drafts), all(one == k for one in drafts)
        pieces = self.pieces - self.hidden * min(self.pieces, self.a_token * sum(drafts))
        return self.shared + (0 if some and full else pieces) + (self.sampling if some else 0)


@dataclass(frozen=True)
class Arm:
    """One arm: its configuration, the chance that a request drafts in a step, and how much of it is accepted."""

    config: dict[str, Any] | None
    coverage: float = 0.0
    accept: float = 0.0

    @property
    def k(self) -> int:
        """Tokens of a draft."""
        return int(self.config["num_speculative_tokens"]) if self.config else 0


@dataclass
class Truth:
    """What an arm's steps truly held, in milliseconds a token, means over requests."""

    mode: float
    verify: float
    gained: float


def write(
    folder: Path, engine: Engine, arms: Mapping[str, Arm], *, batch: int, requests: int, seed: int
) -> dict[str, Truth]:
    """Write the trial; the first arm is the baseline. Returns the truth of the others."""
    random = np.random.default_rng(seed)
    lengths = random.integers(40, 160, requests)
    rows: list[dict[str, Any]] = []
    records, truths = [], {}
    for block, (name, arm) in enumerate(arms.items(), 1):
        found = _run(engine, arm, lengths, batch, np.random.default_rng([seed, block]))
        truths[name] = found[2]
        records.append(
            {
                "name": name,
                "engine": "vllm",
                "version": "0.25.0",
                "runner": "V1",
                "declared": {"speculative_config": arm.config},
                "acceptance": {**found[1], "source": "simulated"},
            }
        )
        rows += [
            {
                "arm": name,
                "point": "",
                "block": block,
                "start": 1,
                "repeat": 1,
                "prompt_id": f"p{number}",
                "category": "",
                "started_unix": float(number),
                "ok": True,
                "token_source": "usage",
                "retries": 0,
                "prompt_tokens": 100,
                "tokens": int(length) + 1,
                "decode_ms": ms,
                "tpot_ms": ms / length,
                "ttft_ms": first,
            }
            for number, (length, ms, first) in enumerate(zip(lengths, *found[0], strict=True))
        ]
    folder.mkdir(parents=True)
    record = {
        "schema_version": 2,
        "id": folder.name,
        "draftworth": "0",
        "created": folder.name,
        "verdict": "inconclusive",
        "reason": "",
        "restored": True,
        # What starts differ by is nothing here: one engine ran all arms.
        "config": {
            "workload": {"concurrency": [batch]},
            "verdict": {"restart_sd_baseline": 0.0, "restart_sd_variant": 0.0},
        },
        "arms": records,
    }
    (folder / "trial.json").write_text(json.dumps(record))
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    return truths


def _run(
    engine: Engine, arm: Arm, lengths: "np.ndarray[Any, Any]", batch: int, random: np.random.Generator
) -> tuple[tuple[list[float], list[float]], dict[str, int], Truth]:
    waiting = list(range(len(lengths)))
    left: dict[int, int] = {}
    spent, first = [0.0] * len(lengths), [0.0] * len(lengths)
    mode, verify, steps = ([0.0] * len(lengths) for _ in range(3))
    total = dict.fromkeys(("steps", "emitted", "drafting_steps", "drafted", "accepted"), 0)
    while waiting or left:
        while waiting and len(left) < batch:
            new = waiting.pop(0)
            first[new] = engine.prefill_ms + engine.t(batch)
            for other in left:
                spent[other] += engine.prefill_ms
            left[new] = int(lengths[new])
        drafts = [arm.k if arm.config and random.random() < arm.coverage else 0 for _ in left]
        tokens = sum(1 + one for one in drafts)
        m = engine.mode(drafts, arm.k) if arm.config else 0.0
        v = engine.t(tokens) - engine.t(len(left))
        step = (engine.t(len(left)) + v + m) * (1 + engine.noise * random.standard_normal())
        for (number, rest), drafted in zip(list(left.items()), drafts, strict=True):
            accepted = min(int(random.binomial(drafted, arm.accept)) if drafted else 0, rest - 1)
            spent[number] += step
            mode[number] += m
            verify[number] += v
            steps[number] += 1
            total["steps"] += 1
            total["drafting_steps"] += drafted > 0
            total["drafted"] += drafted
            total["accepted"] += accepted
            total["emitted"] += 1 + accepted
            left[number] = rest - 1 - accepted
            if left[number] <= 0:
                del left[number]
    each = np.array([mode, verify, steps]) / lengths
    truth = Truth(float(each[0].mean()), float(each[1].mean()), float((each[2].mean() - 1) * engine.t(batch)))
    return (spent, first), total, truth
