"""Which drafts vLLM can load, where a target keeps its MTP layers, and what changed between releases.

Read in the released packages of vLLM 0.25.0 and 0.32.0: `config/speculative.py`, `v1`, `model_executor/models`.
"""

import re
from collections.abc import Mapping

from draftworth.errors import UsageError
from draftworth.heads.architectures import READ, Release
from draftworth.heads.base import Method
from draftworth.heads.folder import Model

_RELEASE = re.compile(r"\s*v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")

ENGINES = ("vllm",)
"""Engines a head can be checked for."""

RAISES_POSITIONS: Release = (0, 32)
"""From here on vLLM raises an EAGLE draft's max_position_embeddings to the target's (vllm-project/vllm#48894).

0.25 does not; the releases between were not read.
"""
NOT_RAISED: Release = (0, 25)
"""The last release that was read and does not."""

DRAFTS: Mapping[Method, frozenset[str]] = {
    Method.EAGLE3: frozenset(
        [
            "PEagleDraftModel",
            "PeagleLlamaForCausalLM",
            "Eagle3LlamaForCausalLM",
            "Eagle3MiniMaxM2ForCausalLM",
            "LlamaForCausalLMEagle3",
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3Qwen3vlForCausalLM",
            "Eagle3Qwen3ForCausalLM",
            "PeagleQwen3ForCausalLM",
            "Eagle3DeepseekV2ForCausalLM",
            "Eagle3DeepseekV3ForCausalLM",
        ]
    ),
    Method.EAGLE: frozenset(
        [
            "EagleCohereForCausalLM",
            "EagleLlamaForCausalLM",
            "EagleLlama4ForCausalLM",
            "EagleMiniCPMForCausalLM",
            "EagleMistralForCausalLM",
            "EagleMistralLarge3ForCausalLM",
            "EagleDeepSeekMTPModel",
        ]
    ),
    Method.DFLASH: frozenset(
        [
            "DFlashDraftModel",
            "DFlash2DraftModel",
            "LiLiCorrDraftModel",
            "DFlashLagunaForCausalLM",
            "DFlashMuseGlimmerAssistantModel",
        ]
    ),
    Method.MEDUSA: frozenset({"MedusaModel"}),
}
"""Architectures of drafts in the registry of vLLM 0.32, by method (`model_executor/models/registry.py`)."""
NOT_IN_25 = frozenset({"DFlash2DraftModel", "LiLiCorrDraftModel", "DFlashMuseGlimmerAssistantModel"})
"""Those of them that the registry of 0.25 has not."""

LLAMA_EAGLE3 = frozenset(
    [
        "PEagleDraftModel",
        "PeagleLlamaForCausalLM",
        "Eagle3LlamaForCausalLM",
        "Eagle3MiniMaxM2ForCausalLM",
        "LlamaForCausalLMEagle3",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
    ]
)
"""Those that `llama_eagle3.py` loads."""
QWEN3_EAGLE3 = frozenset({"Eagle3Qwen3ForCausalLM", "PeagleQwen3ForCausalLM"})
"""Those that `qwen3_eagle3.py` loads."""
DEEPSEEK_EAGLE3 = frozenset({"Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"})
"""Those that `deepseek_eagle3.py` loads."""

_AFTER_LAYERS = "model.layers.{}."
_MTP_TYPES: Mapping[str, str | None] = {
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "pangu_ultra_moe"), _AFTER_LAYERS),
    **dict.fromkeys(("glm4_moe", "glm4_moe_lite", "step3p5", "hy_v3", "bailing_hybrid"), _AFTER_LAYERS),
    **dict.fromkeys(("nemotron_h", "nemotron_h_puzzle", "qwen3_next", "exaone_moe"), "mtp."),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), "mtp."),
    "mimo": "model.mtp_layers.",
    "longcat_flash": "model.mtp.",
    "ernie4_5_moe": "model.mtp_block.",
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash"), "model.mtp."),
    **dict.fromkeys(("deepseek_v4", "kimi_k3", "glm_ocr", "exaone4_5", "qwen4_exp", "qwen4_exp_text", "step3p7")),
    **dict.fromkeys(("intern_s2_preview", "interns2_mobius", "hy_v4", "inkling_mm_model", "inkling_model")),
    **dict.fromkeys(("minimax_m3_vl", "glm5_next", "dots3_note", "gemma4_assistant", "gemma4_unified_assistant")),
}
"""Model types with MTP in vLLM 0.32 (`SpeculativeConfig.hf_config_override`) and where their layers lie.

`{}` stands for the number of the first layer after the model's own. None: the names were not read.
"""
MTP_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Fields that tell how many MTP layers there are."""


_MTP_ARCHITECTURES: Mapping[str, str | None] = {
    "MiMoForCausalLM": "model.mtp_layers.",
    "MiMoV2FlashForCausalLM": "model.mtp.",
    **dict.fromkeys(("MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"), "model.mtp."),
    **dict.fromkeys(("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "Step3p5ForCausalLM"), _AFTER_LAYERS),
    **dict.fromkeys(("GlmOcrForConditionalGeneration", "Step3p7ForConditionalGeneration", "BailingMoeV3ForCausalLM")),
    **dict.fromkeys(("BailingMoeV2_5ForCausalLM", "BailingMoeV3VLForConditionalGeneration")),
    **dict.fromkeys(("MiniMaxM3SparseForConditionalGeneration", "NemotronH_Omni_Reasoning_V3")),
    "NemotronH_Super_Omni_Reasoning_V3": None,
}
"""The same by architecture, where vLLM goes by that."""


def mtp_place(model: Model) -> tuple[bool, str | None]:
    """Return whether vLLM has MTP for a model, and with what the names of its first MTP layer's tensors begin."""
    kinds = [str(one.get("model_type")) for one in (model.config, model.text.config)]
    architecture = model.architecture or ""
    if any(kind.endswith("_mtp") for kind in kinds) or "MTP" in architecture:
        return True, None  # a checkpoint of the MTP layers alone
    for known, names in ((_MTP_ARCHITECTURES, [architecture]), (_MTP_TYPES, kinds)):
        for name in names:
            if name in known:
                place, layers = known[name], model.text.number("num_hidden_layers")
                return True, None if place is None or layers is None else place.format(layers)
    return False, None


def dotted(release: Release) -> str:
    """Return a release as it is written: `0.32.0`."""
    return ".".join(map(str, release))


def release_of(version: str | None) -> Release:
    """Return a release as numbers; the one whose lists are known where none is told.

    Raises:
        UsageError: it begins with no `major.minor`.
    """
    if version is None:
        return READ[-1]
    found = _RELEASE.match(version)
    if found is None:
        raise UsageError(f"vLLM {version!r}: a release like 0.32.0 is expected")
    return tuple(int(part or 0) for part in found.groups())
