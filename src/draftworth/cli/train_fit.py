"""`draftworth train fit`: train the head."""

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show


def fit(recipe: RecipeFile, /, *, again: Again = False, as_json: Json = False) -> int:
    """Train the head with speculators, in the environment of `draftworth train install`.

    After every epoch the head drafts on held-out conversations as a server would (walk acceptance); the best epoch by
    that is kept, and training ends where it no longer rises. Interrupted at any point, the same command goes on; at
    most five minutes are lost. Figures of every step: `fit/progress.jsonl` in the run folder; a page of them while it
    runs, to open in a browser: `fit/progress.html`.

    Exits 0 when the head is trained, 1 where an earlier stage has not run, 2 where it cannot be done here, 6 where the
    training fails.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    return run_and_show(recipe, [StageName.FIT], again=again, as_json=as_json)
