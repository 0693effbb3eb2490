"""Which costs a finished trial is predicted with: those of its own server, and of nothing else.

Trials of one server (engine, release, runner, model, machine and command, or URL) share the engine modes that their
null-draft and synthetic arms measured. A trial that does not say what served it stands alone.
"""

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from draftworth.costs.arms import modes_from_trial
from draftworth.costs.base import Costs, EngineMode, StepCost
from draftworth.errors import UsageError
from draftworth.trials.record import TrialRecord

_PLACES = frozenset({"--port", "--host"})
"""Flags that say where a server answers, and not what it costs."""
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_NAMES = ("--served-model-name", "--model", "--model-path", "-m")
_MODULE = "-m"
"""llama.cpp's short flag of the model; behind an interpreter, Python's of a module."""


def costs_of(
    folders: Sequence[Path], records: Sequence[TrialRecord], given: Costs | None, told: list[str]
) -> list[Costs]:
    """Return the costs of each trial's server.

    Points are those of the costs file; without any, a trial's own baseline's, and those of other trials of its server
    at loads that it did not measure. Modes are those of the costs file; where it has none, those of all trials of the
    server.

    Args:
        folders: the trials'.
        records: theirs.
        given: a costs file; None for none.
        told: takes a line for each arm and trial of which no mode could be made.
    """
    start = given or Costs(created="")
    if start.modes:
        return [start for _ in folders]
    alike: dict[Hashable, list[int]] = {}
    for at, record in enumerate(records):
        alike.setdefault(server(record) or at, []).append(at)
    own = [_points(folder) for folder in folders]
    points = [[*start.points]] * len(folders)
    modes: list[list[EngineMode]] = [[] for _ in folders]
    for group in alike.values():
        theirs = [_elsewhere(own[at], [one for other in group if other != at for one in own[other]]) for at in group]
        # Null drafts first, of all trials of the server: M1 of a synthetic arm needs M0, which may be another trial's.
        idle: list[EngineMode] = []
        for at, others in zip(group, theirs, strict=True):
            found = _modes(folders[at], records[at], [*start.points, *others], start, known=(), told=[])
            idle += [one for one in found if one.kind == "idle"]
        for at, others in zip(group, theirs, strict=True):
            if not start.points:
                points[at] = [*own[at], *others]
            found = _modes(folders[at], records[at], [*start.points, *others], start, known=idle, told=told)
            for other in group:
                modes[other] += found
    return [
        start.model_copy(
            update={
                "engine": start.engine or record.arms[0].engine,
                "version": start.version or record.arms[0].version,
                "points": tuple(points[at]),
                "modes": tuple(modes[at]),
            }
        )
        for at, record in enumerate(records)
    ]


def contradiction(costs: Costs, record: TrialRecord) -> str | None:
    """Return why a costs file is not of a trial's server, as far as both tell it; else None.

    Looked at are engine, release (its first three numbers), model runner, device and model. A record knows the GPUs of
    the machine it was made on, which is the server's where the trial started it or reached it on this host.
    """
    base = record.arms[0]
    engine = costs.engine or base.engine
    for what, mine, theirs in (
        ("", costs.engine, base.engine),
        (f"{engine} ", _release(costs.version), _release(base.version)),
        ("model runner ", costs.runner, base.runner),
        ("a server on ", _device(costs.machine), _device_of(record)),
    ):
        if mine and theirs and mine != theirs:
            return f"the costs file is of {what}{mine}, this trial's server is {what}{theirs}"
    names = served(record)
    if costs.model and names and not {_last(costs.model)} & {_last(name) for name in names}:
        return f"the costs file is of the model {costs.model!r}, this trial's server serves {names[0]!r}"
    return None


def _release(version: str | None) -> str | None:
    """Return major.minor.patch of a version, None where it does not tell all three."""
    found = re.match(r"v?(\d+\.\d+\.\d+)", version or "")
    return found[1] if found else None


def _device(text: str) -> str | None:
    """Return a GPU's name as far as a text tells one (`NVIDIA H200` of `1 x NVIDIA H200`), `cpu`, or None."""
    name = re.sub(r"^\d+ x ", "", text.strip())
    if name.casefold().startswith("cpu"):
        return "cpu"
    return name if name and name.casefold() not in {"cuda", "gpu", "rocm", "xpu"} else None


def _device_of(record: TrialRecord) -> str | None:
    """Return what a trial's server ran on: by its command's `--device`, else the GPU of its machine where told."""
    command = record.arms[0].command
    for at, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag == "--device":
            return _device(value if equals else next(iter(command[at + 1 : at + 2]), ""))
    service = _service(record)
    if service.get("type") == "endpoints" and urlsplit(str(service.get("baseline") or "")).hostname not in _HERE:
        return None
    gpus = record.machine.get("gpus")
    names = {_device(str(one)) for one in gpus} if isinstance(gpus, list | tuple) else set()
    return names.pop() if len(names) == 1 else None


def server(record: TrialRecord) -> Hashable:
    """Return what is the same of two trials of one server; None where a trial does not say what served it."""
    base, service = record.arms[0], _service(record)
    where = _command(base.command) or service.get("baseline") or service.get("url")
    if not where:
        return None
    machine = {name: value for name, value in record.machine.items() if name not in {"kernel", "python"}}
    host = service.get("host") if service.get("type") == "systemd" else None
    return base.engine, base.version, base.runner, served(record), json.dumps([machine, host], sort_keys=True), where


def served(record: TrialRecord) -> tuple[str, ...]:
    """Return the names of the model that a trial's baseline served, as far as its record tells them."""
    command = record.arms[0].command
    found = [str(_service(record).get("model") or "")]
    for at, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag == _MODULE and "python" in command[at - 1 if at else 0].rpartition("/")[2]:
            continue
        if flag in _NAMES:
            found.append(value if equals else next(iter(command[at + 1 : at + 2]), ""))
        elif word == "serve":
            found.append(next((one for one in command[at + 1 : at + 2] if not one.startswith("-")), ""))
    return tuple(dict.fromkeys(name for name in found if name))


def _service(record: TrialRecord) -> Mapping[str, Any]:
    found = record.config.get("service")
    return found if isinstance(found, Mapping) else {}


def _command(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command without the flags that say where it answers."""
    found: list[str] = []
    skip = False
    for word in words:
        flag, equals, _value = word.partition("=")
        if skip:
            skip = False
        elif flag in _PLACES:
            skip = not equals
        else:
            found.append(word)
    return tuple(found)


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].casefold()


def _points(folder: Path) -> list[StepCost]:
    try:
        return modes_from_trial(folder)[1]
    except UsageError:
        return []  # said where its modes are asked for


def _elsewhere(own: Sequence[StepCost], others: Sequence[StepCost]) -> list[StepCost]:
    """Return the other trials' points at loads that a trial did not measure itself."""
    mine = {(one.batch, one.tokens) for one in own}
    return [one for one in others if (one.batch, one.tokens) not in mine]


def _modes(
    folder: Path,
    record: TrialRecord,
    points: Sequence[StepCost],
    given: Costs,
    *,
    known: Sequence[EngineMode],
    told: list[str],
) -> list[EngineMode]:
    lines: list[str] = []
    try:
        engine = given.engine or record.arms[0].engine
        return modes_from_trial(
            folder,
            points,
            engine=engine,
            graph_sizes=given.graph_sizes,
            prefills=given.prefills,
            known_modes=known,
            explain=lines,
        )[0]
    except UsageError as error:
        lines.append(str(error))
        return []
    finally:
        told += [
            line if line.startswith(f"trial {record.id}") else f"trial {record.id}, modes: {line}" for line in lines
        ]
