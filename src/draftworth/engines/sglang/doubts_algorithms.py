"""What belongs to one algorithm of SGLang's: its draft, its three widths, its device, its scheduler."""

import re
from collections.abc import Iterator

from draftworth.engines.base import Doubt
from draftworth.engines.sglang.known import ALL, Span
from draftworth.engines.sglang.planned import Arm

EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})
_NEEDS_DRAFT = frozenset({"EAGLE3", "STANDALONE", "DFLASH", "FROZEN_KV_MTP"})
_WIDTHS = ("num_steps", "eagle_topk", "num_draft_tokens")

_NGRAM_CUDA = Span((0, 5, 3), (0, 5, 14))
_NGRAM_CPU = Span((0, 5, 16), (0, 5, 19))
_NGRAM_XPU = Span((0, 5, 23))
_TOPK_LOWERED = Span((0, 4, 6), (0, 4, 6))
_PAGED_TREES: tuple[tuple[Span, tuple[str, ...]], ...] = (
    (Span((0, 5, 3), (0, 5, 5)), ("flashinfer",)),
    (Span((0, 5, 6), (0, 5, 12)), ("flashinfer", "fa3")),
    (Span((0, 5, 13)), ("flashinfer", "fa3", "triton")),
)
# `_handle_attention_backend_compatibility` runs before the check in every release read.
_CHOSEN = "none is named, and SGLang chooses one by the model and the device"
_EAGLE_NO_OVERLAP = Span((0, 4, 6), (0, 5, 10))
_TREE_NO_OVERLAP = Span((0, 5, 11), (0, 5, 12))
_OTHERS_NO_OVERLAP = Span((0, 5, 3), (0, 5, 13))
_DFLASH_NO_DP = Span((0, 5, 11), (0, 5, 19))
_ADAPTIVE = frozenset({"EAGLE", "EAGLE3", "NEXTN"})
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_BFS_BREADTH = 10  # the default of ngram_max_bfs_breadth in every release read


def doubts(arm: Arm) -> Iterator[Doubt]:
    """Return what one algorithm is known to do otherwise than an arm asks."""
    yield from _draft(arm)
    yield from _impossible(arm)
    if arm.algorithm in EAGLE_FAMILY:
        yield from _widths(arm)
    if arm.algorithm == "NGRAM":
        yield from _ngram(arm)
    yield from _dp_attention(arm)
    yield from _overlap(arm)
    yield from _adaptive(arm)
    width = arm.whole("num_draft_tokens")
    if width is not None and width > 0:
        yield Doubt(
            code="root_counted",
            severity="note",
            what=f"num_draft_tokens {width} counts the root: a step drafts {width - 1} tokens",
            fix=f"compare with num_speculative_tokens {width - 1} of vLLM",
            since=ALL.words,
        )


def _draft(arm: Arm) -> Iterator[Doubt]:
    settings = arm.speculation or {}
    path = settings.get("draft_model_path") or settings.get("draft_model")
    if arm.algorithm in _NEEDS_DRAFT and not path:
        yield Doubt(
            code="draft_missing",
            severity="refused",
            what=f"{arm.algorithm} needs a draft model",
            fix="add draft_model_path",
            since=ALL.words,
        )
    elif arm.algorithm in ("EAGLE", "NEXTN", "DSPARK") and not path:
        yield Doubt(
            code="draft_of_the_model",
            severity="note",
            what="without draft_model_path only models start whose own files hold the draft, such as DeepSeek-V3",
            fix="add draft_model_path for any other model",
            since=ALL.words,
        )
    elif arm.algorithm in ("NGRAM", "UNO") and path:
        yield Doubt(
            code="draft_not_used",
            severity="refused" if arm.algorithm == "UNO" else "changed",
            what=f"{arm.algorithm} uses no draft model",
            fix="leave draft_model_path out",
            since=ALL.words,
        )


def _impossible(arm: Arm) -> Iterator[Doubt]:
    for key in _WIDTHS:
        value = (arm.speculation or {}).get(key)
        if value is None or "$" in str(value):
            continue
        whole = _WHOLE.fullmatch(str(value))
        if whole is None or int(value) < 1:
            yield Doubt(
                code="impossible_value",
                severity="refused",
                what=f"{key} {value} is {'below 1' if whole else 'no whole number'}: nothing can be drafted so",
                fix=f"give {key} a whole number from 1 on",
                since=ALL.words,
            )


def _widths(arm: Arm) -> Iterator[Doubt]:
    given = [key for key in _WIDTHS if (arm.speculation or {}).get(key) is not None]
    if given and len(given) < len(_WIDTHS):
        lacking = ", ".join(key for key in _WIDTHS if key not in given)
        yield Doubt(
            code="widths_incomplete",
            severity="refused",
            what=f"{', '.join(given)} without {lacking} ends the start: SGLang takes all three or chooses all three",
            fix="give num_steps, eagle_topk and num_draft_tokens, or none of them",
            since=ALL.words,
        )
    steps, topk, width = (arm.whole(key) for key in _WIDTHS)
    if steps is None or topk is None or width is None or min(steps, topk, width) < 1:
        return
    if topk == 1 and width != steps + 1:
        yield Doubt(
            code="draft_width_changed",
            severity="changed",
            what=f"with eagle_topk 1, num_draft_tokens {width} becomes num_steps + 1 = {steps + 1}",
            fix=f"num_draft_tokens = {steps + 1}",
            since=ALL.words,
        )
    if topk > 1:
        yield from _tree(arm, steps, topk, width)


def _tree(arm: Arm, steps: int, topk: int, width: int) -> Iterator[Doubt]:
    nodes = topk + max(0, steps - 1) * topk * topk
    if width - 1 > nodes:
        yield Doubt(
            code="tree_too_small",
            severity="refused",
            what=f"{steps} steps of {topk} choices give {nodes} nodes, too few for num_draft_tokens {width}",
            fix=f"num_draft_tokens = {nodes + 1} or less",
            since=ALL.words,
        )
    page, backend = arm.number("page_size"), arm.text("attention_backend")
    backends = {
        arm.text(name) for name in ("attention_backend", "decode_attention_backend", "prefill_attention_backend")
    }
    if "trtllm_mha" in backends and (arm.release is None or arm.release >= (0, 5, 3)):
        yield Doubt(
            code="tree_backend",
            severity="refused",
            what="the trtllm_mha attention backend takes eagle_topk 1 only",
            fix="eagle_topk = 1, or another --attention-backend in both arms",
            since=Span((0, 5, 3)).words,
        )
    if page is None or page <= 1:
        return
    if arm.release is not None and arm.release < (0, 5, 3):
        yield Doubt(
            code="tree_lowered",
            severity="changed",
            what=f"with --page-size {page}, eagle_topk {topk} becomes 1",
            fix="eagle_topk = 1, or --page-size 1 in both arms",
            since=_TOPK_LOWERED.words,
        )
        return
    for span, taken in _PAGED_TREES:
        if span.holds(arm.release) and backend not in taken:
            needs = f"eagle_topk {topk} with --page-size {page} needs the attention backend {' or '.join(taken)}"
            yield Doubt(
                code="tree_paged",
                severity="refused" if backend else "note",
                what=needs if backend else f"{needs}; {_CHOSEN}",
                fix=f"eagle_topk = 1, or --page-size 1 or --attention-backend {taken[0]} in both arms",
                since=span.words,
            )


def _ngram(arm: Arm) -> Iterator[Doubt]:
    device = (arm.text("device") or "cuda").partition(":")[0]
    for span, taken in ((_NGRAM_CUDA, {"cuda"}), (_NGRAM_CPU, {"cuda", "cpu"}), (_NGRAM_XPU, {"cuda", "cpu", "xpu"})):
        if span.holds(arm.release) and device not in taken:
            yield Doubt(
                code="ngram_device",
                severity="refused",
                what=f"NGRAM does not run on the device {device}",
                fix=f"use {' or '.join(sorted(taken))}, or another release",
                since=span.words,
            )
    breadth = arm.whole("ngram_max_bfs_breadth") or _BFS_BREADTH
    page, backend = arm.number("page_size"), arm.text("attention_backend")
    if breadth > 1 and page is not None and page > 1 and backend != "flashinfer":
        needs = f"NGRAM's trees (ngram_max_bfs_breadth {breadth}) with --page-size {page} need flashinfer attention"
        yield Doubt(
            code="ngram_paged",
            severity="refused" if backend else "note",
            what=needs if backend else f"{needs}; {_CHOSEN}",
            fix="ngram_max_bfs_breadth = 1, or --page-size 1 or --attention-backend flashinfer in both arms",
            since=Span((0, 5, 3)).words,
        )
    if (arm.speculation or {}).get("eagle_topk") is not None:
        yield Doubt(
            code="eagle_topk_overwritten",
            severity="changed",
            what="NGRAM puts ngram_max_bfs_breadth in the place of eagle_topk",
            fix="set ngram_max_bfs_breadth instead",
            since=Span((0, 5, 3)).words,
        )
    if arm.whole("num_draft_tokens") is None:
        yield Doubt(
            code="ngram_width",
            severity="note",
            what="without num_draft_tokens NGRAM verifies 12 tokens a step, the root counted",
            fix="set num_draft_tokens",
            since=Span((0, 5, 3)).words,
        )
    yield Doubt(
        code="ngram_filler",
        severity="costs",
        what="NGRAM verifies its full width in every step, filler where nothing matches: a step never costs less",
        fix="choose a small num_draft_tokens; an arm that never drafts cannot be had from SGLang's NGRAM",
        since=Span((0, 5, 3)).words,
    )


def _dp_attention(arm: Arm) -> Iterator[Doubt]:
    if not arm.dp_attention:
        return
    if arm.algorithm in ("NGRAM", "STANDALONE", "UNO"):
        yield Doubt(
            code="dp_attention",
            severity="refused",
            what=f"{arm.algorithm} is refused with data-parallel attention",
            fix="leave --enable-dp-attention out of both arms, or use EAGLE or EAGLE3",
            since=Span((0, 5, 3)).words,
        )
    if arm.algorithm == "DFLASH" and _DFLASH_NO_DP.holds(arm.release):
        yield Doubt(
            code="dp_attention",
            severity="refused",
            what="DFLASH is refused with data-parallel attention",
            fix="leave --enable-dp-attention out of both arms, or use 0.5.23 with --enable-dp-lm-head",
            since=_DFLASH_NO_DP.words,
        )


def _overlap(arm: Arm) -> Iterator[Doubt]:
    if arm.is_on("disable_overlap_schedule"):
        return  # off in every arm
    topk = arm.whole("eagle_topk") or 1
    switched_on = arm.env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in ("1", "true")
    span, why = _EAGLE_NO_OVERLAP, "EAGLE and its kin"
    if arm.algorithm in ("NGRAM", "DFLASH", "FROZEN_KV_MTP"):
        span, why = _OTHERS_NO_OVERLAP, arm.algorithm
    elif arm.algorithm not in EAGLE_FAMILY:
        return
    elif topk > 1 and (arm.release is None or _TREE_NO_OVERLAP.holds(arm.release)):
        span, why = Span((0, 4, 6), (0, 5, 12)), "eagle_topk above 1"
    elif switched_on and (arm.release is None or arm.release >= (0, 5, 6)):
        return
    if span.holds(arm.release):
        yield Doubt(
            code="overlap_schedule_off",
            severity="costs",
            what=f"{why} switches the overlap schedule off, so the processor's work shows in every step",
            fix="give the baseline --disable-overlap-schedule to see its share, or use a later release",
            since=span.words,
        )


def _adaptive(arm: Arm) -> Iterator[Doubt]:
    if not (arm.speculation or {}).get("adaptive"):
        return
    if arm.algorithm not in _ADAPTIVE or (arm.whole("eagle_topk") or 1) != 1 or arm.dp_attention:
        yield Doubt(
            code="adaptive_off",
            severity="changed",
            what="adaptive needs EAGLE or EAGLE3, eagle_topk 1 and no data-parallel attention; it is switched off",
            fix="leave adaptive out, or meet what it needs",
            since=Span((0, 5, 11)).words,
        )
    else:
        yield Doubt(
            code="adaptive_rate",
            severity="note",
            what="the accept rate SGLang tells divides by the configured width, whatever adaptive drafts",
            fix="read accepted tokens and verify calls, not the rate",
            since=Span((0, 5, 11)).words,
        )
