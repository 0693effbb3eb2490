"""Measuring a part of the prompts on every server, in turns: A B, B A, A B."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth.bench.base import Prompt
from draftworth.bench.doubts import client_findings
from draftworth.bench.monitor import together
from draftworth.bench.pulse import Pulse
from draftworth.bench.requests import requests_in
from draftworth.bench.rows import write_part
from draftworth.bench.summary import load_findings
from draftworth.bench.window import Window, close, scrape, send
from draftworth.engines.base import MetricsSnapshot, StartupFacts
from draftworth.errors import MeasureError
from draftworth.findings import Code, find
from draftworth.trials.base import Block
from draftworth.trials.endpoints.prepare import turns
from draftworth.trials.measure import refuse_failed
from draftworth.trials.note import ArmNotes

if TYPE_CHECKING:
    from draftworth.trials.endpoints.run import Run

_OF_THE_CLIENT = frozenset({Code.CLIENT_SATURATED, Code.ARRIVALS_LATE})


def measure_part(run: "Run", number: int) -> None:
    """Measure one part of the prompts on every server, in turns."""
    prompts = run.ready.segments[number - 1]
    blocks: dict[str, Block] = {}
    before: dict[str, MetricsSnapshot | None] = {}
    for arm in run.ready.arms:
        block = Block(arm=arm.name, number=len(run.outcome.blocks) + 1, facts=StartupFacts(version=arm.version))
        blocks[arm.name] = block
        run.outcome.blocks.append(block)
        opening = scrape(run.jobs[arm.name], "before")
        if isinstance(opening, MeasureError):
            block.findings.append(find(Code.METRICS_MISSING, f"{arm.name}: {opening}", arm=arm.name))
        before[arm.name] = None if isinstance(opening, MeasureError) else opening
    began = time.monotonic()
    try:
        _in_turns(run, prompts, blocks)
    finally:
        for block in blocks.values():
            block.seconds = time.monotonic() - began
            block.check_rows = block.rows
    if run.pulse is not None:
        run.pulse.tell()
        run.pulse = None
    for arm in run.ready.arms:
        _close(run, blocks[arm.name], before[arm.name])
        for window in blocks[arm.name].windows:
            window.findings += load_findings(window.point, window.rows, arm.name)
        refuse_failed(arm.name, blocks[arm.name].rows, run.config.limits.failed_share)


def _in_turns(run: "Run", prompts: Sequence[Prompt], blocks: dict[str, Block]) -> None:
    arms, sweep = run.ready.arms, run.ready.sweep
    todo = requests_in(prompts) * run.config.workload.repeats * len(sweep) * len(arms)
    windows = {(arm.name, point): Window(arm.name, point) for arm in arms for point in sweep}
    for (name, _), window in windows.items():
        blocks[name].windows.append(window)

    run.pulse = Pulse(run.count, todo, ArmNotes(run.outcome.blocks, arms[-1].name))
    for point in sweep:
        # The first server's model counts the tokens, so that every arm is sent the same.
        chosen = {prompt.id for prompt in prompts}
        some = [prompt for prompt in run.requests.at(point, arms[0].target) if prompt.id in chosen]
        for part in turns(some, point, run.config.workload.repeats):
            # A B, B A, A B, …, from part to part too: neither server is always the one that goes first.
            forth = run.turns[point] % 2 == 0
            run.turns[point] += 1
            for arm in arms if forth else reversed(arms):
                send(
                    run.jobs[arm.name],
                    part,
                    windows[arm.name, point],
                    block=blocks[arm.name].number,
                    start=1,
                    run=run.running(arm.target),
                    on_row=run.pulse.row,
                )
        for arm in arms:
            number = blocks[arm.name].number
            write_part(windows[arm.name, point].rows, run.folder, block=number, number=sweep.index(point) + 1)


def _close(run: "Run", block: Block, before: MetricsSnapshot | None) -> None:
    """Read a server's counters for all points of a part together."""
    job = run.jobs[block.arm]
    whole = Window(block.arm, run.ready.sweep[0], rows=block.rows)
    close(job, whole, before)
    block.counts, block.per_request = whole.counts, whole.per_request
    block.cache = whole.cache
    block.findings += whole.findings


def judge_client(run: "Run") -> None:
    """Remark where the client was the bottleneck at a point: over all parts so far, since one is short."""
    for arm in run.ready.arms:
        for point in run.ready.sweep:
            of_arm = [window for block in run.outcome.blocks if block.arm == arm.name for window in block.windows]
            windows = [window for window in of_arm if window.point == point]
            client = together([window.client for window in windows])
            for window in windows:
                window.findings = [one for one in window.findings if one.code not in _OF_THE_CLIENT]
            if client is not None:
                name = point.label or point.load.label
                windows[-1].findings += client_findings(arm.name, name, client)
