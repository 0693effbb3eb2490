import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.vllm.log import VLLMLogReader

DATA = Path(__file__).parent / "data"
NGRAM = (DATA / "vllm_0.32_ngram.txt").read_text(encoding="utf-8")
BASELINE = (DATA / "vllm_0.32_baseline.txt").read_text(encoding="utf-8")
ASYNC_OFF = "Async scheduling not supported with ngram-based speculative decoding and will be disabled."


def read(text: str) -> StartupFacts:
    reader = VLLMLogReader()
    reader.feed(text)
    return reader.facts()


def phases(text: str) -> list[str]:
    reader = VLLMLogReader()
    seen = [reader.facts().phase]
    for line in text.splitlines(keepends=True):
        reader.feed(line)
        if reader.facts().phase != seen[-1]:
            seen.append(reader.facts().phase)
    return seen


def told(
    line: str, *, prefix: str = "(APIServer pid=1) WARNING 11-30 00:21:09 [vllm.py:1605] "
) -> tuple[LogWarning, ...]:
    return read(f"{prefix}{line}\n").warnings


def test_a_real_start_with_ngram_tells_version_runner_configuration_and_warnings() -> None:
    facts = read(NGRAM)
    assert (facts.version, facts.runner, facts.speculating) == ("0.32.0", "V1", True)
    assert facts.config["speculative_config.method"] == "ngram"
    assert facts.config["speculative_config.num_spec_tokens"] == "5"
    assert facts.config["args.speculative_config.prompt_lookup_max"] == "4"
    assert facts.config["max_seq_len"] == "2048"
    assert facts.config["compilation_config.mode"] == "DYNAMO_TRACE_ONCE"
    assert facts.config["compilation_config.custom_ops"] == "['none']"
    assert facts.config["kernel_config.ir_op_priority.rms_norm"] == "['native']"
    assert facts.config["kv_cache_tokens"] == "46592"
    assert {w.code: w.confounds for w in facts.warnings} == {
        "async_scheduling_off": True,
        "scheduler_limits_changed": True,
        "runner_v1": True,
        "preload_missing": True,
        "openmp_missing": False,
        "sampling_params_ignored": False,
    }
    assert [w.line for w in facts.warnings if w.code == "async_scheduling_off"] == [ASYNC_OFF]
    assert all(w.advice for w in facts.warnings)


def test_a_real_baseline_does_not_speculate_and_a_real_broken_cache_is_told() -> None:
    facts = read(BASELINE)
    assert facts.speculating is False
    assert facts.config["speculative_config"] == "None"
    assert {w.code for w in facts.warnings} == {"runner_v1", "preload_missing"}
    broken = read((DATA / "vllm_0.32_cache_unusable.txt").read_text(encoding="utf-8"))
    assert {w.code for w in broken.warnings} == {"runner_v1", "preload_missing", "compile_cache_unusable"}


def test_phases_of_a_real_start_follow_each_other_to_the_end() -> None:
    assert phases(NGRAM) == [
        "starting Python",
        "reading the model's configuration",
        "starting the engine",
        "loading weights",
        "loading weights, 0 %",
        "loading weights, 100 %",
        "loading weights",
        "loading the draft",
        "compiling (torch.compile)",
        "allocating the KV cache",
        "starting the HTTP server",
        "serving",
        "stopping",
    ]


def test_phases_of_a_gpu_start_and_a_progress_bar_that_has_not_ended_its_line() -> None:
    prefix = "(EngineCore_DP0 pid=7) INFO 06-06 14:20:44 [gpu_worker.py:1] "
    reader = VLLMLogReader()
    expected = {
        f"{prefix}Starting to load model m...\n": "loading weights",
        "\rLoading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]": "loading weights, 25 %",
        "\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02]": "loading weights, 50 %",
        f"\n{prefix}[backbone] Starting torch.compile\n": "compiling (torch.compile)",
        f"{prefix}Available KV cache memory: 60.1 GiB\n": "allocating the KV cache",
        f"{prefix}GPU KV cache size: 1,046,592 tokens\n": "allocating the KV cache",
        "\rCapturing CUDA graphs (decode, FULL):   6%|▋         | 1/16": "capturing CUDA graphs, 6 %",
        f"\n{prefix}Graph capturing finished in 5 secs, took 0.50 GiB\n": "warming up",
        f"{prefix}init engine (profile, create kv cache, warmup model) took 20.00 s\n": "starting the HTTP server",
        "INFO:     Application startup complete.\n": "serving",
        f"{prefix}Loading drafter model...\n": "serving",
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n': "serving",
    }
    for piece, phase in expected.items():
        reader.feed(piece)
        assert reader.facts().phase == phase
    assert reader.facts().config["kv_cache_tokens"] == "1046592"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, len(NGRAM)), max_size=40))
def test_the_facts_do_not_depend_on_where_the_pieces_end(cuts: list[int]) -> None:
    reader = VLLMLogReader()
    edges = [0, *sorted(cuts), len(NGRAM)]
    for start, end in itertools.pairwise(edges):
        reader.feed(NGRAM[start:end])
        reader.facts()
    assert reader.facts() == read(NGRAM)


@given(st.lists(st.text(st.sampled_from("ab\r\n\x1b[0m{}\"':,=INFO 1%<>()�")), max_size=8))
def test_odd_text_never_raises_and_pieces_do_not_matter(pieces: list[str]) -> None:
    reader = VLLMLogReader()
    for piece in pieces:
        reader.feed(piece)
    assert reader.facts() == read("".join(pieces))


@pytest.mark.parametrize(
    "prefix",
    [
        "(APIServer pid=1) WARNING 11-30 00:21:09 [vllm.py:1605] ",
        "WARNING 06-06 14:20:44 [vllm.py:86] ",
        "WARNING 06-06 14:20:44 config.py:86] ",
        "WARNING 2026-06-06 14:20:44.123 [vllm.py:86] ",
        "(EngineCore_DP0 pid=12) (RayWorkerWrapper pid=7, ip=10.0.0.1) WARNING 11-30 00:21:09 [config/vllm.py:1605] ",
        "Nov 30 00:21:09 box vllm[77]: (APIServer pid=1) WARNING 11-30 00:21:09 [vllm.py:1605] ",
        "2026-11-30T00:21:09.123456789Z stdout F (APIServer pid=1) WARNING 11-30 00:21:09 [vllm.py:1605] ",
        "vllm-1  | WARNING 11-30 00:21:09 [vllm.py:1605] ",
        (
            "\x1b[0;36m(APIServer pid=1)\x1b[0;0m \x1b[33mWARNING\x1b[0m \x1b[90m11-30 00:21:09\x1b[0m "
            "\x1b[90m[vllm.py:1605]\x1b[0m "
        ),
        "[my-service] WARNING 11-30 00:21:09 [vllm.py:1605] ",
    ],
)
def test_every_prefix_is_taken_off(prefix: str) -> None:
    assert [(w.code, w.line) for w in told(ASYNC_OFF, prefix=prefix)] == [("async_scheduling_off", ASYNC_OFF)]


@pytest.mark.parametrize("front", ["Nov 30 00:21:09 box vllm[77]: ", "vllm-1  | ", "2026-11-30T00:21:09.1Z ", ""])
def test_lines_of_other_programs_are_read_behind_what_a_journal_puts_in_front(front: str) -> None:
    assert read(f"{front}INFO:     Application startup complete.\n").phase == "serving"


def test_one_json_object_a_line_is_read() -> None:
    record = {"asctime": "2026-11-30 00:21:09,1", "levelname": "WARNING", "name": "vllm.config", "message": ASYNC_OFF}
    assert [w.code for w in read(json.dumps(record) + "\n").warnings] == ["async_scheduling_off"]


@pytest.mark.parametrize(
    ("lines", "runner"),
    [
        (["[gpu_worker.py:518] Using V2 Model Runner"], "V2"),
        (["[gpu_worker.py:518] Using V2 Model Runner", "[model_runner.py:425] Model loading took 1 GiB"], "V2"),
        (["[vllm.py:732] Model Runner V2 does not yet support DBO; using the V1 model runner instead."], "V1"),
        (["[gpu_model_runner.py:5040] Starting to load model m..."], "V1"),
        (["[model_runner.py:1108] Starting to load model m..."], None),
        (["[core.py:133] Initializing a V1 LLM engine (v0.15.0) with config: model='m'"], None),
    ],
)
def test_the_runner_is_told_where_the_log_shows_it(lines: list[str], runner: str | None) -> None:
    assert read("".join(f"INFO 11-30 00:21:09 {line}\n" for line in lines)).runner == runner


def test_older_releases_tell_version_and_configuration_too() -> None:
    facts = read(
        "INFO 04-20 16:25:40 [api_server.py:1034] vLLM API server version 0.8.4\n"
        "INFO 04-20 16:25:40 [api_server.py:1035] args: Namespace(host=None, api_key='sk-1', lora={'a': [1, 2]}, "
        "dispatch_function=<function ServeSubcommand.cmd at 0x7f00>)\n"
        "INFO 04-20 16:25:42 [llm_engine.py:243] Initializing a V0 LLM engine (v0.8.4) with config: model='/m, x', "
        "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=300), "
        "load_format=LoadFormat.AUTO, served_model_name=a, b, seed=None\n"
    )
    assert facts.version == "0.8.4"
    assert facts.speculating is True
    assert facts.config["model"] == "/m, x"
    assert facts.config["served_model_name"] == "a, b"
    assert facts.config["load_format"] == "LoadFormat.AUTO"
    assert facts.config["args.api_key"] == "(hidden)"
    assert facts.config["args.lora.a"] == "[1, 2]"
    assert facts.config["args.dispatch_function"] == "<function ServeSubcommand.cmd>"


def test_keys_and_passwords_are_not_kept() -> None:
    facts = read(
        "INFO 11-30 00:21:09 [u.py:1] non-default args: {'api_key': ['sk-123'], 'hf_token': 'hf_9', 'max_tokens': 5}\n"
    )
    assert facts.config == {"args.api_key": "(hidden)", "args.hf_token": "(hidden)", "args.max_tokens": "5"}


def test_keys_and_tokens_of_connectors_are_not_kept_either() -> None:
    facts = read(
        "INFO 11-30 00:21:09 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='m', "
        "kv_transfer_config=KVTransferConfig(kv_connector='X', kv_connector_extra_config={'access_key': 'AK9', "
        "'auth_token': 'T9', 's3': {'secretAccessKey': 'SK9'}, 'max_tokens': 5, 'connectors': [{'auth_token': 'L9'}], "
        "'url': 'redis://me:P9@host'}), seed=0, long_prefill_token_threshold=7, max_num_batched_tokens=8\n"
    )
    config = facts.config
    assert not any(secret in value for value in config.values() for secret in ("AK9", "T9", "SK9", "L9", "P9"))
    extra = "kv_transfer_config.kv_connector_extra_config"
    assert {config[f"{extra}.{key}"] for key in ("access_key", "auth_token", "s3.secretAccessKey")} == {"(hidden)"}
    assert config[f"{extra}.max_tokens"] == "5"
    assert (config["long_prefill_token_threshold"], config["max_num_batched_tokens"]) == ("7", "8")


def test_an_empty_log_tells_nothing() -> None:
    assert read("") == StartupFacts(phase="starting Python")


STARTS = ("ngram", "baseline", "eager", "cache_unusable")


@pytest.mark.parametrize("new", STARTS)
@pytest.mark.parametrize("old", [*STARTS, "fails_async_ngram", "fails_bad_method", "fails_port_busy"])
def test_the_last_start_of_a_log_is_the_one_that_is_told(old: str, new: str) -> None:
    before, after = ((DATA / f"vllm_0.32_{name}.txt").read_text(encoding="utf-8") for name in (old, new))
    assert read(before + after) == read(after)


def test_a_start_without_a_banner_begins_anew_after_one_that_served() -> None:
    def start(config: str) -> str:
        return (
            f"INFO 11-30 00:21:09 [x.py:1] non-default args: {{'{config}': 1}}\n"
            f"WARNING 11-30 00:21:09 [vllm.py:1605] {ASYNC_OFF.replace('ngram', config)}\n"
            f"INFO 11-30 00:21:09 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: {config}=2\n"
            "INFO:     Application startup complete.\n"
        )

    assert read(start("a") + start("b")) == read(start("b"))


def test_several_engines_of_one_start_are_one_start() -> None:
    line = "(EngineCore_DP{n} pid={n}) INFO 11-30 00:21:09 [core.py:1] Initializing a V1 LLM engine (v0.32.0) "
    text = (
        "(APIServer pid=1) INFO 11-30 00:21:09 [x.py:1] vLLM API server version 0.32.0\n"
        "(APIServer pid=1) INFO 11-30 00:21:09 [x.py:1] non-default args: {'a': 1}\n"
        + line.format(n=0)
        + "with config: b=2\nINFO:     Application startup complete.\n"
        + line.format(n=1)
        + "with config: b=2\n"
    )
    assert read(text).config == {"args.a": "1", "b": "2"}
    assert read(text).phase == "serving"


def starts(*messages: str) -> int:
    reader = VLLMLogReader()
    for message in messages:
        reader.feed(f"(APIServer pid=1) INFO 11-30 00:21:09 [x.py:1] {message}\n")
    return reader.starts


FIGURES = (
    "SpecDecoding metrics: Mean acceptance length: 2.29, Accepted throughput: 9.11 tokens/s",
    "Speculative metrics: Draft acceptance rate: 0.560, System efficiency: 0.500",
    "DiffusionDecoding metrics: Committed token throughput: 25.6 tokens/s",
)


@pytest.mark.parametrize("banner", ["vLLM API server version 0.32.0", "vLLM server version 0.32.0, serving model m"])
def test_two_lines_of_a_version_are_one_start_only_where_next_to_nothing_is_between_them(banner: str) -> None:
    logo = "▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0"
    assert starts(logo, banner) == 1
    assert starts(logo, "█▄█▀ █     █     █     █  model   /m", "", banner) == 1
    assert starts(logo, *["Parameters won't matter"] * 20, banner) == 2
    for figures in FIGURES:
        assert starts(logo, figures, banner) == 2


def test_a_version_without_the_logo_is_read() -> None:
    assert read("INFO 11-30 00:21:09 [startup.py:30] vLLM server version 0.33.0, serving model m\n").version == "0.33.0"
