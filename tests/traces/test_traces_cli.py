"""`draftworth trace` as a person calls it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.traces.traces_kit import DATA, jsonl, read, row, tokenizer, write

from draftworth.bench.base import RequestRow
from draftworth.bench.rows import write_rows
from draftworth.cli import run
from draftworth.cli.trace import app

LOG = DATA / "vllm_0.32_requests.txt"


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Run the verb's own app: the code, what it printed, what it complained of."""
    from draftworth import cli  # noqa: PLC0415 - patched below

    class Registered:
        def __call__(self, words: list[str], **options: Any) -> Any:
            return app(words, result_action="return_value", **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "make_app", Registered)
        code = run([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_stats_for_people_and_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.parquet", [row(1, [1, 2], [3], category="x"), row(2, [1, 2], [3, 4], category="y")])
    code, out, _ = call(capsys, "stats", path)
    assert code == 0
    assert f"{path}: 2 requests, m, all ids from the server" in out
    code, out, _ = call(capsys, "stats", path, "--json")
    document = json.loads(out)
    assert (code, document["schema_version"], document["requests"]) == (0, 1, 2)
    assert document["categories"]["x"] == {"requests": 1, "output_tokens": 1, "continued_share": 0.0}


def test_import_recognises_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.parquet"
    code, said, _ = call(capsys, "import", DATA / "vllm_0.32_requests.txt", "--out", out)
    assert code == 0
    assert said.startswith(f"{out}: 5 requests, 20 tokens, 4 exact, read as vllm-log\n1 left out: ")
    assert len(read(out)) == 5
    code, _, err = call(capsys, "import", DATA / "vllm_0.32_requests.txt", "--out", out)
    assert (code, err) == (1, f"draftworth: {out} is there already: choose another name, or remove it\n")


def test_import_of_text_with_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = jsonl(tmp_path / "p.jsonl", [{"prompt": "hello", "response": "a b"}, {"prompt": "hello"}])
    out, model = tmp_path / "t.parquet", tokenizer(tmp_path / "model")
    code, said, _ = call(capsys, "import", source, "--tokenizer", model, "--out", out, "--json")
    document = json.loads(said)
    assert (code, document["format"], document["requests"], document["exact"]) == (0, "plain", 1, 0)
    assert document["left_out_first"] == {"no output_token_ids": f"{source}:2"}
    code, _, err = call(capsys, "import", source, "--out", tmp_path / "u.parquet")
    assert code == 1
    assert err.count("\n") == 1
    assert list(tmp_path.glob("*u.parquet*")) == [], "nothing half-written stays"


def test_import_of_a_trace_chooses_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = jsonl(tmp_path / "t.jsonl", [row(1, [1], [2]), row(2, [1], [3], model="n")])
    out = tmp_path / "t.parquet"
    code, _, err = call(capsys, "import", source, "--out", out)
    assert code == 1
    assert "2 models: m, n; choose one with --model NAME" in err
    code, said, _ = call(capsys, "import", source, "--out", out, "--model", "n")
    assert code == 0
    assert "1 left out: of another model than the chosen one" in said


def test_redact_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.parquet", [row(1, [1, 2], [3])])
    code, out, _ = call(capsys, "redact", path, "--out", tmp_path / "u.parquet")
    assert (code, out) == (0, f"{tmp_path / 'u.parquet'}: 1 request, 3 tokens, 3 ids permuted\n")
    code, out, _ = call(capsys, "redact", path, "--out", tmp_path / "v.parquet", "--keep-ids", "--json")
    assert (code, json.loads(out)["ids"]) == (0, None)
    code, _, err = call(capsys, "redact", path, "--out", tmp_path / "w.parquet", "--keep-ids", "--permute", "3")
    assert code == 1
    assert "--keep-ids and --permute do not go together" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("stats", "nowhere"), "nowhere: no such file"),
        (("stats", "x", "--vocabulary", "0"), "--vocabulary: must be at least 1, not 0"),
        (("redact", "x", "--out", "y", "--permute", "-1"), "--permute: must be a whole number from 0"),
        (("import", "nowhere", "--out", "y"), "nowhere: no such file"),
        (("stats", "x" * 300), "cannot be read: File name too long"),
        (("import", str(LOG), "--out", "/proc/x.parquet"), "/proc/x.parquet cannot be written: "),
        (("import", str(LOG), "--out", "x" * 300), "cannot be written: File name too long"),
        (("import", str(LOG), "--out", "y.jsonl"), "y.jsonl: a trace is written as Parquet"),
        (("redact", str(LOG), "--out", "y.jsonl"), "y.jsonl: a trace is written as Parquet"),
        (("record", "http://127.0.0.1:9", "--out", "x" * 300), "cannot be written: File name too long"),
        (("proxy", "--upstream", "http://127.0.0.1:9", "--out", str(LOG), "--ask-ids"), "is there already"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: tuple[str, ...],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (1, "")
    assert says in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def trial(folder: Path, *, arms: tuple[str, ...] = ("baseline", "ngram")) -> Path:
    folder.mkdir()
    rows = [
        RequestRow(arm, 1, f"p{n}", "code", 0, float(n), ok=n != 2, token_source="usage", **more)
        for arm in arms
        for n, more in enumerate(
            [
                {"prompt_token_ids": [1, n], "token_ids": [7, 8], "reasoning_tokens": 1}
                if n < 3
                else {"text": "told no ids"}
                for n in range(4)
            ]
        )
    ]
    rows[1].token_source = "chunks"
    write_rows(rows, folder)
    config = {"workload": {"temperature": 0.5}, "service": {"model": "m"}}
    (folder / "trial.json").write_text(json.dumps({"schema_version": 2, "config": config}))
    return folder


def test_a_trial_is_the_trace_of_its_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial(tmp_path / "20260101-000000")
    expected = [
        row(0, [1, 0], [7, 8], thinking_tokens=1, category="code", temperature=0.5, request_id="p0@1.0"),
        row(1, [1, 1], [7, 8], thinking_tokens=1, category="code", temperature=0.5, request_id="p1@1.0", exact=False),
    ]
    assert read(folder) == read(folder / "requests.parquet") == expected
    code, out, _ = call(capsys, "stats", folder, "--json")
    assert code == 0
    assert json.loads(out)["left_out"] == {
        "the request failed": 1,
        "the server told no token ids of the prompt": 1,
    }
    assert [one["exact"] for one in read(folder, arm="ngram")] == [True, True]
    code, _, err = call(capsys, "stats", folder, "--arm", "eagle")
    assert code == 1
    assert "has no arm 'eagle'; there are baseline, ngram: choose one with --arm" in err
    code, _, err = call(capsys, "stats", folder, "--model", "other")
    assert code == 1
    assert "has no requests of the model 'other'; there is m: leave --model out" in err
    assert len(read(folder, model="m")) == 2


def test_a_benchmark_has_one_arm_of_whatever_name(tmp_path: Path) -> None:
    assert len(read(trial(tmp_path / "bench", arms=("bench",)))) == 2
