"""Adds the figures that answers carry; one that cannot be read costs only itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import AcceptanceCounts, Engine
from draftworth.errors import MeasureError


def answers_counts(
    engine: Engine, stats: Sequence[Mapping[str, Any] | None], version: str | None
) -> tuple[AcceptanceCounts | None, list[str]]:
    """Return the counts of answers, and what is wrong with those that are left out.

    Args:
        engine: reads them.
        stats: each answer's figures, None where it had none.
        version: the engine's.
    """
    try:
        return engine.request_counts(stats, version), []
    except MeasureError as error:
        whole = str(error)
    kept: list[Mapping[str, Any] | None] = []
    wrong: list[str] = []
    for number, one in enumerate(stats, 1):
        try:
            engine.request_counts([one], version)
        except MeasureError as error:
            wrong.append(f"answer {number}: {error}")
        else:
            kept.append(one)
    try:
        return (engine.request_counts(kept, version) if any(kept) else None), wrong or [whole]
    except MeasureError as error:  # each can be read, and not all together
        return None, [*wrong, str(error)]
