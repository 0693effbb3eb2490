"""A model's shape from its config.json, against parameter counts its makers publish."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftworth.costs.paper.config import ModelShape, read_shape, shape_of
from draftworth.errors import UsageError

CONFIGS = Path(__file__).parent / "configs"


def shape(name: str, **more: Any) -> ModelShape:
    return shape_of({**json.loads((CONFIGS / f"{name}.json").read_text("utf-8")), **more}, name)


@pytest.mark.parametrize(
    ("name", "total", "active", "off"),
    [
        ("smollm2-135m", 134_515_008, 134_515_008, 0),
        ("llama-3.1-8b", 8_030_261_248, 8_030_261_248, 0),
        # Norms of queries and keys (48 x 256) are left out.
        ("qwen3-30b-a3b", 30_532_122_624, 3.35e9, 0.001),
        ("mixtral-8x7b", 46_702_792_704, 12.88e9, 0.001),
        ("deepseek-v3", 671.03e9, 37.5e9, 0.002),
        ("kimi-k2", 1.0264e12, 32.8e9, 0.002),
        ("kimi-k2.5-int4", 1.0264e12, 32.8e9, 0.002),
        # The card's 5.1B leave the embedding (0.58B) out.
        ("gpt-oss-120b", 116.83e9, 5.13e9 + 0.58e9, 0.01),
    ],
)
def test_parameters_are_those_that_are_published(name: str, total: float, active: float, off: float) -> None:
    found = shape(name)
    assert found.parameters == pytest.approx(total, rel=off or 1e-12)
    assert found.active_parameters == pytest.approx(active, rel=off or 1e-12)


def test_the_size_of_the_checkpoints() -> None:
    # DeepSeek-V3's card says 671 GB of FP8 without MTP; Kimi-K2.5's INT4 checkpoint is about 595 GB.
    assert shape("deepseek-v3").weight_bytes == pytest.approx(673e9, rel=0.01)
    assert shape("kimi-k2.5-int4").weight_bytes == pytest.approx(595e9, rel=0.01)
    assert shape("llama-3.1-8b").weight_bytes == pytest.approx(16.06e9, rel=0.001)
    # gpt-oss-120b: 60.8 GiB says its card.
    assert shape("gpt-oss-120b").weight_bytes == pytest.approx(60.8 * 2**30, rel=0.01)


def test_only_routed_experts_of_kimi_are_int4() -> None:
    bits = shape("kimi-k2.5-int4").quantisation.bits
    assert bits == {"attention": 16, "dense": 16, "shared": 16, "experts": 4.5, "head": 16}


def test_a_multimodal_config_is_read_for_its_language_model() -> None:
    assert shape("kimi-k2.5-int4").layers == 61


def test_kv_bytes_of_a_token() -> None:
    assert shape("llama-3.1-8b").kv_bytes(1) == 2 * 8 * 128 * 2 * 32  # 128 KiB
    assert shape("deepseek-v3").kv_bytes(1) == (512 + 64) * 2 * 61  # latent attention: 69 KiB
    assert shape("llama-3.1-8b").kv_bytes(100, 8.0) == shape("llama-3.1-8b").kv_bytes(50)


def test_windowed_layers_read_their_window_only() -> None:
    found = shape("gpt-oss-120b")
    assert found.windowed_layers == 18
    token = 2 * 8 * 64 * 2
    assert found.kv_bytes(4096) == token * (18 * 4096 + 18 * 128)


def test_dense_layers_among_experts() -> None:
    assert (shape("deepseek-v3").dense_layers, shape("deepseek-v3").moe_layers) == (3, 58)
    assert shape("qwen3-30b-a3b", mlp_only_layers=[0, 5]).moe_layers == 46
    assert shape("qwen3-30b-a3b", decoder_sparse_step=2).moe_layers == 24


def test_the_expert_share_of_a_step_by_hand() -> None:
    found = shape("qwen3-30b-a3b")
    experts = 48 * 8 * 3 * 2048 * 768
    rest = 48 * (18_874_368 + 2048 * 128 + 4096) + 2048 + 151_936 * 2048
    assert found.step_bytes == pytest.approx(2 * (experts + rest))
    assert found.expert_share == pytest.approx(experts / (experts + rest))


@pytest.mark.parametrize(
    ("config", "bits", "compute"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 8 + 24 / 128, "bf16"),
        ({"quant_method": "fp8"}, 8, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, "fp4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, "bf16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"input_activations": {"num_bits": 8}, "weights": {"num_bits": 8}}},
            },
            8,
            "fp8",
        ),
    ],
)
def test_quantised_dense_models(config: dict[str, Any], bits: float, compute: str) -> None:
    found = shape("llama-3.1-8b", quantization_config=config).quantisation
    assert found.bits["dense"] == pytest.approx(bits)
    assert found.bits["head"] == 16
    assert found.compute == compute


def test_layers_left_out_by_name_stay_as_they_are() -> None:
    config = {"quant_method": "awq", "modules_to_not_convert": ["self_attn"]}
    bits = shape("llama-3.1-8b", quantization_config=config).quantisation.bits
    assert (bits["attention"], bits["dense"] < 5) == (16, True)
    listed = {"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn.o_proj", "lm_head"]}
    assert shape("llama-3.1-8b", quantization_config=listed).quantisation.bits["attention"] == 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "a JSON object is expected"),
        ("{}", "no vocab_size|no num_hidden_layers"),
        ('{"hidden_size": "wide", "num_hidden_layers": 2}', "hidden_size: a whole number is expected, not 'wide'"),
        ('{"hidden_size": 8, "num_hidden_layers": -2}', "num_hidden_layers: a whole number"),
    ],
)
def test_what_is_no_config_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(UsageError, match=said) as caught:
        read_shape(tmp_path)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_unknown_quantisations(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_shape(tmp_path / "nowhere.json")
    with pytest.raises(UsageError, match="method 'aqlm' is not known: name it with --quantization"):
        shape("llama-3.1-8b", quantization_config={"quant_method": "aqlm"})
    with pytest.raises(UsageError, match="choose one of bf16, fp8"):
        read_shape(CONFIGS / "llama-3.1-8b.json", "int3")
    with pytest.raises(UsageError, match="200 active experts of 128"):
        shape("qwen3-30b-a3b", num_experts_per_tok=200)
