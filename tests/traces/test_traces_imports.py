"""Records of others as traces: ids where there are any, else text by the tokenizer; each row left out says why.

The logs in data/ were written by the engines' own code: vllm_0.32_requests*.txt by vLLM 0.32's RequestLogger with both
formatters (the line that names the model is shortened), sglang_0.5.23_requests*.txt by the formatting functions of
SGLang 0.5.23's request_logger.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traces.traces_kit import DATA, ids, jsonl, read, table, tokenizer

from draftworth.errors import UsageError
from draftworth.traces.imports import FORMATS, ImportedTrace, importers, recognised
from draftworth.traces.imports.sglang_log import _fields, _value
from draftworth.traces.store import open_trace
from draftworth.traces.tokenizing import Tokenizer

HELLO = [{"role": "user", "content": "hello there"}]
RENDERED = ids("<s>", "user", ":", "hello", "there", "assistant", ":")


def imported(
    path: Path, form: str | None = None, *, text: Path | None = None, **options: Any
) -> tuple[list[dict[str, Any]], ImportedTrace, str]:
    """Return the rows, the trace after reading, and the format."""
    importer = recognised(path, importers(**options), form)
    trace = ImportedTrace(path, importer, Tokenizer(tokenizer(text)) if text else None)
    return read(trace), trace, importer.name


def short(rows: list[dict[str, Any]]) -> list[tuple[str, list[int], list[int], bool]]:
    return [(one["request_id"], one["prompt_token_ids"], one["output_token_ids"], one["exact"]) for one in rows]


# OpenAI-style logs


def exchange(choice: dict[str, Any], request: dict[str, Any] | None = None, **response: Any) -> dict[str, Any]:
    asked = {"model": "asked", "messages": HELLO, "temperature": 0.5} if request is None else request
    return {"request": asked, "response": {"id": "c1", "model": "m", "choices": [{"index": 0, **choice}], **response}}


def test_ids_of_a_chat_are_exact(tmp_path: Path) -> None:
    one = exchange({"message": {"content": "a"}, "token_ids": [7, 2]}, prompt_token_ids=[1, 5])
    rows, _, form = imported(jsonl(tmp_path / "l", [one]))
    assert form == "openai"
    assert short(rows) == [("c1", [1, 5], [7, 2], True)]
    assert (rows[0]["temperature"], rows[0]["model"], rows[0]["tokenizer_hash"]) == (0.5, "m", None)


def test_ids_of_a_completion_are_in_its_choice(tmp_path: Path) -> None:
    choice = {"text": "a", "token_ids": [7], "prompt_token_ids": [1, 5]}
    assert short(imported(jsonl(tmp_path / "l", [exchange(choice, {"prompt": "hello"})]))[0]) == [
        ("c1", [1, 5], [7], True)
    ]


def test_a_prompt_of_ids_needs_no_tokenizer(tmp_path: Path) -> None:
    for prompt in ([4, 5], [[4, 5]]):
        one = exchange({"text": "a", "token_ids": [7]}, {"prompt": prompt})
        assert short(imported(jsonl(tmp_path / "l", [one]))[0]) == [("c1", [4, 5], [7], True)]


@pytest.mark.parametrize("as_text", [False, True])
def test_a_stream_is_put_together_by_choice(tmp_path: Path, as_text: bool) -> None:  # noqa: FBT001
    chunks = [
        {"id": "c1", "prompt_token_ids": [1], "choices": [{"index": 0, "delta": {"role": "assistant"}}]},
        {"id": "c1", "choices": [{"index": 1, "delta": {"content": "x"}, "token_ids": [8]}]},
        {"id": "c1", "choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [5, 6]}]},
        {"id": "c1", "choices": [{"index": 0, "delta": {"content": "b"}, "token_ids": [7]}]},
        {"id": "c1", "choices": [], "usage": {"completion_tokens": 4}},
    ]
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    one = {"request": {"messages": HELLO}, "response": stream if as_text else chunks}
    assert short(imported(jsonl(tmp_path / "l", [one]))[0]) == [
        ("c1#0", [1], [5, 6, 7], True),
        ("c1#1", [1], [8], True),
    ]


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_a_stream_whose_text_has_other_ends_of_lines(tmp_path: Path, end: str) -> None:
    # vLLM writes them as they are: str.splitlines would cut the event.
    said = {"index": 0, "delta": {"content": "a\u2028b\u0085c\x1cd"}, "token_ids": [5, 6]}
    chunk = json.dumps({"id": "c1", "prompt_token_ids": [1], "choices": [said]}, ensure_ascii=False)
    one = {"request": {"messages": HELLO}, "response": f"data: {chunk}{end}data: [DONE]{end}"}
    assert short(imported(jsonl(tmp_path / "l", [one]))[0]) == [("c1", [1], [5, 6], True)]


def test_ids_that_lack_some_of_the_tokens_are_not_exact(tmp_path: Path) -> None:
    one = exchange({"text": "", "token_ids": [7]}, prompt_token_ids=[1], usage={"completion_tokens": 2})
    assert short(imported(jsonl(tmp_path / "l", [one]))[0]) == [("c1", [1], [7], False)]


def test_ids_named_in_log_probabilities(tmp_path: Path) -> None:
    chat = {"message": {"content": "a"}, "logprobs": {"content": [{"token": "token_id:7"}, {"token": "token_id:2"}]}}
    completion = {"text": "a", "logprobs": {"tokens": ["token_id:7", "token_id:2"]}}
    by_text = {"text": "a", "logprobs": {"tokens": ["a"]}}
    made = [exchange(one, prompt_token_ids=[1]) for one in (chat, completion, by_text)]
    rows, trace, _ = imported(jsonl(tmp_path / "l", made))
    assert [one["output_token_ids"] for one in rows] == [[7, 2], [7, 2]]
    assert trace.bad.counts == {"text only, and no tokenizer was given": 1}


def test_engines_own_endpoints(tmp_path: Path) -> None:
    sglang = {"request": {"text": "x", "input_ids": [1, 2]}, "response": {"text": "a", "output_ids": [7]}}
    llama = {"request": {"prompt": [1, 2]}, "response": {"content": "a", "tokens": [8]}}
    ext = exchange({"message": {"content": "a"}}, sglext={"input_ids": [1, 2], "output_ids": [[9, 2]]})
    rows, _, _ = imported(jsonl(tmp_path / "l", [llama, sglang, ext]))
    assert [(one["output_token_ids"], one["exact"]) for one in rows] == [([8], True), ([7], True), ([9, 2], True)]


def test_native_streams_of_sglang_whole_and_incremental(tmp_path: Path) -> None:
    def chunk(ids: list[int], tokens: int) -> dict[str, Any]:
        return {"text": "", "output_ids": ids, "meta_info": {"completion_tokens": tokens}}

    asked = {"input_ids": [1]}
    made = [
        {"request": asked, "response": [chunk([7], 1), chunk([7, 8, 9], 3)]},
        {"request": asked, "response": [chunk([7], 1), chunk([8, 9], 3)]},
    ]
    rows, _, _ = imported(jsonl(tmp_path / "l", made))
    assert [(one["output_token_ids"], one["exact"]) for one in rows] == [([7, 8, 9], True)] * 2


KEYS = [
    "request",
    "response",
    "messages",
    "prompt",
    "choices",
    "message",
    "content",
    "delta",
    "token_ids",
    "prompt_token_ids",
    "logprobs",
    "tokens",
    "usage",
    "completion_tokens",
    "completion_tokens_details",
    "id",
    "index",
    "model",
    "body",
    "custom_id",
    "error",
    "output_ids",
    "meta_info",
    "sglext",
    "conversations",
    "from",
    "value",
    "role",
    "resourceSpans",
    "scopeSpans",
    "spans",
    "attributes",
    "key",
    "stringValue",
    "events",
    "parts",
    "type",
    "text",
    "gen_ai.prompt",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "meta",
    "output_token_ids",
    "prompt_tokens",
    "output",
    "tools",
    "thinking_tokens",
    "temperature",
    "category",
    "tool_calls",
    "spanId",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**65)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "user", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@given(st.lists(JSON, min_size=1, max_size=4), st.sampled_from(FORMATS))
@settings(deadline=None, max_examples=300)
def test_no_record_breaks_the_reading(tmp_path_factory: pytest.TempPathFactory, made: list[Any], form: str) -> None:
    path = jsonl(tmp_path_factory.getbasetemp() / "fuzz", made)
    model = tmp_path_factory.getbasetemp() / "tok"
    try:
        rows, _, _ = imported(path, form, text=model, outputs_only=True)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is fine, a crash is not
    else:
        assert all(one["output_token_ids"] for one in rows)


def test_text_is_tokenised_and_marked(tmp_path: Path) -> None:
    chat = exchange({"message": {"content": "a b", "reasoning_content": "think c"}})
    completion = exchange({"text": "a"}, {"prompt": "hello"})
    rows, _, _ = imported(jsonl(tmp_path / "l", [chat, completion]), text=tmp_path / "tok")
    assert short(rows) == [
        ("c1", RENDERED, ids("think", "c", "a", "b"), False),
        ("c1", ids("<s>", "hello"), ids("a"), False),
    ]
    assert [one["thinking_tokens"] for one in rows] == [2, None]
    assert rows[0]["tokenizer_hash"] == Tokenizer(tmp_path / "tok").hash


def test_what_cannot_be_used_says_why(tmp_path: Path) -> None:
    made = [
        exchange({"text": "a", "token_ids": [7]}, prompt_token_ids=[1]),
        {"request": {"messages": HELLO}, "response": {"error": {"message": "no"}}},
        {"request": {"messages": HELLO}, "response": {"status_code": 500, "body": ""}},
        {"request": {"messages": HELLO}, "response": {"choices": []}},
        exchange({"message": {"content": None, "tool_calls": [{}]}}, prompt_token_ids=[1]),
        {"x": 1},
        "half a line",
        exchange({"text": "a"}, {"prompt": ["x", "y"]}),
        exchange({"text": "a", "token_ids": [7]}, {"prompt": None}),
    ]
    path = jsonl(tmp_path / "l", made)
    rows, trace, _ = imported(path)
    assert len(rows) == 1
    assert trace.bad.counts == {
        "the request failed": 2,
        "no answer": 1,
        "the answer is a tool call, whose tokens cannot be told from the record": 1,
        "no prompt": 2,
        "not JSON": 1,
        "several prompts in one request": 1,
    }
    assert trace.bad.first["not JSON"] == f"{path}:7"


def test_a_batch_is_joined_with_its_input(tmp_path: Path) -> None:
    def answer(name: str, **body: Any) -> dict[str, Any]:
        made = {"choices": [{"index": 0, "message": {"content": "a"}, "token_ids": [7]}], **body}
        return {"id": "b", "custom_id": name, "response": {"status_code": 200, "body": made}, "error": None}

    asked = [{"custom_id": name, "body": {"model": "m", "prompt": [number, 9]}} for number, name in enumerate("xyz")]
    failed = {"custom_id": "z", "response": None, "error": {"code": "x"}}
    path = jsonl(tmp_path / "out", [answer("y"), answer("x"), failed, answer("w")])
    rows, trace, form = imported(path, requests=jsonl(tmp_path / "in", asked))
    assert form == "openai-batch"
    assert short(rows) == [("y", [1, 9], [7], True), ("x", [0, 9], [7], True)]
    assert trace.bad.counts == {"the request failed": 1, "its custom_id is not in the batch's input": 1}
    with pytest.raises(UsageError, match="give the batch's input with --requests FILE"):
        imported(path)
    assert short(imported(jsonl(tmp_path / "own", [answer("y", prompt_token_ids=[3])]))[0]) == [("y", [3], [7], True)]


# Engines' logs


@pytest.mark.parametrize("name", ["vllm_0.32_requests.txt", "vllm_0.32_requests_json.txt"])
def test_a_log_of_vllm(name: str) -> None:
    rows, trace, form = imported(DATA / name)
    assert form == "vllm-log"
    assert short(rows) == [
        ("chatcmpl-1", [5, 6, 7], [8, 9, 2], True),
        ("chatcmpl-2", [5, 11], [21, 22, 23], False),  # deltas leave out chunks without text
        ("chatcmpl-3#1", [5], [31], True),
        ("chatcmpl-3#2", [5], [32, 33], True),
        ("chatcmpl-6", [5, 12], [41, 42], True),  # the log says that they are two
    ]
    assert [one["temperature"] for one in rows] == [0.0, 0.7, 0.5, 0.5, 0.0]
    assert {one["model"] for one in rows} == {"m-8b"}
    assert list(trace.bad.counts.values()) == [1, 1]
    assert trace.bad.first["an answer whose request is not in the log"] == f"{DATA / name}:23"
    assert any(reason.startswith("no answer in the log") for reason in trace.bad.counts)


def test_a_log_of_vllm_with_colours_and_in_the_old_form(tmp_path: Path) -> None:
    log = tmp_path / "log"
    old = (
        "INFO 05-01 10:00:00 [logger.py:43] Received request cmpl-1: prompt: 'Say \\'a\\', params: x', params: "
        "SamplingParams(n=1, temperature=0.3, max_tokens=16), prompt_token_ids: [1, 2, 3], prompt_embeds shape: None, "
        "lora_request: None.\n"
        "INFO 05-01 10:00:01 [logger.py:71] Generated response cmpl-1: output: 'b, output_token_ids: [9]', "
        "output_token_ids: [4, 5], finish_reason: stop\n"
    )
    log.write_text(old)
    rows, _, form = imported(log)
    assert (form, short(rows), rows[0]["temperature"]) == ("vllm-log", [("cmpl-1", [1, 2, 3], [4, 5], True)], 0.3)
    log.write_text(old.replace("[logger.py:71]", "\x1b[90m[logger.py:71]\x1b[0m"))
    assert short(imported(log)[0]) == [("cmpl-1", [1, 2, 3], [4, 5], True)]


def test_a_log_of_vllm_without_prompts_or_cut_off(tmp_path: Path) -> None:
    plain = (DATA / "vllm_0.32_requests.txt").read_text()
    quiet, cut = tmp_path / "quiet", tmp_path / "cut"
    quiet.write_text("".join(line for line in plain.splitlines(keepends=True) if " DEBUG " not in line))
    with pytest.raises(UsageError, match=r"no prompt in the log \(vLLM writes it at log level DEBUG\)"):
        imported(quiet)
    cut.write_text("(APIServer pid=8) INFO 11-30 non-default args: {'max_log_len': 3, 'port': 1}\n" + plain)
    rows, trace, _ = imported(cut)
    # Those with a prompt or an answer of exactly three tokens may be longer.
    assert [one["request_id"] for one in rows] == ["chatcmpl-3#1", "chatcmpl-3#2", "chatcmpl-6"]
    assert trace.bad.counts["cut off by the server's --max-log-len"] == 2


@pytest.mark.parametrize("name", ["sglang_0.5.23_requests.txt", "sglang_0.5.23_requests_json.txt"])
def test_a_log_of_sglang(name: str, tmp_path: Path) -> None:
    rows, trace, form = imported(DATA / name, text=tmp_path / "tok")
    assert form == "sglang-log"
    assert short(rows) == [("r1", [5, 6, 7], [8, 9, 2], True), ("r5", ids("<s>", "hello", "there"), [7, 8], False)]
    assert [one["temperature"] for one in rows] == [0.0, 0.7]
    assert {one["model"] for one in rows} == ({None} if "json" in name else {"m-8b"})
    assert [reason.split(" (")[0] for reason in trace.bad.counts] == [
        "cut off at 2048",
        "only the last chunk of the output is in the log",
        "neither text nor ids in the log",
        "no end of the request in the log",
    ]


@given(st.text(), st.lists(st.text()), st.dictionaries(st.text(), st.integers()))
@settings(deadline=None)
def test_values_written_by_python_are_taken_apart(text: str, texts: list[str], inner: dict[str, int]) -> None:
    written = f"rid={text!r}, stop={texts!r}, params={inner!r}, input_ids=[1, 2], last=None)"
    found, end = _fields(written, 0)
    assert end == len(written)
    assert {key: _value(value) for key, value in found.items()} == {
        "rid": text,
        "stop": _value(repr(texts)),
        "params": inner,
        "input_ids": [1, 2],
        "last": None,
    }


@given(st.text(alphabet="RequestGnadp: [](){}'\"\\,=0123456789\n", max_size=200))
@settings(deadline=None, max_examples=200)
def test_no_line_of_a_log_breaks_the_reading(tmp_path_factory: pytest.TempPathFactory, noise: str) -> None:
    path = tmp_path_factory.mktemp("n") / "log"
    for name in ("vllm_0.32_requests.txt", "sglang_0.5.23_requests.txt"):
        good = (DATA / name).read_text().splitlines()
        starts = ("[2026-11-01 10:00:00] Finish: obj=GenerateReqInput(", "INFO [x] Generated response a", "{")
        broken = [f"{start}{noise}" for start in starts]
        path.write_text("\n".join([*broken, *good, *broken]))
        form = "vllm-log" if name.startswith("vllm") else "sglang-log"
        assert short(imported(path, form)[0])[0][1:] == ([5, 6, 7], [8, 9, 2], True)


# Texts


_WORDS = ("user", ":", "hello", "assistant", ":", "a", "user", ":", "b", "assistant", ":")


def test_every_answer_of_a_conversation_is_a_request(tmp_path: Path) -> None:
    made = [
        {
            "id": "x",
            "conversations": [
                {"from": "human", "value": "hello"},
                {"from": "gpt", "value": "a"},
                {"from": "human", "value": "b"},
                {"from": "gpt", "value": "c"},
            ],
        },
        {"id": "y", "conversations": [{"from": "gpt", "value": "a"}]},
        {"id": "z", "conversations": [{"from": "human", "value": "a"}]},
        {"id": "w", "conversations": [{"from": "alien", "value": "a"}]},
        {"id": "v", "conversations": []},
    ]
    expected = [
        ("x#1", ids("<s>", "user", ":", "hello", "assistant", ":"), ids("a"), False),
        (
            "x#2",
            ids("<s>", *["user", ":", "hello", "assistant", ":", "a", "user", ":", "b", "assistant", ":"]),
            ids("c"),
            False,
        ),
    ]
    (tmp_path / "list.json").write_text(json.dumps(made, indent=1))
    for path in (jsonl(tmp_path / "lines.jsonl", made), tmp_path / "list.json"):
        rows, trace, form = imported(path, text=tmp_path / "tok")
        assert form == "sharegpt"
        assert short(rows) == expected
        assert sorted(trace.bad.counts) == [
            "an unknown speaker",
            "it starts with the assistant",
            "no answer of the assistant",
            "no conversation in it",
        ]


def otlp(**attributes: Any) -> dict[str, Any]:
    made = []
    for key, value in attributes.items():
        kind = {float: "doubleValue", int: "intValue", str: "stringValue"}[type(value)]
        made.append({"key": key.replace("__", "."), "value": {kind: str(value) if kind == "intValue" else value}})
    span = {"spanId": "s1", "name": "chat m", "attributes": made, "events": []}
    other = {"spanId": "s0", "name": "GET /", "attributes": [{"key": "http.method", "value": {"stringValue": "GET"}}]}
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [other, span]}]}]}


PARTS_IN = [{"role": "user", "parts": [{"type": "text", "content": "hello there"}]}]
PARTS_OUT = [
    {"role": "assistant", "parts": [{"type": "reasoning", "content": "think"}, {"type": "text", "content": "a"}]}
]


def test_spans_as_the_conventions_have_them(tmp_path: Path) -> None:
    common = {"gen_ai__operation__name": "chat", "gen_ai__response__model": "m", "gen_ai__request__temperature": 0.5}
    made = [
        otlp(**common, gen_ai__input__messages=json.dumps(PARTS_IN), gen_ai__output__messages=json.dumps(PARTS_OUT)),
        otlp(**{**common, "gen_ai__operation__name": "embeddings"}),
        otlp(**common),
        otlp(
            **common,
            gen_ai__prompt__0__role="user",
            gen_ai__prompt__0__content="hello there",
            gen_ai__completion__0__content="b",
        ),
    ]
    rows, trace, form = imported(jsonl(tmp_path / "spans.jsonl", made), text=tmp_path / "tok")
    assert form == "otel"
    assert short(rows) == [("s1", RENDERED, ids("think", "a"), False), ("s1", RENDERED, ids("b"), False)]
    assert (rows[0]["thinking_tokens"], rows[0]["temperature"], rows[0]["model"]) == (1, 0.5, "m")
    assert list(trace.bad.counts.values()) == [1]
    assert "capture of message content is off" in trace.bad.lines()[0]


def test_spans_in_one_document_with_content_in_events(tmp_path: Path) -> None:
    made = otlp(gen_ai__request__model="m")
    made["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["events"] = [
        {"name": "gen_ai.content.prompt", "attributes": [{"key": "gen_ai.prompt", "value": {"stringValue": "hello"}}]},
        {
            "name": "gen_ai.content.completion",
            "attributes": [{"key": "gen_ai.completion", "value": {"stringValue": "a"}}],
        },
    ]
    (tmp_path / "spans.json").write_text(json.dumps(made, indent=2))
    rows, _, _ = imported(tmp_path / "spans.json", text=tmp_path / "tok")
    assert short(rows) == [("s1", ids("<s>", "hello"), ids("a"), False)]


def test_spans_of_a_python_exporter(tmp_path: Path) -> None:
    made = {
        "name": "chat",
        "context": {"span_id": "0x1"},
        "attributes": {"gen_ai.input.messages": PARTS_IN, "gen_ai.output.messages": json.dumps(PARTS_OUT)},
    }
    rows, _, _ = imported(jsonl(tmp_path / "s", [made]), text=tmp_path / "tok")
    assert short(rows) == [("0x1", RENDERED, ids("think", "a"), False)]


def test_traces_of_vllm_vcr_hold_outputs_only(tmp_path: Path) -> None:
    record = {"prompt_tokens": 3, "output_tokens": 2, "ttft_ms": 1.5, "itl_ms": [2.0]}
    made = [{"meta": {"model": "m"}}, {**record, "output_token_ids": [7, 8]}, record]
    path = jsonl(tmp_path / "v.jsonl", made)
    rows, trace, form = imported(path, outputs_only=True)
    assert form == "vllm-vcr"
    assert short(rows) == [("request-1", [], [7, 8], False)]
    assert rows[0]["model"] == "m"
    assert trace.bad.counts == {"no output ids (vllm-vcr records them with --record-tokens)": 1}
    with pytest.raises(UsageError, match="--outputs-only takes the outputs alone"):
        imported(path)


def test_plain_rows_of_text_and_of_ids(tmp_path: Path) -> None:
    made = [
        {"id": 5, "prompt": "hello", "response": "a b", "category": "x", "temperature": 0},
        {"prompt": [1, 2], "response": [3]},
        {"messages": HELLO, "output": "c"},
        {"prompt": "hello"},
        {"response": "a"},
    ]
    expected = [
        ("5", ids("<s>", "hello"), ids("a", "b"), False),
        ("request-2", [1, 2], [3], True),
        ("request-3", RENDERED, ids("c"), False),
    ]
    rows, trace, form = imported(jsonl(tmp_path / "p.jsonl", made), text=tmp_path / "tok")
    assert (form, short(rows)) == ("plain", expected)
    assert trace.bad.counts == {"no output_token_ids": 1, "no prompt": 1}
    texts = table(tmp_path / "p.parquet", [{"prompt": "hello", "response": "a b"}])
    assert [one["output_token_ids"] for one in read(texts, tokenizer=tmp_path / "tok")] == [ids("a", "b")]


# The tokenizer, and choosing a format


def test_text_without_a_tokenizer_is_refused_in_one_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"prompt": "hello", "response": "a"}])
    for source in (path, table(tmp_path / "p.parquet", [{"prompt": "hello", "response": "a"}])):
        with pytest.raises(UsageError, match="holds text and no token ids: give the model's tokenizer"):
            read(open_trace(source))
    assert [one["exact"] for one in read(path, tokenizer=tokenizer(tmp_path / "tok"))] == [False]


def test_the_template_may_be_a_file_or_missing_or_refuse(tmp_path: Path) -> None:
    chat = jsonl(tmp_path / "p.jsonl", [{"messages": HELLO, "response": "a"}])
    folder = tokenizer(tmp_path / "tok", template=None)
    with pytest.raises(UsageError, match="messages, and the tokenizer has no chat template"):
        read(chat, tokenizer=folder)
    (folder / "chat_template.jinja").write_text("{% generation %}hello{% endgeneration %}")
    assert read(chat, tokenizer=folder)[0]["prompt_token_ids"] == ids("hello")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no') }}")
    with pytest.raises(UsageError, match="the chat template refuses the messages"):
        read(chat, tokenizer=folder)
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
    with pytest.raises(UsageError, match="the chat template refuses the messages"):
        read(chat, tokenizer=folder)
    (folder / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(UsageError, match=r"chat template in .* cannot be read"):
        read(chat, tokenizer=folder)


def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file; a tokenizer is a model's folder, or its tokenizer\.json"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="not a tokenizer"):
        Tokenizer(tmp_path)


def test_formats_are_listed_where_none_fits(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x", [{"foo": 1, "bar": 2}])
    with pytest.raises(UsageError, match=r"not recognised; its keys are foo, bar; name it with --format: .*plain"):
        recognised(path, importers())
    with pytest.raises(UsageError, match=r"unknown format 'sharegtp': did you mean sharegpt\? There are"):
        recognised(path, importers(), "sharegtp")
    assert set(FORMATS) == {one.name for one in importers()}


def nothing_in(path: Path, form: str | None = None) -> str:
    """Return what is said of a file in which nothing can be used."""
    with pytest.raises(UsageError) as error:
        read(ImportedTrace(path, recognised(path, importers(), form)))
    return str(error.value)


SILENT = "(APIServer pid=7) INFO 11-30 12:00:00 [api_server.py:1] vLLM API server version 0.32.0\n"


def test_a_log_without_requests_names_the_flags(tmp_path: Path) -> None:
    path = tmp_path / "baseline.log"
    path.write_text(SILENT)
    said = nothing_in(path)
    for flag in ("--enable-log-requests", "--enable-log-outputs", "VLLM_LOGGING_LEVEL=DEBUG"):
        assert flag in said
    path.write_text("[2026-01-01 10:00:00] server_args=ServerArgs(model_path='m')\n")
    assert "--log-requests --log-requests-level 3" in nothing_in(path)


def test_a_wrong_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "baseline.log"
    path.write_text(SILENT)
    assert nothing_in(path, "sglang-log").endswith(
        "has no requests, read as sglang-log; it looks like vllm-log: leave --format out"
    )
    chats = jsonl(tmp_path / "s", [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}])
    assert "looks like sharegpt: leave --format out" in nothing_in(chats, "openai")
    other = jsonl(tmp_path / "o", [{"foo": 1}])
    assert "read as sharegpt; it does not look like conversations as ShareGPT has them" in nothing_in(other, "sharegpt")


@pytest.mark.parametrize(
    "row",
    [
        {"question_id": 81, "category": "writing", "turns": ["one", "two"]},
        {"prompt": "hello"},
        {"messages": [{"role": "user", "content": "hello"}]},
        {"conversations": [{"from": "human", "value": "a"}]},
    ],
)
def test_prompts_without_answers_are_to_be_recorded(tmp_path: Path, row: dict[str, Any]) -> None:
    path = jsonl(tmp_path / "q.jsonl", [row])
    said = f"{path}: these are prompts without answers: `draftworth trace record URL {path}` sends them and records"
    assert nothing_in(path).startswith(said)
    with pytest.raises(UsageError) as error:
        read(path)
    assert str(error.value).startswith(said)
