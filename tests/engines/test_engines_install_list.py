"""The pinned list itself, and the naming that the conversion of the model rests on."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.install import convert_smollm2
from draftworth.engines.install.pin import needs, walk
from draftworth.engines.install.vllm_cpu import DROPPED, REQUIREMENTS, pins

ENTRY = re.compile(r"([a-z0-9-]+)==([^ ]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def test_every_entry_is_exact_and_hashed() -> None:
    text = "".join(
        line for line in REQUIREMENTS.read_text("utf-8").splitlines(keepends=True) if not line.startswith("#")
    )
    entries = ENTRY.findall(text)
    assert ENTRY.sub("", text) == ""
    assert {name: version for name, version, _ in entries} == pins()
    assert [name for name, _, _ in entries] == sorted({name for name, _, _ in entries})


def test_compiled_packages_have_a_wheel_for_each_supported_python() -> None:
    text = REQUIREMENTS.read_text("utf-8")
    # Packages without a stable ABI build one wheel a Python; numba and llvmlite are what n-gram drafting runs on.
    for name in ("numpy", "numba", "llvmlite", "xgrammar", "pyyaml", "msgspec", "yarl"):
        (hashes,) = (found for entry, _, found in ENTRY.findall(text) if entry == name)
        assert hashes.count("--hash") == 3, name


def test_what_breaks_the_engine_or_swells_it_is_not_in_the_list() -> None:
    names = set(pins())
    assert not names & {"torch", "torchvision", "torchaudio", "torchcodec", "triton", "opencv-python-headless"}
    assert not names & DROPPED
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-"))]


def test_what_the_demo_needs_is_in_the_list() -> None:
    wanted = {"vllm-cpu": "0.32.0", "transformers": "5.19.0", "intel-openmp": "2024.2.1", "numba": "0.65.0"}
    assert {name: pins().get(name) for name in wanted} == wanted
    assert {"accelerate", "gguf", "ninja", "setuptools", "sympy", "networkx", "prometheus-client"} <= set(pins())


def entry(*requirements: str) -> dict[str, dict[str, list[str]]]:
    return {"metadata": {"requires_dist": list(requirements)}}


def test_a_requirement_counts_where_its_marker_holds_on_that_python() -> None:
    one = entry(
        "six; python_version > '3.11'", "Torch_Vision; platform_machine == 's390x'", "b[x]>=1", "c; extra == 'y'"
    )
    assert list(needs(one, frozenset(), "3.11")) == [("b", frozenset({"x"}))]
    assert list(needs(one, frozenset({"y"}), "3.12")) == [
        ("six", frozenset()),
        ("b", frozenset({"x"})),
        ("c", frozenset()),
    ]


def test_what_only_a_dropped_package_needs_falls_away_with_it() -> None:
    report = {
        "vllm-cpu": entry("anthropic", "openai", "fastapi[standard]"),
        "anthropic": entry("docstring-parser", "anyio"),
        "openai": entry("anyio", "lost"),
        "fastapi": entry(
            "fastapi-cli; extra == 'standard'", "uvicorn; extra == 'standard'", "itsdangerous; extra == 'all'"
        ),
        "anyio": entry(),
        "uvicorn": entry(),
        "docstring-parser": entry(),
    }
    found, missing = walk(report, ["vllm-cpu"], "3.11")
    assert found == {"vllm-cpu", "openai", "fastapi", "uvicorn", "anyio"}
    assert missing == {"lost"}


@pytest.mark.parametrize(
    ("gguf", "llama"),
    [
        # As in the safetensors files of HuggingFaceTB/SmolLM2-135M-Instruct.
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("blk.29.attn_output.weight", "model.layers.29.self_attn.o_proj.weight"),
        ("blk.3.ffn_up.weight", "model.layers.3.mlp.up_proj.weight"),
        ("blk.3.attn_norm.weight", "model.layers.3.input_layernorm.weight"),
        ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
    ],
)
def test_a_gguf_tensor_gets_its_llama_name(gguf: str, llama: str) -> None:
    assert convert_smollm2.plain_name(gguf) == llama


@given(name=st.text(alphabet="blk.0attn_qweighoup", min_size=1, max_size=18) | st.just("blk.0.ffn_gate_inp.weight"))
def test_a_tensor_without_a_place_in_a_plain_llama_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)):
        convert_smollm2.plain_name(name)


def test_a_config_forgets_where_it_came_from() -> None:
    config = {"vocab_size": 49152, "quantization_config": {"quant_method": "gguf"}, "_model_name_or_path": "/home/ada"}
    assert convert_smollm2.plain_config(config) == {"vocab_size": 49152}
