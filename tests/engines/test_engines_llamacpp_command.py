import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.llamacpp import LlamaCpp
from draftworth.engines.llamacpp.config_flags import speculative_flags, types_of
from draftworth.engines.llamacpp.flags import newest, read
from draftworth.engines.llamacpp.version import read_answer, version_of
from draftworth.errors import RefusedError, UsageError

ENGINE = LlamaCpp()
PLAIN = ("llama-server", "-m", "/models/a.gguf", "--port", "8080")
NGRAM = {"spec_type": "ngram-simple", "spec_ngram_simple_size_m": 5}
NGRAM_WORDS = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "5")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (NGRAM, "--spec-type ngram-simple --spec-ngram-simple-size-m 5"),
        (
            {"spec_type": "ngram-simple", "spec_draft_n_max": 5},
            "--spec-type ngram-simple --spec-draft-n-max 5",
        ),
        (
            {"type": "ngram-map-k4v", "size_n": 3, "min_hits": 1},
            "--spec-type ngram-map-k4v --spec-ngram-map-k4v-min-hits 1 --spec-ngram-map-k4v-size-n 3",
        ),
        (
            {"type": "draft-simple", "model": "d.gguf", "n_max": 4, "p_min": 0.6},
            "--spec-type draft-simple --spec-draft-model d.gguf --spec-draft-n-max 4 --spec-draft-p-min 0.6",
        ),
        (
            {"type": "draft-simple", "model_draft": "d.gguf", "ngld": 99},
            "--spec-type draft-simple --model-draft d.gguf -ngld 99",
        ),
        ({"type": ["ngram-mod", "draft-mtp"]}, "--spec-type ngram-mod,draft-mtp"),
        (
            {"type": "ngram-mod,draft-simple", "ngram-mod": {"n_max": 32}, "draft": {"model": "d.gguf"}},
            "--spec-type ngram-mod,draft-simple --spec-draft-model d.gguf --spec-ngram-mod-n-max 32",
        ),
        (
            {"type": "ngram-simple", "synth_rates": [0.8, 0.5]},
            "--spec-type ngram-simple --spec-synth-rates 0.8,0.5",
        ),
        ({"spec_default": True}, "--spec-default"),
        ({"--model-draft": "d.gguf"}, "--model-draft d.gguf"),
        (
            {"type": "draft-mtp", "backend_sampling": True, "hf": None},
            "--spec-type draft-mtp --spec-draft-backend-sampling",
        ),
    ],
)
def test_a_configuration_is_written_as_flags(config: dict[str, Any], words: str) -> None:
    assert shlex.join(sorted_pairs(speculative_flags(config))) == shlex.join(sorted_pairs(tuple(shlex.split(words))))


def sorted_pairs(words: tuple[str, ...]) -> list[str]:
    """Return flags with their values in order of name: a configuration has no order."""
    pairs: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not word.removeprefix("-").replace(".", "").isdecimal():
            pairs.append([word])
        else:
            pairs[-1].append(word)
    return [word for pair in sorted(pairs) for word in pair]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs a type"),
        ({"size_n": 3}, "needs a type"),
        ({"method": "ngram"}, "another engine's name"),
        ({"type": "ngram-mod", "num_speculative_tokens": 5}, "another engine's name"),
        ({"type": "ngram-mod,draft-mtp", "n_max": 5}, "says not of which"),
        ({"type": "ngram-mod", "n_max": 5, "spec_ngram_mod_n_max": 6}, "twice"),
        ({"type": "ngram-mod", "n_max": object()}, "cannot be written"),
    ],
)
def test_a_configuration_that_cannot_be_written_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        speculative_flags(config)


@settings(max_examples=100)
@given(
    st.sampled_from(["ngram-simple", "ngram-map-k", "ngram-map-k4v"]),
    st.dictionaries(st.sampled_from(["size_n", "size_m", "min_hits"]), st.integers(1, 1024)),
)
def test_the_server_reads_what_is_written(kind: str, values: dict[str, int]) -> None:
    found = read(speculative_flags({"type": kind, **values}))
    expected = {f"--spec-{kind}-{key.replace('_', '-')}": str(value) for key, value in values.items()}
    assert found == {"--spec-type": kind, **expected}
    assert types_of({"type": kind}) == (kind,)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (PLAIN, (*PLAIN, *NGRAM_WORDS)),
        (("nice", "-n", "5", *PLAIN), ("nice", "-n", "5", *PLAIN, *NGRAM_WORDS)),
        (
            ("docker", "run", "--rm", "-p", "8080:8080", "ghcr.io/ggml-org/llama.cpp:server-cuda", "-m", "/m/a.gguf"),
            (
                *("docker", "run", "--rm", "-p", "8080:8080", "ghcr.io/ggml-org/llama.cpp:server-cuda"),
                *("-m", "/m/a.gguf", *NGRAM_WORDS),
            ),
        ),
        (
            ("podman", "run", "ghcr.io/ggml-org/llama.cpp:full", "--server", "-m", "a.gguf"),
            ("podman", "run", "ghcr.io/ggml-org/llama.cpp:full", "--server", "-m", "a.gguf", *NGRAM_WORDS),
        ),
        (
            ("bash", "-c", "export A=1; exec llama-server -m a.gguf 2>&1 | tee log"),
            ("bash", "-c", f"export A=1; exec llama-server -m a.gguf {' '.join(NGRAM_WORDS)} 2>&1 | tee log"),
        ),
        (
            ("run.sh", "{speculative_args}", "--x"),
            ("run.sh", *NGRAM_WORDS, "--x"),
        ),
        (("/opt/llama", "serve", "-m", "a.gguf"), ("/opt/llama", "serve", "-m", "a.gguf", *NGRAM_WORDS)),
    ],
)
def test_flags_are_put_where_the_server_reads_them(command: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert ENGINE.with_speculation(command, NGRAM) == expected


def test_a_command_that_does_not_show_the_server_is_refused() -> None:
    for command in (
        ("run.sh",),
        ("ssh", "host", "llama-server"),
        ("docker", "start", "llama-server"),
        ("bash", "x.sh"),
    ):
        with pytest.raises(RefusedError, match="llama-server"):
            ENGINE.with_speculation(command, NGRAM)


def test_a_command_that_speculates_already_is_refused() -> None:
    with pytest.raises(RefusedError, match="speculates already"):
        ENGINE.with_speculation((*PLAIN, "--spec-type", "ngram-mod"), NGRAM)


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        (("--spec-type", "ngram-mod"), {}, "--spec-type ngram-mod"),
        (("--spec_type", "ngram-mod"), {}, "--spec_type ngram-mod"),
        (("--spec-type", "none"), {}, None),
        (("--spec-type", "none,draft-mtp"), {}, "--spec-type none,draft-mtp"),
        (("-md", "d.gguf"), {}, "-md d.gguf"),
        (("--model-draft", "d.gguf"), {}, "--model-draft d.gguf"),
        (("--spec-default",), {}, "--spec-default"),
        (("--fim-qwen-7b-spec",), {}, "--fim-qwen-7b-spec"),
        (("--spec-draft-n-max", "5"), {}, None),
        ((), {"LLAMA_ARG_SPEC_TYPE": "ngram-mod"}, "LLAMA_ARG_SPEC_TYPE=ngram-mod"),
        ((), {"LLAMA_ARG_SPEC_TYPE": "none"}, None),
        ((), {}, None),
    ],
)
def test_speculation_is_seen_in_every_spelling(
    words: tuple[str, ...], env: dict[str, str], expected: str | None
) -> None:
    assert ENGINE.speculation_in((*PLAIN, *words), env) == expected
    inside = ("bash", "-c", shlex.join((*PLAIN, *words)))
    assert ENGINE.speculation_in(inside, env) == expected


def test_further_arguments_stand_behind_the_others_and_metrics_only_once() -> None:
    assert ENGINE.with_args(PLAIN, ("--metrics",)) == (*PLAIN, "--metrics")
    assert ENGINE.with_args((*PLAIN, "--metrics"), ("--metrics",)) == (*PLAIN, "--metrics")
    assert ENGINE.with_args((*PLAIN, "--metrics"), ("-lv", "4")) == (*PLAIN, "--metrics", "-lv", "4")
    assert ENGINE.with_args(("run.sh", "{speculative_args}"), ("-lv", "4")) == (
        "run.sh",
        "-lv",
        "4",
        "{speculative_args}",
    )
    assert ENGINE.without_placeholder(("run.sh", "{speculative_args}")) == ("run.sh",)
    assert ENGINE.measuring_args("b11434") == ENGINE.measuring_args(None) == ()


def test_a_placeholder_inside_a_word_is_refused() -> None:
    with pytest.raises(RefusedError, match="a word of its own"):
        ENGINE.without_placeholder(("run.sh", "--x={speculative_args}"))


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (PLAIN, "/models/a.gguf"),
        (("llama-server", "-hf", "ggml-org/x-GGUF:Q8_0"), "ggml-org/x-GGUF:Q8_0"),
        (("llama-server", "--model", "b.gguf"), "b.gguf"),
        (("bash", "-c", "llama-server -m '/my models/a.gguf'"), "/my models/a.gguf"),
        (("llama-server", "-m", "$MODEL"), None),
        (("llama-server",), None),
    ],
)
def test_the_model_is_found(words: tuple[str, ...], model: str | None) -> None:
    assert ENGINE.model_in(words) == model


def test_flags_have_one_name() -> None:
    assert newest("-md") == newest("--model_draft") == "--spec-draft-model"
    assert newest("--draft-max") == "--spec-draft-n-max"
    assert read(("--spec-type", "a", "-np", "4", "--metrics", "--spec-type", "b", "-np", "2")) == {
        "--spec-type": "a,b",
        "--parallel": "2",
        "--metrics": "on",
    }


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version: 0.6.0-dev (build 11434, commit unknown)\nbuilt with GNU 12.2.0 for Linux x86_64\n", "b11434"),
        ("ggml_cuda_init: found 1 device\nversion: 9093 (1e5ad35d5)\nbuilt with cc\n", "b9093"),
        ("version: 0 (unknown)\n", None),
        ("version: 0.6.0-dev (build 0, commit unknown)\n", None),
        ("Python 3.11.2\n", None),
        ("", None),
    ],
)
def test_the_build_is_read_from_what_the_server_prints(text: str, version: str | None) -> None:
    assert read_answer(text) == version


def test_the_program_of_the_command_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['--version']\nprint('version: 9660 (ab)')\n"
    )
    program.chmod(0o755)
    assert version_of((str(program), "-m", "a.gguf"), {}) == "b9660"
    assert version_of(("nice", "llama-server", "-m", "a.gguf"), {"PATH": f"{tmp_path}:/usr/bin:/bin"}) == "b9660"
    assert version_of(("bash", "-c", f"exec {program} -m a"), {}) == "b9660"
    assert version_of(("docker", "run", "x", str(program)), {}) is None
    assert version_of(("./llama-server",), {}) is None
    assert version_of(("llama-server",), {"PATH": "/nowhere"}) is None
    assert version_of(("bash", "x.sh"), {}) is None


@settings(max_examples=100)
@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_command_breaks_the_reading(words: list[str]) -> None:
    for command in (words, ["llama-server", *words], ["bash", "-c", " ".join(words)]):
        ENGINE.speculation_in(command, {})
        ENGINE.model_in(command)
