"""SGLang's log with `--log-requests --log-requests-level 3`: one line when a request ends, as text or as JSON.

As written by srt/utils/request_logger.py of SGLang 0.5.23, behind `[date time] `:

    Finish: obj=GenerateReqInput(rid='…', text='…', input_ids=[…], …), out={'text': '…', 'output_ids': […], …}
    {"timestamp": …, "event": "request.finished", "rid": …, "obj": {…}, "out": {…}}

Level 2 cuts texts and lists at 2048 entries, levels 0 and 1 leave them out. With incremental streaming the line has
only the last chunk, which shows by its number of tokens.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, number_of, object_of
from draftworth.traces.jsonl import NOT_JSON, fault_of, lines

CUT_OFF = "cut off at 2048 (SGLang logs whole requests at --log-requests-level 3)"
LEFT_OUT = "neither text nor ids in the log (SGLang writes them at --log-requests-level 3)"
LAST_CHUNK = "only the last chunk of the output is in the log (incremental streaming)"
BATCH = "a batch of requests in one"
UNREADABLE = "a line that cannot be read"
NOT_ENDED = "no end of the request in the log"
NOTHING = (
    "a log of SGLang without requests; it has them where SGLang runs with --log-requests --log-requests-level 3; or "
    "record with `draftworth trace proxy`"
)
"""What is said of a log without requests."""
_HELD = 100_000
_CUT_LIST, _CUT_TEXT = "...", 1024
_JSON = re.compile(r'\{"timestamp": .*"event": "request\.(received|finished)"')
_TEXT = re.compile(r"(?:^|\] )(Receive|Finish): obj=\w+\(")
_RID = re.compile(r"\brid='([^']+)'")
_MODEL = re.compile(r"served_model_name='([^']+)'")
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_TOKEN = re.compile(_STRING + r"|[\[\](){}]|, ")
_KEY = re.compile(r"(?:(\w+)=|'(\w+)': )")


class SglangLog:
    """An SGLang server's log: every request that ended."""

    name = "sglang-log"
    title = "an SGLang server's log (--log-requests --log-requests-level 3)"

    def fits(self, sample: Sample) -> bool:
        """Return whether the log's beginning has a request, or is SGLang's."""
        text = sample.text
        return bool(_JSON.search(text) or re.search(r"\] (?:Receive|Finish)(?: OpenAI)?: obj=", text)) or (
            "server_args=ServerArgs(" in text
        )

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every request that ended, and those that did not; see `Importer.read`."""
        model: str | None = None
        began: dict[str, str] = {}
        for number, line in lines(path):
            where, text = f"{path}:{number}", line.decode("utf-8", "replace").rstrip("\r\n")
            as_json, as_text = _JSON.search(text), _TEXT.search(text)
            if as_json and (not as_text or as_json.start() < as_text.start()):
                rid, ended, found = _of_json(text[as_json.start() :])
            elif as_text:
                rid, ended, found = _of_text(text, as_text)
            else:
                named = _MODEL.search(text) if "server_args=" in text else None
                model = named[1] if named else model
                continue
            if not ended:
                if rid and len(began) < _HELD:
                    began[rid] = where
                continue
            began.pop(rid or "", None)
            yield where, found if isinstance(found, BadRow) else _recorded(found[0], found[1], rid, model)
        for where in began.values():
            yield where, BadRow(NOT_ENDED)


_Line = tuple[str | None, bool, tuple[Mapping[str, Any], Mapping[str, Any]] | BadRow]
"""The request's id, whether it ended, and request and output."""


def _of_json(text: str) -> _Line:
    try:
        found = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        fault = fault_of(text.encode(errors="replace"))
        return None, True, BadRow(UNREADABLE if fault == NOT_JSON else fault)
    rid = found.get("rid")
    made = (object_of(found.get("obj")), object_of(found.get("out")))
    return rid if isinstance(rid, str) else None, found["event"].endswith("finished"), made


def _of_text(text: str, mark: "re.Match[str]") -> _Line:
    if mark[1] == "Receive":
        rid = _RID.search(text)
        return rid[1] if rid else None, False, ({}, {})
    try:
        asked, at = _fields(text, mark.end())
        behind = text.find("out={", at)
        out = _fields(text, behind + len("out={"))[0] if behind >= 0 else {}
    except (ValueError, IndexError):
        return None, True, BadRow(UNREADABLE)
    rid = _value(asked.get("rid"))
    params = asked.get("sampling_params", "")
    request = {key: _value(asked.get(key)) for key in ("text", "input_ids")}
    request["sampling_params"] = _fields(params, 1)[0] if params.startswith("{") else {}
    meta = out.get("meta_info", "")
    answer = {key: _value(out.get(key)) for key in ("text", "output_ids", "prompt_token_ids")}
    answer["meta_info"] = {
        key: _value(value) for key, value in (_fields(meta, 1)[0] if meta.startswith("{") else {}).items()
    }
    return rid if isinstance(rid, str) else None, True, (request, answer)


def _fields(text: str, at: int) -> tuple[dict[str, str], int]:
    """Take `key=value, …)` or `'key': value, …}` apart at its outermost level. Returns the values as written, the end.

    Raises:
        ValueError: it has no end.
    """
    found: dict[str, str] = {}
    depth, begin, key = 0, at, ""
    if named := _KEY.match(text, at):
        key, begin = named[1] or named[2], named.end()
    for token in _TOKEN.finditer(text, at):
        one = token[0]
        if one in {"[", "(", "{"}:
            depth += 1
        elif one in {"]", ")", "}"}:
            if not depth:
                found[key] = text[begin : token.start()]
                return found, token.end()
            depth -= 1
        elif one == ", " and not depth and (named := _KEY.match(text, token.end())):
            found[key] = text[begin : token.start()]
            key, begin = named[1] or named[2], named.end()
    raise ValueError("no end")


def _value(written: str | None) -> Any:
    """Return a value that Python wrote; BadRow's reason stays with a cut one."""
    if written is None:
        return None
    if " ... " in written and re.fullmatch(
        rf"(?:{_STRING}) \.\.\. (?:{_STRING})|\[[^\]]*\] \.\.\. \[[^\]]*\]", written
    ):
        return [_CUT_LIST]
    if written.startswith("[") and not written.startswith("[["):
        try:
            return [int(one) for one in written[1:-1].split(",") if one.strip()]
        except ValueError:
            return None
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _recorded(
    request: Mapping[str, Any], out: Mapping[str, Any], rid: str | None, model: str | None
) -> Recorded | BadRow:
    meta = object_of(out.get("meta_info"))
    prompt_ids, output_ids = request.get("input_ids") or out.get("prompt_token_ids"), out.get("output_ids")
    prompt, text = request.get("text"), out.get("text")
    if isinstance(prompt_ids, list) and prompt_ids and isinstance(prompt_ids[0], list):
        return BadRow(BATCH)
    if any(_is_cut(one) for one in (prompt_ids, output_ids)) or (
        (prompt_ids is None and _is_cut(prompt)) or (output_ids is None and _is_cut(text))
    ):
        return BadRow(CUT_OFF)
    if (prompt_ids is None and not isinstance(prompt, str)) or (output_ids is None and not isinstance(text, str)):
        return BadRow(LEFT_OUT)
    tokens = meta.get("completion_tokens")
    if isinstance(tokens, int) and output_ids is not None and len(output_ids) != tokens:
        return BadRow(LAST_CHUNK)
    temperature = object_of(request.get("sampling_params")).get("temperature")
    return Recorded(
        request_id=rid,
        prompt_ids=prompt_ids,
        prompt_text=prompt if isinstance(prompt, str) else None,
        output_ids=output_ids,
        output_text=text if isinstance(text, str) else None,
        temperature=number_of(_value(temperature) if isinstance(temperature, str) else temperature),
        model=model,
    )


def _is_cut(value: object) -> bool:
    if isinstance(value, list):
        return _CUT_LIST in value
    cut = isinstance(value, str) and len(value) == 2 * _CUT_TEXT + len(_CUT_LIST)
    return cut and str(value)[_CUT_TEXT : _CUT_TEXT + len(_CUT_LIST)] == _CUT_LIST
