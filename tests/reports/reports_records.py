"""Records made by hand, as a person would meet them: figures are round so that a test can name them."""

from typing import Any

from draftworth.bench.record import BenchRecord, ClientRecord
from draftworth.bench.summary import PointSummary, Spread
from draftworth.engines.base import AcceptanceCounts
from draftworth.findings import Code, find
from draftworth.trials.record import ArmComparison, ArmRecord, StartRecord, TrialRecord
from draftworth.verdicts.base import CategoryComparison, Interval, OutputCheck, Verdict

HOSTILE = "<script>alert(1)</script>"


def spread(mean: float) -> Spread:
    return Spread(n=40, mean=mean, low=0.95 * mean, high=1.05 * mean, p50=mean, p90=1.5 * mean, p99=2 * mean)


def point(concurrency: int | None = 1, **other: Any) -> PointSummary:
    load = concurrency or 1
    figures: dict[str, Any] = {
        "load": "closed",
        "concurrency": concurrency,
        "max_tokens": 128,
        "requests": 40,
        "failed": 0,
        "retried": 0,
        "tokens": 4000,
        "prompt_tokens": 321.0,
        "ttft_ms": spread(50.0 * load),
        "tpot_ms": spread(10.0 + load),
        "e2e_ms": spread(1500.0 + load),
        "throughput": 77.0 * load,
        "request_rate": 0.7 * load,
    }
    return PointSummary(**{**figures, **other})


def sweep_points(**other: Any) -> tuple[PointSummary, ...]:
    return tuple(
        point(load, label=f"{load} at a time, {length} out", max_tokens=length, **other)
        for length in (128, 1024)
        for load in (1, 4, 16)
    )


def counts() -> AcceptanceCounts:
    return AcceptanceCounts(
        steps=1000, drafting_steps=880, drafted=2640, accepted=1320, emitted=2320, source="/metrics of vLLM 0.32.0"
    )


def bench(*points: PointSummary, **other: Any) -> BenchRecord:
    figures: dict[str, Any] = {
        "id": "20261201-094210",
        "draftworth": "0.2.0",
        "created": "2026-12-01T09:42:10Z",
        "finished": "2026-12-01T09:52:10Z",
        "seconds": 600.0,
        "url": "http://gpu-7:8000",
        "model": "llama",
        "engine": "vllm",
        "version": "0.32.0",
        "machine": {"processor": "EPYC", "cores": 16},
        "workload": {"source": "traffic.jsonl", "concurrency": [1], "max_tokens": [128], "repeats": 1, "retries": 2},
        "source": "traffic.jsonl (messages), 40 prompts",
        "points": points,
        "client": ClientRecord(wall_s=590.0, cpu_s=12.0, lag_ms=(0.1, 0.9, 4.0)),
        "findings": (
            find(Code.FEW_PAIRS, "the run has 7 requests"),
            find(Code.REQUESTS_FAILED, f"3 of 40 requests failed; the first: {HOSTILE}"),
        ),
    }
    return BenchRecord(**{**figures, **other})


def _ratio(estimate: float) -> Interval:
    return Interval(estimate=estimate, low=0.9 * estimate, high=1.1 * estimate, method="paired bootstrap")


def _figures(metric: str) -> dict[str, Any]:
    return {
        "metric": metric,
        "tpot_ratio": _ratio(0.8),
        "ttft_ratio": _ratio(1.01),
        "throughput_ratio": _ratio(1.25),
        "baseline_tpot_ms": 20.0,
        "variant_tpot_ms": 16.0,
        "baseline_ttft_ms": 210.0,
        "variant_ttft_ms": 212.0,
        "baseline_throughput": 44.0,
        "variant_throughput": 55.0,
        "pairs": 40,
        "verdict": Verdict.FASTER,
        "reason": "throughput 44.0 → 55.0",
    }


def trial(*, metric: str = "throughput", endpoints: bool = False, sweep: bool = False, **other: Any) -> TrialRecord:
    groups = [CategoryComparison(**_figures(metric), category="code|x")]
    if sweep:
        groups += [CategoryComparison(**_figures(metric), category=f"{n} at a time", kind="point") for n in (1, 16)]
    found = ArmComparison(
        **_figures(metric), arm="eagle", categories=tuple(groups), output_check=OutputCheck(status="same", reason="ok")
    )

    def arm(name: str, factor: float) -> ArmRecord:
        points = [point(n, label=f"{n} at a time", tpot_ms=spread(factor * (10.0 + n))) for n in (1, 4, 16)]
        start = StartRecord(block=1, seconds=None if endpoints else 80.0, log="a.log", rows=120)
        return ArmRecord(
            name=name,
            engine="vllm",
            command=() if endpoints else ("vllm", "serve", "m"),
            declared={"url": f"http://{name}:8000"} if endpoints else {},
            starts=(start, start.model_copy(update={"block": 2})),
            requests=120,
            points=tuple(points) if sweep else (),
        )

    figures: dict[str, Any] = {
        "id": "20261202-101010",
        "draftworth": "0.2.0",
        "created": "2026-12-02T10:10:10Z",
        "config": {"service": {"type": "endpoints" if endpoints else "process"}, "workload": {"source": "builtin"}},
        "verdict": Verdict.FASTER,
        "reason": found.reason,
        "best": "eagle",
        "restored": True,
        "restore": "nothing was started or stopped; the servers run on" if endpoints else "it generated a token",
        "comparison": found,
        "comparisons": (found,),
        "arms": (arm("baseline", 1.0), arm("eagle", 0.7)),
    }
    return TrialRecord(**{**figures, **other})
