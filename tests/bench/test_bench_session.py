"""A benchmark's session: what is said while it goes, and what that costs the event loop."""

import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes.openai_server import Script, serving

from draftworth.bench.base import Access, Closed, Prompt, RequestRow, Target
from draftworth.bench.config import WorkloadConfig
from draftworth.bench.points import Point
from draftworth.bench.pulse import Pulse
from draftworth.bench.requests import sweep_of
from draftworth.bench.rows import merge_parts
from draftworth.bench.session import BenchRun, prepare
from draftworth.bench.summary import spread
from draftworth.bench.tally import Tally
from draftworth.bench.window import Window
from draftworth.engines import engine
from draftworth.errors import UsageError
from draftworth.findings import Code
from draftworth.trials.base import Block
from draftworth.trials.config import TrialConfig
from draftworth.trials.measure import measure_block
from draftworth.trials.note import ArmNotes
from draftworth.verdicts.running import running

MANY = 50_000


def row(prompt: int, tpot: float | None, arm: str = "baseline", repeat: int = 0, *, ok: bool = True) -> RequestRow:
    made = RequestRow(arm, 1, f"p-{prompt}", "c", repeat, 0.0, ok=ok, tokens=101, first_chunk_tokens=1, tpot_ms=tpot)
    made.decode_ms = None if tpot is None else tpot * 100
    return made


def rows_of(count: int, arm: str = "baseline", factor: float = 1.0, repeats: int = 1) -> list[RequestRow]:
    dice = random.Random(f"{arm}/{count}")
    return [
        row(prompt, factor * dice.lognormvariate(3.0, 0.2), arm, repeat)
        for repeat in range(repeats)
        for prompt in range(count // repeats)
    ]


def block(rows: Sequence[RequestRow], arm: str = "baseline") -> Block:
    return Block(arm, 1, windows=[Window(arm, Point(Closed(1), 8), rows=list(rows))])


@pytest.mark.parametrize("repeats", [1, 4])
def test_the_note_says_what_the_rows_say(repeats: int) -> None:
    rows = [*rows_of(400, repeats=repeats), row(1, None, ok=False), row(2, None)]
    tally = Tally()
    assert tally.note() == ""
    for one in rows:
        tally.row(one)
    found = spread([(one.prompt_id, one.tpot_ms) for one in rows])
    assert found.low is not None
    assert tally.mean == pytest.approx(found.mean)
    assert tally.interval == pytest.approx((found.low, found.high)), "over prompts: repeats are no new evidence"
    assert tally.note() == f"{found.mean:.1f} ms a token ({found.low:.1f} to {found.high:.1f}), 1 failed"


def test_one_prompt_has_no_interval() -> None:
    tally = Tally()
    tally.row(row(1, 12.0))
    assert tally.note() == "12.0 ms a token"


def test_a_request_that_was_retried_enters_no_time() -> None:
    tally = Tally()
    again = row(1, 99.0)
    again.retries = 1
    for one in (row(1, 10.0), again):
        tally.row(one)
    assert tally.mean == 10.0


def test_a_variants_note_has_its_ratio_to_the_baseline() -> None:
    before = rows_of(300, repeats=3)
    first, second = rows_of(200, "ngram", 0.6, 2), rows_of(160, "ngram", 0.6, 2)
    notes = ArmNotes([block(before), block(rows_of(90, "other"), "other"), block(first, "ngram")], "ngram")
    for one in second:
        notes.row(one)
    want = running(before, [*first, *second])
    assert want is not None
    assert f"{want.estimate:.2f} of the baseline's ({want.low:.2f} to {want.high:.2f} so far)" in notes.note()
    mean = sum(one.tpot_ms or 0 for one in second) / len(second)
    assert notes.note().startswith(f"{mean:.1f} ms a token, ")
    assert "baseline" not in ArmNotes([block(before)], "baseline").note()


def test_servers_that_take_turns_are_compared_as_they_go() -> None:
    before, after = rows_of(60, repeats=2), rows_of(60, "ngram", 0.5, 2)
    notes = ArmNotes([], "ngram")
    for pair in zip(before, after, strict=True):
        for one in pair:
            notes.row(one)
    want = running(before, after)
    assert want is not None
    assert f"({want.low:.2f} to {want.high:.2f} so far)" in notes.note()


def test_telling_costs_nothing_however_many_rows_there_are() -> None:
    before, after = rows_of(MANY), rows_of(MANY, "ngram", 0.6)
    for notes, rows in ((Tally(), before), (ArmNotes([block(before)], "ngram"), after)):
        pulse = Pulse(lambda *_: None, MANY, notes)
        best_row, best_note = 1.0, 1.0
        for at in range(0, MANY, 1000):
            began = time.perf_counter()
            for one in rows[at : at + 1000]:
                pulse.row(one, 1, MANY)
            best_row = min(best_row, (time.perf_counter() - began) / 1000)
        for _ in range(20):
            began = time.perf_counter()
            pulse.tell()
            best_note = min(best_note, time.perf_counter() - began)
        assert pulse.done == MANY
        assert best_note < 0.0005, f"{best_note * 1000:.2f} ms at {MANY} rows"
        assert best_row < 0.0001, f"{best_row * 1e6:.0f} us a row"


def work(**options: object) -> WorkloadConfig:
    return WorkloadConfig.model_validate({"warmup": 0, "max_tokens": [8], "limit": 4, **options})


def test_one_closing_scrape_that_fails_costs_one_points_counts(tmp_path: Path) -> None:
    # The scrapes: before, after the first point (fails), then the rest.
    with serving(Script(token_ms=0.5, tokens=8, metrics_missing=(2,))) as server:
        plan = prepare(server.base_url, work(concurrency=[1, 2, 3]), access=Access())
        run = BenchRun(plan, folder=tmp_path)
        run.measure(on_count=lambda *_: None, on_point=lambda _: None)
    record = run.finish(began_unix=time.time(), folder=tmp_path)
    counted = [point.acceptance is not None for point in record.points if point.category is None]
    assert counted == [False, True, True]
    missing = [one for one in record.findings if one.code is Code.METRICS_MISSING]
    assert len(missing) == 1, missing


def test_rows_are_there_as_soon_as_a_point_is_measured(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    with serving(Script(token_ms=0.5, tokens=8)) as server:
        run = BenchRun(prepare(server.base_url, work(concurrency=[1, 2]), access=Access()), folder=tmp_path)
        run.measure(
            on_count=lambda *_: None,
            on_point=lambda _: seen.append(sorted(path.name for path in tmp_path.rglob("*.parquet"))),
        )
    assert seen == [[], ["1-1.parquet"]]
    run.finish(began_unix=time.time(), folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "requests.parquet"]


def test_a_trials_block_leaves_parts_compares_as_it_goes_and_remarks_its_load(tmp_path: Path) -> None:
    config = TrialConfig.model_validate(
        {
            "service": {"command": ["vllm", "serve", "m"], "port": 8000},
            "arms": [{"name": "ngram", "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}],
            "workload": {"warmup": 1, "max_tokens": 16, "concurrency": [1, 4]},
        }
    )
    prompts = [Prompt(f"p-{n}", "c", ({"role": "user", "content": f"question {n}"},)) for n in range(6)]
    before, now = block([row(n, 20.0) for n in range(6)]), Block("ngram", 2)
    told: list[str] = []
    with serving(Script(token_ms=2, tokens=16)) as server:
        measure_block(
            now,
            config,
            engine("vllm"),
            lambda _: prompts,
            target=Target(server.base_url, "fake/model-1b"),
            sweep=sweep_of(config.workload),
            answers={},
            folder=tmp_path,
            timeout_s=30,
            on_count=lambda _done, _total, text: told.append(text),
            blocks=[before, now],
            check=False,
        )
    assert re.search(r"2\.\d ms a token, 0\.1\d of the baseline's \(0\.1\d to 0\.1\d so far\)", told[-1]), told[-1]
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["2-1.parquet", "2-2.parquet"]
    (remark,) = [one for one in now.remarks if one.code is Code.LOAD_NOT_REACHED]
    assert remark.arm == "ngram"
    assert "6 requests were sent" in remark.message
    assert merge_parts(tmp_path) == 12


def test_what_does_not_fit_when_it_is_filled_up_is_told_before_anything_is_sent() -> None:
    with serving(Script(tokenize=True), max_model_len=1000) as server:
        # 1,010 may come out as 990, so only the prompts themselves tell.
        with pytest.raises(UsageError, match="leaves no room for an answer in the server's context of 1,000 tokens"):
            prepare(server.base_url, work(context_tokens=[300, 1010]), access=Access())
        assert [path for path, _ in server.requests] == []
