"""What llama.cpp will refuse, not know or silently change of a planned arm.

Read in the builds of `releases.py`; what 11434 does with a draft type without its draft, with a draft without a type,
with removed flags and unknown types was seen on the running server.
"""

from collections.abc import Callable, Iterator

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.llamacpp import doubts_costs, doubts_values, flags, known, releases
from draftworth.engines.llamacpp.planned import Arm, arm_of

_REMOVED_SINCE = "April 2026 and later (pull request 22397)"
_READ = f"llama.cpp {releases.named(releases.OLDEST)} to {releases.named(releases.NEWEST)}"
_BY_MODEL = ("draft-mtp", "draft-dflash", "draft-dspark")
_SILENT = ("draft-eagle3", "draft-dflash", "draft-dspark")

_Rule = Callable[[Arm], Iterator[Doubt]]


def doubts(arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
    """Return what llama.cpp does not know, will refuse or will silently change of a planned arm.

    Args:
        arm: the arm.
        facts: what is known of the server; without a version, what depends on it is said with the builds it is of.
    """
    planned = arm_of(arm, facts)
    rules: tuple[_Rule, ...] = (
        _configuration,
        _spelling,
        _types,
        _drafts,
        _no_effect,
        _synthetic,
        doubts_values.doubts,
    )
    return tuple(one for rule in (*rules, *doubts_costs.RULES) for one in rule(planned))


def _configuration(arm: Arm) -> Iterator[Doubt]:
    if arm.problem is not None:
        yield Doubt(
            code="configuration",
            severity="refused",
            what=arm.problem,
            fix='write it as flags without dashes, for example {type = "ngram-simple", size_m = 8}',
        )


def _spelling(arm: Arm) -> Iterator[Doubt]:
    for word in dict.fromkeys(arm.written):
        name, equals, _ = word.partition("=")
        name = flags.plain(name)
        newest = flags.newest(name)
        if equals and newest.startswith("--spec-"):
            yield Doubt(
                code="equals_sign",
                severity="refused",
                what=f"{word}: llama.cpp takes a flag's value only from the next word, so this is an invalid argument",
                fix=f"write {name} and its value as two words",
            )
        elif name in flags.REMOVED:
            yield Doubt(
                code="removed_flag",
                severity="refused",
                what=f"{name} was removed: the server stops at it",
                fix=f"use {flags.REMOVED[name]}",
                since=_REMOVED_SINCE,
            )
        elif newest.startswith(("--spec-", "--no-spec-")):
            yield from _known(arm, name, newest)


def _known(arm: Arm, name: str, newest: str) -> Iterator[Doubt]:
    first, last = known.FIRST.get(newest), known.LAST.get(newest)
    if last is not None and arm.since(last + 1) is not False:
        yield Doubt(
            code="removed_flag",
            severity="refused" if arm.build is not None else "unknown",
            what=f"{name} was taken out: the server stops at it",
            fix="leave it out; the draft's context follows the target's",
            since=f"after {releases.named(last)}",
        )
    elif first is None and last is None:
        yield Doubt(
            code="unknown_flag",
            severity="refused" if arm.build is not None and arm.build <= releases.NEWEST else "unknown",
            what=f"{name} is no flag of {_READ}: an invalid argument stops the server",
            fix="see llama-server --help for the flags of this build",
        )
    elif first and arm.since(first) is not True:
        yield _later("unknown_flag", arm, name, first)


def _later(code: str, arm: Arm, name: str, first: int) -> Doubt:
    named = releases.named(first)
    if arm.build is None:
        return Doubt(
            code=code,
            severity="unknown",
            what=f"{name} is known from {named} on, and the build is not known",
            fix=f"use {named} or later",
            since=f"{named} and later",
        )
    return Doubt(
        code=code,
        severity="refused",
        what=f"{releases.named(arm.build)} does not know {name} and stops at it",
        fix=f"use {named} or later",
        since=f"{named} and later",
    )


def _types(arm: Arm) -> Iterator[Doubt]:
    for name in arm.types:
        first = releases.TYPES.get(name)
        if first is None:
            meant = name.replace("_", "-")
            meant = known.OLD_TYPES.get(meant, meant)
            like = (
                f"write {meant}" if meant in releases.TYPES else f"write one of {', '.join(list(releases.TYPES)[1:])}"
            )
            if arm.since(releases.TYPES_RENAMED) is False and name in known.OLD_TYPES:
                continue
            yield Doubt(
                code="unknown_type",
                severity="refused" if arm.build is not None else "unknown",
                what=f"--spec-type {name} is an unknown speculative type: the server stops at it",
                fix=like,
                since=f"{releases.named(releases.TYPES_RENAMED)} and later",
            )
        elif first and arm.since(first) is not True:
            yield _later("unknown_type", arm, f"--spec-type {name}", first)
    if len(arm.types) > 1 and arm.build is not None and arm.build <= releases.OLDEST:
        yield Doubt(
            code="type_list",
            severity="refused",
            what=f"{releases.named(arm.build)} takes one --spec-type, not a list",
            fix="name one type, or use b9113 or later",
        )


def _drafts(arm: Arm) -> Iterator[Doubt]:
    if not arm.has_draft:
        yield from _draft_missing(arm)
    elif not arm.types and arm.since(releases.DRAFT_NEEDS_TYPE) is not False:
        yield Doubt(
            code="type_missing",
            severity="changed",
            what="a draft model without --spec-type is loaded and never asked: the server serves without speculation, "
            f"unless the draft's file says that it is {', '.join(_BY_MODEL)} (b10448 and later)",
            fix="add --spec-type draft-simple",
            since=f"{releases.named(releases.DRAFT_NEEDS_TYPE)} and later",
        )


def _draft_missing(arm: Arm) -> Iterator[Doubt]:
    for name in arm.types:
        if name == "draft-simple":
            yield Doubt(
                code="draft_missing",
                severity="changed",
                what="draft-simple without a draft model: the server logs that it requires a draft context and serves "
                "without speculation",
                fix="name the draft with --spec-draft-model (-md) or --spec-draft-hf",
            )
        elif name in _SILENT and not arm.has("--hf-repo"):
            yield Doubt(
                code="draft_missing",
                severity="changed",
                what=f"{name} without a draft model: the server serves without speculation and says nothing of it",
                fix="name the draft with --spec-draft-model (-md) or --spec-draft-hf",
            )
        elif name == "draft-mtp" and not arm.has("--hf-repo"):
            yield Doubt(
                code="draft_in_model",
                severity="note",
                what="draft-mtp without a draft file needs a model whose file holds its MTP layers; with another one "
                "the server does not start",
                fix="take a GGUF that was converted with its MTP layers, or name the draft with --spec-draft-model",
            )


def _no_effect(arm: Arm) -> Iterator[Doubt]:
    if not arm.types:
        return
    drafting = [name for name in arm.types if name.startswith("draft") or name in known.OLD_TYPES]
    for name in sorted(arm.flags):
        kind = known.group_of(name)
        if kind is not None and kind not in arm.types:
            yield Doubt(
                code="no_effect",
                severity="changed",
                what=f"{name} is of {kind} and has no effect with {', '.join(arm.types)}",
                fix=f"leave it out, or add {kind} to the types",
            )
        elif name in known.OF_DRAFTS and not drafting:
            lengths = [known.LENGTH_OF[one] for one in arm.types if one in known.LENGTH_OF]
            yield Doubt(
                code="no_effect",
                severity="changed",
                what=f"{name} is heeded by types with a draft model only, not by {', '.join(arm.types)}",
                fix=f"use {' and '.join(lengths)}" if lengths and name.endswith("n-max") else "leave it out",
            )


def _synthetic(arm: Arm) -> Iterator[Doubt]:
    if not arm.has("--spec-synth-len", "--spec-synth-rates"):
        return
    yield Doubt(
        code="synthetic_acceptance",
        severity="changed",
        what="drafts are accepted at the given rate whatever the model says: the text is meaningless",
        fix="use such an arm for what-ifs only, never to decide",
    )
    if not arm.types:
        yield Doubt(
            code="type_missing",
            severity="refused",
            what="synthetic acceptance without a type of speculation: the server does not start",
            fix="add --spec-type",
        )
