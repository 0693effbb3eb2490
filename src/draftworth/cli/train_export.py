"""`draftworth train export`: the checkpoint that engines load."""

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show


def export(recipe: RecipeFile, /, *, again: Again = False, as_json: Json = False) -> int:
    """Write the best checkpoint as a folder that vLLM and SGLang load, and check it as `draftworth head check` does.

    The embedding is left out: engines take the target's. A head that fails a check is refused by the check's name.

    Exits 0 when the folder is there, 1 where an earlier stage has not run, 2 where a check failed.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    return run_and_show(recipe, [StageName.EXPORT], again=again, as_json=as_json)
