from hypothesis import given
from hypothesis import strategies as st
from tests.gpus.printed import nvidia

from draftworth.gpus.base import Gpu, GpuProcess, Gpus
from draftworth.gpus.freeing import FLOOR_BYTES, still_used
from draftworth.gpus.freeing import ours as part_of
from draftworth.gpus.nvidia_smi import NvidiaSmiReader

GIB = 2**30
TOTAL = 80 * GIB
SERVICE = {100, 101}


def reading(used: int | None, processes: dict[int, int | None] | None, *, total: int | None = TOTAL) -> Gpus:
    listed = None if processes is None else tuple(GpuProcess(pid=p, used_bytes=b) for p, b in processes.items())
    gpu = Gpu(index=3, uuid="GPU-d", name="H100", total_bytes=total, used_bytes=used, processes=listed)
    return Gpus(source="nvml", gpus=(gpu,))


def judge(before: Gpus, now: Gpus) -> tuple[bool, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    found = still_used(before, now, part_of(before, SERVICE))
    return found.free, tuple(one.line for one in found.held), found.notes, found.unknown


def test_a_process_of_the_service_that_stayed_is_named() -> None:
    before = reading(70 * GIB, {100: 69 * GIB})
    now = reading(int(42.2 * GIB), {100: int(41.2 * GIB)}, total=int(79.6 * GIB))
    assert judge(before, now) == (False, ("GPU 3: 41.2 of 79.6 GiB still held by pid 100",), (), ())


def test_memory_that_nobody_is_seen_to_hold_is_waited_for() -> None:
    # A driver that is still tearing a context down, or a process in another PID namespace.
    before = reading(70 * GIB, {100: 69 * GIB, 5: GIB // 2})
    now = reading(30 * GIB, {5: GIB // 2})
    assert judge(before, now) == (
        False,
        ("GPU 3: 29.0 of 80.0 GiB still held by no process that can be seen",),
        (),
        (),
    )


def test_a_neighbour_is_not_the_service_and_may_grow() -> None:
    before = reading(70 * GIB, {100: 60 * GIB, 5: 10 * GIB})
    assert judge(before, reading(10 * GIB, {5: 10 * GIB}))[0]
    assert judge(before, reading(35 * GIB, {5: 35 * GIB}))[0]
    assert judge(before, reading(40 * GIB, {5: 10 * GIB, 6: 30 * GIB}))[0]


def test_a_neighbour_that_shrank_does_not_hide_what_is_left() -> None:
    before = reading(70 * GIB, {100: 40 * GIB, 5: 30 * GIB})
    now = reading(21 * GIB, {5: GIB})
    assert judge(before, now)[1] == ("GPU 3: 20.0 of 80.0 GiB still held by no process that can be seen",)


def test_without_processes_now_memory_alone_decides() -> None:
    before = reading(70 * GIB, {100: 60 * GIB, 5: 10 * GIB})
    assert judge(before, reading(10 * GIB, None))[0]
    assert not judge(before, reading(20 * GIB, None))[0]


def test_the_tolerance_is_512_mib_or_two_percent() -> None:
    before = reading(70 * GIB, {100: 69 * GIB})
    allowed = int(0.02 * TOTAL)
    assert judge(before, reading(GIB + allowed, {}))[0]
    assert not judge(before, reading(GIB + allowed + 2**20, {}))[0]
    small = reading(9 * GIB, {100: 8 * GIB}, total=10 * GIB)
    assert judge(small, reading(GIB + 512 * 2**20, {}, total=10 * GIB))[0]
    assert not judge(small, reading(GIB + 513 * 2**20, {}, total=10 * GIB))[0]


def test_where_bytes_are_not_told_no_process_is_enough_and_that_is_said() -> None:
    for before in (reading(None, {100: GIB}), reading(70 * GIB, {100: None})):
        free, held, notes, unknown = judge(before, reading(before.gpus[0].used_bytes, {5: GIB}))
        assert (free, held, unknown) == (True, (), ())
        assert notes == ("GPU 3: memory is not told; taken for free since no process of the service is on it any more",)
        held = judge(before, reading(None, {101: None}))[1]
        assert held == ("GPU 3: still in use by pid 101; how much is not told",)


def test_what_cannot_be_told_is_said_and_not_waited_for() -> None:
    hidden = reading(70 * GIB, None)
    assert judge(hidden, hidden) == (
        True,
        (),
        (),
        ("GPU 3: whether the service is on it cannot be told; not waited for",),
    )
    before = reading(None, {100: None})
    assert judge(before, reading(None, None))[3] == ("GPU 3: neither memory nor processes can be told; not waited for",)
    gone = Gpus(source="nvidia-smi", gpus=(), why="nvidia-smi: GPU is lost")
    assert judge(before, gone)[3] == ("GPU 3: cannot be read now: nvidia-smi: GPU is lost",)
    none = Gpus(source="none", gpus=(), why="nvidia-smi: not installed")
    assert judge(none, none)[3] == ("no GPU could be read before the stop: nvidia-smi: not installed; not waited for",)


def test_other_gpus_of_the_machine_are_not_asked_for() -> None:
    before = NvidiaSmiReader(nvidia("eight")).read()
    service = part_of(before, {41203, 41204})
    found = still_used(before, before, service)
    assert [one.line for one in found.held] == [
        "GPU 3: 76.5 of 79.6 GiB still held by pid 41203",
        "GPU 4: 76.5 of 79.6 GiB still held by pid 41204",
    ]


def test_a_mig_instance_is_judged_for_itself() -> None:
    before = NvidiaSmiReader(nvidia("mig")).read()
    found = still_used(before, before, part_of(before, {7001}))
    assert [one.line for one in found.held] == ["GPU 0 MIG 0: 14.0 of 19.5 GiB still held by pid 7001"]
    assert found.unknown == ()


GIGABYTES = st.integers(0, 40).map(lambda count: count * GIB)


@given(GIGABYTES, GIGABYTES, GIGABYTES)
def test_what_the_service_left_is_free_whatever_neighbours_do(own: int, other: int, later: int) -> None:
    before = reading(own + other, {100: own, 5: other})
    assert judge(before, reading(later, {5: later}))[0]


@given(GIGABYTES, GIGABYTES, GIGABYTES, st.integers(0, TOTAL))
def test_what_stays_beyond_the_tolerance_is_held(own: int, other: int, later: int, left: int) -> None:
    before = reading(own + other, {100: own, 5: other})
    free = judge(before, reading(later + left, {5: later}))[0]
    assert free == (left <= max(FLOOR_BYTES, 0.02 * TOTAL))


@given(st.none() | GIGABYTES, st.none() | GIGABYTES, st.none() | GIGABYTES, st.sampled_from([100, 101]))
def test_a_living_process_of_the_service_is_never_free(
    used: int | None, before_own: int | None, own: int | None, pid: int
) -> None:
    before = reading(used, {100: before_own})
    now = reading(used, {pid: own})
    assert not judge(before, now)[0]


@given(
    st.none() | GIGABYTES,
    st.none() | GIGABYTES,
    st.none() | st.dictionaries(st.sampled_from([5, 6, 100, 101]), st.none() | GIGABYTES),
    st.none() | st.dictionaries(st.sampled_from([5, 6, 100, 101]), st.none() | GIGABYTES),
)
def test_every_pair_of_readings_has_an_answer(
    used: int | None,
    used_now: int | None,
    processes: dict[int, int | None] | None,
    processes_now: dict[int, int | None] | None,
) -> None:
    before, now = reading(used, processes), reading(used_now, processes_now)
    found = still_used(before, now, part_of(before, SERVICE))
    concerned = processes is None or bool(SERVICE & set(processes))
    assert concerned or found == still_used(before, before, part_of(before, set()))
    assert len(found.held) + len(found.notes) + len(found.unknown) <= 1
