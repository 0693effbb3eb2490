"""`draftworth report`: a trial as a page, and several trials side by side."""

import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import draftworth
from draftworth.errors import UsageError

app = App(
    name="report", help="A trial as a page that stands on its own; several side by side.", help_format="plaintext"
)

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
]
Out = Annotated[Path | None, Parameter(help="Where the page is written.")]


@app.default
def report(
    trial: Annotated[str, Parameter(help="A trial, by id or folder; `latest` is the newest.")] = "latest",
    /,
    *,
    out: Annotated[Path | None, Parameter(help="Where; default: report.html in the trial's folder.")] = None,
    as_json: Json = False,
) -> int:
    """Write a trial's page: verdict, cause and next step, then every plot with its figures.

    One HTML file that needs nothing else. It takes `explained.json` of the trial where `draftworth explain` has written
    one, and says so where there is none. A trial that failed half-way has a page of what it left.
    """
    from draftworth.reports.markdown import write_report  # noqa: PLC0415 - lazy
    from draftworth.reports.trial.accounts import account_of  # noqa: PLC0415 - lazy
    from draftworth.reports.trial.gather import gather  # noqa: PLC0415 - lazy
    from draftworth.reports.trial_page import HTML, page_of, write_page  # noqa: PLC0415 - lazy
    from draftworth.reports.words import ended  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    folder = _folder(trial)
    record = read(folder)
    explained, wrong = account_of(folder)
    subject = gather(folder, record, explained)
    if wrong:
        subject = replace(subject, missing=(ended(wrong), *subject.missing))
    path = write_page(folder / HTML if out is None else out, page_of(subject))
    if out is None:
        write_report(folder, record, explained)
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            told = {
                "trial": record.model_dump(mode="json"),
                "explained": explained.model_dump(mode="json") if explained else None,
                "missing": list(subject.missing),
                "page": str(path),
            }
            print(json.dumps(told, indent=1, allow_nan=False))
        else:
            for line in subject.missing:
                print(f"Not on the page: {line}")
            print(f"Report: {path}")
        sys.stdout.flush()
    return 0


@app.command
def compare(
    *trials: Annotated[str, Parameter(help="Trials, by id or folder.")], out: Out = None, as_json: Json = False
) -> int:
    """Show several trials side by side: arm, setting, verdict, ratio with its interval, cause, engine and machine.

    Each ratio is of its own trial's baseline. Trials of other models or engines are told apart.
    """
    from draftworth.reports.compare import compared, lines, page  # noqa: PLC0415 - lazy
    from draftworth.reports.trial.accounts import account_of  # noqa: PLC0415 - lazy
    from draftworth.reports.trial_page import write_page  # noqa: PLC0415 - lazy
    from draftworth.reports.words import ended  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    if not trials:
        raise UsageError("which trials? `draftworth trial list` shows them")
    folders = [_folder(trial) for trial in trials]
    read_, wrong = [], []
    for folder in dict.fromkeys(folders):
        explained, told = account_of(folder)
        read_.append((read(folder), explained))
        wrong += [told] if told else []
    found = compared(read_)
    found = found.model_copy(update={"notes": (*found.notes, *(ended(one) for one in wrong))})
    if out is not None:
        write_page(out, page(found, draftworth.__version__))
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            print(json.dumps(found.model_dump(mode="json"), indent=1, allow_nan=False))
        else:
            print("\n".join(lines(found)))
            if out is not None:
                print(f"Report: {out}")
        sys.stdout.flush()
    return 0


def _folder(name: str) -> Path:
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy

    return Path(name) if Path(name).is_dir() else find_trial(name)
