import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines import shell
from draftworth.engines.sglang import PLACEHOLDER, SGLang
from draftworth.engines.sglang.command import model_in, speculative_flags
from draftworth.engines.sglang.flags import options
from draftworth.errors import RefusedError, UsageError

SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "m")
EAGLE = {"algorithm": "EAGLE3", "draft_model_path": "d", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
FLAGS = [
    "--speculative-algorithm",
    "EAGLE3",
    "--speculative-draft-model-path",
    "d",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "4",
    "--speculative-num-steps",
    "3",
]


def test_a_configuration_becomes_flags_with_and_without_the_prefix() -> None:
    assert speculative_flags(EAGLE) == tuple(FLAGS)
    assert speculative_flags({f"speculative_{key}": value for key, value in EAGLE.items()}) == tuple(FLAGS)
    assert speculative_flags({"algorithm": "NGRAM", "adaptive": True, "token-map": None, "x": False}) == (
        "--speculative-algorithm",
        "NGRAM",
        "--speculative-adaptive",
    )
    assert speculative_flags({"algorithm": "NGRAM", "z": [1], "a": {"k": 0.5}})[2:] == (
        "--speculative-a",
        '{"k":0.5}',
        "--speculative-z",
        "[1]",
    )


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"algorithm": ""},
        {"algorithm": 3},
        {"method": "ngram", "algorithm": "NGRAM"},
        {"algorithm": "NGRAM", "num_speculative_tokens": 3},
        {"algorithm": "NGRAM", "speculative_algorithm": "EAGLE"},
        {"algorithm": "NGRAM", "x": float("nan")},
        {"algorithm": "NGRAM", "x": {1}},
    ],
)
def test_a_configuration_that_cannot_be_written_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        speculative_flags(config)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SERVER, (*SERVER, "--x", "1")),
        (("sglang", "serve", "--model-path", "m"), ("sglang", "serve", "--model-path", "m", "--x", "1")),
        (("/a/python", "/b/launch_server.py", "--", "y"), ("/a/python", "/b/launch_server.py", "--x", "1", "--", "y")),
        (
            ("bash", "-lc", "cd /w && exec sglang serve -tp 2 >log 2>&1"),
            ("bash", "-lc", "cd /w && exec sglang serve -tp 2 --x 1 >log 2>&1"),
        ),
        (
            ("docker", "run", "-m", "8g", "lmsysorg/sglang:latest", *SERVER),
            ("docker", "run", "-m", "8g", "lmsysorg/sglang:latest", *SERVER, "--x", "1"),
        ),
        (("./run.sh", PLACEHOLDER, "y"), ("./run.sh", "--x", "1", PLACEHOLDER, "y")),
    ],
)
def test_arguments_go_behind_sglangs_own(command: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert SGLang().with_args(command, ("--x", "1")) == expected
    assert SGLang().with_args(command, ()) == command


def test_speculation_is_added_where_arguments_go() -> None:
    engine = SGLang()
    assert engine.with_speculation(SERVER, EAGLE) == (*SERVER, *FLAGS)
    assert engine.with_speculation(("./run.sh", PLACEHOLDER), EAGLE) == ("./run.sh", *FLAGS)
    assert engine.without_placeholder(("./run.sh", PLACEHOLDER, "x")) == ("./run.sh", "x")
    assert engine.without_placeholder(SERVER) == SERVER
    nested = engine.with_speculation(("bash", "-c", f"sglang serve {PLACEHOLDER} --port 1"), {"algorithm": "NGRAM"})
    assert nested == ("bash", "-c", "sglang serve --speculative-algorithm NGRAM --port 1")
    assert engine.measuring_args("0.5.23") == engine.measuring_args(None) == ()


@pytest.mark.parametrize(
    "command",
    [
        ("./run.sh",),
        ("ssh", "host", "sglang", "serve"),
        ("docker", "start", "sglang"),
        ("bash", "-c", "sglang serve -tp 1 & sglang serve -tp 1"),
        ("bash", "-c", "sglang serve 'x"),
        ("vllm", "serve", "m"),
        ("./run.sh", f"'{PLACEHOLDER}'x"),
    ],
)
def test_a_command_that_does_not_show_where_flags_go_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError):
        SGLang().with_speculation(command, EAGLE)


@pytest.mark.parametrize(
    ("command", "env", "how"),
    [
        ((*SERVER, "--speculative-algorithm", "NGRAM"), {}, "--speculative-algorithm NGRAM"),
        ((*SERVER, "--speculative-alg=NGRAM"), {}, "--speculative-alg=NGRAM"),
        (("bash", "-c", "sglang serve --speculative-num-steps 3"), {}, "--speculative-num-steps 3"),
        (("env", "ARGS=--a --speculative-algorithm X", "./run.sh"), {}, "ARGS=--a --speculative-algorithm X"),
        (("./run.sh",), {"ARGS": "--speculative-algorithm X"}, "ARGS=--speculative-algorithm X"),
        (SERVER, {"SGLANG_ENABLE_SPEC_V2": "1"}, None),
        ((*SERVER, "--spec-trace-dir", "/x"), {}, None),
    ],
)
def test_speculation_that_is_there_already_is_found(
    command: tuple[str, ...], env: dict[str, str], how: str | None
) -> None:
    assert SGLang().speculation_in(command, env) == how
    if how and not env:
        with pytest.raises(RefusedError, match="speculates already"):
            SGLang().with_speculation(command, EAGLE)


def test_a_configuration_file_is_looked_into(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("model-path: m\nspeculative-algorithm: EAGLE\n")
    assert SGLang().speculation_in((*SERVER, "--config", str(file)), {}) == f"speculative-algorithm in {file}"
    file.write_text("model-path: m\nspeculative-algorithm: null\n")
    assert SGLang().speculation_in((*SERVER, f"--config={file}"), {}) is None
    assert SGLang().speculation_in((*SERVER, "--config", "/not/there"), {}) is None


def test_the_model_is_found() -> None:
    assert model_in(SERVER) == "m"
    assert model_in(("sglang", "serve", "--model=x")) == "x"
    assert model_in(("bash", "-c", "sglang serve --model-path 'a b'")) == "a b"
    assert model_in(("bash", "-c", "sglang serve --model-path $M")) is None
    assert model_in(("./run.sh",)) is None


def test_options_are_read_with_and_without_values() -> None:
    assert options(["--a", "1", "--b", "--c=2", "x", "--d_e", "-1"]) == {"a": "1", "b": "True", "c": "2", "d-e": "-1"}


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), max_size=20))
def test_a_value_arrives_in_a_shell_string_as_it_was_given(value: str) -> None:
    command = SGLang().with_args(("bash", "-c", "exec sglang serve --port 1 # x"), ("--x", value))
    (words,) = shell.simple_commands(command[2])
    assert [word.text for word in words][-2:] == ["--x", value]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which sglang 9.8.7 is installed and `sglang` is on PATH."""
    package = tmp_path / "site" / "sglang-9.8.7.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.8.7\n")
    script = tmp_path / "bin" / "sglang"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "site")}


def test_the_installed_version_is_asked_of_the_interpreter(env: dict[str, str]) -> None:
    engine = SGLang()
    told: tuple[tuple[str, ...], ...] = (
        (sys.executable, "-m", "sglang.launch_server", "--model-path", "m"),
        ("nohup", sys.executable, "/x/launch_server.py"),
        ("sglang", "serve", "--model-path", "m"),
        ("bash", "-c", "exec sglang serve --model-path m"),
    )
    for command in told:
        assert engine.version_of(command, env) == "9.8.7"
    untold: tuple[tuple[str, ...], ...] = (
        ("docker", "run", "image", *SERVER),
        ("./python", "-m", "sglang.launch_server"),
        ("bash", "-c", "source venv/bin/activate; sglang serve"),
        ("./run.sh",),
    )
    for command in untold:
        assert engine.version_of(command, env) is None
    assert engine.version_of((sys.executable, "-m", "sglang.launch_server"), {"PATH": "/none"}) is None
