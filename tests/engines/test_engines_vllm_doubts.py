"""Which release gives which doubt. Every row names all releases it holds for, as read in vLLM's sources by hand."""

from typing import Any

import pytest

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.vllm.doubts import doubts

RELEASES = (
    "0.8.5",
    "0.9.2",
    "0.10.1.1",
    "0.10.2",
    "0.11.2",
    "0.14.1",
    "0.20.2",
    "0.24.0",
    "0.25.0",
    "0.28.0",
    "0.29.0",
    "0.32.0",
    "0.33.0",
)
ALL, NEVER = "0.8.5-", ""
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
EAGLE3 = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": "d", "num_speculative_tokens": 3}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 8}
DFLASH = {"method": "dflash", "model": "d", "num_speculative_tokens": 7}
DSPARK = {"method": "dspark", "model": "d", "num_speculative_tokens": 7}
MTP = {"method": "mtp", "num_speculative_tokens": 1}
SYNTHETIC = {**NGRAM, "rejection_sample_method": "synthetic"}
DYNAMIC = {**EAGLE3, "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1]]}


def arm(speculation: dict[str, Any] | None, flags: str = "", *, sampling: str = "", **env: str) -> Planned:
    return Planned(
        name="a",
        command=("vllm", "serve", "m", *flags.split()),
        env=env,
        speculation=speculation,
        sampling=frozenset(sampling.split()),
    )


def found(planned: Planned, version: str | None, **facts: object) -> dict[str, Doubt]:
    return {doubt.code: doubt for doubt in doubts(planned, StartupFacts.model_validate({"version": version, **facts}))}


def held(span: str) -> set[str]:
    """`0.9.2-0.14.1 0.33.0-` as a set of releases."""
    releases: set[str] = set()
    for part in span.split():
        first, dash, last = part.partition("-")
        start = RELEASES.index(first)
        stop = RELEASES.index(last or (RELEASES[-1] if dash else first))
        releases |= set(RELEASES[start : stop + 1])
    return releases


# code, severity where it holds, releases it holds for, the arm
REFUSED = [
    ("tokens_missing", ALL, arm({"method": "ngram"})),
    ("tokens_missing", NEVER, arm({"method": "suffix"})),  # the depth of its tree
    ("tokens_missing", ALL, arm({"method": "eagle3", "model": "d"})),
    ("tokens_missing", NEVER, arm({"model": "d"})),  # the draft's files may have n_predict
    ("tokens_not_positive", ALL, arm({**NGRAM, "num_speculative_tokens": 0})),
    ("tokens_not_positive", ALL, arm({**NGRAM, "num_speculative_tokens": -1})),
    ("tokens_not_positive", ALL, arm({**NGRAM, "num_speculative_tokens": "many"})),
    ("tokens_too_many", "0.9.2-0.10.2", arm({**NGRAM, "num_speculative_tokens": 33})),
    # From 0.32.0 on n-gram drafts on the V2 runner, which has no such limit.
    ("tokens_too_many", "0.9.2-0.29.0", arm({**NGRAM, "num_speculative_tokens": 129})),
    ("tokens_too_many", "0.9.2-", arm({**NGRAM, "num_speculative_tokens": 129}, VLLM_USE_V2_MODEL_RUNNER="0")),
    ("model_missing", ALL, arm({"method": "eagle3", "num_speculative_tokens": 3})),
    ("model_missing", "0.24.0-", arm({"method": "custom_class", "num_speculative_tokens": 3})),
    ("model_missing", NEVER, arm(MTP)),
    ("method_missing", ALL, arm({"num_speculative_tokens": 3})),
    ("lookup_min_above_max", ALL, arm({**NGRAM, "prompt_lookup_min": 5})),
    ("lookup_below_one", ALL, arm({**NGRAM, "prompt_lookup_min": 0})),
    ("draft_model_unsupported", "0.10.1.1-0.14.1", arm(DRAFT)),
    ("method_not_run", "0.10.1.1-0.32.0", arm({**EAGLE3, "method": "mlp_speculator"})),
    ("suffix_out_of_range", "0.11.2-", arm({**SUFFIX, "suffix_decoding_min_token_prob": 1.5})),
    ("suffix_out_of_range", "0.11.2-", arm({**SUFFIX, "suffix_decoding_max_tree_depth": 0})),
    ("draft_tp_key", "0.20.2-", arm({**DRAFT, "tensor_parallel_size": 2})),
    ("draft_tp_size", ALL, arm({**EAGLE3, "draft_tensor_parallel_size": 2}, "-tp 4")),
    ("draft_tp_size", ALL, arm({**EAGLE3, "draft_tensor_parallel_size": 2})),
    ("draft_tp_size", NEVER, arm({**EAGLE3, "draft_tensor_parallel_size": 1}, "--tensor-parallel-size=4")),
    # The V2 runner, which takes draft models from 0.32.0 on, does not compare the sizes.
    ("draft_tp_size", "0.20.2-0.29.0", arm({**DRAFT, "draft_tensor_parallel_size": 1}, "--tensor_parallel_size 4")),
    ("metrics_without_speculation", "0.29.0-", arm(None, "--per-request-spec-decode-metrics summary")),
    ("metrics_without_speculation", NEVER, arm(None, "--per-request-spec-decode-metrics=none")),
    ("metrics_without_speculation", NEVER, arm(NGRAM, "--per-request-spec-decode-metrics summary")),
    ("key_of_another_method", "0.25.0-", arm({**NGRAM, "use_heterogeneous_vocab": True})),
    ("key_of_another_method", "0.28.0-", arm({**EAGLE3, "dspark_draft_topk": 8})),
    ("key_of_another_method", "0.29.0-", arm({**NGRAM, "index_share_for_mtp_iteration": True})),
    ("key_of_another_method", "0.33.0", arm({**DRAFT, "draft_lm_head_quantization": "fp8"})),
    ("key_of_another_method", "0.28.0-0.29.0", arm({**EAGLE3, "enable_adaptive_verification": True})),
    (
        "heterogeneous_vocab_greedy",
        "0.25.0-",
        arm({**DRAFT, "use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"}),
    ),
    (
        "heterogeneous_vocab_argmax",
        "0.33.0",
        arm({**DRAFT, "use_heterogeneous_vocab": True, "use_local_argmax_reduction": True}),
    ),
    ("disable_by_batch_size_low", "0.8.5-0.14.1", arm({**NGRAM, "disable_by_batch_size": 1})),
    ("synthetic_without_method", "0.20.2-", arm({**NGRAM, "synthetic_acceptance_length": 2})),
    ("synthetic_incomplete", "0.20.2-", arm(SYNTHETIC)),
    ("synthetic_incomplete", NEVER, arm({**SYNTHETIC, "synthetic_acceptance_length": 2.5})),
    ("synthetic_out_of_range", "0.20.2-", arm({**SYNTHETIC, "synthetic_acceptance_length": 6.5})),
    ("synthetic_out_of_range", "0.20.2-", arm({**SYNTHETIC, "synthetic_acceptance_rates": [0.9, 0.8]})),
    ("synthetic_out_of_range", "0.20.2-", arm({**SYNTHETIC, "synthetic_acceptance_rates": [0.1, 0.2, 0, 0, 0]})),
    ("synthetic_out_of_range", NEVER, arm({**SYNTHETIC, "synthetic_acceptance_rates": [0.9, 0.5, 0.5, 0, 0]})),
    ("fly_window", "0.33.0", arm({**EAGLE3, "rejection_sample_method": "fly", "fly_window_size": 3})),
    ("adaptive_verification", "0.28.0-", arm({**DSPARK, "enable_adaptive_verification": True}, "--enable-lora")),
    ("adaptive_verification", "0.28.0-", arm({**DSPARK, "enable_adaptive_verification": True}, "-pp 2")),
    ("logits_processors", "0.11.2-0.29.0", arm(NGRAM, "--logits-processors mine:Processor")),
    ("async_scheduling_refused", "0.10.1.1-0.32.0", arm(NGRAM, "--async-scheduling")),
    ("async_scheduling_refused", "0.10.1.1-", arm(SUFFIX, "--async-scheduling")),
    ("async_scheduling_refused", "0.10.1.1-0.10.2", arm(EAGLE3, "--async-scheduling")),
    ("async_scheduling_refused", "0.10.1.1-0.14.1", arm(DRAFT, "--async-scheduling")),
    (
        "async_scheduling_refused",
        "0.10.1.1-0.32.0",
        arm({**EAGLE3, "disable_padded_drafter_batch": True}, "--async-scheduling"),
    ),
    ("runner_refused", "0.20.2-0.29.0", arm(NGRAM, VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", "0.20.2-", arm(SUFFIX, VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", "0.20.2", arm(DFLASH, VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", NEVER, arm(EAGLE3, VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", "0.20.2-0.29.0", arm(EAGLE3, "-pp 2", VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", "0.24.0-", arm({**EAGLE3, "parallel_drafting": True}, VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", "0.24.0", arm(DYNAMIC, VLLM_USE_V2_MODEL_RUNNER="1")),
    ("runner_refused", "0.25.0-", arm(DSPARK, VLLM_USE_V2_MODEL_RUNNER="0")),
    ("engine_v1_refused", "0.8.5-0.9.2", arm(DRAFT, VLLM_USE_V1="1")),
    ("engine_v1_refused", NEVER, arm(NGRAM, VLLM_USE_V1="1")),
    ("eagle_chunked_prefill", "0.8.5-0.9.2", arm(EAGLE3, "--enable-chunked-prefill", VLLM_USE_V1="0")),
    ("sampling_refused", "0.14.1-", arm(NGRAM, sampling="min_p")),
    ("sampling_refused", "0.14.1-", arm(NGRAM, sampling="logit_bias")),
    ("sampling_refused", "0.14.1", arm(NGRAM, sampling="min_tokens")),
    ("sampling_refused", "0.11.2", arm(EAGLE3, "--async-scheduling", sampling="structured_outputs")),
    ("sampling_refused", NEVER, arm(NGRAM, sampling="temperature top_p structured_outputs seed")),
    ("logprobs_refused", "0.28.0", arm({**DSPARK, "enable_adaptive_verification": True}, sampling="logprobs")),
    ("pipeline_parallel", "0.8.5", arm(NGRAM, "-pp 2")),
    ("pipeline_parallel", "0.8.5-0.9.2", arm(DRAFT, "-pp 2")),
    ("draft_length", ALL, arm({**EAGLE3, "max_model_len": 4096}, "--max-model-len 2048")),
    ("scheduler_limits", "0.20.2-0.25.0", arm(DRAFT, "--max-num-seqs 2048 --max-num-batched-tokens 2048")),
    ("capture_sizes", "0.14.1-", arm(NGRAM, "--cudagraph-capture-sizes 1 2 4")),
    ("speculation_twice", ALL, arm(NGRAM, "--speculative-config={}")),
]
UNKNOWN = [
    ("unknown_key", ALL, arm({**NGRAM, "num_spec_tokens": 5})),
    ("unknown_key", "0.8.5-0.25.0", arm({**NGRAM, "draft-sample-method": "greedy"})),
    ("unknown_key", "0.8.5-0.14.1", arm({**DRAFT, "parallel_drafting": True})),
    ("unknown_key", "0.20.2-", arm({**NGRAM, "disable_by_batch_size": 4})),
    ("unknown_key", "0.8.5 0.24.0-", arm({**EAGLE3, "speculative_token_tree": "[(0,)]"})),
    ("unknown_key", "0.10.1.1-", arm({**DRAFT, "acceptance_method": "rejection_sampler"})),
    ("unknown_key", "0.8.5-0.29.0", arm({**EAGLE3, "disable_eagle_block_drop": True})),
    ("unknown_key", "0.8.5-0.32.0", arm({**NGRAM, "fly_window_size": 2})),
    ("unknown_method", ALL, arm({**NGRAM, "method": "ngrm"})),
    ("unknown_method", "0.33.0", arm({**EAGLE3, "method": "medusa"})),
    ("unknown_method", "0.8.5-0.14.1", arm({**NGRAM, "method": "ngram_gpu"})),
    ("unknown_method", "0.8.5-0.10.2", arm(SUFFIX)),
    ("unknown_method", "0.8.5-0.10.2", arm(MTP)),
    ("unknown_method", "0.8.5", arm({**MTP, "method": "deepseek_mtp"})),
    ("unknown_method", "0.8.5-0.24.0", arm(DSPARK)),
    ("unknown_method", "0.8.5-0.14.1", arm(DFLASH)),
    ("unknown_method", "0.9.2-", arm({**NGRAM, "method": "[ngram]"})),
    ("unknown_choice", "0.24.0-", arm({**NGRAM, "rejection_sample_method": "strict"})),
    ("unknown_choice", "0.20.2", arm({**NGRAM, "rejection_sample_method": "standard"})),
    ("unknown_choice", "0.20.2-0.24.0", arm({**NGRAM, "rejection_sample_method": "block"})),
    ("unknown_choice", "0.24.0-", arm({**DRAFT, "draft_sample_method": "random"})),
    ("unknown_flag", ALL, arm(None, "--speculative-model d --num-speculative-tokens 5")),
    ("unknown_flag", "0.8.5-0.20.2", arm(None, "--spec-method ngram --spec-tokens 3")),
    ("unknown_flag", "0.8.5-0.28.0", arm(NGRAM, "--per_request_spec_decode_metrics summary")),
    ("unknown_flag", "0.8.5-0.9.2", arm(EAGLE3, "--async-scheduling")),
    ("pipeline_parallel", "0.8.5-0.14.1", arm(NGRAM, "--pipeline-parallel-size 2", VLLM_USE_V1="1")),
    ("lora", ALL, arm(NGRAM, "--enable-lora --max-loras 2")),
]
CHANGED = [
    ("engine_v0", "0.8.5", arm(NGRAM)),
    ("engine_v0", "0.8.5-0.9.2", arm(DRAFT)),
    ("engine_v0", NEVER, arm(DRAFT, VLLM_USE_V1="0")),  # the baseline is on V0 too
    ("engine_v0_without_speculation", "0.10.1.1-0.10.2", arm(NGRAM, VLLM_USE_V1="0")),
    ("engine_switch_ignored", "0.11.2-", arm(NGRAM, VLLM_USE_V1="0")),
    ("async_scheduling_off", "0.14.1-0.32.0", arm(NGRAM)),
    ("async_scheduling_off", "0.14.1-", arm(NGRAM, VLLM_USE_V2_MODEL_RUNNER="0")),
    ("async_scheduling_off", "0.14.1-", arm(SUFFIX)),
    ("async_scheduling_off", "0.14.1-0.25.0", arm(DRAFT)),
    ("async_scheduling_off", NEVER, arm(EAGLE3)),
    ("async_scheduling_off", NEVER, arm(NGRAM, "--no-async-scheduling")),
    ("async_scheduling_off", "0.14.1-0.32.0", arm({**EAGLE3, "disable_padded_drafter_batch": True})),
    ("runner_changes", "0.29.0", arm(NGRAM)),
    ("runner_changes", "0.29.0-", arm(SUFFIX)),
    ("lookup_one_size", ALL, arm({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4})),
    ("lookup_one_size", NEVER, arm(NGRAM)),
    ("key_unused", ALL, arm({**EAGLE3, "prompt_lookup_max": 4})),
    ("key_unused", "0.11.2-", arm({**NGRAM, "suffix_decoding_max_tree_depth": 4})),
    ("key_unused", ALL, arm({**NGRAM, "model": "d"})),
    ("disable_by_batch_size_ignored", "0.9.2-0.14.1", arm({**NGRAM, "disable_by_batch_size": 4})),
    ("synthetic_acceptance", "0.20.2-", arm({**SYNTHETIC, "synthetic_acceptance_length": 3})),
    ("lossy_verification", "0.33.0", arm({**EAGLE3, "rejection_sample_method": "fly"})),
    ("sampling_not_drafted", "0.9.2-0.11.2", arm(NGRAM, sampling="logprobs")),
    ("sampling_not_drafted", "0.8.5-0.11.2", arm(NGRAM, sampling="repetition_penalty", VLLM_USE_V1="1")),
    ("sampling_not_drafted", NEVER, arm(EAGLE3, sampling="logprobs")),
    ("sampling_ignored", "0.9.2-0.11.2", arm(NGRAM, sampling="logit_bias")),
    ("sampling_ignored", "0.11.2", arm(NGRAM, sampling="min_p")),
    ("sampling_ignored", "0.9.2-0.11.2", arm(EAGLE3, sampling="min_p")),
    ("sampling_ignored", "0.8.5", arm(NGRAM, sampling="guided_json", VLLM_USE_V1="1")),
    ("dynamic_tokens_off", "0.28.0-", arm(DYNAMIC, "--data-parallel-size 2")),
    ("dynamic_tokens_ranks", "0.24.0-0.25.0", arm(DYNAMIC, "-dp 2")),
    ("dynamic_tokens_off", "0.33.0", arm({**DYNAMIC, "method": "suffix"})),
    ("scheduler_limits", "0.20.2-0.25.0", arm(DRAFT, "--max-num-seqs 256 --max-num-batched-tokens 2048")),
    ("scheduler_limits", NEVER, arm(EAGLE3, "--max-num-seqs 256 --max-num-batched-tokens 2048")),
    ("scheduler_limits", "0.20.2-0.25.0 0.33.0", arm(DFLASH, "--max-num-seqs 256 --max-num-batched-tokens 2k")),
    # 0.25.0 keeps 6 x 64 or 6 x 40 tokens of a step, all 384 or 240 of 256; 0.33.0 runs 54 or 36 requests at once.
    ("scheduler_limits", "0.33.0", arm(DSPARK, "--max-num-seqs 64 --max-num-batched-tokens 384")),
    ("scheduler_limits", "0.25.0 0.33.0", arm(DSPARK, "--max-num-seqs 40 --max-num-batched-tokens 256")),
    ("draft_length", "0.11.2-0.29.0 0.33.0", arm({**DRAFT, "max_model_len": 1024}, "--max-model-len 2048")),
    ("capture_sizes", "0.11.2-", arm(NGRAM, "--cudagraph-capture-sizes 6 8 16")),
    ("capture_sizes", NEVER, arm(NGRAM, "--cudagraph-capture-sizes 6 12 18")),
]
COSTS = [
    ("full_graphs_lost", "0.11.2-0.29.0", arm(NGRAM)),
    ("full_graphs_lost", "0.11.2-", arm(NGRAM, VLLM_USE_V2_MODEL_RUNNER="0")),
    ("full_graphs_lost", NEVER, arm(NGRAM, "--enforce-eager")),
    ("ngram_padded", "0.32.0-", arm(NGRAM)),
    ("ngram_padded", NEVER, arm(NGRAM, VLLM_USE_V2_MODEL_RUNNER="0")),
    ("prefix_block_dropped", "0.9.2-0.32.0", arm(EAGLE3)),
    ("prefix_block_dropped", "0.9.2-", arm({**EAGLE3, "disable_lookahead_block_hashes": True})),
    ("prefix_block_dropped", "0.9.2-0.29.0", arm({**EAGLE3, "disable_eagle_block_drop": True})),
    ("prefix_block_dropped", NEVER, arm(EAGLE3, "--no-enable-prefix-caching")),
    ("prefix_block_dropped", "0.20.2-0.32.0", arm(DFLASH)),
    ("dynamic_tokens_piecewise", "0.24.0-", arm(DYNAMIC, VLLM_USE_V2_MODEL_RUNNER="0")),
    # 512 tokens of 6 a request are 85 requests.
    ("graph_reach", "0.9.2-", arm(NGRAM, "--max-num-seqs 86")),
    # 2 x 8 tokens of 6 a request are 2 requests; from 0.14.1 on the default counts the drafts too.
    ("graph_reach", "0.10.1.1-0.11.2", arm(NGRAM, "--max-num-seqs 8")),
    ("graph_reach", NEVER, arm(NGRAM, "--max-num-seqs 256 --enforce-eager")),
    ("capture_sizes", "0.11.2", arm(NGRAM, "--cudagraph-capture-sizes 1 2 4")),
]
NOTES = [
    ("suffix_needs_package", "0.11.2-", arm(SUFFIX)),
    ("method_renamed", "0.11.2-", arm({**MTP, "method": "deepseek_mtp"})),
    ("mtp_repeated", "0.11.2-", arm({**MTP, "num_speculative_tokens": 2})),
    ("mtp_repeated", NEVER, arm(MTP)),
    ("lookup_default", ALL, arm({"method": "ngram", "num_speculative_tokens": 5})),
    ("per_request_missing", "0.29.0-", arm(NGRAM, sampling="n")),
    ("runner_changes", "0.24.0-0.28.0", arm(NGRAM)),
    ("graph_reach", "0.9.2-", arm(NGRAM)),
]
ROWS = [
    (code, severity, span, planned)
    for severity, rows in (
        ("refused", REFUSED),
        ("unknown", UNKNOWN),
        ("changed", CHANGED),
        ("costs", COSTS),
        ("note", NOTES),
    )
    for code, span, planned in rows
]


@pytest.mark.parametrize(("code", "severity", "span", "planned"), ROWS)
def test_a_doubt_holds_for_the_releases_it_was_read_in_and_for_no_other(
    code: str, severity: str, span: str, planned: Planned
) -> None:
    given = {version: found(planned, version).get(code) for version in RELEASES}
    assert {version for version, doubt in given.items() if doubt and doubt.severity == severity} == held(span)
    for version, doubt in given.items():
        if doubt:
            assert all((doubt.what.strip(), doubt.fix.strip(), doubt.since)), version


def test_the_rows_cover_every_code_that_any_arm_here_brings_up() -> None:
    told: set[str] = set()
    for _, _, _, planned in ROWS:
        for version in RELEASES[::4]:
            told |= set(found(planned, version))
    assert told <= {code for code, *_ in ROWS}
    assert len({code for code, *_ in ROWS}) >= 50


def test_every_sampling_parameter_names_the_releases_of_its_own() -> None:
    planned = arm(NGRAM, sampling="min_p logit_bias min_tokens")
    given = doubts(planned, StartupFacts(version="0.14.1"))
    refused = {one.what.split(" set ")[1].split(" are ")[0]: one.since for one in given if "refused" in one.code}
    assert refused == {
        "min_p": "0.14.1 and later",
        "logit_bias": "0.14.1 and later",
        "min_tokens above 1": "0.14.1",
    }
    given = doubts(planned, StartupFacts(version="0.11.2"))
    ignored = {one.what.split()[2]: one.since for one in given if one.code == "sampling_ignored"}
    assert ignored == {"min_p": "0.11.2", "logit_bias": "0.9.2 to 0.11.2", "min_tokens": "0.9.2 to 0.11.2"}


def test_a_step_too_small_for_every_requests_draft_lowers_how_many_run() -> None:
    # 256 / 7 = 36.6; where the draft adds a query of its own 256 / 8 = 32.
    flags = "--max-num-seqs 64 --max-num-batched-tokens"
    said = found(arm(DSPARK, f"{flags} 256"), "0.33.0")["scheduler_limits"]
    assert said.severity == "changed"
    assert "at most 36 (32 with sample_from_anchor = false) requests run at once, not 64" in said.what
    assert "set --max-num-batched-tokens to 512 or more" in said.fix
    # 64 x 7 = 448 is enough for the usual layout alone.
    said = found(arm(DSPARK, f"{flags} 448"), "0.33.0")["scheduler_limits"]
    assert (said.severity, "(56 with sample_from_anchor = false)" in said.what) == ("note", True)
    assert "scheduler_limits" not in found(arm(DSPARK, f"{flags} 512"), "0.33.0")
    active = arm(DSPARK, f"{flags} 256 --max-num-active-seqs 32")
    assert "scheduler_limits" not in found(active, "0.33.0")
    said = found(arm(DFLASH, f"{flags} 256"), "0.33.0")["scheduler_limits"]
    assert "dflash needs 8 tokens a request in a step of 256: at most 32 requests run at once, not 64" in said.what
    assert found(arm(DFLASH, f"{flags} 8"), "0.33.0")["scheduler_limits"].severity == "refused"


def test_an_arm_that_asks_for_nothing_odd_has_nothing_refused_unknown_or_changed() -> None:
    plain = arm(EAGLE3, "--max-num-seqs 32", sampling="temperature top_p")
    for version in RELEASES[2:]:
        assert {doubt.severity for doubt in found(plain, version).values()} <= {"costs", "note"}, version
    for version in RELEASES:
        assert not found(arm(None), version)
