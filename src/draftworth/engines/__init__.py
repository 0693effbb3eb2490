"""What an engine takes and tells. One file or package an engine; this registry names them."""

import importlib
from typing import TYPE_CHECKING, cast

from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

_ENGINES = {
    "vllm": ("draftworth.engines.vllm", "VLLM"),
    "sglang": ("draftworth.engines.sglang", "SGLang"),
    "llamacpp": ("draftworth.engines.llamacpp", "LlamaCpp"),
    "trtllm": ("draftworth.engines.trtllm", "TensorRTLLM"),
}

CHOICES: tuple[str, ...] = tuple(_ENGINES)
"""Every engine's name, the most used first."""


def engine(name: str) -> "Engine":
    """Return a new adapter of the named engine; its module is imported only now.

    Raises:
        UsageError: no engine has this name.
    """
    if name not in _ENGINES:
        raise UsageError(f"unknown engine {name!r}: choose one of {', '.join(CHOICES)}")
    module, attribute = _ENGINES[name]
    return cast("Engine", getattr(importlib.import_module(module), attribute)())
