"""`draftworth costs` as a person calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftworth import cli
from draftworth.costs.base import Costs, EngineMode, StepCost

CONFIGS = Path(__file__).parents[1] / "costs" / "configs"
MOE, KIMI = CONFIGS / "qwen3-30b-a3b.json", CONFIGS / "kimi-k2.5-int4.json"


@pytest.fixture(autouse=True)
def _verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._VERBS, "costs", ("draftworth.cli.costs:app", "What a decode step costs."))


def costs(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.run(["costs", *map(str, arguments)])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_case_on_paper(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = costs(capsys, "model", KIMI, "--gpu", "RTX PRO 6000", "--gpus", "8", "--context", "1000", "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert found["schema_version"] == 1
    assert found["machine"] == {
        **found["machine"],
        "gpu": "RTX-PRO-6000",
        "gpus": 8,
        "tp": 8,
        "link": "pcie",
        "fits": True,
    }
    assert found["model"]["parameters"] == pytest.approx(1.026e12, rel=0.01)
    one = found["rows"][0]
    # That machine's TPOT was 12.6 to 16 ms, and a profile had 51.5 % of decode time in all-reduces.
    assert one["bound_ms"] < one["ms"] < 12.6
    assert one["parts"]["allreduce_ms"] / one["ms"] == pytest.approx(0.51, abs=0.01)
    tuned = json.loads(
        costs(
            capsys,
            "model",
            KIMI,
            "--gpu",
            "RTX PRO 6000",
            "--tp",
            "8",
            "--context",
            "1000",
            "--link",
            "pcie-tuned",
            "--json",
        )[1]
    )
    assert tuned["rows"][0]["parts"]["allreduce_ms"] / tuned["rows"][0]["ms"] == pytest.approx(0.37, abs=0.01)
    ratios = [row["ratio"] for row in found["rows"]]
    assert [row["tokens"] for row in found["rows"]] == [1, 2, 4, 6, 8, 16]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1


def test_the_table_names_what_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = costs(capsys, "model", MOE, "--gpu", "h200", "--context", "350")
    assert code == 0
    for said in (
        "qwen3_moe, 30.5B parameters, 3.35B active; 128 experts in 48 layers, 8 of them for each token",
        "weights 61.1 GB (bf16) of 141 GB",
        "On paper, no measurement",
        "engine's mode is not in it",
        "draftworth probe URL",
        "NVIDIA H200 data sheet",
        "Padded to captured CUDA graphs (1, 2, 4, 8, 16, 24, …)",
    ):
        assert said in out
    rows = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit() and "streams" not in line]
    assert [row[0] for row in rows] == ["1", "2", "4", "6", "8", "16"]
    assert float(rows[3][-1]) == pytest.approx(2.38, abs=0.02)  # six streams; 2.24 were measured


def test_a_folder_quantisation_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text((CONFIGS / "llama-3.1-8b.json").read_text("utf-8"), "utf-8")
    plain = json.loads(costs(capsys, "model", tmp_path, "--gpu", "L4", "--json")[1])
    small = json.loads(costs(capsys, "model", tmp_path, "--gpu", "L4", "--quantization", "int4", "--json")[1])
    assert small["model"]["weight_bytes"] < 0.45 * plain["model"]["weight_bytes"]
    assert small["rows"][0]["ms"] < plain["rows"][0]["ms"]
    loose = json.loads(
        costs(capsys, "model", tmp_path, "--gpu", "L4", "--graph-sizes", "none", "--tokens", "3", "--json")[1]
    )
    tight = json.loads(
        costs(capsys, "model", tmp_path, "--gpu", "L4", "--graph-sizes", "1,16", "--tokens", "3", "--json")[1]
    )
    assert (loose["rows"][0]["runs_as"], tight["rows"][0]["runs_as"]) == (3, 16)


def test_what_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = costs(capsys, "model", KIMI, "--gpu", "RTX-4090", "--tp", "2")
    assert code == 0
    assert "THEY DO NOT FIT" in out
    assert "GB of weights, 48 GB of memory: THEY DO NOT FIT; name more GPUs" in out


LLAMA = CONFIGS / "llama-3.1-8b.json"


def test_a_kv_cache_that_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    # 32 layers, keys and values of 8 heads of 128 in 16 bits: 131,072 bytes a token.
    _, out, _ = costs(capsys, "model", LLAMA, "--gpu", "H200", "--context", "99999999")
    assert "KV cache 13,107 GB a request of 99,999,999 tokens" in out
    assert "warning: ONE REQUEST DOES NOT FIT: its KV cache of 13,107 GB" in out
    found = json.loads(costs(capsys, "model", LLAMA, "--gpu", "H200", "--context", "99999999", "--json")[1])
    assert (found["machine"]["fits"], found["machine"]["most_requests"]) == (False, 0)
    assert len(found["warnings"]) == 1


def test_streams_beyond_the_memory_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    # (24 - 16.06) GB of room, 1.31 GB a request of 10,000 tokens; in FP8 half of that.
    call = ("model", LLAMA, "--gpu", "L4", "--context", "10000")
    found = json.loads(costs(capsys, *call, "--json")[1])
    assert (found["machine"]["fits"], found["machine"]["most_requests"]) == (True, 6)
    assert found["machine"]["kv_gb_per_request"] == pytest.approx(1.3107)
    assert [row["batch_fits"] for row in found["rows"]] == [True, True, True, True, False, False]
    assert "warning: there is room for 6 requests of 1.31 GB of KV cache" in costs(capsys, *call)[1]
    assert json.loads(costs(capsys, *call, "--kv-cache-dtype", "fp8", "--json")[1])["machine"]["most_requests"] == 12
    # Eight key and value heads over 16 GPUs: each is held twice.
    wide = json.loads(costs(capsys, *call, "--tp", "16", "--json")[1])
    assert wide["machine"]["kv_gb_per_request"] == pytest.approx(2 * 1.3107, abs=1e-4)
    assert "warning" not in costs(capsys, "model", LLAMA, "--gpu", "H200")[1]
    empty = json.loads(costs(capsys, "model", LLAMA, "--gpu", "L4", "--context", "0", "--json")[1])
    assert (empty["machine"]["fits"], empty["machine"]["most_requests"]) == (True, None)


def test_a_context_beyond_what_the_model_states_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**json.loads(LLAMA.read_text("utf-8")), "max_position_embeddings": 131072}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    said = "--context 131,073 is beyond the config's max_position_embeddings of 131,072"
    assert said in costs(capsys, "model", tmp_path, "--gpu", "H200", "--context", "131073")[1]
    assert "warning" not in costs(capsys, "model", tmp_path, "--gpu", "H200", "--context", "131072", "--tokens", "1")[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "config.json is empty"),
        (b" \n", "config.json is empty"),
        (b"{\n{", "config.json is no JSON: line 2, column 1: expecting property name"),
        (b"\xff\xfe\x00", "config.json is no JSON: it is no text (UTF-8)"),
        (b"[" * 100_000, "config.json is no JSON"),
        (None, "is a folder without config.json"),
    ],
)
def test_a_config_that_is_none_is_said_in_words(
    tmp_path: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    code, out, err = costs(capsys, "model", tmp_path, "--gpu", "H200")
    assert (code, out) == (1, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not any(raw in err for raw in ("Errno", "codec", "char 0", "recursion"))


def test_a_folder_named_config_json_is_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").mkdir()
    code, _, err = costs(capsys, "model", tmp_path, "--gpu", "H200")
    assert code == 1
    assert "config.json is a folder: name" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "abacus"], "--gpu: 'abacus' is not known: choose one of H100"),
        (["--gpu", "H200", "--tokens", "1,two"], "--tokens: whole numbers like 1,2,4 are expected, not '1,two'"),
        (["--gpu", "H200", "--tokens", "0"], "--tokens: each must be from 1"),
        (["--gpu", "H200", "--tp", "0"], "--tp: must be from 1"),
        (["--gpu", "H200", "--tp", "3", "--gpus", "3"], "--tp: 32 attention heads cannot be split over 3 GPUs"),
        (["--gpu", "H200", "--tp", "4", "--gpus", "6"], "--gpus: 6 GPUs are no multiple of --tp 4"),
        (["--gpu", "H200", "--link", "string"], "unknown link 'string'"),
        (["--gpu", "H200", "--quantization", "int3"], "--quantization: 'int3' is not known"),
        (["--gpu", "H200", "--kv-cache-dtype", "fp4"], "--kv-cache-dtype: must be auto or fp8"),
        (["--gpu", "H200", "--graph-sizes", "big"], "--graph-sizes: whole numbers"),
        (["--gpu", "H200", "--context", "-1"], "--context: must be from 0"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = costs(capsys, "model", MOE, *arguments)
    assert (code, out) == (1, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_costs_file_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    point = StepCost(batch=8, tokens=1, context=512, ms=9.08, low=9.0, high=9.1, repeats=5, how="concurrency")
    mode = EngineMode(
        kind="idle",
        method="ngram",
        runner="V1",
        batch=1,
        tokens=1,
        ms=3.09,
        low=3.0,
        high=3.7,
        step_ms=7.12,
        base_ms=4.03,
        source="trial 20261130-010101, arm null",
    )
    file = tmp_path / "costs.json"
    written = Costs(created="2026-11-30", engine="vllm", version="0.25.0", points=(point,), modes=(mode,))
    file.write_text(written.model_dump_json(), "utf-8")
    code, out, _ = costs(capsys, "show", file)
    assert code == 0
    for said in ("vllm 0.25.0", "9.080", "ngram", "+3.090", "trial 20261130-010101, arm null"):
        assert said in out
    assert Costs.model_validate_json(costs(capsys, "show", file, "--json")[1]) == written


def test_a_costs_file_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    file.write_text("{", "utf-8")
    code, out, err = costs(capsys, "show", file)
    assert (code, out) == (1, "")
    assert "costs.json" in err
