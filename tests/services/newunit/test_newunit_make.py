"""What goes into the unit and what is said about it."""

import grp
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.services.newunit.engine import DATA, gpu, machine

from draftworth.errors import DraftworthError, RefusedError, UsageError
from draftworth.services.newunit.base import Account, Asked, Check, NewUnit
from draftworth.services.newunit.facts import account_of, parse_gpus
from draftworth.services.newunit.make import make

PCIE_8 = (DATA / "topo_pcie_8.txt").read_text(encoding="utf-8")
NVLINK_8 = (DATA / "topo_nvlink_8.txt").read_text(encoding="utf-8")


@pytest.fixture
def vllm(tmp_path: Path) -> str:
    path = tmp_path / "vllm"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def gpus_8(**changes: Any) -> dict[str, Any]:
    gpus = tuple(gpu(index, **changes) for index in range(8))
    return {"nvidia_smi": "/usr/bin/nvidia-smi", "gpus": gpus, "topology": PCIE_8}


def made(vllm: str, *words: str, on: dict[str, Any] | None = None, **asked: Any) -> NewUnit:
    return make(Asked(command=(vllm, "serve", "org/M", *words), **asked), machine(**(on or {})))


def told(unit: NewUnit) -> str:
    return "\n".join(f"{check.severity}: {check.text}" for check in unit.checks)


def values(unit: NewUnit, setting: str) -> list[str]:
    return re.findall(rf"^{setting}=(.*)$", unit.text, re.MULTILINE)


def test_every_setting_of_the_service_part_is_explained(vllm: str) -> None:
    unit = made(vllm, "-tp", "8", on=gpus_8())
    for setting in ("StartLimitIntervalSec", "KillMode", "LimitMEMLOCK", "OOMPolicy", "TimeoutStartSec"):
        before = unit.text.split(f"\n{setting}=")[0].splitlines()
        assert before[-1].startswith("#"), setting


def test_gpus_named_by_the_command_by_a_variable_or_by_hand(vllm: str) -> None:
    def waits_for(*words: str, **asked: Any) -> list[str]:
        return re.findall(r"nvidia-smi( -i [^ ]+)? --query-gpu", made(vllm, *words, on=gpus_8(), **asked).text)

    assert waits_for() == [" -i 0"]
    assert waits_for("-tp", "4") == [" -i 0,1,2,3"]
    assert waits_for("-tp", "8") == [""]
    assert waits_for("-tp", "2", env={"CUDA_VISIBLE_DEVICES": "6, 7"}) == [" -i 6,7"]
    assert waits_for("-tp", "2", gpus=("3", "GPU-00000005")) == [" -i 3,GPU-00000005"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"gpus": ("9",)}, "there is no GPU 9"),
        ({"gpus": ("x;rm",)}, "neither an index nor a UUID"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0,12"}}, "CUDA_VISIBLE_DEVICES: there is no GPU 12"),
        ({"gpu_wait_s": 7200}, "--gpu-wait 2h must be shorter"),
        ({"cwd": "x"}, "absolute"),
        ({"cwd": "/no/such/folder"}, "no such folder"),
        ({"cache_dir": "cache"}, "absolute"),
        ({"env_files": ("x.env",)}, "absolute"),
        ({"env": {"A": "x\0y"}}, "--env A"),
        ({"env": {"A": "x\ny"}}, "--env A"),
        ({"env": {"A B": "x"}}, "no name"),
        ({"description": "two\nlines"}, "--description"),
        ({"description": "x\\"}, "--description"),
        ({"env_files": ("/x\n/y",)}, "--env-file"),
        ({"name": "a b"}, "--name"),
    ],
)
def test_bad_input_gets_one_clear_line(vllm: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as raised:
        made(vllm, on=gpus_8(), **asked)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY"])
def test_a_secret_variable_is_refused_and_never_shown(vllm: str, name: str) -> None:
    with pytest.raises(RefusedError, match="--env-file") as raised:
        made(vllm, env={name: "s3cr3t-value"})
    assert "s3cr3t" not in str(raised.value)


def test_a_secret_in_the_command_is_said(vllm: str) -> None:
    assert "warning: the command holds what looks like a secret" in told(made(vllm, "--api-key", "sk-12345678"))


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ({"why_no_gpus": "there is no nvidia-smi on this machine"}, "there is no nvidia-smi"),
        (gpus_8(mig=True), "MIG"),
        (gpus_8(used=None), "[N/A]"),
    ],
)
def test_where_memory_is_not_told_the_wait_is_left_out_and_said(vllm: str, on: dict[str, Any], said: str) -> None:
    unit = made(vllm, on=on)
    assert "nvidia-smi" not in unit.text
    (line,) = [line for line in told(unit).splitlines() if "no wait for GPU memory" in line]
    assert said in line


def test_a_mig_instance_is_not_waited_for(vllm: str) -> None:
    unit = made(vllm, on=gpus_8(), env={"CUDA_VISIBLE_DEVICES": "MIG-1234"})
    assert "--query-gpu" not in unit.text
    assert "MIG instance" in told(unit)


def test_nccl_is_comments_unless_asked_for(vllm: str) -> None:
    proposed = made(vllm, "-tp", "8", on=gpus_8())
    assert values(proposed, "#Environment")[0] == '"NCCL_P2P_LEVEL=SYS"'
    assert not [line for line in values(proposed, "Environment") if "NCCL" in line]
    active = made(vllm, "-tp", "8", on=gpus_8(), nccl=True)
    assert '"NCCL_PROTO=LL"' in values(active, "Environment")
    assert (proposed.nccl_active, active.nccl_active, values(active, "#Environment")) == (False, True, [])


def test_nccl_is_not_proposed_for_one_gpu_or_for_nvlink(vllm: str) -> None:
    assert made(vllm, on=gpus_8()).proposed == ()
    assert made(vllm, "-tp", "8", on={**gpus_8(), "topology": NVLINK_8}).proposed == ()
    assert made(vllm, "-tp", "8", on={**gpus_8(), "topology": None}).proposed == ()
    assert "NCCL_" not in made(vllm, "-tp", "8", on={**gpus_8(), "topology": NVLINK_8}, nccl=True).text


def test_what_a_person_sets_wins(vllm: str) -> None:
    env = {"NCCL_PROTO": "Simple", "HF_HOME": "/data/hf", "PATH": "/x"}
    unit = made(vllm, "-tp", "8", on=gpus_8(), env=env, nccl=True)
    lines = values(unit, "Environment")
    for name, value in env.items():
        assert [line for line in lines if line.startswith(f'"{name}=')] == [f'"{name}={value}"']


def test_without_curl_or_a_port_nothing_asks_the_port_and_that_is_said(vllm: str) -> None:
    for unit, said in (
        (made(vllm, on={"curl": None}), "curl is not installed"),
        (made(vllm, "--uds", "/run/x"), "no port is known"),
        (made(vllm, health_wait=False), "as asked for"),
    ):
        assert "ExecStartPost=" not in unit.text.replace("ExecStartPost= below", "")
        assert "/usr/bin/curl" not in unit.text
        assert "It does not bound the load" in unit.text
        assert said in told(unit)


def test_caches_stand_where_they_are_stated(vllm: str, tmp_path: Path) -> None:
    own = made(vllm, name="m")
    assert values(own, "CacheDirectory") == ["m"]
    assert '"TORCHINDUCTOR_CACHE_DIR=/var/cache/m/torchinductor"' in values(own, "Environment")
    stated = made(vllm, cache_dir=str(tmp_path))
    assert values(stated, "CacheDirectory") == []
    assert f'"TRITON_CACHE_DIR={tmp_path}/triton"' in values(stated, "Environment")


def test_models_stay_where_they_were_downloaded_to(vllm: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cache" / "huggingface").mkdir(parents=True)
    account = Account(name="llm", uid=990, groups=(990,), home=str(home))
    assert f'"HF_HOME={home}/.cache/huggingface"' in values(made(vllm, on={"account": account}), "Environment")
    there = tmp_path / "weights"
    there.mkdir()
    on = {"account": account, "environ": {"HF_HOME": str(there)}}
    assert f'"HF_HOME={there}"' in values(made(vllm, on=on), "Environment")


def test_who_cannot_get_at_the_program_is_told(vllm: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    stranger = account_of("nobody")
    assert f"nobody cannot get at {vllm}: permissions of" in told(made(vllm, on={"account": stranger}))
    root = made(vllm, on={"account": account_of("root")})
    assert "warning: it runs as root" in told(root)
    assert "cannot get at" not in told(root)


def test_a_group_lets_in() -> None:
    from draftworth.services.newunit.access import obstacle  # noqa: PLC0415 - beside its test

    base = Path("/tmp/dw-access-test")
    base.mkdir(exist_ok=True)
    try:
        base.chmod(0o750)
        os.chown(base, 0, grp.getgrnam("daemon").gr_gid)
        assert obstacle(str(base), account_of("daemon")) is None
        assert obstacle(str(base), account_of("nobody")) == str(base)
        assert obstacle(str(base), account_of("daemon"), "w") == str(base)
    finally:
        base.rmdir()


def test_a_word_that_names_a_file_here_sets_the_folder(vllm: str, tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("")
    unit = made(vllm, "--chat-template", "chat.jinja", on={"cwd": str(tmp_path)})
    assert values(unit, "WorkingDirectory") == [str(tmp_path)]
    assert "note: chat.jinja lies relative to" in told(unit)
    assert values(made(vllm, on={"cwd": str(tmp_path)}), "WorkingDirectory") == []


def test_environment_files(vllm: str, tmp_path: Path) -> None:
    file = tmp_path / "50%.env"
    unit = made(vllm, env_files=(str(file),))
    assert values(unit, "EnvironmentFile") == [str(file).replace("%", "%%")]
    assert "there is no" in told(unit)
    file.write_text("A=1\n")
    file.chmod(0o644)
    assert "others can read" in told(made(vllm, env_files=(str(file),)))
    file.chmod(0o600)
    assert "--env-file" not in told(made(vllm, env_files=(str(file),)))


def test_file_systems_of_models_are_waited_for(tmp_path: Path) -> None:
    model = tmp_path / "models" / "m"
    model.mkdir(parents=True)
    unit = make(Asked(command=("/usr/bin/true", str(model), "/no/such")), machine())
    assert values(unit, "RequiresMountsFor") == [str(model)]


def test_a_home_that_may_not_be_looked_into_is_told(vllm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if str(path).startswith("/home/closed"):
            raise PermissionError
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    on = {"account": Account(name="llm", uid=990, groups=(990,), home="/home/closed")}
    unit = made(vllm, name="m", on=on, env_files=("/home/closed/env",), cwd="/home/closed")
    assert '"HF_HOME=/var/cache/m/huggingface"' in values(unit, "Environment")
    assert "--env HF_HOME=/home/closed/.cache/huggingface" in told(unit)


def test_the_shells_secrets_are_named_and_never_shown(vllm: str) -> None:
    unit = made(vllm, on={"environ": {"HF_TOKEN": "hf_s3cr3t"}})
    assert "HF_TOKEN; it looks secret: put it into --env-file" in told(unit)
    assert "s3cr3t" not in unit.model_dump_json()


def test_a_unit_without_a_model_is_named_by_its_engine() -> None:
    command = ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server")
    assert make(Asked(command=command), machine()).name == "vllm.service"


def test_more_remarks(vllm: str) -> None:
    assert "uses 16 GPUs and 8 are here" in told(made(vllm, "-tp", "16", on=gpus_8()))
    assert "--env CUDA_VISIBLE_DEVICES=2,3" in told(made(vllm, "-tp", "2", on=gpus_8(), gpus=("2", "3")))
    assert "in use now, above --gpu-floor 1000 MiB: GPU 0 5000 MiB;" in told(made(vllm, on=gpus_8(used=5000)))
    mixed = {**gpus_8(), "gpus": (gpu(0), gpu(1, name="NVIDIA T400"))}
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in told(made(vllm, on=mixed))
    assert "set in this shell and not in the unit: NCCL_DEBUG" in told(
        made(vllm, on={"environ": {"NCCL_DEBUG": "INFO"}})
    )
    assert "there is a unit m.service already (/etc/m)" in told(made(vllm, name="m", on={"unit_there": "/etc/m"}))


def test_gpus_as_nvidia_smi_tells_them() -> None:
    text = (
        "0, GPU-1, NVIDIA H200, 4, Disabled\n1, GPU-2, NVIDIA A100, PCIe, 12345, Enabled\n"
        "2, GPU-3, NVIDIA GB10, [N/A], [N/A]\nNo devices were found\n"
    )
    found = parse_gpus(text)
    assert [(one.index, one.name, one.used_mib, one.mig) for one in found] == [
        ("0", "NVIDIA H200", 4, False),
        ("1", "NVIDIA A100, PCIe", 12345, True),
        ("2", "NVIDIA GB10", None, False),
    ]


def test_a_user_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no user"):
        account_of("no-such-user-here")


def test_failed_is_what_systemd_does_not_take(vllm: str) -> None:
    unit = made(vllm)
    assert not unit.failed
    assert unit.model_copy(update={"checks": (Check(severity="failed", text="x"),)}).failed


def test_errors_are_expected_ones(vllm: str) -> None:
    with pytest.raises(DraftworthError):
        made(vllm, "a\0b")
