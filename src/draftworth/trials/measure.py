"""One block: a ready server, warmed up, measured, its counters read before and after."""

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import Prompt, RequestRow, Sampling, Target
from draftworth.engines.base import MetricsSnapshot
from draftworth.errors import MeasureError
from draftworth.findings import Code, find
from draftworth.trials.ask import bounded
from draftworth.trials.base import Block
from draftworth.trials.scoring import spread

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.trials.config import TrialConfig

METRICS = "metrics.jsonl"
_SETTLE_S = 3.0
_CUT_OFF_SHARE = 0.01
_CUT_OFF_TOKENS = 2


def measure_block(
    block: Block,
    config: "TrialConfig",
    engine: "Engine",
    prompts: Sequence[Prompt],
    *,
    model: str,
    folder: Path,
    timeout_s: float,
    on_count: Callable[[int, int, str], None],
) -> None:
    """Measure a ready server into `block`.

    Args:
        block: filled in; what was measured so far stays in it when the measurement is cut short.
        config: the trial.
        engine: reads the server's metrics.
        prompts: the workload.
        model: the served name.
        folder: the trial's folder; every scrape is appended to its metrics.jsonl.
        timeout_s: seconds the whole measurement may take.
        on_count: takes requests done, requests in all and a note.

    Raises:
        MeasureError: more requests failed than the trial allows.
        TrialError: the time was up.
    """
    from draftworth.bench import run  # noqa: PLC0415 - lazy: aiohttp

    work = config.workload
    target = Target(base_url=config.url, model=model, token_timeout=config.limits.token_timeout_s)
    sampling = Sampling(max_tokens=work.max_tokens, temperature=work.temperature, seed=work.seed)
    engine.version = block.facts.version or engine.version
    began = time.monotonic()

    def send(some: Sequence[Prompt], how: Sampling, rows: list[RequestRow], **options: int) -> None:
        """Send prompts, collect rows as they come in (they stay where the rest is cut short), tell how far it is."""
        total = len(some) * options.get("repeats", 1)

        def on_row(row: RequestRow, done: int, _total: int) -> None:
            rows.append(row)
            on_count(done, total, _note(rows))

        def sending() -> Awaitable[list[RequestRow]]:
            return run.measure(
                target,
                some,
                how,
                arm=block.arm,
                block=block.number,
                concurrency=work.concurrency,
                on_row=on_row,
                **{"warmup": 0, **options},
            )

        bounded(sending, max(1.0, timeout_s - (time.monotonic() - began)))

    if work.warmup:
        on_count(0, len(prompts) * work.repeats, f"warming up with {work.warmup} requests")
        send((), sampling, [], warmup=work.warmup)
    before = _scrape(config.url, engine, folder, block, "before")
    send(prompts, sampling, block.rows, repeats=work.repeats)
    after = _settled(config.url, engine, folder, block, before)
    _count(block, engine, before, after)
    block.check_rows = block.rows
    if work.temperature > 0 and config.verdict.output_check:
        block.check_rows = []
        greedy = Sampling(max_tokens=work.max_tokens, temperature=0.0, seed=work.seed)
        some = spread(prompts, config.verdict.output_check_prompts, category=lambda prompt: prompt.category)
        send(some, greedy, block.check_rows)
    block.seconds = time.monotonic() - began
    failed = [row for row in block.rows if not row.ok]
    if failed and run.failed_share(block.rows) > config.limits.failed_share:
        raise MeasureError(
            f"{len(failed)} of {len(block.rows)} requests to {block.arm} failed, more than limits.failed_share allows; "
            f"the first: {failed[0].error}"
        )


def _note(rows: Sequence[RequestRow]) -> str:
    tpots = [row.tpot_ms for row in rows if row.tpot_ms is not None]
    failed = sum(not row.ok for row in rows)
    speed = f"{sum(tpots) / len(tpots):.1f} ms a token" if tpots else ""
    return speed + (f", {failed} failed" if failed else "")


def _scrape(url: str, engine: "Engine", folder: Path, block: Block, when: str) -> MetricsSnapshot | None:
    """Read the metrics page and keep it; a finding where that is not possible."""
    from draftworth.bench.run import fetch_text_sync  # noqa: PLC0415 - lazy: aiohttp

    try:
        snapshot = engine.parse_metrics(fetch_text_sync(url, "/metrics"))
    except MeasureError as error:
        if when == "before":
            block.findings.append(find(Code.METRICS_MISSING, f"{block.arm}: {error}", arm=block.arm))
        return None
    _keep(folder, block, when, snapshot.model_dump(mode="json"))
    return snapshot


def _keep(folder: Path, block: Block, when: str, data: dict[str, Any]) -> None:
    line = json.dumps({"unix": time.time(), "arm": block.arm, "block": block.number, "when": when, **data})
    with (folder / METRICS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _settled(
    url: str, engine: "Engine", folder: Path, block: Block, before: MetricsSnapshot | None
) -> MetricsSnapshot | None:
    """Scrape until the server has counted every request of ours as finished, or a moment has passed."""
    if before is None:
        return None
    deadline = time.monotonic() + _SETTLE_S
    ours = sum(row.ok for row in block.rows)
    while True:
        after = _scrape(url, engine, folder, block, "after")
        try:
            finished = engine.requests_finished(before, after) if after else None
        except MeasureError:
            return after  # the counters were reset; the count says so
        if finished is None or finished >= ours or time.monotonic() > deadline:
            return after
        time.sleep(0.1)


def _count(block: Block, engine: "Engine", before: MetricsSnapshot | None, after: MetricsSnapshot | None) -> None:
    """Turn two scrapes and the answers into counts and findings."""
    stats = [row.spec_stats for row in block.rows if row.ok]
    try:
        block.per_request = engine.request_counts(stats, block.facts.version)
    except MeasureError as error:
        block.findings.append(find(Code.PER_REQUEST_UNREADABLE, f"{block.arm}: {error}", arm=block.arm))
    _check_tokens(block)
    if before is None or after is None:
        if before is not None:
            message = f"{block.arm}: /metrics could not be read after the measurement"
            block.findings.append(find(Code.METRICS_MISSING, message, arm=block.arm))
        return
    try:
        block.counts = engine.counts(before, after)
        finished = engine.requests_finished(before, after)
        generated = engine.generated_tokens(before, after)
    except MeasureError as error:
        block.findings.append(find(Code.COUNTER_RESET, f"{block.arm}: {error}", arm=block.arm))
        return
    foreign = foreign_use(block.rows, finished, generated)
    if foreign:
        block.findings.append(find(Code.FOREIGN_REQUESTS, f"{block.arm}: {foreign}", arm=block.arm))
    _cross_check(block)


def foreign_use(rows: Sequence[RequestRow], finished: int | None, generated: int | None) -> str | None:
    """Return what the server did for somebody else in the window, or None.

    Requests are counted when they finish, so one that ran all through the window shows by its tokens alone. Tokens are
    compared only where every request of ours was answered and counted; 1 % and 2 tokens are allowed, since a server
    may count tokens that it cuts off behind the end of an answer.

    Args:
        rows: every request that was sent.
        finished: requests the server finished, None where it does not tell.
        generated: tokens the server generated, None where it does not tell.
    """
    parts = []
    if finished is not None and finished > len(rows):
        parts.append(f"the server finished {finished} requests in the window, {len(rows)} of them ours")
    ours = _exact_tokens(rows)
    if generated is not None and ours is not None and generated > ours * (1 + _CUT_OFF_SHARE) + _CUT_OFF_TOKENS:
        parts.append(f"the server generated {generated} tokens in the window, {ours} of them ours")
    return "; ".join(parts) or None


def _exact_tokens(rows: Sequence[RequestRow]) -> int | None:
    """Return the tokens of all rows, or None where one failed or was not counted exactly."""
    total = 0
    for row in rows:
        if not row.ok or row.tokens is None or row.token_source == "chunks":  # noqa: S105 - a source, no secret
            return None
        total += row.tokens
    return total


def _check_tokens(block: Block) -> None:
    """Remark where the server's usage is not the number of token ids it sent."""
    both = [row for row in block.rows if row.ok and row.token_ids and row.token_source == "usage"]  # noqa: S105 - same
    apart = [row for row in both if row.tokens != len(row.token_ids)]
    if apart:
        one = apart[0]
        message = (
            f"{block.arm}: {len(apart)} of {len(both)} answers have another number of token ids than their usage says; "
            f"the first, {one.prompt_id}: {len(one.token_ids)} ids, usage {one.tokens}"
        )
        block.findings.append(find(Code.TOKENS_DISAGREE, message, arm=block.arm))


def _cross_check(block: Block) -> None:
    """Compare the server's totals with the answers' own figures, where every answer carried some."""
    totals, answers = block.counts, block.per_request
    if totals is None or answers is None or any(not row.ok or not row.spec_stats for row in block.rows):
        return
    for name in ("drafting_steps", "drafted", "accepted"):
        one, other = getattr(totals, name), getattr(answers, name)
        if one is not None and other is not None and one != other:
            message = f"{block.arm}: {name} is {one} by {totals.source} and {other} by {answers.source}"
            block.findings.append(find(Code.COUNTS_DISAGREE, message, arm=block.arm))
            return
