"""Recording a workload: exact ids of the server, what is left out, what stays when it is ended early."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.model import PseudoModel, encode_chat
from tests.fakes.openai_server import Script, serving
from tests.traces.traces_proxy_kit import rows_of

from draftworth.bench.base import Access, RequestRow, Target
from draftworth.bench.config import WorkloadConfig
from draftworth.cli.trace_live import record as verb
from draftworth.errors import UsageError
from draftworth.traces.record import SGLANG_FIELDS, RecordPlan, _asking, prepare, record

TEXTS = [f"question {number} of many" for number in range(12)]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "w.jsonl"
    lines = [json.dumps({"prompt": text, "category": f"c{at % 2}"}) for at, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def plan(url: str, workload: Path, out: Path, **options: Any) -> RecordPlan:
    work = WorkloadConfig(source=str(workload), warmup=0, max_tokens=(20,), concurrency=(4,), **options)
    return prepare(url, work, out, access=Access(), engine="vllm")


def test_every_row_has_the_ids_the_server_made(workload: Path, tmp_path: Path) -> None:
    script = Script(token_ms=0.1, first_token_ms=0.1, tokens=15)
    with serving(script) as server:
        report = record(plan(server.base_url, workload, tmp_path / "t.parquet", temperature=0.3))
    rows = rows_of(tmp_path / "t.parquet")
    model = PseudoModel(script)
    wanted = {}
    for text in TEXTS:
        prompt = encode_chat([{"role": "user", "content": text}])
        wanted[tuple(prompt)] = model.write(prompt, 20, ignore_eos=False)
    assert {tuple(row["prompt_token_ids"]): row["output_token_ids"] for row in rows} == wanted
    assert len({row["request_id"] for row in rows}) == len(TEXTS)
    assert {row["category"] for row in rows} == {"c0", "c1"}
    assert {(row["temperature"], row["model"], row["exact"]) for row in rows} == {(0.3, "fake/model-1b", True)}
    assert report.rows == 12
    assert report.output_tokens == sum(map(len, wanted.values()))
    assert not report.bad.total


def test_repeats_have_ids_of_their_own(workload: Path, tmp_path: Path) -> None:
    with serving(Script(token_ms=0.1, tokens=4)) as server:
        record(plan(server.base_url, workload, tmp_path / "t.parquet", repeats=2, limit=2))
    ids = [row["request_id"] for row in rows_of(tmp_path / "t.parquet")]
    assert len(ids) == len(set(ids)) == 4


@pytest.mark.parametrize("script", [Script(token_ids=False), Script(reject_token_ids=True)])
def test_a_server_without_ids_is_refused_in_one_line(workload: Path, tmp_path: Path, script: Script) -> None:
    with (
        serving(script) as server,
        pytest.raises(UsageError, match=r"^http://\S+ \(vllm\) tells no token ids.*give --tokenizer DIR"),
    ):
        record(plan(server.base_url, workload, tmp_path / "t.parquet"))
    assert [path.name for path in tmp_path.iterdir()] == ["w.jsonl"]


class Words:
    """A tokenizer: one id a word, its length."""

    def prompt(self, request: Any, at: int) -> list[int]:
        return [len(word) for message in request["messages"] for word in message["content"].split()]

    def text(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


def test_with_a_tokenizer_its_text_is_recorded_as_inexact(workload: Path, tmp_path: Path) -> None:
    from dataclasses import replace  # noqa: PLC0415

    with serving(Script(token_ids=False, tokens=6)) as server:
        made = plan(server.base_url, workload, tmp_path / "t.parquet", limit=1)
        report = record(replace(made, tokenizer=Words(), tokenizer_hash="sha256:x"))
    (row,) = rows_of(tmp_path / "t.parquet")
    assert (report.rows, report.inexact) == (1, 1)
    assert row["prompt_token_ids"] == [8, 1, 2, 4]  # question 0 of many
    assert row["output_token_ids"] == [6] * 5  # five words of three syllables, and an end without text
    assert (row["exact"], row["tokenizer_hash"], row["thinking_tokens"]) == (False, "sha256:x", None)


def test_failed_and_incomplete_answers_are_counted_with_the_first_of_them(workload: Path, tmp_path: Path) -> None:
    with serving(Script(token_ms=0.1, tokens=6, error_every=4)) as server:
        report = record(plan(server.base_url, workload, tmp_path / "t.parquet", retries=0))
    assert report.rows == 9
    ((why, count),) = report.bad.counts.items()
    assert (count, "HTTP 500" in why, bool(report.bad.first[why])) == (3, True, True)
    with (
        serving(Script(token_ms=0.1, tokens=6, usage_more=1)) as server,
        pytest.raises(UsageError, match=r"nothing was recorded: 12 left out: the answer's ids are not all"),
    ):
        record(plan(server.base_url, workload, tmp_path / "u.parquet"))
    assert not (tmp_path / "u.parquet").exists()


def test_what_ends_it_leaves_what_was_recorded(workload: Path, tmp_path: Path) -> None:
    done = 0

    def on_row(_row: RequestRow, ended: int, _total: int) -> None:
        nonlocal done
        done = ended
        if ended == 5:
            raise KeyboardInterrupt

    with serving(Script(token_ms=0.5, tokens=6)) as server, pytest.raises(KeyboardInterrupt) as caught:
        record(plan(server.base_url, workload, tmp_path / "t.parquet"), on_row=on_row)
    assert 5 <= done <= 8  # those under way may end beside it
    assert len(rows_of(tmp_path / "t.parquet")) == done
    assert caught.value.report.rows == done  # type: ignore[attr-defined]


def test_an_existing_trace_is_never_written_over(workload: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    out.write_bytes(b"precious")
    with serving(Script()) as server, pytest.raises(UsageError, match="is there already"):
        record(plan(server.base_url, workload, out))
    assert out.read_bytes() == b"precious"


def test_sglang_is_asked_for_both_lists_and_read() -> None:
    target = _asking(Target("http://x", "m", fields={"a": 1}), "sglang")
    assert target.fields == {"a": 1, **SGLANG_FIELDS}
    assert target.stats_of({"sglext": {"input_ids": [1], "output_ids": [[2]]}}) == {
        "input_ids": [1],
        "output_ids": [[2]],
    }


def test_the_verb_prints_one_document(workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(token_ms=0.1, tokens=5)) as server:
        code = verb(server.base_url, workload, out=tmp_path / "t.parquet", as_json=True, engine="vllm")
        told = json.loads(capsys.readouterr().out)
        assert code == 0
        assert (told["rows"], told["output_tokens"], told["left_out"], told["ended_early"]) == (12, 60, [], None)
        assert verb(server.base_url, workload, out=tmp_path / "u.parquet", engine="vllm") == 0
    assert "12 requests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "--concurrency: "),
        ({"max_tokens": 1}, "--max-tokens: "),
        ({"token_timeout": 0.0}, "--token"),
    ],
)
def test_wrong_options_are_named(workload: Path, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        verb("http://127.0.0.1:9", workload, out=tmp_path / "t.parquet", **options)
