"""`[search]` of a trial's file: a grid of settings, of which only those are started that can change the answer."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from draftworth.bench.config import Count
from draftworth.errors import UsageError
from draftworth.models import Strict
from draftworth.search.grid import candidates_of
from draftworth.search.rules import MIN_CHANCE, MIN_GAIN
from draftworth.trials.diagnostics import PROBE

LEAST = 2
"""Requests of each load that a part of a measurement has at least, for each that is under way at a time."""


class SearchConfig(Strict):
    """Where to look for the best setting, and how long; those of [[arms]] are weighed too. See docs/search.md."""

    grid: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()
    """Tables of the engine's own settings, in which a list is tried value by value: their cross product. For vLLM `k`
    is short for `num_speculative_tokens`."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Most minutes for starting and measuring settings, besides `limits.downtime_s`, which always holds."""
    together: bool = True
    """Whether one setting has to serve all loads, so that its mean over them counts; false looks for the best of each
    load by itself."""
    min_gain: Annotated[float, Field(ge=0, lt=1)] = MIN_GAIN
    """A start that is expected to make the best setting faster by less than this share is not made."""
    min_chance: Annotated[float, Field(ge=0, lt=1)] = MIN_CHANCE
    """Nor is one whose setting beats the best by `verdict.margin` with a smaller chance."""
    resume: bool = True
    """Whether a search of the same service, settings and requests that did not come to its end is gone on with: what it
    measured is not measured again. false starts anew, as `--again` does."""
    looks: Annotated[Count, Field(le=20)] = 4
    """In how many parts a setting is measured at most; behind each it is left where it cannot beat the best any more.
    Loads with too few requests for so many parts have fewer."""


def expanded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's file with the settings of its grid as arms, and the baseline probed where that tells more.

    What is an arm already stays one arm, so that a file which was expanded can be read again.

    Raises:
        ValueError: the grid is wrong.
    """
    search = data.get("search")
    if not isinstance(search, Mapping) or not search.keys() <= SearchConfig.model_fields.keys():
        return dict(data)  # what is wrong there is told with its line
    arms = list(data.get("arms") or [])
    service = data.get("service")
    engine = (service.get("engine") if isinstance(service, Mapping) else None) or "vllm"
    grid = search.get("grid") or []
    if not isinstance(grid, list | tuple) or not all(isinstance(one, Mapping) for one in grid):
        raise ValueError('search.grid: must be a list of tables, e.g. [{ method = "ngram", k = [2, 3, 5] }]')
    arms += _new(list(grid), arms, str(engine)) if grid else []
    if not arms:
        raise ValueError("search.grid: there is nothing to search among; name settings, or add [[arms]]")
    verdict = data.get("verdict", {})
    if engine == "vllm" and isinstance(verdict, Mapping):
        words = verdict.get("diagnostics") or []
        if isinstance(words, list | tuple) and PROBE not in words:
            verdict = {**verdict, "diagnostics": [*words, PROBE]}
    return {**data, "arms": arms, "verdict": verdict}


def _new(grid: list[Mapping[str, Any]], arms: list[Any], engine: str) -> list[dict[str, Any]]:
    try:
        found = candidates_of(grid, engine=engine).candidates
    except UsageError as error:
        raise ValueError(f"search.grid: {error}") from None
    told = [one for one in arms if isinstance(one, Mapping)]
    configs = [one.get("speculative_config") for one in told]
    names = {one.get("name") for one in told}
    added = []
    for one in found:
        if one.config in configs:
            continue
        if one.name in names:
            raise ValueError(f"search.grid: an arm is named {one.name!r} already, and has other settings; rename it")
        added.append({"name": one.name, "speculative_config": one.config})
    return added
