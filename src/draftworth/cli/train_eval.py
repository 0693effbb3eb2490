"""`draftworth train eval`: walk acceptance on held-out conversations."""

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show


def eval_(recipe: RecipeFile, /, *, again: Again = False, as_json: Json = False) -> int:
    """Draft on held-out conversations as a server would and count what is accepted: by k, position and kind of work.

    From each position the head drafts k tokens; the leading ones that are the text's are accepted, and the next step
    begins behind them and the one token the target adds. The trainer's accuracy is no such figure.

    Exits 0 when it is measured, 1 where an earlier stage has not run, 2 where it cannot be done here, 6 where it fails.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    return run_and_show(recipe, [StageName.EVAL], again=again, as_json=as_json)
