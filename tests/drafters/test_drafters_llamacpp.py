"""llama.cpp's drafters: their settings, drafts worked out by hand, and what slots keep between requests and batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.llamacpp_batches import Request, batch_of, replayed

from draftworth.drafters import CHOICES, drafter
from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.llamacpp_lookups import occurrences
from draftworth.errors import UsageError

NAMES = [name for name in CHOICES if name.startswith("llamacpp-")]
DEFAULTS = {
    "llamacpp-ngram-simple": Setting(48, more={"size_n": 12}),
    "llamacpp-ngram-map-k": Setting(48, more={"size_n": 12}),
    "llamacpp-ngram-map-k4v": Setting(48, more={"size_n": 12, "min_hits": 1}),
    "llamacpp-ngram-mod": Setting(64, more={"n_match": 24, "n_min": 48}),
    "llamacpp-ngram-cache": Setting(8),
}
SMALL = {
    "llamacpp-ngram-simple": Setting(4, more={"size_n": 2}),
    "llamacpp-ngram-map-k": Setting(4, more={"size_n": 2}),
    "llamacpp-ngram-map-k4v": Setting(3, more={"size_n": 1, "min_hits": 1}),
    "llamacpp-ngram-mod": Setting(4, more={"n_match": 3, "n_min": 1}),
    "llamacpp-ngram-cache": Setting(8),
}
ONE = Limits()
REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=3, max_size=40), st.lists(st.integers(0, 2), max_size=60)),
    min_size=2,
    max_size=5,
)


def steps_of(name: str, setting: Setting, *requests: Request, limits: Limits = ONE) -> list[list[int]]:
    """Return a setting's steps."""
    return replayed(name, [setting], limits, batch_of(requests))[1][0]


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_are_llamacpps_and_a_grid_can_be_replayed(name: str) -> None:
    one = drafter(name)
    assert (one.name, one.engine, one.always_verifies) == (name, "llamacpp", False)
    assert one.settings() == [DEFAULTS[name]]
    grid = one.grid()
    assert DEFAULTS[name] in grid
    assert len({(setting.k, *setting.more.values()) for setting in grid}) == len(grid)
    counts = one.session(grid, ONE).feed(batch_of([([1, 2, 3], [1, 2, 3])]), np.zeros((1, 2), np.int32), 1)
    assert counts.joint.shape == (len(grid), 1, *[max(setting.k for setting in grid) + 1] * 2)
    assert counts.joint[:, 0, 0, 0].tolist() == counts.steps[:, 0].tolist() == [2] * len(grid)


def test_values_are_combined() -> None:
    found = drafter("llamacpp-ngram-mod").settings(k=[8, 16], more={"n_match": [16], "n_min": [2, 4]})
    pairs = [(setting.k, setting.more["n_min"]) for setting in found]
    assert sorted(pairs) == [(8, 2), (8, 4), (16, 2), (16, 4)]
    assert all(setting.more["n_match"] == 16 for setting in found)


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        (
            "llamacpp-ngram-simple",
            {"min": [2]},
            r"min and max do not apply: it has size_n \(--spec-ngram-simple-size-n",
        ),
        ("llamacpp-ngram-simple", {"max": [2]}, "min and max do not apply"),
        ("llamacpp-ngram-simple", {"more": {"min_hits": [2]}}, "does not look at --spec-ngram-simple-min-hits"),
        ("llamacpp-ngram-map-k", {"more": {"min_hits": [2]}}, "does not look at --spec-ngram-map-k-min-hits"),
        ("llamacpp-ngram-map-k4v", {"more": {"size_n": [0]}}, "--spec-ngram-map-k4v-size-n takes .* from 1 to 1024"),
        ("llamacpp-ngram-mod", {"more": {"n_match": [1.5]}}, "n_match 1.5: --spec-ngram-mod-n-match takes whole"),
        ("llamacpp-ngram-mod", {"more": {"size_n": [2]}}, "no parameter 'size_n': it has k, n_match, n_min"),
        ("llamacpp-ngram-mod", {"k": [2000]}, "k 2000: --spec-ngram-mod-n-max takes whole numbers from 1 to 1024"),
        ("llamacpp-ngram-cache", {"k": [4]}, "ngram-cache always drafts 8 tokens at most"),
    ],
)
def test_what_a_drafter_does_not_take_is_refused(name: str, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        drafter(name).settings(**asked)


def test_simple_drafts_what_followed_the_latest_occurrence_but_not_that_at_the_start() -> None:
    setting = Setting(2, more={"size_n": 2})
    # [1, 2] is found behind the 9, and [3, 4] is what followed.
    assert steps_of("llamacpp-ngram-simple", setting, ([9, 1, 2, 3, 4, 5], [1, 2, 3, 4, 7])) == [
        [0, 6, 0, 0],
        [0, 7, 2, 2, 3, 4],
    ]
    # At the start it is not looked at; [2, 3] behind it is found.
    at_start = steps_of("llamacpp-ngram-simple", setting, ([1, 2, 3, 4, 5, 9], [1, 2, 3, 4, 7]))
    assert at_start == [[0, 6, 0, 0], [0, 7, 0, 0], [0, 8, 2, 1, 4, 5]]


def test_map_k_drafts_as_many_tokens_as_were_right_and_never_again_after_none() -> None:
    setting = Setting(3, more={"size_n": 1})
    prompt = [0, 5, 6, 7, 8, *[1] * 6]
    found = steps_of("llamacpp-ngram-map-k", setting, (prompt, [5, 6, 9, 5, 9, 5, 6, 7]))
    of_five = [step[2:] for step in found if step[1] in (11, 14, 16)]
    assert of_five == [[3, 1, 6, 7, 8], [1, 0, 6], [0, 0]]


def test_k4v_drafts_only_what_followed_twice_as_often_as_all_else() -> None:
    setting = Setting(1, more={"size_n": 1, "min_hits": 1})
    # Before the end, 5 was followed by 6 twice and by 7 once, then by 6 and by 7 once each.
    often = steps_of("llamacpp-ngram-map-k4v", setting, ([0, 5, 7, 5, 6, 5, 6, 1, 2, 3], [5, 6]))
    evenly = steps_of("llamacpp-ngram-map-k4v", setting, ([0, 5, 7, 5, 6, 1, 2, 3], [5, 6]))
    assert (often, evenly) == ([[0, 10, 1, 1, 6]], [[0, 8, 0, 0]])


@pytest.mark.parametrize("slots", [1, 2])
def test_mod_drafts_from_another_requests_prompt(slots: int) -> None:
    setting = Setting(3, more={"n_match": 2, "n_min": 1})
    first, second = ([1, 2, 3, 4, 5], [0, 0]), ([7, 7, 1], [2, 3, 4, 5])
    found = steps_of("llamacpp-ngram-mod", setting, first, second, limits=Limits(concurrency=slots))
    assert [step for step in found if step[0] == 1] == [[1, 3, 3, 3, 3, 4, 5]]
    # A draft that ends before n_min tokens is none.
    short = Setting(6, more={"n_match": 2, "n_min": 4})
    assert steps_of("llamacpp-ngram-mod", short, first, second)[-1][2] == 0


def test_cache_learns_nothing_from_requests_that_are_not_longer_than_the_longest_before() -> None:
    long, short = ([9] * 60, [9, 9]), ([1, 2, 3] * 5, [1, 2, 3, 1, 2, 3])
    alone = steps_of("llamacpp-ngram-cache", Setting(8), short)
    assert alone == [[0, 15, 8, 5, 2, 3, 1, 2, 3, 1, 2, 3]]
    after = steps_of("llamacpp-ngram-cache", Setting(8), long, short)
    assert [step[2] for step in after if step[0] == 1] == [0] * 5
    # A second slot has not seen the long one.
    beside = steps_of("llamacpp-ngram-cache", Setting(8), long, short, limits=Limits(concurrency=2))
    assert [step[1:] for step in beside if step[0] == 1] == [step[1:] for step in alone]


def test_drafts_are_cut_to_what_the_context_has_room_for() -> None:
    request = ([9, 1, 2, 3, 4, 5], [1, 2, 3, 4, 7])
    setting = Setting(2, more={"size_n": 2})
    # History, sampled token and one more are held free: 10 - 7 - 2 = 1.
    found = [
        steps_of("llamacpp-ngram-simple", setting, request, limits=Limits(max_model_len=n))[1] for n in (11, 10, 9)
    ]
    assert found == [[0, 7, 2, 2, 3, 4], [0, 7, 1, 1, 3], [0, 7, 0, 0]]


@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_cut_to_the_tokens_left_of_max_tokens_less_one(name: str) -> None:
    """As the server: n_remaining counts the tokens behind the sampled one, and a draft leaves one of them."""
    rng = np.random.default_rng(3)
    text = [*rng.integers(0, 9, 12).tolist()] * 6
    requests = [(text[:40], text[40:60]), (text[:30], text[30:50])]
    some = {"llamacpp-ngram-mod": {"n_match": 4.0, "n_min": 1.0}, "llamacpp-ngram-cache": {}}
    setting = Setting(8, more=some.get(name, {**DEFAULTS[name].more, "size_n": 4.0}))
    # A draft that reaches the end of an answer is accepted as far, so only what lies beyond it is cut.
    free = steps_of(name, setting, *requests)
    held = steps_of(name, setting, *requests, limits=Limits(max_tokens=20))
    assert sum(step[2] for step in held) < sum(step[2] for step in free)
    for request, at, drafted, *_ in held:
        emitted = at + 1 - len(requests[request][0])
        assert drafted <= max(0, 20 - emitted - 1)
    assert steps_of(name, setting, *requests, limits=Limits(max_tokens=1000)) == free


def test_max_tokens_and_the_context_bound_a_draft_alike() -> None:
    """A request with a prompt of 6 tokens that may have 5 more is one in a context of 11."""
    request = ([9, 1, 2, 3, 4, 5], [1, 2, 3, 4, 7])
    setting = Setting(2, more={"size_n": 2})
    for tokens in (3, 4, 5, 6):
        by_tokens = steps_of("llamacpp-ngram-simple", setting, request, limits=Limits(max_tokens=tokens))
        by_context = steps_of("llamacpp-ngram-simple", setting, request, limits=Limits(max_model_len=6 + tokens))
        assert by_tokens == by_context


def test_steps_are_counted_in_the_group_of_their_first_token() -> None:
    batch = batch_of([([9, 1, 2, 3, 4, 5], [1, 2, 3, 4, 7]), ([1], [2, 3])], thinking=[2, -1])
    session = drafter("llamacpp-ngram-simple").session([Setting(2, more={"size_n": 2})], ONE)
    joint = session.feed(batch, np.array([[3, 1], [3, 0]], np.int32), 4).joint[0]
    # Token 1 is still reasoning; tokens 2 to 4 are not. The other request's reasoning is not known.
    assert joint.sum(axis=(1, 2)).tolist() == [1, 1, 0, 1]
    assert joint[1, 2, 2] == joint[3, 0, 0] == joint[0, 0, 0] == 1


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(requests=REQUESTS)
def test_a_trace_may_come_in_any_batches_beside_any_settings(name: str, requests: list[Request]) -> None:
    whole, steps = replayed(name, [SMALL[name]], ONE, batch_of(requests))
    session = drafter(name).session([DEFAULTS[name], SMALL[name]], ONE)
    parts = [session.feed(batch_of([one]), np.zeros((1, 2), np.int32), 1) for one in requests]
    most = SMALL[name].k + 1
    joint = sum(part.joint[1, 0, :most, :most] for part in parts)
    assert (joint == whole.joint[0, 0]).all()
    assert [int(part.steps[1, 0]) for part in parts] == whole.steps[0].tolist()
    # Each step emits what it accepted and one token more, and only the last of a request may be cut.
    for number, (_, output) in enumerate(requests):
        emitted = sum(step[3] + 1 for step in steps[0] if step[0] == number)
        assert emitted in (max(0, len(output) - 1), len(output))


def test_ids_below_zero_are_refused_with_the_request() -> None:
    with pytest.raises(UsageError, match="request r1: token ids are below 0"):
        replayed("llamacpp-ngram-mod", [SMALL["llamacpp-ngram-mod"]], ONE, batch_of([([1], [1, 2]), ([1], [-1, 2])]))


def test_no_settings_and_no_requests() -> None:
    with pytest.raises(UsageError, match="no settings"):
        drafter("llamacpp-ngram-mod").session([], ONE)
    for name in NAMES:
        counts, _ = replayed(name, [SMALL[name]], ONE, batch_of([]))
        assert counts.steps.shape == (1, 0)
        assert not counts.joint.any()


@given(tokens=st.lists(st.integers(0, 2), max_size=60), n=st.integers(1, 6), cut=st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_occurrences_are_those_of_a_plain_search(tokens: list[int], n: int, cut: int) -> None:
    cut = min(cut, len(tokens))
    before, first = occurrences(np.array(tokens, np.int32), np.array([0, cut, len(tokens)]), n)
    for start, part in ((0, tokens[:cut]), (cut, tokens[cut:])):
        for end in range(len(part)):
            gram = part[end - n + 1 : end + 1] if end >= n - 1 else None
            equal = [e for e in range(n - 1, end + 1) if gram is not None and part[e - n + 1 : e + 1] == gram]
            assert before[start + end] == (equal[-2] if len(equal) > 1 else -1)
            assert first[start + end] == (equal[0] if equal else -1)
