"""A systemd unit that is made for an engine's command: what is asked for, what the machine tells, what comes out.

What is promised:

- The unit starts exactly the words of the command, whatever is in them.
- It is a single file and needs nothing of Draftworth when it runs.
- Where something cannot be told (no nvidia-smi, no curl, an unknown engine), its step is left out and a check says so.
- Nothing is installed, and nothing on the machine is changed.
"""

from typing import Literal

from draftworth.models import Frozen

Severity = Literal["note", "warning", "failed"]

HOUR = 3600


class Asked(Frozen):
    """What a person asked for."""

    command: tuple[str, ...]
    """The engine's command, word by word; the program may be a bare name."""
    name: str | None = None
    """The unit's name with or without `.service`; None: from the served model, else from the program."""
    user: str | None = None
    """Who it runs as; None: who asks."""
    description: str | None = None
    env: dict[str, str] = {}
    env_files: tuple[str, ...] = ()
    """Absolute paths of files with `NAME=value` lines: the place for secrets."""
    cwd: str | None = None
    """Absolute; None: the folder of the call where a word of the command names a file relative to it, else `/`."""
    load_timeout_s: int = 2 * HOUR
    """Seconds from the start of the program until it must serve."""
    stop_timeout_s: int = 60
    """Seconds it has to end after SIGTERM."""
    gpus: tuple[str, ...] = ()
    """Indices or UUIDs of GPUs to wait for; empty: those the command uses, as far as that can be told, else all."""
    gpu_floor_mib: int = 1000
    """MiB that may be in use on each GPU when the engine starts."""
    gpu_wait_s: int = 120
    """Seconds to wait for that."""
    cache_dir: str | None = None
    """Absolute; None: /var/cache/NAME, made by systemd."""
    port: int | None = None
    """Where it listens; None: from the command, else the engine's default."""
    health_wait: bool = True
    """Whether the start is over only when the server answers."""
    nccl: bool = False
    """Whether the proposed NCCL settings are active; else they stand there as comments."""


class Account(Frozen):
    """A user of this machine."""

    name: str
    uid: int
    groups: tuple[int, ...]
    """All of its groups, the primary one first."""
    home: str


class SeenGpu(Frozen):
    """A GPU as nvidia-smi tells it."""

    index: str
    uuid: str
    name: str
    used_mib: int | None
    """None: not told (`[N/A]`)."""
    mig: bool
    """Whether it is cut into MIG instances."""


class Machine(Frozen):
    """What is there, as far as the unit depends on it."""

    account: Account
    environ: dict[str, str] = {}
    """The caller's own variables; only their names are ever shown."""
    cwd: str = "/"
    """The caller's folder."""
    nvidia_smi: str | None = None
    """Its path; None: there is none, or it does not work."""
    gpus: tuple[SeenGpu, ...] = ()
    why_no_gpus: str | None = None
    """Why nothing is known of GPUs."""
    topology: str | None = None
    """What `nvidia-smi topo -m` printed."""
    curl: str | None = None
    """Its path, or None."""
    cuda_bin: str | None = None
    """The folder of nvcc, or None."""
    unit_there: str | None = None
    """The file of a unit that has the name already."""


class Check(Frozen):
    """One remark about the unit."""

    severity: Severity
    text: str
    """One line: what, where, what to do."""


class Setting(Frozen):
    """A variable that is proposed."""

    name: str
    value: str
    does: str
    """What NVIDIA's documentation says it does."""
    why: str
    """Why it may help between GPUs on PCIe, or why it may not."""
    in_case: bool
    """Whether the case this project started from had it set: Kimi-K2.5 on eight GPUs on PCIe, vLLM 0.16."""


class NewUnit(Frozen):
    """The unit that was made."""

    schema_version: int = 1
    name: str
    """With `.service`."""
    text: str
    checks: tuple[Check, ...]
    proposed: tuple[Setting, ...]
    """NCCL settings for this topology; empty where NVLink joins the GPUs, or nothing is known."""
    nccl_active: bool
    """Whether they are active in the text."""
    install: tuple[str, ...]
    """Commands that install and start it."""

    @property
    def failed(self) -> bool:
        """Whether systemd would not take it."""
        return any(check.severity == "failed" for check in self.checks)
