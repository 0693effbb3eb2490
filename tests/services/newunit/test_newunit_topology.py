"""How GPUs are joined, from what nvidia-smi prints, and the settings proposed for it."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.newunit.engine import DATA

from draftworth.services.newunit.nccl import proposals
from draftworth.services.newunit.topology import parse

CASE = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_NTHREADS": "512",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
}


def text(name: str) -> str:
    return (DATA / f"topo_{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "kind", "gpus", "farthest"),
    [
        ("pcie_8", "pcie", 8, "SYS"),
        ("nvlink_8", "nvlink", 8, None),
        ("h200_2", "nvlink", 2, None),  # recorded on two H200 of one host
        ("bridged_4", "nvlink", 4, None),
        ("pcie_2", "pcie", 2, "PHB"),
        ("pcie_2_old", "pcie", 2, "PXB"),
        ("single", "single", 1, None),
    ],
)
def test_each_machine_is_told_apart(name: str, kind: str, gpus: int, farthest: str | None) -> None:
    found = parse(text(name))
    assert (found.kind, len(found.gpus), found.farthest) == (kind, gpus, farthest)


def test_links_are_those_of_the_matrix() -> None:
    links = parse(text("pcie_8")).links
    assert len(links) == 28
    assert (links[0, 1], links[0, 2], links[3, 4], links[6, 7]) == ("PIX", "NODE", "SYS", "PIX")


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "\tGPU0\tGPU1\nGPU0\t X \n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-3\nGPU1\tSYS\t X \t0-3\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t???\t0-3\nGPU1\t???\t X \t0-3\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-3\n\tGPU1",
        "No devices were found",
    ],
)
def test_what_cannot_be_read_proposes_nothing(garbage: str) -> None:
    assert parse(garbage).kind == "unknown"
    assert proposals(parse(garbage)) == ()


@given(st.text(st.sampled_from("GPUNIC0123 \t\nXPHBSYVD#"), max_size=200))
def test_nothing_makes_it_fail(garbage: str) -> None:
    assert parse(garbage).kind in {"nvlink", "pcie", "single", "unknown"}


@given(data=st.data(), count=st.integers(2, 6))
def test_any_matrix_is_read_back(data: st.DataObject, count: int) -> None:
    pairs = {
        pair: data.draw(st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV4", "NV18"]))
        for pair in combinations(range(count), 2)
    }
    names = [f"GPU{i}" for i in range(count)]
    rows = [
        f"{name}\t" + "\t".join("X" if i == j else pairs[min(i, j), max(i, j)] for j in range(count)) + "\t0-3\t0"
        for i, name in enumerate(names)
    ]
    found = parse("\t" + "\t".join(names) + "\tCPU Affinity\n" + "\n".join(rows))
    assert found.links == pairs
    assert (found.kind == "nvlink") == any(link.startswith("NV") for link in pairs.values())
    assert bool(proposals(found)) == (found.kind == "pcie")


def test_the_cases_own_settings_are_what_is_proposed_on_its_machine() -> None:
    found = proposals(parse(text("pcie_8")))
    assert {setting.name: setting.value for setting in found} == CASE
    assert all(setting.does and setting.why and setting.in_case for setting in found)


@pytest.mark.parametrize("name", ["nvlink_8", "bridged_4", "single"])
def test_nothing_is_proposed_where_nvlink_joins_them_or_there_is_one(name: str) -> None:
    assert proposals(parse(text(name))) == ()


def test_only_the_gpus_that_are_used_count() -> None:
    bridged = parse(text("bridged_4"))
    assert bridged.among({0, 2}).kind == "pcie"
    assert bridged.among({0, 1}).kind == "nvlink"
    assert bridged.among({3}).kind == "single"
    assert bridged.among(()).kind == "unknown"


def test_direct_access_is_proposed_only_where_a_path_crosses_the_cpu() -> None:
    near = parse(text("pcie_8")).among({0, 1})
    assert "NCCL_P2P_LEVEL" not in {setting.name for setting in proposals(near)}
