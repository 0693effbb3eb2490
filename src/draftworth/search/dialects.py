"""How each engine names what a grid is made of, as data: a new engine is one entry.

Names are those an arm's `speculative_config` takes: of vLLM's `config/speculative.py` (0.32), of SGLang's
`--speculative-…` flags without their beginning (0.5), and of llama.cpp's `--spec-…` flags (docs/engines.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftworth.errors import UsageError


@dataclass(frozen=True, slots=True)
class Dialect:
    """An engine's names.

    Attributes:
        bare: a command that flags can be added to, whatever the service's own looks like.
        method: the key that chooses the method.
        example: a value of it.
        ks: keys that say how many tokens a step drafts, and what of their value is no draft (SGLang's
            `num_draft_tokens` counts the token that is verified anyway); the first that is set counts.
        short: whether `k` may stand for the first of `ks`.
        low: key of the shortest n-gram looked up; empty where there is none.
        high: key of the longest.
        window: both, where neither is set; with one of them the other is the same.
        lookups: methods that look n-grams up, and need `ks`.
        heads: methods that load a checkpoint, to the key that names it.
    """

    bare: tuple[str, ...]
    method: str
    example: str
    ks: tuple[tuple[str, int], ...]
    heads: Mapping[str, str]
    short: bool = False
    low: str = ""
    high: str = ""
    window: int | None = None
    lookups: frozenset[str] = frozenset()

    def k_of(self, config: Mapping[str, Any]) -> int | None:
        """Return how many tokens a configuration drafts a step at most; None where it does not say."""
        value, root = next(((config[key], root) for key, root in self.ks if key in config), (None, 0))
        return value - root if isinstance(value, int) and not isinstance(value, bool) else None


_VLLM_HEADS = ("draft_model", "eagle", "eagle3", "medusa", "dflash")
_SGLANG_HEADS = ("STANDALONE", "EAGLE", "EAGLE3")
_LLAMACPP_HEADS = ("draft-simple", "draft-eagle3")

DIALECTS: Mapping[str, Dialect] = {
    "vllm": Dialect(
        bare=("vllm", "serve", "model"),
        method="method",
        example="ngram",
        ks=(("num_speculative_tokens", 0),),
        short=True,
        low="prompt_lookup_min",
        high="prompt_lookup_max",
        window=5,
        lookups=frozenset({"ngram", "ngram_gpu"}),
        heads=dict.fromkeys(_VLLM_HEADS, "model"),
    ),
    "sglang": Dialect(
        bare=("python", "-m", "sglang.launch_server", "--model-path", "model"),
        method="algorithm",
        example="NGRAM",
        ks=(("num_draft_tokens", 1), ("num_steps", 0)),
        heads=dict.fromkeys(_SGLANG_HEADS, "draft_model_path"),
    ),
    "llamacpp": Dialect(
        bare=("llama-server", "-m", "model.gguf"),
        method="type",
        example="ngram-simple",
        ks=(("n_max", 0), ("size_m", 0)),
        heads=dict.fromkeys(_LLAMACPP_HEADS, "model"),
    ),
}


def dialect_of(engine: str) -> Dialect:
    """Return an engine's names. Raises UsageError where it has no grid."""
    if engine not in DIALECTS:
        raise UsageError(
            f"there is no grid of {engine}, whose arms are files of options: write each as [[arms]]; the search weighs "
            "those too"
        )
    return DIALECTS[engine]
