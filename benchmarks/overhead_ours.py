"""Draftworth's own client under load: what the comparison runs as `draftworth`.

    python benchmarks/overhead_ours.py --url http://127.0.0.1:8000 --concurrency 64 --requests 128 --tokens 60

Runs `measure_sync`, as a trial does, and writes what came of it as JSON. With `--stamps` it also compares the arrival
the client noted for each chunk with the server's stamp in it: the pieces of the streams are kept as the client reads
them, and looked into afterwards.
"""

import argparse
import json
import re
import resource
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftworth.bench import client
from draftworth.bench.base import Closed, Prompt, Sampling, Target
from draftworth.bench.run import measure_sync

STAMP = re.compile(rb'"sent": *([0-9]+\.[0-9]{6})')

Piece = tuple[float, bytes]
"""When a piece of a stream arrived, seconds of `perf_counter`, and the piece."""


def keep_pieces() -> list[Piece]:
    """Have every piece of a stream kept as it is parsed, with the arrival the client noted; returns the list."""
    pieces: list[Piece] = []
    take = client._Reader.take  # noqa: SLF001 - only here are pieces without framing and not yet parsed

    def noted(self: client._Reader, times: Sequence[float], bodies: Sequence[bytes]) -> None:
        pieces.extend(zip(times, bodies, strict=True))
        take(self, times, bodies)

    client._Reader.take = noted  # type: ignore[method-assign] # noqa: SLF001 - the client itself keeps no pieces
    return pieces


def behind_ms(pieces: Sequence[Piece]) -> dict[str, float]:
    """Return how much later than sent the chunks arrived. One that was cut within its stamp is not counted."""
    late = sorted((at - float(stamp)) * 1e3 for at, piece in pieces for stamp in STAMP.findall(piece))
    if not late:
        raise SystemExit("no stamps arrived: the server is not the scripted one, or the hook is at the wrong place")
    tail = late[len(late) * 99 // 100]
    return {"chunks": len(late), "median": statistics.median(late), "p99": tail, "min": late[0], "max": late[-1]}


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="of each answer")
    parser.add_argument("--stamps", action="store_true", help="compare arrivals with the server's stamps")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    options = parser.parse_args()
    prompts = [
        Prompt(
            f"p{number}", "overhead", ({"role": "user", "content": f"Count from {number} to {number + 9}, please."},)
        )
        for number in range(options.requests)
    ]
    pieces = keep_pieces() if options.stamps else []
    found = measure_sync(
        Target(options.url, "scripted"),
        prompts,
        Sampling(max_tokens=options.tokens),
        arm="overhead",
        block=1,
        load=Closed(options.concurrency),
        warmup=0,
    )
    rows, health = found.rows, found.client
    wrong = next((row.error for row in rows if not row.ok), None)
    result: dict[str, Any] = {
        "ok": sum(row.ok for row in rows),
        "rows": len(rows),
        "chunks": sum(row.chunks for row in rows),
        "error": wrong,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "cpu_s": health.cpu_s,
        "lag_ms": health.lag_ms,
    }
    if options.stamps:
        result["behind_ms"] = behind_ms(pieces)
    options.out.write_text(json.dumps(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
