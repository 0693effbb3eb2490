"""The unit's text: every setting with its reason, in the order a person reads a unit."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from draftworth import __version__
from draftworth.errors import UsageError
from draftworth.services.newunit import steps
from draftworth.services.newunit.base import Asked, Setting
from draftworth.services.newunit.spans import BURST, RESTART_S, span, start_limit_interval
from draftworth.services.systemd.quoting import environment_line, exec_line, literal

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOUNTED = re.compile(r"/[A-Za-z0-9_./+@=,:-]*")
_WIDTH = 118


@dataclass(frozen=True, slots=True)
class Parts:
    """What the text is made of, everything decided.

    Attributes:
        stem: the unit's name without `.service`.
        command: the whole command, the program absolute.
        user: who it runs as.
        description: one line.
        cwd: the working folder, or None for `/`.
        env: variables with a reason each; an empty reason belongs to the line above.
        own_cache: whether systemd makes /var/cache/NAME.
        mounts: paths whose file systems must be mounted first.
        nvidia_smi: its path, or None to leave the wait out.
        gpus: which GPUs to wait for; empty for all.
        about_gpus: why these, for the comment.
        curl: its path; used with `url` only.
        url: where its health is asked, or None to leave out what asks it.
        any_answer: whether any HTTP status means that it serves.
        proposed: NCCL settings.
        topology: how the GPUs are joined, for the comment.
    """

    stem: str
    command: tuple[str, ...]
    user: str
    description: str
    cwd: str | None
    env: tuple[tuple[str, str, str], ...]
    own_cache: bool
    mounts: tuple[str, ...]
    nvidia_smi: str | None
    gpus: tuple[str, ...]
    about_gpus: str
    curl: str
    url: str | None
    any_answer: bool
    proposed: tuple[Setting, ...]
    topology: str


def plain(text: str, what: str) -> str:
    """Return a value that takes a whole line of a unit, specifiers escaped.

    Raises:
        UsageError: it cannot stand there: empty, a control character, a backslash or blank at its end.
    """
    if not text or _CONTROL.search(text) or text != text.strip() or text.endswith("\\"):
        raise UsageError(f"{what}: {text!r} must be one line that neither begins nor ends with a blank or a backslash")
    return text.replace("%", "%%")


def render(asked: Asked, parts: Parts) -> str:
    """Return the unit's text.

    Raises:
        UsageError: systemd cannot represent a value.
    """
    lines = [
        *_remark(f"Made by draftworth {__version__} (`draftworth service new`); needs nothing of it to run."),
        "",
        *_unit(asked, parts),
        "",
        "[Service]",
        *_process(parts),
        *_environment(asked, parts),
        *_before(asked, parts),
        *_starting(asked, parts),
        *_ending(asked),
        *_limits(),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _remark(text: str) -> list[str]:
    """Return a comment, broken into lines."""
    lines, line = [], "#"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH and line != "#":
            lines.append(line)
            line = "#"
        line += f" {word}"
    return [*lines, line]


def _unit(asked: Asked, parts: Parts) -> Iterable[str]:
    wait = asked.gpu_wait_s if parts.nvidia_smi else 0
    interval = start_limit_interval(load_s=asked.load_timeout_s, stop_s=asked.stop_timeout_s, wait_s=wait)
    yield "[Unit]"
    yield f"Description={plain(parts.description, '--description')}"
    yield "# Order only: nothing fails where there is no such unit."
    yield "After=network-online.target nvidia-persistenced.service"
    yield "Wants=network-online.target"
    mounts = [path for path in parts.mounts if _MOUNTED.fullmatch(path)]
    if mounts:
        yield "# At boot, not before these are mounted."
        yield f"RequiresMountsFor={' '.join(mounts)}"
    yield from _remark(
        f"{BURST} starts within {span(interval)}, then `failed`: a loop of failing loads ends and is seen. The "
        f"interval is longer than {BURST} of the longest cycles (wait for memory, load {span(asked.load_timeout_s)}, "
        f"stop, pause {RESTART_S}s); a shorter one would be over before the last start and never stop the loop. "
        f"Starts by hand count too: `systemctl reset-failed {parts.stem}` begins anew."
    )
    yield f"StartLimitIntervalSec={span(interval)}"
    yield f"StartLimitBurst={BURST}"


def _process(parts: Parts) -> Iterable[str]:
    then = "ExecStartPost= below waits for that" if parts.url else "it counts as started when its program runs"
    yield from _remark(f"Engines do not tell systemd when they serve (no sd_notify): {then}.")
    yield "Type=exec"
    yield f"User={parts.user}"
    if parts.cwd:
        yield f"WorkingDirectory={plain(parts.cwd, '--cwd')}"
    yield f"SyslogIdentifier={parts.stem}"
    yield "# Nothing of the start-up log is dropped; journald drops lines above 10,000 in 30 s otherwise."
    yield "LogRateLimitIntervalSec=0"


def _environment(asked: Asked, parts: Parts) -> Iterable[str]:
    yield ""
    if parts.own_cache:
        yield f"# /var/cache/{parts.stem}, owned by {parts.user}; kept over reboots, so that kernels compile once."
        yield f"CacheDirectory={parts.stem}"
    for name, value, why in parts.env:
        if why:
            yield from _remark(why)
        yield f"Environment={environment_line(name, value)}"
    for path in asked.env_files:
        yield f"EnvironmentFile={plain(path, '--env-file')}"
    if not parts.proposed:
        return
    yield ""
    yield from _remark(
        f"{parts.topology}. NVIDIA's guide lists the NCCL variables here as means to experiment: keep one only if a "
        "measurement on this machine shows that it pays. They are "
        f"{'active' if asked.nccl else 'comments: not active'}."
    )
    for setting in parts.proposed:
        if any(setting.name == name for name, _, _ in parts.env):
            continue
        known = " Set in the Kimi-K2.5 case." if setting.in_case else ""
        yield from _remark(f"{setting.name}: {setting.does} {setting.why}{known}")
        line = f"Environment={environment_line(setting.name, setting.value)}"
        yield line if asked.nccl else f"#{line}"


def _before(asked: Asked, parts: Parts) -> Iterable[str]:
    stamp = f"/run/{parts.stem}-starts/last"
    if parts.nvidia_smi:
        yield ""
        yield from _remark(
            f"Wait until {parts.about_gpus} at most {asked.gpu_floor_mib} MiB in use, up to {span(asked.gpu_wait_s)}; "
            "then say what holds it and fail: an engine that loads into taken memory dies late and unclearly."
        )
        yield from steps.exec_step(
            "ExecStartPre",
            steps.gpu_wait(parts.nvidia_smi, parts.gpus, floor_mib=asked.gpu_floor_mib, wait_s=asked.gpu_wait_s),
        )
    yield ""
    yield from _remark(
        "Remove what an earlier start of this unit left in /dev/shm (a killed server leaks its whole CPU cache "
        f"there). Only files with a server's name, of {parts.user}, newer than this unit's last start since boot, "
        "that no process maps or has open; as root (+), because only root sees every process. In doubt everything "
        "stays."
    )
    yield f"RuntimeDirectory={parts.stem}-starts"
    yield "RuntimeDirectoryPreserve=yes"
    yield from steps.exec_step("ExecStartPre", steps.stale_shm(parts.user, stamp), prefix="+")
    yield f"ExecStartPre=/usr/bin/touch {stamp}"
    if parts.url:
        yield ""
        yield "# A stranger on the port would pass for this server."
        yield from steps.exec_step("ExecStartPre", steps.port_free(parts.curl, parts.url))


def _starting(asked: Asked, parts: Parts) -> Iterable[str]:
    yield ""
    yield f"ExecStart={exec_line([literal(word) for word in parts.command])}"
    yield ""
    if parts.url:
        yield from _remark(
            "The start is over when the server answers: `systemctl start` waits for it (--no-block does not), units "
            "ordered After= this one find it serving, and a load that never ends is stopped. At boot "
            "multi-user.target is reached only then; logins do not wait for it."
        )
        yield from steps.exec_step(
            "ExecStartPost", steps.health_wait(parts.curl, parts.url, any_answer=parts.any_answer)
        )
        yield "# For each ExecStartPre= and for ExecStartPost= by itself, so in effect for the load."
    else:
        yield from _remark(
            "For each ExecStartPre= by itself. It does not bound the load: with Type=exec the start is over when the "
            "program runs, and nothing here waits until it serves."
        )
    yield f"TimeoutStartSec={span(asked.load_timeout_s)}"


def _ending(asked: Asked) -> Iterable[str]:
    yield ""
    yield from _remark(
        "SIGTERM to the main process, which ends its workers in order; whatever is left of the unit gets SIGKILL as "
        "soon as the main process is gone, or after TimeoutStopSec=. Workers that outlive a killed front end would "
        "hold the GPUs (vllm#55510)."
    )
    yield "KillMode=mixed"
    yield f"TimeoutStopSec={span(asked.stop_timeout_s)}"
    yield "# A clean end or `systemctl stop` is no failure; see StartLimitBurst= for the end of a loop."
    yield "Restart=on-failure"
    yield f"RestartSec={RESTART_S}s"
    yield "# If the kernel kills one process for memory, the whole server ends instead of limping on."
    yield "OOMPolicy=stop"


def _limits() -> Sequence[str]:
    return (
        "",
        "# Sockets of many streams, files of many shards; systemd's default is 1024 for programs that do not raise it.",
        "LimitNOFILE=65536",
        "# Pinned host memory (transfers, offloading, NCCL over shared memory or RDMA) counts against it.",
        "LimitMEMLOCK=infinity",
    )
