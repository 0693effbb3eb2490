"""vLLM's n-gram drafter on its second model runner: the most recent occurrence of the longest n-gram that has one.

Read from vLLM 0.32.0, vllm/v1/worker/gpu/spec_decode/ngram/speculator.py. Every draft has k tokens: places behind the
end of the context, and all of them where nothing matches, hold the last sampled token. They are verified as any other
and may be accepted (`the the the`, runs of spaces).
"""

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.windows import Rules, VLLMNgram, continuation


class VLLMNgramV2(VLLMNgram):
    """`vllm-ngram-v2`."""

    name = "vllm-ngram-v2"
    title = "vLLM's n-gram on model runner V2: most recent match, always k tokens, padded"
    always_verifies = True
    source = "vLLM 0.32.0, vllm/v1/worker/gpu/spec_decode/ngram/speculator.py"
    rules = Rules(latest=True, padded=True)


def draft(context: NDArray[np.int32], setting: Setting, limits: Limits) -> NDArray[np.int32]:
    """Return the draft that the engine's drafter makes for one context, k tokens whatever its length.

    Args:
        context: int32, the request's prompt and output so far, at least one token.
        setting: k, min and max.
        limits: of no effect: the scheduler drops what would pass max_model_len, which `session` counts.
    """
    del limits
    found = continuation(context, setting, latest=True)
    padding = np.full(setting.k - len(found), context[-1], dtype=np.int32)
    return np.concatenate([found, padding])
