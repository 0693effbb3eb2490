from pathlib import Path
from typing import Any

import pytest

from draftworth.engines.base import Doubt, LogWarning, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.trtllm import TensorRTLLM, releases

DATA = Path(__file__).parent / "data" / "trtllm"
EAGLE3 = str(DATA / "eagle3.yaml")
ENGINE = TensorRTLLM()
COMMAND = ("trtllm-serve", "m")


def doubts(version: str | None, config: dict[str, Any] | None, **arm: Any) -> dict[str, Doubt]:
    planned = Planned(name="variant", command=arm.pop("command", COMMAND), speculation=config, **arm)
    found = ENGINE.doubts(planned, StartupFacts(version=version))
    assert all(doubt.fix for doubt in found)
    return {doubt.code: doubt for doubt in found}


def spec(tmp_path: Path, text: str, *, measured: bool = True) -> dict[str, Any]:
    file = tmp_path / "spec.yaml"
    head = "return_perf_metrics: true\nenable_iter_perf_stats: true\n" if measured else ""
    file.write_text(f"{head}speculative_config:\n{text}", encoding="utf-8")
    return {"extra_llm_api_options": str(file)}


def test_a_good_arm_in_a_readable_file_raises_no_doubt() -> None:
    assert doubts("1.3.0rc13", {"extra_llm_api_options": EAGLE3}) == {}
    assert doubts("1.3.0rc13", None, args=("--extra_llm_api_options", EAGLE3)) == {}
    assert doubts("1.2.1", None) == {}


def test_the_short_name_of_the_options_file_is_taken_where_a_release_has_it() -> None:
    assert doubts("1.2.1", {"config": EAGLE3}) == doubts("1.2.1", {"extra_llm_api_options": EAGLE3})
    assert doubts("1.3.0rc13", {"config": EAGLE3}) == {}
    old = doubts("1.1.0", {"config": EAGLE3})["option_of_later_release"]
    assert (old.severity, old.since) == ("refused", "1.2 and later")
    assert doubts(None, {"config": EAGLE3})["option_of_later_release"].severity == "note"
    assert gives("1.3.0rc13", {"config": EAGLE3}) == gives("1.3.0rc13", {"extra_llm_api_options": EAGLE3})


def test_an_options_file_that_is_no_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("return_perf_metrics: true\nspeculative_config:\n\tdecoding_type: MTP\n", encoding="utf-8")
    by_key, by_args = {"extra_llm_api_options": str(file)}, ("--config", str(file))
    for found in (doubts("1.2.1", by_key), doubts("1.2.1", None, args=by_args)):
        assert found["options_unreadable"].severity == "refused"
        assert f"{file}, line 3: a tab" in found["options_unreadable"].what
    file.write_bytes(b"a: 1\nb: \xff\n")
    assert "line 2: it is no UTF-8 text" in doubts("1.2.1", by_key)["options_unreadable"].what


def test_an_options_file_that_cannot_be_read_here_is_a_note(tmp_path: Path) -> None:
    for found in (
        doubts("1.2.1", {"extra_llm_api_options": "/not/here.yaml"}),
        doubts("1.2.1", None, args=("--config", "/not/here.yaml")),
    ):
        assert found["options_not_read"].severity == "note"
        assert found["options_not_read"].what == "/not/here.yaml cannot be read from here"
        assert "options_unreadable" not in found
    anchors = tmp_path / "anchors.yaml"
    anchors.write_text("a: &x 1\nb: *x\n", encoding="utf-8")
    found = doubts("1.2.1", {"extra_llm_api_options": str(anchors)})
    assert found["options_not_read"].what.endswith("it holds YAML that this tool does not read")
    assert "options_unreadable" not in found


def test_keys_and_values_are_doubted_with_the_file_to_write() -> None:
    found = doubts("1.3.0", {"decoding_type": "MTP", "max_draft_len": 1})
    assert found["only_by_file"].severity == "refused"
    assert "speculative_config:\n  decoding_type: MTP\n  max_draft_len: 1" in found["only_by_file"].fix
    assert "return_perf_metrics" not in found["only_by_file"].fix
    assert "--extra_llm_api_options" in found["not_counted"].fix


@pytest.mark.parametrize(
    ("version", "text", "code", "severity"),
    [
        ("1.2.1", "  decoding_type: Eagle4\n", "unknown_decoding_type", "unknown"),
        (None, "  decoding_type: Eagle4\n", "unknown_decoding_type", "unknown"),
        ("0.21.0", "  decoding_type: AUTO\n", "unknown_decoding_type", "unknown"),
        ("1.1.0", "  decoding_type: SaveState\n", "unknown_decoding_type", "unknown"),
        ("1.2.1", "  max_draft_len: 3\n", "no_decoding_type", "refused"),
        ("1.2.1", "  decoding_type: Medusa\n", "backend_lacks_type", "refused"),
        ("1.3.0", "  decoding_type: NGram\n", "refused_setting", "refused"),
        ("1.3.0", "  decoding_type: Eagle3\n  max_draft_len: 3\n", "refused_setting", "refused"),
        ("1.0.0", "  decoding_type: Eagle\n  max_draft_len: 3\n  speculative_model: x\n", "refused_setting", "refused"),
        ("1.1.0", "  decoding_type: NGram\n  max_draft_len: 3\n", "refused_setting", "refused"),
        ("1.2.1", "  decoding_type: MTP\n  max_draft_len: 3\n", "mtp_length_ignored", "changed"),
        ("1.3.0", "  decoding_type: NGram\n  max_draft_len: 3\n", "overlap_scheduler_off", "changed"),
        ("1.3.0", "  decoding_type: NGram\n  max_draft_len: 3\n", "pool_shared", "note"),
        ("1.3.0", "  decoding_type: MTP\n  max_concurrency: 8\n", "off_above_concurrency", "changed"),
        (
            "1.3.0",
            "  decoding_type: MTP\n  max_concurrency: 8\n  draft_len_schedule: {8: 1}\n",
            "refused_setting",
            "refused",
        ),
        (
            "1.2.1",
            "  decoding_type: MTP\n  acceptance_window: 5\n  acceptance_length_threshold: 0.5\n",
            "speculation_gate",
            "changed",
        ),
        ("1.2.1", "  decoding_type: SaveState\n", "collects_training_data", "changed"),
        ("1.2.1", "  decoding_type: MTP\n  use_relaxed_acceptance_for_thinking: true\n", "not_lossless", "changed"),
        (
            "1.3.0",
            "  decoding_type: Eagle3\n  max_draft_len: 3\n  speculative_model: x\n  eagle3_one_model: false\n",
            "two_model_deprecated",
            "note",
        ),
        (
            "1.2.1",
            "  decoding_type: Eagle\n  max_draft_len: 3\n  speculative_model_dir: x\n",
            "eagle_means_eagle3",
            "note",
        ),
        (
            "1.3.0",
            "  decoding_type: Eagle3\n  max_draft_len: 3\n  speculative_model: x\n  use_dynamic_tree: true\n",
            "refused_setting",
            "refused",
        ),
    ],
)
def test_what_a_release_does_with_a_setting_is_said(
    tmp_path: Path, version: str | None, text: str, code: str, severity: str
) -> None:
    found = doubts(version, spec(tmp_path, text))
    assert found[code].severity == severity


def test_the_backend_decides_what_drafters_there_are(tmp_path: Path) -> None:
    medusa = spec(tmp_path, "  decoding_type: Medusa\n")
    assert "backend_lacks_type" not in doubts("1.2.1", medusa, command=(*COMMAND, "--backend", "tensorrt"))
    assert "backend_lacks_type" not in doubts("0.21.0", medusa)
    ngram = spec(tmp_path, "  decoding_type: NGram\n  max_draft_len: 3\n")
    found = doubts("1.2.1", ngram, command=(*COMMAND, "--backend=trt"))
    assert found["backend_lacks_type"].fix == "start with --backend pytorch"


def test_sampling_that_a_one_model_drafter_ignores_is_said(tmp_path: Path) -> None:
    mtp = spec(tmp_path, "  decoding_type: MTP\n")
    sampling = frozenset({"temperature"})
    assert "sampling_greedy" in doubts("1.2.1", mtp, sampling=sampling)
    assert "sampling_greedy" in doubts(None, mtp, sampling=sampling)
    assert "sampling_greedy" not in doubts("1.3.0", mtp, sampling=sampling)
    assert "sampling_greedy" not in doubts("1.2.1", mtp)
    advanced = spec(tmp_path, "  decoding_type: MTP\n  allow_advanced_sampling: true\n")
    assert "sampling_greedy" not in doubts("1.2.1", advanced, sampling=sampling)


def test_a_forced_acceptance_is_never_a_measurement() -> None:
    found = doubts("1.3.0", None, env={"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.6"})
    assert found["acceptance_forced"].severity == "changed"
    assert "means nothing" in found["acceptance_forced"].what


def test_a_file_that_counts_nothing_is_said(tmp_path: Path) -> None:
    found = doubts("1.3.0", spec(tmp_path, "  decoding_type: MTP\n", measured=False))
    assert found["not_counted"].severity == "note"
    assert str(tmp_path / "spec.yaml") in found["not_counted"].fix
    arm = Planned(name="v", command=COMMAND, speculation={"extra_llm_api_options": "/elsewhere.yaml"})
    facts = StartupFacts(config={"return_perf_metrics": "True", "enable_iter_perf_stats": "False"})
    not_read, counted = ENGINE.doubts(arm, facts)
    assert not_read.what == "/elsewhere.yaml cannot be read from here"
    assert "enable_iter_perf_stats" in counted.what


def gives(version: str | None, config: dict[str, Any] | None) -> dict[str, str | None]:
    """Return each count to where it is told, None where it is not."""
    found = ENGINE.gives(Planned(name="v", command=COMMAND, speculation=config), StartupFacts(version=version))
    assert all(one.how for one in found)
    return {one.name: one.how if one.given else None for one in found}


def test_what_a_release_will_tell_of_an_arm_is_said_before_it_starts(tmp_path: Path) -> None:
    eagle3 = {"extra_llm_api_options": EAGLE3}
    newest = gives("1.3.0rc13", eagle3)
    assert set(newest) == set(FIELDS)
    assert "token_position" in str(newest["accepted_per_position"])
    assert "avg_decoded_tokens_per_iter" in str(newest["steps"])
    older = gives("1.2.1", eagle3)
    assert (older["drafted"], older["accepted_per_position"]) == ("/metrics, iteration statistics", None)
    oldest = gives("1.1.0", eagle3)
    assert oldest["drafted"] is None
    assert gives("1.1.0", spec(tmp_path, "  decoding_type: NGram\n  max_draft_len: 3\n"))["drafted"] is not None
    assert gives("0.21.0", eagle3)["steps"] is None
    assert gives("1.3.0", None)["drafted"] is None
    assert gives("1.3.0", {"extra_llm_api_options": "/elsewhere.yaml"})["drafted"] is None
    assert gives("1.3.0", spec(tmp_path, "  decoding_type: MTP\n", measured=False))["drafted"] is None


def test_a_server_of_which_only_the_log_is_known_is_judged_by_it() -> None:
    bare = Planned(name="as it is")
    config = {"return_perf_metrics": "True", "enable_iter_perf_stats": "False"}
    facts = StartupFacts(version="1.3.0rc13", speculating=True, config=config)
    assert all(one.given for one in ENGINE.gives(bare, facts))
    off = StartupFacts(version="1.3.0rc13", speculating=False, config=config)
    assert {one.name for one in ENGINE.gives(bare, off) if one.given} == {"steps", "emitted"}
    (drafted,) = (one for one in ENGINE.gives(bare, StartupFacts()) if one.name == "drafted")
    assert "cannot be read here" in drafted.how


@pytest.mark.parametrize(
    ("version", "first", "last"),
    [
        ("0.21.0", "MTP", "DraftTarget"),
        ("1.1.0rc5", "MTP", "AUTO"),
        ("1.2.1", "MTP", "Eagle3"),
        ("1.3.0rc1", "MTP", "DFlash"),
    ],
)
def test_decoding_types_are_known_by_release(version: str, first: str, last: str) -> None:
    types = releases.types_of(version)
    assert types is not None
    assert (types[0], types[-1]) == (first, last)


@pytest.mark.parametrize("version", [None, "main", "0.20.0", "1.4.0"])
def test_types_of_other_releases_are_not_claimed(version: str | None) -> None:
    assert releases.types_of(version) is None


def facts(**update: Any) -> StartupFacts:
    config = {"max_batch_size": "64", "speculative_config": "None", "return_perf_metrics": "True"}
    return StartupFacts(version="1.2.1", runner="PyTorch", config=config | update.pop("config", {}), **update)


def test_two_starts_differ_in_what_is_not_speculation() -> None:
    variant = facts(
        config={
            "speculative_config": "NGramDecodingConfig",
            "speculative_config.max_draft_len": "3",
            "max_batch_size": "32",
            "print_iter_log": "True",
        },
        warnings=(LogWarning(code="overlap_scheduler_off", line="Disable …", advice="try", confounds=True),),
    )
    found = {one.name: one for one in ENGINE.confounders(facts(), variant)}
    assert set(found) == {"max_batch_size", "overlap_scheduler_off"}
    assert (found["max_batch_size"].baseline, found["max_batch_size"].variant) == ("64", "32")
    assert found["overlap_scheduler_off"].note == "try"
    assert ENGINE.confounders(variant, variant) == ()


def test_a_warning_that_a_setting_shows_too_is_one_difference() -> None:
    variant = facts(
        config={"disable_overlap_scheduler": "True"},
        warnings=(LogWarning(code="overlap_scheduler_off", line="Disable …", advice="try", confounds=True),),
    )
    assert [one.name for one in ENGINE.confounders(facts(), variant)] == ["disable_overlap_scheduler"]


def test_logs_that_show_too_little_are_said_to() -> None:
    found = {one.name: one for one in ENGINE.confounders(facts(), StartupFacts(version="1.1.0", runner="TensorRT"))}
    assert set(found) == {"version", "runner", "configuration"}
    assert found["configuration"].variant == "not logged"
