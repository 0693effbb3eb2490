import json

from hypothesis import given
from hypothesis import strategies as st
from tests.gpus.printed import DATA, PrintingHost, rocm

from draftworth.gpus.base import GpuProcess
from draftworth.gpus.rocm_smi import RocmSmiReader


def test_memory_and_processes_of_three_cards() -> None:
    found = RocmSmiReader(rocm()).read()
    first, second, third = found.gpus
    assert (first.uuid, first.name) == ("0x9246e9e3b1b0aa01", "AMD Instinct MI300X")
    assert (first.total_bytes, first.used_bytes) == (206_141_652_992, 185_832_931_328)
    # What a process holds is told for all its GPUs together, so on two of them it is not known how much on each.
    assert first.processes == (
        GpuProcess(pid=833, used_bytes=4_294_967_296),
        GpuProcess(pid=5120, used_bytes=None),
    )
    assert second.processes == (GpuProcess(pid=5120, used_bytes=None),)
    assert (third.uuid, third.used_bytes, third.processes) == ("card2", None, ())
    assert found.why == "memory in use is not told for GPU 2"


def test_without_the_second_question_a_single_card_has_every_process() -> None:
    out = (
        b'WARNING: something\n{"card0": {"VRAM Total Memory (B)": "17163091968", '
        b'"VRAM Total Used Memory (B)": "16106127360"}, "system": {"PID12": "llama-server, 1, 16000000000, 0, 3"}}\n'
    )
    found = RocmSmiReader(PrintingHost({"rocm-smi --showmeminfo": out})).read()
    (gpu,) = found.gpus
    assert gpu.processes == (GpuProcess(pid=12, used_bytes=16_000_000_000),)
    assert gpu.uuid == "card0"
    assert found.why is None


def test_without_the_second_question_several_cards_are_not_told_apart() -> None:
    host = PrintingHost({"rocm-smi --showmeminfo": (DATA / "rocm-all.json").read_bytes()})
    found = RocmSmiReader(host).read()
    assert [gpu.processes for gpu in found.gpus] == [None, None, None]
    assert found.why is not None
    assert "does not tell which GPUs a process is on" in found.why


def test_what_fails_is_a_reason() -> None:
    for answer, words in (
        ((127, b""), "not installed"),
        ((1, b"ERROR:root:Driver not initialized (amdgpu not found in modules)\n"), "amdgpu not found in modules"),
        ((0, b"{}"), "no GPU"),
        ((0, b"{oops"), "no JSON"),
    ):
        found = RocmSmiReader(PrintingHost({"rocm-smi": answer})).read()
        assert found.gpus == ()
        assert words in (found.why or "")


@given(
    st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.text(max_size=20) | st.integers(),
            lambda inner: st.dictionaries(
                st.sampled_from(["card0", "card1", "system", "PID7", "VRAM Total Memory (B)"]), inner
            ),
            max_leaves=8,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_nothing_that_is_printed_raises(out: bytes) -> None:
    found = RocmSmiReader(PrintingHost({"rocm-smi": out})).read()
    assert found.gpus or found.why
