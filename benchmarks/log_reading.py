"""How long a gigabyte of a serving engine's journal takes to read, on one core, and in how much memory.

    python benchmarks/log_reading.py [--size-mb 1000] [--out benchmarks/results/log_reading.json]

Journals are made in a temporary folder, each as it would be written: mostly lines of the access log, one line of
figures every few thousand; as plain lines with journald's prefix, as journald's JSON, gzipped, and (the hard cases)
SGLang's, where every second line is a "Decode batch" line, and llama.cpp's of nothing but requests. Each is read by
`draftworth metrics FILE --json` in a process of its own, pinned to one core where the system can, three times. Beside
it `wc -l`, and the same reader as a loop over lines would be (Python's own line loop with a test for the same needles),
on the same file.
"""

import argparse
import gzip
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import draftworth
from draftworth.bench.machine import machine
from draftworth.engines import CHOICES, engine

RESULT = Path(__file__).parent / "results" / "log_reading.json"
DOCS = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN, END = "<!-- log_reading -->", "<!-- end -->"
REPEATS = 3
K = 5
EVERY = 2000  # access lines to a line of figures


def access_line(rolls: random.Random) -> str:
    """Return a line of the access log."""
    address = f"10.0.{rolls.randrange(256)}.{rolls.randrange(256)}:{rolls.randrange(1024, 65536)}"
    return f'(APIServer pid=812) INFO:     {address} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def vllm_line(rolls: random.Random) -> str:
    """Return a line of figures as vLLM 0.32 writes it, of random counts that fit each other."""
    steps = rolls.randrange(50, 2000)
    chain = []
    reached = steps
    for _ in range(K):
        reached = rolls.randrange(reached + 1)
        chain.append(reached)
    accepted, drafted = sum(chain), K * steps
    rates = ", ".join(f"{one / steps:.3f}" for one in chain)
    return (
        f"(APIServer pid=812) INFO 11-30 06:{rolls.randrange(60):02}:00 [metrics.py:101] SpecDecoding metrics: "
        f"Mean acceptance length: {1 + accepted / steps:.2f}, Accepted throughput: {accepted / 10:.2f} tokens/s, "
        f"Drafted throughput: {drafted / 10:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
    )


def sglang_line(rolls: random.Random) -> str:
    """Return a line as SGLang 0.5.12 and later write it."""
    length = 1 + rolls.random() * 3
    return (
        f"[2026-11-30 06:{rolls.randrange(60):02}:00 TP0] Decode batch, #running-req: {rolls.randrange(1, 64)}, "
        f"#token: {rolls.randrange(99999)}, token usage: 0.{rolls.randrange(100):02}, accept len: {length:.2f}, "
        f"accept rate: {(length - 1) / 3:.2f}, cuda graph: True, gen throughput (token/s): {rolls.random() * 999:.2f}, "
        f"#queue-req: 0, "
    )


def llamacpp_block(rolls: random.Random) -> Iterator[str]:
    """Yield what llama.cpp b11434 writes of requests: nothing but such lines."""
    for task in range(EVERY // 8):
        tokens, steps = rolls.randrange(60, 400), rolls.randrange(1, 9)
        drafted = 8 * steps
        accepted = rolls.randrange(drafted + 1)
        timing = f"0.08.189.112 I slot print_timing: id  {rolls.randrange(4)} | task {task} |"
        speed = "(   74.49 ms per token,    13.42 tokens per second)"
        yield f"{timing} prompt eval time =     190.19 ms /    78 tokens {speed}"
        yield f"{timing}        eval time =    5884.63 ms / {tokens:5} tokens {speed}"
        yield f"{timing}       total time =    7784.82 ms / {tokens + 78:5} tokens"
        yield f"{timing}    graphs reused =         23"
        counts = f"({accepted:5} accepted / {drafted:5} generated), mean len = {1 + accepted / steps:5.2f}"
        yield f"{timing} draft acceptance = {accepted / drafted:.5f} {counts}"


def prefixed(line: str) -> str:
    """Return a line as journalctl shows it."""
    return f"Nov 30 06:14:20 gpu-1 serve[812]: {line}\n"


def exported(line: str) -> str:
    """Return a line as journalctl -o json exports it."""
    return (
        '{"__CURSOR":"s=1;i=2","__REALTIME_TIMESTAMP":"1795932860000000","_HOSTNAME":"gpu-1","PRIORITY":"6",'
        f'"SYSLOG_IDENTIFIER":"serve","_PID":"812","MESSAGE":{json.dumps(line)}}}\n'
    )


def exported_as_bytes(line: str) -> str:
    """Return a line as journalctl -o json exports one with colours: its message is an array of bytes."""
    message = ",".join(str(byte) for byte in f"\x1b[36m{line}\x1b[0m".encode())
    return f'{{"__REALTIME_TIMESTAMP":"1795932860000000","_PID":"812","MESSAGE":[{message}]}}\n'


def vllm_block(rolls: random.Random) -> Iterator[str]:
    """Yield access lines and a line of figures."""
    yield from (access_line(rolls) for _ in range(EVERY))
    yield vllm_line(rolls)


def sglang_block(rolls: random.Random) -> Iterator[str]:
    """Yield access lines and as many lines of figures."""
    for _ in range(EVERY // 2):
        yield access_line(rolls)
        yield sglang_line(rolls)


def write(path: Path, size: int, block: Callable[[random.Random], Iterator[str]], shape: Callable[[str], str]) -> int:
    """Write a journal of about so many bytes. Returns the lines of figures in it."""
    rolls = random.Random(7)  # noqa: S311 - data
    # A few hundred blocks in turn: making a gigabyte of fresh numbers would take longer than reading it.
    blocks = ["".join(shape(line) for line in block(rolls)).encode() for _ in range(64)]
    signs = ("SpecDecoding", "Decode batch", "draft acceptance")
    written_as = [sign.encode() for sign in signs] + [",".join(map(str, sign.encode())).encode() for sign in signs]
    figures = [sum(one.count(sign) for sign in written_as) for one in blocks]
    written = lines = 0
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
        for number in range(sys.maxsize):
            if written >= size:
                return lines
            file.write(blocks[number % len(blocks)])
            written += len(blocks[number % len(blocks)])
            lines += figures[number % len(blocks)]
    return lines


def timed(command: list[str]) -> tuple[float, float, str]:
    """Return a command's CPU seconds, the largest memory in MB, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=_one_core)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return max(cpu, time.perf_counter() - started), after.ru_maxrss / 1024, done.stdout


def _one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def line_loop(path: Path) -> list[str]:
    """Return the command of a reader that looks at every line."""
    needles = [needle for name in CHOICES for needle in (*engine(name).log_signs, *engine(name).log_needles)]
    code = (
        "import sys\n"
        f"needles = {needles!r}\n"
        "print(sum(any(n in line for n in needles) for line in open(sys.argv[1], 'rb')))\n"
    )
    return [sys.executable, "-c", code, str(path)]


def table(result: dict[str, Any]) -> str:
    """Return a result as the table of the docs."""
    here = result["machine"]
    runs_of_each = len(next(iter(result["cases"].values()))["seconds"])
    where = f"On one core of {here.get('processor', 'an unknown processor')}, Python {here.get('python')}"
    rows = [
        f"{where}, {result['size_mb'] / 1000:g} GB each, median of {runs_of_each} runs:",
        "",
        "| log | seconds (all runs) | memory | lines of figures | a loop over lines | `wc -l` |",
        "|---|---|---|---|---|---|",
    ]
    for name, case in result["cases"].items():
        runs = f"{min(case['seconds']):.1f} to {max(case['seconds']):.1f}"
        loop = f"{case['line_loop_s']:.0f} s" if "line_loop_s" in case else "-"
        rows.append(
            f"| {name} | {case['median_s']:.1f} ({runs}) | {case['memory_mb']} MB | {case['windows']:,} | {loop} | "
            f"{case['wc_s']:.1f} s |"
        )
    return "\n".join(rows)


def put_into(page: Path, text: str) -> None:
    """Put a table between its marks in a page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN, 1)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def main() -> int:
    """Measure. Returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    cases: dict[str, Any] = {
        "journal": (".log", vllm_block, prefixed),
        "journal, JSON": (".json", vllm_block, exported),
        "journal, JSON with messages as bytes": (".json", vllm_block, exported_as_bytes),
        "journal, gzipped": (".log.gz", vllm_block, prefixed),
        "SGLang, every second line figures": (".log", sglang_block, prefixed),
        "llama.cpp, nothing but lines of requests": (".log", llamacpp_block, prefixed),
    }
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (suffix, block, shape) in cases.items():
            path = Path(folder) / f"serve{suffix}"
            lines = write(path, args.size_mb * 10**6, block, shape)
            command = [sys.executable, "-m", "draftworth", "metrics", str(path), "--json"]
            runs = [timed(command) for _ in range(args.repeats)]
            seen = json.loads(runs[0][2])["windows_seen"]
            if seen != lines:
                raise SystemExit(f"{name}: {seen} windows read of {lines} written")
            plain = {} if suffix.endswith(".gz") else {"line_loop_s": round(timed(line_loop(path))[0], 2)}
            found[name] = {
                "seconds": [round(run[0], 2) for run in runs],
                "median_s": round(statistics.median(run[0] for run in runs), 2),
                "memory_mb": round(max(run[1] for run in runs)),
                "windows": lines,
                "wc_s": round(timed(["wc", "-l", str(path)])[0], 2),
                **plain,
            }
            print(f"{name}: {found[name]}", flush=True)
            path.unlink()
    result = {
        "schema_version": 1,
        "script": "benchmarks/log_reading.py",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "draftworth": draftworth.__version__,
        "size_mb": args.size_mb,
        "cases": found,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.out == RESULT:
        put_into(DOCS, table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
