"""Memory of a replay: bounded whatever the trace's length and the number of its requests."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from draftworth.drafters import drafter
from draftworth.drafters.base import Limits
from draftworth.drafters.replay import replay
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


def _measure(requests: int) -> None:
    ngram = drafter("vllm-ngram-v1")
    done = replay(Endless(requests), ngram, ngram.settings(k=[1, 2, 3, 5], min=[1, 2], max=[2, 3]), Limits())
    assert done.seen.requests == requests
    assert len(done.settings[0].by_category) == 101
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


if __name__ == "__main__":
    _measure(int(sys.argv[1]))
