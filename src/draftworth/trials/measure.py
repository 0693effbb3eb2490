"""One block: a ready server, warmed up, every point of the workload measured, its counters read around each."""

import json
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import Closed, Prompt, RequestRow, Sampling, Target
from draftworth.bench.points import Point
from draftworth.bench.pulse import OnCount, Pulse
from draftworth.bench.requests import requests_in
from draftworth.bench.rows import write_part
from draftworth.bench.summary import load_findings
from draftworth.bench.window import Job, Window, close, scrape, send, warm_up
from draftworth.engines.base import sum_counts
from draftworth.errors import MeasureError
from draftworth.findings import Code, find
from draftworth.trials.ask import bounded
from draftworth.trials.base import Block
from draftworth.trials.note import ArmNotes
from draftworth.trials.scoring import spread

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.trials.config import CommonConfig

METRICS = "metrics.jsonl"
PER_SEAT = 6
"""Requests of a part of a measurement for each that is under way at a time: of fewer, most would be its end."""


def measure_block(
    block: Block,
    config: "CommonConfig",
    engine: "Engine",
    prompts: Callable[[Point], Sequence[Prompt]],
    *,
    target: Target,
    sweep: Sequence[Point],
    answers: MutableMapping[str, str],
    folder: Path,
    timeout_s: float,
    on_count: OnCount,
    blocks: Sequence[Block],
    check: bool = True,
    once: bool = False,
    parts: Sequence[int] = (),
    go_on: Callable[[int, int], bool] | None = None,
) -> None:
    """Measure a ready server into `block`.

    Args:
        block: filled in; what was measured so far stays in it when the measurement is cut short.
        config: the trial.
        engine: reads the server's metrics.
        prompts: gives the requests of a point.
        target: the server.
        sweep: the points, in the order in which they are measured.
        answers: the servers' answers that later turns of conversations build on.
        folder: the trial's folder; every scrape is appended to its metrics.jsonl.
        timeout_s: seconds the whole measurement may take.
        on_count: takes requests done, requests in all and a note.
        blocks: the trial's so far, `block` among them: what it is compared with while it goes.
        check: whether greedy outputs are needed for the output check.
        once: whether each prompt is sent once only, at one of the points, since the drafter learns from every answer.
        parts: in how many parts each point is measured, in turns; each in one piece where it is empty.
        go_on: asked behind each turn, with its number and how many there are: false leaves out what is left.

    Raises:
        MeasureError: more requests failed than the trial allows.
        TrialError: the time was up.
    """
    from draftworth.bench import run  # noqa: PLC0415 - lazy: the load generator

    work = config.workload
    asked, repeats = (each_once(prompts, sweep), 1) if once else (prompts, work.repeats)
    engine.version = block.facts.version or engine.version
    began = time.monotonic()

    def running(**options: Any) -> Any:
        left = max(1.0, timeout_s - (time.monotonic() - began))
        # The count looks for signals, also while no answer ends.
        return bounded(lambda: run.measure(target, **options, on_tick=pulse.tick), left)

    job = Job(
        target=target,
        engine=engine,
        sampling=Sampling(temperature=work.temperature, seed=work.seed, ignore_eos=work.ignore_eos),
        repeats=repeats,
        retries=work.retries,
        answers=answers,
        keep=lambda when, snapshot: _keep(folder, block, when, snapshot.model_dump(mode="json")),
        facts_version=block.facts.version,
    )
    todo = sum(requests_in(asked(point)) for point in sweep) * repeats
    pulse = Pulse(on_count, todo, ArmNotes(blocks, block.arm))
    if work.warmup and not block.warm:
        on_count(0, todo, f"warming up with {work.warmup} requests")
        block.findings += warm_up(job, work.warmup, sweep[0], running, prompts(sweep[0]), arm=block.arm)
        block.warm = True
    before = scrape(job, "before")
    if isinstance(before, MeasureError):
        block.findings.append(find(Code.METRICS_MISSING, f"{block.arm}: {before}", arm=block.arm))
    opening = None if isinstance(before, MeasureError) else before
    turns = in_turns(sweep, parts)
    for turn, points in enumerate(turns, 1):
        for point, number, of in points:
            window = Window(arm=block.arm, point=point)
            block.windows.append(window)
            # Evenly over the list, so that each part has prompts of all categories.
            some = asked(point)[number::of]
            send(job, some, window, block=block.number, start=block.start, run=running, on_row=pulse.row)
            pulse.tell()
            close(job, window, opening)
            opening = window.after
            window.findings += load_findings(point, window.rows, block.arm)
            write_part(window.rows, folder, block=block.number, number=len(block.windows))
        if go_on is not None and not go_on(turn, len(turns)):
            break
    block.counts = sum_counts([window.counts for window in block.windows])
    block.per_request = sum_counts([window.per_request for window in block.windows])
    caches = [window.cache for window in block.windows]
    if caches and all(caches):
        block.cache = sum(one[0] for one in caches if one), sum(one[1] for one in caches if one)
    block.check_rows = block.rows
    if work.temperature > 0 and check and config.verdict.output_check:
        block.check_rows = []
        some = spread(prompts(sweep[0]), config.verdict.output_check_prompts, category=lambda prompt: prompt.category)

        def checked(row: RequestRow, done: int, total: int) -> None:
            block.check_rows.append(row)
            on_count(done, total, "greedy answers for the output check")

        running(
            prompts=some,
            sampling=Sampling(max_tokens=sweep[0].max_tokens, temperature=0.0, seed=work.seed),
            arm=block.arm,
            block=block.number,
            load=sweep[0].load,
            warmup=0,
            answers=answers,
            on_row=checked,
        )
    block.seconds += time.monotonic() - began
    refuse_failed(block.arm, block.rows, config.limits.failed_share)


def each_once(
    prompts: Callable[[Point], Sequence[Prompt]], sweep: Sequence[Point]
) -> Callable[[Point], Sequence[Prompt]]:
    """Return what gives each point its share of the prompts, so that a server answers each of them once."""
    return lambda point: prompts(point)[sweep.index(point) :: len(sweep)]


def parts_of(requests: int, sweep: Sequence["Point"], looks: int) -> tuple[int, ...]:
    """Return in how many parts each point is measured: what a search looks behind.

    Args:
        requests: of one point.
        sweep: the points.
        looks: most parts.
    """
    seats = (one.load.concurrency if isinstance(one.load, Closed) else 1 for one in sweep)
    return tuple(max(1, min(looks, requests // (PER_SEAT * each))) for each in seats)


def in_turns(sweep: Sequence[Point], parts: Sequence[int]) -> list[list[tuple[Point, int, int]]]:
    """Return the turns of a measurement: points, each with the number of its part, from 0, and how many it has.

    Args:
        sweep: the points.
        parts: how many parts each has; one each where it is empty.
    """
    of = tuple(parts) or (1,) * len(sweep)
    return [
        [(point, turn, many) for point, many in zip(sweep, of, strict=True) if turn < many]
        for turn in range(max(of, default=0))
    ]


def refuse_failed(arm: str, rows: Sequence[RequestRow], allowed: float) -> None:
    """Raise MeasureError where more requests failed than a trial allows."""
    from draftworth.bench.run import failed_share  # noqa: PLC0415 - lazy: the load generator

    failed = [row for row in rows if not row.ok]
    if failed and failed_share(rows) > allowed:
        raise MeasureError(
            f"{len(failed)} of {len(rows)} requests to {arm} failed, more than limits.failed_share allows; "
            f"the first: {failed[0].error}"
        )


def _keep(folder: Path, block: Block, when: str, data: dict[str, Any]) -> None:
    line = json.dumps({"unix": time.time(), "arm": block.arm, "block": block.number, "when": when, **data})
    with (folder / METRICS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
