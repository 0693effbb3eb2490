"""Output tokens that a profile's steps can have emitted, and those that they cannot."""

from pathlib import Path

import pytest
from tests.helpers import run_cli
from tests.profiles.profiles_traces import DATA, GEMM, kernel, mark, on_host, trace, two_steps

from draftworth import cli
from draftworth.errors import UsageError
from draftworth.profiles.read import read_profile

BASE, SYNTHETIC = (DATA / f"vllm_h200_moe_{arm}.pt.trace.json.gz" for arm in ("baseline", "synthetic"))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._VERBS, "profile", ("draftworth.cli.profile:app", "Decode time by class."))


@pytest.mark.parametrize(
    "words", [["compare", str(BASE), str(SYNTHETIC)], ["compare", str(SYNTHETIC), str(BASE)], ["read", str(SYNTHETIC)]]
)
@pytest.mark.parametrize("tokens", ["368", "17", "1"])
def test_tokens_that_these_steps_cannot_have_emitted_are_refused(words: list[str], tokens: str) -> None:
    result = run_cli("profile", *words, "--tokens", tokens)
    assert (result.code, result.out) == (1, "")
    # four steps of one request, each with three drafts and its own token
    assert f"--tokens {tokens}: not possible" in result.err
    assert "4 (one a request and step) to 16 tokens (every draft accepted)" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(("stated", "taken"), [(4, 3.0), (8, 6.0), (16, 12.0)])
def test_possible_tokens_up_to_both_ends_are_taken(stated: int, taken: float) -> None:
    found = read_profile([SYNTHETIC], tokens=stated, strict=True)
    assert found.tokens == taken
    assert (found.request_steps or 0) <= taken <= (found.carried or 0)


def test_a_reader_that_is_not_strict_leaves_them_out_and_says_so() -> None:
    found = read_profile([SYNTHETIC], tokens=368)
    assert found.tokens is None
    assert any("--tokens 368: not possible" in note and "no figures per token" in note for note in found.notes)


def wide(path: Path, carried: list[int]) -> Path:
    """Steps of two requests that carry these tokens."""
    events = []
    for number, many in enumerate(carried):
        at = 1000 * (number + 1)
        events += [mark(0, 2, many, at, 50), on_host("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=at)]
        events.append(kernel(GEMM, at + 100, 500, correlation=at))
    return trace(path, events)


def test_the_part_of_the_span_is_kept_within_what_its_steps_carried(tmp_path: Path) -> None:
    # 2 + 2 + 20 tokens carried, the last step is not in the span: 24 of 24 are 16 by requests, but 2 + 4 are the most
    found = read_profile([wide(tmp_path / "a.json", [2, 4, 18])], tokens=24)
    assert found.tokens == 6
    assert any("6 are taken" in note for note in found.notes)


def test_one_more_step_of_a_request_that_has_ended_is_no_contradiction(tmp_path: Path) -> None:
    path = wide(tmp_path / "a.json", [10] * 50)
    assert read_profile([path], tokens=98, strict=True).tokens == 98  # 2 x 49, the least of the span
    with pytest.raises(UsageError, match=r"100 \(one a request and step\) to 500 tokens"):
        read_profile([path], tokens=90, strict=True)


def test_tokens_that_a_trace_tells_itself_win(tmp_path: Path) -> None:
    found = read_profile([trace(tmp_path / "a.json", two_steps())], tokens=368, strict=True)
    assert found.tokens == 4
    assert any("tells its output tokens itself" in note and "368" in note for note in found.notes)


def test_steps_of_a_compare_are_whole() -> None:
    result = run_cli("profile", "compare", BASE, BASE, "--steps", "2.5")
    assert (result.code, "--steps: must be a whole number, not 2.5" in result.err) == (1, True)
