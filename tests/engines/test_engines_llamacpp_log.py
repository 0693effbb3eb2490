from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import StartupFacts, synthetic_in
from draftworth.engines.llamacpp import LlamaCpp
from draftworth.engines.llamacpp.confounders import confounders
from draftworth.engines.llamacpp.failures import failure_hint
from draftworth.engines.llamacpp.log import NEEDLES, LlamaLogReader
from draftworth.engines.llamacpp.log_lines import parse
from draftworth.engines.llamacpp.log_warnings import warning_in

DATA = Path(__file__).parent / "data" / "llamacpp"


def text(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def facts(log: str) -> StartupFacts:
    reader = LlamaLogReader()
    reader.feed(log)
    return reader.facts()


def test_a_real_log_at_verbosity_4_tells_the_build_and_the_speculation() -> None:
    found = facts(text("ngram_mod_log"))
    assert found.version == "b11434"
    assert found.speculating is True
    assert found.config == {
        "n_threads": "2",
        "n_threads_batch": "2",
        "model": "/models/SmolLM2-135M-Instruct-bf16.gguf",
        "n_seq_max": "4",
        "n_ctx": "4096",
        "n_batch": "2048",
        "n_ubatch": "512",
        "flash_attn": "auto",
        "kv_unified": "true",
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "n_slots": "4",
        "n_ctx_slot": "4096",
        "speculative.type": "ngram-mod",
        "speculative.ngram-mod.n_match": "4",
        "speculative.ngram-mod.n_max": "8",
        "speculative.ngram-mod.n_min": "1",
    }
    assert [one.code for one in found.warnings] == ["ngram_mod_short"]


def test_a_real_log_at_the_usual_verbosity_tells_neither_before_the_first_draft() -> None:
    log = text("ngram_simple_log")
    start = facts(log[: log.index("draft acceptance")])
    assert (start.version, start.speculating, start.phase) == (None, None, "serving")
    assert start.config["n_slots"] == "4"
    assert facts(log).speculating is True
    assert facts(text("baseline_log")).speculating is None


def loaded(*lines: str, slots: bool = True) -> StartupFacts:
    head = "0.00.000.807 I srv  llama_server: initializing ...\n"
    body = "".join(f"0.00.150.504 I load_tensors: {line}\n" for line in lines)
    behind = "0.00.520.642 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096\n" if slots else ""
    return facts(head + body + behind)


def test_the_device_is_the_backend_that_holds_the_weights() -> None:
    assert facts(text("ngram_mod_log")).device == "cpu"
    assert facts(text("ngram_simple_log")).device is None  # not told at the usual verbosity
    cpu, cuda = "  CPU_Mapped model buffer size =   256.63 MiB", "       CUDA0 model buffer size =  4000.00 MiB"
    none, some = "offloaded 0/31 layers to GPU", "offloaded 10/31 layers to GPU"
    assert loaded(none, cpu, "  CUDA_Host model buffer size =    10.00 MiB").device == "cpu"
    found = loaded(some, cpu, cuda)
    assert (found.device, found.config["gpu_layers"]) == ("cuda", "10/31")
    assert loaded(cpu, slots=False).device is None  # another backend may follow
    assert loaded(" Vulkan0 model buffer size = 1.00 MiB").device == "vulkan"
    assert loaded(" MTL0_Mapped model buffer size = 1.00 MiB").device == "mtl"
    assert loaded().device is None
    old = "load_tensors:        CUDA0 model buffer size =  4000.00 MiB\n"  # 9093: no time, no level
    assert facts("build_info: b9093-1e5ad35d5\n" + old).device == "cuda"


def test_a_draft_on_another_device_is_not_the_models() -> None:
    draft = "0.1 I srv    load_model: loading draft model 'd.gguf'\n0.2 I load_tensors: offloaded 5/5 layers to GPU\n"
    log = text("ngram_mod_log")
    at = log.index("0.00.222.083")
    found = facts(log[:at] + draft + "0.3 I load_tensors: CUDA0 model buffer size = 1.00 MiB\n" + log[at:])
    assert found.device == "cpu"
    assert "gpu_layers" not in found.config


def test_a_server_that_would_have_said_so_does_not_speculate() -> None:
    log = text("ngram_mod_log")
    kept = [
        line for line in log.splitlines() if "spec " not in line and "peculative" not in line and "draft" not in line
    ]
    assert facts("\n".join(kept) + "\n").speculating is False


def test_a_draft_type_without_its_draft_serves_without_speculation() -> None:
    found = facts(text("differs_draft_simple_without_draft"))
    assert found.speculating is False
    (warning,) = found.warnings
    assert warning.code == "speculation_off"
    assert warning.line.endswith("draft-simple requires a draft context")


def test_synthetic_acceptance_is_seen() -> None:
    found = facts(text("differs_synthetic"))
    assert [one.code for one in found.warnings] == ["synthetic_acceptance"]
    assert synthetic_in(found.config) is not None


def test_a_log_of_9093_tells_its_build_at_once() -> None:
    found = facts(text("log_9093"))
    assert (found.version, found.speculating, found.phase) == ("b9093", True, "serving")
    assert found.config == {"n_threads": "8", "n_threads_batch": "8", "model": "/models/target.gguf", "n_slots": "1"}
    assert [one.code for one in found.warnings] == ["checkpoints"]
    newer = facts(text("log_9246"))
    assert (newer.version, newer.speculating, newer.phase) == (None, True, "serving")


def test_the_phases_of_a_start() -> None:
    reader = LlamaLogReader()
    seen: list[str] = []
    for line in text("ngram_simple_log").splitlines():
        reader.feed(line + "\n")
        if reader.facts().phase not in seen[-1:]:
            seen.append(reader.facts().phase)
    assert seen == ["starting", "loading the model", "setting up slots", "serving", "stopping"]


def test_a_log_of_several_starts_tells_of_the_last() -> None:
    for names in (("ngram_mod_log", "baseline_log"), ("log_9093", "log_9246"), ("baseline_log", "ngram_mod_log")):
        reader = LlamaLogReader()
        reader.feed(text(names[0]) + text(names[1]))
        assert reader.starts == 2
        assert reader.facts() == facts(text(names[1]))


def test_needles_hold_every_line_that_changes_the_facts() -> None:
    for name in ("ngram_mod_log", "ngram_simple_log", "baseline_log", "log_9093", "log_9246", "differs_synthetic"):
        needles = LlamaCpp().log_needles
        kept = [line for line in text(name).splitlines() if any(needle in line.encode() for needle in needles)]
        assert facts("\n".join(kept) + "\n").model_dump(exclude={"phase"}) == facts(text(name)).model_dump(
            exclude={"phase"}
        )
    assert len(LlamaCpp().log_needles) <= 30
    assert set(NEEDLES) <= set(LlamaCpp().log_needles)


def test_every_log_bears_a_sign() -> None:
    for name in ("ngram_simple_log", "baseline_log", "log_9093", "log_9246"):
        assert any(sign in text(name).encode() for sign in LlamaCpp().log_signs)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "0.00.1 W spec common_specu: draft model vocab type must match target model to use speculation but ",
            "draft_",
        ),
        ("spec common_specu: the target and draft vocabs are not compatible", "draft_vocabulary"),
        ("srv    load_model: speculative decoding not supported by this context", "speculation_off"),
        ("srv    load_model: ctx_shift is not supported by multimodal, it will be disabled", "feature_disabled"),
        (
            "srv    load_model: the slot context (9000) exceeds the training context of the model (8192) - capping",
            "con",
        ),
        ("DEPRECATED: argument '--parallel' specified multiple times, use comma-separated values instead", "argument_"),
        (
            "srv  decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 0",
            "kv_cache",
        ),
        ("spec        draft: llama_process[3] returned 1", "draft_failing"),
        ("warning: no usable GPU found, --gpu-layers-draft option will be ignored", "draft_on_cpu"),
        ("spec: ngram_mod occupancy 0.30 exceeds threshold (0.25) - resetting", "ngram_mod_reset"),
    ],
)
def test_lines_that_matter_are_warnings(line: str, code: str) -> None:
    found = warning_in(parse(line))
    assert found is not None
    assert found.code.startswith(code)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fails_unknown_flag", "error: invalid argument: --no-such-flag"),
        ("fails_removed_flag", 'error while handling argument "--draft-max": the argument has been removed'),
        ("fails_unknown_type", 'error while handling argument "--spec-type": unknown speculative type: ngram_simple'),
        ("fails_bad_value", "ngram size N must be between 1 and 1024 inclusive"),
        ("fails_no_model", "failed to open GGUF file '/models/missing.gguf' (No such file or directory)"),
        ("fails_no_mtp_layers", "context type MTP requested but model doesn't contain MTP layers"),
        ("fails_synthetic_without_type", "synthetic acceptance requires an initialized speculative decoding context"),
        ("fails_port_busy", "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080"),
    ],
)
def test_a_real_failed_start_is_explained(name: str, words: str) -> None:
    found = failure_hint(text(name))
    assert found is not None
    assert words in found


def test_memory_that_ran_out_comes_first() -> None:
    log = (
        "0.1 E ggml_cuda: cudaMalloc failed: out of memory\n0.00.000.002 E srv  load_model: failed to load model, 'x'\n"
    )
    assert failure_hint(log) == "0.1 E ggml_cuda: cudaMalloc failed: out of memory"
    assert failure_hint("bash: llama-server: command not found\n") == "bash: llama-server: command not found"
    library = "llama-server: error while loading shared libraries: libllama.so.0: cannot open shared object file"
    assert failure_hint(library) == library
    assert failure_hint(text("baseline_log")) is None
    assert failure_hint("") is None


def test_speculation_is_no_confounder_and_another_context_is() -> None:
    base, variant = facts(text("baseline_log")), facts(text("ngram_simple_log"))
    assert confounders(base, variant) == ()
    assert confounders(base, facts(text("ngram_mod_log"))) == ()
    fewer = variant.model_copy(update={"config": {**variant.config, "n_slots": "1"}, "version": "b9093"})
    found = confounders(base.model_copy(update={"version": "b11434"}), fewer)
    assert [(one.name, one.baseline, one.variant) for one in found] == [
        ("version", "b11434", "b9093"),
        ("n_slots", "4", "1"),
    ]
    (unknown,) = confounders(StartupFacts(), variant)
    assert unknown.name == "configuration"


def test_a_warning_of_one_arm_is_a_confounder() -> None:
    line = "srv    load_model: cache_reuse is not supported by this context, it will be disabled\n"
    base = facts(text("baseline_log"))
    (found,) = confounders(base, facts(text("baseline_log") + line))
    assert (found.name, found.baseline) == ("feature_disabled", "not logged")


@settings(max_examples=60)
@given(st.lists(st.integers(1, 400), max_size=12))
def test_the_facts_do_not_depend_on_where_pieces_end(cuts: list[int]) -> None:
    log = text("log_9246")
    reader, at = LlamaLogReader(), 0
    for size in cuts:
        reader.feed(log[at : at + size])
        at += size
    reader.feed(log[at:])
    assert reader.facts() == facts(log)


@settings(max_examples=100)
@given(st.text(max_size=200), st.sampled_from([needle.decode() for needle in NEEDLES]))
def test_no_text_breaks_the_reader(odd: str, needle: str) -> None:
    reader = LlamaLogReader()
    for piece in (odd, needle + odd, f"\n{needle}{odd}\n", f"0.00.000.001 I srv  x: {needle}{odd}\r"):
        reader.feed(piece)
    assert reader.facts().phase
    failure_hint(needle + odd)
