"""`draftworth doctor` as a person calls it, before anything is touched."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import Script
from tests.fakes.server import serving

DATA = Path(__file__).parents[1] / "engines" / "data"
BASELINE, NGRAM_LOG, PAGE = (
    DATA / "vllm_0.32_baseline.txt",
    DATA / "vllm_0.32_ngram.txt",
    DATA / "vllm_0.32_metrics_after.txt",
)
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'


def doctor(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "draftworth", "doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def examined(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = doctor(*arguments, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_log_alone_tells_engine_version_runner_and_mode() -> None:
    found = examined(NGRAM_LOG)
    assert (found["engine"], found["version"], found["runner"], found["device"]) == ("vllm", "0.32.0", "V1", "cpu")
    assert found["mode"] == "ngram, 5 tokens"
    assert examined(BASELINE)["mode"] == "off"
    assert "No arm is planned" in doctor(BASELINE).stdout


def test_a_metrics_dump_alone_tells_what_is_counted() -> None:
    found = examined(PAGE)
    assert (found["engine"], found["version"], found["models"]) == ("vllm", None, ["smol"])
    assert {one["name"] for one in found["gives"] if one["given"]} == {
        *("steps", "drafting_steps", "drafted", "accepted", "accepted_per_position", "emitted")
    }


def test_a_live_server_is_examined_with_a_planned_arm() -> None:
    with serving(Script()) as server:
        found = examined(server.base_url, "--arm", NGRAM)
    assert (found["version"], found["version_from"], found["mode"]) == (
        "0.32.0",
        "the server",
        "off (no counters of drafts)",
    )
    (arm,) = found["arms"]
    assert {one["code"] for one in arm["doubts"]} >= {"async_scheduling_off"}
    assert all(one["fix"] for one in arm["doubts"])


def test_a_misspelt_key_is_refused_with_the_right_one() -> None:
    found = examined(BASELINE, "--arm", '{"method": "ngram", "num_spec_tokens": 5}', code=2)
    fixes = [one["fix"] for one in found["arms"][0]["doubts"] if one["severity"] in {"refused", "unknown"}]
    assert any("num_speculative_tokens" in fix for fix in fixes)


def test_parameters_that_requests_set_are_judged_too() -> None:
    found = examined(BASELINE, "--arm", NGRAM, "--sampling", "min_p, logit_bias", code=2)
    assert any("min_p" in one["what"] for one in found["arms"][0]["doubts"])


def test_another_release_can_be_asked_about() -> None:
    found = examined(
        BASELINE, "--arm", '{"method": "suffix", "num_speculative_tokens": 8}', "--release", "0.10.2", code=2
    )
    assert (found["version"], found["version_from"]) == ("0.10.2", "--release")


def test_a_trials_file_is_examined_arm_by_arm_though_its_server_is_down(tmp_path: Path) -> None:
    path = tmp_path / "draftworth.toml"
    path.write_text(
        '[service]\ncommand = ["vllm", "serve", "m", "--port", "1"]\nport = 1\n'
        '[[arms]]\nname = "ngram-5"\nspeculative_config = { method = "ngram", num_speculative_tokens = 5 }\n',
        encoding="utf-8",
    )
    found = examined(path)
    assert [arm["name"] for arm in found["arms"]] == ["baseline", "ngram-5"]
    assert any("nothing was read from http://127.0.0.1:1" in one["message"] for one in found["findings"])
    with_log = examined(path, "--log", BASELINE)
    assert with_log["version"] == "0.32.0"
    planned = examined(BASELINE, "--plan", path)
    assert [arm["name"] for arm in planned["arms"]] == ["baseline", "ngram-5"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((BASELINE, "--arm", "{"), "--arm: no JSON"),
        ((BASELINE, "--arm", "[1]"), "--arm: must be a JSON object"),
        (("nowhere.toml",), "nowhere.toml: no such file"),
        ((BASELINE, "--plan", "nowhere.toml"), "nowhere.toml"),
        ((Path(__file__),), "is it the log of the serving engine?"),
    ],
)
def test_wrong_input_is_one_line_and_exit_1(arguments: tuple[str | Path, ...], says: str) -> None:
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--sampling", "minp"), "did you mean min_p?"),
        (("--release", "newest"), "--release: must be like 0.32.0"),
    ],
)
def test_a_typing_error_is_no_all_clear(arguments: tuple[str, ...], says: str) -> None:
    done = doctor(BASELINE, "--arm", NGRAM, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr


def test_a_trials_file_of_another_engine_than_its_server_says_what_to_set(tmp_path: Path) -> None:
    path = tmp_path / "draftworth.toml"
    with serving(Script()) as server:
        port = server.base_url.rpartition(":")[2]
        path.write_text(
            f'[service]\nengine = "llamacpp"\ncommand = ["llama-server", "-m", "m.gguf", "--port", "{port}"]\n'
            f'port = {port}\n[[arms]]\nname = "a"\nspeculative_config = {{ type = "ngram-simple" }}\n',
            encoding="utf-8",
        )
        done = doctor(path)
    assert done.returncode == 1
    assert 'is of vLLM, not of llama.cpp: name what belongs together, or set service.engine = "vllm"' in done.stderr


def test_a_service_that_speculates_already_spoils_a_baseline_and_is_said_to(tmp_path: Path) -> None:
    path = tmp_path / "draftworth.toml"
    path.write_text(
        '[service]\ncommand = ["vllm", "serve", "m"]\nport = 8000\n'
        '[[arms]]\nname = "a"\nspeculative_config = { method = "ngram", num_speculative_tokens = 5 }\n',
        encoding="utf-8",
    )
    found = examined(NGRAM_LOG, "--plan", path)
    assert any(one["code"] == "baseline_speculates" for one in found["findings"])
    assert not any(one["code"] == "baseline_speculates" for one in examined(BASELINE, "--plan", path)["findings"])


def test_an_arm_named_twice_is_examined_once(tmp_path: Path) -> None:
    path = tmp_path / "draftworth.toml"
    path.write_text(
        '[service]\ncommand = ["vllm", "serve", "m", "--port", "1"]\nport = 1\n'
        '[[arms]]\nname = "ngram-5"\nspeculative_config = { method = "ngram", num_speculative_tokens = 5 }\n',
        encoding="utf-8",
    )
    assert len(examined(path, "--plan", path)["arms"]) == 2
