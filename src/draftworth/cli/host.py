"""`draftworth host`: machines that trials are driven on over SSH."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from draftworth.errors import EXIT_DONE, EXIT_REFUSED, RefusedError

if TYPE_CHECKING:
    from draftworth.hosts.install import Installed
    from draftworth.trials.driver.check import Check

app = App(name="host", help="Machines that trials are driven on over SSH: check, install.", help_format="markdown")

Alias = Annotated[str, Parameter(name="ALIAS", help="The machine, as `ssh` takes it.")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON document on standard output.")]
Sudo = Annotated[bool, Parameter(negative="", help="Become root there with `sudo -n`, as with service.sudo.")]

_MARKS = {"ok": "ok", "note": "note", "failed": "FAILED"}


@app.command
def check(
    alias: Alias,
    /,
    *,
    program: Annotated[
        str, Parameter(name="--draftworth", help="Draftworth there, as in service.draftworth.")
    ] = "draftworth",
    sudo: Sudo = False,
    as_json: Json = False,
) -> int:
    """Say whether trials can be driven on a machine, and what to do where not. Changes nothing.

    Exits 0, or 2 where something is missing that a trial needs.
    """
    from draftworth.trials.driver.check import check as looked_at  # noqa: PLC0415 - lazy
    from draftworth.trials.driver.reach import ssh_host  # noqa: PLC0415 - lazy

    found = []
    for one in looked_at(ssh_host(alias), alias=alias, program=program, sudo=sudo):
        found.append(one)
        if not as_json:
            with suppress(BrokenPipeError):
                print("\n".join(_lines(one)), flush=True)
    failed = any(one.state == "failed" for one in found)
    if as_json:
        checks = [one.model_dump(mode="json") for one in found]
        print(json.dumps({"schema_version": 1, "host": alias, "ok": not failed, "checks": checks}, indent=1))
    return EXIT_REFUSED if failed else EXIT_DONE


@app.command
def install(
    alias: Alias,
    /,
    *,
    python: Annotated[str, Parameter(help="The Python there that it runs on, 3.11 or newer.")] = "python3",
    folder: Annotated[
        str | None,
        Parameter(
            help="Where it is put; default: /opt/draftworth/VERSION, not as root ~/.local/share/draftworth/VERSION."
        ),
    ] = None,
    wheelhouse: Annotated[
        Path | None,
        Parameter(help="A folder here with wheels of all it requires, for a machine without a package index."),
    ] = None,
    sudo: Sudo = False,
    as_json: Json = False,
) -> int:
    """Bring this very version of Draftworth to a machine, into a virtual environment of its own.

    What it requires comes from pip's index there, or from --wheelhouse; Draftworth itself is sent. It is made beside
    its place and renamed when it has been seen to work; where it is already, nothing is done.
    """
    from draftworth.hosts.base import HostError  # noqa: PLC0415 - lazy
    from draftworth.hosts.install import install as bring  # noqa: PLC0415 - lazy
    from draftworth.trials.driver.reach import ssh_host  # noqa: PLC0415 - lazy

    try:
        done = bring(ssh_host(alias), python=python, folder=folder, wheelhouse=wheelhouse, sudo=sudo, tell=_tell)
    except HostError as error:
        raise RefusedError(f"{error}; run it again") from None
    if as_json:
        print(json.dumps({"schema_version": 1, "line": _line(done), **done.model_dump(mode="json")}, indent=1))
    else:
        print("\n".join(_said(done, alias, sudo=sudo)))
    return EXIT_DONE


@app.command
def requirements() -> int:
    """Print what this version requires, one a line, to download wheels for `host install --wheelhouse`."""
    from draftworth.hosts.package import requirements_here  # noqa: PLC0415 - lazy

    print("\n".join(requirements_here()))
    return EXIT_DONE


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _lines(one: "Check") -> list[str]:
    out = [f"{_MARKS[one.state]:<7} {one.name:<11} {one.text}"]
    return [*out, f"{'':<19} do: {one.fix}"] if one.fix else out


def _line(done: "Installed") -> str | None:
    """Return what the trial's file has to say, where a command over SSH does not find the program."""
    return None if done.on_path else f'service.draftworth = "{done.program}"'


def _said(done: "Installed", alias: str, *, sudo: bool) -> list[str]:
    state = "is there already" if done.already else "is installed"
    out = [f"Draftworth {done.version} {state}: {done.host}, {done.program} (Python {done.python})"]
    option = ""
    line = _line(done)
    if line is not None:
        why = "is not on the PATH of commands over SSH" if done.link else "is another program's name there"
        out.append(f"`draftworth` {why}; in the trial's file write:  {line}")
        option = f" --draftworth {done.program}"
    return [*out, f"Next: draftworth host check {alias}{option}{' --sudo' if sudo else ''}"]
