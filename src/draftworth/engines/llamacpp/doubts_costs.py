"""What costs, and what is good to know, of a planned arm of llama.cpp."""

from collections.abc import Callable, Iterator

from draftworth.engines.base import Doubt
from draftworth.engines.llamacpp import releases
from draftworth.engines.llamacpp.planned import Arm

_SHORT_MATCH = 16
"""Below it the server itself warns (`common/speculative.cpp` of 9093 and 11434)."""
_LONG_DRAFTS = 48
_QUANTISED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")


def _lengths(arm: Arm) -> Iterator[Doubt]:
    drafting = [name for name in arm.types if name.startswith("draft")]
    newer = arm.since(releases.DRAFT_DEFAULTS)
    if drafting and newer is not False and not arm.has("--spec-draft-p-min"):
        most = arm.flags.get("--spec-draft-n-max", "3")
        yield Doubt(
            code="p_min_default",
            severity="costs",
            what=f"--spec-draft-p-min is 0 by default: every draft has its full length ({most} tokens), however unsure "
            "the draft model is",
            fix="measure --spec-draft-p-min 0.75, the default before, beside it",
            since=f"{releases.named(releases.DRAFT_DEFAULTS)} and later",
        )
    if drafting and not arm.has("--spec-draft-n-max") and newer is None:
        yield Doubt(
            code="n_max_default",
            severity="note",
            what="how much is drafted depends on the build: 3 tokens by default, 16 before "
            f"{releases.named(releases.DRAFT_DEFAULTS)}",
            fix="write --spec-draft-n-max",
        )


def _ngram_mod(arm: Arm) -> Iterator[Doubt]:
    if "ngram-mod" not in arm.types:
        return
    if not arm.has("--spec-ngram-mod-n-min"):
        yield Doubt(
            code="long_drafts_only",
            severity="changed",
            what=f"ngram-mod throws away drafts below {_LONG_DRAFTS} tokens by default, so answers that repeat less "
            "than that are never drafted",
            fix="lower --spec-ngram-mod-n-min for short repetitions",
        )
    match = arm.flags.get("--spec-ngram-mod-n-match", "")
    if match.isdecimal() and int(match) < _SHORT_MATCH:
        yield Doubt(
            code="short_match",
            severity="costs",
            what=f"ngram-mod with a match of {match} tokens drafts much that is refused; the server warns below "
            f"{_SHORT_MATCH}",
            fix=f"set --spec-ngram-mod-n-match to {_SHORT_MATCH} or more, or measure both",
        )


def _counts(arm: Arm) -> Iterator[Doubt]:
    if arm.whole_command and not arm.has("--metrics"):
        yield Doubt(
            code="metrics_off",
            severity="note",
            what="without --metrics there is no /metrics: drafts are counted only in each answer's timings, without "
            "verified drafts and positions",
            fix="add --metrics to service.command, so that every arm has it",
        )
    if arm.asked and arm.since(releases.COUNTERS) is False:
        yield Doubt(
            code="not_counted",
            severity="note",
            what="this build's /metrics has no counters of speculation; the log and each answer's timings tell drafted "
            "and accepted tokens",
            fix=f"use {releases.named(releases.COUNTERS)} or later for drafting steps and positions",
            since=f"before {releases.named(releases.COUNTERS)}",
        )
    if arm.has("--log-disable"):
        yield Doubt(
            code="log_off",
            severity="note",
            what="with --log-disable nothing tells whether the server speculates before it is asked",
            fix="leave --log-disable out",
        )
    if arm.asked and arm.whole_command and not arm.has("--verbosity", "--verbose", "-v"):
        yield Doubt(
            code="log_short",
            severity="note",
            what="at the usual verbosity the log tells neither the build nor whether speculation was set up",
            fix="add -lv 4 to service.command, in every arm",
            since=f"{releases.named(releases.MEAN_LENGTH)} and later",
        )


def _slots(arm: Arm) -> Iterator[Doubt]:
    if arm.whole_command and not arm.has("--parallel"):
        yield Doubt(
            code="slots",
            severity="note",
            what="without --parallel the server has 4 slots that share one context; further requests wait, and a "
            "wait is in their time to the first token",
            fix="set --parallel to the concurrency you measure at, the same in every arm",
        )


def _cache(arm: Arm) -> Iterator[Doubt]:
    if arm.flags.get("--cache-type-v", "") in _QUANTISED and arm.flags.get("--flash-attn") == "off":
        yield Doubt(
            code="quantised_cache",
            severity="refused",
            what="a quantised cache of values (--cache-type-v) needs flash attention: the server does not start",
            fix="set --flash-attn on, or leave --cache-type-v out",
        )
    quantised = [n for n in ("--spec-draft-type-k", "--spec-draft-type-v") if arm.flags.get(n, "") in _QUANTISED]
    if quantised and any(name.startswith("draft") for name in arm.types):
        yield Doubt(
            code="quantised_draft_cache",
            severity="costs",
            what=f"a quantised cache of the draft model ({', '.join(quantised)}) can lower acceptance",
            fix="measure it against f16, its default",
        )


def _multimodal(arm: Arm) -> Iterator[Doubt]:
    if arm.asked and arm.has("--mmproj"):
        yield Doubt(
            code="multimodal",
            severity="note",
            what="drafters see the text of a request only, not its images; and context shift is switched off",
            fix="measure with the share of images your traffic has",
        )


def _context_shift(arm: Arm) -> Iterator[Doubt]:
    if arm.asked and arm.has("--context-shift"):
        yield Doubt(
            code="context_shift",
            severity="note",
            what="near the end of a slot's context drafts are cut, down to none, so that a shift still fits",
            fix="give every slot a context longer than its requests need (--ctx-size is shared by the slots)",
        )


RULES: tuple[Callable[[Arm], Iterator[Doubt]], ...] = (
    _lengths,
    _ngram_mod,
    _counts,
    _slots,
    _cache,
    _multimodal,
    _context_shift,
)
"""Every rule of this file."""
