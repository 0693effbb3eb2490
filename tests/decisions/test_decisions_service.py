"""Evidence counts only for the service it was measured on, and for the arm it is of."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.decisions.decisions_lab import edited, keep, record, run, tree
from tests.decisions.test_decisions_gates import holds, prediction

from draftworth.costs.base import Costs
from draftworth.decisions.assumptions import assumptions_of, changed
from draftworth.decisions.check import check
from draftworth.decisions.known import Known
from draftworth.reports.trial.model import model_of

OURS = 'assumptions = { engine = "vllm", model = "SmolLM2-135M-Instruct" }\n'
FASTER = '{ trial = "A", verdict = "faster" }'


def of_model(data: dict[str, Any], model: str = "Qwen3") -> dict[str, Any]:
    """Return a record whose server served another model."""
    found: dict[str, Any] = json.loads(json.dumps(data).replace("SmolLM2", model))
    return found


def without_figures(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a record that has the arm and no comparison of it."""
    other = json.loads(json.dumps(data["comparisons"][0]).replace("ngram-5", "eagle"))
    arms = [*data["arms"], {**data["arms"][1], "name": "eagle"}]
    return data | {"comparisons": [other], "comparison": other, "best": "eagle", "arms": arms} | more


# --- the arm's own figures


@pytest.mark.parametrize(
    "condition", [FASTER, '{ trial = "A", verdict = "slower" }', '{ trial = "A", ratio_below = 1.0 }']
)
def test_an_arm_without_figures_is_not_known_whatever_the_trial_says(tmp_path: Path, condition: str) -> None:
    keep(tmp_path, without_figures(edited("faster")))
    found = holds(tmp_path, condition)
    assert found.holds is None
    assert found.reason == "trial 20261201-100000 has no figures of ngram-5"


def test_what_was_measured_before_stands_where_a_newer_trial_has_no_figures(tmp_path: Path) -> None:
    keep(tmp_path, edited("faster"))
    keep(tmp_path, without_figures(edited("slower", (1.2, 1.1, 1.3), trial="20261202-100000")))
    assert holds(tmp_path, FASTER).holds is True


def test_a_trial_that_failed_says_nothing_of_an_arm_but_that_it_failed(tmp_path: Path) -> None:
    keep(tmp_path, edited("error", error="it died"))
    assert holds(tmp_path, FASTER).holds is None
    assert holds(tmp_path, '{ trial = "A", verdict = "error" }').holds is True
    assert holds(tmp_path, '{ trial = "20261201-100000", verdict = "faster" }').holds is None
    keep(tmp_path, edited("faster", trial="20261202-100000"))
    assert holds(tmp_path, '{ trial = "A", verdict = "error" }').holds is False


def test_a_verdict_about_an_arm_that_only_measures_holds_no_gate(tmp_path: Path) -> None:
    data = edited("faster")
    data["arms"][1]["declared"]["speculative_config"]["prompt_lookup_min"] = 60
    other = {**data["arms"][1], "name": "eagle", "declared": {}}
    keep(tmp_path, data | {"arms": [*data["arms"], other]})
    found = holds(tmp_path, '{ trial = "20261201-100000", verdict = "faster" }')
    assert found.holds is None
    assert "which only measures" in found.reason


# --- the option's own service


def test_a_trial_of_another_model_holds_no_gate(tmp_path: Path) -> None:
    keep(tmp_path, of_model(edited("faster", trial="20261202-100000")))
    assert holds(tmp_path, FASTER, option=OURS).holds is None
    by_id = holds(tmp_path, '{ trial = "20261202-100000", verdict = "faster" }', option=OURS)
    assert (by_id.holds, by_id.reason) == (None, "trial 20261202-100000 is of another service than C")
    keep(tmp_path, edited("slower", (1.2, 1.1, 1.3)))
    found = holds(tmp_path, FASTER, option=OURS)
    assert (found.holds, found.reason) == (False, "trial 20261201-100000: ngram-5 is slower")


def test_an_options_record_says_which_service_it_is_of(tmp_path: Path) -> None:
    tree(tmp_path, '[[options]]\nname = "A"\ntitle = "a"\nmethod = "ngram"\narm = "ngram-5"\n')
    keep(tmp_path, edited("faster"))
    assert run(tmp_path, "decide", "latest").code == 0
    keep(tmp_path, of_model(edited("slower", (1.2, 1.1, 1.3), trial="20261202-100000")))
    assert holds(tmp_path, FASTER).holds is True, "of the tree's other option the newest record tells"


def test_of_several_services_none_is_taken_for_the_options_own(tmp_path: Path) -> None:
    keep(tmp_path, edited("faster"))
    keep(tmp_path, of_model(edited("faster", trial="20261202-100000")))
    for condition in (FASTER, '{ engine = "vllm", version_at_least = "0.1" }'):
        found = holds(tmp_path, condition)
        assert found.holds is None
        assert "trials of several services are kept" in found.reason
        assert "SmolLM2-135M-Instruct on vllm" in found.reason
        assert "give it assumptions" in found.reason


def test_the_engine_of_another_service_is_not_seen(tmp_path: Path) -> None:
    condition = '{ engine = "vllm", version_at_least = "0.33" }'
    keep(tmp_path, of_model(edited(version="0.40.0", trial="20261202-100000")))
    assert holds(tmp_path, condition, option=OURS).holds is None
    (tmp_path / "costs").mkdir()
    costs = Costs(created="2026-12-03T00:00:00Z", engine="vllm", version="0.41.0", model="Qwen3-8B")
    (tmp_path / "costs" / "c.json").write_text(costs.model_dump_json())
    assert holds(tmp_path, condition, option=OURS).holds is None
    keep(tmp_path, edited(version="0.32.0"))
    assert holds(tmp_path, condition, option=OURS).holds is False


def test_a_prediction_for_another_service_is_not_used_and_that_is_said(tmp_path: Path) -> None:
    named = prediction(tmp_path, [(1.10, 1.05, 1.15)], (2, 2, 2))
    path = tmp_path / "p.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"costs": {"engine": "vllm", "model": "Qwen3-8B"}}))
    condition = "{ predicted_speed_up_at_least = 1.02 }"
    assert holds(tmp_path, condition, option=OURS + named).holds is None
    known = Known.read(tmp_path / "decisions")
    check(known)
    assert known.left_out == [
        "p.json: of Qwen3-8B on vllm, and C is of SmolLM2-135M-Instruct on vllm: not used",
    ]
    path.write_text(json.dumps(data | {"costs": {"engine": "vllm", "model": "/models/SmolLM2-135M-Instruct"}}))
    assert holds(tmp_path, condition, option=OURS + named).holds is True


def test_reloads_are_those_of_the_options_own_service(tmp_path: Path) -> None:
    tree(tmp_path, f'[[options]]\nname = "A"\ntitle = "a"\nmethod = "ngram"\narm = "ngram-5"\n{OURS}')
    keep(tmp_path, of_model(edited(trial="20261202-100000")))
    assert run(tmp_path, "decisions", "next", "--json").json["steps"][0]["minutes"] is None
    keep(tmp_path, edited())
    assert "20261201-100000" in run(tmp_path, "decisions", "next", "--json").json["steps"][0]["minutes"]["source"]


# --- an arm that only is scheduled as speculation is


def test_the_scheduling_alone_is_neither_adopted_nor_ruled_out(tmp_path: Path) -> None:
    data = json.loads(json.dumps(edited("faster")).replace('"ngram-5"', '"sync"'))
    data["arms"][1]["declared"] = {"args": ["--no-async-scheduling"]}
    keep(tmp_path, data)
    done = run(tmp_path, "decide", "latest", "--arm", "sync")
    assert done.code == 1
    assert "sync has no speculation, and only the scheduling that it gets (--no-async-scheduling)" in done.err
    assert not list((tmp_path / "decisions").glob("0*.md"))


# --- hardware


def test_a_gpu_that_an_older_record_does_not_name_is_no_change_and_another_one_is() -> None:
    def under(**machine: Any) -> Any:
        data = edited()
        found = record(data | {"machine": {**data["machine"], **machine}})
        return assumptions_of(found, None, found.comparison)

    assert under(gpus=["8 x NVIDIA H200"]).hardware == "processor AMD EPYC, cores 2, gpus 8 x NVIDIA H200"
    assert changed(under(), under(gpus=["8 x NVIDIA H200"])) == []
    (told,) = changed(under(gpus=["8 x NVIDIA H200"]), under(gpus=["8 x NVIDIA B200"]))
    assert told.startswith("hardware: ")
    assert changed(under(), under(gpus=["1 x A"], cores=64)) != []


# --- the model


@pytest.mark.parametrize(
    ("command", "service", "model"),
    [
        (["vllm", "serve", "org/a", "--port", "1"], {"model": "alias"}, "org/a"),
        (["python", "-m", "sglang.launch_server", "--model-path", "/m/b"], {}, "/m/b"),
        ([], {"command": ["llama-server", "-m", "/m/q4.gguf"]}, "/m/q4.gguf"),
        (["run.sh"], {"model": "alias"}, "alias"),
        (["run.sh"], {}, ""),
    ],
)
def test_the_model_is_what_the_command_loads_else_what_is_asked_for(
    command: list[str], service: dict[str, Any], model: str
) -> None:
    data = edited()
    data["arms"][0]["command"] = command
    data["config"]["service"] = service
    assert model_of(record(data)) == model
