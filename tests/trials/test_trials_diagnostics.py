"""Arms that only measure: what they are set up as, and that no verdict is ever about them."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import free_port, run_cli
from tests.trials.conftest import Case

from draftworth.errors import RefusedError
from draftworth.trials.config import ArmConfig, SystemdTrial, TrialConfig
from draftworth.trials.diagnostics import expand, is_diagnostic
from draftworth.trials.judge import ArmInfo, candidates_of
from draftworth.trials.null_draft import refuse_padded

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
ARM = ArmConfig(name="ngram", speculative_config=NGRAM)


def config(*diagnostics: str, arms: tuple[dict[str, Any], ...] = (), starts: int = 1) -> TrialConfig:
    return TrialConfig.model_validate(
        {
            "service": {"command": ["vllm", "serve", "m"], "port": 8000},
            "arms": [*({"name": "ngram", "speculative_config": NGRAM},) * (not arms), *arms],
            "verdict": {"diagnostics": list(diagnostics), "starts": starts},
        }
    )


def test_they_run_in_the_mode_they_are_to_measure() -> None:
    found = expand(("null-draft", "synthetic:1.5,3"), [ARM], "vllm")
    assert [name for name, _ in found] == ["null-draft", "synthetic-1.5", "synthetic-3"]
    assert all(one["method"] == "ngram" and one["num_speculative_tokens"] == 5 for _, one in found)
    assert found[0][1]["prompt_lookup_min"] == 60, "next to nothing repeats 60 tokens"
    assert found[1][1]["synthetic_acceptance_length"] == 1.5
    assert found[1][1]["prompt_lookup_min"] == 1, "so that nearly every step drafts"
    assert all(is_diagnostic(one) for _, one in found)
    assert not is_diagnostic(NGRAM)


def test_a_head_keeps_its_own_drafts_and_has_no_null_draft() -> None:
    head = ArmConfig(name="head", speculative_config={"method": "eagle3", "model": "x", "num_speculative_tokens": 3})
    (found,) = expand(("synthetic:2",), [head], "vllm")
    assert found[1]["model"] == "x"
    with pytest.raises(ValueError, match="eagle3 drafts in every step"):
        expand(("null-draft",), [head], "vllm")


@pytest.mark.parametrize(
    ("words", "arms", "text"),
    [
        (("synthetic:7",), (), "cannot be reached with k = 5"),
        (("synthetic:0.5",), (), "cannot be reached"),
        (("synthetic",), (), "is none; there are"),
        (("synthetic:",), (), "is none; there are"),
        (("synthetic:1,a",), (), "is none; there are"),
        (("null",), (), "is none; there are"),
        (("null-draft", "null-draft"), (), "is there twice"),
        (("null-draft",), ({"name": "flag", "args": ["--x"]},), "no arm has a speculative_config"),
        (("null-draft",), ({"name": "a", "speculative_config": {"method": "ngram"}},), "no num_speculative_tokens"),
        (("null-draft",), ({"name": "null-draft", "speculative_config": NGRAM},), "two arms are named 'null-draft'"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], arms: tuple[dict[str, Any], ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        config(*words, arms=arms)


def test_sync_is_the_baseline_with_the_scheduling_of_speculation() -> None:
    found = config("sync", "null-draft")
    assert [arm.name for arm in found.variants] == ["ngram", "sync", "null-draft"]
    assert found.variants[1].args == ("--no-async-scheduling",)
    assert found.variants[1].speculative_config is None
    assert [arm.name for arm in found.candidates] == ["ngram"]


def test_another_engine_has_none() -> None:
    with pytest.raises(ValueError, match="no null draft or synthetic acceptance of sglang"):
        expand(("null-draft",), [ARM], "sglang")


def test_a_trial_has_them_as_arms_and_not_as_candidates() -> None:
    found = config("null-draft", "synthetic:2.0")
    assert [arm.name for arm in found.variants] == ["ngram", "null-draft", "synthetic-2"]
    assert [arm.name for arm in found.candidates] == ["ngram"]


def info(name: str, speculation: dict[str, Any] | None) -> ArmInfo:
    return ArmInfo(
        name=name,
        command=(),
        declared={},
        config=speculation,
        speculates=speculation is not None,
        engine="vllm",
        env={},
    )


def test_the_verdict_is_never_about_one_unless_there_is_nothing_else() -> None:
    null = {**NGRAM, "prompt_lookup_min": 60, "prompt_lookup_max": 60}
    arms = [info("baseline", None), info("null-draft", null), info("ngram", NGRAM)]
    assert [arm.name for arm in candidates_of(arms)] == ["ngram"]
    assert [arm.name for arm in candidates_of(arms[:2])] == ["null-draft"]


@given(st.lists(st.floats(1, 6, allow_nan=False).map(lambda one: round(one, 2)), min_size=1, max_size=5))
def test_every_length_that_can_be_reached_becomes_one_arm(lengths: list[float]) -> None:
    word = "synthetic:" + ",".join(f"{one:g}" for one in lengths)
    found = expand((word,), [ARM], "vllm")
    assert [one["synthetic_acceptance_length"] for _, one in found] == list(dict.fromkeys(lengths))
    assert len({name for name, _ in found}) == len(found)


def test_the_file_that_names_none_is_refused_with_its_line(tmp_path: Any) -> None:
    file = tmp_path / "draftworth.toml"
    file.write_text(
        '[service]\ncommand = ["vllm", "serve", "m"]\nport = 8000\n[[arms]]\nname = "n"\n'
        'speculative_config = { method = "ngram", num_speculative_tokens = 5 }\n[verdict]\ndiagnostics = ["nul"]\n'
    )
    told = run_cli("trial", "plan", str(file))
    assert told.code == 1
    assert "'nul' is none" in told.err
    file.write_text(
        '[service]\ntype = "endpoints"\nbaseline = "http://a:1"\n[[arms]]\nname = "n"\nurl = "http://a:2"\n'
        '[verdict]\ndiagnostics = ["null-draft"]\n'
    )
    told = run_cli("trial", "plan", str(file))
    assert told.code == 1
    assert "endpoints are not started by Draftworth" in told.err


def test_the_plan_starts_each_once_behind_the_first_round(tmp_path: Any) -> None:
    file = tmp_path / "draftworth.toml"
    file.write_text(
        f"[service]\ncommand = {json.dumps([sys.executable, '-m', 'http.server', '{speculative_args}'])}\n"
        f'port = {free_port()}\n[[arms]]\nname = "ngram"\n'
        'speculative_config = { method = "ngram", num_speculative_tokens = 5 }\n'
        '[verdict]\nstarts = 2\ndiagnostics = ["null-draft", "synthetic:2", "probe"]\n'
    )
    told = run_cli("trial", "plan", str(file), "--json", env={"DRAFTWORTH_HOME": str(tmp_path / "home")})
    assert told.code == 0, told.err
    steps = [one["id"].partition("-")[2] for one in json.loads(told.out)["steps"]]
    starts = [one.removeprefix("start-") for one in steps if one.startswith("start-")]
    # Behind the baseline that closes the round: nothing but variants lies between two baselines.
    assert starts == ["baseline", "ngram", "baseline", "null-draft", "synthetic-2", "ngram", "baseline"]


def test_a_profile_is_a_start_of_its_own_and_no_arm(case: Case) -> None:
    told = case.write(extra='[verdict]\ndiagnostics = ["profile"]\n').run().json
    # The scripted server has no profiler: that is said, and the trial goes on.
    (one, other) = [found for found in told["findings"] if found["code"] == "not_profiled"]
    assert one["arm"] == "profile-baseline"
    assert other["arm"] == "profile-ngram-5"
    assert "POST /start_profile: " in one["message"]
    assert told["verdict"] == "faster"
    assert [arm["name"] for arm in told["arms"]] == ["baseline", "ngram-5"]
    steps = [event for event in case.events() if event.kind == "intent"]
    started = next(event.data["command"] for event in steps if event.step.endswith("start-profile-baseline"))
    assert "--profiler-config" in started
    assert "ngram" not in " ".join(started[started.index("--profiler-config") :])
    case.nothing_left()


def test_a_unit_and_endpoints_have_no_profile() -> None:
    with pytest.raises(ValueError, match="writes where the unit may write"):
        SystemdTrial.model_validate(
            {
                "service": {"type": "systemd", "unit": "vllm", "port": 8000},
                "arms": [{"name": "n", "speculative_config": NGRAM}],
                "verdict": {"diagnostics": ["profile"]},
            }
        )


def test_one_that_does_not_start_is_given_up_and_the_verdict_stands(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftworth.trials.config.profiler_flags", lambda arm: ("--no-such-flag", arm))
    result = case.write(extra='[verdict]\ndiagnostics = ["profile"]\n').run()
    told = result.json
    assert result.code == 0
    assert told["verdict"] == "faster"
    assert told["restored"]
    failed = [found for found in told["findings"] if found["code"] == "diagnostic_failed"]
    assert [one["arm"] for one in failed] == ["profile-baseline", "profile-ngram-5"]
    assert "unrecognized arguments: --no-such-flag" in failed[0]["message"], "the server's own last line"
    case.nothing_left()


def test_they_have_the_flags_and_variables_of_the_arm_whose_mode_they_measure() -> None:
    arm = {
        "name": "eager",
        "speculative_config": NGRAM,
        "args": ["--enforce-eager"],
        "env": {"VLLM_USE_V2_MODEL_RUNNER": "0"},
    }
    found = config("null-draft", "synthetic:2", "sync", arms=(arm,)).diagnostic_arms
    told = {one.name: (one.args, one.env) for one in found}
    assert told["null-draft"] == told["synthetic-2"] == (("--enforce-eager",), {"VLLM_USE_V2_MODEL_RUNNER": "0"})
    assert told["sync"] == (("--no-async-scheduling",), {}), "it is the baseline with another scheduling"


@pytest.mark.parametrize("method", ["eagle3", "mtp", "deepseek_mtp", "ngram_gpu", "draft_model"])
def test_scheduling_alone_is_no_arm_where_a_method_keeps_it(method: str) -> None:
    arm = {"name": "a", "speculative_config": {"method": method, "num_speculative_tokens": 3}}
    with pytest.raises(ValueError, match=f"{method} keeps asynchronous scheduling"):
        config("sync", arms=(arm,))
    assert config("sync", arms=(arm, {"name": "ngram", "speculative_config": NGRAM})).diagnostic_arms


@pytest.mark.parametrize(
    ("version", "device", "env", "refused"),
    [
        ("0.32.0", None, {}, True),
        ("0.32.0", "cpu", {}, False),  # no Triton there, so the V1 runner
        ("0.25.0", None, {}, False),  # its V2 runner has no n-gram drafting
        ("0.32.0", None, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, False),
        (None, None, {}, False),
    ],
)
def test_a_null_draft_is_refused_where_every_step_drafts(
    monkeypatch: pytest.MonkeyPatch, *, version: str | None, device: str | None, env: dict[str, str], refused: bool
) -> None:
    monkeypatch.setattr("draftworth.trials.null_draft.device_here", lambda: device)
    asked = config("null-draft", arms=({"name": "ngram", "speculative_config": NGRAM, "env": env},))
    if not refused:
        refuse_padded(asked, ["vllm", "serve", "m"], version)
        return
    with pytest.raises(RefusedError, match="drafts in every step"):
        refuse_padded(asked, ["vllm", "serve", "m"], version)
