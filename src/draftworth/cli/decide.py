"""`draftworth decide`: the record of what follows from a trial."""

import datetime as dt
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from draftworth.decisions.conclude import Conclusion
    from draftworth.decisions.decide import Decided
    from draftworth.decisions.states import State


def decide(
    trial: Annotated[
        str | None,
        Parameter(help="A trial's id or folder, `latest`, or a JSON file of a trial that others reported."),
    ] = None,
    /,
    *,
    option: Annotated[
        str | None,
        Parameter(help="Which option of decisions/tree.toml; default: the arm's own, which is begun if need be."),
    ] = None,
    arm: Annotated[str | None, Parameter(help="Which variant; default: the one the trial's verdict is about.")] = None,
    state: Annotated[
        str | None,
        Parameter(
            help="Instead of what follows from the figures: open, pending, running, ruled out, adopted, reopened; "
            "adopted only where they carry it."
        ),
    ] = None,
    cite: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            help="More evidence: a trial's id, a file, or a published result as `SOURCE, 2026-09: WHAT`. Repeatable.",
        ),
    ] = None,
    although: Annotated[
        str | None,
        Parameter(help="Why a trial of another method or model than the option's decides it all the same; recorded."),
    ] = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Write what follows from a trial as a decision record: faster is adopted, slower and no difference are ruled out.

    Inconclusive and failed trials are pending, with what is needed. Only a trial adopts or rules out. A record of the
    same trial is written again, its notes kept. Without a trial, --option and
    --state move an option that is not decided.

    Exits 0 when a record was written, 1 for wrong input or a change that the figures do not carry.
    """
    from draftworth.decisions import decide as deciding  # noqa: PLC0415 - lazy: pydantic models
    from draftworth.decisions.citing import citation  # noqa: PLC0415 - lazy
    from draftworth.decisions.tree import decisions_folder  # noqa: PLC0415 - lazy

    folder = decisions_folder()
    if although is not None and not although.strip():
        raise UsageError("--although: say why, in words; it is recorded")
    if although is not None and trial is None:
        raise UsageError("--although: it is about a trial: name one")
    cites = tuple(citation(one, folder.parent) for one in cite or ())
    wish = deciding.Wish(
        today=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        option=option,
        state=None if state is None else _state(state),
        cites=cites,
        although=" ".join((although or "").split()),
    )
    if trial is None:
        if option is None or state is None:
            raise UsageError("which trial? Or name --option and --state to move an option without one")
        done = deciding.move(option, wish, folder, ["By hand; no trial."])
    else:
        found, method, remarks = _concluded(trial, arm, folder.parent)
        done = deciding.decide(found, wish, folder, method=method)
        done = done.model_copy(update={"remarks": (*done.remarks, *remarks)})
    _show(done, as_json=as_json)
    return EXIT_DONE


def _state(text: str) -> "State":
    from draftworth.decisions.states import STATES  # noqa: PLC0415 - lazy

    found = next((one for one in STATES if one == text.replace("-", " ")), None)
    if found is None:
        raise UsageError(f"--state: must be one of {', '.join(STATES)}, not {text!r}")
    return found


def _concluded(trial: str, arm: str | None, root: Path) -> "tuple[Conclusion, str, list[str]]":
    """Return what follows from a trial, the arm's method, and what could not be read."""
    from draftworth.decisions.account import method_of  # noqa: PLC0415 - lazy
    from draftworth.decisions.citing import has_trial, relative  # noqa: PLC0415 - lazy
    from draftworth.decisions.conclude import conclude  # noqa: PLC0415 - lazy
    from draftworth.decisions.reported import conclude_reported, is_reported, load_reported  # noqa: PLC0415 - lazy
    from draftworth.reports.trial.accounts import account_of  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    path = Path(trial)
    if is_reported(path):
        if arm is not None:
            raise UsageError("--arm: a reported trial is of one arm only")
        told = load_reported(path)
        return conclude_reported(told, relative(path, root)), str(told.setting.get("method") or ""), []
    folder = path if path.is_dir() else find_trial(trial)
    record = read(folder)
    explained, why = account_of(folder)
    found = conclude(record, arm, explained)
    remarks = [f"the record has no cause: {why}"] if why else []
    if not has_trial(root, record.id):
        remarks.append(
            f"trial {record.id} is not in {root / 'trials'}: `decisions check` cannot hold the record against it"
        )
    if arm is None and found.beside:
        many = f"{len(found.beside)} further variants are" if len(found.beside) > 1 else "a further variant is"
        remarks.append(f"{many} in the trial and not decided on by this: --arm NAME decides on one of them")
    return found, method_of(record, found.arm), remarks


def _show(done: "Decided", *, as_json: bool) -> None:
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            print(json.dumps(done.model_dump(mode="json"), indent=1, allow_nan=False))
        else:
            print(f"{done.option}: {done.before} → {done.state}")
            print("\n".join([*done.outcome, *(f"Needed: {one}" for one in done.needs)]))
            for path in done.files:
                print(f"{'Written again' if done.written_again else 'Written'}: {path}")
        sys.stdout.flush()
    for one in done.remarks:
        print(one, file=sys.stderr)
