"""What the options tree and a decision record are made of.

`decisions/tree.toml` is written by people: options, gates, the state each began in. What happened since is in records,
`decisions/NNNN-title.md`, one for each change of a state; the newest record of an option says what its state is now.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from draftworth.decisions.conditions import Gate
from draftworth.decisions.states import State
from draftworth.models import Strict, Words

SCHEMA_VERSION = 1

Kind = Literal["trial", "reported", "prediction", "costs", "profile", "head", "break-even", "published"]
_OF_A_FILE = frozenset({"reported", "prediction", "costs", "profile"})
_DATE = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?")


class Figure(Strict):
    """A figure with its interval, or its range; only the value where neither is known."""

    value: float
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "Figure":
        if (self.low is None) != (self.high is None):
            raise ValueError("low and high are given both or not at all")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(f"low <= value <= high does not hold: {self.low}, {self.value}, {self.high}")
        return self


class Evidence(Strict):
    """What an option or a record rests on."""

    kind: Kind
    """`trial`: one of ours; `reported`: a table of somebody's trial (`decisions.reported`); `prediction`, `costs`,
    `profile`: a file; `head`: a trained head that exists; `break-even`: the acceptance length at which an arm costs
    nothing; `published`: a result in words."""
    ours: bool = True
    """False for what others measured: then `source` and `date` say who and when."""
    source: str = ""
    date: str = ""
    """YYYY, YYYY-MM or YYYY-MM-DD."""
    says: str = ""
    """What it says, with figures."""
    trial: str | None = None
    """The trial's id."""
    path: str | None = None
    """The file, relative to the folder that `decisions/` is in."""
    head: str | None = None
    """The head's name."""
    trained_for: str | None = None
    """The model it was trained for."""
    k: int | None = None
    """Drafted tokens a step that `length` is for."""
    length: Figure | None = None
    """Acceptance length per drafting step: what a head reached, or what breaks even."""

    @model_validator(mode="after")
    def _whole(self) -> "Evidence":
        if not self.ours and not (self.source and self.date):
            raise ValueError("ours = false needs source and date: who measured it, and when")
        if self.date and not _DATE.fullmatch(self.date):
            raise ValueError(f"date must be YYYY, YYYY-MM or YYYY-MM-DD, not {self.date!r}")
        needed = {"trial": "trial", "published": "says", "head": "head", "break-even": "length"}
        name = "path" if self.kind in _OF_A_FILE else needed[self.kind]
        if not getattr(self, name):
            raise ValueError(f'evidence of kind "{self.kind}" needs {name}')
        return self


Evidences = Annotated[tuple[Evidence, ...], Field(strict=False)]


class Assumptions(Strict):
    """What a decision was made under. An empty field was not known, and is compared with nothing."""

    engine: str = ""
    version: str = ""
    runner: str = ""
    hardware: str = ""
    model: str = ""
    workload: str = ""
    """The requests, in words."""
    traffic: str = ""
    """Fingerprint of the workload and its categories; the same for the same requests."""
    requests: dict[str, str] = {}
    """What decides what they cost: loads, lengths, temperature (`decisions.traffic.requests_of`)."""
    categories: dict[str, int] = {}
    """Pairs of prompts by category."""
    head: str = ""
    """The draft model or head, where the arm has one."""
    setting: str = ""
    """What the arm declared, as JSON."""


class Gain(Strict):
    """An expected speed-up, or a cost, that no file says."""

    value: float
    low: float | None = None
    high: float | None = None
    source: str
    """Who says so."""


class Decides(Strict):
    """What a trial must be of to decide an option."""

    methods: Words = ()
    """The speculative methods of its arm; empty: the option's `method`."""
    model: str = ""
    """The model it was run on; empty: that of the option's `assumptions`."""


class Option(Strict):
    """One way that could be gone."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    title: str
    parent: str | None = None
    """The option this is a part of or follows from."""
    method: str = ""
    """The speculative method: ngram, suffix, eagle3, medusa, …; what trials and predictions of it are known by."""
    arm: str = ""
    """The arm's name in trials; default: the option's own name."""
    decides: Decides | None = None
    """Which trials decide it."""
    state: State = "open"
    """The one it began in; records say what it is now."""
    gate: Gate | None = None
    evidence: Evidences = ()
    assumptions: Assumptions = Assumptions()
    needs: Words = ()
    """What it takes to go on."""
    gain: Gain | None = None
    """Expected speed-up, where no prediction says it."""
    reload_minutes: Gain | None = None
    """Minutes of reloads, where neither a trial nor costs say it."""
    note: str = ""


class Tree(Strict):
    """`tree.toml`."""

    schema_version: int = SCHEMA_VERSION
    title: str = ""
    options: Annotated[tuple[Option, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _is_a_tree(self) -> "Tree":
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version {self.schema_version}: this Draftworth reads {SCHEMA_VERSION}")
        parents: dict[str, str | None] = {}
        for one in self.options:
            if one.name in parents:
                raise ValueError(f"two options are named {one.name!r}")
            parents[one.name] = one.parent
        for name, parent in parents.items():
            seen, at = {name}, parent
            while at is not None:
                if at not in parents:
                    raise ValueError(f"option {name!r}: no option is named {at!r}, its parent")
                if at in seen:
                    raise ValueError(f"option {name!r} is its own ancestor")
                seen.add(at)
                at = parents[at]
        return self

    def find(self, name: str) -> Option | None:
        """Return an option by name."""
        return next((one for one in self.options if one.name == name), None)


class Ratio(Strict):
    """The ratio a record rests on."""

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95


class Decision(Strict):
    """The front matter of a record: the change of one option's state, and what it rests on."""

    schema_version: int = SCHEMA_VERSION
    number: int = Field(ge=1)
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    option: str
    title: str
    state: State
    before: State
    by: Literal["trial", "reported", "person", "check"]
    """What it follows from: a trial of ours, a reported one, a person's word against the figures, `decisions check`."""
    trial: str = ""
    arm: str = ""
    verdict: str = ""
    pairs: int = 0
    reopen_at_speed_up: float | None = None
    """A predicted speed-up whose interval lies above this (of what is adopted: below it) reopens it."""
    needs: Words = ()
    reasons: Words = ()
    """Why it was reopened."""
    although: str = ""
    """Why a trial of another method or model decides it all the same: a person's words."""
    remarks: Words = ()
    """What stood against it then: a gate that did not hold, an option that does not say what decides it."""
    ratio: Ratio | None = None
    assumptions: Assumptions = Assumptions()
    evidence: Evidences = ()
