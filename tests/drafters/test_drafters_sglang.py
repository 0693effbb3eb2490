"""sglang-ngram drafts the trees SGLang's own compiled trie made: recorded trees, and what can be worked out by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftworth.drafters.base import Limits
from draftworth.drafters.sglang_ngram import SGLangNgram
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch

RECORDED = json.loads((Path(__file__).parent / "data" / "sglang_ngram.json").read_text())["cases"]
P = "speculative-ngram-"
Requests = list[tuple[list[int], list[int]]]


def batch_of(requests: Requests) -> TraceBatch:
    lengths = [len(prompt) + len(output) for prompt, output in requests]
    count = len(requests)
    return TraceBatch(
        request_ids=[str(at) for at in range(count)],
        tokens=np.array([token for prompt, output in requests for token in prompt + output], np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=np.array([len(prompt) for prompt, _ in requests], np.int32),
        thinking=np.full(count, -1, np.int32),
        categories=[""] * count,
        temperatures=np.full(count, np.nan),
        exact=np.ones(count, bool),
    )


@pytest.mark.parametrize("case", RECORDED)
def test_trees_are_those_sglang_made(case: dict[str, Any]) -> None:
    requests = [(prompt, output) for prompt, output in case["requests"]]
    names = {
        "min-bfs-breadth": "low",
        "max-bfs-breadth": "high",
        "match-type": "kind",
        "max-trie-depth": "depth",
        "capacity": "capacity",
    }
    chosen = SGLangNgram().settings(k=[case["k"]], more={P + name: [case[key]] for name, key in names.items()})
    counts, (record,) = (
        SGLangNgram().session(chosen, Limits(concurrency=case["concurrency"])).drafts(batch_of(requests))
    )
    row = 0
    for (_, output), expected in zip(requests, case["paths"], strict=True):
        found = {}
        for done, one in enumerate(record[row : row + len(output)].tolist()):
            if one[0] < 0:
                continue
            paths: list[list[int]] = [[]]
            for place in range(1, one[0] + 1):
                paths.append([*paths[one[case["k"] + place]], one[place]])
            # Token 0 below the root may be a draft or what fills the budget: left out of the recording.
            found[str(done)] = sorted(path for path in paths[1:] if path != [0])
        row += len(output)
        assert found == {done: sorted(paths) for done, paths in expected.items()}
    accepted = [count for request in case["accepted"] for count in request.values()]
    assert sum(accepted) > 0
    by_count = np.bincount(accepted, minlength=case["k"] + 1)
    assert counts.joint[0, 0, case["k"]].tolist() == by_count.tolist()
    assert counts.joint.sum() == len(accepted)


def test_every_step_verifies_k_tokens_and_filling_ones_can_be_accepted() -> None:
    session = SGLangNgram().session(SGLangNgram().settings(k=[4]), Limits())
    counts, (record,) = session.drafts(batch_of([([5, 6], [7, 0, 8, 9])]))
    # Nothing is known before the first step; the tree is four times token 0, which is what came.
    assert record[1, 0] == 0
    assert counts.joint[0, 0, 4].tolist() == [1, 1, 0, 0, 0]
    assert counts.joint[0, 0, :4].sum() == 0


def test_requests_share_what_was_learned() -> None:
    answer = list(range(20, 40))
    alone = SGLangNgram().session(SGLangNgram().settings(), Limits())
    first, _ = alone.drafts(batch_of([([1], answer)]))
    second, _ = alone.drafts(batch_of([([2], answer)]))
    assert first.steps.sum() == len(answer) - 1
    assert second.steps.sum() == 2  # 11 drafts and one more, then the rest


def test_defaults_are_sglangs() -> None:
    (one,) = SGLangNgram().settings()
    assert one.k == 11
    assert [one.more[P + name] for name in ("min-bfs-breadth", "max-bfs-breadth", "match-type", "max-trie-depth")] == [
        1,
        10,
        0,
        18,
    ]
    assert one.more[P + "capacity"] == 10_000_000


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"min": [2]}, "no n-gram length"),
        ({"k": [0]}, "k=0"),
        ({"k": []}, "no setting is left"),
        ({"more": {"depth": [2]}}, "no parameter 'depth'"),
        ({"more": {P + "match-type": [2]}}, "0 to 1"),
        ({"more": {P + "min-bfs-breadth": [5], P + "max-bfs-breadth": [4]}}, "no setting is left"),
    ],
)
def test_what_it_cannot_do_is_said(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        SGLangNgram().settings(**asked)
