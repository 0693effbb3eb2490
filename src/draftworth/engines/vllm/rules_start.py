"""Speculative configurations that a release of vLLM refuses at its start.

Read in `SpeculativeConfig.__post_init__`, `_verify_args` and `_validate_suffix_decoding` (`config.py`,
`config/speculative.py`), `create_speculative_config` (`engine/arg_utils.py`), and in the drafters' own constructors
(`v1/worker/gpu_model_runner.py`, `v1/spec_decode/draft_model.py`) of each release in `releases.READ`.
"""

import math
from collections.abc import Iterator

from draftworth.engines.vllm.case import Case, Remark, Rule, short
from draftworth.engines.vllm.planned_flags import truth, whole
from draftworth.engines.vllm.releases import KEYS, METHODS
from draftworth.engines.vllm.rules_runner import effective_runner

_WITHOUT_MODEL = frozenset({"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "mtp", "dspark"})
_TOKENS_FROM_DRAFT = frozenset({"mtp", "dspark", "mlp_speculator"})  # n_predict or block_size of the draft's files
_METRICS = "per_request_spec_decode_metrics"


def _known(case: Case, key: str) -> bool:
    return key in KEYS and KEYS[key].at(case.release)


def _refused(code: str, what: str, fix: str, subject: str = "") -> Remark:
    return Remark(code, "refused", what, fix, subject)


def given_twice(case: Case) -> Iterator[Remark]:
    """Refuse an arm whose command speculates already."""
    if case.twice:
        yield _refused(
            "speculation_twice",
            f"the command speculates already ({short(case.twice)}), and the arm brings another speculative_config; "
            "the engine would take one of them, or neither",
            "take the flag out of the command and keep the arm's speculative_config",
        )


def tokens(case: Case) -> Iterator[Remark]:
    """Refuse a missing or impossible num_speculative_tokens."""
    if not case.speculates:
        return
    value = case.key("num_speculative_tokens")
    number = whole(value)
    if value is None:
        from_draft = case.kind is None or case.kind in _TOKENS_FROM_DRAFT
        if case.method != "suffix" and not (from_draft and case.key("model")):
            yield _refused(
                "tokens_missing",
                f"num_speculative_tokens is missing, and {case.method or 'this method'} has no default here",
                "set num_speculative_tokens, for example 3",
            )
    elif number is None or number <= 0:
        yield _refused(
            "tokens_not_positive",
            f"num_speculative_tokens = {short(value)} is no whole number above zero",
            "set num_speculative_tokens to 1 or more",
        )
    else:
        longest = 128 if case.since("0.11.2") else 32
        if number > longest and not case.engine_v0 and effective_runner(case) != "V2":
            yield _refused(
                "tokens_too_many",
                f"num_speculative_tokens = {number} is more than the {longest} that the rejection sampler of the V1 "
                "runner takes; it fails while it verifies",
                f"set num_speculative_tokens to {longest} or less",
            )


def model(case: Case) -> Iterator[Remark]:
    """Refuse a method that needs a draft's files and names none."""
    if not case.speculates or case.key("model"):
        return
    method = case.method
    if method is None:
        yield _refused(
            "method_missing",
            "speculative_config names neither a method nor a model",
            'set method = "ngram", or the model of a draft',
        )
    elif method in METHODS and METHODS[method].at(case.release) and case.kind not in _WITHOUT_MODEL:
        yield _refused(
            "model_missing",
            f"method {method!r} needs the draft's files, and no model is given",
            "set model to the draft's folder or hub name"
            if method != "custom_class"
            else "set model to the proposer's path, as in my_module.MyProposer",
        )


def lookup(case: Case) -> Iterator[Remark]:
    """Refuse n-gram sizes that exclude each other."""
    if case.method not in ("ngram", "[ngram]", "ngram_gpu"):
        return
    low, high = whole(case.key("prompt_lookup_min")), whole(case.key("prompt_lookup_max"))
    for name, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if value is not None and value < 1:
            yield _refused("lookup_below_one", f"{name} = {value} is below 1", f"set {name} to 1 or more", name)
    if low is not None and high is not None and low > high:
        yield _refused(
            "lookup_min_above_max",
            f"prompt_lookup_min = {low} is above prompt_lookup_max = {high}",
            "set prompt_lookup_min to prompt_lookup_max or less",
        )


def method_without_drafter(case: Case) -> Iterator[Remark]:
    """Refuse methods that a release lists and cannot run."""
    if case.method == "draft_model" and case.since("0.10.1.1") and not case.since("0.20.2"):
        yield _refused(
            "draft_model_unsupported",
            "this vLLM raises NotImplementedError for a draft model",
            "use another method, or vLLM 0.9.2 (V0 engine) or 0.20.2 and later",
        )
    if case.method == "mlp_speculator" and case.since("0.10.1.1") and not case.since("0.33.0"):
        yield _refused(
            "method_not_run",
            "method 'mlp_speculator' is listed but no runner of this vLLM drafts with it: "
            "'Unknown speculative decoding method'",
            "use another method, or vLLM 0.9.2 (V0 engine)",
        )


def suffix(case: Case) -> Iterator[Remark]:
    """Refuse suffix settings out of range, and name the package that suffix decoding needs."""
    if case.method != "suffix" or not case.since("0.11.2"):
        return
    yield Remark(
        "suffix_needs_package",
        "note",
        "method 'suffix' needs the package arctic-inference beside vLLM; without it the server does not start",
        "pip install arctic-inference==0.1.1 into the engine's environment",
    )
    for name, low, high in (
        ("suffix_decoding_max_tree_depth", 1, math.inf),
        ("suffix_decoding_max_cached_requests", 0, math.inf),
        ("suffix_decoding_max_spec_factor", 0, math.inf),
        ("suffix_decoding_min_token_prob", 0, 1),
    ):
        value = case.key(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
            allowed = f"{low} or more" if high == math.inf else f"from {low} to {high}"
            yield _refused("suffix_out_of_range", f"{name} = {value} must be {allowed}", f"set it {allowed}", name)


def draft_parallel(case: Case) -> Iterator[Remark]:
    """Refuse sizes of the draft's tensor parallelism that do not go with the target's."""
    if case.key("tensor_parallel_size") is not None and _known(case, "tensor_parallel_size"):
        yield _refused(
            "draft_tp_key",
            "speculative_config has tensor_parallel_size, which this vLLM takes only to refuse it",
            "write draft_tensor_parallel_size",
        )
    size = whole(case.key("draft_tensor_parallel_size"))
    if size is None or case.kind in ("ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states"):
        return
    target = case.number("tensor_parallel_size")
    if target is None and case.whole_command:
        target = 1
    if target is None:
        return
    if size not in (1, target):
        yield _refused(
            "draft_tp_size",
            f"draft_tensor_parallel_size = {size} is neither 1 nor the target's tensor parallel size ({target})",
            f"set it to {target}, or leave it out",
        )
    elif size != target and case.method == "draft_model" and case.since("0.20.2") and effective_runner(case) != "V2":
        yield _refused(
            "draft_tp_size",
            f"the V1 runner drafts with a draft model only at the target's tensor parallel size ({target}), not {size}",
            f"set draft_tensor_parallel_size to {target}, or leave it out",
        )


def metrics_flag(case: Case) -> Iterator[Remark]:
    """Refuse per-request figures of an arm that does not speculate (0.29.0 and later)."""
    asked = case.flags.get(_METRICS, "none")
    if case.since("0.29.0") and asked != "none" and not case.speculates:
        yield _refused(
            "metrics_without_speculation",
            "--per-request-spec-decode-metrics without a speculative_config stops the start",
            "leave the flag out of the baseline's command; Draftworth adds it to arms that speculate",
        )


def key_of_another_method(case: Case) -> Iterator[Remark]:
    """Refuse keys that belong to other methods, where vLLM refuses them."""
    if case.method is None:
        return
    for key, methods, always in (
        ("use_heterogeneous_vocab", ("draft_model",), True),
        ("dspark_draft_topk", ("dspark",), case.key("model") is not None),
        ("index_share_for_mtp_iteration", ("mtp",), True),
        ("draft_lm_head_quantization", ("eagle", "eagle3", "mtp"), True),
        ("enable_adaptive_verification", ("dspark",), not case.since("0.32.0")),
    ):
        value = case.key(key)
        if value is None or value is False or not _known(case, key) or not always or case.kind in methods:
            continue
        yield _refused(
            "key_of_another_method",
            f"{key} goes only with method {' or '.join(methods)}, not {case.method!r}",
            f"leave {key} out",
            key,
        )
    if truth(case.key("use_heterogeneous_vocab")) and _known(case, "use_heterogeneous_vocab"):
        if case.key("draft_sample_method") not in (None, "greedy"):
            yield _refused(
                "heterogeneous_vocab_greedy",
                "use_heterogeneous_vocab drafts greedily only",
                "leave draft_sample_method out",
            )
        if case.since("0.33.0") and truth(case.key("use_local_argmax_reduction")):
            yield _refused(
                "heterogeneous_vocab_argmax",
                "use_heterogeneous_vocab and use_local_argmax_reduction exclude each other",
                "leave use_local_argmax_reduction out",
            )


def disable_by_batch_size(case: Case) -> Iterator[Remark]:
    """Refuse a batch size below two, and say where the key does nothing."""
    value = whole(case.key("disable_by_batch_size"))
    if value is None or not _known(case, "disable_by_batch_size"):
        return
    if value < 2:  # noqa: PLR2004 - vLLM's own lower limit
        yield _refused(
            "disable_by_batch_size_low",
            f"disable_by_batch_size = {value} must be 2 or more",
            "set it to 2 or more, or leave it out",
        )
    elif not case.engine_v0:
        yield Remark(
            "disable_by_batch_size_ignored",
            "changed",
            "disable_by_batch_size is taken and never read by the V1 engine: it speculates at every batch size",
            "leave it out; num_speculative_tokens_per_batch_size does this in vLLM 0.24.0 and later",
        )


RULES: tuple[Rule, ...] = (
    given_twice,
    tokens,
    model,
    lookup,
    method_without_drafter,
    suffix,
    draft_parallel,
    metrics_flag,
    key_of_another_method,
    disable_by_batch_size,
)
