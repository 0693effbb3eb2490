import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth import workloads
from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads.context import tolerance, with_context


def count(text: str) -> int:
    """Something like a tokenizer: words in pieces of five letters, and signs."""
    return sum(1 + len(part) // 5 for part in re.findall(r"\w+|[^\w\s]|\n+", text))


def by_letter(text: str) -> int:
    return len(text)


BUILTIN = workloads.load("builtin").prompts


def content(prompt: Prompt) -> str:
    return "\n\n".join(message["content"] for message in prompt.messages)


@pytest.mark.parametrize("tokens", [300, 512, 1024, 4096])
def test_every_prompt_has_the_length_and_still_asks_its_own_question(tokens: int) -> None:
    prompts = [p for p in BUILTIN if count(content(p)) <= tokens]
    made = with_context(prompts, tokens, count)
    for before, after, said in zip(prompts, made.prompts, made.tokens, strict=True):
        assert abs(count(content(after)) - tokens) <= tolerance(tokens)
        assert said == count(content(after))
        assert (after.id, after.category) == (before.id, before.category)
        assert content(after).endswith(content(before))
        assert content(before) not in content(after)[: -len(content(before))]


def test_contexts_differ_from_the_first_word_and_do_not_change_from_run_to_run() -> None:
    made = with_context(BUILTIN[:20], 600, count, seed=5)
    beginnings = [content(p).split("\n\n")[:2] for p in made.prompts]
    assert all(label.startswith("Reference material ") for label, _ in beginnings)
    assert len({label for label, _ in beginnings}) == len({passage for _, passage in beginnings}) == 20
    assert made == with_context(BUILTIN[:20], 600, count, seed=5)
    assert made.prompts != with_context(BUILTIN[:20], 600, count, seed=6).prompts


def test_passages_come_again_only_when_all_were_used_and_that_is_said() -> None:
    corpus = [f"Passage {i}: " + " ".join(f"word{i}x{j}" for j in range(60)) + "." for i in range(400)]
    few = with_context(BUILTIN[:4], 2000, count, corpus)
    used = [i for p in few.prompts for i in re.findall(r"Passage (\d+):", content(p))]
    assert (few.repeated, few.repeated_within) == (False, 0)
    assert len(used) == len(set(used)) > 20
    assert with_context(BUILTIN, 3000, count, corpus).repeated
    alone = with_context(BUILTIN[:1], 30_000, count, corpus[:3])
    assert (alone.repeated, alone.repeated_within) == (True, 1)


def test_the_built_in_texts_are_used_when_the_others_are_exhausted() -> None:
    own = [
        Prompt(str(i), "x", ({"role": "user", "content": f"Report {i}. " + f"The value of sensor {i} was fine. " * 9},))
        for i in range(12)
    ]
    enough = content(with_context(own[:1], 600, count, [content(p) for p in own]).prompts[0])
    assert len(set(re.findall(r"Report \d+", enough))) > 4
    assert not any(content(p)[:40] in enough for p in BUILTIN)
    made = with_context(own[:2], 600, count)
    assert [re.findall(r"Report \d", content(p)) for p in made.prompts] == [
        ["Report 1", "Report 0"],
        ["Report 0", "Report 1"],
    ]
    assert all(any(content(b)[:40] in content(p) for b in BUILTIN) for p in made.prompts)
    assert not made.repeated


def test_a_system_message_stays_in_front() -> None:
    prompt = Prompt(
        "a", "x", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"})
    )
    (made,) = with_context([prompt], 400, count).prompts
    assert made.messages[0] == prompt.messages[0]
    assert made.messages[1]["content"].startswith("Reference material ")
    assert abs(count(content(made)) - 400) <= 8


@pytest.mark.parametrize("missing", range(9, 60, 3))
def test_a_small_gap_is_filled_too(missing: int) -> None:
    prompt = BUILTIN[0]
    tokens = count(content(prompt)) + missing
    assert abs(with_context([prompt], tokens, count).tokens[0] - tokens) <= 8


@settings(max_examples=40, deadline=None)
@given(st.integers(700, 6000), st.integers(0, 9), st.sampled_from([count, by_letter]))
def test_any_length_is_reached_with_any_way_of_counting(tokens: int, seed: int, counting: Callable[[str], int]) -> None:
    prompts = [p for p in BUILTIN[:6] if counting(content(p)) <= tokens]
    made = with_context(prompts, tokens, counting, seed=seed)
    assert all(abs(counting(content(p)) - tokens) <= tolerance(tokens) for p in made.prompts)


def test_few_measurements_are_made() -> None:
    calls = 0

    def counted(text: str) -> int:
        nonlocal calls
        calls += 1
        return count(text)

    with_context(BUILTIN, 8192, counted)
    # Each is a question to a server: one for each of the 40 passages, and about five for each of the 40 prompts.
    assert calls <= 40 + 40 * 8


@pytest.mark.parametrize(
    ("prompt", "tokens", "counting", "text"),
    [
        (Prompt("a", "x", token_ids=(1, 2)), 100, count, "'a' is recorded token ids"),
        (BUILTIN[4], 50, count, r"'editing-1' has \d+ tokens, more than the context of 50"),
        (BUILTIN[0], 0, count, "at least 1"),
        (BUILTIN[0], 100, lambda _: 5, "does not grow with the text"),
    ],
)
def test_what_cannot_be_done_is_refused(prompt: Prompt, tokens: int, counting: Callable[[str], int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        with_context([prompt], tokens, counting)
