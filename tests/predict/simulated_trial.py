"""A trial as a simulated engine would have measured it: known step costs, real drafts, one stream.

Steps come from the plain replay of tests/drafters/naive.py with a lookup of its own, and not from the code that
predicts. A suffix arm drafts with the drafter itself, one request after the other as its server was asked.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.drafters.naive import Step, one_step, steps_of

from draftworth.drafters.base import Limits
from draftworth.drafters.vllm_suffix import VLLMSuffix
from draftworth.traces.base import TraceBatch

if TYPE_CHECKING:
    from draftworth.drafters.suffix_session import SuffixSession

T = {1: 10.0, 2: 12.0, 4: 15.0, 8: 21.0}
"""T of a step: that of the next captured size; ms."""
IDLE, DRAFTING, MIXED = 2.0, 4.5, 5.0
"""Engine mode of steps that draft nothing, as much as they may, and less: 1 ms each has, 1 ms for a graph in pieces,
of which half hides under what verification takes, and 3.5 ms for rejection sampling (`draftworth.costs.graphs`)."""


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


def texts(requests: int, seed: int = 0, *, mixed: bool = False) -> list[tuple[list[int], list[int]]]:
    """Return prompts and outputs that repeat passages of the prompt and of themselves.

    Args:
        requests: how many.
        seed: of the text.
        mixed: whether outputs differ in length, the long ones repeating most: tokens weigh them up, prompts do not.
    """
    random = np.random.default_rng(seed)
    found = []
    for number in range(requests):
        length = (24 if number % 2 else 240) if mixed else 110
        prompt = random.integers(0, 400, int(random.integers(30, 90))).tolist()
        output: list[int] = random.integers(0, 400, 3).tolist()
        while len(output) < length:
            known = prompt + output
            copies = random.random() < random.uniform(0.2, 0.8)
            if (number % 2 == 0) if mixed else copies:
                at = int(random.integers(0, len(known) - 8))
                output += known[at : at + int(random.integers(3, 9))]
            else:
                output += random.integers(0, 400, int(random.integers(1, 6))).tolist()
        found.append((prompt, output[:length]))
    return found


def step_ms(step: Step, k: int | None) -> float:
    """Return what a step costs; k is None without speculation."""
    base = T[min(size for size in T if size >= 1 + step.drafted)]
    return base + (0 if k is None else IDLE if not step.drafted else DRAFTING if step.drafted == k else MIXED)


class Server:
    """A server of an arm: what it drafts, from what it was asked since it started."""

    def __init__(self, config: dict[str, Any] | None) -> None:
        self._config = config
        self._suffix: SuffixSession | None = None

    def restart(self) -> None:
        """Forget everything."""
        self._suffix = None

    def steps(self, prompt: list[int], output: list[int]) -> list[Step]:
        """Answer one request, alone."""
        config = self._config
        if config is None:
            return [Step(at, 0, 0, 1) for at in range(1, len(output))]
        k = config["num_speculative_tokens"]
        if config["method"] == "suffix":
            return self._by_suffix(prompt, output, k)
        low, high = config["prompt_lookup_min"], config["prompt_lookup_max"]
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

    def _by_suffix(self, prompt: list[int], output: list[int], k: int) -> list[Step]:
        """Answer with the released drafter's own drafts (tests/drafters shows that they are)."""
        if self._suffix is None:
            self._suffix = VLLMSuffix().session(VLLMSuffix().settings(k=[k]), Limits())
        batch = TraceBatch(
            request_ids=["0"],
            tokens=np.array(prompt + output, np.int32),
            offsets=np.array([0, len(prompt) + len(output)], np.int64),
            prompt_lengths=np.array([len(prompt)], np.int32),
            thinking=np.array([-1], np.int32),
            categories=[""],
            temperatures=np.array([np.nan]),
            exact=np.ones(1, bool),
        )
        drafts = self._suffix.drafts(batch)[1][0]
        found, at = [], 1
        while at < len(output):
            length = int(drafts[at, 0])
            found.append(one_step(output, at, drafts[at, 1 : length + 1].tolist()))
            at += found[-1].emitted
        return found


class Tally:
    """An arm's counts, as an engine adds them up."""

    def __init__(self) -> None:
        self.total = dict.fromkeys(("steps", "emitted", "drafting_steps", "drafted", "accepted"), 0)

    def add(self, steps: Sequence[Step]) -> None:
        """Add a request."""
        self.total["steps"] += len(steps)
        for step in steps:
            self.total["emitted"] += step.emitted
            self.total["drafting_steps"] += step.drafted > 0
            self.total["drafted"] += step.drafted
            self.total["accepted"] += step.accepted

    @property
    def counts(self) -> dict[str, Any]:
        """For a record."""
        return {**self.total, "source": "simulated"}


def spec_stats(steps: Sequence[Step], k: int) -> str:
    """Return what vLLM tells of one answer in its summary."""
    drafting = [step for step in steps if step.drafted]
    return json.dumps(
        {
            "num_spec_steps": len(drafting),
            "num_draft_tokens": sum(step.drafted for step in drafting),
            "num_accepted_draft_tokens": sum(step.accepted for step in drafting),
            "acceptance_histogram": [sum(step.accepted == j for step in drafting) for j in range(k + 1)],
        }
    )


def simulated(
    folder: Path,
    arms: Mapping[str, dict[str, Any] | None],
    requests: int = 40,
    *,
    mixed: bool = False,
    legs: int = 1,
    points: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Path:
    """Write the trial; the first arm is the baseline, `synthetic` ones draft k tokens in every second step.

    Args:
        folder: where.
        arms: name to what its server was started with.
        requests: prompts.
        mixed: see `texts`.
        legs: how often the baseline is started: 2 for A-B-A.
        points: of a sweep, label to the most tokens of an answer, all of one concurrency and in one start. Counts are
            the arm's alone then, beside those that each answer tells.
        seed: of the text.
    """
    some = texts(requests, seed, mixed=mixed)
    tallies = {name: Tally() for name in arms}
    names = list(arms)
    rows: list[dict[str, Any]] = []
    for block, name in enumerate([*names, *names[:1] * (legs - 1)], 1):
        config, server = arms[name], Server(arms[name])
        k = None if config is None else int(config["num_speculative_tokens"])
        for label, most in (points or {"": 10**6}).items():
            # Another arm is asked in another order: what it learned is its own.
            order = range(requests) if config is None else reversed(range(requests))
            for number in order:
                prompt, output = some[number][0], some[number][1][:most]
                steps = server.steps(prompt, output)
                ms = sum(step_ms(step, k) for step in steps)
                tallies[name].add(steps)
                rows.append(
                    {
                        "arm": name,
                        "point": label,
                        "block": block,
                        "start": 1 if block <= len(names) else block - len(names) + 1,
                        "repeat": 1,
                        "prompt_id": f"p{number}",
                        "category": "code" if number % 2 else "chat",
                        "started_unix": 1e9 + len(rows),
                        "ok": True,
                        "token_source": "token_ids",
                        "retries": 0,
                        "prompt_tokens": len(prompt),
                        "tokens": len(output),
                        "decode_ms": ms,
                        "tpot_ms": ms / (len(output) - 1),
                        "prompt_token_ids": prompt,
                        "token_ids": output,
                        "spec_stats": spec_stats(steps, config["num_speculative_tokens"])
                        if points and config is not None
                        else None,
                    }
                )
    folder.mkdir(parents=True)
    record = {
        "schema_version": 2,
        "id": folder.name,
        "draftworth": "0",
        "created": folder.name,
        "verdict": "inconclusive",
        "reason": "",
        "restored": True,
        "config": {"workload": {"concurrency": [1]}},
        "arms": [
            {
                "name": name,
                "engine": "vllm",
                "version": "0.32.0",
                "runner": "V1",
                "declared": {"speculative_config": config},
                "acceptance": tallies[name].counts,
                "points": [
                    {
                        "label": label,
                        "concurrency": 1,
                        "max_tokens": most,
                        "requests": requests,
                        "failed": 0,
                        "retried": 0,
                    }
                    for label, most in (points or {}).items()
                ],
            }
            for name, config in arms.items()
        ],
    }
    (folder / "trial.json").write_text(json.dumps(record))
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    return folder
