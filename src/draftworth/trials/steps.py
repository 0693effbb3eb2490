"""A trial's steps: what each does, to whose server, and what all of them will cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a step does."""

    STOP_ORIGINAL = "stop-original"
    START = "start"
    MEASURE = "measure"
    LOOK = "look"
    SCORE = "score"
    HOLD = "hold"
    PROBE = "probe"
    PROFILE = "profile"
    STOP = "stop"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        id: number, kind and arm: what the journal calls it.
        kind: what it does.
        arm: whose server it is about; empty for the original.
        block: which measurement it belongs to, from 1; 0 for none.
        command: what is executed: for START, for STOP_ORIGINAL (the signal) and for RESTORE (the original's own argv).
        env: declared variables, for START.
        cwd: the original's folder, for RESTORE.
        look: which look at the evidence, from 1, for LOOK.
        closing: part of the end: done whether or not the evidence was enough before.
        about: for a person, in one line.
        undo: how its effect is undone, for a person.
    """

    id: str
    kind: Kind
    arm: str = ""
    block: int = 0
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    look: int = 0
    closing: bool = False
    about: str = ""
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial's steps, and what they will cost.

    Attributes:
        steps: in order.
        requests: measured requests in all, at most.
        starts: how many times a server is started, at most.
        downtime_starts: how many of them happen while the original is away.
        commands: arm to its command, the original's own for a baseline that runs already.
        notes: what a person should know before starting.
    """

    steps: tuple[Step, ...]
    requests: int
    starts: int
    downtime_starts: int
    commands: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
