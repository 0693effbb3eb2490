"""The drafts are those of llama.cpp's released code, token by token, as benchmarks/llamacpp_drafts.py recorded them."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.llamacpp_drafts import DRAFTERS, PARAMETERS
from tests.drafters.llamacpp_batches import batch_of, replayed, rows_of

from draftworth.drafters import drafter
from draftworth.drafters.base import Limits, Setting

DATA = Path(__file__).parent / "data" / "llamacpp_drafts.npz"
Case = tuple[list[int], list[tuple[list[int], list[int]]], list[list[int]]]


def cases(which: int) -> list[Case]:
    """Return each of a drafter's cases: its head, its requests, its steps."""
    with np.load(DATA) as data:
        heads, requests, steps = data["cases"], data["requests"], data["steps"]
        bodies, ends = data["requests_at"], data["steps_at"]
    found = []
    for at in np.flatnonzero(heads[:, 0] == which):
        rest = requests[bodies[at] : bodies[at + 1]].tolist()
        count, rest = rest[0], rest[1:]
        pairs = []
        for _ in range(count):
            prompt, output, rest = rest[0], rest[1], rest[2:]
            pairs.append((rest[:prompt], rest[prompt : prompt + output]))
            rest = rest[prompt + output :]
        found.append((heads[at].tolist(), pairs, rows_of(steps[ends[at] : ends[at + 1]])))
    return found


def setting_of(which: int, values: list[int]) -> Setting:
    """Return the setting that has these parameters."""
    named = {name: [value] for name, value in zip(PARAMETERS[which], values, strict=True) if name}
    k = named.pop("size_m", None) or named.pop("n_max", None)
    [setting] = drafter(DRAFTERS[which]).settings(k=k, more=named)
    return setting


@pytest.mark.parametrize("which", range(len(DRAFTERS)), ids=DRAFTERS)
def test_drafts_are_the_released_codes(which: int) -> None:
    recorded = cases(which)
    assert len(recorded) == 50
    drafted = 0
    for number, (head, requests, steps) in enumerate(recorded):
        _, slots, n_ctx, *values = head
        limits = Limits(max_model_len=n_ctx, concurrency=slots)
        batch = batch_of(requests)
        counts, drafts = replayed(DRAFTERS[which], [setting_of(which, values)], limits, batch)
        assert drafts[0] == steps, f"case {number}"
        joint = np.zeros_like(counts.joint[0, 0])
        for _, _, proposed, accepted, *_ in steps:
            joint[proposed, accepted] += 1
            drafted += proposed > 0
        assert (counts.joint[0, 0] == joint).all()
        assert counts.steps[0].tolist() == [sum(step[0] == r for step in steps) for r in range(len(batch))]
    assert drafted > 900
