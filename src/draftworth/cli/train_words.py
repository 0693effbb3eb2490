"""What the verbs of `draftworth train` have in common."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.errors import EXIT_DONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftworth.training.base import StageName

RecipeFile = Annotated[Path, Parameter(help="The recipe (TOML); `draftworth train schema` prints one to start from.")]
Again = Annotated[bool, Parameter(negative="", help="Run it even where nothing changed since it ran.")]
Json = Annotated[
    bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
]


def run_and_show(file: Path, names: "Sequence[StageName]", *, again: bool, as_json: bool) -> int:
    """Run stages of a recipe, with progress on standard error, and print how they went."""
    from draftworth.training.recipe_file import load_recipe  # noqa: PLC0415 - lazy
    from draftworth.training.run import lines, run_stages  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    recipe = load_recipe(file)
    try:
        with Progress(kinds=[str(name) for name in names]) as progress:
            report = run_stages(recipe, names, progress, again=again)
    except KeyboardInterrupt:
        print(f"{recipe.folder}: what was done is kept; the same command goes on", file=sys.stderr)
        raise
    shown(report.model_dump_json(indent=1) if as_json else "\n".join(lines(report)))
    return EXIT_DONE


def shown(text: str) -> None:
    """Print a text on standard output."""
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(text)
        sys.stdout.flush()
