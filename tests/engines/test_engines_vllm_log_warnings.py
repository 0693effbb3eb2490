import pytest

from draftworth.engines.base import LogWarning
from draftworth.engines.vllm.log import VLLMLogReader

ASYNC_OFF = "Async scheduling not supported with ngram-based speculative decoding and will be disabled."
PREFIX = "(APIServer pid=1) WARNING 11-30 00:21:09 [vllm.py:1605] "


def told(text: str) -> tuple[LogWarning, ...]:
    reader = VLLMLogReader()
    reader.feed(text)
    return reader.facts().warnings


# The words of vLLM 0.32.0's source, and of older releases where they differ.
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (ASYNC_OFF, "async_scheduling_off"),
        (
            "Async scheduling is not compatible with disable_padded_drafter_batch=True and will be disabled.",
            "async_scheduling_off",
        ),
        (
            "Async scheduling will be disabled because it is not supported with the `x` distributed executor backend. ",
            "async_scheduling_off",
        ),
        (
            (
                "Async scheduling is disabled for ROCm DeepEP high-throughput DBO because that combination can corrupt "
                "DP+EP generation accuracy."
            ),
            "async_scheduling_off",
        ),
        (
            "Async scheduling is disabled because the V1 model runner does not support it with pipeline parallelism.",
            "async_scheduling_off",
        ),
        ("min_p and logit_bias parameters won't work with speculative decoding.", "sampling_params_ignored"),
        (
            "min_p, logit_bias, and min_tokens parameters won't currently work with speculative decoding enabled.",
            "sampling_params_ignored",
        ),
        ("Model Runner V2 requires Triton; using the V1 model runner instead.", "runner_v1"),
        ("Model Runner V2 does not yet support suffix decoding, DBO; using the V1 model runner instead.", "runner_v1"),
        (
            (
                "max_num_scheduled_tokens is set to 2048 based on the speculative decoding settings. This may lead to "
                "suboptimal performance."
            ),
            "scheduler_limits_changed",
        ),
        ("Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to -cc.mode=none", "eager"),
        (
            (
                "Dynamic speculative decoding changes the target verification length at runtime. Overriding "
                "cudagraph_mode from FULL_AND_PIECEWISE to PIECEWISE for reliability."
            ),
            "cuda_graphs_lowered",
        ),
        (
            (
                "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInfer "
                "(support: AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE"
            ),
            "cuda_graphs_lowered",
        ),
        ("Cudagraph mode FULL is not compatible with compilation mode 0. Overriding to NONE.", "cuda_graphs_lowered"),
        ("DeepEP: Disabling CUDA Graphs since DeepEP high-throughput kernels are optimized", "cuda_graphs_lowered"),
        (
            "Skipping CUDA graph capture. To turn on CUDA graph capture, ensure `cudagraph_mode` was not manually set",
            "cuda_graphs_lowered",
        ),
        ("Truncating max_cudagraph_capture_size to 510", "cuda_graph_sizes_changed"),
        (
            "cudagraph_capture_sizes specified in compilation_config [1, 2] is overridden by config [6]",
            "cuda_graph_sizes_changed",
        ),
        (
            (
                "Dynamic speculative decoding is not supported with data parallelism because data-parallel ranks can "
                "select different speculative-token counts, causing DP divergence and deadlocks."
            ),
            "speculation_changed",
        ),
        ("Defaulted num_speculative_tokens to 24 for suffix decoding.", "speculation_changed"),
        ("method `deepseek_mtp` is deprecated and replaced with mtp.", "speculation_changed"),
        (
            "mlp_speculator cannot currently be run with tp>1; setting speculative_draft_tensor_parallel_size=1",
            "speculation_changed",
        ),
        ("Overriding draft model max model len from 4096 to 2048", "speculation_changed"),
        (
            (
                "Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer,which may "
                "result in lower acceptance rate"
            ),
            "speculation_degraded",
        ),
        (
            (
                "Speculative Decoding with draft models or parallel drafting does not fully support multimodal models "
                "yet. Proceeding with text-only speculative decoding."
            ),
            "speculation_degraded",
        ),
        (
            "DFlash draft attention (X) does not support full CUDA graphs; running the draft eagerly.",
            "speculation_degraded",
        ),
        (
            (
                "Speculative decoding (method=eagle3) is enabled but no KV cache group could be identified as the "
                "draft model's."
            ),
            "speculation_degraded",
        ),
        (
            "Attention backend(s) X cannot update draft decode metadata in place; falling back to rebuilding metadata",
            "speculation_degraded",
        ),
        ("Speculative decoding is disabled because the batch is too large", "speculation_off"),
        ("Speculative Decoding is not supported by the V1 Engine. Falling back to V0. ", "engine_v0"),
        (
            "Turning off hybrid kv cache manager because `--kv-transfer-config` selects a KV connector",
            "kv_cache_manager_changed",
        ),
        ("libtcmalloc is not found in LD_PRELOAD. For best performance, please follow the section", "preload_missing"),
        ("[backbone] Compiling model again due to a load failure from /x, reason: y", "compile_cache_unusable"),
        ("Triton kernel JIT compilation during inference: _k. This causes a latency spike", "compiled_while_serving"),
    ],
)
def test_lines_that_matter_are_told_under_their_code(line: str, code: str) -> None:
    assert [(w.code, w.line) for w in told(f"{PREFIX}{line}\n")] == [(code, line.rstrip())]
    assert told(f"{PREFIX}{line}\n")[0].confounds == (
        code
        not in {
            "sampling_params_ignored",
            "speculation_changed",
            "speculation_degraded",
            "speculation_off",
            "compile_cache_unusable",
            "compiled_while_serving",
        }
    )


@pytest.mark.parametrize(
    "line",
    [
        (
            "Found ulimit of 20000 and failed to automatically increase with error current limit exceeds maximum "
            "limit. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`."
        ),
        "Disabling NCCL for DP synchronization when using async scheduling.",
        "Asynchronous scheduling is enabled.",
        f"Received request chatcmpl-1: prompt: '{ASYNC_OFF}'",
        "SpecDecoding metrics: Mean acceptance length: 2.29, Accepted throughput: 9.11 tokens/s",
    ],
)
def test_harmless_lines_are_no_warnings(line: str) -> None:
    assert told(f"{PREFIX}{line}\n") == ()


def test_a_repeated_warning_is_told_once_and_a_line_no_logger_wrote_is_no_warning() -> None:
    assert len(told(f"{PREFIX}{ASYNC_OFF}\n" * 3)) == 1
    assert told(f"{ASYNC_OFF}\n") == ()
