"""The candidates of a grid: `{"method": "ngram", "k": [1, 3, 5], "prompt_lookup_min": [1, 2], "prompt_lookup_max": 4}`.

A list is an axis, anything else is the same in all candidates; the grid is the cross product. Keys are the engine's own
(`dialects.py`); for vLLM `k` is short for `num_speculative_tokens`.
"""

import json
import math
import re
from collections.abc import Container, Mapping, Sequence
from itertools import product
from typing import Any

from draftworth.errors import UsageError
from draftworth.models import Frozen
from draftworth.search.base import Candidate
from draftworth.search.dialects import DIALECTS, Dialect, dialect_of
from draftworth.search.methods import check_method, no_method

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PREFIX = re.compile(r"^(suffix_decoding|prompt_lookup)_")
_LONGEST = 64
"""Most letters of an arm's name."""
MOST = 512
"""Combinations of a grid, and candidates of all: beyond, it is a mistake."""
_EAGLES = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})
"""SGLang's algorithms whose `num_steps` says how far a draft reaches; `num_draft_tokens` is then its tree's size."""


class Grid(Frozen):
    """The candidates of one or several grids."""

    candidates: tuple[Candidate, ...]
    refused: tuple[str, ...] = ()
    """A line for each combination that the engine would refuse."""


def candidates_of(
    grids: Sequence[Mapping[str, Any]],
    *,
    engine: str = "vllm",
    runners: Mapping[str, str] | None = None,
    reload_s: float = 0.0,
) -> Grid:
    """Return the candidates of grids, in their order, those that are there twice once.

    Args:
        grids: each with `method` (SGLang: `algorithm`, llama.cpp: `type`).
        engine: whose names they are in.
        runners: method to vLLM's model runner, where it is known.
        reload_s: seconds until a server answers.

    Raises:
        UsageError: a grid has no method or one that its engine does not know, an axis has no value or one that cannot
            be, or no candidate is left, or too many are; or the engine has no grid.
    """
    words = dialect_of(engine)
    found: dict[str, Candidate] = {}
    there: set[str] = set()
    refused: list[str] = []
    for number, grid in enumerate(grids, 1):
        where = f"grid {number}" if len(grids) > 1 else "the grid"
        axes = _axes(grid, where, engine)
        count = math.prod(len(values) for values in axes.values())
        if count > MOST:
            raise UsageError(f"{where} has {count:,} combinations, more than {MOST}: name fewer values")
        several = [key for key, values in axes.items() if len(values) > 1]
        for point in product(*axes.values()):
            config = dict(zip(axes, point, strict=True))
            why = _impossible(config, words)
            if why is not None:
                refused.append(f"{where}: left out {why}")
                continue
            same = _same(config, words)
            if same in there:
                continue
            there.add(same)
            one = _candidate(config, several, engine, (runners or {}).get(config[words.method]), reload_s)
            if one.name in found:
                one = one.model_copy(update={"name": _numbered(one.name, found)})
            found[one.name] = one
        if len(found) > MOST:
            raise UsageError(f"up to {where} there are {len(found)} candidates, more than {MOST}: name fewer values")
    if not found:
        raise UsageError(f"no candidate is left of the grid: {refused[0] if refused else 'it is empty'}")
    return Grid(candidates=tuple(found.values()), refused=tuple(dict.fromkeys(refused)))


def candidate_of(
    name: str, config: Mapping[str, Any], *, engine: str = "vllm", runner: str | None = None, reload_s: float = 0.0
) -> Candidate:
    """Return one arm as a candidate.

    Args:
        name: the arm's.
        config: its speculative configuration; may be one of no grid, and then tells less.
        engine: whose names it is in.
        runner: vLLM's model runner, where it is known.
        reload_s: seconds until its server answers.
    """
    words = DIALECTS.get(engine)
    if words is None:
        return Candidate(name=name, method=engine, config=dict(config), more=dict(config), reload_s=reload_s)
    method = config.get(words.method)
    low, high = _window(config, words)
    by = _k_key(config, words)
    told = {words.method, by, *((words.low, words.high) if _looks_up(config, words) else ())}
    return Candidate(
        name=name,
        method=method if isinstance(method, str) and method else "draft_model",
        runner=runner,
        k=None if by is None else words.k_of({by: config[by]}),
        min=low,
        max=high,
        more={key: value for key, value in config.items() if key not in told},
        config=dict(config),
        reload_s=reload_s,
    )


def _axes(grid: Mapping[str, Any], where: str, engine: str) -> dict[str, list[Any]]:
    """Return key to values, each once, `k` spelled out."""
    words = DIALECTS[engine]
    first = words.ks[0][0]
    if "k" in grid and words.short and first in grid:
        raise UsageError(f"{where}: k and {first} are the same; name one")
    if "k" in grid and not words.short:
        named = " or ".join(key for key, _ in words.ks)
        raise UsageError(f"{where}: k is vLLM's; name {named} as this engine does")
    axes = {
        first if key == "k" else key: list(value) if isinstance(value, list | tuple) else [value]
        for key, value in grid.items()
    }
    if words.method not in axes:
        raise no_method(axes, where, words)
    for key, values in axes.items():
        if not values:
            raise UsageError(f"{where}: {_shown(key, words)} has no value")
        for value in values:
            _check(key, value, where, words)
        axes[key] = _distinct(values)
    _check_methods(axes, where, engine)
    return axes


def _check_methods(axes: Mapping[str, Sequence[Any]], where: str, engine: str) -> None:
    words = DIALECTS[engine]
    first = words.ks[0][0]
    for method in axes[words.method]:
        check_method(method, where, engine)
    for method in axes[words.method]:
        head = words.heads.get(method)
        if head is not None and head not in axes:
            raise UsageError(f"{where}: {method} needs a {head}: the path or name of its checkpoint")
        if method in words.lookups and first not in axes:
            raise UsageError(f"{where}: {method} needs k, e.g. k = [1, 3, 5]")


def _check(key: str, value: Any, where: str, words: Dialect) -> None:
    least = next((root + 1 for name, root in words.ks if name == key), 1)
    whole = key in {words.low, words.high, *(name for name, _ in words.ks)}
    if whole and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise UsageError(f"{where}: {_shown(key, words)} is {value!r} and not a whole number of at least {least}")
    if key in {words.method, *words.heads.values()} and (not isinstance(value, str) or not value):
        raise UsageError(f"{where}: {key} is {value!r} and not a name")
    try:
        _json(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: {key} is {value!r}, which JSON cannot hold") from None


def _shown(key: str, words: Dialect) -> str:
    return "k" if words.short and key == words.ks[0][0] else key


def _json(value: Any) -> str:
    """Return what tells values apart: 1 and 1.0 are one, 1 and true are two."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, allow_nan=False, sort_keys=True)


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return values in their order, each once."""
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(_json(value), value)
    return list(found.values())


def _same(config: Mapping[str, Any], words: Dialect) -> str:
    """Return what two configurations of one server have in common: a window counts only where one looks up."""
    idle = () if _looks_up(config, words) else (words.low, words.high)
    return json.dumps({key: _json(value) for key, value in config.items() if key not in idle}, sort_keys=True)


def _looks_up(config: Mapping[str, Any], words: Dialect) -> bool:
    return config.get(words.method) in words.lookups


def _k_key(config: Mapping[str, Any], words: Dialect) -> str | None:
    """Return the key that says how many tokens a configuration drafts; None where none does."""
    given = [key for key, _ in words.ks if config.get(key) is not None]
    if "num_steps" in given and str(config.get(words.method)).upper() in _EAGLES:
        return "num_steps"
    return next(iter(given), None)


def _impossible(config: Mapping[str, Any], words: Dialect) -> str | None:
    if not _looks_up(config, words):
        return None
    low, high = config.get(words.low), config.get(words.high)
    if low is not None and high is not None and low > high:
        return f"{words.low} = {low} with {words.high} = {high}: the shortest is longer than the longest"
    return None


def _candidate(
    config: dict[str, Any], several: Sequence[str], engine: str, runner: str | None, reload_s: float
) -> Candidate:
    words = DIALECTS[engine]
    one = candidate_of("grid", config, runner=runner, reload_s=reload_s, engine=engine)
    parts = [one.method]
    if one.k is not None:
        parts.append(f"k{one.k}")
    windowed = _looks_up(config, words) and (words.low in config or words.high in config)
    if windowed:
        parts.append(f"{one.min}-{one.max}")
    parts += [
        _part(key, value) for key, value in one.more.items() if key in several and key not in (words.low, words.high)
    ]
    return one.model_copy(update={"name": _name(parts)})


def _window(config: Mapping[str, Any], words: Dialect) -> tuple[int | None, int | None]:
    if not _looks_up(config, words):
        return None, None
    low, high = config.get(words.low), config.get(words.high)
    return low or high or words.window, high or low or words.window


def _part(key: str, value: Any) -> str:
    """Return how a name tells one of several values of an axis."""
    if key.startswith(("model", "draft_model")):
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
