"""Trials made by hand with everything a page can show: rows, a journal, an account. Figures are round."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.reports.reports_records import point, spread

from draftworth.bench.base import RequestRow
from draftworth.bench.rows import write_rows
from draftworth.engines.base import AcceptanceCounts, Confounder, LogWarning
from draftworth.explain.base import Account, BreakEven, Change, CurvePoint, Detail, Explained, Part
from draftworth.findings import Code, find
from draftworth.predict.base import Range
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Journal
from draftworth.trials.record import ArmComparison, ArmRecord, StartRecord, TrialRecord
from draftworth.verdicts.base import CategoryComparison, Interval, OutputCheck, Verdict

BEGAN = 1_796_000_000.0
RATIOS = {"ngram-5": 1.4, "eagle3": 0.75, "ngram-2": 1.01}
VERDICTS = {"ngram-5": Verdict.SLOWER, "eagle3": Verdict.FASTER, "ngram-2": Verdict.NO_DIFFERENCE}
CATEGORIES = ("coding", "multilingual translation of long texts", "math")
LOADS = (1, 4, 16)


def around(value: float, half: float) -> Range:
    return Range(value=value, low=value - half, high=value + half)


def ratio_of(value: float, width: float = 0.1) -> Interval:
    return Interval(estimate=value, low=value * (1 - width), high=value * (1 + width), method="paired bootstrap")


def counts(k: int = 5) -> AcceptanceCounts:
    chain = tuple(800 // 2**at for at in range(1, k + 1))
    return AcceptanceCounts(
        steps=1000,
        drafting_steps=800,
        drafted=800 * k,
        accepted=sum(chain),
        accepted_per_position=chain,
        emitted=1000 + sum(chain),
        source="/metrics of vLLM 0.32.0",
    )


def comparison(name: str, ratio: float, verdict: Verdict, *, loads: bool = True, prompts: int = 12) -> ArmComparison:
    figures: dict[str, Any] = {
        "tpot_ratio": ratio_of(ratio),
        "baseline_tpot_ms": 20.0,
        "variant_tpot_ms": 20.0 * ratio,
        "verdict": verdict,
        "reason": f"TPOT 20.0 → {20 * ratio:.1f} ms (ratio {ratio:.3f})",
    }
    groups = [
        CategoryComparison(**figures | {"tpot_ratio": ratio_of(ratio * (1 + 0.2 * at), 0.3)}, category=one, pairs=4)
        for at, one in enumerate(CATEGORIES)
    ]
    if loads:
        groups += [CategoryComparison(**figures, category=f"{n} at a time", kind="point", pairs=4) for n in LOADS]
    return ArmComparison(
        **figures,
        arm=name,
        pairs=prompts,
        categories=tuple(groups),
        output_check=OutputCheck(status="same", reason="none of 960 tokens lies beyond near ties"),
        drift=ratio_of(1.01, 0.01),
    )


def arm(name: str, factor: float, k: int | None, *, loads: bool = True) -> ArmRecord:
    points = [point(n, label=f"{n} at a time", tpot_ms=spread(factor * (19.0 + n))) for n in LOADS]
    config = None if k is None else {"method": "ngram", "num_speculative_tokens": k}
    return ArmRecord(
        name=name,
        engine="vllm",
        version="0.32.0",
        command=("vllm", "serve", "meta/llama-8b", *(("--speculative-config", json.dumps(config)) if config else ())),
        declared={"speculative_config": config},
        starts=(StartRecord(block=1, seconds=31.0, log="a.log", rows=12),),
        requests=36,
        tokens=36 * 101,
        tpot_ms=20.0 * factor,
        ttft_ms=50.0,
        points=tuple(points) if loads else (),
        acceptance=None if k is None else counts(k),
        warnings=(
            LogWarning(code="async_scheduling_off", line="Async scheduling is off.", advice="compare without it"),
        ),
    )


def record(names: Sequence[str] = ("ngram-5", "eagle3", "ngram-2"), **other: Any) -> TrialRecord:
    found = [comparison(name, RATIOS[name], VERDICTS[name]) for name in names]
    best = min(found, key=lambda one: one.tpot_ratio.estimate if one.tpot_ratio else 0)
    figures: dict[str, Any] = {
        "id": "20261202-101010",
        "draftworth": "0.2.0",
        "created": "2026-12-02T10:10:10Z",
        "finished": "2026-12-02T10:50:10Z",
        "seconds": 2400.0,
        "machine": {"processor": "EPYC", "cores": 16},
        "config": {
            "service": {"type": "process", "model": None},
            "workload": {"source": "builtin", "concurrency": list(LOADS)},
            "verdict": {"margin": 0.02},
        },
        "verdict": best.verdict,
        "reason": best.reason,
        "best": best.arm,
        "restored": True,
        "restore": "the original runs, pid 7, and has generated a token",
        "comparison": best,
        "categories": best.categories,
        "comparisons": tuple(found),
        "arms": (arm("baseline", 1.0, None), *(arm(name, RATIOS[name], 5) for name in names)),
        "confounders": (
            Confounder(name="max_num_seqs", baseline="256", variant="128", note="speculation brings this"),
        ),
        "findings": (
            find(Code.FEW_STARTS, "each arm was started once"),
            find(Code.BASELINE_DRIFT, "the baseline drifted by 3 %"),
        ),
    }
    return TrialRecord(**{**figures, **other})


def account(name: str, ratio: float, concurrency: int, length: float | None = 2.2) -> Account:
    gained, mode, verify, drafter = -12.0, 6.0, 3.0, 1.0
    difference = 20.0 * (ratio - 1)
    rest = difference - (gained + mode + verify + drafter)
    parts = (
        Part(
            cause="engine mode",
            ms=around(mode, 0.5),
            evidence=("null-draft of this trial",),
            measured=True,
            details=(
                Detail(name="steps that draft nothing", ms=around(2.0, 0.3)),
                Detail(name="drafting steps", ms=around(4.0, 0.2)),
            ),
        ),
        Part(cause="verification", ms=around(verify, 0.4), evidence=("costs.json",)),
        Part(cause="drafter", ms=around(drafter, 0.1), evidence=("profile",), measured=True),
        Part(cause="tokens gained", ms=around(gained, 0.6), evidence=("its counts",), measured=True),
        Part(cause="rest", ms=around(rest, abs(rest) + 0.2)),
    )
    return Account(
        arm=name,
        point=f"{concurrency} at a time",
        concurrency=concurrency,
        baseline_ms=20.0,
        arm_ms=20.0 + difference,
        difference=around(difference, 1.0),
        parts=parts,
        assigned=0.93,
        of_difference=1 - abs(rest) / abs(difference),
        steps_per_token=0.6,
        baseline_step_ms=20.0,
        arm_step_ms=30.0,
        break_even=BreakEven(length=length, measured_length=1.97, longest=6),
        main_cause=f"{name} pays 6.00 ms for the engine's mode at {concurrency} at a time.",
        changes=(
            Change(text="k 3 is predicted to pay", arguments=("--speculative-config", "{}"), speed_up=around(1.2, 0.1)),
            Change(text="2.20 tokens a drafting step would pay", kind="acceptance"),
        ),
    )


def explained(names: Sequence[str] = ("ngram-5", "eagle3", "ngram-2")) -> Explained:
    curve = [CurvePoint(tokens=2**at, ms=around(20 + 2**at / 8, 0.4), what="measured") for at in range(9)]
    curve += [CurvePoint(tokens=n, ms=around(20 + n / 8, 0.8), what="model") for n in range(1, 257)]
    curve += [CurvePoint(tokens=4, ms=around(20.4, 0.2), what="baseline", name="baseline")]
    curve += [
        CurvePoint(tokens=24 + at, ms=around(28.0 + at, 0.5), what="arm", name=name) for at, name in enumerate(names)
    ]
    return Explained(
        trial="20261202-101010",
        accounts=tuple(account(name, RATIOS[name], n) for name in names for n in LOADS),
        summary="The cause of some arm.",
        curve=tuple(curve),
    )


def rows(names: Sequence[str] = ("ngram-5", "eagle3", "ngram-2"), prompts: int = 12) -> list[RequestRow]:
    """Requests whose ratio is that of their arm, a little more for each category; the baseline twice."""
    found: list[RequestRow] = []
    for block, name in enumerate(["baseline", *names, "baseline"], start=1):
        factor = RATIOS.get(name, 1.0)
        for number in range(prompts):
            at = number % len(CATEGORIES)
            tpot = 20.0 * factor * (1 + 0.01 * (number % 7))
            found.append(
                RequestRow(
                    arm=name,
                    block=block,
                    prompt_id=f"p{number}",
                    category=CATEGORIES[at],
                    repeat=1,
                    started_unix=BEGAN + 600 * block + number,
                    start=2 if block == len(names) + 2 else 1,
                    ok=True,
                    tokens=101,
                    first_chunk_tokens=1,
                    ttft_ms=50.0,
                    decode_ms=100 * tpot,
                    tpot_ms=tpot,
                    e2e_ms=50 + 100 * tpot,
                )
            )
    return found


def journal(folder: Path, events: Sequence[tuple[float, str, str, dict[str, Any]]]) -> None:
    """Write a journal whose events have the given seconds since the begin, kind, step and data."""
    with Journal(folder / JOURNAL, create=True) as found:
        for _, kind, step, data in events:
            found.append(kind, step, **data)  # type: ignore[arg-type]  # any kind a test asks for
    database = sqlite3.connect(folder / JOURNAL)
    for number, (seconds, *_) in enumerate(events, start=1):
        database.execute("UPDATE events SET unix = ? WHERE seq = ?", (BEGAN + seconds, number))
    database.commit()
    database.close()


EVENTS: tuple[tuple[float, str, str, dict[str, Any]], ...] = (
    (0, "note", "guard", {"pid": 7}),
    (1, "begin", "", {}),
    (10, "intent", "01-measure-baseline", {}),
    (310, "effect", "01-measure-baseline", {"requests": 36, "failed": 1}),
    (311, "intent", "02-stop-original", {}),
    (316, "effect", "02-stop-original", {"remarks": ["it took 5 s"]}),
    (317, "intent", "03-start-ngram-5", {"command": ["vllm"]}),
    (318, "effect", "03-start-ngram-5", {"running": {}}),
    (380, "note", "03-start-ngram-5", {"model": "llama"}),
    (381, "intent", "04-measure-ngram-5", {}),
    (400, "failure", "04-measure-ngram-5", {"error": "MeasureError: the server died"}),
    (401, "intent", "restore", {"attempt": 1}),
    (402, "intent", "start-original", {"command": ["vllm"]}),
    (403, "effect", "start-original", {"running": {}}),
    (460, "effect", "restore", {"how": "the original runs, pid 8"}),
    (461, "end", "restore", {"restored": True}),
)


def folder_of(path: Path, names: Sequence[str] = ("ngram-5", "eagle3", "ngram-2"), prompts: int = 12) -> Path:
    """Make a trial's folder with rows and a journal."""
    path.mkdir(parents=True, exist_ok=True)
    write_rows(rows(names, prompts), path)
    journal(path, EVENTS)
    return path
