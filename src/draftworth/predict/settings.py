"""A predicted setting in words: k, its n-grams, and the drafter's own parameters."""

from collections.abc import Mapping, Sequence

from draftworth.predict.base import PerBatchSize, Predicted, Reload

Key = tuple[str, int, int | None, int | None, tuple[tuple[str, float], ...]]


def key(one: Predicted | Reload) -> Key:
    """Return what tells a setting from others, whatever the load."""
    return one.drafter, one.k, one.min, one.max, tuple(sorted(one.more.items()))


def differing(some: Sequence[Predicted | Reload]) -> dict[str, frozenset[str]]:
    """Return, by drafter, the names of its own parameters that are not the same in all of its settings."""
    values: dict[str, dict[str, set[float]]] = {}
    for one in some:
        of = values.setdefault(one.drafter, {})
        for name, value in one.more.items():
            of.setdefault(name, set()).add(value)
    return {drafter: frozenset(name for name, found in of.items() if len(found) > 1) for drafter, of in values.items()}


def describe(one: Predicted | Reload, among: Sequence[Predicted | Reload] = ()) -> str:
    """Return a setting in words: `k = 3 (n-grams of 2 to 4)`, `k = 8 (max_spec_factor 2, min_token_prob 0.1)`.

    Args:
        one: which.
        among: the settings it is told apart from; of its drafter's own parameters those that differ among them are
            named. Without any all are. Where several drafters are among them, its own is named too.
    """
    names = differing(among).get(one.drafter, frozenset()) if among else frozenset(one.more)
    parts = [] if one.min is None and one.max is None else [window(one)]
    parts += [f"{short} {one.more[name]:g}" for name, short in _short(one.more).items() if name in names]
    several = len({other.drafter for other in among}) > 1
    said = f"{one.drafter}, k = {one.k}" if several else f"k = {one.k}"
    return f"{said} ({', '.join(parts)})" if parts else said


def common(some: Sequence[Predicted]) -> list[str]:
    """Return, a line a drafter, its own parameters that are the same in all of its settings; nothing where it has none.

    Together with `describe` among the same settings they tell each setting whole.
    """
    apart = differing(some)
    found = []
    for drafter, names in apart.items():
        first = next(one for one in some if one.drafter == drafter)
        same = [f"{name} {value:g}" for name, value in first.more.items() if name not in names]
        if same:
            found.append(f"{f'{drafter}: all' if len(apart) > 1 else 'All'} with {', '.join(same)}")
    return found


def window(one: Predicted | Reload | PerBatchSize) -> str:
    """Return the n-grams of a setting that has some."""
    low, high = one.min or one.max, one.max or one.min
    return f"n-grams of {low} to {high}" if low != high else f"n-grams of {low}"


def _short(names: Mapping[str, float]) -> dict[str, str]:
    return {name: name.removeprefix("suffix_decoding_").removeprefix("speculative-ngram-") for name in names}
