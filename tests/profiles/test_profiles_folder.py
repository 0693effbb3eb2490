"""Which files of a folder are one run's."""

import os
from pathlib import Path

import pytest

from draftworth.profiles.folder import files_of, rank_of

OLD, NEW = "1796061175042521236", "1796061229909930544"


def made(folder: Path, *names: str) -> None:
    for age, name in enumerate(names):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (1000 + age, 1000 + age))


@pytest.mark.parametrize(
    ("names", "run"),
    [
        # the newest trace of each rank
        (
            [f"rank{rank}.{time}.pt.trace.json.gz" for time in (OLD, NEW) for rank in (0, 1)],
            [f"rank{rank}.{NEW}.pt.trace.json.gz" for rank in (0, 1)],
        ),
        # another prefix is another run; vLLM's own text beside them is none
        (
            [
                f"base_dp0_pp0_tp0_dcp0_ep0_rank0.{OLD}.pt.trace.json.gz",
                f"ngram_dp0_pp0_tp0_dcp0_ep0_rank0.{NEW}.pt.trace.json.gz",
                f"ngram_dp0_pp0_tp1_dcp0_ep1_rank1.{NEW}.pt.trace.json.gz",
                "ngram_dp0_pp0_tp0_dcp0_ep0_rank0.profiler_out.txt",
            ],
            [
                f"ngram_dp0_pp0_tp0_dcp0_ep0_rank0.{NEW}.pt.trace.json.gz",
                f"ngram_dp0_pp0_tp1_dcp0_ep1_rank1.{NEW}.pt.trace.json.gz",
            ],
        ),
        # SGLang by stage
        (
            [f"1796061175.52-TP-{rank}-{stage}.trace.json.gz" for stage in ("EXTEND", "DECODE") for rank in (0, 1)],
            [f"1796061175.52-TP-{rank}-DECODE.trace.json.gz" for rank in (0, 1)],
        ),
    ],
)
def test_the_newest_run(tmp_path: Path, names: list[str], run: list[str]) -> None:
    made(tmp_path, *names)
    assert [one.name for one in files_of(tmp_path)] == run
    assert [rank_of(name) for name in run] == list(range(len(run)))


def test_a_file_is_itself(tmp_path: Path) -> None:
    made(tmp_path, "mine.json", "other.json")
    assert files_of(tmp_path / "mine.json") == [tmp_path / "mine.json"]
    assert rank_of("mine.json") is None
