import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.trtllm import PLACEHOLDER, TensorRTLLM
from draftworth.engines.trtllm import options as yaml
from draftworth.engines.trtllm.yaml_faults import fault
from draftworth.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

DATA = Path(__file__).parent / "data" / "trtllm"
EAGLE3 = str(DATA / "eagle3.yaml")
ENGINE = TensorRTLLM()
PLAIN = ("trtllm-serve", "Qwen/Qwen3-8B", "--port", "8000")


@pytest.fixture
def plain_file(tmp_path: Path) -> str:
    file = tmp_path / "plain.yaml"
    file.write_text("return_perf_metrics: true\nspeculative_config: null\n", encoding="utf-8")
    return str(file)


def test_an_options_file_is_read_as_far_as_it_is_needed() -> None:
    assert yaml.read_file(EAGLE3) == {
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
        "kv_cache_config": {"enable_block_reuse": False, "free_gpu_memory_fraction": 0.85},
        "cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 2, 4]},
        "moe_config": {"backend": "CUTLASS"},
        "speculative_config": {
            "decoding_type": "Eagle3",
            "max_draft_len": 3,
            "speculative_model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        },
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (
            "a: 1\nb:\n  c: 'x # y'  # note\n  d:\n    e: -2.5\nf: ~\n",
            {"a": 1, "b": {"c": "x # y", "d": {"e": -2.5}}, "f": None},
        ),
        ("sizes:\n  - 1\n  - 2\nnext: yes\n", {"sizes": ["1", "2"], "next": "yes"}),
        ("sizes:\n- 1\nnext: 3\n", {"sizes": ["1"], "next": 3}),
        ('{"a": 1}', None),
        ("a: {b: [1, x], c: {d: null}}\n", {"a": {"b": [1, "x"], "c": {"d": None}}}),
        ("a: 'it''s'\nb: \"x\\ty\"\n", {"a": "it's", "b": "x\ty"}),
        ("a: {b: [1, x}\n", None),
        ("a: &anchor 1\n", None),
        ("a: |\n  text\n", None),
        ("\ta: 1\n", None),
        ("just words\n", None),
    ],
)
def test_yaml_is_read_or_said_to_be_unreadable(text: str, expected: dict[str, Any] | None) -> None:
    assert yaml.read(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (b"speculative_config:\n\tdecoding_type: MTP\n", 2, "a tab"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        (b"\x7fELF\x02\x01\x00\n", 1, "control character"),
        (b"just words\n", 1, "neither a key"),
        (b"a: 1\ndecoding_type:MTP\n", 2, "neither a key"),
        (b"a: 1\n  b: 2\n", 2, "below a key that has a value"),
        (b"a:\n    b: 1\n  c: 2\n", 3, "fits no key"),
        (b"# note\n---\nsizes: [1, 2\nb: 3\n", 3, "never closed"),
        (b"a: {b: [1}\n", 1, "do not fit"),
        (b'a: 1\nb: "open\nc: 2\n', 2, "quote is never closed"),
    ],
)
def test_what_no_yaml_parser_takes_is_a_fault_of_its_line(text: bytes, line: int, why: str) -> None:
    found = fault(text)
    assert found is not None
    assert found.line == line
    assert why in found.why


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: x  # y\r\n",
        b"a: &x\n  b: 1\nc: *x\n",
        b"a: |\n  text\n\ttab\nb: 1\n",
        b"a: [1,\n  2]\nb: {c: 1}\n",
        b"a: 'it''s'\nb: 'two\n  lines'\n",
        b"a: two\n  lines\n",
        b"sizes:\n- 1\n- 2\nnext: 3\n",
        b"list:\n  - a: 1\n    b: 2\n",
        b"two words: 1\n",
        b'{"a": 1}\n',
        b"? a\n: b\n",
        b"%YAML 1.2\n---\na: 1\n...\n",
    ],
)
def test_valid_yaml_has_no_fault_even_where_it_is_not_read(text: bytes) -> None:
    assert fault(text) is None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="ab:-{}[],'\"#&|~ \n\t1.", max_size=60).map(str.encode))
def test_no_bytes_make_the_search_for_faults_raise(data: bytes) -> None:
    found = fault(data)
    assert found is None or 1 <= found.line <= data.count(b"\n") + data.count(b"\r") + 1


SCALARS = (
    st.none() | st.booleans() | st.integers(-9999, 9999) | st.from_regex(r"[a-z][a-z/.-]{0,12}[a-z]", fullmatch=True)
)
KEYS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, min_size=1, max_size=3), min_size=1, max_size=5))
def test_what_is_written_for_a_person_is_read_back(config: dict[str, Any]) -> None:
    assert yaml.read(yaml.written(config)) == {"speculative_config": config}
    assert fault(yaml.written(config).encode()) is None


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab:-{}[],'\"#&|~ \n\t1.", max_size=60))
def test_no_text_makes_the_reader_of_options_raise(text: str) -> None:
    found = yaml.read(text)
    assert found is None or isinstance(found, dict)


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (PLAIN, "Qwen/Qwen3-8B"),
        (("trtllm-serve", "serve", "m"), "m"),
        (
            ("/opt/venv/bin/trtllm-serve", "--trust_remote_code", "--tp_size", "4", "--backend=pytorch", "/models/m"),
            "/models/m",
        ),
        (("python3", "-m", "tensorrt_llm.commands.serve", "serve", "m"), "m"),
        (("mpirun", "-n", "1", "trtllm-llmapi-launch", "trtllm-serve", "m", "--tp_size", "8"), "m"),
        (("docker", "run", "--gpus", "all", "nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "trtllm-serve", "m"), "m"),
        (("bash", "-lc", "export A=1; exec trtllm-serve m --port 8000 2>&1"), "m"),
        (("trtllm-serve", "$MODEL"), None),
        (("trtllm-serve", "disaggregated", "-c", "x.yaml"), None),
        (("vllm", "serve", "m"), None),
        (("bash", "-c", "trtllm-serve 'm"), None),
    ],
)
def test_the_model_is_found_behind_whatever_stands_in_front(command: tuple[str, ...], model: str | None) -> None:
    assert ENGINE.model_in(command) == model


def test_arguments_go_behind_the_servers_own(plain_file: str) -> None:
    assert ENGINE.with_args(PLAIN, ("--max_batch_size", "8")) == (*PLAIN, "--max_batch_size", "8")
    assert ENGINE.with_args(PLAIN, ()) == PLAIN
    nested = ("bash", "-c", "cd /srv && trtllm-serve m --port 8000 > log; true")
    assert ENGINE.with_args(nested, ("--config", "a b.yaml"))[2] == (
        "cd /srv && trtllm-serve m --port 8000 --config 'a b.yaml' > log; true"
    )
    held = ("bash", "-c", f"trtllm-serve m {PLACEHOLDER} --port 1")
    assert ENGINE.with_speculation(held, {"extra_llm_api_options": EAGLE3})[2] == (
        f"trtllm-serve m --extra_llm_api_options {shlex.quote(EAGLE3)} --port 1"
    )
    assert ENGINE.without_placeholder(held)[2] == "trtllm-serve m  --port 1"
    assert ENGINE.without_placeholder((*PLAIN, PLACEHOLDER)) == PLAIN
    assert ENGINE.with_args((*PLAIN, PLACEHOLDER), ("-x",)) == (*PLAIN, "-x", PLACEHOLDER)
    assert ENGINE.with_speculation((*PLAIN, "--config", plain_file), {"extra_llm_api_options": EAGLE3}) == (
        *PLAIN,
        "--config",
        plain_file,
        "--extra_llm_api_options",
        EAGLE3,
    )
    assert ENGINE.measuring_args("1.2.1") == ()


@pytest.mark.parametrize(
    "command",
    [
        ("./start.sh",),
        ("bash", "-c", "trtllm-serve a; trtllm-serve b"),
        ("bash", "-c", "trtllm-serve 'a"),
        ("trtllm-serve", "disaggregated"),
    ],
)
def test_a_command_without_a_place_is_refused_with_the_way_out(command: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError, match="trtllm-serve command itself"):
        ENGINE.with_args(command, ("-x",))


@pytest.mark.parametrize(
    "command", [("trtllm-serve", "m", f"--a={PLACEHOLDER}"), ("bash", "-c", f"trtllm-serve m '{PLACEHOLDER}x'")]
)
def test_a_placeholder_inside_a_word_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError, match="word of its own"):
        ENGINE.without_placeholder(command)


def test_keys_and_values_are_refused_with_the_lines_that_go_into_the_file(plain_file: str) -> None:
    config = {"decoding_type": "NGram", "max_draft_len": 4, "is_public_pool": False, "note": "a: b"}
    with pytest.raises(RefusedError) as caught:
        ENGINE.with_speculation((*PLAIN, "--config", plain_file), config)
    message = str(caught.value)
    block = 'speculative_config:\n  decoding_type: NGram\n  max_draft_len: 4\n  is_public_pool: false\n  note: "a: b"\n'
    assert block in message
    assert f"everything of {plain_file}" in message
    assert '{"extra_llm_api_options": "/path/spec.yaml"}' in message
    assert yaml.read(block) == {"speculative_config": config}


def test_a_file_without_speculation_and_an_empty_configuration_are_refused(plain_file: str) -> None:
    with pytest.raises(UsageError, match="has no speculative_config"):
        ENGINE.with_speculation(PLAIN, {"extra_llm_api_options": plain_file})
    with pytest.raises(UsageError, match="decoding_type"):
        ENGINE.with_speculation(PLAIN, {})
    with pytest.raises(UsageError, match="has no speculative_config"):
        ENGINE.with_speculation(PLAIN, {"config": plain_file})
    with pytest.raises(UsageError, match="decoding_type"):
        ENGINE.with_speculation(PLAIN, {"config": EAGLE3, "extra_llm_api_options": EAGLE3})
    assert ENGINE.with_speculation(PLAIN, {"config": EAGLE3}) == (*PLAIN, "--config", EAGLE3)
    elsewhere = {"extra_llm_api_options": "/inside/the/container.yaml"}
    assert ENGINE.with_speculation(PLAIN, elsewhere)[-2:] == ("--extra_llm_api_options", "/inside/the/container.yaml")


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (PLAIN, None),
        ((*PLAIN, "--config", EAGLE3), f"speculative_config in {EAGLE3}"),
        ((*PLAIN, f"--extra_llm_api_options={EAGLE3}"), f"speculative_config in {EAGLE3}"),
        (("bash", "-c", f"trtllm-serve m --config '{EAGLE3}'"), f"speculative_config in {EAGLE3}"),
        ((*PLAIN, "--config", "/not/here.yaml"), None),
        ((*PLAIN, "--set", "speculative_config.decoding_type=NGram"), "--set speculative_config.decoding_type=NGram"),
        ((*PLAIN, "--set=speculative_config=null"), None),
        (("vllm", "serve", "--config", EAGLE3), None),
    ],
)
def test_speculation_is_found_in_the_options_file(command: tuple[str, ...], how: str | None) -> None:
    assert ENGINE.speculation_in(command, {}) == how


def test_the_last_options_file_counts_and_a_second_speculation_is_refused(plain_file: str) -> None:
    both = (*PLAIN, "--config", EAGLE3, "--extra_llm_api_options", plain_file)
    assert ENGINE.speculation_in(both, {}) is None
    with pytest.raises(RefusedError, match="speculates already"):
        ENGINE.with_speculation((*PLAIN, "--config", EAGLE3), {"extra_llm_api_options": EAGLE3})


def test_the_interpreter_of_the_script_is_asked_for_the_version(tmp_path: Path) -> None:
    script = tmp_path / "trtllm-serve"
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 1.2.1\n", encoding="utf-8")
    script.write_text(f"#!{python}\n", encoding="utf-8")
    for file in (python, script):
        file.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/bin"}
    assert ENGINE.version_of(("trtllm-serve", "m"), env) == "1.2.1"
    assert ENGINE.version_of(("bash", "-c", "exec trtllm-serve m"), env) == "1.2.1"
    assert ENGINE.version_of((str(python), "-m", "tensorrt_llm.commands.serve", "m"), env) == "1.2.1"
    assert ENGINE.version_of(("docker", "run", "image", "trtllm-serve", "m"), env) is None
    assert ENGINE.version_of(("bin/trtllm-serve", "m"), env) is None
    assert ENGINE.version_of(("bash", "-c", "trtllm-serve 'm"), env) is None
    assert ENGINE.version_of((sys.executable, "-m", "tensorrt_llm.commands.serve", "m"), {}) is None
    assert ENGINE.version_of(("vllm", "serve"), env) is None


def test_the_adapter_is_a_whole_engine() -> None:
    engine: Engine = TensorRTLLM("1.2.1")
    assert (engine.name, engine.title, engine.version) == ("trtllm", "TensorRT-LLM", "1.2.1")
    assert engine.metrics_path == "/prometheus/metrics"
    assert engine.json_pages == (), "reading them would take from others what they hold"
