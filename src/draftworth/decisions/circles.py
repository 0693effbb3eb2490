"""Gates that wait for each other: none of them can ever open."""

from collections.abc import Iterator, Sequence

from draftworth.decisions.base import Option
from draftworth.decisions.conditions import Condition
from draftworth.decisions.known import Known


def waiting_circle(option: Option, known: Known) -> list[str]:
    """Return that an option's gate waits, by way of others, for the option itself; nothing where it does not."""
    gates = {one.name: sorted(set(_awaited(one, known))) for one in known.tree.options}
    path = _path(option.name, option.name, gates, (option.name,))
    if path is None:
        return []
    way = ", which waits for ".join(path[1:])
    return [f"its gate waits for {way}: none of these gates can open before another one does"]


def _awaited(option: Option, known: Known) -> Iterator[str]:
    """Yield the options that a gate waits for: those that are not yet in a state it asks for."""
    for one in _options(option.gate.all or option.gate.any) if option.gate else ():
        if one.option and known.tree.find(one.option) and known.state(one.option) not in one.state:
            yield one.option


def _options(some: Sequence[Condition]) -> Iterator[Condition]:
    for one in some:
        if one.kind in {"all", "any"}:
            yield from _options(one.all or one.any or ())
        elif one.kind == "option":
            yield one


def _path(at: str, end: str, gates: dict[str, list[str]], seen: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the first way from one option back to another, both ends included."""
    for name in gates.get(at, ()):
        if name == end:
            return (*seen, name)
        if name not in seen:
            found = _path(name, end, gates, (*seen, name))
            if found:
                return found
    return None
