"""The candidates of a grid: `{"method": "ngram", "k": [1, 3, 5], "prompt_lookup_min": [1, 2], "prompt_lookup_max": 4}`.

A list is an axis, anything else is the same in all candidates; the grid is the cross product. Keys are those of vLLM's
`--speculative-config` (`config/speculative.py` of vLLM 0.32), and `k` is short for `num_speculative_tokens`.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from itertools import product
from typing import Any

from draftworth.errors import UsageError
from draftworth.models import Frozen
from draftworth.search.base import Candidate

K, LOW, HIGH = "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"
_WHOLE = (K, LOW, HIGH)
_LOOKUP = frozenset({"ngram", "ngram_gpu"})
_HEADS = frozenset({"draft_model", "eagle", "eagle3", "medusa", "dflash"})
"""Methods that load a checkpoint, so that one has to be named."""
_WINDOW = 5
"""vLLM's prompt_lookup_min and prompt_lookup_max when neither is set; with one of them the other is the same."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PREFIX = re.compile(r"^(suffix_decoding|prompt_lookup)_")
_LONGEST = 64
"""Most letters of an arm's name."""
MOST = 512
"""Candidates of a grid: beyond, it is a mistake."""


class Grid(Frozen):
    """The candidates of one or several grids."""

    candidates: tuple[Candidate, ...]
    refused: tuple[str, ...] = ()
    """A line for each combination that the engine would refuse."""


def candidates_of(
    grids: Sequence[Mapping[str, Any]], *, runners: Mapping[str, str] | None = None, reload_s: float = 0.0
) -> Grid:
    """Return the candidates of grids, in their order, those that are there twice once.

    Args:
        grids: each with `method`.
        runners: method to vLLM's model runner, where it is known.
        reload_s: seconds until a server answers.

    Raises:
        UsageError: a grid has no method, an axis has no value or one that cannot be, or no candidate is left, or too
            many are.
    """
    found: dict[str, Candidate] = {}
    refused: list[str] = []
    for number, grid in enumerate(grids, 1):
        where = f"grid {number}" if len(grids) > 1 else "the grid"
        axes = _axes(grid, where)
        several = [key for key, values in axes.items() if len(values) > 1]
        for point in product(*axes.values()):
            config = dict(zip(axes, point, strict=True))
            why = _impossible(config)
            if why is not None:
                refused.append(f"{where}: left out {why}")
                continue
            if any(other.config == config for other in found.values()):
                continue
            one = _candidate(config, several, (runners or {}).get(config["method"]), reload_s)
            if one.name in found:
                one = one.model_copy(update={"name": _numbered(one.name, found)})
            found[one.name] = one
        if len(found) > MOST:
            raise UsageError(f"{where} has more than {MOST} candidates: name fewer values")
    if not found:
        raise UsageError(f"no candidate is left of the grid: {refused[0] if refused else 'it is empty'}")
    return Grid(candidates=tuple(found.values()), refused=tuple(dict.fromkeys(refused)))


def _axes(grid: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """Return key to values, `k` spelled out."""
    if "k" in grid and K in grid:
        raise UsageError(f"{where}: k and {K} are the same; name one")
    axes = {
        K if key == "k" else key: list(value) if isinstance(value, list | tuple) else [value]
        for key, value in grid.items()
    }
    if "method" not in axes:
        raise UsageError(f'{where} has no method: name one, e.g. method = "ngram"')
    for key, values in axes.items():
        if not values:
            raise UsageError(f"{where}: {_shown(key)} has no value")
        for value in values:
            _check(key, value, where)
    for method in axes["method"]:
        if method in _HEADS and "model" not in axes:
            raise UsageError(f"{where}: {method} needs a model: the path or name of its checkpoint")
        if method in _LOOKUP and K not in axes:
            raise UsageError(f"{where}: {method} needs k, e.g. k = [1, 3, 5]")
    return axes


def _check(key: str, value: Any, where: str) -> None:
    if key in _WHOLE and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{where}: {_shown(key)} is {value!r} and not a whole number of at least 1")
    if key in {"method", "model"} and (not isinstance(value, str) or not value):
        raise UsageError(f"{where}: {key} is {value!r} and not a name")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: {key} is {value!r}, which JSON cannot hold") from None


def _shown(key: str) -> str:
    return "k" if key == K else key


def _impossible(config: Mapping[str, Any]) -> str | None:
    low, high = config.get(LOW), config.get(HIGH)
    if low is not None and high is not None and low > high:
        return f"{LOW} = {low} with {HIGH} = {high}: the shortest is longer than the longest"
    return None


def _candidate(config: dict[str, Any], several: Sequence[str], runner: str | None, reload_s: float) -> Candidate:
    method, k = config["method"], config.get(K)
    low, high = _window(config)
    more = {key: value for key, value in config.items() if key not in {"method", *_WHOLE}}
    parts = [method]
    if k is not None:
        parts.append(f"k{k}")
    if LOW in config or HIGH in config:
        parts.append(f"{low}-{high}")
    parts += [_part(key, value) for key, value in more.items() if key in several]
    return Candidate(
        name=_name(parts),
        method=method,
        runner=runner,
        k=k,
        min=low,
        max=high,
        more=more,
        config=config,
        reload_s=reload_s,
    )


def _window(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    low, high = config.get(LOW), config.get(HIGH)
    if config["method"] not in _LOOKUP:
        return low, high
    return low or high or _WINDOW, high or low or _WINDOW


def _part(key: str, value: Any) -> str:
    """Return how a name tells one of several values of an axis."""
    if key == "model":
        return str(value).rstrip("/").rpartition("/")[2]
    return f"{_PREFIX.sub('', key)}{value if isinstance(value, str | int | float) else json.dumps(value)}"


def _name(parts: Sequence[str]) -> str:
    """Return an arm's name of what tells a candidate from the others."""
    return _UNSAFE.sub("_", "-".join(parts))[:_LONGEST].strip("-._")


def _numbered(name: str, taken: Container[str]) -> str:
    """Return a name that is still free."""
    number = 2
    while (other := f"{name[: _LONGEST - 4]}-{number}") in taken:
        number += 1
    return other
