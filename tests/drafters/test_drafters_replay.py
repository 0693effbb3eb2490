"""Replaying a trace: every count by hand or by a plain list of steps, whatever the batches."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.naive import Request, Step, lockstep, steps_of
from tests.drafters.toy import InMemory, Toy, ToySession, earliest

from draftworth.drafters.base import Counts, Limits, Setting
from draftworth.drafters.counts import Tally
from draftworth.drafters.gathered import OTHERS
from draftworth.drafters.limits import MOST_CATEGORIES
from draftworth.drafters.remarks import remarks
from draftworth.drafters.replay import Replayed, replay
from draftworth.drafters.rows import OfCategories
from draftworth.errors import UsageError
from draftworth.findings import Code
from draftworth.traces.base import BadRows

K3 = Setting(3, 1, 2)
NONE = Limits()


def replayed(rows: list[Request], *points: Setting, each: int = 1000, limits: Limits = NONE) -> Replayed:
    return replay(InMemory(rows, each), Toy(), list(points) or [K3], limits)


def test_a_request_counted_by_hand() -> None:
    # Prefill gives 1. [.. 1] was seen at the start: draft 2 3 4, of which 2 3 come and then 9: 3 tokens.
    # [3 9] is new and 9 too: no draft, 1. [9 1] is new, 1 is not: draft 2 3 4, 2 comes and the recording ends.
    done = replayed([Request([1, 2, 3, 4], [1, 2, 3, 9, 1, 2])])
    total = done.settings[0].total
    assert steps_of([1, 2, 3, 4], [1, 2, 3, 9, 1, 2], partial(earliest, setting=K3)) == [
        Step(1, 3, 2, 3),
        Step(4, 0, 0, 1),
        Step(5, 3, 1, 1),
    ]
    assert (total.steps, total.drafting_steps, total.drafted, total.accepted, total.emitted) == (3, 2, 6, 3, 5)
    assert total.accepted_per_position == (2, 1, 0)
    assert total.drafted_per_position == (2, 2, 2)
    assert total.conditional == (1.0, 0.5, 0.0)
    assert total.draft_lengths == (1, 0, 0, 2)
    assert total.coverage == pytest.approx(2 / 3)
    assert total.acceptance_rate == 0.5
    assert total.length_per_drafting_step == 2.5
    assert total.length_per_step == pytest.approx(5 / 3)


def test_what_nothing_was_drafted_of_is_not_known_and_not_zero() -> None:
    total = replayed([Request([1, 2], [3, 4, 5])]).settings[0].total
    assert (total.steps, total.drafted, total.emitted, total.coverage, total.length_per_step) == (2, 0, 2, 0.0, 1.0)
    assert (total.acceptance_rate, total.length_per_drafting_step) == (None, None)
    assert total.conditional == (None, None, None)


def test_conditional_acceptance_knows_short_drafts() -> None:
    # Ten steps drafted one token, all accepted; four drafted two, both accepted in one, the first in two.
    joint = np.zeros((4, 4), dtype=np.int64)
    joint[1, 1], joint[2, 2], joint[2, 1], joint[2, 0] = 10, 1, 2, 1
    one = Tally(joint, 0, 3)
    assert one.accepted_per_position == (13, 1, 0)
    assert one.drafted_per_position == (14, 4, 0)
    assert one.conditional == (13 / 14, 1 / 3, None)


tokens = st.lists(st.integers(0, 3), max_size=14)
requests = st.lists(
    st.builds(Request, tokens, tokens, st.integers(-1, 15), st.sampled_from(["", "code", "chat"])), min_size=1
)


@settings(max_examples=40, deadline=None)
@given(requests, st.integers(1, 7))
def test_every_count_is_that_of_a_list_of_steps_whatever_the_batches(rows: list[Request], each: int) -> None:
    points = [Setting(1, 1, 1), Setting(4, 1, 3), Setting(2, 2, 2)]
    with_steps = [one for one in rows if len(one.output) > 1]
    if not with_steps:
        with pytest.raises(UsageError, match=f"no request to replay: {len(rows)} with fewer than two output tokens"):
            replayed(rows, *points, each=each)
        return
    done = replay(InMemory(rows, each), Toy(), points, NONE, keep_requests=True)
    assert done.seen.requests == len(with_steps)
    assert done.seen.no_output == sum(not one.output for one in rows)
    assert done.seen.one_token == sum(len(one.output) == 1 for one in rows)
    assert done.seen.output_tokens == sum(len(one.output) for one in rows)
    assert done.request_ids == [f"r{at}" for at, one in enumerate(rows) if len(one.output) > 1]
    for at, found in enumerate(done.settings):
        assert found.setting == points[at]
        steps = [steps_of(one.prompt, one.output, partial(earliest, setting=points[at])) for one in with_steps]
        check(found.total, [step for some in steps for step in some])
        assert set(found.by_category) == {one.category for one in with_steps}
        for name, part in found.by_category.items():
            check(part, [s for one, some in zip(with_steps, steps, strict=True) if one.category == name for s in some])
        phases = [
            (step, "not_known" if one.thinking < 0 else "thinking" if step.at < one.thinking else "answer")
            for one, some in zip(with_steps, steps, strict=True)
            for step in some
        ]
        assert set(found.by_phase) == {phase for _, phase in phases}
        for name, part in found.by_phase.items():
            check(part, [step for step, phase in phases if phase == name], emitted=False)
        assert sum(part.emitted for part in found.by_phase.values()) == found.total.emitted
        assert all(part.emitted >= part.steps for part in found.by_phase.values())
        assert done.steps is not None
        assert done.emitted is not None
        assert done.steps[at].tolist() == [len(some) for some in steps]
        assert done.emitted.tolist() == [len(one.output) - 1 for one in with_steps]


def check(tally: Tally, steps: list[Step], *, emitted: bool = True) -> None:
    assert tally.steps == len(steps)
    assert tally.drafting_steps == sum(step.drafted > 0 for step in steps)
    assert tally.drafted == sum(step.drafted for step in steps)
    assert tally.accepted == sum(step.accepted for step in steps)
    assert tally.accepted_per_position == tuple(sum(s.accepted > i for s in steps) for i in range(tally.k))
    assert tally.drafted_per_position == tuple(sum(s.drafted > i for s in steps) for i in range(tally.k))
    lengths = Counter(step.drafted for step in steps)
    assert tally.draft_lengths == tuple(lengths[d] for d in range(tally.k + 1))
    if emitted:
        assert tally.emitted == sum(step.emitted for step in steps)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(lambda p, o, t: Request(p, o, min(t, max(len(o) - 4, 0))), tokens, tokens, st.integers(0, 14))
        | st.builds(lambda p, o: Request(p, o, len(o)), tokens, tokens)
    )
)
def test_tokens_of_a_phase_are_exact_where_an_answer_is_longer_than_a_draft(rows: list[Request]) -> None:
    rows = [one for one in rows if len(one.output) > 1]
    if not rows:
        return
    found = replayed(rows).settings[0].by_phase
    for name in ("thinking", "answer"):
        steps = [
            step
            for one in rows
            for step in steps_of(one.prompt, one.output, partial(earliest, setting=K3))
            if (step.at < one.thinking) == (name == "thinking")
        ]
        assert (name in found) == bool(steps)
        if steps:
            check(found[name], steps)


def test_ids_outside_the_vocabulary_are_counted_and_named_and_not_replayed() -> None:
    good = Request([1, 2], [1, 2, 1])
    rows = [good, replace(good, prompt=[1, 7]), good, replace(good, output=[1, 2, -1]), good]
    done = replayed(rows, limits=Limits(vocabulary=7), each=2)
    assert done.seen.requests == 3
    assert done.bad.counts == {"token ids outside the vocabulary of 7": 2}
    assert done.bad.first == {"token ids outside the vocabulary of 7": "some.jsonl, request r1"}
    assert done.settings[0].total.emitted == 6
    unbounded = replayed(rows)
    assert unbounded.bad.counts == {"token ids below 0": 1}
    with pytest.raises(UsageError, match=r"no request to replay: 5 left out: token ids outside .* \(first: .*r0\)"):
        replayed(rows, limits=Limits(vocabulary=1))


def test_requests_that_the_servers_context_cannot_hold_are_left_out_and_those_that_fill_it_are_not() -> None:
    rows = [Request([1] * prompt, [2] * output) for prompt, output in ((3, 4), (3, 5), (4, 4), (9, 2))]
    done = replayed(rows, limits=Limits(max_model_len=7), each=2)
    reason = "longer than --max-model-len 7 with their answers; nothing is drafted beyond it"
    assert done.seen.requests == 1
    assert done.settings[0].total.emitted == 3
    assert done.bad == BadRows({reason: 3}, {reason: "some.jsonl, request r1"})
    with pytest.raises(UsageError, match=r"no request to replay: 4 left out: longer than --max-model-len 3"):
        replayed(rows, limits=Limits(max_model_len=3))


def test_no_interval_is_wider_than_steps_can_be() -> None:
    # The first drafts all along, the second half of the time: of two requests alone the upper limit would be 97.
    rows = [Request([1, 2], [1, 2] * 10), Request([1], [*range(100, 106), *[1, 100] * 7])]
    found = replayed(rows, Setting(2, 1, 2)).settings[0]
    assert found.total.length_per_step == pytest.approx(1.9)
    assert (found.low, found.high) == (1.0, 3.0)


def test_the_traces_own_bad_rows_are_told_too() -> None:
    trace = InMemory([Request([1], [1, 2])])
    trace.bad.add("no ids", "some.jsonl:9")
    done = replay(trace, Toy(), [K3], NONE)
    assert done.bad == BadRows({"no ids": 1}, {"no ids": "some.jsonl:9"})


def test_an_empty_trace_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^some\.jsonl: no request to replay: it is empty$"):
        replayed([])


@pytest.mark.parametrize("wrong", ["steps", "joint", "stepless"])
def test_counts_that_contradict_the_recording_are_no_figures(wrong: str) -> None:
    class Liar(ToySession):
        def feed(self, *arguments: object) -> Counts:
            counts = super().feed(*arguments)  # type: ignore[arg-type]  # passed on as they are
            if wrong == "joint":
                counts.joint[0, 0, 3, 3] += 2
            else:
                counts.steps[0, 0 if wrong == "steps" else 1] += 1
            return counts

    class Lying(Toy):
        def session(self, settings: object, limits: Limits) -> Liar:
            return Liar([K3])

    with pytest.raises(RuntimeError, match="cannot emit"):
        replay(InMemory([Request([1], [1, 2, 3]), Request([1], [2])]), Lying(), [K3], NONE)


def test_categories_beyond_the_hundredth_are_counted_together() -> None:
    rows = [Request([1], [1, 1, 1], category=f"c{at}") for at in range(MOST_CATEGORIES + 5)] * 2
    done = replayed(rows, each=30)
    found = done.settings[0].by_category
    assert len(found) == MOST_CATEGORIES + 1
    assert found["c0"].emitted == 4
    assert found[OTHERS].emitted == 20
    assert done.seen.categories[OTHERS] == 10
    assert done.settings[0].total.emitted == 4 * (MOST_CATEGORIES + 5)


def test_only_some_categories() -> None:
    rows = [Request([1], [1, 2], category=name) for name in ("chat", "code", "chat", "", "math")]
    trace = OfCategories(InMemory(rows, 2), ["chat", "math"])
    done = replay(trace, Toy(), [K3], NONE)
    assert (done.seen.requests, trace.others) == (3, 2)
    assert done.seen.categories == {"chat": 2, "math": 1}
    with pytest.raises(UsageError, match=r"no request of the category 'maths'; it has chat, code, math$"):
        replay(OfCategories(InMemory(rows, 2), ["maths"]), Toy(), [K3], NONE)


def test_progress_is_told_after_every_batch() -> None:
    told: list[tuple[int, int]] = []
    rows = [Request([1], [1, 2])] * 5
    replay(InMemory(rows, 2), Toy(), [K3], NONE, progress=lambda *seen: told.append(seen))
    assert told == [(2, 6), (4, 12), (5, 15)]


def test_what_to_be_careful_with_is_found() -> None:
    rows = [Request([at], [1, 2], thinking=0) for at in range(30)]
    assert remarks(replayed(rows), Toy(), NONE) == []
    few = replay(
        InMemory([Request([1], [1, 2]), Request([], [1, 1, 2]), Request([1], [1, 2])], exact=False, temperature=0.7),
        Toy(),
        [K3],
        NONE,
    )
    found = remarks(few, Toy(shared=True), Limits(concurrency=8))
    assert [one.code for one in found] == [
        Code.INEXACT_TRACE,
        Code.REQUESTS_REPEAT,
        Code.ORDER_MATTERS,
        Code.SAMPLED_TRACE,
        Code.THINKING_NOT_KNOWN,
        Code.FEW_REQUESTS,
    ]
    assert found[2].message == "toy was replayed in the recorded order, 8 requests at a time"
    assert found[1].message == "1 of 3 requests are an earlier one again, token by token"
    unknown = replay(InMemory(rows, temperature=float("nan"), path=Path("x")), Toy(), [K3], NONE)
    assert remarks(unknown, Toy(), NONE) == []


def test_the_naive_lockstep_takes_turns_and_refills_a_place() -> None:
    # Nothing is drafted, so a request of m tokens has m - 1 steps of one token.
    rows = [Request([1], [0] * length) for length in (3, 4, 1, 2)]
    order = [(number, step.at) for number, step in lockstep(rows, lambda *_: [], 2)]
    assert order == [(0, 1), (1, 1), (0, 2), (1, 2), (3, 1), (1, 3)]
