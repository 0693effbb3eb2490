"""`draftworth trial`: show, list: what trials have found."""

import json
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.trial_words import Json


def show(
    trial: Annotated[str, Parameter(name="ID", help="A trial's id, or `latest`.")], /, *, as_json: Json = False
) -> int:
    """Print what a trial found."""
    from draftworth.cli.show import show_lines  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    folder = find_trial(trial)
    found = read(folder)
    print(found.model_dump_json(indent=1) if as_json else "\n".join(show_lines(found, folder)))
    return 0


def list_(*, as_json: Json = False) -> int:
    """List the trials here, oldest first."""
    from draftworth.cli.show import list_entries  # noqa: PLC0415 - lazy
    from draftworth.trials.home import trials_folder  # noqa: PLC0415 - lazy

    entries = list_entries()
    if as_json:
        print(json.dumps({"schema_version": 1, "trials": entries}, indent=1))
        return 0
    if not entries:
        print(f"No trials in {trials_folder()}; run one with `draftworth trial run FILE`")
    if entries:
        print(f"{'trial':<17}  {'service':<14}  {'verdict':<13}  ratio")
    for entry in entries:
        ratio = "" if entry["ratio"] is None else f"  {entry['ratio']:.3f} ({entry['metric']})"
        print(f"{entry['id']:<17}  {entry['state']:<14}  {entry['verdict'] or '-':<13}{ratio}")
    return 0
