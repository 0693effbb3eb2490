"""`draftworth decisions`: the options tree, what newer evidence says of it, and what to do next."""

import datetime as dt
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from draftworth.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from draftworth.decisions.check import Checked
    from draftworth.decisions.known import Known

app = App(
    name="decisions", help="The options tree: states, gates, what to reopen, what is next.", help_format="markdown"
)

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
]


@app.default
def show(*, as_json: Json = False) -> int:
    """Show every option with its state, its gate, and whether the gate holds."""
    from draftworth.decisions.overview import tree_lines  # noqa: PLC0415 - lazy: pydantic models

    checked = _checked()[1]
    _print(checked.model_dump_json(indent=1) if as_json else "\n".join(tree_lines(checked)))
    return EXIT_DONE


@app.command
def check(
    *,
    apply: Annotated[
        bool, Parameter(negative="", help="Write a record for each option that should be reopened.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Hold every gate and every decided option against newer trials, costs and predictions; name what to reopen.

    Exits 0 whatever is found, 1 where the tree or a record has a mistake.
    """
    from draftworth.decisions.check import apply as apply_check  # noqa: PLC0415 - lazy
    from draftworth.decisions.overview import check_lines  # noqa: PLC0415 - lazy
    from draftworth.decisions.tree import decisions_folder  # noqa: PLC0415 - lazy

    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    checked = apply_check(decisions_folder(), today) if apply else _checked()[1]
    _print(checked.model_dump_json(indent=1) if as_json else "\n".join(check_lines(checked)))
    return EXIT_DONE


@app.command(name="next")
def next_(
    *,
    out: Annotated[Path | None, Parameter(help="Write the page there instead of showing it.")] = None,
    as_json: Json = False,
) -> int:
    """Make the next-steps page: the options left in order, what each needs, its expected gain and cost."""
    from draftworth.decisions.nextpage import next_steps, page, write_page  # noqa: PLC0415 - lazy

    known, checked = _checked()
    found = next_steps(known, checked)
    if out is not None:
        try:
            write_page(found, out)
        except OSError as error:
            raise UsageError(f"{out}: cannot be written: {error.strerror}") from None
        print(f"Written: {out}", file=sys.stderr)
    if as_json:
        _print(found.model_dump_json(indent=1))
    elif out is None:
        _print(page(found).rstrip("\n"))
    return EXIT_DONE


def _checked() -> "tuple[Known, Checked]":
    from draftworth.decisions.check import check as checked  # noqa: PLC0415 - lazy
    from draftworth.decisions.known import Known  # noqa: PLC0415 - lazy
    from draftworth.decisions.tree import decisions_folder  # noqa: PLC0415 - lazy

    known = Known.read(decisions_folder())
    return known, checked(known)


def _print(text: str) -> None:
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(text)
        sys.stdout.flush()
