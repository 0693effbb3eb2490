"""What a gate is made of: a table of named conditions with parameters, each yes, no or not known."""

import re
from typing import Annotated

from pydantic import Field, model_validator

from draftworth.decisions.states import STATES
from draftworth.models import Frozen, Strict, Words


class Condition(Strict):
    """One condition of a gate; exactly one of the fields in `decisions.gates.KINDS` says which.

    Every condition is yes, no, or not known; none of them fails.
    """

    trial: str | None = None
    """An arm, or a trial's id: its newest trial has this verdict, or a ratio of TPOT on this side."""
    verdict: str | None = None
    ratio_below: float | None = None
    ratio_above: float | None = None
    option: str | None = None
    """Another option is in one of these states."""
    state: Words = ()
    predicted_speed_up_at_least: float | None = None
    """The best setting's predicted speed-up, with its interval, reaches this."""
    needed_length_at_most: float | None = None
    """What a head must reach to pay (`predict --heads`) is at most this."""
    head_for: str | None = None
    """A head exists that was trained for this model."""
    head_check: str | None = None
    """`draftworth head check --json` found in this file that the head can be served with the model."""
    head_pays_at_k: int | None = None
    """The acceptance length a head reached is above what breaks even at this k."""
    engine: str | None = None
    """The engine seen last is at least of this version."""
    version_at_least: str | None = None
    file: str | None = None
    """A file exists, relative to the folder that `decisions/` is in."""
    k: int | None = None
    concurrency: int | None = None
    all: Annotated[tuple["Condition", ...] | None, Field(strict=False)] = None
    any: Annotated[tuple["Condition", ...] | None, Field(strict=False)] = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Condition":
        given = [name for name in type(self).model_fields if name in self.model_fields_set]
        kinds = [name for name in given if name in _PARAMETERS]
        if len(kinds) != 1:
            listed = ", ".join(_PARAMETERS)
            raise ValueError(f"a condition has exactly one of: {listed}; this has {', '.join(kinds) or 'none'}")
        allowed = _PARAMETERS[kinds[0]]
        wrong = next((name for name in given if name != kinds[0] and name not in allowed), None)
        if wrong:
            takes = f"takes {', '.join(allowed)}" if allowed else "takes nothing beside it"
            raise ValueError(f"{wrong} does not belong to {kinds[0]}, which {takes}")
        _check_parameters(self, kinds[0])
        return self

    @property
    def kind(self) -> str:
        """Which condition it is."""
        return next(name for name in _PARAMETERS if name in self.model_fields_set)


_PARAMETERS: dict[str, tuple[str, ...]] = {
    "trial": ("verdict", "ratio_below", "ratio_above"),
    "option": ("state",),
    "predicted_speed_up_at_least": ("k", "concurrency"),
    "needed_length_at_most": ("k", "concurrency"),
    "head_for": (),
    "head_check": (),
    "head_pays_at_k": ("concurrency",),
    "engine": ("version_at_least",),
    "file": (),
    "all": (),
    "any": (),
}
"""Each kind of condition, and what it takes."""
_VERDICTS = ("faster", "slower", "no difference", "inconclusive", "error")


def _check_parameters(one: Condition, kind: str) -> None:
    """Refuse a condition that lacks its parameter, or has one that means nothing.

    Raises:
        ValueError: as pydantic wants it.
    """
    if kind == "trial" and len([p for p in _PARAMETERS[kind] if p in one.model_fields_set]) != 1:
        raise ValueError("trial needs one of verdict, ratio_below, ratio_above")
    if one.verdict is not None and one.verdict not in _VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(map(repr, _VERDICTS))}, not {one.verdict!r}")
    if kind == "option":
        wrong = [name for name in one.state if name not in STATES]
        if wrong or not one.state:
            raise ValueError(f"state must be a list out of {', '.join(map(repr, STATES))}, not {list(one.state)!r}")
    if kind == "engine" and not re.fullmatch(r"\d+(?:\.\d+)*", one.version_at_least or ""):
        raise ValueError(f"engine needs version_at_least, like 0.17, not {one.version_at_least!r}")
    if kind in {"all", "any"} and not getattr(one, kind):
        raise ValueError(f"{kind} is empty")


class Gate(Strict):
    """What must be true before an option is taken up: in words, and as conditions that are evaluated."""

    words: str
    all: Annotated[tuple[Condition, ...], Field(strict=False)] = ()
    any: Annotated[tuple[Condition, ...], Field(strict=False)] = ()
    instead_of: str = ""
    """The gate it had before, where that was the wrong one."""
    because: str = ""
    """Why that one was wrong."""

    @model_validator(mode="after")
    def _has_conditions(self) -> "Gate":
        if bool(self.all) == bool(self.any):
            raise ValueError("a gate needs conditions: all = [...] or any = [...], one of them")
        if self.instead_of and not self.because:
            raise ValueError("instead_of needs because: why that gate was wrong")
        return self


class Holds(Frozen):
    """What evidence says to a condition or a gate."""

    holds: bool | None
    """None: not known."""
    reason: str
    parts: tuple["Holds", ...] = ()

    @property
    def word(self) -> str:
        """`yes`, `no` or `not known`."""
        return "not known" if self.holds is None else "yes" if self.holds else "no"
