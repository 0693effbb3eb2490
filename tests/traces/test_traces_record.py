"""Recording a workload: exact ids of the server, what is left out, what stays when it is ended early."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.model import PseudoModel, encode_chat
from tests.fakes.openai_server import Script, serving
from tests.helpers import fake_command, free_port, listening, spawned, wait_for
from tests.traces.traces_proxy_kit import bare, rows_of

from draftworth.bench.base import Access, RequestRow, Target
from draftworth.bench.config import WorkloadConfig
from draftworth.cli.trace_live import record as verb
from draftworth.errors import MeasureError, UsageError
from draftworth.traces.record import SGLANG_FIELDS, RecordPlan, _asking, prepare, record
from draftworth.traces.watching import Reasons, whole

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
        pytest.raises(MeasureError, match=r"nothing was recorded: 12 left out: the answer's ids are not all"),
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


@contextmanager
def dying(folder: Path, request: int) -> Iterator[str]:
    """Run a server that is gone in the middle of a request."""
    port = free_port()
    script = {"die_at": f"request:{request}", "token_ms": 0.5, "first_token_ms": 0.1, "tokens": 6}
    with spawned(fake_command(folder, port, script)):
        wait_for(lambda: listening(port), 20, "the fake server listens")
        yield f"http://127.0.0.1:{port}"


def many(folder: Path, count: int) -> Path:
    path = folder / "many.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"number {n}"}) + "\n" for n in range(count)))
    return path


def test_a_server_that_dies_ends_it_and_what_was_recorded_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.parquet"
    with dying(tmp_path, 25) as url:
        code = verb(url, many(tmp_path, 300), out=out, engine="vllm", concurrency=4)
    told = capsys.readouterr().out.splitlines()
    rows = len(rows_of(out))
    assert code == 6
    assert 20 <= rows < 25
    assert told[0].startswith("ended early: the server is gone: connection refused by 127.0.0.1:")
    assert told[0].endswith(", 8 times in a row; what was recorded is kept")
    assert told[1] == f"{out}: {rows} requests"
    left = sum(int(line.split()[0]) for line in told[4:])
    assert 8 < left < 20, "it does not run through the whole workload"
    assert told[3] == f"{left} of {rows + left} requests left out of the trace:"


def test_a_server_that_dies_in_the_last_request_is_gone_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with dying(tmp_path, 6) as url:
        code = verb(url, many(tmp_path, 6), out=tmp_path / "t.parquet", engine="vllm", concurrency=1, as_json=True)
    told = capsys.readouterr()
    assert code == 6
    assert "ended early: the server is gone: " in told.err
    assert (json.loads(told.out)["rows"], json.loads(told.out)["ended"]) == (5, 6)
    assert json.loads(told.out)["ended_early"].startswith("the server is gone: ")


def test_a_server_that_dies_before_anything_leaves_no_file(tmp_path: Path) -> None:
    with dying(tmp_path, 1) as url, pytest.raises(MeasureError, match="nothing was recorded: the server is gone"):
        verb(url, many(tmp_path, 30), out=tmp_path / "t.parquet", engine="vllm", concurrency=1)
    assert not list(tmp_path.glob("*t.parquet*"))


def test_prompts_that_are_too_long_are_said_and_are_one_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.jsonl"
    texts = ["hello", *("word " * (3000 + 17 * n) for n in range(3))]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    with serving(Script(token_ms=0.1, tokens=5)) as server:
        code = verb(server.base_url, path, out=tmp_path / "t.parquet", engine="vllm", concurrency=1)
    told = capsys.readouterr().out.splitlines()
    assert code == 0
    assert told[0].endswith("t.parquet: 1 request")
    assert told[2] == "3 of 4 requests left out of the trace:"
    assert told[3].startswith("3 left out: HTTP 400: ")
    assert len(told) == 4


def test_reasons_that_differ_in_numbers_are_one() -> None:
    reasons = Reasons()
    first = reasons.of("HTTP 400: you asked for 5,017 tokens in chatcmpl-0123456789abcdef")
    assert reasons.of("HTTP 400: you asked for 611 tokens in chatcmpl-fedcba9876543210") == first
    assert reasons.of("HTTP 404: you asked for 611 tokens in chatcmpl-fedcba9876543210") != first
    assert reasons.of("facade") == "facade"


def test_an_error_is_not_cut_in_a_sentence() -> None:
    assert (
        whole("HTTP 400: The context is 2048 tokens. However, you reque…") == "HTTP 400: The context is 2048 tokens. …"
    )
    assert whole("HTTP 400: one sentence that has no e…") == "HTTP 400: one sentence that has no e…"
    assert whole("whole. As it is.") == "whole. As it is."


def test_a_server_that_shows_nothing_of_itself_is_not_called_vllm(workload: Path, tmp_path: Path) -> None:
    with bare() as url, pytest.raises(UsageError, match=f"^{url} tells no token ids"):
        verb(url, workload, out=tmp_path / "t.parquet")


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
