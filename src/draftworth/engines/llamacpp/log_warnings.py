"""llama.cpp's log lines that matter to a comparison of two servers, in one typed list.

The words were read in 11434 (`tools/server/server-context.cpp`, `common/speculative.cpp`, `common/arg.cpp`); where 9093
had others both are matched. Nothing is matched for its level: only what is listed here is a warning.
"""

import re
from dataclasses import dataclass

from draftworth.engines.base import LogWarning
from draftworth.engines.llamacpp.log_lines import Line

SPECULATION_OFF = "speculation_off"
SYNTHETIC = "synthetic_acceptance"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line.

    Attributes:
        code: stable name.
        pattern: searched in the message.
        advice: what to do, in one sentence.
        confounds: in one arm only, it is a second difference between the arms.
    """

    code: str
    pattern: re.Pattern[str]
    advice: str
    confounds: bool = False


def _rule(code: str, pattern: str, advice: str, *, confounds: bool = False) -> Rule:
    return Rule(code, re.compile(pattern), advice, confounds)


RULES: tuple[Rule, ...] = (
    _rule(
        SPECULATION_OFF,
        r"failed to initialize speculative decoding context|speculative decoding not supported by this context"
        r"|speculative decoding is not supported|no implementations specified for speculative decoding"
        r"|draft model is not specified - cannot use",
        "the server serves without speculation though it was asked to; this arm measures none",
    ),
    _rule(
        "draft_vocabulary",
        r"draft model (?:vocab|bos|eos)\b.* must|target and draft vocabs are not compatible"
        r"|draft model .*is not compatible with the target model",
        "the draft model was made for another vocabulary; take one of the same model family",
    ),
    _rule(
        SYNTHETIC,
        r"synthetic (?:speculative )?acceptance (?:is enabled|draft limit was reduced)",
        "drafts are accepted at a configured rate and the text is meaningless; use such a server only for what-ifs",
    ),
    _rule(
        "draft_failing",
        r"failed to (?:decode draft batch|process speculative batch)|llama_process(?:\[\d+\]|\(ctx_dft\)[^:]*)? "
        r"(?:returned|failed)|process\(\) did not run on every prefill ubatch|backend offload failed for seq_id"
        r"|target embeddings of size \d+ do not fit",
        "drafts fail, or are made without all they need, so fewer are accepted than this method can do",
    ),
    _rule(
        "draft_length_changed",
        r"exceeds the trained block size \d+ -- clamping|draft size \d+ exceeds max \d+, truncating",
        "fewer tokens are drafted than asked for; ask for what the line names",
    ),
    _rule(
        "ngram_mod_short",
        r"ngram_mod n_match=\d+ is too small",
        "so short a match drafts much that is refused; --spec-ngram-mod-n-match 16 or more is what llama.cpp advises",
    ),
    _rule(
        "ngram_mod_reset",
        r"ngram_mod occupancy [\d.]+ exceeds threshold",
        "the drafter forgot what it had seen, so later requests are drafted worse; look at them apart",
    ),
    _rule(
        "checkpoints",
        r"speculative decoding will use checkpoints",
        "after a draft that was refused in part the rest is verified again: such a draft costs two steps",
    ),
    _rule(
        "feature_disabled",
        r"(?:ctx_shift|cache_reuse|swa_full|\S+) is not supported by .*, it will be disabled",
        "give both arms the same: without it in both, or with a model that has it in both",
        confounds=True,
    ),
    _rule(
        "context_capped",
        r"the slot context \(\d+\) exceeds the training context of the model \(\d+\) - capping"
        r"|capping per-slot context",
        "give both arms the same --ctx-size, within what the model was trained for",
        confounds=True,
    ),
    _rule(
        "kv_cache_full",
        r"failed to find free space in the KV cache",
        "requests wait for the cache, and times are those of a full server; raise --ctx-size or lower the load",
    ),
    _rule(
        "argument_twice",
        r"DEPRECATED: argument '.*' specified multiple times",
        "only the last value counts; write the flag once",
        confounds=True,
    ),
    _rule(
        "draft_on_cpu",
        r"no usable GPU found, --gpu-layers-draft option will be ignored",
        "the draft model runs on the processor; build llama.cpp with GPU support",
    ),
)


def warning_in(line: Line) -> LogWarning | None:
    """Return the warning a line is, or None."""
    for rule in RULES:
        if rule.pattern.search(line.message):
            return LogWarning(code=rule.code, line=line.message, advice=rule.advice, confounds=rule.confounds)
    return None
