"""Settings of the n-gram drafters: defaults and refusals are the engines' own."""

import re
from collections.abc import Sequence

import pytest

from draftworth.drafters import drafter
from draftworth.drafters.base import Limits, Setting
from draftworth.errors import UsageError

VLLM = ("vllm-ngram-v1", "vllm-ngram-v2")


def windows(name: str, low: Sequence[int] | None, high: Sequence[int] | None) -> list[tuple[int | None, int | None]]:
    return [(one.min, one.max) for one in drafter(name).settings(k=[3], min=low, max=high)]


@pytest.mark.parametrize("name", VLLM)
def test_vllm_fills_up_what_is_not_set(name: str) -> None:
    assert windows(name, None, None) == [(5, 5)]
    assert windows(name, [2], None) == [(2, 2)]
    assert windows(name, None, [4, 7]) == [(4, 4), (7, 7)]
    assert windows(name, [2, 4], [3, 5]) == [(2, 3), (2, 5), (4, 5)]
    assert [one.k for one in drafter(name).settings()] == [1, 2, 3, 5]
    assert drafter(name).settings(k=[3, 3], min=[2], max=[2, 2]) == [Setting(3, 2, 2)]


@pytest.mark.parametrize("name", VLLM)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": [0]}, "num_speculative_tokens must be at least 1 and at most"),
        ({"k": []}, "num_speculative_tokens: no value given"),
        ({"min": [0]}, "prompt_lookup_min must be at least 1"),
        ({"max": [3, -1]}, "prompt_lookup_max must be at least 1 and at most 1073741823: got -1"),
        ({"max": [2**31]}, "prompt_lookup_max must be at least 1"),
        ({"min": [5], "max": [3]}, "prompt_lookup_min=5 must be <= prompt_lookup_max=3"),
        ({"more": {"eos_token_id": [1.0]}}, "has no parameter 'eos_token_id': it has k, min, max"),
    ],
)
def test_vllm_refusals(name: str, given: dict[str, Sequence[int]], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        drafter(name).settings(**given)  # type: ignore[arg-type]


def test_prompt_lookup_defaults_and_refusals() -> None:
    hf = drafter("hf-prompt-lookup")
    assert hf.settings() == [Setting(10, None, 2)]
    assert hf.settings(k=[4], max=[3], more={"eos_token_id": [2]}) == [Setting(4, None, 3, {"eos_token_id": 2})]
    for given, said in (
        ({"min": [1]}, "has no parameter 'min'"),
        ({"max": [0]}, "max_matching_ngram_size must be at least 1"),
        ({"k": [0]}, "prompt_lookup_num_tokens must be at least 1"),
        ({"more": {"eos": [1]}}, "has no parameter 'eos': it has k, min, max, eos_token_id"),
        ({"more": {"eos_token_id": [-1]}}, "eos_token_id must be a token id: got -1"),
        ({"more": {"eos_token_id": [0.5]}}, "eos_token_id must be a token id: got 0.5"),
        ({"more": {"eos_token_id": []}}, "eos_token_id: no value given"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            hf.settings(**given)


@pytest.mark.parametrize("name", [*VLLM, "hf-prompt-lookup"])
def test_a_session_needs_settings_with_a_window(name: str) -> None:
    with pytest.raises(UsageError, match="no setting to replay"):
        drafter(name).session([], Limits())
    with pytest.raises(UsageError, match="n-grams from 3 to 2"):
        drafter(name).session([Setting(1, 3, 2)], Limits())
    with pytest.raises(UsageError, match="n-grams from 3 to None"):
        drafter(name).session([Setting(1, 3, None)], Limits())


@pytest.mark.parametrize("name", [*VLLM, "hf-prompt-lookup"])
def test_what_a_drafter_says_of_itself(name: str) -> None:
    one = drafter(name)
    assert one.name == name
    assert not one.shared
    assert one.always_verifies == (name == "vllm-ngram-v2")
    assert one.engine in one.source.lower()
    assert len(set(map(repr, one.grid()))) == 64
