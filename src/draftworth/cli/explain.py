"""`draftworth explain`: where the milliseconds between a trial's arms went."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.settings import arm_configs
from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.predict.base import Range


def explain(
    trial: Annotated[str, Parameter(help="A finished trial, by id or folder; `latest` is the newest.")] = "latest",
    /,
    *,
    costs: Annotated[
        Path | None, Parameter(help="A costs file of the trial's baseline, as `draftworth probe` writes it.")
    ] = None,
    with_trials: Annotated[
        list[Path] | None,
        Parameter(
            name="--with",
            negative="",
            help="Further trials of the same server, whose null-draft and synthetic arms tell its engine mode.",
        ),
    ] = None,
    speculation: Annotated[
        list[str] | None,
        Parameter(negative="", help="What an arm's server was started with, `ARM=JSON`, where the record lacks it."),
    ] = None,
    drafter_ms: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            help="What an arm's drafter is said to take a step, `ARM=MS`, from half of it to twice. Repeatable.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        Parameter(negative="", help="Keep this account for the report and decisions, whatever is kept already."),
    ] = False,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Assign every millisecond a token between a trial's arms to a cause that was measured, or to a rest.

    Engine mode, verification of more tokens, drafter, tokens gained: none is taken from the arm's own time. What is
    left is the rest, with an interval. The account is kept as `explained.json` in the trial's folder, with what it was
    made with; one that was made with other costs, trials or figures stays unless `--keep` replaces it.

    Exits 0 when explained, 1 for wrong input.
    """
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy
    from draftworth.explain.kept import keep_or_say  # noqa: PLC0415 - lazy
    from draftworth.explain.whole import explain_trial, of_unfinished  # noqa: PLC0415 - lazy
    from draftworth.reports.explain import lines  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    folder = _folder(trial)
    found = explain_trial(
        folder,
        None if costs is None else load_costs(costs),
        [_folder(str(one)) for one in with_trials or ()],
        speculation=arm_configs(speculation or ()),
        drafter_ms=_drafters(drafter_ms or ()),
        costs_name="" if costs is None else costs.name,
    )
    found = of_unfinished(found, read(folder))
    said = keep_or_say(found, folder, asked=keep)
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            print(json.dumps(found.model_dump(mode="json"), indent=1, allow_nan=False))
            print(said, file=sys.stderr)
        else:
            print("\n".join([*lines(found), "", said]))
        sys.stdout.flush()
    return 0


def _folder(name: str) -> Path:
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy

    if not name.strip():
        raise UsageError("explain: '' names no trial: give its id, its folder, or `latest`")
    return Path(name) if Path(name).is_dir() else find_trial(name)


def _drafters(texts: "list[str] | tuple[str, ...]") -> "dict[str, Range]":
    from draftworth.explain.beside import stated_ms  # noqa: PLC0415 - lazy

    found: dict[str, Range] = {}
    for text in texts:
        arm, equals, value = text.partition("=")
        try:
            ms = float(value) if equals else -1.0
        except ValueError:
            ms = -1.0
        if not arm or not 0 <= ms < float("inf"):
            raise UsageError(f"--drafter-ms: must be like eagle3=1.4, in milliseconds a step, not {text!r}")
        if arm in found:
            raise UsageError(f"--drafter-ms: {arm} is stated twice: say which of {found[arm].value:g} and {ms:g} it is")
        found[arm] = stated_ms(ms)
    return found
