"""Names of speculative methods as engines write them, and what they have in common."""

_MODELS = frozenset(
    {
        "eagle",
        "eagle2",
        "eagle3",
        "medusa",
        "mtp",
        "draft_model",
        "dflash",
        "dspark",
        "mlp_speculator",
        "uno",
        "pard",
        "redrafter",
    }
)
"""Families whose drafts come from a trained model: no other family's acceptance says anything of them."""
_SAME = {
    "nextn": "mtp",  # SGLang
    "standalone": "draft_model",  # SGLang
    "draft": "draft_model",  # llama.cpp until May 2026
    "simple": "draft_model",  # llama.cpp: draft-simple
    "target": "draft_model",  # TensorRT-LLM: Draft_Target
    "drafttarget": "draft_model",
    "[ngram]": "ngram",
}


def family(method: str) -> str:
    """Return what a method is, whatever an engine calls it; empty for none.

    vLLM names MTP by the model it is of (`deepseek_mtp`, `qwen3_next_mtp`, about 25 of them) and takes each for `mtp`;
    SGLang's NEXTN is MTP and its STANDALONE a draft model; llama.cpp puts `draft-` before what drafts with a model.
    """
    plain = method.strip().lower().replace("-", "_")
    if plain not in _MODELS:
        plain = plain.removeprefix("draft_")
    if plain.endswith("_mtp"):
        return "mtp"
    return _SAME.get(plain, plain)


def is_head(method: str) -> bool:
    """Whether a method's drafts come from a trained model, a draft model included."""
    return family(method) in _MODELS
