"""vllm-suffix drafts what Arctic Inference 0.1.1 drafted: recorded drafts, and a slow reference written another way."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.drafters.base import ANSWER, THINKING, Limits, Setting
from draftworth.drafters.suffix_nodes import COUNT, HEAD, NEXT, ROOT
from draftworth.drafters.suffix_session import SuffixSession
from draftworth.drafters.suffix_tree import extend, grown, new_tree, remove
from draftworth.drafters.vllm_suffix import VLLMSuffix
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch

RECORDED = json.loads((Path(__file__).parent / "data" / "suffix_arctic.json").read_text())["cases"]
P = "suffix_decoding_"
Requests = list[tuple[list[int], list[int]]]
Drafts = list[dict[int, list[int]]]


def batch_of(requests: Requests, thinking: int = -1) -> TraceBatch:
    lengths = [len(prompt) + len(output) for prompt, output in requests]
    count = len(requests)
    return TraceBatch(
        request_ids=[str(at) for at in range(count)],
        tokens=np.array([token for prompt, output in requests for token in prompt + output], np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=np.array([len(prompt) for prompt, _ in requests], np.int32),
        thinking=np.full(count, thinking, np.int32),
        categories=[""] * count,
        temperatures=np.full(count, np.nan),
        exact=np.ones(count, bool),
    )


def setting(k: int, depth: int = 24, cached: int = 10_000, factor: float = 1.0, least: float = 0.1) -> Setting:
    more: dict[str, list[float]] = {
        f"{P}max_tree_depth": [depth],
        f"{P}max_cached_requests": [cached],
        f"{P}max_spec_factor": [factor],
        f"{P}min_token_prob": [least],
    }
    return VLLMSuffix().settings(k=[k], more=more)[0]


def drafts_of(requests: Requests, session: SuffixSession, at: int = 0) -> Drafts:
    _, record = session.drafts(batch_of(requests))
    found: Drafts = []
    row = 0
    for _, output in requests:
        rows = record[at, row : row + len(output)]
        found.append({done: one[1 : one[0] + 1].tolist() for done, one in enumerate(rows) if one[0] >= 0})
        row += len(output)
    return found


@pytest.mark.parametrize("case", RECORDED)
def test_drafts_are_those_arctic_made(case: dict[str, Any]) -> None:
    requests = [(prompt, output) for prompt, output in case["requests"]]
    one = setting(case["k"], case["depth"], case["cached"], case["factor"], case["least"])
    session = VLLMSuffix().session([one], Limits(case["max_model_len"], case["concurrency"]))
    expected = [{int(done): draft for done, draft in request.items()} for request in case["drafts"]]
    assert sum(len(draft) for request in expected for draft in request.values()) > 0
    assert drafts_of(requests, session) == expected


def times(texts: list[list[int]], string: list[int]) -> int:
    return sum(text[at : at + len(string)] == string for text in texts for at in range(len(text)))


def naive_path(texts: list[list[int]], match: list[int], cap: int) -> tuple[float, list[int]]:
    """Follow the most frequent token, counted afresh; the texts must have no ties that matter."""
    chance, score = np.float32(1), np.float32(0)
    draft: list[int] = []
    while len(draft) < cap:
        behind = [times(texts, [*match, *draft, token]) for token in range(100)]
        if not max(behind):
            break
        chance = np.float32(chance * (np.float32(max(behind)) / np.float32(times(texts, match + draft))))
        if chance < np.float32(0.1):
            break
        score = np.float32(score + chance)
        draft.append(behind.index(max(behind)))
    return float(score), draft


def naive_draft(texts: list[list[int]], context: list[int], k: int, depth: int) -> list[int]:
    best: tuple[float, list[int]] = (0.0, [])
    for length in range(1, min(len(context), depth)):
        if not times(texts, context[-length:]):
            break
        found = naive_path(texts, context[-length:], min(k, length, depth - length))
        best = found if found[0] >= best[0] else best
    return best[1]


def test_a_repeated_phrase_is_drafted_from_the_prompt_and_from_earlier_outputs() -> None:
    phrase = list(range(10, 30))
    requests = [([1, *phrase, 2], [3, *phrase]), ([4, 5], [6, *phrase])]
    drafts = drafts_of(requests, VLLMSuffix().session([setting(24)], Limits()))
    for (prompt, output), found in zip(requests, drafts, strict=True):
        texts = [prompt + output] if output[0] == 3 else [requests[0][1], prompt + output]
        for done, draft in found.items():
            known = [*texts[:-1], prompt + output[:done]]
            assert draft == naive_draft(known, prompt + output[:done], 24, 24)
    assert drafts[1][2] == [11]  # one token matched, so one is drafted
    assert drafts[0][1] == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 3), max_size=30), min_size=1, max_size=5), st.integers(2, 7), st.data())
def test_counts_are_those_of_the_substrings(texts: list[list[int]], depth: int, data: st.DataObject) -> None:
    tree = new_tree()
    text = np.array([token for one in texts for token in one] + [0], np.int32)
    seqs = np.zeros((len(texts), 3), np.int64)
    seqs[:, 0] = np.concatenate([[0], np.cumsum([len(one) for one in texts])])[:-1]
    left = [at for at, one in enumerate(texts) for _ in one]
    for at in data.draw(st.permutations(left)):  # requests that run at the same time
        tree = grown(tree, 1, depth)
        extend(tree, seqs, text, at, depth)
    gone = data.draw(st.integers(0, len(texts) - 1))
    for at in range(gone):
        remove(tree, seqs, text, at, depth)
    strings: Counter[tuple[int, ...]] = Counter()
    for one in texts[gone:]:
        for start in range(len(one)):
            for end in range(start + 1, min(len(one), start + depth) + 1):
                strings[tuple(one[start:end])] += 1
    nodes = tree[0]
    stack: list[tuple[tuple[int, ...], int]] = [
        ((token,), int(node)) for token in range(4) if (node := _root_child(tree, token)) >= 0
    ]
    assert {string for string, _ in stack} == {string for string in strings if len(string) == 1}
    while stack:
        string, node = stack.pop()
        assert nodes[node, COUNT] == strings[string]
        children = []
        child = nodes[node, HEAD]
        while child >= 0:
            children.append(int(child))
            child = nodes[child, NEXT]
        assert all(nodes[one, COUNT] >= nodes[other, COUNT] for one, other in pairwise(children))
        stack += [((*string, int(nodes[one, 1])), one) for one in children]


def _root_child(tree: Any, token: int) -> int:
    from draftworth.drafters.suffix_nodes import child  # noqa: PLC0415 - compiled

    return int(child(tree[0], tree[1], tree[2], tree[4], ROOT, token))


def test_a_grid_is_each_of_its_settings() -> None:
    requests = [(prompt, output) for prompt, output in RECORDED[1]["requests"]]
    chosen = [setting(24), setting(3), setting(24, factor=4.0), setting(24, least=0.5), setting(24, depth=6)]
    for limits in (Limits(), Limits(concurrency=3)):
        together = VLLMSuffix().session(chosen, limits)
        counts, record = together.drafts(batch_of(requests))
        for at, one in enumerate(chosen):
            alone, own = VLLMSuffix().session([one], limits).drafts(batch_of(requests))
            k = one.k + 1
            assert np.array_equal(counts.joint[at, :, :k, :k], alone.joint[0])
            assert np.array_equal(counts.steps[at], alone.steps[0])
            assert np.array_equal(record[at, :, 0], own[0, :, 0])


def test_what_was_learned_is_kept_from_batch_to_batch() -> None:
    requests = [(prompt, output) for prompt, output in RECORDED[3]["requests"]]
    whole = drafts_of(requests, VLLMSuffix().session([setting(24, cached=2)], Limits()))
    session = VLLMSuffix().session([setting(24, cached=2)], Limits())
    assert drafts_of(requests[:3], session) + drafts_of(requests[3:], session) == whole


def test_steps_emit_every_token_behind_the_first_and_are_counted_by_phase() -> None:
    requests: Requests = [([7], []), ([7], [1]), ([7], [1, 2]), ([5, 6], [5, 6] * 20)]
    session = VLLMSuffix().session([setting(4)], Limits())
    groups = np.zeros((4, 2), np.int32)
    groups[:, ANSWER] = 1
    groups[:, THINKING] = 0
    counts = session.feed(batch_of(requests, thinking=10), groups, 2)
    assert counts.steps[0, :3].tolist() == [0, 0, 1]
    accepted = (counts.joint[0].sum((0, 1)) * np.arange(5)).sum()
    # The last step of a request may end behind an accepted token: it emits one less then.
    assert 1 + 39 - 1 <= accepted + counts.steps.sum() <= 1 + 39 + 1
    assert counts.joint[0, 0].sum() + counts.joint[0, 1].sum() == counts.steps.sum()
    assert counts.joint[0, 0].sum() > 0
    assert counts.joint[0, 1].sum() > 0


def test_defaults_are_vllms() -> None:
    (one,) = VLLMSuffix().settings()
    assert one.k == 24
    assert dict(one.more) == {
        f"{P}max_tree_depth": 24,
        f"{P}max_cached_requests": 10_000,
        f"{P}max_spec_factor": 1.0,
        f"{P}min_token_prob": 0.1,
    }
    assert [one.k for one in VLLMSuffix().settings(more={f"{P}max_tree_depth": [8, 16]})] == [8, 16]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"min": [2]}, "no n-gram length"),
        ({"max": [2]}, "no n-gram length"),
        ({"k": [0]}, "k=0"),
        ({"k": []}, "no value"),
        ({"more": {"depth": [2]}}, "no parameter 'depth'"),
        ({"more": {f"{P}max_tree_depth": [0]}}, "max_tree_depth=0"),
        ({"more": {f"{P}max_tree_depth": [2.5]}}, "whole number"),
        ({"more": {f"{P}min_token_prob": [1.5]}}, "0 to 1"),
        ({"more": {f"{P}max_spec_factor": [-1.0]}}, "0 or more"),
        ({"more": {f"{P}min_token_prob": []}}, "no value"),
    ],
)
def test_what_it_cannot_do_is_said(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        VLLMSuffix().settings(**asked)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    session = VLLMSuffix().session([setting(4)], Limits(vocabulary=10))
    with pytest.raises(UsageError, match="token id 11 is outside"):
        session.feed(batch_of([([1], [11, 2])]), np.zeros((1, 2), np.int32), 1)
    with pytest.raises(UsageError, match="negative"):
        session.feed(batch_of([([1], [-1, 2])]), np.zeros((1, 2), np.int32), 1)
