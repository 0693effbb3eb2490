"""What a decision was made under, from a trial's record, and what has changed since."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from draftworth.decisions.base import Assumptions
from draftworth.decisions.traffic import requests_of
from draftworth.reports.trial.model import model_of
from draftworth.reports.words import workload
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord

_HARDWARE = ("processor", "cores", "gpu", "gpus", "accelerators")
"""What of a machine decides its speed; kernel and Python do not reopen a decision."""
_WORKLOAD = (
    "source",
    "categories",
    "prompts_per_category",
    "limit",
    "max_tokens",
    "context_tokens",
    "temperature",
    "concurrency",
    "rate",
    "replay_speed",
    "ignore_eos",
)
_BETWEEN = re.compile(rf", (?=(?:{'|'.join(_HARDWARE)}) )")
_CACHED = re.compile(r"(?:^|/)models--(?:[^/]*?--)?([^/]+)/snapshots/")
_NUMBER = re.compile(r"\d+")


def assumptions_of(record: TrialRecord, arm: ArmRecord | None, found: ArmComparison | None) -> Assumptions:
    """Return what a trial's arm was measured under; what the record does not tell is empty."""
    baseline = record.arms[0] if record.arms else None
    seen = arm or baseline
    work = record.config.get("workload") or {}
    pairs = {one.category: one.pairs for one in (found.categories if found else ()) if one.kind == "category"}
    declared = _declared(arm)
    speculative = declared.get("speculative_config")
    return Assumptions(
        engine=seen.engine if seen else "",
        version=(seen.version or "") if seen else "",
        runner=(seen.runner or "") if seen else "",
        hardware=_hardware(record.machine),
        model=model_of(record),
        workload=workload(work) if work else "",
        traffic=fingerprint(work, pairs) if work else "",
        requests=requests_of(work),
        categories=pairs,
        head=str(speculative.get("model") or "") if isinstance(speculative, Mapping) else "",
        setting=json.dumps(declared, sort_keys=True) if declared else "",
    )


def fingerprint(work: Mapping[str, Any], categories: Mapping[str, int]) -> str:
    """Return a fingerprint of the traffic: which requests, how long, how many at a time, in which mix."""
    said = {name: work[name] for name in _WORKLOAD if work.get(name) is not None}
    # Numbers that may be lists since schema 2 are the same traffic as the single number before.
    said = {name: one[0] if isinstance(one, list) and len(one) == 1 else one for name, one in said.items()}
    text = json.dumps([said, dict(sorted(categories.items()))], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _hardware(machine: Mapping[str, Any]) -> str:
    told = {name: machine[name] for name in _HARDWARE if machine.get(name)}
    return ", ".join(
        f"{name} {' and '.join(map(str, one)) if isinstance(one, list | tuple) else one}" for name, one in told.items()
    )


def no_gpu(hardware: str) -> bool:
    """Whether a trial's record told its hardware and no GPU: it does not say whether there was one."""
    told = _parts(hardware).keys()
    return bool(told & {"processor", "cores"}) and not told & {"gpu", "gpus", "accelerators"}


def _parts(hardware: str) -> dict[str, str]:
    """Return the parts of a hardware: a record may tell more of them than another."""
    told = (one.partition(" ") for one in _BETWEEN.split(hardware))
    return {name: value for name, _, value in told}


def _declared(arm: ArmRecord | None) -> dict[str, Any]:
    return {name: one for name, one in (arm.declared if arm else {}).items() if one}


def same_service(then: Assumptions, now: Assumptions) -> bool:
    """Whether two measurements are of one service: the same engine and model, as far as both are known."""
    return all(
        not before or not after or before == after
        for before, after in ((then.engine, now.engine), (_last(then.model), _last(now.model)))
    )


def same_model(one: str, other: str) -> bool:
    """Whether two names are of one model: folders before it and case do not count."""
    return _last(one) == _last(other)


def _last(model: str) -> str:
    """Return a model's name without the folder it lies in: a server names it by path, a costs file as it is served."""
    cached = _CACHED.search(model)  # the hub's cache: models--ORG--NAME/snapshots/REVISION
    if cached:
        return cached[1].lower()
    return model.rstrip("/").rpartition("/")[2].lower()


def changed(then: Assumptions, now: Assumptions) -> list[str]:
    """Return what changed between two measurements, each as a clause; what either does not tell is no change."""
    clauses = []
    for name, words in (
        ("version", "engine version"),
        ("runner", "model runner"),
        ("hardware", "hardware"),
        ("head", "head"),
    ):
        before, after = getattr(then, name), getattr(now, name)
        if name == "hardware":
            # A part that either does not tell is no change: records name GPUs since a later version.
            had, has = _parts(before), _parts(after)
            if all(had[part] == has[part] for part in had.keys() & has.keys()):
                continue
        if before and after and before != after:
            clauses.append(f"{words}: {before} then, {after} now")
    if then.traffic and now.traffic and then.traffic != now.traffic:
        mix = (
            f" ({_mix(then.categories)} then, {_mix(now.categories)} now)" if then.categories != now.categories else ""
        )
        clauses.append(f"traffic: {then.workload} then, {now.workload} now{mix}")
    return clauses


def _mix(categories: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(categories.items())) or "no categories"


def version_key(version: str) -> tuple[int, ...]:
    """Return a release's numbers, for comparing: `0.17.0rc1` is (0, 17, 0)."""
    numbers = []
    for part in version.removeprefix("v").split("."):
        found = _NUMBER.match(part)
        if not found:
            break
        numbers.append(int(found[0]))
        if found[0] != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
