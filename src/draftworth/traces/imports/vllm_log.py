"""vLLM's log with `--enable-log-requests --enable-log-outputs`: prompts and ids at level DEBUG.

Lines as written by vllm/entrypoints/serve/utils/request_logger.py of vLLM 0.32, each with the log's own prefix:

    Request ID details: prompt: 'REPR', prompt_token_ids: [1, 2], prompt_embeds shape: None.
    Received request ID: params: SamplingParams(n=1, …, temperature=0.0, …), lora_request: None.
    Generated response ID details: output_token_ids: [3, 4]
    Generated response ID: output: 'REPR', finish_reason: stop

and of versions before, where `Received request` had the prompt and its ids, and `Generated response` the output's. A
streamed answer is logged as `(streaming delta)` lines, whose ids leave out chunks without text, and one `(streaming
complete)` line with the text. The JSON formatter is understood too. Outputs are logged for chat completions; 0.32 logs
none for /v1/completions.
"""

import ast
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, object_of
from draftworth.traces.jsonl import lines

NOT_ANSWERED = "no answer in the log (vLLM logs none for /v1/completions, and none without --enable-log-outputs)"
NO_PROMPT = "no prompt in the log (vLLM writes it at log level DEBUG)"
NOT_ASKED = "an answer whose request is not in the log"
CUT_OFF = "cut off by the server's --max-log-len"
FORGOTTEN = "its answer did not come within 20,000 requests"
NOTHING = (
    "a log of vLLM without requests; it has them where vLLM runs with --enable-log-requests --enable-log-outputs and "
    "VLLM_LOGGING_LEVEL=DEBUG; or record with `draftworth trace proxy`"
)
"""What is said of a log without requests."""
_HELD = 20_000

_IDS = r"(?:(?:array\('\w', )?[\[(](?P<ids>[\d, ]*)[\])]+|None)"
_MESSAGE = re.compile(r"(?:^|\] )(?:(?:Request|Received request|Generated response) \S+)")
_DETAILS = re.compile(r"Request (?P<id>\S+) details: prompt: (?P<prompt>.*), prompt_token_ids: " + _IDS)
_RECEIVED = re.compile(r"Received request (?P<id>\S+): (?:prompt: (?P<prompt>.*), )?params: (?P<params>.*)")
_OLD_IDS = re.compile(r"\), prompt_token_ids: " + _IDS + ", ")
_OUTPUT = re.compile(
    r"Generated response (?P<id>[^\s:]+)(?P<how> \(streaming (?:delta|complete)\))?"
    r"(?: details: output_token_ids: " + _IDS + r"|: output: (?P<text>.*), finish_reason: )"
)
_OLD_OUTPUT = re.compile(r"(?P<text>.*), output_token_ids: " + _IDS)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_TEMPERATURE = re.compile(r"\btemperature=([\d.]+)")
_N = re.compile(r"SamplingParams\(n=(\d+)")
_MODEL = re.compile(r"served_model_name=([^\s,)]+)")
_LIMIT = re.compile(r"'max_log_len': (\d+)")
_COUNTED = re.compile(r"^<streaming_complete: (\d+) tokens>$")
_MARKS = (b"details: ", b"Received request ", b"Generated response ", b"served_model_name=", b"max_log_len")


@dataclass(slots=True)
class _Request:
    where: str
    prompt: str | None = None
    prompt_ids: list[int] | None = None
    temperature: float | None = None
    n: int = 1
    answers: int = 0
    ids: list[int] = field(default_factory=list)


class VllmLog:
    """A vLLM server's log: requests and answers, joined by their ids."""

    name = "vllm-log"
    title = "a vLLM server's log (--enable-log-requests --enable-log-outputs, level DEBUG)"

    def fits(self, sample: Sample) -> bool:
        """Return whether the log's beginning has a request, or is vLLM's."""
        return bool(
            re.search(r"Received request \S+: (?:prompt|params): |Request \S+ details: prompt: ", sample.text)
            or (
                "vllm" in sample.text.lower()
                and re.search(r"\b(?:INFO|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[", sample.text)
            )
        )

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every answer, and every request without one; see `Importer.read`."""
        log = _Log()
        for number, line in lines(path):
            if any(mark in line for mark in _MARKS):
                yield from log.line(_said(line), f"{path}:{number}")
        yield from log.end()


class _Log:
    """What of a log is still open."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Request] = OrderedDict()
        self._model: str | None = None
        self._limit: int | None = None

    def line(self, text: str, where: str) -> Iterator[Found]:
        message = _MESSAGE.search(text)
        at = message.start() + 2 * text.startswith("] ", message.start()) if message else 0
        if message is None:
            model, limit = _MODEL.search(text), _LIMIT.search(text)
            self._model = model[1].strip("'\"[]") if model else self._model
            self._limit = int(limit[1]) if limit else self._limit
        elif found := _OUTPUT.match(text, at):
            yield from self._output(found, where)
        elif found := _DETAILS.match(text, at):
            request = self._request(found["id"], where)
            request.prompt, request.prompt_ids = _text(found["prompt"]), _numbers(found["ids"])
        elif found := _RECEIVED.match(text, at):
            self._received(found, where)
        while len(self._open) > _HELD:
            _, request = self._open.popitem(last=False)
            if not request.answers:
                yield request.where, BadRow(FORGOTTEN)

    def end(self) -> Iterator[Found]:
        for request in self._open.values():
            if not request.answers:
                yield request.where, BadRow(NOT_ANSWERED)

    def _request(self, name: str, where: str) -> _Request:
        return self._open.setdefault(name, _Request(where))

    def _received(self, found: "re.Match[str]", where: str) -> None:
        request = self._request(found["id"], where)
        if found["prompt"] is not None:
            request.prompt = _text(found["prompt"])
            ids = _OLD_IDS.search(found["params"])
            request.prompt_ids = _numbers(ids["ids"]) if ids else None
        temperature, n = _TEMPERATURE.search(found["params"]), _N.search(found["params"])
        request.temperature = float(temperature[1]) if temperature else None
        request.n = int(n[1]) if n else 1

    def _output(self, found: "re.Match[str]", where: str) -> Iterator[Found]:
        request = self._open.get(found["id"])
        delta = "delta" in (found["how"] or "")
        if request is None:
            if found["text"] is not None and not delta:
                yield where, BadRow(NOT_ASKED)
            return
        written, ids = found["text"], _numbers(found["ids"])
        if old := _OLD_OUTPUT.fullmatch(written or ""):
            written, ids = old["text"], _numbers(old["ids"])
        if ids:
            request.ids = [*request.ids, *ids] if delta else ids
        if written is None or delta:
            return  # the whole text follows in a line of its own
        made, request.ids = request.ids, []
        request.answers += 1
        name = found["id"] if request.n == 1 else f"{found['id']}#{request.answers}"
        yield where, self._recorded(name, request, made, _text(written), streamed=found["how"] is not None)
        if request.answers >= request.n:
            del self._open[found["id"]]

    def _recorded(
        self, name: str, request: _Request, ids: list[int], text: str | None, *, streamed: bool
    ) -> Recorded | BadRow:
        counted = _COUNTED.match(text or "")
        text = None if counted else text
        if streamed and request.n > 1:
            ids = []  # of several answers at a time, which a delta does not tell apart
        if request.prompt_ids is None and request.prompt is None:
            return BadRow(NO_PROMPT)
        if self._limit is not None and self._limit in {
            len(request.prompt_ids or ()) or len(request.prompt or ""),
            len(ids) or len(text or ""),
        }:
            return BadRow(CUT_OFF)
        return Recorded(
            request_id=name,
            prompt_ids=request.prompt_ids,
            prompt_text=request.prompt,
            output_ids=ids or None,
            output_text=text,
            temperature=request.temperature,
            model=self._model,
            whole=not streamed or (counted is not None and int(counted[1]) == len(ids)),
        )


def _said(line: bytes) -> str:
    """Return a line as text: without colours, and of the JSON formatter what it says."""
    text = _COLOUR.sub("", line.decode("utf-8", "replace")).rstrip("\r\n")
    if text.startswith("{"):
        message = object_of(text).get("message")
        return message if isinstance(message, str) else text
    return text


def _numbers(text: str | None) -> list[int] | None:
    return [int(one) for one in text.split(",") if one.strip()] if text is not None else None


def _text(written: str | None) -> str | None:
    """Return the text that Python wrote as a literal; None where it is none."""
    if written is None or written[:1] not in {"'", '"'}:
        return None
    try:
        found = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, str) else None
