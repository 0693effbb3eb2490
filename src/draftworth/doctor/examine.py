"""From what was read and what is planned to what it will meet: pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth import redact
from draftworth.doctor.base import ORDER, ArmDiagnosis, Diagnosis
from draftworth.engines import engine as engine_named
from draftworth.engines.base import Engine, Given, LogWarning, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.findings import Code, Finding, find
from draftworth.readings.base import Reading

_METHOD = ("method", "algorithm", "type", "decoding_type")
_TOKENS = {
    "num_speculative_tokens": "{} tokens",
    "num_spec_tokens": "{} tokens",
    "num_draft_tokens": "N = {}, the root counted",
    "n_max": "up to {} tokens",
    "max_draft_len": "{} tokens",
    "num_nextn_predict_layers": "{} layers",
}


def examine(
    adapter: Engine,
    readings: Sequence[Reading],
    arms: Sequence[Planned],
    *,
    source: str,
    versions: Sequence[tuple[str, str | None]],
    findings: Sequence[Finding] = (),
) -> Diagnosis:
    """Return what is there and what planned arms will meet.

    Args:
        adapter: the engine.
        readings: what was read of the server.
        arms: what is planned.
        source: what was named.
        versions: where a version may be from and what it says there, the most trusted first.
        findings: what was remarked while reading.
    """
    facts = joined(readings)
    where, version = next(((where, told) for where, told in versions if told), (None, None))
    if version is not None:
        facts = facts.model_copy(update={"version": version})
    adapter.version = facts.version
    mode = mode_of(facts, readings)
    return Diagnosis(
        source=source,
        engine=adapter.name,
        title=adapter.title,
        version=facts.version,
        version_from=where,
        runner=facts.runner,
        device=facts.device,
        models=tuple(dict.fromkeys(model for one in readings for model in one.models)),
        mode=mode,
        facts_from=tuple(f"{one.source} ({one.kind})" for one in readings),
        gives=as_it_is(adapter, facts, readings) if readings else (),
        arms=tuple(_arm(adapter, arm, facts) for arm in arms),
        findings=tuple(dict.fromkeys([*findings, *_remarked(readings), *_baseline(mode, arms)])),
    )


def _baseline(mode: str, arms: Sequence[Planned]) -> list[Finding]:
    """Return that the server speculates already, where a trial's baseline is planned without."""
    planned = any(arm.name == "baseline" and arm.speculation is None and arm.command for arm in arms)
    if not planned or mode.startswith(("off", "not told")):
        return []
    return [find(Code.BASELINE_SPECULATES, f"the server that was read speculates ({mode}) and the baseline must not")]


def _remarked(readings: Sequence[Reading]) -> list[Finding]:
    """Return what was remarked while reading; that nothing is drafted yet is no remark here."""
    return [one for reading in readings for one in reading.findings if one.code is not Code.NO_SPECULATION_SEEN]


def joined(readings: Sequence[Reading]) -> StartupFacts:
    """Return the facts of all readings: the first that tells a thing is believed, configurations are joined."""
    config: dict[str, str] = {}
    update: dict[str, Any] = {}
    warnings: list[LogWarning] = []
    for reading in readings:
        for page in reading.pages:
            config = {**page.config, **config}
        config = {**reading.facts.config, **config}
        warnings += reading.facts.warnings
        for name in ("version", "runner", "device", "speculating"):
            if update.get(name) is None:
                update[name] = getattr(reading.facts, name)
        update["version"] = update["version"] or reading.version
    return StartupFacts(**update, config=config, warnings=tuple(dict.fromkeys(warnings)))


def mode_of(facts: StartupFacts, readings: Sequence[Reading]) -> str:
    """Return how a server speculates, in words."""
    method, tokens = _named(facts.config, _METHOD), None
    for name, words in _TOKENS.items():
        value = _named(facts.config, (name,))
        if value is not None and tokens is None:
            tokens = words.format(value)
    counted = any(_shows_drafts(one) for one in readings)
    if facts.speculating is False and not counted:
        return "off"
    if facts.speculating or counted or method:
        said = ", ".join(part for part in (method, tokens) if part)
        return said or "on (the method is not told)"
    pages = any(one.kind in {"metrics", "server"} and one.counts is not None for one in readings)
    return "off (no counters of drafts)" if pages else "not told"


def _shows_drafts(reading: Reading) -> bool:
    """Whether counters, or figures of windows, show that drafts are made, or are set up to be."""
    counts = reading.counts
    if any(one.value > 0 for one in reading.told):
        return True
    if any(window.told or window.counts for window in reading.windows):
        return True
    if counts is None or counts.drafted is None:
        return counts is not None and counts.speculated
    return counts.speculated or engine_named(reading.engine).counters_mean_speculation


def _named(config: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return the first value of a speculative setting that is set."""
    for key, value in config.items():
        group, _, last = key.rpartition(".")
        speculative = "spec" in group or key.startswith(("speculative", "spec_", "spec-"))
        if speculative and any(last.replace("-", "_").endswith(name) for name in names) and value not in {"None", ""}:
            return value.strip("'\"")
    return None


def as_it_is(adapter: Engine, facts: StartupFacts, readings: Sequence[Reading]) -> tuple[Given, ...]:
    """Return which counts the server tells as it is: what was read of it, else what its release would tell."""
    pages = [one for one in readings if one.counts is not None and one.kind != "log"]
    logs = [one for one in readings if one.counts is not None and one.kind == "log"]
    if not pages and not logs:
        return adapter.gives(Planned(name="as it is"), facts)
    found = []
    for name in FIELDS:
        counts = [one.counts for one in (*pages, *logs) if one.counts is not None]
        told = next((one for one in counts if getattr(one, name) is not None), None)
        why = counts[0].why_not(name) if told is None else told.source
        found.append(Given(name=name, given=told is not None, how=why))
    return tuple(found)


def _arm(adapter: Engine, arm: Planned, facts: StartupFacts) -> ArmDiagnosis:
    doubts = sorted(adapter.doubts(arm, facts), key=lambda one: ORDER.index(one.severity))
    declared: dict[str, Any] = {"speculation": arm.speculation} if arm.speculation is not None else {}
    if arm.args:
        declared["args"] = list(redact.command(arm.args))
    if arm.env:
        declared["env"] = redact.environment(arm.env)
    return ArmDiagnosis(
        name=arm.name, declared=declared, doubts=tuple(dict.fromkeys(doubts)), gives=adapter.gives(arm, facts)
    )
