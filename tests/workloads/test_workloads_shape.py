import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth import workloads
from draftworth.bench.base import Prompt, Turn
from draftworth.workloads.context import with_context
from draftworth.workloads.shape import shape

DATA = Path(__file__).parent / "data"
NATURAL = workloads.load(DATA / "natural_prompts.json").prompts
"""Seven languages, code, JSON, a table, numbers, a log and a list of words, written for these tests."""
RANDOM = workloads.load(DATA / "random_prompts.json").prompts
"""64 to 256 tokens of SmolLM2's vocabulary, decoded: drawn uniformly, or in sequence as vLLM's random data set does."""
BUILTIN = workloads.load("builtin").prompts


def text(words: str, name: str = "a") -> Prompt:
    return Prompt(name, "x", ({"role": "user", "content": words},))


def ids(*tokens: int, name: str = "a") -> Prompt:
    return Prompt(name, "x", token_ids=tokens)


@pytest.mark.parametrize("prompts", [NATURAL, BUILTIN, NATURAL + BUILTIN], ids=["samples", "builtin", "both"])
def test_written_text_is_neither(prompts: tuple[Prompt, ...]) -> None:
    seen = shape(prompts)
    assert (seen.looks_random, seen.repeats, seen.random_ids, seen.repeating_ids) == (False, False, (), ())
    assert "long enough to tell" in seen.evidence
    assert "\n" not in seen.evidence


@pytest.mark.parametrize("prompt", NATURAL + BUILTIN, ids=lambda prompt: prompt.id)
def test_no_written_text_alone_is_either(prompt: Prompt) -> None:
    seen = shape([prompt])
    assert not seen.looks_random
    assert not seen.repeats


@pytest.mark.parametrize("kind", ["uniform", "consecutive"])
def test_random_tokens_are_found(kind: str) -> None:
    seen = shape([p for p in RANDOM if p.category == kind])
    assert seen.looks_random
    assert not seen.repeats
    assert "look like random tokens: two words of one prompt are the same in 0.0" in seen.evidence


def test_a_long_random_prompt_is_found_alone() -> None:
    long = [p for p in RANDOM if len(p.messages[0]["content"].split()) >= 150]
    assert len(long) >= 8
    assert all(shape([p]).looks_random for p in long)


def test_random_prompts_among_written_ones_are_named_and_a_stray_one_decides_nothing() -> None:
    uniform = [p for p in RANDOM if p.category == "uniform"]
    some = shape([*BUILTIN, *uniform[:12]])
    assert some.looks_random
    assert set(some.random_ids) == {p.id for p in uniform[:12]}
    stray = next(p for p in uniform if shape([p]).looks_random)
    seen = shape([*BUILTIN, stray])
    assert (seen.looks_random, seen.random_ids) == (False, (stray.id,))


@pytest.mark.parametrize("vocabulary", [1000, 32_000, 152_000])
@pytest.mark.parametrize("length", [64, 128, 2000])
def test_uniform_token_ids_are_found(vocabulary: int, length: int) -> None:
    draw = random.Random(length)
    prompts = [ids(*(draw.randrange(vocabulary) for _ in range(length)), name=str(i)) for i in range(40)]
    assert shape(prompts).looks_random
    assert shape([ids(*range(5000, 5000 + length), name=str(i)) for i in range(10)]).looks_random


def test_token_ids_of_written_text_are_not_random() -> None:
    known: dict[str, int] = {}
    prompts = []
    for prompt in NATURAL:
        pieces = prompt.messages[0]["content"].replace("\n", " \n ").replace(",", " ,").split(" ")
        prompts.append(ids(*(known.setdefault(piece, 20 * len(known)) for piece in pieces), name=prompt.id))
    long = [p for p in prompts if p.id in {"russian", "turkish", "finnish", "json", "logs", "code"}]
    seen = shape(long)
    assert (seen.looks_random, seen.repeats, seen.random_ids) == (False, False, ())


LOREM = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore "
    "magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo."
)
PARAGRAPH = BUILTIN[2].messages[0]["content"]


@pytest.mark.parametrize(
    "prompt",
    [
        text("hi " * 60),
        text("The quick brown fox jumps over the lazy dog. " * 12),
        text(LOREM),
        text(f"{PARAGRAPH}\n\n" * 6),
        text("天地玄黄宇宙洪荒" * 30),
        Prompt("a", "x", ({"role": "user", "content": "Read this."},), turns=(Turn("spam " * 80),)),
        ids(*([5, 9, 12, 7] * 60)),
    ],
    ids=["hi", "fox", "lorem", "paragraph", "characters", "turn", "ids"],
)
def test_repeated_filler_is_found(prompt: Prompt) -> None:
    seen = shape([prompt])
    assert seen.repeats
    assert seen.repeating_ids == ("a",)
    assert "1 of 1 prompts repeat the same text over and over" in seen.evidence


def test_the_same_prompt_under_other_ids_is_found() -> None:
    seen = shape([*BUILTIN[:6], *(text("Tell me  a joke.", str(i)) for i in range(2)), text("Tell me a joke.", "z")])
    assert seen.repeats
    assert "2 of 9 prompts are the same as one before" in seen.evidence
    assert not shape([*BUILTIN, text("Tell me a joke.", "y"), text("Tell me a joke.", "z")]).repeats
    assert shape([ids(1, 2, 3, name="a"), ids(1, 2, 3, name="b")]).repeats


def test_a_draft_with_its_revision_is_no_filler() -> None:
    assert not shape([text(f"Compare these two versions.\n\n{PARAGRAPH}\n\n{PARAGRAPH}")]).repeats


def test_natural_context_of_a_sweep_is_neither() -> None:
    made = with_context(BUILTIN, 1500, lambda part: len(part) // 4).prompts
    seen = shape(made)
    assert (seen.looks_random, seen.repeats) == (False, False)


def test_nothing_is_neither() -> None:
    assert shape([]).evidence == "no prompts"


@settings(deadline=None)
@given(st.lists(st.text(max_size=300) | st.lists(st.integers(0, 9), min_size=1, max_size=300), max_size=8))
def test_anything_has_a_shape_in_one_line(contents: list[str | list[int]]) -> None:
    prompts = [text(c, str(i)) if isinstance(c, str) else ids(*c, name=str(i)) for i, c in enumerate(contents)]
    assert "\n" not in shape(prompts).evidence
