"""Replays of the n-gram drafters: counts against a plain replay with plain drafters, and drafts worked out by hand."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters import naive
from tests.drafters.naive import Request
from tests.drafters.toy import batch_of

from draftworth.drafters import drafter, hf_prompt_lookup, vllm_ngram_v1, vllm_ngram_v2
from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.matching import BLOCK

Plain = Callable[[Setting, Limits, list[int]], list[int]]
NONE = Limits()


def lookup(context: list[int], low: int, high: int, *, latest: bool) -> list[int]:
    """Return everything behind the match."""
    for n in range(min(high, len(context) - 1), low - 1, -1):
        starts = range(len(context) - n)
        for start in reversed(starts) if latest else starts:
            if context[start : start + n] == context[len(context) - n :]:
                return context[start + n :]
    return []


def plain_v1(setting: Setting, limits: Limits, context: list[int]) -> list[int]:
    room = 10**9 if limits.max_model_len is None else limits.max_model_len - 1 - len(context)
    found = lookup(context, setting.min or 1, setting.max or 1, latest=False)
    return found[: max(0, min(setting.k, room))]


def plain_v2(setting: Setting, limits: Limits, context: list[int]) -> list[int]:
    room = 10**9 if limits.max_model_len is None else limits.max_model_len - 1 - len(context)
    found = lookup(context, setting.min or 1, setting.max or 1, latest=True) + [context[-1]] * setting.k
    return found[: max(0, min(setting.k, room))]


def plain_hf(setting: Setting, limits: Limits, context: list[int]) -> list[int]:
    if limits.max_model_len == len(context) + 1:
        return []
    found = lookup(context, 1, setting.max or 1, latest=False)[: setting.k]
    end = setting.more.get("eos_token_id")
    return found[: found.index(int(end))] if end in found and end is not None else found


PLAIN: dict[str, Plain] = {"vllm-ngram-v1": plain_v1, "vllm-ngram-v2": plain_v2, "hf-prompt-lookup": plain_hf}


def same(name: str, rows: Sequence[Request], points: Sequence[Setting], limits: Limits = NONE) -> int:
    """Replay both ways, in groups of their own. Returns how many tokens were accepted."""
    groups = np.arange(2 * len(rows), dtype=np.int32).reshape(-1, 2)
    most = max(point.k for point in points)
    got = drafter(name).session(points, limits).feed(batch_of(rows), groups, 2 * len(rows))
    drafts = [partial(PLAIN[name], point, limits) for point in points]
    joint, steps = naive.counts(rows, drafts, most, groups, 2 * len(rows))
    assert got.joint.dtype == np.int64
    assert got.steps.dtype == np.int32
    assert got.joint.tolist() == joint.tolist()
    assert got.steps.tolist() == steps.tolist()
    return int((joint.sum(axis=(0, 1, 2)) * np.arange(most + 1)).sum())


def row(random: np.random.Generator, longest: int) -> Request:
    """Return a request that copies from itself now and then."""
    length = int(random.integers(2, longest + 1))
    alphabet = int(random.choice([1, 2, 3, 8, 60, 100_000]))
    tokens = random.integers(0, alphabet, length)
    for _ in range(int(random.integers(0, 6))):
        begin, end = sorted(random.integers(0, length, 2).tolist())
        some = min(length - end, int(random.integers(1, 30)), max(1, end - begin))
        tokens[end : end + some] = tokens[begin : begin + some].copy()
    # Mostly a long prompt, since what it teaches is sifted by what the output asks for.
    prompt = int(random.choice([0, 1, length // 2, length - 2, length - 1, length, int(random.integers(0, length))]))
    thinking = int(random.choice([-1, 0, 1, max(0, length - prompt) // 2, length]))
    return Request(tokens[:prompt].tolist(), tokens[prompt:].tolist(), thinking)


def points_of(random: np.random.Generator, name: str, count: int) -> list[Setting]:
    found = []
    for _ in range(count):
        low = int(random.integers(1, 5))
        high = low + int(random.choice([0, 1, 3, 40]))
        k = int(random.choice([1, 2, 3, 5, 10]))
        if name == "hf-prompt-lookup":
            more = {"eos_token_id": float(random.integers(0, 3))} if random.random() < 0.3 else {}
            found.append(Setting(k, None, high, more))
        else:
            found.append(Setting(k, low, high))
    return found


def sweep(name: str, rounds: int, longest: int, seed: int) -> int:
    random = np.random.default_rng(seed)
    accepted = 0
    for _ in range(rounds):
        rows = [row(random, longest) for _ in range(int(random.integers(1, 5)))]
        most = max(len(one.prompt) + len(one.output) for one in rows)
        bound = None if random.random() < 0.5 else most + int(random.integers(0, 4))
        accepted += same(name, rows, points_of(random, name, 6), Limits(max_model_len=bound))
    return accepted


@pytest.mark.parametrize("name", PLAIN)
def test_counts_equal_a_plain_replay(name: str) -> None:
    assert sweep(name, 120, 120, 3) > 2000


@pytest.mark.torture
@pytest.mark.parametrize("name", PLAIN)
def test_many_counts_equal_a_plain_replay(name: str) -> None:
    assert sweep(name, 400, 250, 4) > 20_000


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=60),
    st.integers(0, 58),
    st.sampled_from(sorted(PLAIN)),
    st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(1, 7)),
)
def test_any_request_replays_like_plain_steps(
    tokens: list[int], prompt: int, name: str, point: tuple[int, int, int]
) -> None:
    prompt = min(prompt, len(tokens) - 2)
    low, more, k = point
    setting = Setting(k, None if name == "hf-prompt-lookup" else low, low + more)
    same(name, [Request(tokens[:prompt], tokens[prompt:])], [setting])


@pytest.mark.parametrize("name", PLAIN)
def test_an_output_longer_than_what_is_kept_at_a_time(name: str) -> None:
    random = np.random.default_rng(5)
    length = 2 * BLOCK + 100
    phrases = random.integers(0, 500, (40, 9))
    tokens = phrases[random.integers(0, 40, length // 9 + 1)].ravel()[:length]
    one = Request(tokens[:90].tolist(), tokens[90:].tolist(), BLOCK - 3)
    # Plain look-ups over so long a context are slow: the last setting alone is compared, beside others.
    point = Setting(4, None if name == "hf-prompt-lookup" else 2, 2)
    groups = np.array([[0, 1]], dtype=np.int32)
    both = drafter(name).session([Setting(3, point.min, 5), point], NONE).feed(batch_of([one]), groups, 2)
    seen: dict[tuple[int, ...], list[int]] = {}

    def draft(context: list[int]) -> list[int]:
        # The bigrams of the context, kept from call to call.
        for end in range(seen.setdefault((), [2])[0], len(context)):
            seen.setdefault(tuple(context[end - 2 : end]), []).append(end)
        seen[()] = [max(2, len(context))]
        ends = seen.get(tuple(context[-2:]), [])
        if not ends and name == "hf-prompt-lookup":
            return plain_hf(Setting(4, None, 1), NONE, context)
        found = context[ends[-1 if name == "vllm-ngram-v2" else 0] :][:4] if ends else []
        return (found + [context[-1]] * 4)[:4] if name == "vllm-ngram-v2" else found

    joint, steps = naive.counts([one], [draft], 4, groups, 2)
    assert both.joint[1].tolist() == joint[0].tolist()
    assert both.steps[1].tolist() == steps[0].tolist()


def test_every_setting_of_a_grid_counts_as_it_does_alone() -> None:
    random = np.random.default_rng(6)
    rows = [row(random, 500) for _ in range(6)]
    groups = np.zeros((6, 2), dtype=np.int32)
    for name in PLAIN:
        points = drafter(name).grid()
        assert len(points) == 64
        whole = drafter(name).session(points, NONE).feed(batch_of(rows), groups, 1)
        for at, point in enumerate(points):
            alone = drafter(name).session([point], NONE).feed(batch_of(rows), groups, 1)
            side = point.k + 1
            assert whole.joint[at, :, :side, :side].tolist() == alone.joint[0].tolist()
            assert whole.joint[at].sum() == alone.joint.sum()
            assert whole.steps[at].tolist() == alone.steps[0].tolist()


def test_drafts_by_hand() -> None:
    # ... 1 2 3 4 | 1 2 9 | 1 2: two occurrences of (1, 2), followed by 3 and by 9.
    context = np.array([1, 2, 3, 4, 1, 2, 9, 1, 2], dtype=np.int32)
    assert vllm_ngram_v1.draft(context, Setting(3, 2, 2), NONE).tolist() == [3, 4, 1]
    assert vllm_ngram_v2.draft(context, Setting(3, 2, 2), NONE).tolist() == [9, 1, 2]
    assert hf_prompt_lookup.draft(context, Setting(3, None, 2), NONE).tolist() == [3, 4, 1]
    # V2 fills up with the last token; without a match all of them are it.
    assert vllm_ngram_v2.draft(context, Setting(5, 2, 2), NONE).tolist() == [9, 1, 2, 2, 2]
    assert vllm_ngram_v2.draft(context, Setting(3, 3, 5), NONE).tolist() == [2, 2, 2]
    assert vllm_ngram_v1.draft(context, Setting(3, 3, 5), NONE).tolist() == []
    # An occurrence may overlap the end, and its draft is short.
    assert vllm_ngram_v1.draft(np.array([7, 7, 7], dtype=np.int32), Setting(5, 2, 2), NONE).tolist() == [7]
    # Bounds: V1 stops at max_model_len, transformers drafts unless one token is left.
    assert vllm_ngram_v1.draft(context, Setting(3, 2, 2), Limits(11)).tolist() == [3, 4]
    assert vllm_ngram_v1.draft(context, Setting(3, 2, 2), Limits(9)).tolist() == []
    assert hf_prompt_lookup.draft(context, Setting(3, None, 2), Limits(11)).tolist() == [3, 4, 1]
    assert hf_prompt_lookup.draft(context, Setting(3, None, 2), Limits(10)).tolist() == []
    # The end-of-sequence token cuts.
    assert hf_prompt_lookup.draft(context, Setting(3, None, 2, {"eos_token_id": 1}), NONE).tolist() == [3, 4]


def test_padding_that_is_accepted_counts() -> None:
    # Output 5 5 5 5 behind prompt 1: V2 drafts 5 5 5 from the first 5 on, and all that is recorded agrees.
    session = drafter("vllm-ngram-v2").session([Setting(3, 2, 2)], NONE)
    got = session.feed(batch_of([Request([1], [5, 5, 5, 5])]), np.zeros((1, 2), dtype=np.int32), 1)
    assert got.steps.tolist() == [[1]]
    assert np.argwhere(got.joint[0, 0]).tolist() == [[3, 3]]


def test_requests_without_a_decode_step_have_none() -> None:
    rows = [Request([1, 2], []), Request([1, 2], [1]), Request([], [4, 4]), Request([3, 3, 3], [3, 3])]
    got = (
        drafter("vllm-ngram-v1")
        .session([Setting(2, 1, 1)], NONE)
        .feed(batch_of(rows), np.zeros((4, 2), dtype=np.int32), 1)
    )
    assert got.steps.tolist() == [[0, 0, 1, 1]]
    # The third has only its own first token before it: nothing to look up in; the fourth drafts 3 3 and needs one.
    assert np.argwhere(got.joint[0, 0]).tolist() == [[0, 0], [2, 1]]


def test_ids_renamed_replay_the_same() -> None:
    random = np.random.default_rng(8)
    one = row(random, 300)
    # Up to the largest id there is.
    other = np.concatenate([[2**31 - 1], random.permutation(100_000)[:60]])
    small = Request([token % 61 for token in one.prompt], [token % 61 for token in one.output])
    renamed = Request([int(other[t]) for t in small.prompt], [int(other[t]) for t in small.output])
    for name in PLAIN:
        points = drafter(name).grid()
        a, b = (
            drafter(name).session(points, NONE).feed(batch_of([r]), np.zeros((1, 2), dtype=np.int32), 1)
            for r in (small, renamed)
        )
        assert a.joint.tolist() == b.joint.tolist()
