"""What a check of a head finds, and what a report of all checks holds."""

from enum import StrEnum

from draftworth.models import Frozen


class Method(StrEnum):
    """How a checkpoint drafts, in the words of vLLM's `speculative_config`."""

    EAGLE3 = "eagle3"
    EAGLE = "eagle"
    MEDUSA = "medusa"
    MTP = "mtp"
    DRAFT_MODEL = "draft_model"
    DFLASH = "dflash"


class Status(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    NOT_CHECKED = "not_checked"


class Layout(StrEnum):
    """Which trainer's layout of config.json a checkpoint has."""

    PLAIN = "plain"
    """Fields at the top, as SafeAILab, SpecForge and vLLM's own examples write them."""
    SPECULATORS = "speculators"
    """`speculators_model_type` and `transformer_layer_config`, as vLLM's speculators writes them."""


class CheckResult(Frozen):
    """One check of one checkpoint."""

    name: str
    """Which check, as the registry lists it."""
    status: Status
    """How it ended."""
    found: str
    """What was found; for what was not checked, the reason."""
    expected: str = ""
    """What was expected."""
    fix: str = ""
    """What to do; empty where nothing is wrong."""
    source: str = ""
    """The public report or source that the check comes from."""


class HeadReport(Frozen):
    """Whether a checkpoint can be served with a target."""

    checkpoint: str
    """The folder of the head or draft model."""
    target: str
    """The folder of the target."""
    engine: str
    """The engine it was checked for."""
    version: str
    """The engine's release it was checked for."""
    method: Method
    """How it drafts."""
    method_reason: str
    """What tells so."""
    layout: Layout
    """Layout of its config.json."""
    architecture: str | None
    """The architecture the engine loads it as; none where it tells none."""
    target_architecture: str | None
    """The target's architecture; none where it tells none."""
    checks: tuple[CheckResult, ...]
    """Every check that concerns this method, in the registry's order."""

    def having(self, status: Status) -> tuple[CheckResult, ...]:
        """Return the checks that ended so."""
        return tuple(one for one in self.checks if one.status is status)

    @property
    def fits(self) -> bool:
        """Whether no check failed."""
        return not self.having(Status.FAILED)
