"""`draftworth train run`: the whole pipeline."""

from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.train_words import Json, RecipeFile, run_and_show
from draftworth.errors import UsageError


def run(
    recipe: RecipeFile,
    /,
    *,
    until: Annotated[
        str | None, Parameter(help="The last stage to run: data, states, vocab, fit, eval or export.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run every stage of a recipe in order; a stage whose inputs are unchanged is skipped.

    It may be ended at any point, also by a kill: running it again goes on where it was. What changed is named.
    From the training on, `fit/progress.html` in the run folder is a page of how it goes, to open in a browser.

    Exits 0 when all stages are there, 1 for a wrong recipe or input, 2 where a stage refuses before it began, 6 where a
    server or the training fails.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy
    from draftworth.training.run import up_to  # noqa: PLC0415 - lazy

    if until is not None and until not in list(StageName):
        raise UsageError(f"--until: must be one of {', '.join(StageName)}, not {until!r}")
    return run_and_show(recipe, up_to(None if until is None else StageName(until)), again=False, as_json=as_json)
