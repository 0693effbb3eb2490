"""What a server can do, told by asking it: each thing that is missing is named by its flag."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftworth.errors import MeasureError, RefusedError
from draftworth.training.capabilities import check_extracts, probe
from draftworth.training.extraction import flags
from draftworth.training.shape import TargetShape
from draftworth.training.states_files import path_of, why_not, write_states
from draftworth.training.states_vllm import UnsoundError, Wanted, discard, extract, requested, taken

SHAPE = TargetShape(Path("target"), 8, 16, (2, 4, 5))


class FakeServer(ThreadingHTTPServer):
    """A vLLM that extracts states, as far as its switches say."""

    def __init__(self, storage: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.storage = storage
        self.extracts = True
        self.echoes = True
        self.render = 200
        self.break_next = 0
        self.spoil: str = ""
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        found: Any = {"/version": {"version": "0.32.0"}}.get(self.path)
        if self.path == "/v1/models":
            found = {"data": [{"id": "target", "max_model_len": 64}]}
        self._send(200 if found else 404, found or {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions/render":
            self._send(self.server.render, {})
            return
        self.server.asked += 1
        ids = np.array(body["prompt"], np.int32)
        answer: dict[str, Any] = {"choices": [{"text": "a"}]}
        if self.server.echoes:
            answer["choices"][0]["prompt_token_ids"] = body["prompt"]
        if self.server.extracts:
            path = self.server.storage / f"{self.server.asked}.safetensors"
            states = np.repeat(ids[:, None, None], 4, 1).repeat(16, 2).astype(np.float32)
            if self.server.break_next:
                self.server.break_next -= 1
                states = {"nan": states * np.nan, "short": states[:-1], "slots": states[:, :-1]}[self.server.spoil]
                ids = ids[: len(states)]
            write_states(path, ids, states, "fp32")
            answer["kv_transfer_params"] = {"hidden_states_path": str(path)}
        self._send(200, answer)

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    storage = tmp_path / "storage"
    storage.mkdir()
    with FakeServer(storage) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_a_server_that_extracts(server: FakeServer) -> None:
    found = probe(server.url)
    assert (found.version, found.model, found.max_model_len) == ("0.32.0", "target", 64)
    assert found.echoes_ids
    assert found.render == "there"
    check_extracts(found, 63, "FLAGS")


@pytest.mark.parametrize(("status", "render"), [(403, "off"), (404, "not there"), (422, "there")])
def test_the_render_endpoint(server: FakeServer, status: int, render: str) -> None:
    server.render = status
    assert probe(server.url).render == render


def test_what_is_missing_is_named(server: FakeServer) -> None:
    server.extracts = False
    with pytest.raises(RefusedError, match=r"0\.32\.0\) does not extract hidden states; start it with FLAGS"):
        check_extracts(probe(server.url), 10, "FLAGS")
    server.extracts, server.echoes = True, False
    with pytest.raises(RefusedError, match="return_token_ids"):
        check_extracts(probe(server.url), 10, "FLAGS")
    server.echoes = True
    with pytest.raises(RefusedError, match=r"takes 64 tokens, and the longest sample has 64 .*--max-model-len"):
        check_extracts(probe(server.url), 64, "FLAGS")
    gone = probe(server.url).model_copy(update={"states_path": "/nowhere/of/mine/1.safetensors"})
    with pytest.raises(RefusedError, match="not on this machine; set shared_storage_path"):
        check_extracts(gone, 10, "FLAGS")


def test_no_server() -> None:
    with pytest.raises(MeasureError, match="no answer"):
        probe("http://127.0.0.1:9")


def test_the_flags_name_the_layers_and_the_last_one() -> None:
    words = flags(SHAPE, "/shared", on_cpu=True)
    speculative, transfer = (json.loads(words[words.index(name) + 1]) for name in words if name.endswith("-config"))
    hf = speculative["draft_model_config"]["hf_config"]
    assert hf == {"eagle_aux_hidden_state_layer_ids": [2, 4, 5, 8]}
    assert speculative["num_speculative_tokens"] == 1
    assert transfer["kv_connector_module_path"] == "draftworth_connector"
    assert transfer["kv_connector_extra_config"] == {"shared_storage_path": "/shared"}
    assert "--enable-scale-out" in words


def test_every_sample_is_taken_checked_and_the_server_s_file_removed(server: FakeServer, tmp_path: Path) -> None:
    wanted = [Wanted(row, tmp_path, np.arange(row + 2, dtype=np.int32)) for row in range(9)]
    done: list[int] = []
    extract(server.url, "target", wanted, SHAPE, "bf16", at_a_time=3, told=lambda one: done.append(one.row))
    assert sorted(done) == list(range(9))
    assert all(why_not(path_of(tmp_path, one.row), one.ids, SHAPE, "bf16") == "" for one in wanted)
    assert list(server.storage.iterdir()) == []


def test_a_file_in_another_folder_is_neither_read_nor_removed(server: FakeServer, tmp_path: Path) -> None:
    ids = np.arange(5, dtype=np.int32)
    with pytest.raises(UnsoundError, match=r"the server names .*, which is not in .*elsewhere as the first one was"):
        requested(server.url, "target", ids, SHAPE, tmp_path / "elsewhere")
    assert len([one for one in server.storage.iterdir() if one.suffix == ".safetensors"]) == 1


def test_a_file_that_holds_no_states_is_not_removed(tmp_path: Path) -> None:
    theirs = tmp_path / "notes.txt"
    theirs.write_text("mine")
    discard(theirs)
    with pytest.raises(UnsoundError):
        taken(theirs, np.arange(5, dtype=np.int32), SHAPE)
    assert theirs.read_text() == "mine"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [("nan", "not finite"), ("short", "--no-enable-prefix-caching"), ("slots", "it extracts other layers")],
)
def test_states_that_are_not_sound_are_never_kept(
    server: FakeServer, tmp_path: Path, spoil: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftworth.training.states_vllm._PAUSE_S", 0.01)
    server.spoil, server.break_next = spoil, 1
    with pytest.raises(UnsoundError, match=why):
        requested(server.url, "target", np.arange(5, dtype=np.int32), SHAPE)
    # Once is a hiccup: it is asked for again.
    server.break_next = 1
    extract(
        server.url,
        "target",
        [Wanted(0, tmp_path, np.arange(5, dtype=np.int32))],
        SHAPE,
        "fp32",
        at_a_time=1,
        told=lambda _: None,
    )
    assert why_not(path_of(tmp_path, 0), np.arange(5, dtype=np.int32), SHAPE, "fp32") == ""
