"""Finds vLLM's own arguments among the words of a command, whatever stands in front of them.

Nothing here needs to know what `nohup`, `nice -n 5`, `taskset -c 0-7` or `conda run -n x` do: vLLM is recognised by
the words that start it, and its arguments are the words behind them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_USER_SWITCHES = frozenset({"su", "runuser"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_MODULES = frozenset(
    {
        "vllm.entrypoints.openai.api_server",
        "vllm.entrypoints.api_server",
        "vllm.entrypoints.launchers.api_server",
        "vllm.entrypoints.launchers.api_server.entry",
    }
)
_MAIN_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

# Options of `docker run` and `podman run` that take no value; every other one takes the next word.
_RUN_SWITCHES = frozenset(
    [
        "--detach",
        "--disable-content-trust",
        "--env-host",
        "--help",
        "--http-proxy",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--no-hostname",
        "--no-hosts",
        "--oom-kill-disable",
        "--passwd",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--read-only-tmpfs",
        "--replace",
        "--rm",
        "--rmi",
        "--rootfs",
        "--sig-proxy",
        "--tls-verify",
        "--tty",
        "--unsetenv-all",
        "--use-api-socket",
    ]
)
_RUN_SHORT_SWITCHES = "ditPq"
_GLOBAL_VALUES = frozenset(
    [
        "--config",
        "--connection",
        "--context",
        "-c",
        "--host",
        "-H",
        "--log-level",
        "-l",
        "--namespace",
        "-n",
        "--tlscacert",
        "--tlscert",
        "--tlskey",
        "--url",
    ]
)
_TELLING_FLAGS = frozenset(
    [
        "--gpu-memory-utilization",
        "--max-model-len",
        "--max-num-seqs",
        "--model",
        "--served-model-name",
        "--tensor-parallel-size",
    ]
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where vLLM's arguments are.

    Attributes:
        start: index of the first one (or of the shell string).
        stop: index where another one can be put: behind the last, in front of a `--`.
        script: the word at `start` is a shell string, and the arguments are somewhere inside it.
    """

    start: int
    stop: int
    script: bool = False


def locate(words: Sequence[str]) -> Place | None:
    """Return where vLLM's arguments are in a command, or None where no word says that it starts vLLM."""
    words = list(words)
    for index, word in enumerate(words):
        if word.startswith("-m"):
            place = _module(words, index)
        elif word.startswith("-") or _ASSIGNMENT.match(word):
            continue
        else:
            program = word.rsplit("/", 1)[-1]
            if program == "ssh" or (program in _CONTAINERS and _subcommand(words, index) is None):
                return None  # what follows is for another shell, or starts a container that exists already
            place = _program(words, index, program)
        if place is not None:
            return place
    return None


def _program(words: Sequence[str], index: int, program: str) -> Place | None:
    if program in _SHELLS:
        return _script(_shell_string(words, index + 1))
    if program in _USER_SWITCHES:
        return _script(_switched_string(words, index + 1))
    if program in _CONTAINERS:
        return _container(words, index)
    if program == "vllm" and words[index + 1 : index + 2] == ["serve"]:
        return _arguments(words, index + 2)
    if program == "api_server.py":
        return _arguments(words, index + 1)
    return None


def _module(words: Sequence[str], index: int) -> Place | None:
    name, following = words[index][2:], index + 1
    if not name:
        name, following = "".join(words[index + 1 : index + 2]), index + 2
    if name in _MODULES:
        return _arguments(words, following)
    if name in _MAIN_MODULES and words[following : following + 1] == ["serve"]:
        return _arguments(words, following + 1)
    return None


def _arguments(words: Sequence[str], start: int) -> Place:
    stop = next((i for i in range(start, len(words)) if words[i] == "--"), len(words))
    return Place(start, stop)


def _script(index: int | None) -> Place | None:
    return None if index is None else Place(index, index + 1, script=True)


def _shell_string(words: Sequence[str], index: int) -> int | None:
    """Return the index of the string a shell is told to run with `-c`, in any spelling (`-lc`, `-euo pipefail -c`)."""
    runs_string = False
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if len(word) < 2 or word[0] not in "-+":  # noqa: PLR2004 - a sign and a letter
            break
        takes_value = word in ("--rcfile", "--init-file")
        if not word.startswith("--"):
            runs_string |= word[0] == "-" and "c" in word
            takes_value = "o" in word or "O" in word
        index += 2 if takes_value else 1
    return index if runs_string and index < len(words) else None


def _switched_string(words: Sequence[str], index: int) -> int | None:
    """Return the index of the string of `su user -c '…'`."""
    for i in range(index, len(words) - 1):
        if words[i] in ("-c", "--command"):
            return i + 1
    return None


def _subcommand(words: Sequence[str], index: int) -> int | None:
    """Return the index of the `run` or `exec` of `docker … run`, or None where it is another subcommand."""
    index += 1
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _GLOBAL_VALUES else 1
    if words[index : index + 1] == ["container"]:
        index += 1
    return index if index < len(words) and words[index] in ("run", "exec") else None


def _container(words: Sequence[str], index: int) -> Place | None:
    run = _subcommand(words, index)
    if run is None:
        return None
    image, entrypoint = _image(words, run + 1)
    if image >= len(words):
        return None
    # The entry point takes the place of the image's name, so that indexes stay the same.
    inside = [entrypoint or "", *words[image + 1 :]]
    place = locate(inside)
    if place is not None:
        return replace(place, start=place.start + image, stop=place.stop + image)
    runs_image_program = words[run] == "run" and entrypoint is None
    return _arguments(words, image + 1) if runs_image_program and _is_vllm_image(words[image], inside[1:]) else None


def _image(words: Sequence[str], index: int) -> tuple[int, str | None]:
    """Return the index of the image's (or container's) name and the `--entrypoint` that was asked for."""
    entrypoint = None
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        name, equals, value = words[index].partition("=")
        if name == "--entrypoint":
            entrypoint = value if equals else "".join(words[index + 1 : index + 2])
        index += 1 if equals or not _takes_next_word(words[index]) else 2
    return index + (words[index : index + 1] == ["--"]), entrypoint


def _takes_next_word(option: str) -> bool:
    if option.startswith("--"):
        return option not in _RUN_SWITCHES
    # In `-itp 8000:8000` the last letter takes the value; in `-p8000:8000` the value is attached.
    return len(option[1:].lstrip(_RUN_SHORT_SWITCHES)) == 1


def _is_vllm_image(image: str, arguments: Sequence[str]) -> bool:
    if arguments and (arguments[0].startswith(("./", "/")) or arguments[0].endswith(".sh")):
        return False  # another program inside the image
    named = "vllm" in image.lower()
    return named or any(a.partition("=")[0].replace("_", "-") in _TELLING_FLAGS for a in arguments)
