"""Which target architectures give auxiliary hidden states in vLLM, as data with the releases it was read from.

Read from the packages: the architectures of `model_executor/models/registry.py` whose class has `SupportsEagle3`
(`interfaces.py`) among its bases, directly or inherited. Architectures outside the registry are served by the
Transformers backend, whose classes support it too, but not for every model.
"""

from collections.abc import Mapping

Release = tuple[int, ...]

READ: tuple[Release, ...] = ((0, 25, 0), (0, 32, 0))
"""The releases of the lists, oldest first."""

_AUXILIARY_IN_BOTH = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM ColQwen3 ColQwen3_5 Cosmos3ForConditionalGeneration
    CwmForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
    DeepseekV4ForCausalLM Emu3ForConditionalGeneration Ernie4_5ForCausalLM Exaone4_5_ForConditionalGeneration
    GPTBigCodeForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration
    GlmForCausalLM GlmMoeDsaForCausalLM GptOssForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
    HunYuanVLForConditionalGeneration IQuestCoderForCausalLM InternLM3ForCausalLM
    InternS1ProForConditionalGeneration InternS2PreviewForConditionalGeneration KimiK25ForConditionalGeneration
    LLaMAForCausalLM LagunaForCausalLM LightOnOCRForConditionalGeneration Llama4ForCausalLM
    Llama4ForConditionalGeneration LlamaForCausalLM LlamaModel LlavaForConditionalGeneration MellumForCausalLM
    MiMoForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM
    MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration
    Ministral3ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM
    MistralModel NemotronHForCausalLM NemotronHPuzzleForCausalLM OpenCUAForConditionalGeneration
    OpsColQwen3Model Phi3ForCausalLM PixtralForConditionalGeneration Qwen2ForCausalLM Qwen2Model
    Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForConditionalGeneration SmolLM3ForCausalLM Starcoder2ForCausalLM Step1ForCausalLM
    TeleChat2ForCausalLM TeleChat3ForCausalLM TeleFLMForCausalLM TransformersForCausalLM
    TransformersMoEForCausalLM TransformersMultiModalForCausalLM TransformersMultiModalMoEForCausalLM
"""
_AUXILIARY_IN_32 = """
    ClefOmniForJointSchema Cohere2MoeForCausalLM CohereCompassForConditionalGeneration
    DeepseekV3BidirectionalModel DeepseekV41ForCausalLM DeepseekV4ForConditionalGeneration FlexOlmoForCausalLM
    GPTNeoXForCausalLM Glm5NextForCausalLM Glm5NextForConditionalGeneration GraniteForCausalLM
    GraniteSWAForCausalLM InternS2MobiusForConditionalGeneration Jais2ForCausalLM K2HorizonForCausalLM
    KimiK3ForConditionalGeneration KimiLinearForCausalLM MiMoV2OmniForCausalLM
    MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration MuseGlimmerForCausalLM
    MuseGlimmerForConditionalGeneration NanbeigeForCausalLM NemotronH_Nano_Omni_Reasoning_V3
    NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 Olmo2ForCausalLM
    Olmo3ForCausalLM OlmoForCausalLM PhiForCausalLM Plamo3ForCausalLM Qwen3ASRForConditionalGeneration
    Qwen3ASRForcedAlignerForTokenClassification Qwen3ASRRealtimeGeneration Qwen3OmniMoeForConditionalGeneration
    Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen4ExpForConditionalGeneration SarvamMLAForCausalLM
    SeedOssForCausalLM VaultGemmaForCausalLM VibeVoiceAsrForConditionalGeneration
"""
_AUXILIARY_IN_25 = """
    Fairseq2LlamaForCausalLM GritLM TeleChatForCausalLM
"""
_REGISTERED_IN_BOTH = """
    AXK1ForCausalLM AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM AriaForConditionalGeneration
    AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration BailingMoeForCausalLM
    BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM BeeForConditionalGeneration BertForTokenClassification
    BertModel Blip2ForConditionalGeneration BloomForCausalLM CLIPModel ChatGLMForConditionalGeneration
    ChatGLMModel Cohere2ForCausalLM Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration
    CohereAsrForConditionalGeneration CohereForCausalLM ColBERTJinaRobertaModel ColBERTLfm2Model
    ColBERTModernBertModel ColModernVBertForRetrieval ColPaliForRetrieval ColQwen3 ColQwen3_5
    Cosmos3ForConditionalGeneration CwmForCausalLM DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM
    DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM
    DeepseekV3ForCausalLM DeepseekV4ForCausalLM DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion
    DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration Emu3ForConditionalGeneration Ernie4_5ForCausalLM
    Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM
    Exaone4_5_ForConditionalGeneration ExaoneForCausalLM ExaoneMoEForCausalLM ExtractHiddenStatesModel
    FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM FireRedASR2ForConditionalGeneration
    FlexOlmoForCausalLM FunASRForConditionalGeneration FunAudioChatForConditionalGeneration GLM4VForCausalLM
    GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM GPTNeoXForCausalLM Gemma2ForCausalLM Gemma2Model
    Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3TextModel Gemma3nForCausalLM
    Gemma3nForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM
    Glm4MoeLiteForCausalLM Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    GlmAsrForConditionalGeneration GlmForCausalLM GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration
    GptOssForCausalLM Granite4VisionForConditionalGeneration GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM GraniteSpeechForConditionalGeneration
    GraniteSpeechPlusForConditionalGeneration GteModel GteNewModel H2OVLChatModel HCXVisionV2ForCausalLM
    HF_ColBERT HYV3ForCausalLM HfMoondream HrmTextForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
    HunYuanVLForConditionalGeneration HyperCLOVAXForCausalLM IQuestCoderForCausalLM IQuestLoopCoderForCausalLM
    Idefics3ForConditionalGeneration InternLM2ForCausalLM InternLM2ForRewardModel InternLM3ForCausalLM
    InternS1ForConditionalGeneration InternS1ProForConditionalGeneration InternS2PreviewForConditionalGeneration
    InternVLChatModel InternVLForConditionalGeneration IsaacForConditionalGeneration Jais2ForCausalLM
    JambaForCausalLM JinaForRanking JinaVLForRanking KananaVForConditionalGeneration
    KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration KimiK25ForConditionalGeneration
    KimiLinearForCausalLM KimiVLForConditionalGeneration LLaMAForCausalLM LagunaForCausalLM Lfm2ForCausalLM
    Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration Llama4ForCausalLM
    Llama4ForConditionalGeneration LlamaBidirectionalModel LlamaForCausalLM LlamaModel LlamaNemotronVLModel
    Llama_Nemotron_Nano_VL LlavaForConditionalGeneration LlavaNextForConditionalGeneration
    LlavaNextVideoForConditionalGeneration LlavaOnevision2ForConditionalGeneration
    LlavaOnevisionForConditionalGeneration LongcatFlashForCausalLM MLPSpeculatorPreTrainedModel
    Mamba2ForCausalLM MambaForCausalLM MellumForCausalLM MiDashengLMModel MiMoForCausalLM MiMoV2FlashForCausalLM
    MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MiniCPMV
    MiniCPMV4_6ForConditionalGeneration MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM
    MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM Mistral3ForConditionalGeneration
    MistralForCausalLM MistralLarge3ForCausalLM MistralModel MixtralForCausalLM ModernBertForTokenClassification
    ModernBertModel Molmo2ForConditionalGeneration MolmoForCausalLM Moondream3ForCausalLM
    MoonshotKimiaForCausalLM MossAudioModel MossTranscribeDiarizeForConditionalGeneration NVLM_D
    NemotronForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3
    NemotronH_Nano_VL_V2 NemotronH_Super_Omni_Reasoning_V3 NemotronParseForConditionalGeneration NomicBertModel
    OPTForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM
    OpenAIPrivacyFilterForTokenClassification OpenCUAForConditionalGeneration
    OpenPanguVLForConditionalGeneration OpenVLAForActionPrediction OpsColQwen3Model OrionForCausalLM Ovis
    Ovis2_5 Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM PaddleOCRVLForConditionalGeneration
    PaliGemmaForConditionalGeneration PanguProMoEV2ForCausalLM PanguUltraMoEForCausalLM Param2MoEForCausalLM
    Phi3ForCausalLM Phi3VForCausalLM Phi4ForCausalLMV Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM
    PixtralForConditionalGeneration Plamo3ForCausalLM QianfanOCRForConditionalGeneration
    Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2ForProcessRewardModel Qwen2ForRewardModel
    Qwen2Model Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2_5OmniForConditionalGeneration
    Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
    Qwen3ASRForcedAlignerForTokenClassification Qwen3ASRRealtimeGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM
    Qwen3NextForCausalLM Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration
    RForConditionalGeneration Rnj1ForCausalLM RobertaForMaskedLM RobertaModel SarvamMLAForCausalLM
    SarvamMoEForCausalLM SeedOssForCausalLM SiglipModel SkyworkR1VChatModel SmolLM3ForCausalLM
    SmolVLMForConditionalGeneration SolarForCausalLM StableLmForCausalLM Starcoder2ForCausalLM Step1ForCausalLM
    Step3TextForCausalLM Step3VLForConditionalGeneration Step3p5ForCausalLM Step3p7ForConditionalGeneration
    StepVLForConditionalGeneration TeleChat2ForCausalLM TeleChat3ForCausalLM TeleFLMForCausalLM Terratorch
    TransformersForCausalLM TransformersMoEForCausalLM TransformersMultiModalForCausalLM
    TransformersMultiModalMoEForCausalLM UltravoxModel UnlimitedOCRForCausalLM VoxtralForConditionalGeneration
    VoxtralRealtimeGeneration WhisperForConditionalGeneration XLMRobertaModel Zamba2ForCausalLM
"""
_REGISTERED_IN_32 = """
    BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration BertForMaskedLM ClefOmniForJointSchema
    CohereCompassForConditionalGeneration Cosmos3EdgeForConditionalGeneration DeepseekV3BidirectionalModel
    DeepseekV41ForCausalLM DeepseekV4ForConditionalGeneration Dots3NoteForCausalLM ExaoneMoeForCausalLM
    Glm5NextForCausalLM Glm5NextForConditionalGeneration GraniteMoeSWAForCausalLM GraniteSWAForCausalLM
    HYV4ForCausalLM InklingForCausalLM InklingForConditionalGeneration InternS2MobiusForConditionalGeneration
    K2HorizonForCausalLM KimiK3ForConditionalGeneration LongcatFlashNgramForCausalLM
    MiniCPMV4_7ForConditionalGeneration MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
    NanbeigeForCausalLM NemotronH_Omni_Reasoning_V3 Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM
    Qwen4ExpForConditionalGeneration RobertaForTokenClassification VaultGemmaForCausalLM
    VibeVoiceAsrForConditionalGeneration XLMRobertaForTokenClassification
"""
_REGISTERED_IN_25 = """
    ArcticForCausalLM ChameleonForConditionalGeneration Cheers CheersForConditionalGeneration
    Fairseq2LlamaForCausalLM FireRedLIDForConditionalGeneration FuyuForCausalLM GritLM HCXVisionForCausalLM
    MPTForCausalLM MptForCausalLM OuroForCausalLM PersimmonForCausalLM Plamo2ForCausalLM PrithviGeoSpatialMAE
    RWForCausalLM StableLMEpochForCausalLM TeleChatForCausalLM
"""


def lists_of(release: Release) -> Release | None:
    """Return the release whose lists hold for another: that of the same minor release; none where none was read."""
    return next((one for one in READ if one[:2] == release[:2]), None)


AUXILIARY: Mapping[Release, frozenset[str]] = {
    (0, 25, 0): frozenset(_AUXILIARY_IN_BOTH.split() + _AUXILIARY_IN_25.split()),
    (0, 32, 0): frozenset(_AUXILIARY_IN_BOTH.split() + _AUXILIARY_IN_32.split()),
}
"""Target architectures that give auxiliary hidden states, for EAGLE-3 and DFlash heads, by release."""
REGISTERED: Mapping[Release, frozenset[str]] = {
    (0, 25, 0): frozenset(_REGISTERED_IN_BOTH.split() + _REGISTERED_IN_25.split()),
    (0, 32, 0): frozenset(_REGISTERED_IN_BOTH.split() + _REGISTERED_IN_32.split()),
}
"""All architectures with a class of vLLM's own, drafts left out, by release."""
