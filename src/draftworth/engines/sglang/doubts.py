"""What SGLang does not know, will refuse or will silently change of a planned arm.

Read in `server_args.py` (to 0.5.12) and `arg_groups/speculative_hook.py`, `validation_hook.py`, `lora_hook.py` (0.5.13
and later). `known.py` holds the settings and algorithms by release, `doubts_algorithms.py` what belongs to one
algorithm.
"""

from collections.abc import Iterator

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.sglang import doubts_algorithms, known
from draftworth.engines.sglang.command import named
from draftworth.engines.sglang.known import ALL, Span
from draftworth.engines.sglang.planned import Arm

_VLLM_NAMES = {
    "method": "algorithm",
    "model": "draft_model_path",
    "num_speculative_tokens": "num_steps (num_draft_tokens counts the root: one more)",
    "prompt_lookup_max": "ngram_max_trie_depth",
}
_LORA_ONLY_NGRAM = Span((0, 5, 6), (0, 5, 18))
_LORA_SOME = Span((0, 5, 19))
_LORA_ALGORITHMS = frozenset({"NGRAM", "EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK"})
_NO_PIPELINE = Span((0, 4, 6), (0, 5, 19))
_SOME_PIPELINE = Span((0, 5, 23))
_MIXED_OFF = Span((0, 5, 3), (0, 5, 18))
_MIXED_SOME = Span((0, 5, 19))
_MIXED_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK"})
_EAGLE_LOGIT_BIAS = Span((0, 4, 6), (0, 5, 3))
_NGRAM_LOGIT_BIAS = Span((0, 5, 3), (0, 5, 9))
_NO_CALLS = Span((0, 4, 6), (0, 5, 12))
_ANY_CASE = (0, 5, 12)
_FIRST_CUSTOM = (0, 5, 12)


def doubts(arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
    """Return what the releases of SGLang are known to do otherwise than a planned arm asks.

    Args:
        arm: the arm.
        facts: version and configuration of the server where they are known; without a version, what depends on it is
            said with the releases it holds for.
    """
    planned = Arm(arm, facts)
    found = list(_metrics(planned))
    if arm.speculation is None:
        return tuple(found)
    if planned.release is None:
        found.append(
            Doubt(
                code="version_unknown",
                severity="note",
                what="SGLang's version is not known, so this is said for every release it holds for",
                fix="name the version, or read the server's /server_info",
            )
        )
    parts = (_algorithm, _settings, doubts_algorithms.doubts, _conflicts, _limits, _sampling, _lossy)
    return (*found, *(doubt for part in parts for doubt in part(planned)))


def _metrics(arm: Arm) -> Iterator[Doubt]:
    if arm.command_known and not arm.is_on("enable_metrics"):
        yield Doubt(
            code="metrics_off",
            severity="note",
            what="--enable-metrics is missing: the server serves no /metrics, so nothing can be counted from it",
            fix="add --enable-metrics to service.command, for every arm",
            since=ALL.words,
        )
    elif arm.speculation is not None and _NO_CALLS.holds(arm.release):
        yield Doubt(
            code="no_counters",
            severity="note",
            what="/metrics has gauges of the last 40 decode steps only, and counts no verified steps",
            fix="use SGLang 0.5.13 or later, or ask /generate for each answer's figures (0.5.6 and later)",
            since=_NO_CALLS.words,
        )


def _algorithm(arm: Arm) -> Iterator[Doubt]:
    asked, algorithm = str((arm.speculation or {}).get("algorithm", "")), arm.algorithm
    if not asked:
        yield Doubt(
            code="no_algorithm",
            severity="refused",
            what="the speculative configuration names no algorithm, so the server would not speculate",
            fix='add algorithm = "EAGLE3", "NGRAM" or another',
        )
        return
    if asked != algorithm and (arm.release is None or arm.release < _ANY_CASE):
        yield Doubt(
            code="algorithm_case",
            severity="refused",
            what=f"algorithm {asked} is not taken: names have to be in capitals",
            fix=f'algorithm = "{algorithm}"',
            since=Span(ALL.first, (0, 5, 11)).words,
        )
    span = known.ALGORITHMS.get(algorithm)
    if span is None:
        custom = arm.release is None or arm.release >= _FIRST_CUSTOM
        yield Doubt(
            code="algorithm_unknown",
            severity="unknown" if custom else "refused",
            what=f"algorithm {algorithm} is none of SGLang's own ({', '.join(known.ALGORITHMS)})",
            fix="check its spelling, or that the plug-in that registers it is installed (0.5.12 and later)",
        )
    else:
        yield from _of_release(arm, f"algorithm {algorithm}", span, "algorithm_too_new", None)


def _settings(arm: Arm) -> Iterator[Doubt]:
    for key in named(arm.speculation or {}):
        if key in _VLLM_NAMES:
            yield Doubt(
                code="other_engines_name",
                severity="refused",
                what=f"{key} is vLLM's name, not SGLang's",
                fix=f"write {_VLLM_NAMES[key]}",
                since=ALL.words,
            )
            continue
        span = known.SETTINGS.get(key)
        if span is None:
            yield Doubt(
                code="unknown_key",
                severity="unknown",
                what=f"the flag of {key} is in no release read, and unknown flags end a start",
                fix="check its spelling, or put flags of other names into the arm's args",
            )
        else:
            yield from _of_release(arm, key, span, "setting_of_other_release", known.INSTEAD.get(key))


def _of_release(arm: Arm, what: str, span: Span, code: str, instead: str | None) -> Iterator[Doubt]:
    if arm.release is None:
        if span != ALL:
            yield Doubt(
                code=code,
                severity="note",
                what=f"{what} is known to {span.words}",
                fix=f"use such a release{f', or {instead}' if instead else ''}",
                since=span.words,
            )
    elif not span.holds(arm.release):
        unsure = known.unsure(span, arm.release)
        yield Doubt(
            code=code,
            severity="unknown" if unsure else "refused",
            what=f"SGLang {arm.version} {'may not know' if unsure else 'does not know'} {what}",
            fix=f"use {span.words}{f', or {instead}' if instead else ''}",
            since=span.words,
        )


def _conflicts(arm: Arm) -> Iterator[Doubt]:
    pipeline = arm.number("pp_size", "pipeline_parallel_size")
    if pipeline is not None and pipeline > 1:
        some = not _NO_PIPELINE.holds(arm.release)
        if not some or arm.algorithm not in ("EAGLE", "NEXTN") or arm.text("disaggregation_mode") != "prefill":
            yield Doubt(
                code="pipeline_parallel",
                severity="refused",
                what="pipeline parallelism and speculation do not go together"
                + (" but for EAGLE on prefill servers (or with SGLANG_ENABLE_PP_SPEC)" if some else ""),
                fix="use --tp-size instead of --pp-size, in both arms",
                since=(_SOME_PIPELINE if some else _NO_PIPELINE).words,
            )
    if arm.is_on("enable_lora") or arm.text("lora_paths") is not None:
        only_ngram = _LORA_ONLY_NGRAM.holds(arm.release) and arm.algorithm != "NGRAM"
        other = _LORA_SOME.holds(arm.release) and arm.algorithm not in _LORA_ALGORITHMS
        if other or only_ngram:
            span = _LORA_ONLY_NGRAM if only_ngram else _LORA_SOME
            yield Doubt(
                code="lora",
                severity="refused",
                what=f"{arm.algorithm} speculation is refused on a server with LoRA",
                fix="use NGRAM, or SGLang 0.5.19 or later with EAGLE, EAGLE3, DFLASH or DSPARK; or serve without LoRA",
                since=span.words,
            )
    yield from _mixed_chunk(arm)


def _mixed_chunk(arm: Arm) -> Iterator[Doubt]:
    if not arm.is_on("enable_mixed_chunk"):
        return
    kept = arm.algorithm in _MIXED_ALGORITHMS and arm.release is not None and _MIXED_SOME.holds(arm.release)
    if kept:
        yield Doubt(
            code="mixed_chunk_steps",
            severity="note",
            what="in a step that also reads a prompt, running requests get one token without drafts, counted nowhere",
            fix="leave --enable-mixed-chunk out of both arms, so that every decode step is counted",
            since=_MIXED_SOME.words,
        )
    elif _MIXED_OFF.holds(arm.release) or arm.algorithm not in _MIXED_ALGORITHMS:
        yield Doubt(
            code="mixed_chunk_off",
            severity="changed",
            what="speculation switches --enable-mixed-chunk off in this arm only",
            fix="leave --enable-mixed-chunk out of both arms",
            since=_MIXED_OFF.words if arm.algorithm in _MIXED_ALGORITHMS else Span((0, 5, 3)).words,
        )


def _limits(arm: Arm) -> Iterator[Doubt]:
    if arm.command_known and arm.algorithm != "UNO" and arm.asked("max_running_requests") is None:
        yield Doubt(
            code="max_running_requests",
            severity="changed",
            what="a speculating server runs at most 48 requests at a time unless told otherwise; a baseline runs more",
            fix="give both arms the same --max-running-requests",
            since=ALL.words,
        )


def _sampling(arm: Arm) -> Iterator[Doubt]:
    device = (arm.text("device") or "").partition(":")[0]
    if device in ("cpu", "xpu"):
        yield Doubt(
            code="greedy_verification",
            severity="changed" if "temperature" in arm.sampling else "note",
            what=f"on {device}, verification takes the most likely token whatever temperature a request asks for",
            fix="compare greedy requests only",
            since=ALL.words,
        )
    if "min_p" in arm.sampling:
        yield Doubt(
            code="min_p_ignored",
            severity="refused" if arm.algorithm == "UNO" else "changed",
            what="verification of drafts knows temperature, top_k and top_p; min_p of a request is left out silently",
            fix="do not send min_p while speculation is measured or used",
            since=ALL.words,
        )
    span = _NGRAM_LOGIT_BIAS if arm.algorithm == "NGRAM" else _EAGLE_LOGIT_BIAS
    if "logit_bias" in arm.sampling and span.holds(arm.release):
        yield Doubt(
            code="logit_bias_ignored",
            severity="changed",
            what="verification of drafts leaves a request's logit_bias out silently",
            fix="use a later release, or do not send logit_bias",
            since=span.words,
        )
    structured = "structured_outputs" in arm.sampling
    if structured and arm.algorithm != "NGRAM" and arm.release == ALL.first and "post" not in (arm.version or ""):
        yield Doubt(
            code="grammar_ignored",
            severity="changed",
            what="verification of drafts does not hold requests to their grammar",
            fix="use 0.4.6.post5 or later, or send no structured outputs",
            since="0.4.6",
        )
    if structured and arm.algorithm == "NGRAM" and (arm.release is None or arm.release <= (0, 5, 9)):
        yield Doubt(
            code="grammar_crash",
            severity="note",
            what="NGRAM with a JSON schema was reported to end the server (sgl-project/sglang #17576)",
            fix="try it on a server that nobody uses first, or use a later release",
            since=Span((0, 5, 3), (0, 5, 9)).words,
        )


def _lossy(arm: Arm) -> Iterator[Doubt]:
    for key in ("accept_threshold_single", "accept_threshold_acc"):
        value = arm.setting(key)
        if value is not None and value < 1:
            yield Doubt(
                code="accept_threshold",
                severity="changed",
                what=f"{key} below 1 accepts drafted tokens the model itself would not have chosen",
                fix=f"leave {key} out: what is measured then is the model's own output",
                since=ALL.words,
            )
    simulated = arm.env.get("SGLANG_SIMULATE_ACC_LEN", "")
    if simulated and not simulated.startswith("-"):
        yield Doubt(
            code="acceptance_simulated",
            severity="changed",
            what=f"SGLANG_SIMULATE_ACC_LEN={simulated} accepts drafts by a set length; the text is meaningless",
            fix="unset it, unless this arm is a what-if whose output nobody reads",
            since=ALL.words,
        )
