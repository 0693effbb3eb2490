"""Which files are ranks of one run, and what is said of those that are not read."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import run_cli
from tests.profiles.profiles_traces import BASE, DATA, trace, two_steps

from draftworth import cli
from draftworth.errors import UsageError
from draftworth.profiles.read import read_profile

NOW = 1_790_857_026_000_000_000


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._VERBS, "profile", ("draftworth.cli.profile:app", "Decode time by class."))


def rank(folder: Path, name: str, number: int | None, *, later_s: float = 0, world: int = 2, **head: Any) -> Path:
    told = {} if number is None else {"distributedInfo": {"rank": number, "world_size": world}}
    return trace(folder / name, two_steps(), baseTimeNanoseconds=NOW + int(later_s * 1e9), **told, **head)


def test_three_unrelated_runs_are_refused_in_one_line() -> None:
    result = run_cli("profile", "read", *sorted(DATA.glob("vllm_h200_moe_*")))
    assert (result.code, result.out) == (1, "")
    assert "not ranks of one run (both are rank 0)" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_file_named_twice(tmp_path: Path) -> None:
    path = rank(tmp_path, "a.json", 0)
    with pytest.raises(UsageError, match=r"a\.json named twice: not ranks"):
        read_profile([path, path])


def test_other_ranks_of_another_time_engine_size_or_device_are_refused(tmp_path: Path) -> None:
    first = rank(tmp_path, "rank0.json", 0, vllm_version="0.32.0")
    for number, (other, why) in enumerate(
        [
            (rank(tmp_path, "late.json", 1, later_s=60), "recorded 60 s apart"),
            (rank(tmp_path, "old.json", 1, vllm_version="0.25.0"), r"of vllm 0\.32\.0 and of vllm 0\.25\.0"),
            (rank(tmp_path, "big.json", 1, world=8), "one is of a run of [28] ranks, the other of [28]"),
            (BASE, "both are rank 0|one is of a GPU"),
        ]
    ):
        with pytest.raises(UsageError, match=why):
            read_profile([first, other] if number % 2 else [other, first])


def test_ranks_of_one_run_are_read_without_a_doubt(tmp_path: Path) -> None:
    paths = [rank(tmp_path, f"rank{one}.json", one, later_s=0.2 * one) for one in (0, 1)]
    found = read_profile(paths)
    assert len(found.ranks) == 2
    assert not any("rank" in one for one in found.warnings)


def test_groups_of_data_parallelism_may_number_alike(tmp_path: Path) -> None:
    paths = [rank(tmp_path, f"dp{one}_pp0_tp0_dcp0_ep0_rank0.json", None) for one in (0, 1)]
    assert len(read_profile(paths).ranks) == 2


def test_files_that_tell_no_rank_are_doubted_before_any_figure(tmp_path: Path) -> None:
    paths = [rank(tmp_path, f"{name}.json", None) for name in ("mine", "yours")]
    lines = run_cli("profile", "read", *paths).out.splitlines()
    doubt = next(number for number, line in enumerate(lines) if "no rank is told by mine.json, yours.json" in line)
    assert doubt < next(number for number, line in enumerate(lines) if "matrix work" in line)


def test_a_rank_that_is_missing_is_said(tmp_path: Path) -> None:
    found = read_profile([rank(tmp_path, "rank1.json", 1, world=8)])
    assert "1 of the run's 8 ranks was read: another may be the slowest" in found.warnings


def test_a_folder_of_several_runs_names_what_was_not_read_first(tmp_path: Path) -> None:
    for name in ("baseline", "null-draft", "synthetic"):
        shutil.copy(DATA / f"vllm_h200_moe_{name}.pt.trace.json.gz", tmp_path / f"{name}.pt.trace.json.gz")
    result = run_cli("profile", "read", tmp_path)
    warning = next(line for line in result.out.splitlines() if "newest run is read (synthetic" in line)
    assert "2 other traces not: baseline.pt.trace.json.gz, null-draft.pt.trace.json.gz" in warning
    assert result.out.index(warning) < result.out.index("experts")
    told = run_cli("profile", "read", tmp_path, "--json").json
    assert any("2 other traces not" in one for one in told["warnings"])
    both = run_cli("profile", "compare", DATA / "vllm_h200_moe_baseline.pt.trace.json.gz", tmp_path)
    assert "Warning, variant: " in both.out


def test_an_older_trace_of_the_same_rank_is_named_too(tmp_path: Path) -> None:
    for number in (1, 2):
        rank(tmp_path, f"rank0.{'1' * 18}{number}.pt.trace.json", 0, later_s=number, world=1)
    found = read_profile([tmp_path])
    assert any("1 other trace not: rank0." in one for one in found.warnings)
    assert not found.ranks
