"""Heads of a trial's arms are looked at before anything is stopped."""

from pathlib import Path
from typing import Any

import pytest
from tests.heads import heads_making as making

from draftworth.engines.vllm import VLLM
from draftworth.errors import RefusedError
from draftworth.trials.config import TrialConfig
from draftworth.trials.heads import check_heads
from draftworth.trials.prepare import check_model

_ABSENT = "is not here as the server would load it; fetch it first, or the engine does while it starts"


def config_of(target: Path | str, *flags: str, arm: dict[str, Any] | None = None, **spec: Any) -> TrialConfig:
    return TrialConfig.model_validate(
        {
            "service": {"command": ["vllm", "serve", str(target), *flags], "port": 8000},
            "arms": [{"name": "head", "speculative_config": {"num_speculative_tokens": 3, **spec}, **(arm or {})}],
        }
    )


def notes(config: TrialConfig, target: Path | None, version: str | None = "0.32.0") -> list[str]:
    return check_heads(config, VLLM(), config.service.command, target, version)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return making.target().write(tmp_path / "tiny-target")


def test_a_head_that_fits_is_not_spoken_of(tmp_path: Path, target: Path) -> None:
    head = making.eagle3().write(tmp_path / "head")
    assert notes(config_of(target, method="eagle3", model=str(head)), target) == []


def test_a_head_that_cannot_be_served_is_refused_by_name_and_can_be_insisted_on(tmp_path: Path, target: Path) -> None:
    made = making.eagle3()
    del made.tensors["d2t"]
    head = made.write(tmp_path / "head")
    with pytest.raises(RefusedError) as error:
        notes(config_of(target, method="eagle3", model=str(head)), target)
    text = str(error.value)
    assert text.startswith("arms: head: its draft cannot be served for this model: d2t")
    assert "fix: " in text
    assert "\n" not in text
    assert f"draftworth head check {head} --target {target}" in text
    assert notes(config_of(target, arm={"check": False}, method="eagle3", model=str(head)), target) == []


def test_a_head_for_another_target_is_refused(tmp_path: Path, target: Path) -> None:
    made = making.eagle3()
    made.config["hidden_size"] = 2 * making.HIDDEN
    head = made.write(tmp_path / "head")
    with pytest.raises(RefusedError, match="hidden"):
        notes(config_of(target, method="eagle3", model=str(head)), target)


def test_doubts_are_notes_and_the_servers_length_counts(tmp_path: Path, target: Path) -> None:
    model = making.draft_model().write(tmp_path / "draft")
    (told, *_) = notes(config_of(target, "--max-model-len=64", method="draft_model", model=str(target)), target)
    assert told.startswith("head: draft: draft-size: found 1 times as many weights as the target")
    assert notes(config_of(target, "--max-model-len", "64", method="draft_model", model=str(model)), target) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"method": "ngram"}, None),
        ({"method": "suffix"}, None),
        ({"method": "custom_class", "model": "org/name"}, None),
        (
            {"method": "eagle3", "model": "org/name"},
            f"head: its draft was not checked: org/name {_ABSENT}",
        ),
    ],
)
def test_what_has_no_files_here_is_left_to_the_engine(spec: dict[str, Any], said: str | None, target: Path) -> None:
    assert notes(config_of(target, **spec), target) == ([] if said is None else [said])


def test_models_by_their_hubs_names_are_found_in_the_cache(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    made = making.eagle3()
    made.config["hidden_size"] = 2 * making.HIDDEN
    for name, write in (("head", made.write), ("tiny", making.target().write)):
        cached = tmp_path / "hub" / f"models--org--{name}"
        write(cached / "snapshots" / "abc")
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text("abc")
    served = check_model("org/tiny", config_of(target))
    assert served == tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    with pytest.raises(RefusedError, match="hidden"):
        notes(config_of("org/tiny", method="eagle3", model="org/head"), served)
    (other,) = notes(config_of("org/tiny", method="eagle3", model="org/head", revision="old"), served)
    assert "not checked: of a revision" in other
    # What the server may load from elsewhere, or has still to fetch, is not taken from here.
    assert check_model("org/tiny", config_of("org/tiny", "--revision", "old")) is None
    (tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc" / "model.safetensors").unlink()
    assert check_model("org/tiny", config_of("org/tiny")) is None


def test_without_the_targets_files_nothing_is_passed(tmp_path: Path) -> None:
    head = making.eagle3().write(tmp_path / "head")
    (told,) = notes(config_of("org/name", method="eagle3", model=str(head)), None)
    assert "not checked" in told


def test_a_head_that_is_not_there_is_refused(tmp_path: Path, target: Path) -> None:
    with pytest.raises(RefusedError, match=r"speculative_config\.model"):
        notes(config_of(target, method="eagle3", model=str(tmp_path / "nowhere")), target)


def test_a_folder_that_is_no_draft_is_a_note(tmp_path: Path, target: Path) -> None:
    (tmp_path / "empty").mkdir()
    (told,) = notes(config_of(target, method="eagle3", model=str(tmp_path / "empty")), target)
    assert told.startswith("head: its draft was not checked: ")


def test_a_draft_with_a_vocabulary_of_its_own_may_be_mapped(tmp_path: Path, target: Path) -> None:
    made = making.draft_model()
    made.config["vocab_size"] = making.VOCABULARY * 2
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in made.tensors:
            made.tensors[name] = making.trained(2 * making.VOCABULARY, made.tensors[name].shape[1])
    head = made.write(tmp_path / "other")
    with pytest.raises(RefusedError, match="vocabulary"):
        notes(config_of(target, method="draft_model", model=str(head)), target)
    notes(config_of(target, method="draft_model", model=str(head), use_heterogeneous_vocab=True), target)
