"""The GPUs of a measurement are told by name, and their absence is no empty list."""

import pytest

from draftworth.bench.machine import machine
from draftworth.gpus.base import Gpu, Gpus


class Reader:
    name = "test"

    def read(self) -> Gpus:
        names = ["NVIDIA H200", "NVIDIA H200", "NVIDIA A10"]
        return Gpus(
            source="test",
            gpus=tuple(
                Gpu(index=at, uuid=str(at), name=name, total_bytes=None, used_bytes=None, processes=None)
                for at, name in enumerate(names)
            ),
        )


def test_like_gpus_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftworth.bench.machine.device_here", lambda: None)
    monkeypatch.setattr("draftworth.gpus.reader", lambda _: Reader())
    assert machine()["gpus"] == ["2 x NVIDIA H200", "1 x NVIDIA A10"]


def test_a_machine_without_any_has_no_such_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftworth.bench.machine.device_here", lambda: "cpu")
    assert "gpus" not in machine()
