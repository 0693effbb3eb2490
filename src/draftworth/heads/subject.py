"""What every check looks at, and what it can answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from draftworth.heads.architectures import Release
from draftworth.heads.base import Method
from draftworth.heads.draft import Draft
from draftworth.heads.files.tensors import Tensor
from draftworth.heads.folder import Model
from draftworth.heads.layout import Wanted, loaded_name, wanted
from draftworth.heads.statistics import Statistics, statistics


class CannotCheckError(Exception):
    """A check cannot be run here; the text is the reason."""


@dataclass(frozen=True)
class Subject:
    """A head, its target and what they are served by.

    Attributes:
        draft: the head.
        target: the model it drafts for.
        asked: the method that was asked for, where one was.
        told: the method that its files tell of; none where they tell of one that is not checked.
        release: the release of vLLM.
        max_model_len: the server's `--max-model-len`, where it is known.
    """

    draft: Draft
    target: Model
    asked: Method | None
    told: Method | None
    release: Release
    max_model_len: int | None

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The head's tensors, by their names in the checkpoint.

        Raises:
            CannotCheckError: not all of its files could be read.
        """
        weights = self.draft.model.weights
        if weights.why_not or not weights.tensors:
            raise CannotCheckError(f"the checkpoint's files could not all be read ({weights.why_not or 'no tensors'})")
        return weights.tensors

    @cached_property
    def loaded(self) -> Mapping[str, Tensor]:
        """The head's tensors, by the names under which the engine's loader looks for them."""
        named = ((loaded_name(self.draft, name), one) for name, one in self.tensors.items())
        return {name: one for name, one in named if name is not None}

    @cached_property
    def wanted(self) -> Mapping[str, Wanted]:
        """The tensors that the engine's model class has.

        Raises:
            CannotCheckError: they are not known for this architecture.
        """
        found = wanted(self.draft)
        if found is None:
            raise CannotCheckError(f"the tensors that vLLM wants of {self.draft.architecture} are not known here")
        return found

    @cached_property
    def statistics(self) -> tuple[Statistics, ...]:
        """What the values of the head's tensors tell.

        Raises:
            CannotCheckError: none can be read.
        """
        found = statistics(self.tensors)
        if not found:
            raise CannotCheckError("no tensor has a floating-point type that is decoded here")
        return found

    @property
    def target_tensors(self) -> Mapping[str, Tensor]:
        """The target's tensors.

        Raises:
            CannotCheckError: its files could not be read.
        """
        weights = self.target.weights
        if not weights.tensors:
            raise CannotCheckError(f"no tensors of the target could be read ({weights.why_not})")
        return weights.tensors

    def of_target(self, *names: str) -> int:
        """Return a whole number of the target's config.

        Raises:
            CannotCheckError: it is not there.
        """
        found = self.target.text.number(*names)
        if found is None:
            raise CannotCheckError(f"the target's config.json tells no {names[0]}")
        return found


@dataclass(frozen=True, slots=True)
class Fine:
    """Nothing is wrong: what was found, and what was expected."""

    found: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something is wrong: what was found, what was expected, and another fix than the check's own."""

    found: str
    expected: str
    fix: str | None = None


class Severity(StrEnum):
    """What it means where a check does not pass."""

    FAIL = "fail"
    """The engine does not start, or drafts what is never accepted."""
    WARN = "warn"
    """It is served; the acceptance is in doubt."""


Outcome = Fine | Wrong | None
"""None: it does not concern this head."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at.

    Attributes:
        name: what it is called, in reports and in documents.
        about: what it looks at.
        source: the public report or source it comes from.
        severity: what it means where it does not pass.
        fix: what to do then.
        methods: the methods it concerns.
        look: looks; raises CannotCheckError where that cannot be done.
    """

    name: str
    about: str
    source: str
    severity: Severity
    fix: str
    methods: frozenset[Method]
    look: Callable[[Subject], Outcome]


ALL = frozenset(Method)
HEADS = ALL - {Method.DRAFT_MODEL, Method.MTP}
"""Methods whose draft reads the target's hidden states and is a checkpoint of its own."""
OWN = ALL - {Method.MTP}
"""Methods whose draft is a checkpoint of its own."""
EAGLES = frozenset({Method.EAGLE, Method.EAGLE3})
WITH_AUX = frozenset({Method.EAGLE3, Method.DFLASH})
"""Methods that read auxiliary hidden states."""
