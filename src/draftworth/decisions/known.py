"""Everything that gates and decisions are held against: the tree, its records, and what lies in the home folder."""

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs
from draftworth.decisions.assumptions import assumptions_of, same_service
from draftworth.decisions.base import Assumptions, Evidence, Option, Tree
from draftworth.decisions.methods import is_head
from draftworth.decisions.records import Record, newest, read_all, state_of
from draftworth.decisions.states import State
from draftworth.decisions.tree import load_tree
from draftworth.errors import UsageError
from draftworth.predict.base import SCHEMA_VERSION, Prediction
from draftworth.trials import record as trial_records
from draftworth.trials.record import TrialRecord


@dataclass
class Known:
    """A home folder, read once.

    Attributes:
        root: the home folder.
        tree: its options.
        records: its records.
        left_out: files that could not be read, and why.
    """

    root: Path
    tree: Tree
    records: list[Record]
    left_out: list[str] = field(default_factory=list)
    _services: dict[str, tuple[Option, Assumptions]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def read(cls, folder: Path) -> "Known":
        """Read the tree and records of a `decisions/` folder.

        Raises:
            UsageError: either has a mistake.
        """
        return cls(folder.parent, load_tree(folder), read_all(folder))

    @cached_property
    def trials(self) -> list[TrialRecord]:
        """Every finished trial that can be read, oldest first."""
        found = []
        folder = self.root / "trials"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not (path / trial_records.NAME).is_file():
                continue
            try:
                found.append(trial_records.read(path))
            except UsageError as error:
                self.left_out.append(str(error))
        return sorted(found, key=lambda one: one.created)

    @cached_property
    def costs(self) -> list[tuple[str, Costs]]:
        """Every costs file that is kept here or named as evidence, with its path, oldest first."""
        found = []
        options = self.tree.options
        named = [one.path for each in options for one in self.evidence(each) if one.kind == "costs" and one.path]
        kept = [f"costs/{path.name}" for path in sorted((self.root / "costs").glob("*.json"))]
        for path in dict.fromkeys([*kept, *named]):
            try:
                found.append((path, load_costs(self.root / path)))
            except UsageError as error:
                self.left_out.append(str(error))
        return sorted(found, key=lambda one: one[1].created)

    @cached_property
    def _kept_predictions(self) -> list[tuple[str, Prediction]]:
        folder = self.root / "predictions"
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        return [(f"predictions/{one.name}", read) for one in paths if (read := self._prediction(one))]

    def state(self, option: str) -> State:
        """Return an option's state now."""
        return state_of(self.tree, self.records, option)

    def newest(self, option: str) -> Record | None:
        """Return an option's newest record."""
        return newest(self.records, option)

    def evidence(self, option: Option) -> list[Evidence]:
        """Return what an option rests on: its own, then that of its records."""
        own = [one for each in self.records if each.decision.option == option.name for one in each.decision.evidence]
        return list({one.model_dump_json(): one for one in (*option.evidence, *own)}.values())

    def service(self, option: Option) -> Assumptions:
        """Return which service an option is of, as far as that is known: engine and model.

        Its records say so, the newest first, then the tree (`assumptions`, `decides`), then the newest record of any
        option; where none does, the trials, where all are of one service.
        """
        kept = self._services.get(option.name)
        if kept is None or kept[0] is not option:
            kept = self._services[option.name] = (option, self._service(option))
        return kept[1]

    def _service(self, option: Option) -> Assumptions:
        # A trial of something else that a person let decide all the same says of no option which service it is of.
        plain = [one.decision for one in reversed(self.records) if not one.decision.although]
        own = [one.assumptions for one in plain if one.option == option.name]
        decides = Assumptions(model=option.decides.model) if option.decides else Assumptions()
        found = _joined([*own, option.assumptions, decides])
        if found.engine or found.model:
            return found
        others = [one.assumptions for one in plain]
        others += [one.assumptions for one in self.tree.options]
        told = next((one for one in others if one.engine or one.model), None)
        if told is not None:
            return told
        return Assumptions() if self._several else _joined(reversed(self._services_measured))

    def unclear(self, option: Option) -> str:
        """Return why it cannot be told which trials are of an option's service; empty where it can."""
        of = self.service(option)
        if of.engine or of.model or not self._several:
            return ""
        names = dict.fromkeys(map(_told, self._services_measured))
        return (
            f"trials of several services are kept ({'; '.join(names)}) and nothing says which one {option.name} is of: "
            "give it assumptions = { engine, model } in tree.toml"
        )

    @cached_property
    def _measured(self) -> list[tuple[TrialRecord, Assumptions]]:
        """Every trial with what it was measured under, oldest first."""
        return [(one, assumptions_of(one, None, one.comparison)) for one in self.trials]

    @cached_property
    def _services_measured(self) -> list[Assumptions]:
        """The services that trials were of, each once, in the order of its newest trial."""
        found = [Assumptions(engine=one.engine, model=one.model) for _, one in reversed(self._measured)]
        return list({(one.engine, one.model): one for one in found}.values())[::-1]

    @cached_property
    def _several(self) -> bool:
        found = self._services_measured
        return any(not same_service(one, other) for at, one in enumerate(found) for other in found[:at])

    def is_of(self, option: Option, measured: Assumptions) -> bool:
        """Whether something was measured on an option's service, as far as both are known."""
        return same_service(self.service(option), measured)

    def trials_of(self, option: Option) -> list[TrialRecord]:
        """Return the trials of an option's service, oldest first; none where that is unclear."""
        return [] if self.unclear(option) else [one for one, under in self._measured if self.is_of(option, under)]

    def costs_of(self, option: Option) -> list[tuple[str, Costs]]:
        """Return the costs files of an option's service, oldest first; none where that is unclear."""
        if self.unclear(option):
            return []
        return [(path, one) for path, one in self.costs if self.is_of(option, costs_assumptions(one))]

    def predictions(self, option: Option) -> list[tuple[str, Prediction]]:
        """Return the predictions of an option, the newest last: those it names, and those kept for its method.

        What was predicted for another service is left out, and where the option names it, said so.
        """
        named = [one.path for one in self.evidence(option) if one.kind == "prediction" and one.path]
        found = []
        for path in named:
            read = self._prediction(self.root / path)
            if read is None:
                continue
            if self.is_of(option, predicted_assumptions(read)):
                found.append((path, read))
            else:
                of = _told(predicted_assumptions(read))
                self._leave_out(f"{path}: of {of}, and {option.name} is of {_told(self.service(option))}: not used")
        # A prediction's drafter is named by engine and method, `vllm-ngram`; heads are told beside any of them.
        kept = [
            (path, read)
            for path, read in ([] if self.unclear(option) else self._kept_predictions)
            if path not in named
            and option.method
            and (is_head(option.method) or option.method in read.drafter)
            and self.is_of(option, predicted_assumptions(read))
        ]
        # By the moment each was made: a file's time is that of the last checkout. Of one moment, named ones are last.
        return sorted([*kept, *found], key=lambda one: made(one[1]))

    def _prediction(self, path: Path) -> Prediction | None:
        try:
            found = Prediction.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None  # `citing.dead_ends` names it
        except ValidationError as error:
            self._leave_out(f"{path}: no prediction: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}")
        except (OSError, ValueError, RecursionError) as error:
            self._leave_out(f"{path}: no prediction that can be read: {error}")
        else:
            if found.schema_version <= SCHEMA_VERSION:
                return found
            self._leave_out(f"{path}: schema_version {found.schema_version} is of a later version")
        return None

    def _leave_out(self, why: str) -> None:
        if why not in self.left_out:
            self.left_out.append(why)

    def arm_of(self, option: Option) -> str:
        """Return the arm an option has in trials."""
        return option.arm or option.name


def made(prediction: Prediction) -> str:
    """Return when a prediction was made; of earlier versions, which do not say it, when its costs were probed."""
    return in_order(prediction.created or str(prediction.costs.get("created") or ""))


def in_order(told: str) -> str:
    """Return an ISO 8601 date or moment so that later ones sort after earlier ones: UTC is Z; a date stays a date."""
    try:
        found = dt.datetime.fromisoformat(told) if "T" in told else None
    except ValueError:
        return told
    if found is None:
        return told
    return found.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if found.tzinfo else told


def costs_assumptions(costs: Costs) -> Assumptions:
    """Return what a costs file says of its server."""
    return Assumptions(
        engine=costs.engine or "", version=costs.version or "", runner=costs.runner or "", model=costs.model or ""
    )


def predicted_assumptions(prediction: Prediction) -> Assumptions:
    """Return what a prediction says of the server that it is for."""
    engine, version, model = (str(prediction.costs.get(name) or "") for name in ("engine", "version", "model"))
    return Assumptions(engine=engine, version=version, model=model)


def _joined(some: Iterable[Assumptions]) -> Assumptions:
    """Return engine and model, each of the first that tells it and does not contradict what is known already."""
    found = Assumptions()
    for one in some:
        if same_service(found, one):
            found = Assumptions(engine=found.engine or one.engine, model=found.model or one.model)
    return found


def _told(one: Assumptions) -> str:
    return " on ".join(word for word in (one.model or "a model not known", one.engine) if word)


def with_arm(trials: Iterable[TrialRecord], arm: str) -> list[TrialRecord]:
    """Return the trials that measured an arm, in their order."""
    return [one for one in trials if any(each.name == arm for each in one.arms) or arm in _compared(one)]


def _compared(record: TrialRecord) -> list[str]:
    return [one.arm for one in record.comparisons]
