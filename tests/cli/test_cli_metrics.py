"""`draftworth metrics` as a person calls it: on files, on a server, watching."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import Script
from tests.fakes.server import serving

DATA = Path(__file__).parents[1] / "engines" / "data"
LOG, PAGE = DATA / "vllm_0.32_ngram.txt", DATA / "vllm_0.32_metrics_after.txt"
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def metrics(*arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "draftworth", "metrics", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def test_a_log_is_counts_figures_windows_and_the_servers_warnings() -> None:
    done = metrics(LOG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("vLLM 0.32.0, V1 runner: ")
    for said in (
        "drafting steps                       115",
        "acceptance length per drafting step  2.64     = 1 + accepted / drafting steps",
        "not given: the line tells only of steps that drafted",
        "Newest 2 windows",
        "log: Async scheduling not supported with ngram-based speculative decoding",
    ):
        assert said in done.stdout


def test_json_has_the_promised_names_and_nothing_else_on_standard_output() -> None:
    document = json.loads(metrics(LOG, "--json").stdout)
    assert document["engine"] == "vllm"
    assert document["version"] == "0.32.0"
    assert (document["drafting_steps"], document["drafted"], document["accepted"]) == (115, 575, 189)
    assert document["accepted_per_position"] == [62, 44, 33, 27, 23]
    assert len(document["windows"]) == 2
    assert document["findings"] == []
    assert document["steps"] is None
    assert document["not_given"]["steps"] == "the line tells only of steps that drafted"
    formulas = {one["name"]: one["formula"] for one in document["figures"]}
    assert formulas["acceptance_rate"] == "accepted / drafted"


def test_standard_input_is_a_log_too() -> None:
    assert json.loads(metrics("-", "--json", input=LOG.read_text()).stdout)["drafted"] == 575


def test_a_page_with_its_log_has_the_pages_counts_and_the_logs_version() -> None:
    document = json.loads(metrics(PAGE, "--log", LOG, "--json").stdout)
    assert (document["drafted"], document["version"], document["runner"]) == (218, "0.32.0", "V1")
    assert len(document["windows"]) == 2


def test_what_lies_between_two_pages() -> None:
    document = json.loads(metrics(PAGE, "--since", DATA / "vllm_0.32_metrics_before.txt", "--json").stdout)
    assert "difference of two scrapes" in document["counts_source"]


def test_a_live_server_is_read_without_a_prompt() -> None:
    with serving(Script(), speculative_config=NGRAM) as server:
        document = json.loads(metrics(server.base_url, "--json").stdout)
        sent = [path for path, _ in server.requests]
    assert (document["engine"], document["kind"], document["version"]) == ("vllm", "server", "0.32.0")
    assert document["drafted"] == 0
    assert sent == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere.log",), "nowhere.log: no such file"),
        (("127.0.0.1:8000",), "for a server write http://127.0.0.1:8000"),
        (("http://127.0.0.1:1",), "127.0.0.1:1"),
        ((str(LOG), "--watch"), "--watch needs the URL of a server"),
        ((str(LOG), "--engine", "vlm"), "unknown engine 'vlm'"),
        ((str(LOG), "--windows", "0"), "--windows: must be at least 1"),
        ((str(PAGE), "--model", "other"), "no series of the model 'other'; it has those of smol"),
        ((str(LOG), "--since", str(PAGE)), "not a page of metrics"),
        ((str(Path(__file__)),), "is it the log of the serving engine?"),
        ((str(DATA),), "cannot be read"),
    ],
)
def test_wrong_input_is_one_line_and_exit_1(arguments: tuple[str, ...], says: str) -> None:
    done = metrics(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert says in done.stderr


def test_watching_shows_what_is_new_and_ends_with_ctrl_c() -> None:
    with serving(Script(), speculative_config=NGRAM) as server:
        command = [
            sys.executable,
            "-m",
            "draftworth",
            "metrics",
            server.base_url,
            "--watch",
            "--interval",
            "0.2",
            "--json",
        ]
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        lines = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
        watching.stdout.close()
    for line in lines:
        assert (line["engine"], line["drafted"], line["steps"]) == ("vllm", 0, 0)
