from pathlib import Path

import pytest
from tests.gpus.printed import DATA, PrintingHost, nvidia, rocm

from draftworth.gpus import reader
from draftworth.hosts import host_for


def test_the_first_tool_that_finds_gpus_is_taken() -> None:
    assert reader(nvidia("h200")).name == "nvidia-smi"
    assert reader(rocm()).name == "rocm-smi"


def test_where_nothing_finds_any_every_reason_is_kept() -> None:
    found = reader(PrintingHost({"nvidia-smi": (18, (DATA / "mismatch.txt").read_bytes())})).read()
    assert (found.source, found.gpus) == ("none", ())
    assert found.why is not None
    assert "Driver/library version mismatch" in found.why
    assert "rocm-smi: not installed" in found.why


def test_a_real_command_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "rocm-smi"
    tool.write_text(
        f"#!/bin/sh\ncase $1 in --showpidgpus) cat {DATA}/rocm-pidgpus.txt;; *) cat {DATA}/rocm-all.json;; esac\n",
        encoding="utf-8",
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = reader(host_for(None)).read()
    assert found.source == "rocm-smi"
    assert len(found.gpus) == 3
