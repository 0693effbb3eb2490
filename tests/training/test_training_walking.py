"""The walk of chain drafting, against a naive one that asks the drafter only where a server would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.training.workers.walking import Part, Walked, anchors, matches, spans, walk


def naive(drafts: dict[int, list[int]], tokens: list[int], mask: list[bool], k: int) -> tuple[int, int, int]:
    """Return steps, accepted, emitted: token by token, answer by answer."""
    steps = accepted = emitted = 0
    at = 0
    while at < len(tokens):
        if not mask[at]:
            at += 1
            continue
        end = at
        while end < len(tokens) and mask[end]:
            end += 1
        sure = max(at, 1)  # the last token that is known before a step: the prefill made it
        while sure < end - 1:
            steps += 1
            drafted = drafts[sure - 1][:k]
            run = 0
            while run < len(drafted) and sure + 1 + run < end and drafted[run] == tokens[sure + 1 + run]:
                run += 1
            accepted += run
            emitted += min(run + 1, end - 1 - sure)
            sure += run + 1
        at = end
    return steps, accepted, emitted


def test_a_perfect_draft_emits_k_and_one_a_step() -> None:
    tokens = np.arange(20)
    mask = np.arange(20) >= 3  # 17 tokens written: 1 by the prefill, 16 to draft
    where = anchors(mask)
    drafts = where[:, None] + 2 + np.arange(3)
    walked = walk(matches(drafts, tokens, where), where, mask, 3)
    assert where[0] == 2
    assert (walked.steps, walked.full, walked.accepted, walked.emitted) == (4, 4, 12, 16)
    assert walked.length == 4.0
    assert walked.at.tolist() == [4, 4, 4]


def test_a_step_that_the_end_cuts_off_is_not_in_the_length() -> None:
    tokens = np.arange(8)
    mask = np.arange(8) >= 2  # 5 to draft with k = 3: a full step of 4, then one that sees a single token
    where = anchors(mask)
    walked = walk(matches(where[:, None] + 2 + np.arange(3), tokens, where), where, mask, 3)
    assert (walked.steps, walked.full, walked.accepted) == (2, 1, 4)
    assert walked.length == 4.0


def test_a_server_that_stops_has_verified_what_it_cut_off() -> None:
    tokens = np.arange(12)
    mask = (np.arange(12) >= 2) & (np.arange(12) < 8)
    where = anchors(mask)
    walked = walk(matches(where[:, None] + 2 + np.arange(3), tokens, where), where, mask, 3, known=12)
    assert (walked.steps, walked.full, walked.accepted, walked.emitted) == (2, 2, 6, 5)


def test_without_a_full_step_there_is_no_length() -> None:
    assert Walked(3).length is None


def test_answers_of_one_and_none_tokens_have_no_step() -> None:
    assert spans(np.array([False, True, False, True, True])) == [(1, 2), (3, 5)]
    assert anchors(np.array([False, True, False])).tolist() == []
    assert anchors(np.array([True, True, True])).tolist() == [0]


@given(st.data())
def test_as_a_naive_walk(data: st.DataObject) -> None:
    length = data.draw(st.integers(2, 40))
    tokens = np.array(data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=length, max_size=length)))
    k = data.draw(st.integers(1, 4))
    where = anchors(mask)
    table = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 2), min_size=k, max_size=k), min_size=length, max_size=length))
    )
    walked = walk(matches(table[where], tokens, where), where, mask, k) if len(where) else Walked(k)
    drafts = {at: table[at].tolist() for at in where.tolist()}
    if mask[0] and length > 1 and not mask[1]:
        return
    assert (walked.steps, walked.accepted, walked.emitted) == naive(drafts, tokens.tolist(), mask.tolist(), k)
    if walked.length is not None:
        assert walked.length == pytest.approx(1 + walked.at.sum() / walked.full)


def test_parts_add_walks_up_and_tell_the_tokens_half_way_an_answer() -> None:
    assert Part((3,)).half_way is None
    part = Part((3,))
    tokens = np.arange(20)
    for first in (3, 10):
        mask = np.arange(20) >= first
        where = anchors(mask)
        part.add(mask, {3: walk(matches(where[:, None] + 2 + np.arange(3), tokens, where), where, mask, 3)})
    # Answers from 3 to 20 and from 10 to 20: their middles are at 11.5 and 15.
    assert part.half_way == 13
    (counts,) = part.counts()
    assert (counts["steps"], counts["emitted"]) == (4 + 3, 16 + 9)
