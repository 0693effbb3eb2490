"""`draftworth service new` as a person calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.services.newunit.engine import FakeEngine, engine

__all__ = ["engine"]


def service(*arguments: str | Path, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "draftworth", "service", "new", *map(str, arguments)]
    around = {**{name: value for name, value in os.environ.items() if not name.startswith(("NCCL", "VLLM"))}, **env}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=around, cwd=cwd)


def document(*arguments: str | Path, code: int = 0, **env: str) -> dict[str, Any]:
    done = service("--json", *arguments, cwd=None, **env)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_unit_is_all_that_is_on_standard_output(engine: FakeEngine) -> None:
    done = service("--user", "daemon", "--", *engine.command)
    assert done.returncode == 0
    assert done.stdout.startswith("# Made by draftworth ")
    assert done.stdout.endswith("[Install]\nWantedBy=multi-user.target\n")
    assert f"ExecStart={' '.join(engine.command)}\n" in done.stdout
    assert "sudo systemctl daemon-reload" in done.stderr
    assert "note: no wait for GPU memory is in the unit" in done.stderr


def test_words_behind_the_dashes_are_the_engines_own(engine: FakeEngine) -> None:
    words = ["--json", "--name", "x", "-", "--", '{"method": "ngram"}', "[1, 2]", "--help", ""]
    found = document("--name", "mine", "--", *engine.command, *words)
    tail = '--json --name x - -- "{\\"method\\": \\"ngram\\"}" "[1, 2]" --help ""'
    assert found["name"] == "mine.service"
    assert f"{' '.join(engine.command)} {tail}\n" in found["text"]


def test_options_reach_the_unit(engine: FakeEngine) -> None:
    found = document(
        *(
            "--user",
            "daemon",
            "--description",
            "Our model",
            "--env",
            "A=b=c d",
            "--env",
            "FROM_SHELL",
            "--load-timeout",
        ),
        *("90min", "--stop-timeout", "2min", "--port", "9", "--cache-dir", "/var/tmp", "--cwd", "/usr"),
        *("--", *engine.command),
        FROM_SHELL="yes",
    )
    for line in (
        *("User=daemon", "Description=Our model", 'Environment="A=b=c d"', 'Environment="FROM_SHELL=yes"'),
        *("TimeoutStartSec=1h30min", "TimeoutStopSec=2min", "WorkingDirectory=/usr"),
        'Environment="VLLM_CACHE_ROOT=/var/tmp/vllm"',
    ):
        assert f"\n{line}\n" in found["text"]
    assert "http://127.0.0.1:9/health" in found["text"]
    assert found["schema_version"] == 1
    assert found["failed"] is False


def test_a_file_is_written_and_not_over_another(engine: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "my.service"
    done = service("--output", file, "--name", "my", "--", *engine.command)
    assert (done.returncode, done.stdout) == (0, f"Written: {file}\n")
    assert f"sudo install -m 644 {file} /etc/systemd/system/my.service" in done.stderr
    text = file.read_text()
    again = service("--output", file, "--name", "my", "--port", "1", "--", *engine.command)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert file.read_text() == text
    assert service("--force", "--output", file, "--name", "my", "--port", "1", "--", *engine.command).returncode == 0
    assert "127.0.0.1:1/" in file.read_text()


def test_a_dash_is_standard_output(engine: FakeEngine) -> None:
    assert service("--output", "-", "--", *engine.command).stdout.startswith("# Made by")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 1, "no command"),
        (("--name", "x", "--"), 1, "no command"),
        (("--", "no-such-program"), 1, "no such program"),
        (("--", "./x"), 1, "absolute path"),
        (("--", "bash", "-c", "vllm serve x"), 2, "runs a string"),
        (("--", "docker", "run", "x"), 2, "container"),
        (("--name", "a/b", "--", "true"), 1, "no name of a unit"),
        (("--env", "A=x\ny", "--", "true"), 1, "--env A"),
        (("--env", "NOT_SET_HERE", "--", "true"), 1, "not set in this shell"),
        (("--env", "HF_TOKEN=hf_s3cr3t", "--", "true"), 2, "--env-file"),
        (("--user", "no-such-user", "--", "true"), 1, "no user"),
        (("--output", "/no/such/folder/x", "--", "true"), 1, "no such folder"),
        (("--output", "/tmp", "--", "true"), 1, "is a folder"),
        (("--load-timeout", "soon", "--", "true"), 1, "--load-timeout"),
        (("--gpus", ",", "--", "true"), 1, "--gpus"),
        (("--gpu-floor", "-1", "--", "true"), 1, "--gpu-floor"),
        (("--no-such-option", "--", "true"), 1, "no-such-option"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_on_standard_output(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = service(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.startswith("draftworth: ")
    assert len(done.stderr.splitlines()) == 1
    assert "s3cr3t" not in done.stderr


def test_a_unit_that_systemd_does_not_take_is_shown_and_exits_2(engine: FakeEngine, tmp_path: Path) -> None:
    fake = tmp_path / "systemd-analyze"
    fake.write_text('#!/bin/sh\nfor unit; do :; done\necho "$(basename $unit):7: Failed to parse Foo" >&2; exit 1\n')
    fake.chmod(0o755)
    file = tmp_path / "out.service"
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = service("--output", file, "--name", "n", "--", *engine.command, PATH=path)
    assert done.returncode == 2
    assert "failed: systemd-analyze verify: n.service:7: Failed to parse Foo" in done.stderr
    assert "To install" not in done.stderr
    assert not file.exists()
    assert document("--name", "n", "--", *engine.command, code=2, PATH=path)["failed"] is True


def test_gpus_and_their_topology_are_read_from_nvidia_smi(engine: FakeEngine, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    data = Path(__file__).parents[1] / "services" / "newunit" / "data" / "topo_pcie_2.txt"
    smi.write_text(
        f'#!/bin/sh\n[ "$1" = topo ] && exec cat {data}\n'
        'for i in 0 1; do echo "$i, GPU-$i, NVIDIA L40S, 3, [N/A]"; done\n'
    )
    smi.chmod(0o755)
    found = document("--", *engine.command, "-tp", "2", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert found["proposed"][0]["name"] == "NCCL_P2P_LEVEL"
    assert f"{smi} --query-gpu=index,memory.used" in found["text"]
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed: mismatch'; exit 18\n")
    broken = document("--", *engine.command, "-tp", "2", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "--query-gpu" not in broken["text"]
    assert any("NVIDIA-SMI has failed: mismatch" in check["text"] for check in broken["checks"])


def test_help_names_every_option() -> None:
    done = service("--help")
    assert done.returncode == 0
    for option in ("--name", "--user", "--env-file", "--gpu-floor", "--load-timeout", "--nccl", "--output", "--json"):
        assert option in done.stdout
