"""vLLM's log lines that matter to a comparison of two servers, in one typed list.

The words were read in vLLM 0.32.0's source (`config/vllm.py`, `config/speculative.py`, `config/compilation.py`,
`v1/worker`, `v1/spec_decode`, `v1/sample`); where older releases used others, both are matched. Nothing is matched for
being called an error: only what is listed here is a warning.
"""

import re
from dataclasses import dataclass

from draftworth.engines.base import LogWarning
from draftworth.engines.vllm.log_lines import Line

ASYNC_SCHEDULING_OFF = "async_scheduling_off"
RUNNER_V1 = "runner_v1"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line.

    Attributes:
        code: stable name.
        pattern: matched at the beginning of the message.
        advice: what to do, in one sentence.
        confounds: in one arm only, it is a second difference between the arms.
        anywhere: the line does not come from vLLM's own logger.
    """

    code: str
    pattern: re.Pattern[str]
    advice: str
    confounds: bool = False
    anywhere: bool = False


def _rule(code: str, pattern: str, advice: str, *, confounds: bool = False, anywhere: bool = False) -> Rule:
    return Rule(code, re.compile(pattern), advice, confounds, anywhere)


RULES: tuple[Rule, ...] = (
    _rule(
        ASYNC_SCHEDULING_OFF,
        r"Async(?:hronous)? scheduling .*(?:will be disabled|is disabled|has been disabled|is not supported)",
        "the scheduler no longer overlaps with the model; compare with a baseline under --no-async-scheduling",
        confounds=True,
    ),
    _rule(
        "sampling_params_ignored",
        r"(?:min_p|logit_bias|min_tokens)\b.* parameters won't (?:currently )?work with speculative decoding",
        "requests that set these parameters get different text from this server; do not send them",
    ),
    _rule(
        RUNNER_V1,
        r"Model Runner V2 (?:requires|does not yet support) .*; using the V1 model runner instead",
        "the two runners differ in speed and in how they draft; VLLM_USE_V2_MODEL_RUNNER=0 gives both arms the V1",
        confounds=True,
    ),
    _rule(
        "engine_v0",
        r".*(?:is|are) not supported by the V1 Engine\. Falling back to V0",
        "this server runs another engine than V1; leave out what the line names, or use a newer vLLM",
        confounds=True,
    ),
    _rule(
        "scheduler_limits_changed",
        r"max_num_scheduled_tokens is set to \d+ based on the speculative decoding settings",
        "prompts may be read in smaller pieces; give both arms the same, larger --max-num-batched-tokens",
        confounds=True,
    ),
    _rule(
        "eager",
        r"Enforce eager set|TORCH_COMPILE_DISABLE is set|CUDA graph is not supported for .* fallback to eager",
        "this server runs without torch.compile or CUDA graphs; give both arms the same mode",
        confounds=True,
    ),
    _rule(
        "cuda_graphs_lowered",
        r".*(?:Overriding cudagraph_mode|[Ss]etting cudagraph_mode|disabling cudagraph_mode|cudagraph_mode will be set)"
        r"|Cudagraph mode .* Overriding to|.*Disabling CUDA Graphs since"
        r"|Skipping (?:encoder and decoder )?CUDA graph|.*does not support cudagraphs?\b|Cudagraph is disabled",
        "fewer steps run as CUDA graphs; give both arms the same compilation_config.cudagraph_mode to see its share",
        confounds=True,
    ),
    _rule(
        "cuda_graph_sizes_changed",
        r"Truncating max_cudagraph_capture_size|cudagraph_capture_sizes specified in .* is overridden"
        r"|Overriding max cuda graph capture size",
        "larger batches run without CUDA graphs; set the same capture sizes in both arms",
        confounds=True,
    ),
    _rule(
        "kv_cache_manager_changed",
        r"Turning off hybrid kv cache manager|Hybrid KV cache manager is disabled",
        "the KV cache holds fewer tokens; compare arms that both have it off",
        confounds=True,
    ),
    _rule(
        "speculation_off",
        r"(?:.* )?[Ss]peculative [Dd]ecoding (?:is|was|will be|has been) (?:disabled|ignored|turned off|switched off)"
        r"|(?:Disabling|Ignoring|Turning off) (?:the )?speculative (?:decoding|config)",
        "the server does not speculate though it was asked to; this arm measures no speculation",
    ),
    _rule(
        "speculation_changed",
        r"Dynamic speculative decoding is not supported with data parallelism"
        r"|Defaulted num_speculative_tokens to|method `.*` is deprecated and replaced with"
        r"|.* cannot currently be run with tp>1; setting speculative_draft_tensor_parallel_size"
        r"|Overriding draft model max",
        "the server speculates in another way than asked; write the value it names into the speculative configuration",
    ),
    _rule(
        "speculation_degraded",
        r"Enabling num_speculative_tokens > 1 will run multiple times"
        r"|.*Proceeding with text-only speculative decoding|Draft model .* using text-only draft inputs"
        r"|Attention backend\(s\) .* cannot update draft decode metadata"
        r"|Missing cached draft probabilities|.* draft attention .*running the draft eagerly"
        r"|Speculative decoding \(method=.*no KV cache group|EAGLE trailing prefix-cache block dropping is disabled",
        "drafts cost more or are accepted less often than this method can do; the line says why",
    ),
    _rule(
        "openmp_missing",
        r"Speculative decoding on CPU without Intel OpenMP",
        "put libiomp5.so into LD_PRELOAD of both arms; without it verifying drafts is slow on a CPU",
    ),
    _rule(
        "preload_missing",
        r"lib\w+ is not found in LD_PRELOAD",
        "put the library into LD_PRELOAD of both arms, as vLLM's installation page for CPUs says",
        confounds=True,
    ),
    _rule(
        "compile_cache_unusable",
        r"(?:\[[\w-]+\] )?(?:Compiling model again due to a load failure|unable to save AOT compiled function)",
        "each start compiles again and takes longer; VLLM_USE_AOT_COMPILE=0 avoids the failing cache",
    ),
    _rule(
        "compiled_while_serving",
        r"(?:Triton|CuTeDSL|TileLang|\w+) [\w ]*compilation during inference|.*torch\._dynamo hit config\.\w+_limit",
        "compiling stopped requests for a moment; warm up with more prompts and measure again",
        anywhere=True,
    ),
)


def warning_in(line: Line) -> LogWarning | None:
    """Return the warning a line is, or None."""
    for rule in RULES:
        if (rule.anywhere or line.level) and rule.pattern.match(line.message):
            return LogWarning(code=rule.code, line=line.message, advice=rule.advice, confounds=rule.confounds)
    return None
