"""Arguments that verbs of `draftworth trial` share."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON document on standard output.")]
File = Annotated[Path, Parameter(help="The trial's TOML file; `draftworth trial schema` prints one to start from.")]
Host = Annotated[
    str | None,
    Parameter(help="The machine it is driven on, as `ssh` takes it; default: where it was started from here."),
]
Program = Annotated[
    str | None,
    Parameter(name="--draftworth", help="With --host: the program there; default: as in the last trial from here."),
]
Sudo = Annotated[
    bool, Parameter(negative="", help="With --host: become root there with `sudo -n`; default: as in the last trial.")
]
TrialId = Annotated[str, Parameter(name="ID", help="A trial's id, or `latest`.")]
