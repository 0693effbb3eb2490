import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.vllm import VLLM
from draftworth.engines.vllm.log import VLLMLogReader
from draftworth.engines.vllm.log_lines import Line, parse

DATA = Path(__file__).parent / "data"
LOGS = [*sorted(DATA.glob("vllm_0.32_*.txt")), *sorted((DATA / "vllm").glob("log_*.txt"))]
STARTS = [path for path in LOGS if "metrics" not in path.name]
JSON_LINE = json.dumps(
    {"asctime": "2026-11-30 00:21:09,1", "levelname": "WARNING", "name": "vllm.config", "message": "slow"}
)


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("INFO 06-06 14:20:44 [metrics.py:86] hello", Line("hello", "INFO", "metrics.py", "06-06 14:20:44")),
        ("INFO 06-06 14:20:44 metrics.py:86] hello", Line("hello", "INFO", "metrics.py", "06-06 14:20:44")),
        (
            "Nov 30 00:21:09 box vllm[77]: (APIServer pid=1) WARNING 11-30 00:21:08 [vllm.py:1605] slow\n",
            Line("slow", "WARNING", "vllm.py", "Nov 30 00:21:09"),
        ),
        (
            "2026-11-30T00:21:09.1Z stdout F INFO:     Application startup complete.",
            Line("INFO:     Application startup complete.", None, None, "2026-11-30T00:21:09.1Z"),
        ),
        ("(EngineCore pid=7) Loading safetensors: 25%", Line("Loading safetensors: 25%")),
        (JSON_LINE, Line("slow", "WARNING", None, "2026-11-30 00:21:09,1")),
        (f"vllm-1  | {JSON_LINE}", Line("slow", "WARNING", None, "2026-11-30 00:21:09,1")),
        (json.dumps({"MESSAGE": JSON_LINE, "ts": "9"}), Line("slow", "WARNING", None, "9")),
        (json.dumps({"log": JSON_LINE + "\n", "time": "9"}), Line("slow", "WARNING", None, "9")),
        (
            json.dumps(
                {"__REALTIME_TIMESTAMP": "9", "MESSAGE": list(b"\x1b[33mWARNING\x1b[0m 11-30 00:21:08 [a.py:1] x")}
            ),
            Line("x", "WARNING", "a.py", "9"),
        ),
        ('the message {"levelname": "WARNING"} was sent', Line('the message {"levelname": "WARNING"} was sent')),
    ],
)
def test_a_line_is_taken_apart_whatever_stands_around_it(line: str, parsed: Line) -> None:
    assert parse(line) == parsed


@given(st.text(st.sampled_from('ab\r\n\x1b[0m{}"\\:,=INFO 1-%<>()|�'), max_size=40))
def test_odd_lines_never_raise(text: str) -> None:
    for front in ("", "Nov 30 00:21:09 box vllm[77]: ", '{"message": "'):
        parse(front + text)


def facts(lines: list[str]) -> tuple[object, ...]:
    reader = VLLMLogReader()
    for line in lines:
        reader.feed(line + "\n")
    found = reader.facts()
    return found.version, found.runner, found.speculating, found.config, found.warnings


def with_needles(lines: list[str]) -> list[str]:
    return [line for line in lines if any(needle in line.encode() for needle in VLLM.log_needles)]


@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.name)
def test_the_lines_with_needles_tell_all_that_the_whole_log_tells(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = with_needles(lines)
    assert facts(kept) == facts(lines)
    as_json = [json.dumps({"MESSAGE": line}) for line in lines]
    assert facts(with_needles(as_json)) == facts(lines)
    assert len(kept) <= 30


def test_needles_are_few_and_on_no_access_line() -> None:
    assert len(VLLM.log_needles) <= 30
    lines = [
        'INFO:     127.0.0.1:52034 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        '(APIServer pid=9) INFO:     10.0.0.1:1 - "GET /version HTTP/1.1" 200 OK',
        'Nov 30 00:21:09 box vllm[77]: (APIServer pid=9) INFO:     10.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK',
    ]
    assert not any(needle in line.encode() for line in lines for needle in (*VLLM.log_needles, *VLLM.log_signs))


@pytest.mark.parametrize(
    "message",
    [
        "Using V2 Model Runner",
        "Cudagraph mode FULL is not compatible with compilation mode NONE. Overriding to NONE.",
        "Overriding cudagraph_mode to FULL_DECODE_ONLY.",
        "Cudagraph is disabled under eager mode",
        "DeepEP: Disabling CUDA Graphs since DeepEP high-throughput kernels",
        "Overriding max cuda graph capture size to 1024 for performance.",
        "Overriding draft model max model len from 4096 to 2048",
        "Attention backend(s) X cannot update draft decode metadata in place",
        "GPU KV cache size: 1,046,592 tokens",
        "x is not supported by the V1 Engine. Falling back to V0.",
    ],
)
def test_what_releases_say_as_info_has_a_needle(message: str) -> None:
    line = f"INFO 11-30 00:21:09 [vllm.py:1] {message}"
    assert with_needles([line]) == [line]
    assert facts([line]) != facts([])


@pytest.mark.parametrize("path", [path for path in STARTS if "fails" not in path.name], ids=lambda path: path.name)
def test_a_log_of_vllm_is_known_by_its_signs(path: Path) -> None:
    assert any(sign in path.read_bytes() for sign in VLLM.log_signs)
