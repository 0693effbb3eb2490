"""Decides what goes into the unit, from what is asked for and what the machine tells."""

from collections.abc import Iterator
from pathlib import Path

from draftworth import redact
from draftworth.errors import RefusedError, UsageError
from draftworth.services.newunit import access, nccl, template, topology
from draftworth.services.newunit import command as commands
from draftworth.services.newunit.base import Asked, Check, Machine, NewUnit
from draftworth.services.newunit.command import Known
from draftworth.services.newunit.gpus import waited
from draftworth.services.newunit.spans import span
from draftworth.services.systemd.quoting import environment_line

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNITS = "/etc/systemd/system"


def make(asked: Asked, machine: Machine) -> NewUnit:
    """Return the unit for a command. Starts nothing and writes nothing; `verify` asks systemd about it afterwards.

    Raises:
        UsageError: something asked for cannot be understood or written into a unit.
        RefusedError: the command is of a kind that does not belong into a unit, or a secret would be in it.
    """
    command = commands.resolved(asked.command, machine.environ.get("PATH"))
    known = commands.known(command, asked.port)
    name = commands.unit_name(asked.name, known.model, known.engine or command[0])
    stem = name.removesuffix(".service")
    wait = waited(asked, machine, known)
    _check_asked(asked, waits=wait.possible)
    joined = topology.parse(machine.topology or "").among(wait.used)
    proposed = nccl.proposals(joined)
    relative = commands.relative_files(command, machine.cwd)
    cwd = asked.cwd or (machine.cwd if relative else None)
    env = tuple(_environment(asked, machine, known, command, stem))
    cache = asked.cache_dir or f"/var/cache/{stem}"
    parts = template.Parts(
        stem=stem,
        command=command,
        user=machine.account.name,
        description=asked.description or _description(known, command[0]),
        cwd=cwd,
        env=env,
        own_cache=asked.cache_dir is None,
        mounts=_mounts(asked, command, env, cwd),
        nvidia_smi=machine.nvidia_smi if wait.possible else None,
        gpus=wait.gpus,
        about_gpus=wait.about,
        curl=machine.curl or "",
        url=known.url if machine.curl and asked.health_wait else None,
        any_answer=known.engine is None,
        proposed=proposed,
        topology=_joined_by(joined),
    )
    text = template.render(asked, parts)
    checks = (
        *_of_access(asked, machine, known, command, cwd),
        *_of_cache(asked, machine, cache),
        *_of_name(machine, name),
        *_of_command(asked, machine, known, command, relative),
        *wait.checks,
        *_of_steps(asked, machine, known, parts),
    )
    return NewUnit(
        name=name,
        text=text,
        checks=checks,
        proposed=proposed,
        nccl_active=asked.nccl and bool(proposed),
        install=install_commands(name, name),
    )


def install_commands(file: str, name: str) -> tuple[str, ...]:
    """Return the commands that install a unit's file and start it at once and at every boot."""
    return (
        f"sudo install -m 644 {file} {_UNITS}/{name}",
        "sudo systemctl daemon-reload",
        f"sudo systemctl enable --now --no-block {name}   # then watch: journalctl -fu {name}",
    )


def _check_asked(asked: Asked, *, waits: bool) -> None:
    for name, value in asked.env.items():
        if redact.environment({name: value})[name] != value:
            raise RefusedError(
                f"--env {name}: it looks like a secret, and everybody on the machine can read a unit: put it into a "
                "file of mode 600 and give --env-file FILE"
            )
        if not value.isprintable() and any(ord(char) < ord(" ") or char == "\x7f" for char in value):
            raise UsageError(
                f"--env {name}: its value has a line break or another control character; put it into a file"
            )
        environment_line(name, value)
    for what, path in (("--cwd", asked.cwd), ("--cache-dir", asked.cache_dir)):
        if path is not None and not path.startswith("/"):
            raise UsageError(f"{what}: {path!r} must be an absolute path")
    for path in asked.env_files:
        if not path.startswith("/"):
            raise UsageError(f"--env-file: {path!r} must be an absolute path")
    if asked.cwd is not None and access.is_folder(asked.cwd) is False:
        raise UsageError(f"--cwd: {asked.cwd}: no such folder")
    if waits and asked.gpu_wait_s >= asked.load_timeout_s:
        raise UsageError(
            f"--gpu-wait {span(asked.gpu_wait_s)} must be shorter than --load-timeout {span(asked.load_timeout_s)}, "
            "which ends every step of the start"
        )


def _description(known: Known, program: str) -> str:
    what = " ".join((known.model or Path(program).name).split()).strip("\\") or "LLM server"
    return f"{what} served by {known.engine}" if known.engine and known.model else what


def _joined_by(joined: topology.Topology) -> str:
    kinds = sorted(set(joined.links.values()))
    return f"{len(joined.gpus)} GPUs joined by PCIe only ({', '.join(kinds)} in `nvidia-smi topo -m`)"


def _environment(
    asked: Asked, machine: Machine, known: Known, command: tuple[str, ...], stem: str
) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and reason of every variable; what a person gave comes last and wins."""
    cache = (asked.cache_dir or f"/var/cache/{stem}").rstrip("/")
    found = [("PYTHONUNBUFFERED", "1", "The last lines of a crash reach the journal.")]
    places = [*commands.folders(command), *([machine.cuda_bin] if machine.cuda_bin else [])]
    usual = _SYSTEM_PATH.split(":")
    path = ":".join(dict.fromkeys([*(place for place in places if place not in usual), *usual]))
    if path != _SYSTEM_PATH:
        found.append(("PATH", path, "Kernels are compiled at start with tools of its environment (ninja, nvcc)."))
    if known.engine == "llamacpp":
        found.append(("LLAMA_CACHE", f"{cache}/llama.cpp", "Models it downloads."))
    else:
        home = _models(machine)
        kept = bool(access.is_folder(home))
        why = "Models and the hub's token: where they are already." if kept else "Models, and the hub's token."
        found.append(("HF_HOME", home if kept else f"{cache}/huggingface", why))
        why = "Compiled kernels and graphs; a part of them would lie in /tmp otherwise and be compiled at each boot."
        if known.engine in {"vllm", None}:
            found.append(("VLLM_CACHE_ROOT", f"{cache}/vllm", why))
            why = ""
        found.append(("TRITON_CACHE_DIR", f"{cache}/triton", why))
        found.append(("TORCHINDUCTOR_CACHE_DIR", f"{cache}/torchinductor", ""))
        found.append(("FLASHINFER_WORKSPACE_BASE", f"{cache}/flashinfer", ""))
        found.append(("CUDA_CACHE_PATH", f"{cache}/cuda", ""))
    yield from (one for one in found if one[0] not in asked.env)
    why = "Asked for."
    for name, value in asked.env.items():
        yield name, value, why
        why = ""


def _models(machine: Machine) -> str:
    """Return the folder the hub's models are in already, if they are in one."""
    return machine.environ.get("HF_HOME") or f"{machine.account.home}/.cache/huggingface"


def _mounts(
    asked: Asked, command: tuple[str, ...], env: tuple[tuple[str, str, str], ...], cwd: str | None
) -> tuple[str, ...]:
    """Return the places that have to be mounted, those below another one left out."""
    home = [value for name, value, _ in env if name == "HF_HOME"]
    cache = [asked.cache_dir] if asked.cache_dir else []
    inside = [*commands.folders(command), *commands.absolute_paths(command), *home, *cache, *([cwd] if cwd else [])]
    system = ("/usr", "/bin", "/sbin", "/dev", "/proc", "/sys", "/var/cache", "/etc")
    wanted = sorted({p for p in inside if not any(p == s or p.startswith(f"{s}/") for s in system)})
    return tuple(p for p in wanted if not any(p.startswith(f"{o.rstrip('/')}/") for o in wanted if o != p))


def _of_access(
    asked: Asked, machine: Machine, known: Known, command: tuple[str, ...], cwd: str | None
) -> Iterator[Check]:
    account = machine.account
    if account.uid == 0:
        yield Check(severity="warning", text="it runs as root: name a user of its own with --user NAME")
    paths = [(command[0], "x"), *((path, "x") for path in ([cwd] if cwd else []))]
    models = _models(machine)
    written = (asked.cache_dir, models if "HF_HOME" not in asked.env and known.engine != "llamacpp" else None)
    paths += [(path, "w") for path in written if path and access.is_folder(path)]
    if access.is_folder(models) is None and "HF_HOME" not in asked.env:
        yield Check(
            severity="warning",
            text=f"{models} may not be looked into: if models are there, give --env HF_HOME={models}, else they are "
            "downloaded again",
        )
    for path, mode in paths:
        part = access.obstacle(path, account, mode)
        if part:
            yield Check(
                severity="warning",
                text=f"{account.name} cannot get at {path}: permissions of {part}; the start would fail",
            )


def _of_cache(asked: Asked, machine: Machine, cache: str) -> Iterator[Check]:
    account = machine.account
    if asked.cache_dir and access.is_folder(asked.cache_dir) is False:
        yield Check(
            severity="warning",
            text=f"--cache-dir: there is no {cache} yet: sudo install -d -o {account.name} {cache}",
        )
    own = Path(cache)
    if not asked.cache_dir and access.is_folder(cache) and own.stat().st_uid != account.uid:
        yield Check(
            severity="warning",
            text=f"{cache} is there and of another user: systemd would give all of it to {account.name}; "
            "choose a --name",
        )


def _of_name(machine: Machine, name: str) -> Iterator[Check]:
    if machine.unit_there:
        yield Check(
            severity="warning",
            text=f"there is a unit {name} already ({machine.unit_there}): installing this one replaces or hides it; "
            "choose a --name to keep both",
        )


def _of_command(
    asked: Asked, machine: Machine, known: Known, command: tuple[str, ...], relative: tuple[str, ...]
) -> Iterator[Check]:
    if redact.command(command) != command:
        yield Check(
            severity="warning",
            text="the command holds what looks like a secret, and everybody on the machine can read a "
            "unit and ps: give it as a variable in --env-file (vLLM: VLLM_API_KEY, HF_TOKEN)",
        )
    if relative and not asked.cwd:
        yield Check(
            severity="note",
            text=f"{', '.join(relative)} lies relative to {machine.cwd}, so the unit runs there (WorkingDirectory=)",
        )
    left = commands.left_behind(machine.environ, asked.env)
    secret = [name for name in left if redact.environment({name: ""})[name]]
    kept = [name for name in left if name != "HF_HOME" and name not in secret]
    if secret:
        yield Check(
            severity="warning",
            text=f"set in this shell and not in the unit: {', '.join(secret)}; it looks secret: put it "
            "into --env-file FILE",
        )
    if kept:
        yield Check(
            severity="warning",
            text=f"set in this shell and not in the unit: {', '.join(kept)}; to keep one: --env NAME",
        )
    for path in asked.env_files:
        yield from _of_env_file(path)
    between = commands.launcher(command)
    if between:
        yield Check(
            severity="warning",
            text=f"{between} would be the unit's main process and may keep signals and output from the "
            "engine: give the "
            "program in its environment itself",
        )
    if known.engine is None:
        yield Check(severity="note", text="the engine is not recognised; its ports, GPUs and caches are not known")


def _of_env_file(path: str) -> Iterator[Check]:
    try:
        mode = Path(path).stat().st_mode
    except PermissionError:
        return  # as it should be
    except OSError:
        yield Check(severity="warning", text=f"--env-file: there is no {path}; the unit does not start without it")
        return
    if mode & 0o044:
        yield Check(severity="warning", text=f"--env-file: others can read {path}: chmod 600 {path}")


def _of_steps(asked: Asked, machine: Machine, known: Known, parts: template.Parts) -> Iterator[Check]:
    if known.url is None:
        yield Check(severity="note", text="no port is known, so nothing waits until it serves; give --port")
    elif not asked.health_wait:
        yield Check(severity="note", text="nothing waits until it serves, as asked for; a load that never ends goes on")
    elif machine.curl is None:
        yield Check(
            severity="note", text="curl is not installed, so nothing waits until it serves; install it and repeat"
        )
    if parts.proposed and not asked.nccl:
        yield Check(
            severity="note",
            text=f"{parts.topology}: {len(parts.proposed)} NCCL settings are in the unit as comments, with "
            "what speaks for and against each; --nccl makes them active",
        )
