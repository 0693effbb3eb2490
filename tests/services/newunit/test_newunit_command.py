"""The command: what a unit can run, what is refused, what it tells."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.errors import DraftworthError, RefusedError, UsageError
from draftworth.services.newunit.command import folders, known, left_behind, relative_files, resolved, unit_name


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    real = tmp_path / "real"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "vllm").symlink_to(real)
    (folder / "notes").write_text("no program")
    return folder


def test_a_bare_name_is_found_in_path_and_links_are_kept(venv: Path) -> None:
    assert resolved(("vllm", "serve", "m"), f"/nowhere:{venv}") == (str(venv / "vllm"), "serve", "m")


def test_an_engine_behind_another_program_is_found_too(venv: Path) -> None:
    path = f"{venv}:/usr/bin:/bin"
    command = resolved(("nice", "-n", "5", "vllm", "serve", "vllm"), path)
    assert command[1:] == ("-n", "5", str(venv / "vllm"), "serve", "vllm")
    assert command[0] in {"/usr/bin/nice", "/bin/nice"}
    assert folders(command)[0] == str(venv)
    assert resolved(("nice", "own-server"), path)[1:] == ("own-server",)


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        ((), UsageError, "no command"),
        (("",), UsageError, "no command"),
        (("vlm", "serve"), UsageError, "no such program"),
        (("./vllm", "serve"), UsageError, "absolute path"),
        (("bin/vllm",), UsageError, "absolute path"),
        (("vllm serve model",), UsageError, "words separately"),
        (("HF_HOME=/x", "vllm"), UsageError, "--env HF_HOME=/x"),
        (("/tmp",), UsageError, "folder or not executable"),
        (("vllm", "a\0b"), UsageError, "NUL"),
        (("bash", "-c", "vllm serve m"), RefusedError, "runs a string"),
        (("/bin/sh", "-ec", "vllm serve m"), RefusedError, "runs a string"),
        (("docker", "run", "vllm/vllm-openai"), RefusedError, "container"),
        (("/usr/bin/podman", "run", "x"), RefusedError, "container"),
        (("sudo", "-u", "llm", "vllm"), RefusedError, "--user"),
        (("nohup", "vllm", "serve"), RefusedError, "detaches"),
        (("env", "A=b", "vllm"), RefusedError, "--env"),
    ],
)
def test_bad_commands_get_one_clear_line(command: tuple[str, ...], error: type[DraftworthError], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        resolved(command, "/usr/bin:/bin")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_program_is_said(venv: Path) -> None:
    with pytest.raises(UsageError, match="not executable"):
        resolved((str(venv / "notes"),), None)


@pytest.mark.parametrize(
    ("command", "engine", "model", "url", "gpus"),
    [
        ("/v/vllm serve org/M", "vllm", "org/M", "http://127.0.0.1:8000/health", 1),
        ("/v/vllm serve org/M --port 81 -tp 8", "vllm", "org/M", "http://127.0.0.1:81/health", 8),
        ("/v/vllm serve org/M --tensor-parallel-size=4 -pp 2", "vllm", "org/M", "http://127.0.0.1:8000/health", 8),
        ("/v/vllm serve org/M --served-model-name a,b", "vllm", "a", "http://127.0.0.1:8000/health", 1),
        ("/v/vllm serve org/M --host 0.0.0.0", "vllm", "org/M", "http://127.0.0.1:8000/health", 1),
        ("/v/vllm serve org/M --host 10.0.0.7", "vllm", "org/M", "http://10.0.0.7:8000/health", 1),
        ("/v/vllm serve org/M --host fd00::1", "vllm", "org/M", "http://[fd00::1]:8000/health", 1),
        ("/v/vllm serve org/M --ssl-keyfile /k", "vllm", "org/M", "https://127.0.0.1:8000/health", 1),
        ("/v/vllm serve org/M --uds /run/x.sock", "vllm", "org/M", None, 1),
        (
            "/v/python -m sglang.launch_server --model-path org/M --tp 2",
            "sglang",
            "org/M",
            "http://127.0.0.1:30000/health",
            2,
        ),
        ("/usr/bin/llama-server -m /models/x.gguf", "llamacpp", "/models/x.gguf", "http://127.0.0.1:8080/health", None),
        ("/opt/own-server --port 9", None, None, None, None),
    ],
)
def test_what_a_command_tells(
    command: str, engine: str | None, model: str | None, url: str | None, gpus: int | None
) -> None:
    found = known(tuple(command.split()), None)
    assert (found.engine, found.gpus) == (engine, gpus)
    assert (found.model, found.url) == (model, url)


def test_a_port_that_is_given_wins_and_gives_an_unknown_engine_a_place() -> None:
    assert known(("/v/vllm", "serve", "m", "--port", "1"), 2).url == "http://127.0.0.1:2/health"
    assert known(("/opt/own",), 9000).url == "http://127.0.0.1:9000/"


@pytest.mark.parametrize("port", ["0", "70000", "http", ""])
def test_a_port_that_is_none_is_said(port: str) -> None:
    with pytest.raises(UsageError, match="--port"):
        known(("/v/vllm", "serve", "m", "--port", port), None)


@pytest.mark.parametrize(
    ("asked", "model", "expected"),
    [
        (None, "moonshotai/Kimi-K2.5", "kimi-k2.5.service"),
        (None, "/models/My Model (v2)/", "my-model-v2.service"),
        (None, None, "vllm.service"),
        ("llm", "x/y", "llm.service"),
        ("llm.service", None, "llm.service"),
        (None, "org/漢字", "llm.service"),
    ],
)
def test_names(asked: str | None, model: str | None, expected: str) -> None:
    assert unit_name(asked, model, "/v/bin/vllm") == expected


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "llm@", "llm@1.service", "x.timer", "-x", ".x", "", "é", "x" * 250, "a\nb", "a%n", "a:b"]
)
def test_names_that_are_none_are_said(name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        unit_name(name, None, "/v/vllm")


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_model_gives_a_name_that_systemd_takes(model: str, program: str) -> None:
    name = unit_name(None, model or None, f"/x/{program}").removesuffix(".service")
    assert name
    assert len(name) <= 247
    assert all(char.isalnum() or char in "_.-" for char in name)
    assert name.isascii()


def test_words_that_name_a_file_here_are_found(tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "chat.jinja").write_text("")
    (tmp_path / "8000").write_text("")
    command = ("/v/vllm", "serve", "org", "--chat-template=chat.jinja", "--port", "8000", "-x", "/etc", '{"a": 1}')
    assert relative_files(command, str(tmp_path)) == ("org", "chat.jinja")
    assert relative_files(("/v/vllm", "a\0b", "x" * 5000), str(tmp_path)) == ()


def test_variables_of_the_shell_that_engines_read_are_named() -> None:
    environ = {"NCCL_DEBUG": "INFO", "VLLM_X": "1", "HOME": "/root", "LD_LIBRARY_PATH": "/x", "PATH": os.defpath}
    assert left_behind(environ, {"VLLM_X": "2"}) == ("LD_LIBRARY_PATH", "NCCL_DEBUG")
