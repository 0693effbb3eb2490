"""A server that answers chats and completions with the token ids of a small target, and counts what it is asked."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.training.states_files import write_states
from draftworth.training.template import ChatTemplate

Answers = Callable[[str], str]
Spoil = Callable[[NDArray[np.int32], NDArray[np.float32]], tuple[NDArray[np.int32], NDArray[np.float32]]]


class AnsweringServer:
    """What the server does; a test changes it while it runs.

    Attributes:
        answer: makes the answer's text of the last message's.
        with_ids: whether ids are told.
        failures: statuses of the next requests, in order.
        asked: bodies of all requests that were answered.
        storage: where it puts the hidden states of every request; None: it extracts none.
        spoil: changes tokens and states in front of their writing.
        whole: whether it stores the states of answers, too, where that is asked for.
        sampler: `right`, or `hot` or `cold` whatever the temperature that is asked for.
    """

    def __init__(self, target: Path, answer: Answers) -> None:
        self.template = ChatTemplate(target, {}, learn_thinking=True)
        self.answer = answer
        self.with_ids = True
        self.finish = "stop"
        self.failures: list[int] = []
        self.refuse_fields = False
        self.asked: list[Mapping[str, Any]] = []
        self.lock = threading.Lock()
        self.url = ""
        self.storage: Path | None = None
        self.spoil: Spoil = lambda ids, states: (ids, states)
        self.whole = True
        self.sampler = "right"
        self._stored = 0

    def reply(self, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        with self.lock:
            if self.failures:
                status = self.failures.pop(0)
                if status != 200:
                    return status, {"error": {"message": f"scripted {status}"}}
            if self.refuse_fields and "return_token_ids" in body:
                return 400, {"error": {"message": "unknown field return_token_ids"}}
            if body.get("temperature", 0) > 2:
                return 400, {"error": {"message": "temperature must be in [0, 2]"}}
            self.asked.append(body)
        if path == "/v1/completions/render":
            return 404, {"error": {"message": "not there"}}
        if path == "/v1/completions":
            prompt = list(body["prompt"])
            text = self._sampled(self.answer(self.template.decode(prompt)), body)
            made: dict[str, Any] = {"text": text, "index": 0, "finish_reason": self.finish}
        else:
            shown = self.template.render(body["messages"], body.get("tools"), begin=True)
            prompt = self.template.output(shown).tolist()
            text = self.answer(body["messages"][-1]["content"])
            made = {"message": {"role": "assistant", "content": text}, "index": 0, "finish_reason": self.finish}
        said: dict[str, Any] = {"id": "x", "model": "m", "choices": [made]}
        if self.with_ids and body.get("return_token_ids"):
            made["token_ids"] = self.template.output(text + "<|im_end|>").tolist()
            said["prompt_token_ids"] = prompt
            said["usage"] = {"completion_tokens": len(made["token_ids"])}
        if self.storage is not None:
            said["kv_transfer_params"] = {"hidden_states_path": self._store(body, prompt, text)}
        return 200, said

    def _sampled(self, text: str, body: Mapping[str, Any]) -> str:
        """Return what is sampled for a text: another one for each seed where it is hot."""
        hot = self.sampler == "hot" or (self.sampler == "right" and body["temperature"] > 1)
        return f"{' '.join([str(body['seed'])] * 3)} {text}" if hot and body["temperature"] > 0 else text

    def _store(self, body: Mapping[str, Any], prompt: list[int], text: str) -> str:
        """Store the states of what was read, and of all but the last of what was written, as vLLM's connector does."""
        written = self.template.output(text + "<|im_end|>").tolist()[:-1] if body["max_tokens"] > 1 else []
        asked = (body.get("kv_transfer_params") or {}).get("include_output_tokens") and self.whole
        ids = np.array([*prompt, *written] if asked else prompt, np.int32)
        with self.lock:
            self._stored += 1
            assert self.storage is not None
            path = self.storage / f"{self._stored}.safetensors"
        path.with_name(f"{path.name}.lock").touch()
        write_states(path, *self.spoil(ids, states_of(ids)), "fp32")
        return str(path)


def states_of(ids: NDArray[np.int32], slots: int = 4, hidden: int = 128) -> NDArray[np.float32]:
    """Return states that tell position, token and slot."""
    at = np.arange(1, len(ids) + 1)[:, None, None] + ids[:, None, None] / 1024
    return (at + np.zeros((1, slots, hidden)) + np.arange(slots)[:, None] * 1000).astype(np.float32)


@contextmanager
def answering(target: Path, answer: Answers) -> Iterator[AnsweringServer]:
    """Run such a server on a free port."""
    server = AnsweringServer(target, answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._say(200, {"data": [{"id": "m"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._say(*server.reply(self.path, body))

        def _say(self, status: int, value: Mapping[str, Any]) -> None:
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
