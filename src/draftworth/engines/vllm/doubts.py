"""Says before anything is touched what of a planned arm this vLLM does not know, will refuse or will silently change.

Every rule (`rules_….py`) looks at the arm as one release would. The arm is shown to all releases that were read, so
that a doubt can say which of them it holds for; a doubt given is one of the release that the server runs.
"""

from collections.abc import Iterable, Mapping, Sequence

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.vllm import (
    releases,
    rules_changed,
    rules_cost,
    rules_known,
    rules_runner,
    rules_sampler,
    rules_sampling,
    rules_start,
)
from draftworth.engines.vllm.case import Case, Remark, Rule, Severity, cases
from draftworth.engines.vllm.releases import Judged, Release, text

RULES: tuple[Rule, ...] = (
    *rules_known.RULES,
    *rules_start.RULES,
    *rules_sampler.RULES,
    *rules_runner.RULES,
    *rules_sampling.RULES,
    *rules_changed.RULES,
    *rules_cost.RULES,
)
_ORDER: tuple[Severity, ...] = ("refused", "unknown", "changed", "costs", "note")
_Name = tuple[str, str]  # code and subject


def doubts(arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
    """Return what vLLM does not know, will refuse or will silently change of a planned arm, the worst first.

    A version between two releases that were read is judged by both: what holds for one of them only becomes a `note`.
    Without a version only what holds for every release is said, and one doubt names the rest.

    Args:
        arm: the arm.
        facts: what the running server's log told: version, runner, configuration.
    """
    seen = {case.release: _remarks(case) for case in cases(arm, facts)}
    judged = releases.judged_as(facts.version)
    if judged is None:
        return _without_version(seen, facts.version)
    found = [_outside(judged, facts.version)] if judged.outside else []
    low, high = seen[judged.low], seen[judged.high]
    for name, remark in {**low, **high}.items():
        since = _since(seen, name)
        if name in low and name in high:
            found.append(_doubt(low[name], since))
            continue
        here, there = (judged.low, judged.high) if name in low else (judged.high, judged.low)
        what = (
            f"{remark.what} (so in {text(here)}, not in {text(there)}; {facts.version} lies between and was not read)"
        )
        found.append(Doubt(code=remark.code, severity="note", what=what, fix=remark.fix, since=since))
    return _ordered(found)


def _remarks(case: Case) -> dict[_Name, Remark]:
    return {(remark.code, remark.subject): remark for rule in RULES for remark in rule(case)}


def _doubt(remark: Remark, since: str) -> Doubt:
    return Doubt(code=remark.code, severity=remark.severity, what=remark.what, fix=remark.fix, since=since)


def _since(seen: Mapping[Release, Mapping[_Name, Remark]], name: _Name) -> str:
    return releases.spans([release for release, remarks in seen.items() if name in remarks])


def _without_version(seen: Mapping[Release, Mapping[_Name, Remark]], version: str | None) -> tuple[Doubt, ...]:
    names = list(dict.fromkeys(name for remarks in seen.values() for name in remarks))
    always = [name for name in names if all(name in remarks for remarks in seen.values())]
    newest = seen[releases.READ[-1]]
    depends = [f"{name[0]} ({_since(seen, name)})" for name in names if name not in always]
    what = "this vLLM's version is not known" + (f" ({version!r} is none)" if version else "")
    if depends:
        what += f"; depending on it: {'; '.join(dict.fromkeys(depends))}"
    unknown = Doubt(
        code="version_unknown",
        severity="note",
        what=what,
        fix="ask the server (GET /version), or look for the line with its version in its log",
    )
    return _ordered([unknown, *(_doubt(newest[name], _since(seen, name)) for name in always)])


def _outside(judged: Judged, version: str | None) -> Doubt:
    older = judged.outside == "older"
    return Doubt(
        code="version_older" if older else "version_newer",
        severity="note",
        what=f"vLLM {version} is {judged.outside} than every release that was read; it is judged as {text(judged.low)}",
        fix="take what follows as likely, and read the log of the first start"
        if not older
        else "take what follows as likely, and use a newer vLLM",
    )


def _ordered(found: Iterable[Doubt]) -> tuple[Doubt, ...]:
    order: Sequence[str] = _ORDER
    return tuple(sorted(found, key=lambda doubt: order.index(doubt.severity)))
