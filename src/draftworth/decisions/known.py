"""Everything that gates and decisions are held against: the tree, its records, and what lies in the home folder."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs
from draftworth.decisions.base import Assumptions, Evidence, Option, Tree
from draftworth.decisions.records import Record, newest, read_all, state_of
from draftworth.decisions.states import State
from draftworth.decisions.tree import load_tree
from draftworth.errors import UsageError
from draftworth.predict.base import SCHEMA_VERSION, Prediction
from draftworth.trials import record as trial_records
from draftworth.trials.record import TrialRecord

_HEADS = frozenset({"eagle", "eagle3", "medusa", "mtp", "draft_model", "dflash", "mlp_speculator"})
"""Methods whose drafts come from a trained model: no other method's acceptance says anything of them."""


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
        paths = sorted(folder.glob("*.json"), key=lambda one: one.stat().st_mtime) if folder.is_dir() else []
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

    def predictions(self, option: Option) -> list[tuple[str, Prediction]]:
        """Return the predictions of an option, the newest last: those it names, and those kept for its method."""
        named = [one.path for one in self.evidence(option) if one.kind == "prediction" and one.path]
        found = [(path, read) for path in named if (read := self._prediction(self.root / path))]
        # A prediction's drafter is named by engine and method, `vllm-ngram`; heads are told beside any of them.
        kept = [
            (path, read)
            for path, read in self._kept_predictions
            if path not in named and option.method and (is_head(option.method) or option.method in read.drafter)
        ]
        return [*found, *kept]

    def _prediction(self, path: Path) -> Prediction | None:
        try:
            found = Prediction.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            self._leave_out(f"{path}: no such prediction")
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


def is_head(method: str) -> bool:
    """Whether a method's drafts come from a trained model."""
    return method in _HEADS


def costs_assumptions(costs: Costs) -> Assumptions:
    """Return what a costs file says of its server."""
    return Assumptions(
        engine=costs.engine or "", version=costs.version or "", runner=costs.runner or "", model=costs.model or ""
    )


def with_arm(trials: Iterable[TrialRecord], arm: str) -> list[TrialRecord]:
    """Return the trials that measured an arm, in their order."""
    return [one for one in trials if any(each.name == arm for each in one.arms) or arm in _compared(one)]


def _compared(record: TrialRecord) -> list[str]:
    return [one.arm for one in record.comparisons]
