from pathlib import Path

import pytest

from draftworth.engines.vllm.flags import speculation_in

J = '{"method":"ngram"}'
SERVE = ["vllm", "serve", "m"]


# Every spelling was tried on the argument parser of vLLM 0.32.0 and set a speculative configuration there.
@pytest.mark.parametrize(
    "flags",
    [
        ["--speculative-config", J],
        [f"--speculative-config={J}"],
        ["--speculative_config", J],
        ["-sc", J],
        [f"-sc={J}"],
        ["-sc.method", "ngram"],
        ["-s", J],
        ["--speculative-config.method", "ngram"],
        ["--speculative_config.method=ngram"],
        ["--speculative-conf", J],
        ["--specul.method", "ngram"],
        ["--spec-method", "ngram"],
        ["--spec_method=ngram"],
        ["--spec-tok", "3"],
        ["--spec-model", "d"],
        # older releases
        ["--speculative-model", "d", "--num-speculative-tokens", "5"],
        ["--ngram-prompt-lookup-max", "4"],
    ],
)
def test_every_spelling_is_seen_in_words_in_a_shell_string_and_behind_an_image(flags: list[str]) -> None:
    import shlex  # noqa: PLC0415

    shown = flags[0] if "=" in flags[0] else " ".join(flags[:2])
    assert speculation_in([*SERVE, *flags], {}) == shown
    assert speculation_in(["bash", "-lc", "cd /x && exec " + shlex.join([*SERVE, *flags]) + " >log"], {}) == shown
    assert speculation_in(["docker", "run", "--rm", "vllm/vllm-openai", "--model", "m", *flags], {}) == shown
    assert speculation_in(["docker", "run", "--entrypoint", "sh", "i", "-c", shlex.join([*SERVE, *flags])], {}) == shown


@pytest.mark.parametrize(
    "command",
    [
        [*SERVE, "--specialize-active-lora"],
        [*SERVE, "--per-request-spec-decode-metrics", "summary"],
        [*SERVE, "--served-model-name", "speculative-config"],
        ["bash", "-sc", "vllm serve m"],
        ["stdbuf", "-s", "vllm", "serve", "m"],
        ["bash", "-c", "# --speculative-config x\nvllm serve m"],
        ["./start.sh", "{speculative_args}"],
    ],
)
def test_what_only_resembles_speculation_is_not_taken_for_it(command: list[str]) -> None:
    assert speculation_in(command, {"PATH": "/bin", "NOTE": "speculative decoding is off"}) is None


def test_wrappers_assignments_and_the_environment_are_looked_into() -> None:
    assert speculation_in(["./start.sh", "--speculative-config", J], {}) == f"--speculative-config {J}"
    hidden = "ARGS='--speculative-config x'; vllm serve m $ARGS"
    assert speculation_in(["bash", "-c", hidden], {}) == "ARGS=--speculative-config x"
    assert speculation_in(["env", "A=--spec-method ngram", "./start.sh"], {}) == "A=--spec-method ngram"
    assert speculation_in(["./start.sh"], {"EXTRA": "--port 1 -sc x"}) is None
    assert (
        speculation_in(["./start.sh"], {"EXTRA": "--port 1 --spec-method ngram"})
        == "EXTRA=--port 1 --spec-method ngram"
    )
    assert speculation_in(["bash", "-c", "vllm serve 'm --speculative-config"], {}) == "--speculative-config"


def test_a_long_value_is_cut() -> None:
    found = speculation_in([*SERVE, "--speculative-config", "x" * 1000], {})
    assert found is not None
    assert len(found) < 200
    assert found.startswith("--speculative-config xxx")


@pytest.mark.parametrize(
    ("yaml", "key"),
    [
        ("port: 1\nspeculative-config:\n  method: ngram\n", "speculative-config"),
        ('"speculative_config": {"method": "ngram"}\n', "speculative_config"),
        ("speculative-config.method: ngram\n", "speculative-config.method"),
        ("spec-method: ngram # draft\n", "spec-method"),
        ('{"port": 1,\n "speculative-config": {}}\n', "speculative-config"),
        ("port: 1\nspeculative-config: null # none\n", None),
        ("#speculative-config: x\nspecialize-active-lora: true\n", None),
        ("kv-transfer-config:\n  speculative-config: x\n", None),
        ("model: 'speculative-config: x'\n", None),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_a_configuration_file_is_scanned(tmp_path: Path, yaml: str, key: str | None, *, joined: bool) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(yaml)
    flags = [f"--config={file}"] if joined else ["--config", str(file)]
    expected = None if key is None else f"{key} in {file}"
    assert speculation_in([*SERVE, *flags], {}) == expected
    assert speculation_in(["bash", "-c", " ".join([*SERVE, *flags])], {}) == expected


def test_a_configuration_file_that_is_not_here_says_nothing(tmp_path: Path) -> None:
    assert speculation_in([*SERVE, "--config", str(tmp_path / "gone.yaml")], {}) is None
    assert speculation_in([*SERVE, "--config"], {}) is None
