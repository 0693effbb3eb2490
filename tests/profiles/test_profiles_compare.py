"""Two profiles compared, and the command line."""

from pathlib import Path

import pytest
from tests.helpers import run_cli
from tests.profiles.profiles_traces import BASE, GEMM, NGRAM, kernel, mark, on_host, trace, two_steps

from draftworth import cli
from draftworth.profiles.compare import compare
from draftworth.profiles.read import read_profile


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._VERBS, "profile", ("draftworth.cli.profile:app", "Decode time by class."))


def drafting(path: Path) -> Path:
    """Three steps of 2 requests, 1500 µs each, gemm 600: 10 tokens carried a step."""
    events = []
    for at in (2000, 3500, 5000):
        events += [mark(0, 2, 10, at, 80), on_host("cuda_runtime", "cudaGraphLaunch", at + 10, 5, correlation=at)]
        events.append(kernel(GEMM, at + 100, 600, correlation=at))
    return trace(path, events)


def test_a_step_and_a_token_by_hand(tmp_path: Path) -> None:
    base = read_profile([trace(tmp_path / "base.json", two_steps())])
    variant = read_profile([drafting(tmp_path / "variant.json")], tokens=12)
    found = compare(base, variant)
    step = {one.name: [one.base_ms, one.variant_ms, one.difference_ms] for one in found.per_step}
    assert step["total"] == pytest.approx([1.0, 1.5, 0.5])
    assert step["matrix work"] == pytest.approx([0.3, 0.6, 0.3])
    assert step["all-reduce"] == pytest.approx([0.15, 0.0, -0.15])
    # base: 2 tokens a step; variant: 12 tokens over three steps of two requests, so 8 in two of them
    token = {one.name: [one.base_ms, one.variant_ms] for one in found.per_token}
    assert token["total"] == pytest.approx([0.5, 3.0 / 8])
    for lines in (found.per_step, found.per_token):
        parts = [one for one in lines if one.name != "total"]
        assert sum(one.difference_ms or 0 for one in parts) == pytest.approx(lines[-1].difference_ms)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    base = read_profile([trace(tmp_path / "base.json", two_steps())])
    found = compare(base, read_profile([drafting(tmp_path / "variant.json")]))
    assert found.per_step
    assert not found.per_token
    assert any("tokens of the variant not known; --tokens" in note for note in found.notes)
    bare = read_profile([trace(tmp_path / "bare.json", [kernel(GEMM, 0, 100)])])
    found = compare(base, bare)
    assert not found.per_step
    assert {name: [one, other] for name, one, other in found.shares}["matrix work"] == pytest.approx([0.3, 1.0])
    assert "idle and host" in {name for name, _, _ in found.shares}


def test_real_traces_differ_by_what_is_verified() -> None:
    found = compare(read_profile([BASE]), read_profile([NGRAM]))
    step = {one.name: one for one in found.per_step}
    assert (step["matrix work"].difference_ms or 0) > 0
    assert step["total"].difference_ms == pytest.approx(
        found.variant.span_ms / 2 - found.base.span_ms / 2,
    )


def test_read_prints_a_table(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [*two_steps(), kernel("zzz<int>", 2860, 40, correlation=10)])
    result = run_cli("profile", "read", path)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0] == f"{path}: vllm, gpu 0: NVIDIA H200"
    assert "2 decode steps of about 1.0 ms with 2.00 requests and 2.00 tokens" in result.out
    row = next(line for line in lines if line.split()[:1] == ["all-reduce"])
    assert row.split() == ["all-reduce", "0.30", "15", "%", "0.1", "0.07", "2"]
    assert "Not recognised, 1 name" in result.out
    assert "zzz<int>" in result.out


def test_json_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", two_steps())
    result = run_cli("profile", "read", path, "--json")
    assert result.json["schema_version"] == 1
    assert result.json["steps"] == 2
    result = run_cli("profile", "compare", path, path, "--json", "--tokens", "8,8")
    assert result.json["per_step"][-1] == {
        "name": "total",
        "base_ms": 1.0,
        "variant_ms": 1.0,
        "interval": None,
    }


def test_compare_answers_first() -> None:
    result = run_cli("profile", "compare", BASE, NGRAM, "--tokens", "9,20")
    assert result.code == 0, result.err
    assert "One step takes" in result.out
    assert "One output token takes" in result.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["read"], "which profile?"),
        (["read", "none.json"], "none.json: no such file"),
        (["read", str(BASE), "--tokens", "0"], "--tokens: must be at least 1, not 0"),
        (
            ["compare", str(BASE), str(BASE), "--tokens", "1,2,3"],
            "--tokens: must be one number, or two as BASE,VARIANT",
        ),
        (["compare", str(BASE), str(BASE), "--steps", "x"], "--steps: must be one number"),
    ],
)
def test_wrong_calls_are_one_line(words: list[str], said: str) -> None:
    result = run_cli("profile", *words)
    assert result.code == 1
    assert said in result.err
    assert not result.out


def test_an_empty_folder(tmp_path: Path) -> None:
    result = run_cli("profile", "read", tmp_path)
    assert (result.code, "no traces in this folder" in result.err) == (1, True)
