"""Every check fails alone on a head that is wrong in one thing, and passes on heads that are right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.heads import heads_making as making
from tests.heads.heads_making import DRAFTED, HIDDEN, MAKERS, VOCABULARY, Made, bf16, config, norm, nothing, trained

from draftworth.heads.base import HeadReport, Status
from draftworth.heads.check import check_head
from draftworth.heads.checks import CHECKS

FAILED, WARNED = Status.FAILED, Status.WARNED
Change = Callable[[Made], Any]


class Case(NamedTuple):
    """A head with one thing wrong."""

    name: str
    status: Status
    change: Change
    shown: str
    maker: str = "eagle3"
    of_target: Change | None = None
    arguments: dict[str, Any] = {}


def tensor(name: str, values: Any) -> Change:
    return lambda made: made.tensors.update({name: values})


def without(name: str) -> Change:
    return lambda made: made.tensors.pop(name)


def renamed_tokens(made: Made) -> None:
    made.documents["tokenizer.json"]["model"]["vocab"] |= {"t3": 4, "t4": 3}


def other_added(made: Made) -> None:
    made.documents["tokenizer.json"]["added_tokens"][1]["content"] = "<|other|>"


def other_merges(made: Made) -> None:
    made.documents["tokenizer.json"]["model"]["merges"].reverse()


def hole(name: str) -> Change:
    def change(made: Made) -> None:
        made.tensors[name].reshape(-1)[7] = 0x7FC0  # NaN in bfloat16

    return change


def ones(made: Made) -> None:
    made.tensors |= {name: bf16(np.ones(one.shape)) for name, one in made.tensors.items() if "norm" in name}


def second_layer(made: Made) -> None:
    made.config["num_hidden_layers"] = 2


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    (folder / "model-2.safetensors").write_bytes(path.read_bytes()[:-1])


def d2t(change: Callable[[Any], Any]) -> Change:
    def apply(made: Made) -> None:
        made.tensors["d2t"] = change(made.tensors["d2t"].copy())
        made.tensors.pop("t2d")

    return apply


def swapped(offsets: Any) -> Any:
    offsets[3], offsets[4] = offsets[4] + 1, offsets[3] - 1
    return offsets


def twice(offsets: Any) -> Any:
    offsets[5] = offsets[4] - 1
    return offsets


def moved_mark(made: Made) -> None:
    made.tensors["t2d"][[0, 1]] = made.tensors["t2d"][[1, 0]]


def nested_ids(made: Made) -> None:
    del made.config["eagle_aux_hidden_state_layer_ids"]
    made.config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}


def wider(made: Made) -> None:
    """A head of another width, which projects the target's hidden states into its own."""
    made.config |= {"hidden_size": 32, "target_hidden_size": HIDDEN}
    for name, one in made.tensors.items():
        if one.dtype == np.uint16:
            shape = tuple({HIDDEN: 32, 128: 64}.get(size, size) for size in one.shape)
            if name.endswith("o_proj.weight"):
                shape = (32, 64)
            if "q_proj" in name or name == "fc.weight":
                shape = (one.shape[0] if "q_proj" in name else 32, 64 if "q_proj" in name else one.shape[1])
            if "mlp.gate" in name or "mlp.up" in name:
                shape = (128, 32)
            if "mlp.down" in name:
                shape = (32, 128)
            made.tensors[name] = one[tuple(slice(size) for size in shape)].copy()
    del made.tensors["embed_tokens.weight"]


HALF = VOCABULARY // 2
CASES = (
    Case("architecture", FAILED, config(architectures=["GemmaForCausalLM"]), "Eagle3GemmaForCausalLM"),
    Case(
        "target-support", FAILED, nothing, "MixtralForCausalLM", of_target=config(architectures=["MixtralForCausalLM"])
    ),
    Case(
        "config-fields",
        FAILED,
        lambda made: made.config["transformer_layer_config"].pop("hidden_act"),
        "no hidden_act: vLLM raises AttributeError",
        "speculators",
    ),
    Case("config-fields", FAILED, lambda made: made.config.pop("intermediate_size"), "the defaults of Transformers"),
    Case("files", FAILED, lambda made: made.after.append(cut), "cut short"),
    Case("keys-missing", FAILED, without("midlayer.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight"),
    Case("keys-refused", FAILED, tensor("extra.weight", trained(8, 8)), "extra.weight"),
    Case("keys-ignored", WARNED, tensor("fc.bias", trained(HIDDEN)), "fc.bias"),
    Case("norm-flags", FAILED, tensor("input_norm.weight", norm(3 * HIDDEN)), "input_norm.* is there"),
    Case("final-norm", FAILED, without("norm.weight"), "no norm.weight"),
    Case("hidden-size", FAILED, config(target_hidden_size=128), "128"),
    Case("fc-shape", FAILED, tensor("fc.weight", trained(HIDDEN, 4 * HIDDEN)), "[64, 256]"),
    Case("layers", FAILED, second_layer, "weights of 1 layers"),
    Case("tensor-shapes", FAILED, tensor("midlayer.self_attn.k_proj.weight", trained(16, 2 * HIDDEN)), "[16, 128]"),
    Case("draft-size", WARNED, lambda made: made.__dict__.update(making.target().__dict__), "1 times", "draft_model"),
    Case(
        "aux-layers",
        WARNED,
        lambda made: made.config.pop("eagle_aux_hidden_state_layer_ids"),
        "vLLM takes [2, 4, 5]",
    ),
    Case("aux-layers-range", FAILED, config(eagle_aux_hidden_state_layer_ids=[2, 4, 9]), "[2, 4, 9]"),
    Case("aux-layers-range", FAILED, config(eagle_aux_hidden_state_layer_ids=[5, 4, 2]), "[5, 4, 2]"),
    Case("aux-layers-range", FAILED, config(eagle_aux_hidden_state_layer_ids=[2, 2, 5]), "[2, 2, 5]"),
    Case("aux-layers-count", WARNED, config(eagle_aux_hidden_state_layer_ids=[1, 3, 4]), "[1, 3, 4]"),
    Case(
        "aux-layers-place",
        WARNED,
        nested_ids,
        "V2 runner does not look",
    ),
    Case("mask-token", FAILED, config(dflash_config={"target_layer_ids": [1, 3, 5]}), "None", "dflash"),
    Case(
        "vocabulary",
        FAILED,
        lambda made: (made.config.update(vocab_size=100), made.tensors.pop("embed_tokens.weight")),
        "100",
    ),
    Case("lm-head", FAILED, tensor("lm_head.weight", trained(DRAFTED - 8, HIDDEN)), "[40, 64]"),
    Case("lm-head", FAILED, without("lm_head.weight"), "none"),
    Case("d2t", FAILED, lambda made: (made.tensors.pop("d2t"), made.tensors.pop("t2d")), "first tokens"),
    Case("d2t-shape", FAILED, d2t(lambda offsets: offsets[:40]), "d2t I64 [40]"),
    Case("d2t-range", FAILED, d2t(lambda offsets: offsets + HALF), "tokens from 48 to 142"),
    Case("d2t-range", FAILED, d2t(lambda offsets: 2 * offsets), "tokens from 0 to 141"),
    Case("d2t-order", WARNED, d2t(swapped), "not above the one before"),
    Case("d2t-order", WARNED, d2t(np.zeros_like), "all zero"),
    Case("d2t-t2d", FAILED, moved_mark, "2 are in one of them"),
    Case("tokenizer", FAILED, renamed_tokens, "2 with another id"),
    Case("tokenizer-merges", WARNED, other_merges, "from number 0 on"),
    Case("added-tokens", WARNED, other_added, "1 not the target's"),
    Case("special-tokens", WARNED, config(eos_token_id=[5, 6]), "eos_token_id 5 and 6"),
    Case("embedding", FAILED, wider, "none"),
    Case("embedding-random", FAILED, tensor("embed_tokens.weight", trained(VOCABULARY, HIDDEN, seed=7)), "cosine"),
    Case(
        "embedding-equal",
        WARNED,
        tensor("embed_tokens.weight", trained(VOCABULARY, HIDDEN, seed=100) + 3),
        "64 of 64",
    ),
    Case("finite", FAILED, hole("fc.weight"), "fc.weight (1 of 12288 values)"),
    Case("finite", FAILED, hole("norm.weight"), "norm.weight"),
    Case("constant", FAILED, tensor("midlayer.mlp.up_proj.weight", bf16(np.zeros((128, HIDDEN)))), "0 throughout"),
    Case("norms-trained", WARNED, ones, "all 4 norms"),
    Case(
        "initialised", WARNED, tensor("fc.weight", bf16(np.random.default_rng(3).normal(0, 0.02, (64, 192)))), "normal"
    ),
    Case(
        "initialised",
        WARNED,
        tensor("fc.weight", bf16(np.random.default_rng(3).uniform(-(192**-0.5), 192**-0.5, (64, 192)))),
        "uniform up to 0.0722",
    ),
    Case("max-positions", WARNED, config(max_position_embeddings=128), "128"),
    Case("max-positions", WARNED, nothing, "512", arguments={"max_model_len": 4096}),
    Case("rope-theta", WARNED, config(rope_theta=10000.0), "10000"),
    Case(
        "rope-scaling", WARNED, config(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "rope_type yarn, factor 4.0"
    ),
    Case("target-quantised", WARNED, nothing, "fp8", of_target=config(quantization_config={"quant_method": "fp8"})),
    Case(
        "head-quantised",
        FAILED,
        tensor("fc.weight", np.zeros((64, 192), np.uint8) + np.arange(192, dtype=np.uint8) % 100),
        "F8_E4M3",
    ),
    Case("dtype", WARNED, nothing, "bfloat16", of_target=config(dtype="float16")),
    Case("trained-for", WARNED, config(target_model_name_or_path="someone/tiny-target-2"), "tiny-target-2"),
    Case(
        "verifier",
        FAILED,
        lambda made: made.config["speculators_config"]["verifier"].update(architectures=["Qwen3ForCausalLM"]),
        "Qwen3ForCausalLM",
        "speculators",
    ),
    Case("target-layers", FAILED, config(num_target_layers=9), "num_target_layers is 9", "dflash"),
)
CONSEQUENCES = {
    "aux-layers-range": {"aux-layers-count"},
    "d2t-shape": {"d2t-range"},
}
"""What cannot but be wrong with it, too."""


def report(tmp_path: Path, case: Case) -> HeadReport:
    made, theirs = MAKERS[case.maker](), making.target()
    case.change(made)
    if case.of_target is not None:
        case.of_target(theirs)
    arguments = {"method": None} | case.arguments
    return check_head(made.write(tmp_path / "head"), theirs.write(tmp_path / "tiny-target"), **arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.shown}"[:50])
def test_each_check_fails_alone(case: Case, tmp_path: Path) -> None:
    found = {one.name: one for one in report(tmp_path, case).checks if one.status in (FAILED, WARNED)}
    assert case.name in found, found
    one = found[case.name]
    assert one.status is case.status
    assert case.shown in one.found
    assert one.expected
    assert one.fix
    assert one.source
    assert set(found) - CONSEQUENCES.get(case.name, set()) == {case.name}


def test_another_method_than_the_files_tell_of_fails_alone(tmp_path: Path) -> None:
    made = making.target()
    made.config["num_nextn_predict_layers"] = 1
    folder = made.write(tmp_path / "tiny-target")
    assert check_head(folder, folder, method=None).method == "mtp"
    (one,) = check_head(folder, folder, method="draft_model").having(FAILED)
    assert (one.name, one.found) == ("method", "the files tell of mtp")


def test_every_check_has_a_case() -> None:
    others = {"mtp-layers", "mtp-weights", "method", "rotary-cache"}  # below
    assert {one.name for one in CHECKS} - others == {one.name for one in CASES}


def test_the_document_lists_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "heads.md").read_text()
    rows = [
        f"| `{one.name}` | {one.about} | {'fails' if one.severity == 'fail' else 'in doubt'} | {one.source} |"
        for one in CHECKS
    ]
    assert [row for row in rows if row not in page.replace("\\*", "*")] == []
