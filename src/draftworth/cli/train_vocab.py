"""`draftworth train vocab`: the draft's vocabulary."""

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show


def vocab(recipe: RecipeFile, /, *, again: Again = False, as_json: Json = False) -> int:
    """Choose which of the target's tokens the head can draft: the most frequent learned ones, with their coverage.

    Exits 0 when they are chosen, 1 where `train data` has not run, 2 where the size does not fit.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    return run_and_show(recipe, [StageName.VOCAB], again=again, as_json=as_json)
