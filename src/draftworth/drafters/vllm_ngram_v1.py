"""vLLM's n-gram drafter on its first model runner: the earliest occurrence of the longest n-gram that has one.

Read from vLLM 0.32.0, vllm/v1/spec_decode/ngram_proposer.py, and its defaults from vllm/config/speculative.py. The
draft is what followed, so it is shorter than k where the occurrence lies close to the end. Overlap of the occurrence
with the end of the context is allowed. A context without an occurrence gets no draft and its step carries one token.
"""

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.windows import Rules, VLLMNgram, continuation


class VLLMNgramV1(VLLMNgram):
    """`vllm-ngram-v1`."""

    name = "vllm-ngram-v1"
    title = "vLLM's n-gram on model runner V1: earliest match, drafts of at most k tokens"
    always_verifies = False
    source = "vLLM 0.32.0, vllm/v1/spec_decode/ngram_proposer.py"
    rules = Rules(latest=False)


def draft(context: NDArray[np.int32], setting: Setting, limits: Limits) -> NDArray[np.int32]:
    """Return the draft that the engine's drafter makes for one context; empty where it makes none.

    At most max_model_len less the context's length; the scheduler then drops one token more, which `session` counts.

    Args:
        context: int32, the request's prompt and output so far.
        setting: k, min and max.
        limits: max_model_len.
    """
    found = continuation(context, setting, latest=False)
    if limits.max_model_len is None:
        return found
    return found[: max(0, limits.max_model_len - len(context))]
