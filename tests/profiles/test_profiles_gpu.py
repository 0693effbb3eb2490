"""GPU traces with known times: classes, overlap, idle and host time, decode steps."""

import json
from pathlib import Path

import pytest
from tests.profiles.profiles_traces import (
    FLASH,
    GEMM,
    MOE,
    REDUCE,
    kernel,
    mark,
    on_host,
    trace,
    two_steps,
)

from draftworth.errors import UsageError
from draftworth.profiles.base import Profile
from draftworth.profiles.read import read_profile
from draftworth.profiles.vllm import profiler_arguments


def adds_up(found: Profile) -> bool:
    total = sum(one.ms for one in found.classes) + found.idle_ms + (found.host_ms or 0)
    return total == pytest.approx(found.span_ms, rel=1e-9, abs=1e-9)


def test_two_decode_steps_by_hand(tmp_path: Path) -> None:
    found = read_profile([trace(tmp_path / "rank0.json.gz", two_steps(), distributedInfo={"rank": 3})])
    assert (found.steps, found.span_ms, found.rank) == (2, 2.0, 3)
    assert (found.tokens, found.carried, found.request_steps) == (4.0, 4, 4)
    assert found.device == "gpu 0: NVIDIA H200"
    assert "2 of 3 decode, 0 mixed, 1 prefill" in found.told_by
    # per step: 300, 100 + half of 100, half of 100, 100, 100, 50 µs; two steps
    assert {one.name: round(one.ms, 6) for one in found.classes} == {
        "matrix work": 0.6,
        "all-reduce": 0.3,
        "copies": 0.1,
        "experts": 0.2,
        "attention": 0.2,
        "sampling": 0.1,
    }
    busy = {one.name: round(one.busy_ms, 6) for one in found.classes}
    assert (busy["all-reduce"], busy["copies"]) == (0.4, 0.2)
    assert all(one.count == 2 for one in found.classes)
    assert any("overlapped for 0.20 ms" in note for note in found.notes)
    assert adds_up(found)


def test_host_time_is_idle_time_in_which_the_cpu_worked(tmp_path: Path) -> None:
    found = read_profile([trace(tmp_path / "a.json", two_steps())])
    # The GPU idles from 2850 to 3100 and from 3850 to 4100 µs. The host: the operation 2860-3040 less the wait
    # 2900-3000; the marks 3000-3080 and 4000-4080. In idle time: 2860-2900, 3000-3080, 4000-4080.
    assert found.host_ms == pytest.approx(0.040 + 0.080 + 0.080)
    assert found.idle_ms == pytest.approx(0.5 - 0.2)


def test_kernels_outside_of_decode_do_not_count(tmp_path: Path) -> None:
    events = two_steps()
    events.append(kernel("not_a_known_name", 1500, 400, stream=9, correlation=1))
    found = read_profile([trace(tmp_path / "a.json", events)])
    assert not found.unknown
    assert found.span_ms == 2.0


def test_a_kernel_across_a_border_counts_for_its_part(tmp_path: Path) -> None:
    events = [*two_steps(), kernel(GEMM, 1900, 300, stream=9, correlation=1)]
    found = read_profile([trace(tmp_path / "a.json", events)])
    # 2100 to 2200 lie in the first step, beside the other gemm: the time of the class does not change
    assert found.of("matrix work") == pytest.approx(0.6)
    assert next(one for one in found.classes if one.name == "matrix work").busy_ms == pytest.approx(0.7)
    assert adds_up(found)


def test_unknown_kernels_are_listed_longest_first(tmp_path: Path) -> None:
    events = two_steps()
    events += [kernel("zzz_a", 2860, 10, correlation=10), kernel("zzz_b", 2880, 30, correlation=10)]
    events += [kernel("zzz_a", 3860, 10, correlation=20)]
    found = read_profile([trace(tmp_path / "a.json", events)])
    assert [(one.name, round(one.ms, 6), one.count) for one in found.unknown] == [
        ("zzz_b", 0.03, 1),
        ("zzz_a", 0.02, 2),
    ]
    assert found.of("not recognised") == pytest.approx(0.05)


def test_a_users_table_goes_first(tmp_path: Path) -> None:
    table = tmp_path / "mine.toml"
    table.write_text(
        "[[kernel]]\nclass = 'experts'\npattern = '^zzz_'\n[[kernel]]\nclass = 'other'\npattern = 'nvjet'\n"
    )
    events = [*two_steps(), kernel("zzz_a", 2860, 10, correlation=10)]
    found = read_profile([trace(tmp_path / "a.json", events)], kernels=table)
    assert found.of("experts") == pytest.approx(0.21)
    assert found.of("other") == pytest.approx(0.6)
    assert not found.unknown


def test_a_step_before_a_pause_is_left_out(tmp_path: Path) -> None:
    # A step without requests after the second decode step: whether the engine waited cannot be seen.
    events = [one for one in two_steps() if one["ts"] < 4000 or "execute" not in one["name"]]
    events = [one for one in events if one["ts"] < 4000]
    events += [mark(0, 0, 0, 4000, 5), mark(0, 1, 1, 9000, 50)]
    events += [
        on_host("cuda_runtime", "cudaLaunchKernel", 9010, 5, correlation=77),
        kernel(GEMM, 9100, 10, correlation=77),
    ]
    found = read_profile([trace(tmp_path / "a.json", events)])
    assert (found.steps, found.span_ms) == (1, 1.0)


def test_steps_with_drafts_carry_more_than_they_emit(tmp_path: Path) -> None:
    events = []
    for at in (1000, 2000, 3000):
        events += [mark(0, 2, 10, at, 50), on_host("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=at)]
        events.append(kernel(GEMM, at + 100, 500, correlation=at))
    path = trace(tmp_path / "a.json", events)
    found = read_profile([path])
    assert (found.carried, found.request_steps, found.tokens) == (20, 4, None)
    # 30 tokens over three steps of two requests each: two thirds of them in the span
    assert read_profile([path], tokens=30).tokens == pytest.approx(20.0)


def test_projected_marks_tell_steps_where_launches_are_missing(tmp_path: Path) -> None:
    events = []
    for at in (1000, 2000, 3000):
        for stream in (7, 8):
            one = mark(0, 1, 1, at + stream, 400) | {"cat": "gpu_user_annotation", "pid": 0, "tid": stream}
            events.append(one)
        events.append(kernel(FLASH, at + 7, 400))
    found = read_profile([trace(tmp_path / "a.json", events)])
    assert (found.steps, found.span_ms, found.host_ms) == (2, 2.0, None)
    assert found.of("attention") == pytest.approx(0.8)
    assert found.idle_ms == pytest.approx(1.2)


def test_whole_graphs_tell_steps_where_there_are_no_marks(tmp_path: Path) -> None:
    events = []
    starts = [1000, 2000, 3000, 4000, 9000, 10000]  # a prefill between 4000 and 9000
    for number, at in enumerate(starts):
        events.append(on_host("cuda_runtime", "cudaGraphLaunch", at - 50, 5, correlation=number + 1))
        events += [kernel(MOE, at + 10 * one, 8, correlation=number + 1) for one in range(60)]
    found = read_profile([trace(tmp_path / "a.json", events)])
    assert (found.steps, found.span_ms) == (4, 4.0)
    assert found.of("experts") == pytest.approx(4 * 60 * 0.008)
    assert "1 left out" in found.told_by


def test_without_any_sign_of_steps_the_whole_file_is_told_as_such(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [kernel(GEMM, 1000, 100), kernel(FLASH, 1200, 100)])
    found = read_profile([path])
    assert (found.steps, found.tokens) == (None, None)
    assert found.span_ms == pytest.approx(0.3)
    assert "whole file" in found.told_by
    assert read_profile([path], steps=4).steps == 4


def test_sglang_steps(tmp_path: Path) -> None:
    events = []
    names = [
        "step[EXTEND bs=1 toks=40]",
        "step[VERIFY bs=3 g_sq=12]",
        "step[DRAFT bs=3]",
        "step[VERIFY bs=3]",
        "step[DECODE bs=3]",
    ]
    for number, name in enumerate(names):
        at = 1000 * (number + 1)
        events += [on_host("user_annotation", name, at, 50)]
        events += [
            on_host("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=at),
            kernel(GEMM, at + 100, 500, correlation=at),
        ]
    found = read_profile([trace(tmp_path / "a.json", events)])
    # The draft model's forward belongs to the first verification: 2 s of 1000 µs, then 1000 µs.
    assert (found.steps, found.span_ms, found.engine) == (2, 3.0, "sglang")
    assert found.of("matrix work") == pytest.approx(1.5)


def test_a_profile_of_prefill_only_says_so(tmp_path: Path) -> None:
    events = [
        mark(1, 0, 0, 1000, 50),
        on_host("cuda_runtime", "cudaLaunchKernel", 1001, 5, correlation=1),
        kernel(GEMM, 1100, 5, correlation=1),
    ]
    with pytest.raises(UsageError, match=r"no decode step that another follows \(it has 0 decode, 0 mixed, 1 prefill"):
        read_profile([trace(tmp_path / "a.json", events)])


def test_ranks_of_one_run_and_the_slowest(tmp_path: Path) -> None:
    paths = []
    for rank, slow in ((0, 0), (1, 150)):
        events = [one | {"dur": one["dur"] + slow} if one["name"] == MOE else one for one in two_steps()]
        events = [one | {"ts": one["ts"] + slow} if one["name"] == FLASH else one for one in events]
        events = [one | {"dur": one["dur"] - slow / 3} if one["name"] == REDUCE else one for one in events]
        paths.append(trace(tmp_path / f"run_rank{rank}.1.pt.trace.json.gz", events, distributedInfo={"rank": rank}))
    found = read_profile(paths)
    assert found.rank == 1
    assert [one.rank for one in found.ranks] == [0, 1]
    assert any("the difference is waiting for the slowest" in note for note in found.notes)
    assert read_profile([tmp_path]).ranks == found.ranks
    assert all(adds_up(one) for one in found.ranks)


def test_a_generic_collective_is_told_by_its_recorded_name(tmp_path: Path) -> None:
    one = kernel("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", 2860, 20, correlation=10)
    named = one | {"ts": 2890, "args": one["args"] | {"Collective name": "allreduce"}}
    found = read_profile([trace(tmp_path / "a.json", [*two_steps(), one, named])])
    assert found.of("other collectives") == pytest.approx(0.02)
    assert found.of("all-reduce") == pytest.approx(0.32)


def test_vllm_is_started_so_that_it_can_be_profiled() -> None:
    words = profiler_arguments(Path("/tmp/traces"))
    assert words[0] == "--profiler-config"
    assert json.loads(words[1])["torch_profiler_dir"] == "/tmp/traces"
