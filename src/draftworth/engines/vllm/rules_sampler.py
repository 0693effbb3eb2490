"""Settings of rejection sampling that vLLM refuses, or that make an arm a benchmark only.

Read in `SpeculativeConfig._resolve_synthetic_acceptance_rates`, `_verify_args` (0.20.2 and later) and
`VllmConfig._validate_adaptive_verification` (0.28.0 and later).
"""

import itertools
from collections.abc import Iterator

from draftworth.engines.vllm.case import Case, Remark, Rule
from draftworth.engines.vllm.planned_flags import truth, whole
from draftworth.engines.vllm.releases import KEYS

_RATES, _LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"


def synthetic(case: Case) -> Iterator[Remark]:
    """Say what synthetic acceptance is for, and refuse it where it is incomplete."""
    if not case.speculates or not KEYS["rejection_sample_method"].at(case.release):
        return
    rates, length = case.key(_RATES), case.key(_LENGTH)
    if case.key("rejection_sample_method") != "synthetic":
        if rates is not None or length is not None:
            yield _refused(
                "synthetic_without_method",
                "synthetic_acceptance_* goes only with rejection_sample_method = 'synthetic'",
                "leave it out, or set rejection_sample_method = 'synthetic' for a what-if arm",
            )
        return
    yield Remark(
        "synthetic_acceptance",
        "changed",
        "this arm accepts drafts at a configured rate, whatever the model says: its text is meaningless",
        "use it to learn what speculation costs; never adopt it and never compare its text",
    )
    if (rates is None) == (length is None):
        yield _refused(
            "synthetic_incomplete",
            "rejection_sample_method = 'synthetic' needs exactly one of synthetic_acceptance_rates and _length",
            f"set {_LENGTH}, from 1 to num_speculative_tokens + 1, and not {_RATES}",
        )
    elif rates is not None:
        yield from _rates(case, rates)
    elif _is_number(length) and case.tokens is not None and not 1 <= length <= case.tokens + 1:
        yield _refused(
            "synthetic_out_of_range",
            f"{_LENGTH} = {length} is not from 1 to {case.tokens + 1}",
            f"set it from 1 (nothing accepted) to {case.tokens + 1} (everything)",
        )


def _rates(case: Case, rates: object) -> Iterator[Remark]:
    if not isinstance(rates, list | tuple) or not all(_is_number(rate) for rate in rates):
        wrong = "must be a list of numbers"
    elif case.tokens is not None and len(rates) != case.tokens:
        wrong = f"has {len(rates)} entries for {case.tokens} drafted tokens"
    elif not all(0 <= rate <= 1 for rate in rates):
        wrong = "has an entry outside 0 to 1"
    elif any(later > earlier for earlier, later in itertools.pairwise(rates)):
        wrong = "rises from one position to the next"
    else:
        return
    yield _refused(
        "synthetic_out_of_range",
        f"{_RATES} {wrong}",
        "give one rate a position, from 0 to 1, none above the one before: the share of steps that accept so far",
    )


def fly(case: Case) -> Iterator[Remark]:
    """Say that FLy changes the text, and refuse it where its window does not fit (0.33.0)."""
    if not case.since("0.33.0") or case.key("rejection_sample_method") != "fly":
        return
    yield Remark(
        "lossy_verification",
        "changed",
        "rejection_sample_method = 'fly' accepts tokens the model would not have written",
        "leave it out where the text has to be the model's",
    )
    window = whole(case.key("fly_window_size"))
    if case.tokens is not None and case.tokens < 2:  # noqa: PLR2004 - vLLM's own lower limit
        yield _refused("fly_window", "FLy needs num_speculative_tokens of 2 or more", "draft 2 tokens or more")
    elif window is not None and case.tokens is not None and window >= case.tokens:
        yield _refused(
            "fly_window",
            f"fly_window_size = {window} must be below num_speculative_tokens = {case.tokens}",
            f"set it to {case.tokens - 1} or less",
        )


def adaptive_verification(case: Case) -> Iterator[Remark]:
    """Refuse DSpark's adaptive verification beside what it does not go with (0.28.0 and later)."""
    if not truth(case.key("enable_adaptive_verification")) or not case.since("0.28.0"):
        return
    for met, what, fix in (
        (case.on("enable_lora"), "LoRA", "leave --enable-lora out"),
        ((case.number("pipeline_parallel_size") or 1) > 1, "pipeline parallelism", "use one pipeline stage"),
        (case.on("enforce_eager"), "--enforce-eager", "leave --enforce-eager out"),
    ):
        if met:
            yield _refused(
                "adaptive_verification",
                f"enable_adaptive_verification does not go with {what}",
                f"{fix}, or enable_adaptive_verification",
                what,
            )


def logits_processors(case: Case) -> Iterator[Remark]:
    """Refuse custom logits processors beside speculation (V1 runner, 0.11.2 and later).

    Until 0.29.0 they keep a server off the V2 runner; from 0.32.0 on V2 has its own.
    """
    on_v2 = case.since("0.32.0") and case.runner == "V2"
    if case.speculates and "logits_processors" in case.flags and case.since("0.11.2") and not on_v2:
        yield _refused(
            "logits_processors",
            "custom logits processors are refused beside speculation",
            "leave --logits-processors out of this arm, and of the baseline",
        )


def sampled_on_cpu(case: Case) -> Iterator[Remark]:
    """Warn of a release whose CPU build verifies sampled drafts wrongly.

    `utils/cpu_triton_utils.py:_expand_kernel_impl` of 0.32.0 fills a copy of another type, so that temperature, top-k
    and top-p of each token are what the memory held (vllm-project/vllm issue 55005). Nothing is claimed of others.
    """
    if case.speculates and case.on_cpu and case.since("0.32.0") and not case.since("0.33.0"):
        yield Remark(
            "sampled_on_cpu",
            "changed",
            "on a CPU this release verifies drafts at a temperature above 0 at one that was never written: their "
            "text comes from another distribution",
            "speculate there for requests at temperature 0 alone",
        )


def _refused(code: str, what: str, fix: str, subject: str = "") -> Remark:
    return Remark(code, "refused", what, fix, subject)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


RULES: tuple[Rule, ...] = (synthetic, fly, adaptive_verification, logits_processors, sampled_on_cpu)
