"""Knows the words that start vLLM, in a container too: its image starts the server by itself."""

from collections.abc import Sequence

from draftworth.engines import layout
from draftworth.engines.layout import Place

_MODULES = frozenset(
    {
        "vllm.entrypoints.openai.api_server",
        "vllm.entrypoints.api_server",
        "vllm.entrypoints.launchers.api_server",
        "vllm.entrypoints.launchers.api_server.entry",
    }
)
_MAIN_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main"})

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


def locate(words: Sequence[str]) -> Place | None:
    """Return where vLLM's arguments are in a command, or None where no word says that it starts vLLM."""
    return layout.find(words, _program, modules=_MODULES, serving=_MAIN_MODULES, runs=_runs)


def _runs(words: Sequence[str], index: int) -> bool:
    return _subcommand(words, index) is not None


def _program(words: Sequence[str], index: int, program: str) -> Place | None:
    if program in layout.CONTAINERS:
        return _container(words, index)
    if program == "vllm" and words[index + 1 : index + 2] == ["serve"]:
        return layout.until_dashes(words, index + 2, index)
    return layout.until_dashes(words, index + 1, index) if program == "api_server.py" else None


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
        return Place(place.start + image, place.stop + image, place.script, place.program + image)
    runs_image_program = words[run] == "run" and entrypoint is None
    if not runs_image_program or not _is_vllm_image(words[image], inside[1:]):
        return None
    return layout.until_dashes(words, image + 1, image)


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
