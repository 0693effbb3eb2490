"""`draftworth trace proxy` as a process: how it ends, what it says, what a kill leaves."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving
from tests.helpers import wait_for
from tests.traces.test_traces_proxy import CHAT, chat
from tests.traces.traces_proxy_kit import port_of, post, rows_of

from draftworth.cli.trace_live import _listen, proxy
from draftworth.errors import UsageError

RUN = (
    "import sys, json\n"
    "from pathlib import Path\n"
    "from draftworth.cli.trace_live import proxy\n"
    "options = json.loads(sys.argv[1])\n"
    "sys.exit(proxy(**{**options, 'out': Path(options['out'])}))\n"
)


class Running:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.err = ""
        assert process.stderr is not None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.err += line

    @property
    def url(self) -> str:
        return str(wait_for(lambda: re.search(r"http://\S+(?= passes on)", self.err), 15, "it listens")[0])

    def ended(self) -> tuple[int, str]:
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        code = self.process.wait(20)
        self._thread.join(5)
        return code, out


@contextlib.contextmanager
def proxy_process(upstream: str, out: Path, **options: Any) -> Iterator[Running]:
    told = {"upstream": upstream, "listen": "127.0.0.1:0", "out": str(out), "as_json": True, **options}
    with subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(told)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def ask(url: str, body: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port_of(url)), timeout=10) as client:
        client.sendall(post(CHAT, body))
        got = b""
        while data := client.recv(65536):
            got += data
    return got


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_json_says_what_is_there(tmp_path: Path, number: int) -> None:
    with serving(Script(tokens=5, token_ms=0.5)) as server, proxy_process(server.base_url, tmp_path / "t.p") as running:
        ask(running.url, chat(return_token_ids=True))
        ask(running.url, chat())
        running.process.send_signal(number)
        code, out = running.ended()
    told = json.loads(out)
    assert code == 0
    assert (told["recorded"], told["rows"], told["seen"], told["stopped"]) == (1, 1, 2, None)
    assert told["left_out"] == {"the answer has no token ids": 1}
    assert len(rows_of(tmp_path / "t.p")) == 1
    assert "Traceback" not in running.err


def test_it_ends_by_itself_where_asked_and_asks_for_ids(tmp_path: Path) -> None:
    with (
        serving(Script(tokens=5, token_ms=0.5)) as server,
        proxy_process(server.base_url, tmp_path / "t.p", ask_ids=True, max_requests=2, exit=True) as running,
    ):
        for _ in range(2):
            assert b'"token_ids": [' in ask(running.url, chat())
        code, out = running.ended()
    assert (code, json.loads(out)["rows"]) == (0, 2)


def test_nothing_recorded_is_exit_6(tmp_path: Path) -> None:
    with (
        serving(Script()) as server,
        proxy_process(server.base_url, tmp_path / "t.p", as_json=False, duration=0.1, exit=True) as running,
    ):
        code, out = running.ended()
    assert code == 6
    assert f"nothing was recorded: there is no {tmp_path / 't.p'}\n0 completion requests were seen\n" in out
    assert list(tmp_path.iterdir()) == []


def test_it_says_at_once_and_soon_that_ids_must_be_asked_for(tmp_path: Path) -> None:
    with (
        serving(Script(tokens=3, token_ms=0.1, first_token_ms=0.1)) as server,
        proxy_process(server.base_url, tmp_path / "t.p", as_json=False) as running,
    ):
        url = running.url
        wait_for(lambda: "--ask-ids asks for them" in running.err, 5, "the warning")
        for _ in range(20):
            ask(url, chat())
        wait_for(lambda: "the first 20 answers had no token ids: nothing is recorded so far" in running.err, 10, "more")
        running.process.send_signal(signal.SIGTERM)
        code, out = running.ended()
    assert code == 6
    assert out.startswith("nothing was recorded: ")
    assert "clients do not ask for token ids: record again with --ask-ids" in out
    assert running.err.count("the first 20 answers") == 1


def test_an_existing_trace_is_refused_before_anything_begins(tmp_path: Path) -> None:
    (tmp_path / "t.p").write_bytes(b"precious")
    with proxy_process("http://127.0.0.1:9", tmp_path / "t.p", ask_ids=True) as running:
        code, out = running.ended()
    assert (code, out) == (1, "")
    assert "is there already" in running.err
    assert "recording stopped" not in running.err


def test_a_kill_leaves_a_whole_trace(tmp_path: Path) -> None:
    """The recorder outlives the process that passes bytes on by as long as it needs."""
    with (
        serving(Script(tokens=4000, token_ms=5)) as server,
        proxy_process(server.base_url, tmp_path / "t.p") as running,
    ):
        url = running.url
        thread = threading.Thread(target=lambda: ask(url, chat(max_tokens=1500, return_token_ids=True)), daemon=True)
        thread.start()
        time.sleep(0.5)
        os.kill(running.process.pid, signal.SIGKILL)
        wait_for((tmp_path / "t.p").exists, 10, "the trace is closed")
        (row,) = rows_of(tmp_path / "t.p")
    assert len(row["output_token_ids"]) > 10
    assert [path.name for path in tmp_path.iterdir()] == ["t.p"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sample": 0.0}, "--sample: must be above 0, and at most 1"),
        ({"exit": True}, "--exit needs"),
        ({"upstream": "http://127.0.0.1:9/base"}, "give the URL without /base"),
        ({"listen": "nowhere"}, "--listen: must be like"),
        ({"max_requests": 0}, "--max-requests: must be above 0"),
        ({"listen": "203.0.113.1:80"}, "--listen 203.0.113.1:80: "),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    given = {"upstream": "http://127.0.0.1:9", "listen": "127.0.0.1:0", "out": tmp_path / "t.p", **options}
    with pytest.raises(UsageError, match=re.escape(said)):
        proxy(**given)
    assert list(tmp_path.iterdir()) == []


def test_addresses_to_listen_on() -> None:
    assert _listen("8001") == ("127.0.0.1", 8001)
    assert _listen("0.0.0.0:8001") == ("0.0.0.0", 8001)
    assert _listen("[::1]:8001") == ("::1", 8001)
