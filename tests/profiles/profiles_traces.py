"""Traces made by hand: a Chrome trace event by event, and an nsys export table by table."""

import gzip
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
BASE = DATA / "vllm_cpu_base_rank0.pt.trace.json.gz"
NGRAM = DATA / "vllm_cpu_ngram_rank0.pt.trace.json.gz"

GEMM = "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT"
REDUCE = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, int)"
MOE = "fused_moe_kernel"
FLASH = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(int)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >(int)"


def kernel(
    name: str, ts: float, dur: float, *, stream: int = 7, correlation: int = 0, device: int = 0
) -> dict[str, Any]:
    args = {"device": device, "stream": stream, "correlation": correlation, "grid": [1, 1, 1]}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": args}


def copy(name: str, ts: float, dur: float, *, stream: int = 7, correlation: int = 0) -> dict[str, Any]:
    return kernel(name, ts, dur, stream=stream, correlation=correlation) | {"cat": "gpu_memcpy"}


def on_host(
    cat: str, name: str, ts: float, dur: float, *, correlation: int | None = None, tid: int = 1
) -> dict[str, Any]:
    args = {"External id": 1} | ({} if correlation is None else {"correlation": correlation})
    return {"ph": "X", "cat": cat, "name": name, "pid": 99, "tid": tid, "ts": ts, "dur": dur, "args": args}


def mark(context: int, generation: int, carried: int, ts: float, dur: float) -> dict[str, Any]:
    name = f"execute_context_{context}({context * 50})_generation_{generation}({carried})"
    return on_host("user_annotation", name, ts, dur)


def trace(path: Path, events: Sequence[dict[str, Any]], **head: Any) -> Path:
    """Write a trace as Kineto lays it out, gzipped where the name says so."""
    top = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 1}]} | head
    text = json.dumps(top)[:-1] + ',\n "traceEvents": [\n' + ",\n".join(json.dumps(one, indent=2) for one in events)
    data = (text + '\n  ],"traceName": "trace.json" }').encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def two_steps() -> list[dict[str, Any]]:
    """A prefill, two decode steps of 2 requests that other steps follow, and a last one.

    The GPU lags the host by 100 µs. Decode step one lasts from 2100 to 3100 on the GPU, step two from 3100 to 4100:

        stream 7  gemm 300, all-reduce 200 (the second half of it beside the copy), experts 100, flash 100, argmax 50
        stream 8  copy 100

    so each step has 750 µs of kernels and idles 250, and the copy shares 100 µs with the all-reduce. The host runs an
    operation from 2860 to 3040, of which it waits in cudaStreamSynchronize from 2900 to 3000.
    """
    events = [mark(1, 0, 0, 900, 300), *_launch(1, 1000), kernel(GEMM, 1100, 900, correlation=1)]
    for number, at in enumerate((2000, 3000, 4000)):
        first = 10 * (number + 1)
        events += [mark(0, 2, 2, at, 80), *_launch(first, at + 10)]
        events += [
            kernel(GEMM, at + 100, 300, correlation=first),
            kernel(REDUCE, at + 400, 200, correlation=first),
            copy("Memcpy HtoD (Pinned -> Device)", at + 500, 100, stream=8, correlation=first),
            kernel(MOE, at + 600, 100, correlation=first),
            kernel(FLASH, at + 700, 100, correlation=first),
            kernel(ARGMAX, at + 800, 50, correlation=first),
        ]
    events.append(on_host("cpu_op", "aten::item", 2860, 180))
    events.append(on_host("cuda_runtime", "cudaStreamSynchronize", 2900, 100))
    return events


def _launch(correlation: int, ts: float) -> list[dict[str, Any]]:
    return [on_host("cuda_runtime", "cudaGraphLaunch", ts, 5, correlation=correlation)]


def nsys(
    path: Path, kernels: Sequence[tuple[str, int, int, int, int]], *, nvtx: Sequence[tuple[str, int, int]] = ()
) -> Path:
    """Write an nsys export.

    Args:
        path: where to.
        kernels: name, start and end in ns, device, correlation; launched 10 ns before they start.
        nvtx: text, start and end in ns, in the one thread that launches.
    """
    process = 5 << 24
    names = {
        text: number
        for number, text in enumerate(dict.fromkeys([one[0] for one in kernels] + ["cudaLaunchKernel_v7000"]))
    }
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, "
            "correlationId INT, globalPid INT, demangledName INT, shortName INT)"
        )
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME "
            "(start INT, end INT, globalTid INT, correlationId INT, nameId INT)"
        )
        base.execute(
            "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT)"
        )
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in names.items()])
        for name, start, end, device, correlation in kernels:
            row = (start, end, device, 7, correlation, process, names[name], names[name])
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            call = (start - 10, start - 5, process + 3, correlation, names["cudaLaunchKernel_v7000"])
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
        for text, start, end in nvtx:
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, NULL, ?)", (start, end, text, process + 3))
        base.commit()
    return path
