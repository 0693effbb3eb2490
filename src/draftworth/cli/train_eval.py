"""`draftworth train eval`: walk acceptance on held-out conversations, and what it brings."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show, shown
from draftworth.errors import EXIT_DONE, UsageError


def eval_(
    recipe: RecipeFile,
    /,
    *,
    trial: Annotated[
        str | None,
        Parameter(
            help="Instead: a finished trial with the exported head as an arm, by id, folder or `latest`; walk and "
            "predicted speed-up are held against what it measured."
        ),
    ] = None,
    arm: Annotated[
        str | None, Parameter(help="With --trial: the arm, where the head was served from a copy elsewhere.")
    ] = None,
    again: Again = False,
    as_json: Json = False,
) -> int:
    """Draft on held-out conversations as a server would and count what is accepted: by k, position and kind of work.

    From each position the head drafts k tokens; the leading ones that are the text's are accepted, and the next step
    begins behind them and the one token the target adds. The trainer's accuracy is no such figure. Where the recipe's
    `[eval]` names the costs that `draftworth probe` wrote, each k's speed-up at each load is predicted too.

    Exits 0 when it is measured, 1 where an earlier stage has not run or the trial has no arm with this head, 2 where it
    cannot be done here, 6 where it fails.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    if trial is None:
        if arm is not None:
            raise UsageError("--arm goes with --trial")
        return run_and_show(recipe, [StageName.EVAL], again=again, as_json=as_json)
    if again:
        raise UsageError("--again: a trial is read anew each time; leave it out")
    from draftworth.training.recipe_file import load_recipe  # noqa: PLC0415 - lazy
    from draftworth.training.run import only_one  # noqa: PLC0415 - lazy
    from draftworth.training.speedup_held import lines  # noqa: PLC0415 - lazy
    from draftworth.training.speedup_trial import check_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    read = load_recipe(recipe)
    folder = Path(trial) if Path(trial).is_dir() else find_trial(trial)
    with only_one(read.folder), Progress(kinds=["trial"]) as progress:
        progress.step(f"holding the head against {folder.name}")
        found = check_trial(read, folder, progress, arm=arm)
    shown(found.model_dump_json(indent=1) if as_json else "\n".join(lines(found)))
    return EXIT_DONE
