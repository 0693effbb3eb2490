"""The methods that an engine's own data knows, so that a misspelled one of a grid costs a line and no reload."""

import difflib
from collections.abc import Iterable, Mapping

from draftworth.errors import UsageError
from draftworth.search.dialects import DIALECTS, Dialect

TITLES: Mapping[str, str] = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}
_BEGINNINGS = ("speculative_", "spec_")
_NEAR = 0.5


def check_method(method: str, where: str, engine: str) -> None:
    """Refuse a method that no release of an engine has, of those that were read.

    SGLang takes any case; llama.cpp takes several types with commas between them.

    Args:
        method: the grid's.
        where: which grid, for the line.
        engine: whose.

    Raises:
        UsageError: the engine's own data does not know it.
    """
    key, names = DIALECTS[engine].method, _known(engine)
    same = {name.lower(): name for name in names}
    for one in method.split(",") if engine == "llamacpp" else [method]:
        word = one.strip()
        if word in names or (engine == "sglang" and word.lower() in same):
            continue
        near = difflib.get_close_matches(word.lower(), same, 1, _NEAR)
        nearest = f"the nearest is {same[near[0]]!r}" if near else f"there are {_listed(names)}"
        raise UsageError(
            f"{where}: {TITLES[engine]} has no {key} {word!r}; {nearest} (one of a release that is not known here goes "
            "into [[arms]])"
        )


def no_method(keys: Iterable[str], where: str, words: Dialect) -> UsageError:
    """Return what is wrong with a grid that names no method: perhaps it does so with another key.

    Args:
        keys: the grid's.
        where: which grid, for the line.
        words: the engine's names.
    """
    name = f'name one, e.g. {words.method} = "{words.example}"'
    for key in keys:
        plain = _plain(key)
        if plain == words.method:
            return UsageError(f"{where} has no {words.method}: write {words.method} for {key}")
        theirs = next((engine for engine, other in DIALECTS.items() if other.method == plain), None)
        if theirs is not None:
            return UsageError(f"{where} has no {words.method}: {name} ({key} is {TITLES[theirs]}'s key)")
    return UsageError(f"{where} has no {words.method}: {name}")


def _plain(key: str) -> str:
    name = str(key).strip().lstrip("-").replace("-", "_")
    for beginning in _BEGINNINGS:
        name = name.removeprefix(beginning)
    return name


def _known(engine: str) -> tuple[str, ...]:
    # Beside their only use: a file without a grid needs none of them.
    if engine == "vllm":
        from draftworth.engines.vllm.releases import METHODS  # noqa: PLC0415 - lazy

        return tuple(METHODS)
    if engine == "sglang":
        from draftworth.engines.sglang.known import ALGORITHMS  # noqa: PLC0415 - lazy

        return tuple(ALGORITHMS)
    from draftworth.engines.llamacpp.known import OLD_TYPES  # noqa: PLC0415 - lazy
    from draftworth.engines.llamacpp.releases import TYPES  # noqa: PLC0415 - lazy

    return (*(name for name in TYPES if name != "none"), *OLD_TYPES)


def _listed(names: Iterable[str]) -> str:
    """Return names for a line, without vLLM's dozens that are a model family's own."""
    return ", ".join(name for name in names if not name.endswith("_mtp") and not name.startswith("["))
