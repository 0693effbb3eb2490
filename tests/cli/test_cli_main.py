"""The command line itself: exit codes, one clear line, help without heavy imports, the demo's own exit code."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import draftworth
from draftworth import cli
from draftworth.errors import NotRestoredError, RefusedError, TrialError, UsageError
from draftworth.trials.config import TrialConfig
from draftworth.trials.demo import free_port, trial_text


def tool(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "draftworth", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def test_help_and_version() -> None:
    shown = tool("--help")
    assert shown.returncode == 0
    for verb in ("demo", "engine", "trial"):
        assert verb in shown.stdout
    assert tool("--version").stdout.strip() == draftworth.__version__


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("trial", "nonsense"), ("trial", "run"), ("trial", "run", "--odd")]
)
def test_a_wrong_call_is_one_line_and_exit_1(arguments: tuple[str, ...]) -> None:
    done = tool(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("draftworth: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("costs", "model", "x"), "--gpu is missing: H100, "),
        (("costs", "model", "x", "--gpu"), "--gpu needs a value: H100, "),
        (("costs", "model", "--gpu", "H200"), "CONFIG is missing: A model's config.json"),
        (("costs", "model", "x", "--gqu", "H200"), "Did you mean --gpu instead of --gqu?"),
        (("trace", "import", "x"), "--out is missing: The Parquet trace to write"),
        (("trial", "run"), "FILE is missing: "),
        (("trial", "run"), "(see `draftworth trial run --help`)"),
        (("replay", "a", "b"), "one TRACE only: 'b' is one too many (see `draftworth replay --help`)"),
        (("replay", "a", "b", "c"), "one TRACE only: 'b', 'c' are too many"),
        (("trace", "record", "a", "b", "c", "--out", "d"), "only URL and WORKLOAD: 'c' is one too many"),
        (("engine", "list", "b"), "this verb takes only flags: 'b' is one too many"),
        (("replay", "--top", "x"), "--top: must be a whole number, not 'x'"),
        (("replay", "a", "--json=maybe"), "--json: must be true or false, or have no value, not 'maybe'"),
        (("replay", "--top", "1", "--top", "2"), "--top is given more than once"),
    ],
)
def test_what_is_missing_or_too_much_is_named(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert "Unused Tokens" not in shown.err
    assert "requires an argument" not in shown.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 1),
        (RefusedError("x"), 2),
        (NotRestoredError("x", ["sh restore.sh"]), 4),
        (RuntimeError("x"), 5),
        (TrialError("x"), 6),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Any:
        raise error

    monkeypatch.setattr(cli, "make_app", fail)
    assert cli.run([]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    if code == 4:
        assert "sh restore.sh" in shown.err
    if code == 5:
        assert "Traceback" in shown.err, "a bug comes with what its report needs"
        assert f"draftworth {draftworth.__version__}, Python" in shown.err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom draftworth import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'scipy', 'pyarrow', 'aiohttp', 'psutil', 'pydantic') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize(("code", "demo_code"), [(0, 0), (3, 0), (4, 4), (6, 6)])
def test_the_demo_exits_0_for_every_completed_verdict(
    code: int, demo_code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path))
    monkeypatch.setattr("draftworth.engines.install.install", lambda *_, **__: _Engine())
    monkeypatch.setattr("draftworth.engines.install.ensure_model", lambda *_, **__: tmp_path)
    monkeypatch.setattr("draftworth.engines.install.vllm_cpu_env", lambda *_: {"A": 'odd " value'})
    monkeypatch.setattr("draftworth.cli.trial.run_and_print", lambda *_, **__: code)
    assert cli.run(["demo"]) == demo_code
    config = TrialConfig.model_validate(tomllib.loads((tmp_path / "demo.toml").read_text(encoding="utf-8")))
    assert config.service.env == {"A": 'odd " value'}
    assert (config.workload.prompts_per_category, config.workload.max_tokens) == (2, (96,))


class _Engine:
    python = Path("/engine/bin/python")


def test_the_demo_serves_without_a_compiler_where_there_is_none(tmp_path: Path) -> None:
    text = trial_text(python=tmp_path, model=tmp_path, env={}, port=free_port(), prompts=1, tokens=8, eager=True)
    assert tomllib.loads(text)["service"]["command"][-1] == "--enforce-eager"
