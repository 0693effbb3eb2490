"""What the machine tells before the unit is made; reads only."""

import grp
import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.hosts.base import Host, HostError
from draftworth.services.newunit.base import Account, Machine, SeenGpu

_QUERY = "index,uuid,name,memory.used,mig.mode.current"
_FIELDS = 5
_UNIT_FOLDERS = (
    *("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system"),
    *("/usr/lib/systemd/system", "/lib/systemd/system"),
)
_CUDA = "/usr/local/cuda/bin"
_GPU_TIMEOUT_S = 60.0


def account_of(user: str | None) -> Account:
    """Return the user a unit runs as: the one named, else whoever called sudo, else the caller.

    Raises:
        UsageError: there is no such user.
    """
    name = user or (os.environ.get("SUDO_USER") if os.geteuid() == 0 else None)
    try:
        found = pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise UsageError(f"--user: there is no user {name or os.geteuid()!r} on this machine") from None
    others = (group.gr_gid for group in grp.getgrall() if found.pw_name in group.gr_mem)
    groups = tuple(dict.fromkeys([found.pw_gid, *others]))
    return Account(name=found.pw_name, uid=found.pw_uid, groups=groups, home=found.pw_dir)


def look(host: Host, user: str | None, environ: Mapping[str, str]) -> Machine:
    """Return what this machine tells.

    Args:
        host: this machine.
        user: who the unit runs as, or None.
        environ: the caller's variables.

    Raises:
        UsageError: there is no such user.
    """
    account = account_of(user)
    smi = shutil.which("nvidia-smi", path=environ.get("PATH")) or shutil.which("nvidia-smi", path="/usr/bin:/bin")
    gpus, why = _gpus(host, smi)
    return Machine(
        account=account,
        environ=dict(environ),
        cwd=str(Path.cwd()),
        nvidia_smi=smi,
        gpus=gpus,
        why_no_gpus=why,
        topology=_topology(host, smi) if len(gpus) > 1 else None,
        curl=shutil.which("curl", path="/usr/local/bin:/usr/bin:/bin"),
        cuda_bin=_CUDA if Path(_CUDA, "nvcc").exists() else None,
    )


def unit_file(name: str) -> str | None:
    """Return the file of a unit that has a name already, or None."""
    return next((str(path) for folder in _UNIT_FOLDERS if os.path.lexists(path := Path(folder, name))), None)


def _gpus(host: Host, smi: str | None) -> tuple[tuple[SeenGpu, ...], str | None]:
    if smi is None:
        return (), "there is no nvidia-smi on this machine"
    try:
        told = host.run([smi, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"], timeout_s=_GPU_TIMEOUT_S)
    except HostError as error:
        return (), str(error)
    if not told.ok:
        return (), f"nvidia-smi: {told.why}"
    found = parse_gpus(told.text)
    return found, None if found else "nvidia-smi tells of no GPU"


def parse_gpus(text: str) -> tuple[SeenGpu, ...]:
    """Read what nvidia-smi prints of each GPU; lines that do not fit are left out."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < _FIELDS or not fields[0].isdecimal():
            continue
        index, uuid, *name, used, mig = fields
        found.append(
            SeenGpu(
                index=index,
                uuid=uuid,
                name=", ".join(name),
                used_mib=int(used) if used.isdecimal() else None,
                mig=mig == "Enabled",
            )
        )
    return tuple(found)


def _topology(host: Host, smi: str | None) -> str | None:
    try:
        told = host.run([smi or "nvidia-smi", "topo", "-m"], timeout_s=_GPU_TIMEOUT_S)
    except HostError:
        return None
    return told.text if told.ok else None
