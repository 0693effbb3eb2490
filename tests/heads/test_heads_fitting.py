"""Heads that are right in one way or another, and folders as they come."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.heads import heads_making as making
from tests.heads.heads_making import DRAFTED, HIDDEN, MAKERS, Made, config, nothing, tokenizer, trained

from draftworth.errors import UsageError
from draftworth.heads.base import HeadReport, Status
from draftworth.heads.check import check_head

FAILED, WARNED = Status.FAILED, Status.WARNED
Change = Callable[[Made], Any]


def report(
    tmp_path: Path, change: Change = nothing, maker: str = "eagle3", of_target: Change = nothing, **arguments: Any
) -> HeadReport:
    made, theirs = MAKERS[maker](), making.target()
    change(made)
    of_target(theirs)
    return check_head(
        made.write(tmp_path / "head"), theirs.write(tmp_path / "tiny-target"), **{"method": None, **arguments}
    )


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_a_head_that_fits_passes_everything(maker: str, tmp_path: Path) -> None:
    found = report(tmp_path, maker=maker)
    assert found.fits
    expected = {"tokenizer", "tokenizer-merges", "added-tokens", "special-tokens"} if maker == "medusa" else set()
    assert {one.name: one.found for one in found.checks if one.status is not Status.PASSED}.keys() == expected
    assert found.method == {"speculators": "eagle3"}.get(maker, maker)
    assert found.layout == ("speculators" if maker == "speculators" else "plain")
    names = [one.name for one in found.checks]
    assert len(names) == len(set(names)) >= 15


def test_absent_and_whole_vocabulary_embeddings_are_shared(tmp_path: Path) -> None:
    def change(made: Made) -> None:
        for name in ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d"):
            del made.tensors[name]
        del made.config["draft_vocab_size"]

    found = report(tmp_path, change)
    assert not found.having(FAILED)
    by_name = {one.name: one.found for one in found.checks}
    assert by_name["embedding"] == "none: the target's is shared"
    assert by_name["lm-head"] == "none: the target's is taken"
    assert "no d2t is needed" in by_name["d2t"]


def test_four_layers_at_the_top_are_not_counted_by_the_llama_class(tmp_path: Path) -> None:
    def change(made: Made) -> None:
        made.config["eagle_aux_hidden_state_layer_ids"] = [1, 3, 5, 7]
        made.tensors["fc.weight"] = trained(HIDDEN, 4 * HIDDEN)

    found = report(tmp_path, change)
    (one,) = found.having(FAILED)
    assert (one.name, "num_aux_hidden_states = 4" in one.fix) == ("fc-shape", True)

    def counted(made: Made) -> None:
        change(made)
        made.config["num_aux_hidden_states"] = 4

    assert report(tmp_path, counted).fits


def test_d2t_of_token_ids_is_told_as_such(tmp_path: Path) -> None:
    def change(made: Made) -> None:
        made.tensors["d2t"] += np.arange(DRAFTED)
        del made.tensors["t2d"]

    (one,) = report(tmp_path, change).having(FAILED)
    assert one.name == "d2t-range"
    assert "token ids" in one.fix


@pytest.mark.parametrize(
    ("version", "status"),
    [("0.25.0", FAILED), ("0.28.0", Status.NOT_CHECKED), ("0.32.0", Status.PASSED)],
)
def test_short_positions_by_release(version: str, status: Status, tmp_path: Path) -> None:
    found = {
        one.name: one.status for one in report(tmp_path, config(max_position_embeddings=128), version=version).checks
    }
    assert found["rotary-cache"] is status
    assert found["architecture"] is (Status.NOT_CHECKED if version == "0.28.0" else Status.PASSED)


def test_lists_of_targets_are_those_of_the_release(tmp_path: Path) -> None:
    # Granite got SupportsEagle3 between 0.25 and 0.32; Mixtral has it in neither.
    for architecture, version, status in (
        ("GraniteForCausalLM", "0.25.1", FAILED),
        ("GraniteForCausalLM", "0.32.0", Status.PASSED),
        ("MixtralForCausalLM", "0.25.0", FAILED),
        ("KimiK25ForConditionalGeneration", "0.25.0", Status.PASSED),
        ("LlamaForCausalLM", "0.33.0", Status.NOT_CHECKED),
    ):
        found = report(tmp_path, of_target=config(architectures=[architecture]), version=version).checks
        assert next(one.status for one in found if one.name == "target-support") is status, architecture


def test_mtp_layers_that_a_copy_left_out(tmp_path: Path) -> None:
    made = making.mtp_target()
    whole = check_head(made.write(tmp_path / "whole"), tmp_path / "whole", method=None)
    assert (whole.method, whole.fits) == ("mtp", True)
    del made.tensors["mtp.fc.weight"]
    copy = made.write(tmp_path / "copy")
    (one,) = check_head(copy, copy, method="mtp").having(FAILED)
    assert (one.name, one.expected) == ("mtp-weights", "tensors that begin with mtp.")
    made.config["num_nextn_predict_layers"] = 0
    none = made.write(tmp_path / "none")
    assert [one.name for one in check_head(none, none, method="mtp").having(FAILED)] == [
        "method",
        "mtp-layers",
        "mtp-weights",
    ]


def test_a_target_that_vllm_has_no_class_for_is_not_checked(tmp_path: Path) -> None:
    (one,) = report(tmp_path, of_target=config(architectures=["NewestForCausalLM"])).having(Status.NOT_CHECKED)
    assert one.name == "target-support"
    assert "Transformers backend" in one.found


def test_safetensors_that_cannot_be_read_leave_nothing_passed_of_their_values(tmp_path: Path) -> None:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"{}")

    def change(made: Made) -> None:
        made.after.append(spoil)

    found = {one.name: one.status for one in report(tmp_path, change).checks}
    assert found["files"] is FAILED
    for name in ("keys-missing", "fc-shape", "finite", "constant", "embedding-random", "d2t", "tensor-shapes"):
        assert found[name] is Status.NOT_CHECKED


def test_a_field_of_no_sense_fails_where_it_is_needed(tmp_path: Path) -> None:
    found = report(tmp_path, config(max_position_embeddings="long"))
    one = next(one for one in found.having(FAILED) if one.name == "max-positions")
    assert "a whole number is expected, not 'long'" in one.found


def test_an_untold_origin_is_not_checked_and_the_card_tells_it(tmp_path: Path) -> None:
    def change(made: Made) -> None:
        del made.config["target_model_name_or_path"]

    (one,) = report(tmp_path, change).having(Status.NOT_CHECKED)
    assert one.name == "trained-for"

    def card(made: Made) -> None:
        change(made)
        made.documents["README.md"] = "---\nlicense: mit\nbase_model:\n- someone/Tiny-Target-FP8\n---\n# Head\n"

    assert not report(tmp_path, card).having(Status.NOT_CHECKED)


def test_a_quantised_copy_of_the_same_name_is_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = making.eagle3()
    target = making.target().write(tmp_path / "models--someone--Tiny-Target-NVFP4" / "snapshots" / "abc")
    refs = tmp_path / "models--someone--Tiny-Target-NVFP4" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for place in (target, refs.parent, Path("someone/Tiny-Target-NVFP4")):
        assert check_head(made.write(tmp_path / "head"), place, method=None).fits
        assert not check_head(tmp_path / "head", place, method=None).having(WARNED)


def test_shards_and_an_index(tmp_path: Path) -> None:
    made = making.eagle3()
    folder = made.write(tmp_path / "head")
    target = making.target().write(tmp_path / "tiny-target")
    names = sorted(made.tensors)
    (folder / "model.safetensors").unlink()
    where: dict[str, str] = {}
    for at, part in enumerate((names[:6], names[6:]), start=1):
        file = f"model-0000{at}-of-00002.safetensors"
        making.write_safetensors(folder / file, {name: made.tensors[name] for name in part})
        where |= dict.fromkeys(part, file)
    assert check_head(folder, target, method=None).fits
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "optimizer.safetensors")  # not in the index
    assert check_head(folder, target, method=None).fits
    index.unlink()
    (folder / "optimizer.safetensors").unlink()
    (folder / "model-00002-of-00002.safetensors").unlink()
    (one,) = (one for one in check_head(folder, target, method=None).having(FAILED) if one.name == "files")
    assert "one of 2 files" in one.found
    index.write_text(json.dumps({"weight_map": where}))
    (one,) = (one for one in check_head(folder, target, method=None).having(FAILED) if one.name == "files")
    assert "model-00002-of-00002.safetensors, which is not here" in one.found


def test_tokenizers_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    def change(made: Made) -> None:
        again = tokenizer()
        again["model"]["vocab"] = dict(reversed(again["model"]["vocab"].items()))
        again["model"]["merges"] = [one.split() for one in again["model"]["merges"]]
        made.documents["tokenizer.json"] = json.dumps(again, indent=4)

    assert not report(tmp_path, change).having(FAILED)
    assert not report(tmp_path, change).having(WARNED)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    maker=st.sampled_from(sorted(MAKERS)),
    which=st.integers(0, 100),
    value=st.none()
    | st.text(max_size=3)
    | st.integers()
    | st.just(10**30)
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
def test_no_value_of_a_field_ends_in_anything_but_a_report_or_one_line(
    maker: str, which: int, value: Any, tmp_path: Path
) -> None:
    made = MAKERS[maker]()
    made.config[sorted(made.config)[which % len(made.config)]] = value
    target = tmp_path / "tiny-target"
    if not target.is_dir():
        making.target().write(target)
    said = ""
    try:
        said = f"config.json: {len(check_head(made.write(tmp_path / 'head'), target, method=None).checks)} checks"
    except UsageError as error:
        said = str(error)
    assert "config.json" in said or "not checked" in said
