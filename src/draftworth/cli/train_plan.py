"""`draftworth train plan` and `train schema`: before anything is run."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.train_words import Json, RecipeFile, shown
from draftworth.errors import EXIT_DONE, UsageError


def schema(*, as_json: Json = False) -> int:
    """Print every field of a recipe with its meaning and default, as TOML to start from."""
    import json  # noqa: PLC0415 - lazy

    from draftworth.training.recipe import Recipe  # noqa: PLC0415 - lazy
    from draftworth.training.recipe_file import toml_schema  # noqa: PLC0415 - lazy

    shown(json.dumps(Recipe.model_json_schema(), indent=1) if as_json else toml_schema().rstrip("\n"))
    return EXIT_DONE


def plan(
    recipe: RecipeFile,
    /,
    *,
    acceptance: Annotated[
        float | None, Parameter(help="The acceptance length per step that pays, instead of the recipe's.")
    ] = None,
    predict: Annotated[
        Path | None, Parameter(help="What `draftworth predict --heads --json` printed: it says what pays.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show what a head must reach to pay, what data, disk and GPU hours it takes, and what others reached.

    Reads config.json, a prediction and, where `train data` has run, its counts. Nothing is run and nothing is refused:
    what cannot work is said. Every figure comes with its formula and source.
    """
    from draftworth.training.plan import make_plan  # noqa: PLC0415 - lazy
    from draftworth.training.plan_lines import lines  # noqa: PLC0415 - lazy
    from draftworth.training.recipe_file import load_recipe  # noqa: PLC0415 - lazy

    if acceptance is not None and predict is not None:
        raise UsageError("--acceptance or --predict, not both")
    if acceptance is not None and not 1 <= acceptance <= 33:  # noqa: PLR2004 - a token at least; 32 drafted and one
        raise UsageError(f"--acceptance: must be from 1 to 33, not {acceptance:g}")
    read = load_recipe(recipe)
    if acceptance is not None or predict is not None:
        told = {"acceptance": acceptance, "predict": None if predict is None else predict.absolute()}
        read = read.model_copy(update={"plan": read.plan.model_copy(update=told)})
    made = make_plan(read)
    shown(made.model_dump_json(indent=1) if as_json else "\n".join(lines(made)))
    return EXIT_DONE
