"""`draftworth train data`: conversations as samples."""

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show


def data(recipe: RecipeFile, /, *, again: Again = False, as_json: Json = False) -> int:
    """Make samples of the recipe's conversations: token ids with a loss mask, split by conversation first.

    Where the recipe says so the target writes the answers anew over HTTP; what was answered is kept when it is
    interrupted, and running again resumes. What is left out is counted by reason.

    Exits 0 when the samples are there, 1 where a source cannot be read or nothing is left to learn from, 6 where the
    server that writes the answers is gone.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    return run_and_show(recipe, [StageName.DATA], again=again, as_json=as_json)
