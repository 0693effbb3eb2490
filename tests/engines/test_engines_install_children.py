import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.install.children import Runner, child_env, last_words, told
from draftworth.errors import RefusedError


def runner(tmp_path: Path, tell: Any = lambda _line: None, every: float = 10.0) -> Runner:
    return Runner(env=dict(os.environ), log=tmp_path / "log", tell=tell, every=every)


def python(code: str) -> list[str | Path]:
    return [sys.executable, "-S", "-c", code]


def test_what_a_step_prints_comes_back_and_is_kept(tmp_path: Path) -> None:
    steps = runner(tmp_path)
    code = "import sys; print('one', flush=True); print('zwei ä', file=sys.stderr)"
    assert steps.run(python(code), "counting") == ["one", "zwei ä"]
    steps.run(python("print('three')"), "counting")
    assert steps.log.read_text("utf-8") == "one\nzwei ä\nthree\n"


def test_a_failed_step_shows_its_last_three_lines_and_where_the_rest_is(tmp_path: Path) -> None:
    code = "print('1\\n2\\n3\\nWARNING: noise\\n4'); raise SystemExit(7)"
    with pytest.raises(RefusedError) as caught:
        runner(tmp_path).run(python(code), "installing torch")
    assert str(caught.value) == (
        f"installing torch failed (exit 7): 2 / 3 / 4 (all it printed is in {tmp_path / 'log'})"
    )
    assert caught.value.exit_code == 2


def test_a_step_that_was_killed_says_by_what(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"failed \(ended by signal 9\): it printed nothing"):
        runner(tmp_path).run(python("import os; os.kill(os.getpid(), 9)"), "installing")


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="making it failed: cannot run /no/python: No such file"):
        runner(tmp_path).run(["/no/python"], "making it")


def test_a_silent_step_still_shows_that_it_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    code = "import time; print('Collecting a', flush=True); time.sleep(0.5)"
    progress = {"Collecting a": "1 of 9"}.get
    runner(tmp_path, said.append, every=0.1).run(python(code), "installing", progress)
    assert len(said) >= 2
    assert all(re.fullmatch(r" +\d+ s  installing: 1 of 9", line) for line in said[1:])


def test_a_step_cannot_ask_questions(tmp_path: Path) -> None:
    assert runner(tmp_path).run(python("print(repr(input() if False else __import__('sys').stdin.read()))"), "x") == [
        "''"
    ]


def test_an_interrupted_step_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, time, sys; c = subprocess.Popen(['sleep', '60']); "
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{c.pid}}'); print('up', flush=True); time.sleep(60)"
    )

    def interrupt() -> None:
        while not (pids.exists() and len(pids.read_text().split()) == 2):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path, every=0.1).run(python(code), "waiting")
    thread.join()
    for pid in pids.read_text().split():
        deadline = time.monotonic() + 5
        while _alive(int(pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not _alive(int(pid)), f"process {pid} was left behind"


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_pip_is_not_sent_elsewhere_by_the_callers_environment(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin",
        "PIP_INDEX_URL": "https://mirror.example/simple",
        "PIP_FIND_LINKS": "/wheels",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_TARGET": "/elsewhere",
        "PIP_USER": "1",
        "PIP_CONSTRAINT": "/etc/constraints.txt",
        "PIP_NO_BINARY": ":all:",
        "PYTHONPATH": "/shadow",
        "PYTHONHOME": "/shadow",
    }
    env = child_env(environ, tmp_path)
    assert {key: env[key] for key in ("PATH", "PIP_INDEX_URL", "PIP_FIND_LINKS", "HTTPS_PROXY")} == {
        key: environ[key] for key in ("PATH", "PIP_INDEX_URL", "PIP_FIND_LINKS", "HTTPS_PROXY")
    }
    assert not env.keys() & {"PIP_TARGET", "PIP_NO_BINARY", "PYTHONPATH", "PYTHONHOME"}
    assert env["PIP_USER"] == env["PIP_REQUIRE_VIRTUALENV"] == "0"
    assert env["TMPDIR"] == str(tmp_path)
    assert "TMPDIR" not in child_env(environ)


@given(lines=st.lists(st.text(max_size=20) | st.sampled_from(["{}", '{"a": 1}', "{", '{"b": 2}']), max_size=5))
def test_a_report_is_read_from_the_last_line_that_looks_like_one(lines: list[str]) -> None:
    last = next((line for line in reversed(lines) if line.startswith("{")), None)
    try:
        wanted = json.loads(last or "")["a"]
    except (ValueError, KeyError):
        with pytest.raises(RefusedError, match=r"report cannot be read .* is in /some/log"):
            told(lines, Path("/some/log"), "a")
    else:
        assert told(lines, Path("/some/log"), "a") == {"a": wanted}


def test_only_warnings_are_better_than_no_words() -> None:
    assert last_words(["WARNING: a", "WARNING: b"]) == "WARNING: a / WARNING: b"
    assert last_words([]) == "it printed nothing"
