"""What a release of vLLM does otherwise than the planned arm asks, without an error.

Read in `config/speculative.py`, `config/vllm.py` (`_maybe_disable_dynamic_sd_…`, `_set_max_num_scheduled_tokens`,
`_limit_max_model_len_to_draft`), `v1/worker/gpu_model_runner.py` (`_input_fits_in_drafter`), `v1/core` (prefix cache)
and `docs/features` (tables of what goes together) of each release in `releases.READ`.
"""

from collections.abc import Iterator

from draftworth.engines.vllm.case import Case, Remark, Rule
from draftworth.engines.vllm.planned_flags import truth, whole
from draftworth.engines.vllm.releases import KEYS
from draftworth.engines.vllm.rules_runner import effective_runner

_NGRAM = ("ngram", "[ngram]", "ngram_gpu")
_DYNAMIC = "num_speculative_tokens_per_batch_size"
_DYNAMIC_ON_V1 = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})  # 0.33.0


def lookup_defaults(case: Case) -> Iterator[Remark]:
    """Say which n-gram sizes are taken where one or both are missing."""
    if case.method not in _NGRAM:
        return
    low, high = case.key("prompt_lookup_min"), case.key("prompt_lookup_max")
    if low is None and high is None:
        yield Remark(
            "lookup_default",
            "note",
            "without prompt_lookup_min and prompt_lookup_max only n-grams of exactly 5 tokens are looked up",
            "set prompt_lookup_min = 2 and prompt_lookup_max = 4 or the like, to draft more often",
        )
    elif low is None or high is None:
        given, missing = ("max", "min") if low is None else ("min", "max")
        value = high if low is None else low
        if whole(value) != 1:
            yield Remark(
                "lookup_one_size",
                "changed",
                f"prompt_lookup_{missing} is missing and becomes prompt_lookup_{given} = {value}: n-grams of that one "
                "size are looked up",
                f"set prompt_lookup_{missing} too",
            )


def unused_keys(case: Case) -> Iterator[Remark]:
    """Name keys of another method that are taken and do nothing."""
    method = case.method
    if method is None:
        return
    for key in case.config or {}:
        if key not in KEYS or not KEYS[key].at(case.release) or case.key(key) is None:
            continue
        unused = (
            (key.startswith("prompt_lookup_") and method not in _NGRAM)
            or (key.startswith("suffix_decoding_") and method != "suffix")
            or (key == "model" and method in (*_NGRAM, "suffix") and case.key("model") not in (method, "[ngram]"))
        )
        if unused:
            yield Remark("key_unused", "changed", f"{key} does nothing for method {method!r}", f"leave {key} out", key)


def dynamic_tokens(case: Case) -> Iterator[Remark]:
    """Say where a schedule of draft lengths by batch size is dropped, or costs full CUDA graphs."""
    if not case.key(_DYNAMIC) or not case.since("0.24.0"):
        return
    if (case.number("data_parallel_size") or 1) > 1:
        if case.since("0.28.0"):
            yield Remark(
                "dynamic_tokens_off",
                "changed",
                f"{_DYNAMIC} is dropped under data parallelism; every step drafts num_speculative_tokens",
                "leave it out, or measure it with one data-parallel rank",
            )
            return
        yield Remark(
            "dynamic_tokens_ranks",
            "changed",
            f"{_DYNAMIC} under data parallelism lets ranks draft different lengths, and they can wait for each other "
            "forever",
            "leave it out, or use vLLM 0.28.0 or later, which drops it",
        )
    if effective_runner(case) == "V2":
        return
    if case.since("0.33.0") and case.kind is not None and case.kind not in _DYNAMIC_ON_V1:
        yield Remark(
            "dynamic_tokens_off",
            "changed",
            f"the V1 runner drops {_DYNAMIC} for method {case.method!r}; every step drafts num_speculative_tokens",
            "leave it out",
        )
    elif not case.eager:
        yield Remark(
            "dynamic_tokens_piecewise",
            "costs",
            f"on the V1 runner {_DYNAMIC} sets cudagraph_mode from full to PIECEWISE",
            "compare with a baseline under the same cudagraph_mode, or use the V2 runner",
        )


def pipeline_parallel(case: Case) -> Iterator[Remark]:
    """Say where pipeline parallelism does not go with speculation (up to 0.14.1; the note ends with 0.15.0)."""
    if not case.speculates or case.since("0.20.2") or (case.number("pipeline_parallel_size") or 1) <= 1:
        return
    if case.engine_v0:
        yield Remark(
            "pipeline_parallel",
            "refused",
            "the V0 engine refuses speculation under pipeline parallelism",
            "use tensor parallelism, or vLLM 0.20.2 or later",
        )
    else:
        yield Remark(
            "pipeline_parallel",
            "unknown",
            "this vLLM's documentation says that speculation does not go with pipeline parallelism; nothing refuses it",
            "use tensor parallelism, or vLLM 0.20.2 or later",
        )


def lora(case: Case) -> Iterator[Remark]:
    """Say that drafts know no adapters."""
    if case.speculates and case.on("enable_lora"):
        yield Remark(
            "lora",
            "unknown",
            "vLLM's table of features marks LoRA beside speculation as not supported, though a start is not refused; "
            "drafts are made without the adapter, so fewer are accepted",
            "measure adapters and the plain model as categories of their own",
        )


def draft_length(case: Case) -> Iterator[Remark]:
    """Say what happens behind a draft's max_model_len that is shorter than the target's."""
    short, full = whole(case.key("max_model_len")), case.number("max_model_len") or case.number("max_seq_len")
    if short is None or full is None or case.kind in (*_NGRAM, "suffix"):
        return
    fix = "leave max_model_len out of speculative_config, or keep the measured prompts and answers below it"
    if short > full:
        yield Remark(
            "draft_length",
            "refused",
            f"the draft's max_model_len = {short} is above the target's {full}",
            f"set it to {full} or less, or leave it out",
        )
    elif short < full and effective_runner(case) == "V2":
        if case.since("0.33.0") and case.method == "draft_model":
            yield Remark(
                "draft_length",
                "changed",
                f"the V2 runner lowers the target's max_model_len from {full} to the draft's {short}",
                fix,
            )
    elif short < full and case.since("0.11.2"):
        counted = "; zeros are verified and counted as drafted in their place" if case.since("0.20.2") else ""
        yield Remark(
            "draft_length",
            "changed",
            f"while any request of a step is beyond {short} tokens, nothing is drafted for all of them{counted}",
            fix,
        )


def scheduler_limits(case: Case) -> Iterator[Remark]:
    """Say where drafting takes tokens from the scheduler's step (0.20.2 to 0.25.0), or seats (0.33.0).

    From 0.28.0 on every method logs `max_num_scheduled_tokens is set to …` (below 8192) though it names
    max_num_batched_tokens itself: nothing is taken.
    """
    seats, budget, k = case.number("max_num_seqs"), case.number("max_num_batched_tokens"), case.tokens
    if seats is None or budget is None or k is None or not case.since("0.20.2"):
        return
    parallel = truth(case.key("parallel_drafting")) or case.kind in ("dflash", "dspark")
    if not case.since("0.28.0"):
        slots = (k - 1 if parallel else 0) + (case.method == "draft_model")
        left = budget - slots * seats
        if left <= 0:
            yield Remark(
                "scheduler_limits",
                "refused",
                f"drafting reserves {slots} x {seats} tokens (max_num_seqs) of a step, which leaves none of "
                f"max_num_batched_tokens = {budget}",
                f"set --max-num-batched-tokens above {slots * seats}, or --max-num-seqs lower",
            )
        elif slots:
            yield Remark(
                "scheduler_limits",
                "changed",
                f"drafting reserves {slots} x {seats} tokens (max_num_seqs) of a step: it schedules {left} tokens, "
                f"not {budget}",
                f"set --max-num-batched-tokens to {budget + slots * seats} in this arm",
            )
    elif case.since("0.33.0") and case.method in ("dflash", "dspark"):
        yield from _fewer_seats(case, case.number("max_num_active_seqs") or seats, budget, k)


def _fewer_seats(case: Case, seats: int, budget: int, k: int) -> Iterator[Remark]:
    """Say where a step has not room enough for the draft's queries of every request (0.33.0, `num_lookahead_tokens`).

    dflash drafts with k + 1 queries a request. dspark does with k, and with k + 1 where the draft's config.json says
    `sample_from_anchor: false`, which a command does not show.
    """
    most = k + 1
    fewest = k if case.method == "dspark" else most
    if budget <= fewest:
        yield Remark(
            "scheduler_limits",
            "refused",
            f"{case.method} needs more than {fewest} tokens in a step; max_num_batched_tokens is {budget}",
            f"set --max-num-batched-tokens to {seats * most} or more in both arms",
        )
    elif budget // most < seats:
        certain = budget // fewest < seats
        also = "" if fewest == most else f", {most} with sample_from_anchor = false"
        run = str(budget // fewest if certain else seats)
        run += f" ({budget // most} with sample_from_anchor = false)" if budget // most != int(run) else ""
        yield Remark(
            "scheduler_limits",
            "changed" if certain else "note",
            f"{case.method} needs {fewest} tokens a request{also} in a step of {budget}: at most {run} requests run at "
            + (f"once, not {seats}" if certain else "once"),
            f"set --max-num-batched-tokens to {seats * most} or more in both arms",
        )


RULES: tuple[Rule, ...] = (
    lookup_defaults,
    unused_keys,
    dynamic_tokens,
    pipeline_parallel,
    lora,
    draft_length,
    scheduler_limits,
)
