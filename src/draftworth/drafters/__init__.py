"""The exact algorithms engines draft with, as compiled kernels, and their replay over traces.

One file an algorithm; this registry names them. The modules are imported only when they are used (numba is slow to).
"""

import importlib
from typing import TYPE_CHECKING, cast

from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.drafters.base import Drafter

_DRAFTERS = {
    "vllm-ngram-v1": ("draftworth.drafters.vllm_ngram_v1", "VLLMNgramV1"),
    "vllm-ngram-v2": ("draftworth.drafters.vllm_ngram_v2", "VLLMNgramV2"),
    "vllm-suffix": ("draftworth.drafters.vllm_suffix", "VLLMSuffix"),
    "sglang-ngram": ("draftworth.drafters.sglang_ngram", "SGLangNgram"),
    "llamacpp-ngram-simple": ("draftworth.drafters.llamacpp_ngram_simple", "LlamaCppNgramSimple"),
    "llamacpp-ngram-map-k": ("draftworth.drafters.llamacpp_ngram_map", "LlamaCppNgramMapK"),
    "llamacpp-ngram-map-k4v": ("draftworth.drafters.llamacpp_ngram_map", "LlamaCppNgramMapK4V"),
    "llamacpp-ngram-mod": ("draftworth.drafters.llamacpp_ngram_mod", "LlamaCppNgramMod"),
    "llamacpp-ngram-cache": ("draftworth.drafters.llamacpp_ngram_cache", "LlamaCppNgramCache"),
    "hf-prompt-lookup": ("draftworth.drafters.hf_prompt_lookup", "HFPromptLookup"),
}

CHOICES: tuple[str, ...] = tuple(_DRAFTERS)
"""Every drafter's name, vLLM's first."""


def drafter(name: str) -> "Drafter":
    """Return the named drafter; its module is imported only now.

    Raises:
        UsageError: no drafter has this name.
    """
    if name not in _DRAFTERS:
        raise UsageError(f"unknown drafter {name!r}: choose one of {', '.join(CHOICES)}")
    module, attribute = _DRAFTERS[name]
    return cast("Drafter", getattr(importlib.import_module(module), attribute)())
