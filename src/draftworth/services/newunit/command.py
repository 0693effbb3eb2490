"""The engine's command as a unit can run it: absolute, its own words only, and what can be told from them."""

import importlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftworth.engines import CHOICES, engine, layout
from draftworth.engines.asking import is_python
from draftworth.errors import RefusedError, UsageError

_CONTAINERS = layout.CONTAINERS | {"kubectl", "apptainer", "singularity"}
_DETACH = frozenset({"nohup", "setsid", "screen", "tmux", "daemonize", "disown"})
_SWITCH = frozenset({"sudo", "doas", "su", "runuser"})
_SIZES: dict[str, tuple[tuple[str, ...], ...]] = {
    "vllm": (
        ("--tensor-parallel-size", "-tp"),
        ("--pipeline-parallel-size", "-pp"),
        ("--data-parallel-size-local", "-dpl", "--data-parallel-size", "-dp"),
    ),
    "sglang": (("--tensor-parallel-size", "--tp-size", "--tp"), ("--pipeline-parallel-size", "--pp-size", "--pp")),
}
_PROGRAMS = frozenset({"vllm", "sglang", "llama-server", "trtllm-serve"})
_LAUNCHERS = frozenset({"conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "pixi"})
_NOT_NAME = re.compile(r"[^a-z0-9._]+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_LONGEST_OWN_NAME = 80
_LONGEST_NAME = 255 - len(".service")
_OTHER_UNITS = re.compile(r"\.(?:socket|target|timer|mount|automount|swap|path|slice|scope|device)$")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Known:
    """What a command tells of the server it starts.

    Attributes:
        engine: the engine's name, or None.
        model: the model as the command names it, or its served name.
        url: where its health is asked, or None where it is not known to listen on a port.
        gpus: how many GPUs it uses, or None where that cannot be told.
    """

    engine: str | None
    model: str | None
    url: str | None
    gpus: int | None


def resolved(command: Sequence[str], path: str | None) -> tuple[str, ...]:
    """Return the command with its program as an absolute path.

    A link is kept as it is: a virtual environment's `python` must be started by that name.

    Args:
        command: the words.
        path: PATH of whoever asks.

    Raises:
        UsageError: there is none, or its program is not there, is relative or cannot be run.
        RefusedError: it is a shell string, starts a container, or detaches itself.
    """
    if not command or not command[0]:
        raise UsageError("no command: write it behind `--`, for example: draftworth service new -- vllm serve MODEL")
    for word in command:
        if "\0" in word:
            raise UsageError(f"the command has a NUL byte in {word!r}; no program can get that")
    program = command[0]
    if _ASSIGNMENT.match(program):
        raise UsageError(f"{program!r} sets a variable: give it as --env {program}")
    _refuse(command, Path(program).name)
    if "/" in program and not program.startswith("/"):
        raise UsageError(f"{program}: systemd needs an absolute path: write {Path(program).absolute()}")
    found = shutil.which(program, path=path)
    if found is None:
        _not_found(program)
    return (str(Path(found or "").absolute()), *_engine_absolute(command[1:], path))


def _engine_absolute(words: Sequence[str], path: str | None) -> tuple[str, ...]:
    """Return the words behind the program, the engine's own absolute where another program (numactl) runs it."""
    for index, word in enumerate(words):
        if Path(word).name in _PROGRAMS or is_python(word):
            found = None if "/" in word else shutil.which(word, path=path)
            return (*words[:index], str(Path(found).absolute()), *words[index + 1 :]) if found else tuple(words)
    return tuple(words)


def folders(command: Sequence[str]) -> tuple[str, ...]:
    """Return the folders of a command's programs, the engine's own first."""
    engines = [word for word in command if word.startswith("/") and (Path(word).name in _PROGRAMS or is_python(word))]
    return tuple(dict.fromkeys(str(Path(word).parent) for word in (*engines[:1], command[0])))


def _not_found(program: str) -> None:
    if " " in program.strip():
        raise UsageError(
            f"{program!r} is one word: write the command's words separately behind `--`, without quotes around it all"
        )
    if program.startswith("/") and Path(program).exists():
        raise UsageError(f"{program} cannot be run: it is a folder or not executable")
    raise UsageError(f"{program}: no such program; activate its environment first or write its absolute path")


def _refuse(command: Sequence[str], program: str) -> None:
    if program in layout.SHELLS and any(re.fullmatch(r"-[a-z]*c", word) for word in command[1:]):
        raise RefusedError(
            f"{program} -c runs a string: write the engine's own command behind `--`, its variables as --env NAME=VALUE"
        )
    if program in _CONTAINERS:
        raise RefusedError(
            f"{program} starts a container, whose processes do not belong to the unit; give the engine's own command"
        )
    if program in _DETACH:
        raise RefusedError(f"{program} detaches the server from its unit; leave it out, systemd keeps it running")
    if program in _SWITCH:
        raise RefusedError(f"{program} starts it as another user; leave it out and give --user NAME")
    if program == "env":
        raise RefusedError("env sets variables; leave it out and give each as --env NAME=VALUE")


def known(command: Sequence[str], port: int | None) -> Known:
    """Return what a command tells of its server. `port` overrides what it says.

    Raises:
        UsageError: the port is none.
    """
    for name in CHOICES:
        locate = importlib.import_module(f"draftworth.engines.{name}.layout").locate
        if locate(command) is None:
            continue
        words = [word for part in layout.own_words(command, locate) for word in part]
        adapter = engine(name)
        served = layout.value_of(words, ("--served-model-name", "--alias"))
        model = (served or "").split(",")[0] or adapter.model_in(command)
        said = layout.value_of(words, ("--port",))
        url = None
        if layout.value_of(words, ("--uds",)) is None:
            url = _url(words, port or _port(said) or adapter.default_port, "/health")
        return Known(name, model, url, _gpus(name, words))
    return Known(None, None, None if port is None else _url(command, port, "/"), None)


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) <= _HIGHEST_PORT:
        raise UsageError(f"the command's --port {text!r} is none")
    return int(text)


def _url(words: Sequence[str], port: int, path: str) -> str:
    host = layout.value_of(words, ("--host",)) or ""
    address = "127.0.0.1" if host in {"", "0.0.0.0", "::", "localhost"} else host  # noqa: S104 - compared, not bound
    scheme = "https" if layout.value_of(words, ("--ssl-keyfile", "--ssl-key-file", "--ssl-certfile")) else "http"
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}{path}"


def _gpus(name: str, words: Sequence[str]) -> int | None:
    if name not in _SIZES:
        return None
    total = 1
    for options in _SIZES[name]:
        text = layout.value_of(words, options)
        if text is None:
            continue
        if not text.isdecimal() or int(text) < 1:
            return None
        total *= int(text)
    if name == "sglang" and layout.value_of(words, ("--dp-size", "--dp", "--data-parallel-size")) is not None:
        return None  # with attention parallelism it shares the same GPUs, without it takes more
    return total


def unit_name(asked: str | None, model: str | None, program: str) -> str:
    """Return the unit's name, with `.service`.

    Args:
        asked: what a person named it, or None.
        model: the served model, or None.
        program: the engine's program.

    Raises:
        UsageError: it is no name of a service.
    """
    if asked is None:
        last = (model or Path(program).name).rstrip("/").rsplit("/", 1)[-1].lower()
        asked = _NOT_NAME.sub("-", last)[:_LONGEST_OWN_NAME].strip("-.") or "llm"
    stem = asked.removesuffix(".service")
    if _OTHER_UNITS.search(stem):
        raise UsageError(f"--name {asked}: that is no service; leave the ending out")
    if "@" in stem:
        raise UsageError(f"--name {asked}: a template or an instance is not made here; leave the @ out")
    if not _NAME.fullmatch(stem) or stem.startswith(("-", ".")) or len(stem) > _LONGEST_NAME:
        raise UsageError(
            f"--name {asked!r} is no name of a unit: letters, digits, `_`, `.`, `-` only, beginning with none of "
            "`.` and `-`, 247 characters at most"
        )
    return f"{stem}.service"


def launcher(command: Sequence[str]) -> str | None:
    """Return the name of the tool that would stay between systemd and the engine, or None."""
    name = Path(command[0]).name
    return name if name in _LAUNCHERS else None


def relative_files(command: Sequence[str], cwd: str) -> tuple[str, ...]:
    """Return the words of a command that name something relative to a folder which is there."""
    found = []
    for word in command[1:]:
        value = word.partition("=")[2] if word.startswith("-") else word
        if value and not value.startswith(("/", "-", "{", "[")) and len(value) < 1024:  # noqa: PLR2004 - a path's length
            try:
                if (Path(cwd) / value).exists() and not value.isdecimal():
                    found.append(value)
            except (OSError, ValueError):
                continue
    return tuple(found)


def absolute_paths(command: Sequence[str]) -> tuple[str, ...]:
    """Return the absolute paths behind the program that are there, in the command's order."""
    values = (word.partition("=")[2] if word.startswith("-") else word for word in command[1:])
    return tuple(dict.fromkeys(v for v in values if v.startswith("/") and os.path.exists(v)))  # noqa: PTH110 - no error for odd names


def left_behind(environ: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the caller's variables that engines read and the unit does not set."""
    starts = ("VLLM_", "SGLANG_", "SGL_", "NCCL_", "CUDA_", "HF_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "LLAMA_")
    names = (name for name in environ if name.startswith(starts) or name in {"LD_LIBRARY_PATH", "LD_PRELOAD"})
    return tuple(sorted(name for name in names if name not in env))
