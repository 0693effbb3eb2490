"""Places that cannot be written, a proxy before itself, and the model of a trial."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import free_port, run_cli

from draftworth.bench.address import address_of
from draftworth.traces.places import try_folder
from draftworth.traces.proxy.itself import leads_to_itself

TRIALS = Path(__file__).parents[2] / "benchmarks" / "data"
NOWHERE = "/proc/t.parquet"
"""Root may write there, as permissions have it; no file can be made."""


@pytest.mark.parametrize(
    "words",
    [
        ("record", "http://127.0.0.1:9", "--out", NOWHERE),
        ("record", "http://127.0.0.1:9", "--out", NOWHERE, "--json"),
        ("proxy", "--upstream", "http://127.0.0.1:9", "--out", NOWHERE, "--ask-ids"),
        ("import", "no-such-file", "--out", NOWHERE),
    ],
)
def test_a_folder_that_takes_no_file_is_told_first(words: tuple[str, ...]) -> None:
    done = run_cli("trace", *words)
    assert (done.code, done.out) == (1, "")
    told = "no-such-file" if "import" in words else f"{NOWHERE} cannot be written: "
    assert told in done.err
    assert done.err.count("\n") == 1


def test_trying_leaves_nothing_and_finds_names_that_are_too_long(tmp_path: Path) -> None:
    try_folder(tmp_path / "t.parquet")
    with pytest.raises(OSError, match="File name too long"):
        try_folder(tmp_path / ("x" * 250))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("upstream", "host", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.8.9.1", "0.0.0.0", True),
        ("[::1]", "::", True),
        ("[::]", "::1", True),
        ("[::ffff:127.0.0.1]", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("[::1]", "127.0.0.1", False),
        ("192.0.2.1", "0.0.0.0", False),
        ("no-such-name.invalid", "0.0.0.0", False),
    ],
)
def test_a_proxy_knows_itself_by_any_name(upstream: str, host: str, *, same: bool) -> None:
    assert leads_to_itself(address_of(f"http://{upstream}:8903"), host, 8903) is same
    assert not leads_to_itself(address_of(f"http://{upstream}:8903"), host, 8904)
    assert not leads_to_itself(address_of(f"http://{upstream}:8903"), host, 0)


@pytest.mark.parametrize(
    ("upstream", "listen"), [("127.0.0.1", ""), ("localhost", ""), ("127.0.0.1", ":"), ("0.0.0.0", "localhost:")]
)
def test_a_proxy_before_itself_is_refused_in_one_line(tmp_path: Path, upstream: str, listen: str) -> None:
    port = free_port()
    url, out = f"http://{upstream}:{port}", tmp_path / "t.parquet"
    done = run_cli(
        "trace", "proxy", "--upstream", url, "--listen", f"{listen}{port}", "--out", out, "--duration", "0.1", "--exit"
    )
    assert (done.code, done.out) == (1, "")
    told = f"draftworth: --upstream {url} is where the proxy itself would listen: choose another port, --listen\n"
    assert done.err == told
    assert list(tmp_path.iterdir()) == []


def trial(folder: Path, change: dict[str, Any]) -> Path:
    """Copy a small trial with another record."""
    folder.mkdir()
    source = TRIALS / "demo_trial"
    shutil.copy(source / "requests.parquet", folder)
    record = {**json.loads((source / "trial.json").read_text()), **change}
    record["config"] = {**record["config"], "service": {"type": "process"}}
    (folder / "trial.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("python3 -m vllm.entrypoints.openai.api_server --model /m/Llama --served-model-name llama big", "llama"),
        ("python3 -m vllm.entrypoints.openai.api_server --model=/m/Llama", "/m/Llama"),
        ("/venv/bin/vllm serve meta/Llama --port 8000", "meta/Llama"),
        ("python -m sglang.launch_server --model-path meta/Llama", "meta/Llama"),
        ("llama-server -m /m/llama.gguf --alias llama", "llama"),
        ("llama-server -m /m/llama.gguf", "/m/llama.gguf"),
        ("trtllm-serve meta/Llama --port 8000", "meta/Llama"),
        ("trtllm-serve serve meta/Llama", "meta/Llama"),
        ("python3 -m server", None),
        ("", None),
    ],
)
def test_a_trial_tells_its_model_by_what_its_server_was_started_with(
    tmp_path: Path, command: str, model: str | None
) -> None:
    folder = trial(tmp_path / "trial", {"arms": [{"name": "baseline", "command": command.split()}]})
    done = run_cli("trace", "stats", folder, "--json")
    assert done.code == 0, done.err
    assert done.json["model"] == model


def test_a_kept_trial_that_names_no_model_apart_from_its_command() -> None:
    done = run_cli("trace", "stats", TRIALS / "h200_moe_trial")
    assert f"{TRIALS / 'h200_moe_trial'}: 40 requests, moe, all ids from the server" in done.out


@pytest.mark.parametrize("arms", [None, [], ["x"], [{"command": None}], [{"command": {"a": 1}}], {"name": "baseline"}])
def test_a_record_of_another_shape_tells_no_model_and_does_no_harm(tmp_path: Path, arms: object) -> None:
    done = run_cli("trace", "stats", trial(tmp_path / "trial", {"arms": arms}), "--json")
    assert (done.code, done.json["model"]) == (0, None)
