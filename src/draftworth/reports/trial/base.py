"""What every section of a trial's page is made of, and how variants are ordered and named."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftworth.bench.base import RequestRow
from draftworth.engines.base import synthetic_in
from draftworth.explain.base import Account, Explained
from draftworth.findings import Code
from draftworth.profiles.base import Profile
from draftworth.reports.words import judged
from draftworth.trials.diagnostics import is_diagnostic
from draftworth.trials.journal import Event
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import Verdict

_ORDER = (Verdict.FASTER, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.SLOWER, Verdict.ERROR)
_HIGHER_IS_BETTER = frozenset({"throughput", "goodput"})


@dataclass(frozen=True, slots=True)
class Subject:
    """A trial as far as it is known.

    Attributes:
        record: its record.
        explained: its account; None where there is none.
        rows: its requests, without texts and token ids, in the order in which they were sent; empty where there are
            none.
        events: its journal, oldest first; empty where there is none.
        missing: a sentence for each thing that is not there or cannot be read, and what the page lacks for it.
        profiles: arm to its profile, of those that the trial made.
    """

    record: TrialRecord
    explained: Explained | None = None
    rows: Sequence[RequestRow] = ()
    events: Sequence[Event] = ()
    missing: tuple[str, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        """The baseline's name."""
        return self.record.arms[0].name if self.record.arms else "baseline"

    def arm(self, name: str) -> ArmRecord | None:
        """Return an arm by name; None where it was never measured."""
        return next((one for one in self.record.arms if one.name == name), None)

    def comparison(self, name: str) -> ArmComparison | None:
        """Return a variant's comparison; None where it has none."""
        return next((one for one in self.record.comparisons if one.arm == name), None)

    def accounts(self, name: str) -> tuple[Account, ...]:
        """Return an arm's accounts, lowest load first."""
        found = self.explained.accounts if self.explained else ()
        return tuple(sorted((one for one in found if one.arm == name), key=lambda one: (one.concurrency, one.point)))

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant's name: the trial's best first, then by verdict and gain; diagnostic arms last."""
        compared = {one.arm: one for one in self.record.comparisons}
        named = [one.name for one in self.record.arms[1:]]
        names = dict.fromkeys([*compared, *named, *(one.arm for one in _accounts(self.explained))])
        names.pop(self.baseline, None)
        return tuple(sorted(names, key=lambda name: self._place(name, compared.get(name))))

    def _place(self, name: str, found: ArmComparison | None) -> tuple[bool, bool, int, float, str]:
        other, only_measures = name != self.record.best, bool(self.diagnostic(name))
        if found is None:
            return only_measures, other, len(_ORDER), math.inf, name
        ratio = judged(found)
        cost = math.inf if ratio is None else ratio.estimate
        if ratio is not None and found.metric in _HIGHER_IS_BETTER:
            cost = -cost
        return only_measures, other, _ORDER.index(found.verdict), cost, name

    def diagnostic(self, name: str) -> str:
        """Return why an arm is only for measuring costs, as a sentence; nothing for a setting one could adopt."""
        config, env = self.speculation(name)
        if synthetic_in(config, env):
            return "A diagnostic arm: its drafts were accepted at a configured rate, whatever they were."
        arm = self.arm(name)
        if not config and is_diagnostic(None, args=args_of(arm)):
            return "A diagnostic arm: no speculation, and the scheduling that it gets."
        if is_diagnostic(config, env):
            return "A diagnostic arm: speculation was on and next to nothing was drafted."
        if any(one.diagnostic for one in self.accounts(name)):
            return "A diagnostic arm: it only measures."
        return ""

    def given_up(self, name: str) -> bool:
        """Whether an arm that only measures was given up: what it has is not the whole of it."""
        return any(one.code is Code.DIAGNOSTIC_FAILED and one.arm == name for one in self.record.findings)

    def label(self, name: str) -> str:
        """Return an arm's name, marked where it was given up."""
        return f"{name} (given up)" if self.given_up(name) else name

    def lane(self, name: str) -> str:
        """Return an arm's name for a plot, where there is room for a star only; `lanes_note` says what it means."""
        return f"* {name}" if self.given_up(name) else name

    def lanes_note(self, names: Iterable[str]) -> str:
        """Return what a star beside an arm's name means, as a sentence; nothing where none has one."""
        return " * given up before its end." if any(self.given_up(name) for name in names) else ""

    @property
    def ended(self) -> bool:
        """Whether the trial was measured to its end."""
        return self.record.verdict is not Verdict.ERROR

    @property
    def measured(self) -> tuple[str, ...]:
        """The variants that have requests or an account, the best first."""
        there = {row.arm for row in self.rows} | {one.arm for one in _accounts(self.explained)}
        return tuple(name for name in self.variants if name in there)

    def speculation(self, name: str) -> tuple[dict[str, Any] | None, dict[str, str] | None]:
        """Return an arm's speculative configuration and environment, as its record or the trial's file has it."""
        arm = self.arm(name)
        listed = self.record.config.get("arms")
        asked = next(
            (one for one in listed if isinstance(one, dict) and one.get("name") == name)
            if isinstance(listed, list | tuple)
            else iter(()),
            {},
        )
        declared = arm.declared if arm is not None else {}
        config = declared.get("speculative_config") or asked.get("speculative_config")
        env = declared.get("env") or asked.get("env")
        return config if isinstance(config, dict) else None, env if isinstance(env, dict) else None

    @property
    def best(self) -> str | None:
        """The arm the page is about: the record's, or, where that only measures, the best of the others.

        Of a trial that did not end it is the first that has an account, else that has requests.
        """
        name = self.record.best
        if name is None and not self.ended:
            found = [one for one in self.measured if not self.diagnostic(one)]
            return next((one for one in found if self.accounts(one)), found[0] if found else None)
        if name and self.diagnostic(name):
            return next((one for one in self.variants if one in self.candidates), name)
        return name

    @property
    def verdict(self) -> Verdict:
        """The verdict on `best`."""
        found = self.comparison(self.best or "")
        if self.record.verdict is Verdict.ERROR or found is None or self.best == self.record.best:
            return self.record.verdict
        return found.verdict

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, with figures."""
        found = self.comparison(self.best or "")
        if self.best == self.record.best or found is None:
            return self.record.error or self.record.reason
        told = f"the record's own verdict, {self.record.verdict}, is about {self.record.best}, which only measures"
        return f"{found.reason}; {told}"

    @property
    def candidates(self) -> tuple[str, ...]:
        """The compared variants that a verdict can be about: diagnostic ones only where there are no others."""
        names = [one.arm for one in self.record.comparisons]
        return tuple(name for name in names if not self.diagnostic(name)) or tuple(names)


def args_of(arm: ArmRecord | None) -> Sequence[str]:
    """Return the arguments that an arm declared."""
    found = arm.declared.get("args") if arm is not None else None
    return [str(one) for one in found] if isinstance(found, list | tuple) else []


def _accounts(explained: Explained | None) -> Sequence[Account]:
    return explained.accounts if explained else ()
