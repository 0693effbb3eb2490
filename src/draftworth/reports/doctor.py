"""An examination as lines for a terminal."""

import json
from collections.abc import Sequence

from draftworth.doctor.base import ArmDiagnosis, Diagnosis
from draftworth.engines.base import Given
from draftworth.reports.reading import NAMES
from draftworth.reports.words import plural

_WORDS = {
    "refused": "refused",
    "unknown": "not known",
    "changed": "will be changed",
    "costs": "will cost",
    "note": "note",
}


def lines(found: Diagnosis) -> list[str]:
    """Return a whole examination."""
    version = found.version or "(version not told)"
    where = f" (by {found.version_from})" if found.version_from else ""
    rows = [
        ("engine", f"{found.title} {version}{where}"),
        ("runner", found.runner or "not told"),
        ("device", found.device or "not told"),
        ("speculation", found.mode),
        ("models", ", ".join(found.models) or "not told"),
        ("read", "; ".join(found.facts_from) or "nothing of a server"),
    ]
    shown = [f"{name:<12} {text}" for name, text in rows]
    if found.gives:
        shown += ["", "It tells", *_gives(found.gives)]
    for arm in found.arms:
        shown += ["", *_arm(arm)]
    if found.arms:
        shown += ["", _summary(found)]
    else:
        shown += ["", "No arm is planned: name a trial's file with --plan, or a configuration with --arm."]
    for one in found.findings:
        shown += [f"{one.severity}: {one.message}", f"  {one.advice}"]
    return shown


def _gives(gives: Sequence[Given]) -> list[str]:
    width = max(len(NAMES.get(one.name, one.name)) for one in gives)
    return [f"  {NAMES.get(one.name, one.name):<{width}}  {'yes' if one.given else 'no '}  {one.how}" for one in gives]


def _arm(arm: ArmDiagnosis) -> list[str]:
    declared = ", ".join(f"{name} {json.dumps(value)}" for name, value in arm.declared.items())
    shown = [f"Arm {arm.name}: {declared or 'the baseline, without speculation'}"]
    for one in arm.doubts:
        since = f" [{one.since}]" if one.since else ""
        shown += [f"  {_WORDS[one.severity]}: {one.what}{since}", f"    fix: {one.fix}"]
    if not arm.doubts:
        shown.append("  nothing against it is known")
    told = [NAMES.get(one.name, one.name) for one in arm.gives if one.given]
    missing = [one for one in arm.gives if not one.given]
    if told and not arm.refused and arm.declared.get("speculation") is not None:
        shown.append(f"  will tell: {', '.join(told)}")
        shown += [f"  will not tell {NAMES.get(one.name, one.name)}: {one.how}" for one in missing]
    return shown


def _summary(found: Diagnosis) -> str:
    refused = found.refused
    changed = sum(one.severity == "changed" for arm in found.arms for one in arm.doubts)
    said = f"{plural(len(refused), 'arm')} would be refused ({', '.join(refused)})" if refused else "No arm is refused"
    return f"{said}; {plural(changed, 'setting')} would be changed without an error."
