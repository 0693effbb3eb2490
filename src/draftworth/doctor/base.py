"""The result of an examination."""

from typing import Any

from draftworth.engines.base import Doubt, Given
from draftworth.findings import Finding
from draftworth.models import Frozen

SCHEMA_VERSION = 1
ORDER = ("refused", "unknown", "changed", "costs", "note")
"""Severities, the worst first."""


class ArmDiagnosis(Frozen):
    """What one planned arm will meet, and what it will tell."""

    name: str
    declared: dict[str, Any] = {}
    doubts: tuple[Doubt, ...] = ()
    gives: tuple[Given, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the engine will refuse it, or the requests that are planned for it."""
        return any(one.severity in {"refused", "unknown"} for one in self.doubts)


class Diagnosis(Frozen):
    """What is there, and what planned arms will meet."""

    schema_version: int = SCHEMA_VERSION
    source: str
    engine: str
    title: str
    version: str | None = None
    version_from: str | None = None
    """Where the version is from: `the log`, `its /version page`, `--release`."""
    runner: str | None = None
    device: str | None = None
    models: tuple[str, ...] = ()
    mode: str
    """How it speculates now, in words: `off`, `ngram, 5 tokens`, `on (method not told)`, `not told`."""
    facts_from: tuple[str, ...] = ()
    """What was read: the log, metrics, pages."""
    gives: tuple[Given, ...] = ()
    """What the server, as it is, tells."""
    arms: tuple[ArmDiagnosis, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """The arms the engine will refuse."""
        return tuple(arm.name for arm in self.arms if arm.refused)
