from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import Told, Window
from draftworth.engines.trtllm import TensorRTLLM, config_text
from draftworth.findings import Code, Finding

DATA = Path(__file__).parent / "data" / "trtllm"
ENGINE = TensorRTLLM()


def log(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def with_needles(text: str) -> str:
    """Return what of a log is fed where the file is too long to read line by line."""
    return "".join(
        line for line in text.splitlines(keepends=True) if any(needle in line.encode() for needle in ENGINE.log_needles)
    )


@pytest.mark.parametrize("whole", [True, False])
def test_a_start_of_1_2_tells_version_backend_configuration_and_warnings(whole: bool) -> None:  # noqa: FBT001
    reader = ENGINE.log_reader()
    text = log("log_1.2_eagle3.txt")
    reader.feed(text if whole else with_needles(text))
    facts = reader.facts()
    assert (facts.version, facts.runner, facts.phase, facts.speculating) == ("1.2.1", "PyTorch", "serving", True)
    assert reader.starts == 1
    assert [warning.code for warning in facts.warnings] == ["sampling_greedy"]
    assert "allow_advanced_sampling" in facts.warnings[0].advice
    assert facts.config["model"] == "Qwen/Qwen3-8B"
    assert facts.config["speculative_config"] == "Eagle3DecodingConfig"
    assert facts.config["speculative_config.max_draft_len"] == "3"
    assert facts.config["speculative_config.speculative_model"] == "/models/eagle3 draft"
    assert facts.config["kv_cache_config.free_gpu_memory_fraction"] == "0.9"
    assert facts.config["sampler_type"] == "auto"
    assert facts.config["internal_request_auth_key"] == "(hidden)"
    assert facts.config["tokenizer"] == "None"


def test_a_start_of_1_0_behind_a_collector_is_read_too() -> None:
    reader = ENGINE.log_reader()
    reader.feed(log("log_1.0_ngram.txt"))
    facts = reader.facts()
    assert (facts.version, facts.phase, facts.speculating) == ("1.0.0", "serving", None)
    assert [(warning.code, warning.confounds) for warning in facts.warnings] == [("overlap_scheduler_off", True)]


def test_a_second_start_in_one_file_forgets_the_first_and_workers_do_not_start_one() -> None:
    reader = ENGINE.log_reader()
    reader.feed(log("log_1.2_eagle3.txt") + log("log_1.0_ngram.txt"))
    assert reader.starts == 2
    assert reader.facts().version == "1.0.0"
    assert reader.facts().config == {}


def test_phases_are_told_as_the_server_gets_on() -> None:
    reader = ENGINE.log_reader()
    seen: list[str] = []
    for line in log("log_1.2_eagle3.txt").splitlines(keepends=True):
        reader.feed(line)
        if not seen or reader.facts().phase != seen[-1]:
            seen.append(reader.facts().phase)
    assert seen == [
        "starting",
        "reading the model's configuration",
        "loading weights",
        "the model is loaded",
        "allocating the KV cache",
        "warming up",
        "starting the HTTP server",
        "serving",
    ]


def test_the_speculation_gate_tells_figures_and_that_it_switched_speculation_off() -> None:
    reader, windows = ENGINE.log_reader(), ENGINE.window_reader()
    found: list[Window] = []
    for line in log("log_1.3_gate.txt").splitlines():
        reader.feed(line + "\n")
        taken = windows.take(line)
        if isinstance(taken, Window):
            found.append(taken)
        else:
            assert taken is None
    told = [(one.name, one.value, one.scope) for window in found for one in window.told]
    assert told == [
        ("avg_decoded_tokens_per_iter", 1.5, "request 11"),
        ("avg_decoded_tokens_per_iter", 1.25, "request 12"),
        ("avg_accept", 0.375, "last 2 requests"),
    ]
    assert found[0].at == "12/01/2026-10:00:01"
    assert found[0].line.startswith("[SpeculationGate] record_avg_decoded")
    assert all(window.counts is None for window in found)
    assert isinstance(found[0].told[0], Told)
    assert "prefill" in found[0].told[0].formula
    assert [warning.code for warning in reader.facts().warnings] == ["speculation_gate_off"]


GATE = "[12/01/2026-10:00:01] [TRT-LLM] [I] [SpeculationGate] "


@pytest.mark.parametrize(
    "line",
    [
        "record_avg_decoded called with avg_decoded_tokens_per_iter=nan, request_id=1",
        "record_avg_decoded called with avg_decoded_tokens_per_iter=-2.0, request_id=1",
        "record_avg_decoded called with avg_decoded_tokens_per_iter=1.",
        "record_avg_decoded called with what",
        "Rolling window reached: avg_accept=inf, threshold=0.5, window_size=2",
    ],
)
def test_a_figure_that_cannot_be_read_is_a_finding(line: str) -> None:
    found = ENGINE.window_reader().take(GATE + line)
    assert isinstance(found, Finding)
    assert found.code is Code.LINES_UNREADABLE


@pytest.mark.parametrize(
    "line",
    [
        "",
        "record_avg_decoded called with avg_decoded_tokens_per_iter=2.0, request_id=1",
        GATE + "record_avg_decoded called with avg_decoded_tokens_per_iter=None, request_id=1",
        GATE + "Speculative decoding remains enabled: rolling acceptance avg 0.6 >= threshold 0.5",
        'INFO:     127.0.0.1:52110 - "POST /v1/completions HTTP/1.1" 200 OK',
        "(APIServer pid=1) INFO 11-30 00:21:09 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.10",
    ],
)
def test_other_lines_tell_nothing(line: str) -> None:
    assert ENGINE.window_reader().take(line) is None


def test_access_lines_hold_no_needle_and_the_engine_is_recognised_by_its_own() -> None:
    lines = log("log_1.2_eagle3.txt").splitlines()
    access = next(line for line in lines if "POST" in line)
    assert not any(needle in access.encode() for needle in ENGINE.log_needles)
    assert any(sign in lines[1].encode() for sign in ENGINE.log_signs)
    assert len(ENGINE.log_needles) <= 30


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2000), max_size=8), st.sampled_from(["log_1.2_eagle3.txt", "log_1.3_gate.txt"]))
def test_facts_do_not_depend_on_where_the_pieces_end(cuts: list[int], name: str) -> None:
    text = log(name)
    whole, pieces = ENGINE.log_reader(), ENGINE.log_reader()
    whole.feed(text)
    at = 0
    for cut in sorted(cuts):
        pieces.feed(text[at:cut])
        at = max(at, cut)
    pieces.feed(text[at:])
    assert pieces.facts() == whole.facts()


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=200),
    st.sampled_from(["", GATE, "[TRT-LLM] [I] LLM Args:\n", "[TensorRT-LLM] TensorRT LLM version: "]),
)
def test_no_line_makes_a_reader_raise(text: str, start: str) -> None:
    reader = ENGINE.log_reader()
    reader.feed(start + text + "\n")
    reader.facts()
    ENGINE.window_reader().take(start + text)


VALUES = st.integers().map(str) | st.from_regex(r"[a-z0-9./]{1,10}", fullmatch=True) | st.just("None")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), VALUES, min_size=1, max_size=5))
def test_a_configuration_is_read_back_as_it_is_printed(config: dict[str, str]) -> None:
    config = {f"k{key}": value for key, value in config.items()}
    inner = ", ".join(f"{key}={value!r}" for key, value in config.items())
    text = " ".join([*(f"{key}={value}" for key, value in config.items()), f"nested=Model({inner})"])
    expected = {**config, "nested": "Model", **{f"nested.{key}": value for key, value in config.items()}}
    assert config_text.flat(text) == expected


VALIDATION = """pydantic_core._pydantic_core.ValidationError: 1 validation error for TorchLlmArgs
speculative_config.Eagle3
  Value error, max_draft_len must be > 0 for Eagle [type=value_error, input_value={}]
    For further information visit https://errors.pydantic.dev
"""
MEMORY = """[12/01/2026-09:58:01] [TRT-LLM] [E] Executor creation failed due to insufficient GPU memory.
RuntimeError: Executor worker returned error
"""


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Usage: trtllm-serve [OPTIONS] COMMAND\n\nError: No such option: --model\n", "Error: No such option: --model"),
        (VALIDATION, "TorchLlmArgs: speculative_config.Eagle3: max_draft_len must be > 0 for Eagle"),
        ("ValueError: Invalid decoding type: Eagle4\n", "ValueError: Invalid decoding type: Eagle4"),
        (MEMORY, "Executor creation failed due to insufficient GPU memory."),
        (
            "ValueError: Speculation type Medusa does not support backend pytorch\nRuntimeError: Executor worker died",
            "ValueError: Speculation type Medusa does not support backend pytorch",
        ),
        ("bash: line 1: trtllm-serve: command not found\n", "bash: line 1: trtllm-serve: command not found"),
        (
            "RuntimeError: Failed to bind socket to 0.0.0.0:8000: [Errno 98] Address already in use\n",
            "RuntimeError: Failed",
        ),
        ("Killed\n", "Killed: the kernel ended the process, most often for want of memory"),
        ("INFO:     Application startup complete.\n", None),
    ],
)
def test_a_failed_start_is_explained_by_its_telling_line(text: str, hint: str | None) -> None:
    found = ENGINE.failure_hint(text)
    assert found == hint or (hint is not None and found is not None and found.startswith(hint))
