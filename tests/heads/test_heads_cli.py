"""`draftworth head check` as a person meets it. The verb's own function is called: registering it is not its job."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from tests.heads import heads_making as making

from draftworth.cli.head import app
from draftworth.errors import UsageError


def call(*words: object) -> tuple[int, str]:
    root = App(name="draftworth", result_action="return_value")
    root.command(app, name="head")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = root(["head", "check", *map(str, words)], exit_on_error=False, print_error=False)
    return int(code), out.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return making.target().write(tmp_path / "tiny-target")


def test_a_head_that_fits(target: Path, tmp_path: Path) -> None:
    code, out = call(making.eagle3().write(tmp_path / "head"), "--target", target)
    assert code == 0
    assert "eagle3 (architectures is LlamaForCausalLMEagle3)" in out
    assert "It fits, as far as files tell: no check failed." in out
    assert "  d2t-range: 48 tokens from 0 to 94" in out
    assert "Failed" not in out


def test_what_failed_is_named_with_its_fix(target: Path, tmp_path: Path) -> None:
    made = making.eagle3()
    made.config |= {"target_hidden_size": 128, "rope_theta": 1.0}
    del made.tensors["d2t"], made.tensors["t2d"], made.documents["tokenizer.json"]
    code, out = call(made.write(tmp_path / "head"), "--target", target)
    assert code == 2
    assert "2 checks failed: hidden-size, d2t (1 in doubt, 3 not checked)." in out
    failed = out.partition("Failed:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.partition(":")[0].strip() for line in failed] == ["hidden-size", "d2t"]
    assert "found 128; expected 64, as the target; fix: the head was made for a model of another width" in failed[0]
    assert "[NVIDIA-NeMo/Automodel#2447]" in failed[1]
    assert "  tokenizer: the checkpoint has no tokenizer.json; vLLM drafts with the target's" in out


def test_json_is_one_document(target: Path, tmp_path: Path) -> None:
    made = making.eagle3()
    del made.tensors["norm.weight"]
    code, out = call(made.write(tmp_path / "head"), "--target", target, "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 2
    assert (found["method"], found["engine"], found["version"]) == ("eagle3", "vllm", "0.32.0")
    assert [one["name"] for one in found["checks"] if one["status"] == "failed"] == ["final-norm"]


def test_wrong_input_says_what_to_give(target: Path, tmp_path: Path) -> None:
    head = making.eagle3().write(tmp_path / "head")
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    for words, said in (
        ((tmp_path / "none", "--target", target), "no such folder"),
        (("someone/a-head", "--target", target), "hf download someone/a-head"),
        ((empty, "--target", target), "no config.json in this folder"),
        ((head, "--target", head / "config.json"), "this is a file"),
        ((broken, "--target", target), "no JSON"),
        ((head, "--target", target, "--method", "ngram"), "'ngram' is not checked: one of eagle3, eagle, medusa"),
        ((head, "--target", target, "--engine", "sglang"), "'sglang' is not known here: one of vllm"),
        ((head, "--target", target, "--engine-version", "new"), "a release like 0.32.0 is expected"),
        ((head, "--target", target, "--max-model-len", "0"), "must be at least 1"),
    ):
        with pytest.raises(UsageError, match=said):
            call(*words)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"speculators_model_type": "xpress"}, "'xpress' is not checked"),
        ({"architectures": ["Qwen3DSparkModel"]}, "drafts of this kind are not checked"),
        ({"model_type": "mlp_speculator", "architectures": []}, "drafts of this kind are not checked"),
    ],
)
def test_drafts_of_other_kinds_are_refused(fields: dict[str, Any], said: str, target: Path, tmp_path: Path) -> None:
    made = making.eagle3()
    made.config |= fields
    with pytest.raises(UsageError, match=said):
        call(made.write(tmp_path / "head"), "--target", target)
