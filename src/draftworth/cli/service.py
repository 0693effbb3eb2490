"""`draftworth service`: a systemd unit for an engine's command."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from draftworth.cli import STDIN
from draftworth.errors import EXIT_DONE, EXIT_REFUSED, RefusedError, UsageError

if TYPE_CHECKING:
    from draftworth.services.newunit.base import NewUnit

app = App(name="service", help="Services: a good systemd unit for an engine's command.", help_format="markdown")


@app.command
def new(
    *command: Annotated[str, Parameter(help="The engine's command, behind `--`.", allow_leading_hyphen=True)],
    name: Annotated[str | None, Parameter(help="The unit's name; default: the model's.")] = None,
    user: Annotated[str | None, Parameter(help="Who it runs as; default: you.")] = None,
    description: Annotated[str | None, Parameter(help="One line for `systemctl status`.")] = None,
    env: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            help="A variable: NAME=VALUE, or NAME to take this shell's; may be given several times. No secrets.",
        ),
    ] = None,
    env_file: Annotated[
        list[str] | None,
        Parameter(negative="", help="Absolute path of a file with NAME=VALUE lines: the place for secrets."),
    ] = None,
    cwd: Annotated[str | None, Parameter(help="Its folder; default: here where the command names a file here.")] = None,
    load_timeout: Annotated[str, Parameter(help="Longest load: 45min, 2h.")] = "2h",
    stop_timeout: Annotated[str, Parameter(help="Longest end after SIGTERM, then SIGKILL.")] = "60s",
    gpus: Annotated[
        str | None,
        Parameter(help="GPUs to wait for, `0,1`; default: CUDA_VISIBLE_DEVICES, else as many as the command uses."),
    ] = None,
    gpu_floor: Annotated[int, Parameter(help="MiB that may be in use on each GPU when it starts.")] = 1000,
    gpu_wait: Annotated[str, Parameter(help="Longest wait for that; then the start fails.")] = "2min",
    cache_dir: Annotated[str | None, Parameter(help="Folder of its caches; default: /var/cache/NAME.")] = None,
    port: Annotated[int | None, Parameter(help="Where it listens; default: from the command.")] = None,
    health_wait: Annotated[bool, Parameter(help="The start is over only when it serves.")] = True,
    nccl: Annotated[
        bool, Parameter(negative="", help="Make the NCCL settings for PCIe active; else they are comments.")
    ] = False,
    output: Annotated[
        str, Parameter(help="Where it is written; `-`: standard output.", allow_leading_hyphen=True)
    ] = "-",
    force: Annotated[bool, Parameter(negative="", help="Replace the file that is there.")] = False,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Print a systemd unit for an engine's command: `draftworth service new --user llm -- vllm serve MODEL`.

    It waits for free GPU memory, removes only its own stale shared memory, lasts through loads of hours, cannot loop
    without an end, and says of every setting why it is there. Installs nothing; prints the commands that do.

    Exits 0, 1 for wrong input, 2 where it is refused or `systemd-analyze verify` does not take the unit.
    """
    from draftworth.hosts import host_for  # noqa: PLC0415 - lazy
    from draftworth.services.newunit import new_unit  # noqa: PLC0415 - lazy: pydantic models
    from draftworth.services.newunit.base import Asked  # noqa: PLC0415 - lazy
    from draftworth.services.newunit.make import install_commands  # noqa: PLC0415 - lazy
    from draftworth.services.newunit.spans import seconds  # noqa: PLC0415 - lazy

    file = None if output in {"-", STDIN} else Path(output)
    _check_output(file, force=force)
    if gpu_floor < 0:
        raise UsageError("--gpu-floor: must not be below 0")
    asked = Asked(
        command=tuple("-" if word == STDIN else word for word in command),
        name=name,
        user=user,
        description=description,
        env=_variables(env or (), os.environ),
        env_files=tuple(env_file or ()),
        cwd=cwd,
        load_timeout_s=seconds(load_timeout, "--load-timeout"),
        stop_timeout_s=seconds(stop_timeout, "--stop-timeout"),
        gpus=_gpus(gpus),
        gpu_floor_mib=gpu_floor,
        gpu_wait_s=seconds(gpu_wait, "--gpu-wait"),
        cache_dir=cache_dir,
        port=port,
        health_wait=health_wait,
        nccl=nccl,
    )
    unit = new_unit(asked, host_for(None), os.environ)
    if file is not None:
        unit = unit.model_copy(update={"install": install_commands(str(file), unit.name)})
        if not unit.failed:
            host_for(None).write(str(file.absolute()), unit.text.encode())
    with suppress(BrokenPipeError):  # whoever read the output has gone
        _show(unit, file, as_json=as_json)
    return EXIT_REFUSED if unit.failed else EXIT_DONE


def _show(unit: "NewUnit", file: Path | None, *, as_json: bool) -> None:
    """Print the unit on standard output, what is to be said about it on standard error."""
    if as_json:
        print(json.dumps({**unit.model_dump(mode="json"), "failed": unit.failed}, indent=1))
        sys.stdout.flush()
        return
    if file is None:
        print(unit.text, end="")
    elif not unit.failed:
        print(f"Written: {file}")
    sys.stdout.flush()
    for check in unit.checks:
        print(f"{check.severity}: {check.text}", file=sys.stderr)
    if not unit.failed:
        about = "" if file else f", with the unit saved as {unit.name}"
        print("\n".join([f"To install and start it{about}:", *(f"  {line}" for line in unit.install)]), file=sys.stderr)


def _check_output(file: Path | None, *, force: bool) -> None:
    """Refuse to write over a file. Raises UsageError where nothing can be written there."""
    if file is None:
        return
    if not file.absolute().parent.is_dir():
        raise UsageError(f"--output: {file.parent}: no such folder")
    if file.is_dir():
        raise UsageError(f"--output: {file} is a folder; name a file in it")
    if os.path.lexists(file) and not force:
        raise RefusedError(f"--output: {file} is there already; give --force to replace it")


def _gpus(text: str | None) -> tuple[str, ...]:
    words = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    if text is not None and not words:
        raise UsageError("--gpus: names none; write indices like 0,1 or leave it out")
    return words


def _variables(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables named on the command line.

    Raises:
        UsageError: one has no name, or is to be taken from the shell and is not there.
    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            if name not in environ:
                raise UsageError(f"--env {name}: not set in this shell; write --env {name}=VALUE")
            value = environ[name]
        found[name] = value
    return found
