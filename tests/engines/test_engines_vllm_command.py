import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftworth.engines.vllm.command import (
    config_text,
    model_in,
    with_args,
    with_speculation,
    without_placeholder,
)
from draftworth.errors import RefusedError, UsageError

CONFIG = {"num_speculative_tokens": 5, "method": "ngram"}
JSON = '{"method":"ngram","num_speculative_tokens":5}'
FLAGS = ("--speculative-config", JSON)
SHELL_FLAGS = f"--speculative-config '{JSON}'"
API = "vllm.entrypoints.openai.api_server"


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m",
        "/opt/venv/bin/vllm serve m --port 8000",
        f"python -m {API} --model m",
        f"python3.11 -u -m{API} --model m",
        "python -m vllm.entrypoints.cli.main serve m",
        "python /srv/vllm/entrypoints/openai/api_server.py --model m",
        "env CUDA_VISIBLE_DEVICES=0 VLLM_USE_V1=1 vllm serve m",
        "nohup vllm serve m",
        "nice -n 5 vllm serve m",
        "taskset -c 0-7 vllm serve m",
        "numactl -m 0 -N 0 vllm serve m",
        "stdbuf -oL setsid vllm serve m",
        "conda run -n vllm --no-capture-output vllm serve m",
        "uv run --with vllm -- vllm serve m",
        "docker run vllm/vllm-openai:v0.32.0 --model m",
        "docker run vllm/vllm-openai",
        "sudo docker --context gpu run -it --rm --gpus all -p 8000:8000 -v /m:/m --ipc=host vllm/vllm-openai --model m",
        "podman run -d --name vllm --entrypoint vllm registry/llm:1 serve m",
        "docker run registry/llm:1 --model m --max-model-len 4096",
        "docker container run --entrypoint=python3 registry/llm:1 -m vllm.entrypoints.openai.api_server --model m",
        "docker exec -it box vllm serve m",
        "./with-env.sh vllm serve m",
    ],
)
def test_flags_go_behind_the_last_argument_of_a_plain_command(command: str) -> None:
    words = command.split()
    assert with_speculation(words, CONFIG) == (*words, *FLAGS)
    assert with_speculation(tuple(words), CONFIG) == (*words, *FLAGS)


def test_flags_go_in_front_of_a_double_dash_that_ends_the_options() -> None:
    assert with_speculation(["vllm", "serve", "--", "m"], CONFIG) == ("vllm", "serve", *FLAGS, "--", "m")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exec vllm serve m", "exec vllm serve m FLAGS"),
        ("A=1 B='x y' exec vllm serve m", "A=1 B='x y' exec vllm serve m FLAGS"),
        (
            "cd /srv && source env/bin/activate && vllm serve m",
            "cd /srv && source env/bin/activate && vllm serve m FLAGS",
        ),
        ("vllm serve m > log 2>&1", "vllm serve m FLAGS > log 2>&1"),
        ("vllm serve m 2>&1 | tee log", "vllm serve m FLAGS 2>&1 | tee log"),
        ("vllm serve m; echo done", "vllm serve m FLAGS; echo done"),
        ("vllm serve m & wait", "vllm serve m FLAGS & wait"),
        ("vllm serve m  # the big one", "vllm serve m FLAGS  # the big one"),
        ('exec vllm serve "$MODEL" $EXTRA', 'exec vllm serve "$MODEL" $EXTRA FLAGS'),
        ('cd "$(dirname "$0")" && vllm serve m', 'cd "$(dirname "$0")" && vllm serve m FLAGS'),
        ("vllm serve m \\\n  --port 1\n", "vllm serve m \\\n  --port 1 FLAGS\n"),
        ("if true; then vllm serve m; fi", "if true; then vllm serve m FLAGS; fi"),
        ("docker run --rm vllm/vllm-openai --model m > log", "docker run --rm vllm/vllm-openai --model m FLAGS > log"),
    ],
)
@pytest.mark.parametrize(
    "shell", [["bash", "-c"], ["bash", "-lc"], ["/bin/sh", "-c"], ["bash", "-eu", "-o", "pipefail", "-c"]]
)
def test_flags_go_into_a_shell_string_at_the_end_of_vllms_own_words(
    shell: list[str], script: str, expected: str
) -> None:
    assert with_speculation([*shell, script], CONFIG) == (*shell, expected.replace("FLAGS", SHELL_FLAGS))


def test_flags_go_into_a_shell_string_within_a_shell_string_and_within_a_container() -> None:
    nested = with_speculation(["bash", "-c", "exec sh -c 'vllm serve m'"], CONFIG)
    outer = shlex.split(nested[2])
    assert outer[:3] == ["exec", "sh", "-c"]
    assert shlex.split(outer[3]) == ["vllm", "serve", "m", *FLAGS]
    container = ["docker", "run", "--entrypoint", "bash", "img", "-c", "vllm serve m"]
    assert with_speculation(container, CONFIG) == (*container[:-1], f"vllm serve m {SHELL_FLAGS}")
    assert with_speculation(["su", "-", "llm", "-c", "vllm serve m"], CONFIG)[-1] == f"vllm serve m {SHELL_FLAGS}"


@pytest.mark.parametrize(
    "command",
    [
        ["./start.sh"],
        ["bash", "start.sh", "--port", "8000"],
        ["bash", "-c", "./start.sh --port 8000"],
        ["bash", "-c", "eval 'vllm serve m'"],
        ["bash", "-c", "vllm serve a & vllm serve b"],
        ["bash", "-c", "cat <<EOF\nEOF\nvllm serve m"],
        ["bash", "-c", "vllm serve 'm"],
        ["bash", "-c", 'bash -c "vllm serve $MODEL"'],
        ["bash", "-c", 'vllm serve "$@"', "x", "--port", "1", "--", "m"],
        ["ssh", "box", "vllm", "serve", "m"],
        ["docker", "start", "vllm"],
        ["docker", "compose", "up", "vllm", "serve"],
        ["docker", "run", "registry/llm:1"],
        ["docker", "run", "vllm/vllm-openai", "./start.sh"],
        ["docker", "run", "--entrypoint", "./start.sh", "vllm/vllm-openai", "--model", "m"],
        ["python", "-m", "http.server"],
        ["vllm", "bench", "serve"],
    ],
)
def test_a_command_that_does_not_show_where_flags_go_is_refused_with_the_way_out(command: list[str]) -> None:
    with pytest.raises(RefusedError, match=r"service\.command, or write \{speculative_args\} where") as refused:
        with_speculation(command, CONFIG)
    assert "\n" not in str(refused.value) or "\n" in "".join(command)
    with pytest.raises(RefusedError):
        with_args(command, ["--port", "1"])


@pytest.mark.parametrize(
    ("command", "filled", "empty"),
    [
        (["./start.sh", "{speculative_args}"], ["./start.sh", *FLAGS], ["./start.sh"]),
        (["vllm", "serve", "{speculative_args}", "m"], ["vllm", "serve", *FLAGS, "m"], ["vllm", "serve", "m"]),
        (
            ["bash", "-c", "./start.sh {speculative_args} > log"],
            ["bash", "-c", f"./start.sh {SHELL_FLAGS} > log"],
            ["bash", "-c", "./start.sh  > log"],
        ),
        (
            ["bash", "-c", "if a; then vllm serve m {speculative_args}; else vllm serve n {speculative_args}; fi"],
            ["bash", "-c", f"if a; then vllm serve m {SHELL_FLAGS}; else vllm serve n {SHELL_FLAGS}; fi"],
            ["bash", "-c", "if a; then vllm serve m ; else vllm serve n ; fi"],
        ),
        (
            ["sh", "-c", "exec bash -c './go {speculative_args}'"],
            ["sh", "-c", "exec bash -c " + shlex.quote(f"./go {SHELL_FLAGS}")],
            ["sh", "-c", "exec bash -c './go '"],
        ),
    ],
)
def test_a_placeholder_is_filled_for_a_variant_and_taken_out_for_the_baseline(
    command: list[str], filled: list[str], empty: list[str]
) -> None:
    assert with_speculation(command, CONFIG) == tuple(filled)
    assert without_placeholder(command) == tuple(empty)


@pytest.mark.parametrize(
    "command", [["./start.sh", "{speculative_args}"], ["bash", "-c", "./start.sh {speculative_args}"]]
)
def test_a_placeholder_takes_further_arguments_before_or_after_the_speculation(command: list[str]) -> None:
    args = ["--per-request-spec-decode-metrics", "summary"]
    expected = [["--speculative-config", JSON, *args], [*args, "--speculative-config", JSON]]
    for built in (
        with_args(with_speculation(command, CONFIG), args),
        with_speculation(with_args(command, args), CONFIG),
    ):
        words = shlex.split(built[-1])[1:] if built[0] == "bash" else list(built[1:])
        assert words in expected
    assert without_placeholder(with_args(["./s", "{speculative_args}"], args)) == ("./s", *args)


@pytest.mark.parametrize(
    "command",
    [
        ["./start.sh", "--args={speculative_args}"],
        ["bash", "-c", "./start.sh '{speculative_args}'"],
        ["bash", "-c", "ssh box 'vllm serve m {speculative_args}'"],
        ["ssh", "box", "vllm serve m {speculative_args}"],
    ],
)
def test_a_placeholder_inside_quotes_or_a_longer_word_is_refused(command: list[str]) -> None:
    with pytest.raises(RefusedError, match="a word of its own, outside quotes"):
        with_speculation(command, CONFIG)
    with pytest.raises(RefusedError, match="a word of its own, outside quotes"):
        without_placeholder(command)


def test_nothing_to_add_leaves_any_command_as_it_is() -> None:
    assert with_args(["./start.sh"], []) == ("./start.sh",)
    assert without_placeholder(["./start.sh"]) == ("./start.sh",)


def test_a_command_that_speculates_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"speculates already.*--speculative-config.*make it an arm"):
        with_speculation(["vllm", "serve", "m", *FLAGS], CONFIG)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_speculative_tokens": 3},
        {"method": None},
        {"method": "ngram", "x": object()},
        {"model": "m", "x": float("nan")},
    ],
)
def test_a_configuration_without_method_and_model_or_beyond_json_is_a_usage_error(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="speculative_config"):
        with_speculation(["vllm", "serve", "m"], config)


def test_the_json_is_compact_sorted_ascii() -> None:
    assert config_text({"model": "ü", "b": [1, True], "a": {"d": None, "c": 0.5}}) == (
        '{"a":{"c":0.5,"d":null},"b":[1,true],"model":"\\u00fc"}'
    )


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (["vllm", "serve", "org/name", "--port", "1"], "org/name"),
        (["vllm", "serve", "--port", "1", "--model", "/models/x"], "/models/x"),
        (["python", "-m", API, "--model=/models/x"], "/models/x"),
        (["bash", "-c", "cd /a && exec vllm serve '/my models/x' > log"], "/my models/x"),
        (["docker", "run", "vllm/vllm-openai", "--model", "org/name"], "org/name"),
        (["bash", "-c", "vllm serve $MODEL"], None),
        (["vllm", "serve", "--config", "x.yaml"], None),
        (["./start.sh"], None),
    ],
)
def test_the_served_model_is_read_where_the_command_names_it(command: list[str], model: str | None) -> None:
    assert model_in(command) == model


# What really arrives: a stand-in `vllm` writes its arguments, NUL-separated.


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "vllm").write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" > "$ARGV"\n')
    (folder / "vllm").chmod(0o755)
    return folder


def arrives(command: Sequence[str], stand_in: Path) -> list[str]:
    argv = stand_in / "argv"
    env = {"PATH": f"{stand_in}:{os.environ['PATH']}", "ARGV": str(argv), "MODEL": "m x", "HOME": str(stand_in)}
    subprocess.run(command, env=env, cwd=stand_in, check=True, capture_output=True, timeout=20)
    return argv.read_text().split("\0")[:-1]


@pytest.mark.parametrize(
    "command",
    [
        ["vllm", "serve", "m"],
        ["env", "A=1", "nice", "-n", "1", "vllm", "serve", "m"],
        ["bash", "-c", "cd / && A='b c' exec vllm serve \"$MODEL\" --port 1 >/dev/null 2>&1"],
        ["sh", "-c", "vllm serve m 2>&1 | cat >/dev/null"],
        ["bash", "-c", "vllm serve m & wait"],
        ["bash", "-c", 'exec vllm serve "$@"', "x", "m", "--port", "1"],
        ["bash", "-c", "bash -c 'sh -c \"vllm serve m\"'"],
        ["bash", "-ec", "if true; then\n  vllm serve m \\\n    --port 1  # note\nfi"],
    ],
)
def test_a_real_shell_hands_over_the_old_arguments_and_then_the_new(command: list[str], stand_in: Path) -> None:
    nasty = {"method": "ngram", "note": 'it\'s "$HOME" `x` \\ ; | & > ( ) \n ! # é {speculative_args}'}
    before = arrives(command, stand_in)
    after = arrives(with_speculation(with_args(command, ["--x", "a 'b'"]), nasty), stand_in)
    assert after[:-2] == [*before, "--x", "a 'b'"]
    assert after[-2] == "--speculative-config"
    assert json.loads(after[-1]) == nasty


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    note=st.text(st.characters(exclude_categories=["Cs"])),
    arg=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    shell=st.sampled_from(["bash", "sh"]),
    script=st.sampled_from(
        ["printf '%s\\0' vllm serve m", "printf '%s\\0' {speculative_args}", "bash -c \"printf '%s\\0' vllm serve m\""]
    ),
)
def test_any_value_survives_a_real_shell(note: str, arg: str, shell: str, script: str) -> None:
    config = {"method": "ngram", "note": note, note: [note]}
    command = with_speculation(with_args([shell, "-c", script], ["--", arg] if "{" in script else [arg]), config)
    done = subprocess.run(command, check=True, capture_output=True, timeout=20)
    *_, last_arg, flag, value, end = done.stdout.decode().split("\0")
    assert (last_arg, flag, end) == (arg, "--speculative-config", "")
    assert json.loads(value) == config
