"""Requests that continue each other, and cutting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftworth.training.samples import Sample, chained, cut
from draftworth.training.sources.base import Ids


def ids(prompt: list[int], output: list[int], *, exact: bool = True) -> Ids:
    return Ids(np.array(prompt, np.int32), np.array(output, np.int32), -1, exact)


def test_the_next_turn_carries_the_first_ones_answer() -> None:
    first, second, other = ids([1, 2], [3, 4]), ids([1, 2, 3, 4, 5], [6]), ids([1, 9], [8])
    made = chained([first, second, other], [0, 0, 0])
    assert [(at, one.ids.tolist(), one.mask.tolist()) for at, one in made] == [
        (1, [1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 1]),
        (2, [1, 9, 8], [0, 0, 1]),
    ]


def test_a_request_that_is_not_exact_makes_the_whole_sample_so() -> None:
    ((_, one),) = chained([ids([1], [2], exact=False), ids([1, 2, 3], [4])], [0, 0])
    assert not one.exact


def test_what_is_left_out_stays_so() -> None:
    ((_, one),) = chained([ids([1], [2, 3, 4])], [2])
    assert one.mask.tolist() == [0, 0, 0, 1]


small = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@given(st.lists(st.tuples(small, small), min_size=1, max_size=8))
def test_every_learned_token_is_there_once_in_its_own_context(pairs: list[tuple[list[int], list[int]]]) -> None:
    requests = [ids(prompt, output) for prompt, output in pairs]
    made = [one for _, one in chained(requests, [0] * len(requests))]
    wanted = {
        tuple([*prompt, *output][: at + 1])
        for prompt, output in pairs
        for at in range(len(prompt), len(prompt) + len(output))
    }
    found = [tuple(one.ids[: at + 1].tolist()) for one in made for at in np.flatnonzero(one.mask)]
    assert set(found) == wanted
    # No sample is the beginning of another one.
    texts = [one.ids.tolist() for one in made]
    assert not any(a is not b and b[: len(a)] == a for a in texts for b in texts)


def test_a_sample_is_cut_at_its_end_and_never_to_nothing() -> None:
    sample = Sample(np.arange(6, dtype=np.int32), np.array([0, 0, 0, 1, 1, 1], np.uint8), exact=True)
    assert cut(sample, 6) is sample
    short = cut(sample, 4)
    assert short is not None
    assert (short.ids.tolist(), short.mask.tolist(), short.learned) == ([0, 1, 2, 3], [0, 0, 0, 1], 1)
    assert cut(sample, 3) is None
