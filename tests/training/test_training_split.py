"""What is held out is never trained on, not even as an earlier turn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftworth.training.sources.base import Conversation, Ids
from draftworth.training.split import groups, held_out


def talk(name: str, *said: str, source: str = "s") -> Conversation:
    messages = tuple({"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said))
    return Conversation(f"{source}/{name}", source, source, messages=messages)


def recorded(prompt: list[int], source: str = "t") -> Conversation:
    ids = Ids(np.array(prompt, np.int32), np.array([7], np.int32))
    return Conversation(f"{source}/{prompt}", source, source, ids=(ids,))


def test_conversations_that_begin_alike_are_one_group() -> None:
    found = groups([talk("1", "a", "x"), talk("2", "b", "x"), talk("3", "a", "y", "more")], 0)
    assert found == [0, 1, 0]


def test_the_next_turn_of_a_recorded_chat_is_of_its_group() -> None:
    # Prompts end in 8, 9: the beginning of an answer, which a history need not have.
    first, second, other = [1, 2, 8, 9], [1, 2, 5, 6, 8, 9], [1, 3, 8, 9]
    assert groups([recorded(first), recorded(other), recorded(second)], 2) == [0, 1, 0]
    assert groups([recorded(second), recorded(first)], 2) == [0, 0]
    # Without knowing the beginning, the whole prompt must come again.
    assert groups([recorded(first), recorded(second)], 0) == [0, 1]


def test_the_same_prompt_is_one_group() -> None:
    assert groups([recorded([1, 2]), recorded([3, 2]), recorded([1, 2])], 1) == [0, 1, 0]


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=12)


@given(prompts, st.integers(0, 2))
def test_groups_are_those_of_the_naive_rule(made: list[list[int]], tail: int) -> None:
    found = groups([recorded(one) for one in made], tail)
    stems = [one[: len(one) - tail] if len(one) > tail else one for one in made]
    joined = [{at} for at in range(len(made))]
    for a, stem in enumerate(stems):
        for b, other in enumerate(made):
            if other[: len(stem)] == stem or stems[b][: len(stem)] == stem:
                whole = joined[a] | joined[b]
                for at in whole:
                    joined[at] = whole
    for a in range(len(made)):
        for b in range(len(made)):
            assert (found[a] == found[b]) == (b in joined[a])


def test_a_tenth_of_every_source_is_held_out_whatever_its_order() -> None:
    made = [talk(str(at), f"question {at}", "x", source=name) for name in ("a", "b") for at in range(50)]
    group = groups(made, 0)
    held = held_out(made, group, 0.1, 1)
    names = [one.id for one, number in zip(made, group, strict=True) if number in held]
    assert sum(name.startswith("a/") for name in names) == 5
    assert sum(name.startswith("b/") for name in names) == 5
    back = made[::-1]
    again = held_out(back, groups(back, 0), 0.1, 1)
    assert sorted(one.id for one, n in zip(back, groups(back, 0), strict=True) if n in again) == sorted(names)
    assert held_out(made, group, 0.1, 2) != held


def test_a_source_of_one_conversation_is_trained_on() -> None:
    made = [talk("1", "a", "x")]
    assert held_out(made, groups(made, 0), 0.5, 0) == set()
    two = [talk("1", "a", "x"), talk("2", "b", "x")]
    assert len(held_out(two, groups(two, 0), 0.01, 0)) == 1
    assert len(held_out(two, groups(two, 0), 0.99, 0)) == 1


def test_a_group_across_sources_is_on_one_side() -> None:
    made = [talk("1", "same", "x", source="a"), talk("2", "other", "x", source="a"), talk("1", "same", "y", source="b")]
    group = groups(made, 0)
    assert group[0] == group[2]
    assert len(held_out(made, group, 0.5, 0)) == 1
