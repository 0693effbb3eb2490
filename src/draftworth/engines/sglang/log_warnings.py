"""SGLang's log lines that matter to a comparison of two servers, in one typed list.

The words were read in the releases 0.4.6 to 0.5.23 (`server_args.py`, from 0.5.13 on `arg_groups/*_hook.py`,
`speculative/*_info.py`, `speculative/adaptive_spec_params.py`).
"""

import re
from dataclasses import dataclass

from draftworth.engines.base import LogWarning

OVERLAP_OFF = "overlap_schedule_off"
REQUESTS_LIMITED = "max_running_requests_changed"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line.

    Attributes:
        code: stable name.
        pattern: matched at the beginning of the message.
        advice: what to do, in one sentence.
        confounds: in one arm only, it is a second difference between the arms.
        at_start: SGLang says it while it reads its arguments, before it prints them.
    """

    code: str
    pattern: re.Pattern[str]
    advice: str
    confounds: bool = False
    at_start: bool = False


def _rule(code: str, pattern: str, advice: str, *, confounds: bool = False, at_start: bool = False) -> Rule:
    return Rule(code, re.compile(pattern), advice, confounds, at_start)


RULES: tuple[Rule, ...] = (
    _rule(
        OVERLAP_OFF,
        r"Overlap schedule(?:r is disabled (?:because of using|when)| is not implemented)"
        r"|The overlap scheduler and mixed chunked prefill are disabled"
        r"|Spec v1 is used for|Non-overlap \(synchronous\) spec v2 is used",
        "the scheduler no longer overlaps with the model; compare with a baseline under --disable-overlap-schedule",
        confounds=True,
        at_start=True,
    ),
    _rule(
        REQUESTS_LIMITED,
        r"Max running requests is reset to \d+ for speculative decoding",
        "larger loads queue; give both arms the same --max-running-requests",
        confounds=True,
        at_start=True,
    ),
    _rule(
        "mixed_chunk_off",
        r"(?:The )?[Mm]ixed chunked prefill (?:is|are) disabled",
        "prompts and decoding no longer share a step; leave --enable-mixed-chunk out of both arms",
        confounds=True,
        at_start=True,
    ),
    _rule(
        "draft_width_changed",
        r"speculative_num_draft_tokens is (?:adjusted|set) to|speculative_eagle_topk is adjusted to"
        r"|speculative_num_draft_tokens is not set; defaulting|\w+ only supports speculative_\w+ == 1; overriding"
        r"|DSpark gamma is not set",
        "the server drafts in another width than asked; write the value it names into the arm",
        at_start=True,
    ),
    _rule(
        "adaptive_off",
        r"speculative_adaptive disabled",
        "the number of draft steps stays fixed; the line says why",
        at_start=True,
    ),
    _rule(
        "draft_path_needless",
        r"DeepSeek MTP does not require setting speculative_draft_model_path",
        "the model brings its own draft; leave draft_model_path out unless another draft is meant",
        at_start=True,
    ),
    _rule(
        "greedy_verification",
        r"Tree speculative sampling kernel unavailable",
        "requests with a temperature get the most likely tokens from this server; compare greedy requests only",
        confounds=True,
    ),
    _rule(
        "cuda_graph_off",
        r"Cuda graph (?:and server warmup are|is) disabled|CUDA graph is disabled|Disable cuda graph",
        "this server runs without CUDA graphs; give both arms the same",
        confounds=True,
    ),
    _rule(
        "attention_backend_chosen",
        r"Attention backend not (?:set|explicitly specified|specified)[.,] (?:Use|Falling back)",
        "SGLang chose the attention backend; set --attention-backend in both arms to be sure that they share it",
    ),
    _rule(
        "page_size_changed",
        r"[\w -]+ only supports? (?:a )?page[_ ]size .*chang(?:ing|e) page_size|Setting page size to \d+",
        "the KV cache is cut in other pieces; give both arms the same --page-size",
        confounds=True,
    ),
    _rule(
        "radix_cache_off",
        r"(?:Radix cache is disabled|Automatically disabling radix cache|Disabling Radix Cache)",
        "prompts are no longer shared; give both arms the same",
        confounds=True,
    ),
)


def warning_in(message: str) -> tuple[LogWarning, Rule] | None:
    """Return the warning a line of SGLang's own logger is with its rule, or None."""
    for rule in RULES:
        if rule.pattern.match(message):
            return LogWarning(code=rule.code, line=message, advice=rule.advice, confounds=rule.confounds), rule
    return None
