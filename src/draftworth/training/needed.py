"""The acceptance length that pays, and what it means beside what others reached."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.models import Frozen
from draftworth.training.recipe import Recipe
from draftworth.training.scaling import chain_lengths


class NeededLength(Frozen):
    """The acceptance length per step that costs nothing and gains nothing."""

    k: int | None
    """Tokens drafted a step; None where it was given without."""
    concurrency: int | None
    """Requests at a time; None where it was given without."""
    length: float
    low: float
    high: float
    possible: bool
    """Whether a head of this k can reach it at all."""


def needed(recipe: Recipe) -> tuple[tuple[NeededLength, ...], str]:
    """Return what the recipe's head must reach, and where that comes from.

    Raises:
        UsageError: the recipe's prediction cannot be read.
    """
    plan = recipe.plan
    if plan.acceptance is not None:
        at_all = plan.acceptance <= plan.k + 1
        one = NeededLength(
            k=plan.k,
            concurrency=None,
            length=plan.acceptance,
            low=plan.acceptance,
            high=plan.acceptance,
            possible=at_all,
        )
        return (one,), "given as plan.acceptance"
    if plan.predict is None:
        return (), "not known: `draftworth predict TRACE --costs FILE --heads --json` tells it, as plan.predict"
    found = needed_lengths(plan.predict)
    same = [one for one in found if one.k == plan.k]
    return tuple(same or found), str(plan.predict)


def needed_lengths(path: Path) -> list[NeededLength]:
    """Return what `draftworth predict --heads --json` says a head must reach.

    Raises:
        UsageError: no such file, or it is no prediction with heads.
    """
    try:
        heads: Any = json.loads(path.read_text(encoding="utf-8"))["heads"]
        found = [
            NeededLength(
                k=int(one["k"]),
                concurrency=int(one["concurrency"]),
                length=float(one["length"]["value"]),
                low=float(one["length"]["low"]),
                high=float(one["length"]["high"]),
                possible=bool(one["possible"]),
            )
            for one in heads
        ]
    except OSError as error:
        raise UsageError(f"plan.predict: {path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, LookupError):
        raise UsageError(
            f"plan.predict: {path}: not what `draftworth predict --heads --json` prints: it has no list `heads`"
        ) from None
    if not found:
        raise UsageError(f"plan.predict: {path}: no heads in it; run `draftworth predict` with --heads")
    return found


def verdict(needed: Sequence[NeededLength], k: int) -> str:
    """Return what the needed length means beside published ones, in a sentence or two.

    Args:
        needed: none where it is not known.
        k: tokens the head drafts a step.
    """
    lengths = chain_lengths(k)
    span = f"{lengths[0]:.2f} to {lengths[-1]:.2f}" if lengths else ""
    if not needed:
        return (
            f"What the head must reach is not known. Published heads reach {span} at k = {k}, not ours."
            if lengths
            else f"What the head must reach is not known, and nothing was published at k = {k} that is known here."
        )
    best = min(needed, key=lambda one: one.length)
    at = "" if best.concurrency is None else f" at {best.concurrency} at a time"
    said = f"The head must reach {best.length:.2f} tokens per step{at}"
    if not best.possible:
        return f"{said}: with k = {best.k} no head can (at most {(best.k or k) + 1})."
    if not lengths:
        return f"{said}. Nothing was published at k = {k} that is known here."
    reach = sum(one > best.length for one in lengths)
    return (
        f"{said}. Of {len(lengths)} published results at k = {k}, not ours, {reach} are above that "
        f"({span}, by target and kind of work)."
    )
