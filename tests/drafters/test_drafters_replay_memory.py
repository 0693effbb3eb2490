"""Memory of a replay: bounded whatever the trace's length and the number of its requests."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from draftworth.drafters import drafter
from draftworth.drafters.base import Limits
from draftworth.drafters.replay import replay
from draftworth.predict.requests import replay_requests
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch

_EACH = 40


class Endless:
    """So many requests of 40 tokens, half of them output, made as they are read; every category is new for a while."""

    def __init__(self, requests: int) -> None:
        self.path = Path("endless.parquet")
        self.bad = BadRows()
        self.requests: int | None = requests
        self._total = requests

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        rng = np.random.default_rng(0)
        for first in range(0, self._total, tokens // _EACH):
            count = min(tokens // _EACH, self._total - first)
            yield TraceBatch(
                request_ids=[f"request-{first + at}" for at in range(count)],
                tokens=rng.integers(0, 50, count * _EACH, dtype=np.int32),
                offsets=np.arange(count + 1, dtype=np.int64) * _EACH,
                prompt_lengths=np.full(count, _EACH // 2, dtype=np.int32),
                thinking=np.full(count, 5, dtype=np.int32),
                categories=[f"c{min((first + at) % 1000, 300)}" for at in range(count)],
                temperatures=np.zeros(count),
                exact=np.ones(count, dtype=np.bool_),
                first_row=first,
                model="smol",
            )


def peak_mb(requests: int) -> int:
    """Return the peak memory of a process that replays so many requests for 16 settings."""
    command = [sys.executable, __file__, str(requests)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=3000, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_six_times_the_requests_take_no_more_memory() -> None:
    assert peak_mb(150_000) < peak_mb(25_000) + 100


@pytest.mark.torture
@pytest.mark.timeout(3000)
def test_a_hundred_million_tokens_replay_in_less_than_two_gigabytes() -> None:
    assert peak_mb(2_500_000) < 2000


@dataclass
class Words:
    """So many requests of 50 prompt and 500 output tokens, as frequent as words; each in one of so many categories."""

    total: int
    categories: int = 1
    tokens: int = 550
    path: Path = Path("words.parquet")
    bad: BadRows = field(default_factory=BadRows)
    requests: int | None = None

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        del tokens
        rng = np.random.default_rng(0)
        yield TraceBatch(
            request_ids=[str(at) for at in range(self.total)],
            tokens=(rng.zipf(1.3, self.total * self.tokens) % 32_000).astype(np.int32),
            offsets=np.arange(self.total + 1, dtype=np.int64) * self.tokens,
            prompt_lengths=np.full(self.total, 50, dtype=np.int32),
            thinking=np.full(self.total, -1, dtype=np.int32),
            categories=[f"c{at % self.categories}" for at in range(self.total)],
            temperatures=np.zeros(self.total),
            exact=np.ones(self.total, dtype=np.bool_),
        )


BOUNDED = {
    # Each setting's trie alone takes 20 MiB, those of 36 settings 700.
    "sglang-ngram": 200,
    # The trees of 112 settings would take 750 MiB.
    "vllm-suffix": 300,
    # Tables of seven settings with k up to 1,024 take 56 MiB a category; there are 100.
    "categories": 400,
}
"""MiB that a replay may take beyond what the process has when it has replayed one request."""


@pytest.mark.parametrize("what", BOUNDED)
def test_a_grid_replays_in_the_memory_of_a_setting(what: str) -> None:
    command = [sys.executable, __file__, what]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done"


def _within(what: str) -> None:
    """Replay under a limit of the kernel's on the process's data."""
    shared = what in {"sglang-ngram", "vllm-suffix"}
    chosen = drafter(what if shared else "vllm-ngram-v1")
    settings = chosen.grid() if shared else chosen.settings(k=range(1018, 1025), min=[2], max=[4])
    limits = Limits(concurrency=8 if what == "vllm-suffix" else 1)
    trace = Words({"sglang-ngram": 16, "vllm-suffix": 40}[what]) if shared else Words(200, 100, 80)
    replay_requests(Words(1), chosen, settings[:1], limits)  # kernels are compiled
    held = next(line for line in Path("/proc/self/status").read_text("utf-8").splitlines() if "VmData" in line)
    most = int(held.split()[1]) * 1024 + BOUNDED[what] * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if what == "vllm-suffix":
        replayed, _ = replay_requests(trace, chosen, settings, limits)
    else:
        replayed = replay(trace, chosen, settings, limits)
    assert replayed.seen.requests == trace.total
    assert len(replayed.settings) == len(settings)
    assert sum(one.steps for one in replayed.settings[0].by_category.values()) == replayed.settings[0].total.steps
    sys.stdout.write("done")


def _measure(requests: int) -> None:
    ngram = drafter("vllm-ngram-v1")
    done = replay(Endless(requests), ngram, ngram.settings(k=[1, 2, 3, 5], min=[1, 2], max=[2, 3]), Limits())
    assert done.seen.requests == requests
    assert len(done.settings[0].by_category) == 101
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


if __name__ == "__main__":
    if sys.argv[1] in BOUNDED:
        _within(sys.argv[1])
    else:
        _measure(int(sys.argv[1]))
