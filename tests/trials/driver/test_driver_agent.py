"""The agent: one document in, lines out. What systemd does is in tests/real/test_real_ssh.py."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import draftworth
from draftworth.errors import RefusedError, UsageError
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver import agent
from draftworth.trials.driver.station import PlanShown

VERSION = draftworth.__version__
SHOWN = PlanShown(lines=(), data={}, port=8000, fingerprint="f")
Serve = Callable[..., tuple[int, list[dict[str, Any]]]]


class Station:
    """Starts nothing, and tells what it was asked."""

    started: list[SystemdTrial] = []
    error: Exception | None = None
    slow_s = 0.0

    def start(self, config: SystemdTrial, shown: PlanShown) -> str:
        time.sleep(self.slow_s)
        if self.error is not None:
            raise self.error
        self.started.append(config)
        return f"20260101-00000{len(self.started)}"

    def status(self, trial: str | None) -> list[dict[str, Any]]:
        raise ZeroDivisionError


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Serve]:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_KEY", "")
    monkeypatch.setattr(agent, "LocalStation", Station)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    Station.started, Station.error, Station.slow_s = [], None, 0.0

    def ask(verb: str, **asked: Any) -> tuple[int, list[dict[str, Any]]]:
        code = agent.serve(verb, {"version": VERSION, **asked})
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask  # type: ignore[return-value]


def asked(**more: Any) -> dict[str, Any]:
    config = {
        "service": {"type": "systemd", "unit": "llm", "host": "gpu1", "ca_file": "/mine/ca.pem", "port": 8000},
        "arms": [{"name": "ngram", "speculative_config": {"method": "ngram"}}],
        "workload": {"source": "/mine/ca.pem"},
    }
    files = {
        "workload.source": {"name": "ca.pem", "data": base64.b64encode(b"prompts").decode()},
        "service.ca_file": {"name": "../../ca.pem", "data": base64.b64encode(b"authority").decode()},
    }
    shown = SHOWN.model_dump(mode="json")
    variables = {"MY_KEY": "secret"}
    return {"key": "ab" * 16, "config": config, "files": files, "shown": shown, "variables": variables, **more}


def test_the_clients_files_and_variables_come_along(serve: Serve, tmp_path: Path) -> None:
    assert serve("start", **asked()) == (0, [{"trial": "20260101-000001"}])
    (config,) = Station.started
    assert config.service.host == ""
    assert config.service.ca_file is not None
    assert Path(config.workload.source).read_bytes() == b"prompts"
    assert config.service.ca_file.read_bytes() == b"authority"
    sent = tmp_path / "home" / "sent"
    for path in (Path(config.workload.source), config.service.ca_file):
        assert path.parent == sent / ("ab" * 16)
    assert oct((sent / ("ab" * 16)).stat().st_mode)[-3:] == "700"
    assert os.environ["MY_KEY"] == "secret"
    assert "secret" not in "".join(path.read_text() for path in sent.rglob("*") if path.is_file())


def test_one_key_starts_one_trial(serve: Serve) -> None:
    """Also where the second request comes while the first is being dealt with."""
    Station.slow_s = 0.3
    answers: list[tuple[int, list[dict[str, Any]]]] = []
    first = threading.Thread(target=lambda: answers.append(serve("start", **asked())))
    first.start()
    time.sleep(0.1)
    again = serve("start", **asked())
    first.join()
    assert len(Station.started) == 1
    assert {one["trial"] for _, told in [*answers, again] for one in told} == {"20260101-000001"}
    assert serve("start", **asked(key="cd" * 16))[1] == [{"trial": "20260101-000002"}]
    assert serve("start", **asked())[1] == [{"trial": "20260101-000001"}]


def test_a_start_that_was_refused_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    Station.error = RefusedError("busy")
    assert serve("start", **asked()) == (2, [{"error": {"exit": 2, "text": "busy", "commands": []}}])
    assert list((tmp_path / "home" / "sent").iterdir()) == []
    Station.error = None
    assert serve("start", **asked())[0] == 0


def test_what_came_long_ago_is_removed(serve: Serve, tmp_path: Path) -> None:
    serve("start", **asked())
    old = tmp_path / "home" / "sent" / ("ab" * 16)
    os.utime(old, (1e9, 1e9))
    serve("start", **asked(key="cd" * 16))
    assert [path.name for path in old.parent.iterdir()] == ["cd" * 16]


def test_what_is_wrong_is_an_answer(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(verb: str, **more: Any) -> tuple[int, str]:
        code, (answer,) = serve(verb, **more)
        assert answer["error"]["exit"] == code
        return code, answer["error"]["text"]

    assert error("shutdown") == (1, f"'shutdown': no such request; known: {', '.join(agent.VERBS)}")
    code, text = error("hello", version="0.0.1")
    assert (code, text.split(";")[0]) == (1, f"Draftworth {VERSION} is installed there and 0.0.1 here")
    for key in ("../../etc", "", "x" * 32):
        assert error("start", **asked(key=key)) == (1, f"{key!r}: not a key of a request")
    assert error("status")[0] == 5
    assert "unexpected error on the serving machine: ZeroDivisionError()" in error("status")[1]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for verb in ("plan", "start"):
        code, text = error(verb, **asked())
        assert code == 2
        assert "set service.sudo = true" in text
    monkeypatch.setenv("DRAFTWORTH_HOME", "/proc/none")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code, text = error("start", **asked())
    assert (code, text.partition(":")[0]) == (1, "/proc/none")


def run(*words: str, stdin: bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "draftworth", "agent", *words]
    return subprocess.run(argv, input=stdin, capture_output=True, check=False, env={**os.environ, **env}, timeout=30)


def test_it_is_hidden_and_reads_one_document(tmp_path: Path) -> None:
    help_text = subprocess.run([sys.executable, "-m", "draftworth", "--help"], capture_output=True, check=True).stdout
    assert b" agent " not in help_text
    hello = run("hello", stdin=json.dumps({"version": VERSION}).encode(), DRAFTWORTH_HOME=str(tmp_path))
    assert json.loads(hello.stdout)["home"] == str(tmp_path)
    for cut in (b'{"version": "0.', b"[]", b"\xff"):
        done = run("hello", stdin=cut, DRAFTWORTH_HOME=str(tmp_path))
        assert done.returncode == 1
        assert done.stderr.startswith(b"draftworth: `draftworth agent` is run by draftworth itself")
        assert done.stdout == b""


def test_it_ends_when_nobody_reads(tmp_path: Path) -> None:
    """A client whose connection was lost leaves no process behind on the machine that serves."""
    trial = tmp_path / "trials" / "20260101-000000"
    trial.mkdir(parents=True)
    (trial / "tag").write_text("20260101-000000-abcdef", encoding="ascii")
    code = (
        "from draftworth.trials.driver import attach; attach._ALIVE_EVERY_S = 0.2\n"
        "from draftworth.cli import main; main(['agent', 'events'])"
    )
    asked = {"version": VERSION, "trial": trial.name}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DRAFTWORTH_HOME": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
        told = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        assert told == ["trial", "alive"]
        process.stdout.close()
        assert process.wait(10) == 0
        assert process.stderr.read() == b""


def test_errors_of_the_file_are_the_persons(serve: Serve) -> None:
    """A file that this version does not take was made by another one, or by hand."""
    wrong = asked()
    wrong["config"]["limits"] = {"no_such": 1}
    code, (answer,) = serve("start", **wrong)
    assert code == 1
    assert "limits.no_such" in answer["error"]["text"]
    assert UsageError.exit_code == code
