"""The predicted speed-up of everything that was walked: every k at every load, all conversations and each category."""

from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.training.recipe import Recipe
from draftworth.training.speedup import (
    SpeedUpAt,
    SpeedUps,
    best_of,
    fitted,
    head_share,
    mode_known,
    notes_of,
    predict_at,
)
from draftworth.training.speedup_lengths import lengths

if TYPE_CHECKING:
    from draftworth.training.acceptance import WalkReport


def predicted(report: "WalkReport", recipe: Recipe, checkpoint: Path, dtype: str) -> SpeedUps | str:
    """Return the predicted speed-up, or why it is not known.

    Args:
        report: the walk, with counts by conversation.
        recipe: with costs.
        checkpoint: the folder with the trained head.
        dtype: the type that the head is exported in.

    Raises:
        UsageError: the costs cannot be read, or have no points.
    """
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy: numpy

    assert recipe.eval.costs is not None
    costs = load_costs(recipe.eval.costs)
    model = fitted(costs, recipe.target)
    share = head_share(checkpoint, recipe.target, dtype)
    if share is None:
        return f"not known: config.json of {recipe.target} does not tell which weights a step reads"
    every = report.conversations
    if every is None or report.context is None or not any(every.tokens):
        return "not known: no held-out answer has a second token"

    def rows(category: str | None, context: int) -> tuple[SpeedUpAt, ...]:
        length = lengths(*every.of(category))
        return tuple(
            row
            for load in dict.fromkeys(recipe.eval.concurrency)
            for row in predict_at(model, length, share=share, context=context, concurrency=load)
        )

    whole = rows(None, report.context)
    return SpeedUps(
        costs={
            "file": recipe.eval.costs.name,
            "created": costs.created,
            "engine": costs.engine,
            "version": costs.version,
            "model": costs.model,
            "machine": costs.machine,
        },
        context=report.context,
        draft_share=share,
        mode=mode_known(model),
        rows=whole,
        best=best_of(whole),
        categories={name: rows(name, context) for name, context in report.contexts.items()},
        notes=notes_of(model, whole, share, report.context),
    )
