"""What a plan says, worked out by hand."""

import json
from pathlib import Path

import pytest
from tests.training.training_making import Said, chat, make_target, write_recipe, write_rows

from draftworth.errors import UsageError
from draftworth.training import data
from draftworth.training.costing import HeadShape, gpu_hours, state_bytes, states_flops, training_flops
from draftworth.training.needed import needed_lengths
from draftworth.training.plan import default_layers, make_plan
from draftworth.training.plan_lines import lines
from draftworth.training.recipe_file import load_recipe
from draftworth.training.scaling import chain_lengths, scaling

LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_target(tmp_path / "target", config=LLAMA_8B)
    write_rows(tmp_path / "chat.jsonl", [chat(f"q{at}", "a") for at in range(10)])
    return tmp_path


def test_disk_of_states_is_that_of_a_published_sample() -> None:
    # Llama-3.1-8B at 8,192 tokens: 268 MB a sample, by speculators' documentation.
    assert state_bytes(8192, 4096, 3, "bf16") == 8192 * (4 * 4096 * 2 + 8)
    assert state_bytes(8192, 4096, 3, "bf16") / 1e6 == pytest.approx(268, abs=1)
    # 50,000 samples of 1,024 tokens: 1.6 TB, by its tutorial.
    assert state_bytes(50_000 * 1024, 4096, 3, "bf16") / 1e12 == pytest.approx(1.65, abs=0.05)
    # SmolLM2-135M: 4.6 KB a token.
    assert state_bytes(1, 576, 3, "bf16") == pytest.approx(4616)
    assert state_bytes(1, 576, 3, "fp8") == 4 * 576 + 8 + 4
    assert state_bytes(1, 576, 3, "fp32") == 4 * 576 * 4 + 8


def test_a_heads_parameters_are_those_of_a_public_one() -> None:
    # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B without norms and maps: fc of 3 states, q/k/v of 8192, o, MLP, 32,000 rows.
    head = HeadShape(4096, 14336, 32, 8, 128, 3, 32000, 2048)
    assert head.layer_parameters == 8192 * 4096 + 2 * 8192 * 1024 + 4096 * 4096 + 3 * 4096 * 14336
    assert head.fc_parameters == 3 * 4096 * 4096
    assert head.output_parameters == 4096 * 32000
    assert head.parameters == 424_673_280


def test_published_lengths_are_possible_and_have_a_source() -> None:
    for one in scaling().results:
        assert one.source
        assert all(1 < length <= (8 if one.k is None else one.k + 1) for length in one.lengths.values())
    # Examples of 5,000 samples are no heads.
    assert min(chain_lengths(3)) == 1.91
    assert chain_lengths(7) == []


def test_flops_by_hand() -> None:
    head = HeadShape(hidden=2, intermediate=4, heads=1, kv_heads=1, head_dim=2, aux=3, vocabulary=5, window=8)
    layer, fc, out = 2 * 2 * 3 * 2 + 2 * 2 + 3 * 2 * 4, 12, 10
    attention = 12 * 4 / 2 * 2
    expected = 2 * 100 * (3 * (6 * layer + 4 * out + attention) + 6 * fc + 2 * out)
    assert training_flops(100, head, epochs=2, steps=3, context=4) == expected
    longer = training_flops(100, head, epochs=2, steps=3, context=10**6)
    assert longer == expected + 2 * 100 * 3 * (12 * 8 / 2 * 2 - attention)
    assert states_flops(10, 7) == 140
    assert gpu_hours(3.6e15, 1000, 0.5) == pytest.approx(0.002)


def test_default_layers() -> None:
    assert default_layers(32) == (2, 16, 29)
    assert default_layers(6) == (2, 3, 3)


def test_a_plan_without_anything_says_what_is_not_known(folder: Path) -> None:
    plan = make_plan(load_recipe(write_recipe(folder)))
    assert plan.needed == ()
    assert "not known" in plan.verdict
    assert "draftworth predict TRACE --costs FILE --heads --json" in plan.needed_from
    assert plan.aux_layers == (2, 16, 29)
    assert [one.samples for one in plan.scenarios] == [5_000, 50_000, 500_000]
    assert all(one.assumed and one.price is None and one.answer_hours is None for one in plan.scenarios)
    assert plan.scenarios[2].state_bytes == 500_000 * 1000 * (4 * 4096 * 2 + 8)
    text = "\n".join(lines(plan))
    assert "500.0 M assumed" in text
    assert "speculators#751" in text
    assert "Published, not ours:" in text


def test_data_that_is_there_is_counted_and_not_assumed(folder: Path) -> None:
    read = load_recipe(write_recipe(folder))
    counts = data.run(read, read.folder, Said()).counts
    plan = make_plan(read)
    first = plan.scenarios[0]
    assert (first.name, first.samples, first.assumed) == ("this data", 10, False)
    assert first.tokens == counts["train_tokens"] + counts["held_out_tokens"]
    assert plan.scenarios[1].tokens == 5_000 * round(first.tokens / 10)


def prediction(folder: Path, *needed: tuple[int, int, float, bool]) -> Path:
    heads = [
        {"k": k, "concurrency": load, "length": {"value": v, "low": v - 0.1, "high": v + 0.1}, "possible": possible}
        for k, load, v, possible in needed
    ]
    path = folder / "predict.json"
    path.write_text(json.dumps({"heads": heads}), encoding="utf-8")
    return path


def test_the_needed_length_comes_from_a_prediction_of_the_same_k(folder: Path) -> None:
    prediction(folder, (3, 1, 1.4, True), (3, 8, 2.0, True), (5, 1, 1.2, True))
    plan = make_plan(load_recipe(write_recipe(folder, '[plan]\npredict = "predict.json"')))
    assert [(one.k, one.concurrency, one.length) for one in plan.needed] == [(3, 1, 1.4), (3, 8, 2.0)]
    above = sum(one > 1.4 for one in chain_lengths(3))
    assert (
        f"The head must reach 1.40 tokens per step at 1 at a time. Of {len(chain_lengths(3))} published" in plan.verdict
    )
    assert f"not ours, {above} are above that" in plan.verdict


def test_what_no_head_can_reach_is_said_and_not_refused(folder: Path) -> None:
    plan = make_plan(load_recipe(write_recipe(folder, "[plan]\nacceptance = 4.5")))
    assert plan.verdict == "The head must reach 4.50 tokens per step: with k = 3 no head can (at most 4)."
    assert "more than a step can yield" in "\n".join(lines(plan))


def test_a_file_that_is_no_prediction_is_one_line(folder: Path) -> None:
    path = folder / "x.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="not what `draftworth predict --heads --json` prints"):
        needed_lengths(path)
    with pytest.raises(UsageError, match="no heads in it"):
        needed_lengths(prediction(folder))
    with pytest.raises(UsageError, match="cannot be read"):
        needed_lengths(folder / "nowhere.json")


def test_prices_and_hours_follow_the_recipe(folder: Path) -> None:
    told = "[plan]\nprice = 2.0\ntokens_per_second = 1000.0\ngpus = 2"
    plan = make_plan(load_recipe(write_recipe(folder, told)))
    one = plan.scenarios[0]
    assert one.answer_hours == pytest.approx(5_000 * 1000 / 1000 / 3600)
    assert one.price is not None
    assert one.price.low == pytest.approx(2 * (one.states_hours.low + one.training_hours.low))
    assert one.reading_hours == pytest.approx(10 * one.state_bytes / 2e9 / 3600)
    assert one.training_hours.high == pytest.approx(4 * one.training_hours.low)
    # 2 x 8.03e9 parameters x 5e6 tokens at 20 % of 989 TFLOPS.
    assert one.states_hours.high == pytest.approx(2 * 8.03e9 * 5e6 / (989e12 * 0.2) / 3600, rel=0.01)


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        ({"hidden_size": 576, "head_dim": 64, "num_attention_heads": 9}, "", "a target of width 576: its kernels"),
        ({"num_hidden_layers": 6}, "", "6 layers are too few for the default auxiliary layers (2, 3, 3)"),
        ({"architectures": ["MixtralForCausalLM"]}, "", "serves MixtralForCausalLM without EAGLE-3 heads; those"),
        ({"architectures": ["MyOwnForCausalLM"]}, "", "has no class of its own for MyOwnForCausalLM"),
        ({}, "[states]\ndisk_gib = 1.0", "states of 153 GiB do not fit states.disk_gib = 1"),
        ({}, "[states]\nlayers = [2, 16, 40]", "auxiliary layers (2, 16, 40): each must be from 0 to 31"),
    ],
)
def test_what_cannot_work_is_a_note(folder: Path, config: dict[str, object], more: str, said: str) -> None:
    make_target(folder / "target", config={**LLAMA_8B, **config})
    plan = make_plan(load_recipe(write_recipe(folder, more)))
    assert any(said in one for one in plan.findings)
