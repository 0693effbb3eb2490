from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.sglang import SGLang
from draftworth.engines.sglang.known import ALGORITHMS, SETTINGS

SERVER = ("sglang", "serve", "--model-path", "m", "--enable-metrics", "--max-running-requests", "64")
EAGLE3: dict[str, Any] = {
    "algorithm": "EAGLE3",
    "draft_model_path": "d",
    "num_steps": 3,
    "eagle_topk": 1,
    "num_draft_tokens": 4,
}
NGRAM: dict[str, Any] = {"algorithm": "NGRAM", "num_draft_tokens": 8}


def found(
    speculation: dict[str, Any] | None,
    version: str | None = "0.5.23",
    *args: str,
    env: dict[str, str] | None = None,
    sampling: set[str] = frozenset(),  # type: ignore[assignment]
    config: dict[str, str] | None = None,
    command: tuple[str, ...] = SERVER,
) -> dict[str, Doubt]:
    arm = Planned(
        name="v", command=command, env=env or {}, speculation=speculation, args=args, sampling=frozenset(sampling)
    )
    return {one.code: one for one in SGLang().doubts(arm, StartupFacts(version=version, config=config or {}))}


def severity(doubts: dict[str, Doubt], code: str) -> str | None:
    return doubts[code].severity if code in doubts else None


def test_a_sound_arm_has_only_the_note_on_the_root() -> None:
    assert list(found(EAGLE3)) == ["root_counted"]
    assert found(EAGLE3)["root_counted"].fix == "compare with num_speculative_tokens 3 of vLLM"


def test_an_arm_without_speculation_is_only_asked_for_metrics() -> None:
    assert found(None) == {}
    assert list(found(None, command=("sglang", "serve", "--model-path", "m"))) == ["metrics_off"]
    assert found(None, command=()) == {}


def test_every_doubt_says_what_to_do() -> None:
    for version in ("0.4.6", "0.5.3", "0.5.9", "0.5.12", "0.5.23", None):
        for algorithm in (*ALGORITHMS, "OTHER", "eagle"):
            args = (
                "--page-size",
                "16",
                "--pp-size",
                "2",
                "--enable-lora",
                "--enable-mixed-chunk",
                "--enable-dp-attention",
            )
            for one in found({**EAGLE3, "algorithm": algorithm, "eagle_topk": 4, "x": 1}, version, *args).values():
                assert one.what
                assert one.fix


def test_names_that_are_not_sglangs_are_doubted() -> None:
    assert severity(found({**EAGLE3, "num_speculative_tokens": 3}), "other_engines_name") == "refused"
    assert severity(found({**EAGLE3, "nonsense": 3}), "unknown_key") == "unknown"
    assert severity(found({"num_steps": 3}), "no_algorithm") == "refused"
    assert severity(found({**EAGLE3, "algorithm": "MEDUSA"}, "0.5.11"), "algorithm_unknown") == "refused"
    assert severity(found({**EAGLE3, "algorithm": "MEDUSA"}, "0.5.12"), "algorithm_unknown") == "unknown"


def test_capitals_are_asked_for_before_0_5_12() -> None:
    lower = {**EAGLE3, "algorithm": "eagle3"}
    assert severity(found(lower, "0.5.11"), "algorithm_case") == "refused"
    assert severity(found(lower, "0.5.12"), "algorithm_case") is None


def test_a_draft_is_asked_for_where_one_is_needed() -> None:
    for algorithm in ("EAGLE3", "STANDALONE", "DFLASH"):
        assert severity(found({"algorithm": algorithm}), "draft_missing") == "refused"
    assert severity(found({"algorithm": "EAGLE"}), "draft_of_the_model") == "note"
    assert severity(found({"algorithm": "NGRAM", "draft_model_path": "d"}), "draft_not_used") == "changed"


def test_widths_are_given_all_or_none_and_fit_each_other() -> None:
    assert severity(found({**EAGLE3, "num_steps": None}), "widths_incomplete") == "refused"
    assert severity(found({**EAGLE3, "num_draft_tokens": 6}), "draft_width_changed") == "changed"
    assert "num_steps + 1 = 4" in found({**EAGLE3, "num_draft_tokens": 6})["draft_width_changed"].what
    # 3 steps of 2 choices: 2 + 2 * 4 = 10 nodes.
    assert severity(found({**EAGLE3, "eagle_topk": 2, "num_draft_tokens": 11}), "tree_too_small") is None
    assert severity(found({**EAGLE3, "eagle_topk": 2, "num_draft_tokens": 12}), "tree_too_small") == "refused"


@pytest.mark.parametrize(
    ("version", "backend", "code"),
    [
        ("0.4.6", "flashinfer", "tree_lowered"),
        ("0.5.3", "flashinfer", None),
        ("0.5.5", "fa3", "tree_paged"),
        ("0.5.6", "fa3", None),
        ("0.5.12", "triton", "tree_paged"),
        ("0.5.13", "triton", None),
        ("0.5.23", "trtllm_mha", "tree_backend"),
    ],
)
def test_trees_over_pages_need_certain_attention(version: str, backend: str, code: str | None) -> None:
    tree = {**EAGLE3, "eagle_topk": 2}
    doubts = found(tree, version, "--page-size", "16", "--attention-backend", backend)
    paged = [name for name in doubts if name in ("tree_lowered", "tree_paged", "tree_backend")]
    assert paged[:1] == ([code] if code else [])
    assert not [name for name in found(tree, version, "--page-size", "1") if name.startswith("tree_")]


@pytest.mark.parametrize("version", ["0.5.3", "0.5.12", "0.5.23"])
def test_attention_that_sglang_chooses_itself_is_a_note_only(version: str) -> None:
    tree, page = {**EAGLE3, "eagle_topk": 4}, ("--page-size", "64")
    assert severity(found(tree, version, *page), "tree_paged") == "note"
    assert severity(found(NGRAM, version, *page), "ngram_paged") == "note"
    assert "SGLang chooses one" in found(tree, version, *page)["tree_paged"].what
    named = (*page, "--attention-backend", "flashmla")
    assert severity(found(tree, version, *named), "tree_paged") == "refused"
    assert severity(found(NGRAM, version, *named), "ngram_paged") == "refused"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_draft_tokens", 0, "num_draft_tokens 0 is below 1"),
        ("num_steps", -1, "num_steps -1 is below 1"),
        ("eagle_topk", 0, "eagle_topk 0 is below 1"),
        ("num_steps", "0", "num_steps 0 is below 1"),
        ("num_steps", 2.5, "num_steps 2.5 is no whole number"),
        ("eagle_topk", True, "is no whole number"),
    ],
)
def test_widths_below_one_are_refused(key: str, value: object, words: str) -> None:
    doubt = found({**EAGLE3, key: value})["impossible_value"]
    assert doubt.severity == "refused"
    assert words in doubt.what
    assert "impossible_value" in found({**NGRAM, "num_draft_tokens": 0})
    assert "impossible_value" not in found({**EAGLE3, key: "$WIDTH"})


def test_what_is_known_of_the_running_server_counts_too() -> None:
    doubts = found({**EAGLE3, "eagle_topk": 2}, config={"page_size": "64", "attention_backend": "flashmla"})
    assert severity(doubts, "tree_paged") == "refused"


@pytest.mark.parametrize(
    ("version", "device", "refused"),
    [
        ("0.5.14", "cpu", True),
        ("0.5.16", "cpu", False),
        ("0.5.19", "xpu", True),
        ("0.5.23", "xpu", False),
        ("0.5.3", "cuda", False),
    ],
)
def test_ngram_runs_on_certain_devices(version: str, device: str, refused: bool) -> None:  # noqa: FBT001
    assert ("ngram_device" in found(NGRAM, version, "--device", device)) == refused


def test_ngram_always_verifies_its_full_width() -> None:
    assert severity(found(NGRAM), "ngram_filler") == "costs"
    assert severity(found({"algorithm": "NGRAM"}), "ngram_width") == "note"
    assert severity(found({**NGRAM, "eagle_topk": 2}), "eagle_topk_overwritten") == "changed"
    assert severity(found(NGRAM, "0.5.23", "--page-size", "16"), "ngram_paged") == "note"
    one = {**NGRAM, "ngram_max_bfs_breadth": 1}
    assert severity(found(one, "0.5.23", "--page-size", "16"), "ngram_paged") is None


def test_data_parallel_attention_is_refused_by_some() -> None:
    for algorithm in ("NGRAM", "STANDALONE"):
        config = {"algorithm": algorithm, "draft_model_path": "d"}
        assert severity(found(config, "0.5.23", "--enable-dp-attention"), "dp_attention") == "refused"
    assert "dp_attention" not in found(EAGLE3, "0.5.23", "--enable-dp-attention")
    dflash = {"algorithm": "DFLASH", "draft_model_path": "d"}
    assert "dp_attention" in found(dflash, "0.5.19", "--attn-dp-size", "2")
    assert "dp_attention" not in found(dflash, "0.5.23", "--attn-dp-size", "2")


@pytest.mark.parametrize(
    ("config", "version", "env", "off"),
    [
        (EAGLE3, "0.5.10", {}, True),
        (EAGLE3, "0.5.11", {}, False),
        (EAGLE3, "0.5.9", {"SGLANG_ENABLE_SPEC_V2": "True"}, False),
        ({**EAGLE3, "eagle_topk": 2}, "0.5.12", {}, True),
        ({**EAGLE3, "eagle_topk": 2}, "0.5.13", {}, False),
        (NGRAM, "0.5.13", {}, True),
        (NGRAM, "0.5.14", {}, False),
    ],
)
def test_the_overlap_schedule_is_switched_off_by_some_releases(
    config: dict[str, Any],
    version: str,
    env: dict[str, str],
    off: bool,  # noqa: FBT001
) -> None:
    assert (severity(found(config, version, env=env), "overlap_schedule_off") == "costs") == off
    assert "overlap_schedule_off" not in found(config, version, "--disable-overlap-schedule", env=env)


@pytest.mark.parametrize(
    ("config", "version", "refused"),
    [
        (EAGLE3, "0.5.18", True),
        (EAGLE3, "0.5.19", False),
        (NGRAM, "0.5.9", False),
        (EAGLE3, "0.5.5", False),
        ({"algorithm": "STANDALONE", "draft_model_path": "d"}, "0.5.19", True),
    ],
)
def test_lora_goes_with_some_algorithms(config: dict[str, Any], version: str, refused: bool) -> None:  # noqa: FBT001
    assert ("lora" in found(config, version, "--enable-lora")) == refused


def test_pipeline_parallelism_is_refused_but_for_eagle_on_prefill_servers() -> None:
    assert severity(found(EAGLE3, "0.5.19", "--pp-size", "2"), "pipeline_parallel") == "refused"
    eagle = {**EAGLE3, "algorithm": "EAGLE"}
    assert "pipeline_parallel" in found(eagle, "0.5.23", "--pp-size", "2")
    assert "pipeline_parallel" not in found(eagle, "0.5.23", "--pp-size", "2", "--disaggregation-mode", "prefill")
    assert "pipeline_parallel" not in found(EAGLE3, "0.5.19", "--pp-size", "1")


def test_mixed_chunks_are_switched_off_or_leave_steps_uncounted() -> None:
    assert severity(found(EAGLE3, "0.5.18", "--enable-mixed-chunk"), "mixed_chunk_off") == "changed"
    assert severity(found(EAGLE3, "0.5.19", "--enable-mixed-chunk"), "mixed_chunk_steps") == "note"
    assert severity(found(NGRAM, "0.5.19", "--enable-mixed-chunk"), "mixed_chunk_off") == "changed"


def test_sampling_that_verification_leaves_out_is_named() -> None:
    assert severity(found(EAGLE3, sampling={"min_p"}), "min_p_ignored") == "changed"
    assert severity(found(EAGLE3, "0.5.3", sampling={"logit_bias"}), "logit_bias_ignored") == "changed"
    assert severity(found(EAGLE3, "0.5.4", sampling={"logit_bias"}), "logit_bias_ignored") is None
    assert severity(found(NGRAM, "0.5.9", sampling={"logit_bias"}), "logit_bias_ignored") == "changed"
    assert severity(found(NGRAM, "0.5.10", sampling={"logit_bias"}), "logit_bias_ignored") is None
    assert severity(found(EAGLE3, "0.4.6", sampling={"structured_outputs"}), "grammar_ignored") == "changed"
    assert severity(found(EAGLE3, "0.4.6.post5", sampling={"structured_outputs"}), "grammar_ignored") is None


def test_verification_away_from_cuda_is_greedy() -> None:
    assert severity(found(NGRAM, "0.5.23", "--device", "cpu"), "greedy_verification") == "note"
    hot = found(NGRAM, "0.5.23", "--device", "cpu", sampling={"temperature"})
    assert severity(hot, "greedy_verification") == "changed"
    assert "greedy_verification" not in found(NGRAM, sampling={"temperature"})


def test_a_file_of_settings_may_hold_what_the_command_does_not() -> None:
    bare = ("sglang", "serve", "--config", "server.yaml")
    assert not {"metrics_off", "max_running_requests"} & set(found(EAGLE3, command=bare))


def test_acceptance_that_is_not_the_models_own_is_named() -> None:
    assert severity(found({**EAGLE3, "accept_threshold_single": 0.9}), "accept_threshold") == "changed"
    assert "accept_threshold" not in found({**EAGLE3, "accept_threshold_acc": 1})
    assert severity(found(EAGLE3, env={"SGLANG_SIMULATE_ACC_LEN": "3.0"}), "acceptance_simulated") == "changed"
    assert "acceptance_simulated" not in found(EAGLE3, env={"SGLANG_SIMULATE_ACC_LEN": "-1"})


def test_adaptive_widths_need_a_plain_chain() -> None:
    assert severity(found({**EAGLE3, "adaptive": True}), "adaptive_rate") == "note"
    assert severity(found({**NGRAM, "adaptive": True}), "adaptive_off") == "changed"
    assert severity(found({**EAGLE3, "adaptive": True}, "0.5.23", "--enable-dp-attention"), "adaptive_off") == "changed"


def test_what_cannot_be_counted_is_said() -> None:
    bare = ("sglang", "serve", "--model-path", "m")
    assert severity(found(EAGLE3, command=bare), "metrics_off") == "note"
    assert severity(found(EAGLE3, command=bare), "max_running_requests") == "changed"
    assert severity(found(EAGLE3, "0.5.12"), "no_counters") == "note"
    assert severity(found(EAGLE3, "0.5.13"), "no_counters") is None


def test_an_unknown_version_is_said_once_and_the_releases_with_each_doubt() -> None:
    doubts = found(EAGLE3, None)
    assert severity(doubts, "version_unknown") == "note"
    assert doubts["overlap_schedule_off"].since == "0.4.6 to 0.5.10"
    assert "version_unknown" not in {
        one.code for one in SGLang("0.5.23").doubts(Planned(name="v", speculation=EAGLE3), StartupFacts())
    }


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*SETTINGS, "x"]), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    ),
    st.sampled_from([None, "0.4.6", "0.5.9", "0.5.23", "x"]),
    st.lists(st.sampled_from(["--page-size", "--pp-size", "--device", "x", "16", "--"]), max_size=6),
)
def test_odd_arms_never_raise(config: dict[str, Any], version: str | None, args: list[str]) -> None:
    arm = Planned(name="v", speculation=config, args=tuple(args))
    SGLang().doubts(arm, StartupFacts(version=version))
    SGLang().gives(arm, StartupFacts(version=version))
