"""What reading a large profile takes: into benchmarks/results/profile_reading.json and docs/profiles.md.

    python -m benchmarks.profile_reading          (a few minutes, 2 GB of disk for a while)
    python -m benchmarks.profile_reading --page   (the table again, of what was measured)

Decode steps of a real trace (a null draft on an H200, as an arm of Draftworth's is profiled: without stacks) are laid
end to end until the text is as long as wanted, printed as Kineto prints it: each event indented on lines of its own,
with the two arrows from each launch to its kernel. Each trace is read by a process of its own.
"""

import argparse
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from io import BufferedWriter

from benchmarks.pages import write_between

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "profiles" / "data" / "vllm_h200_moe_null-draft.pt.trace.json.gz"
RESULT = ROOT / "benchmarks" / "results" / "profile_reading.json"
PAGE = ROOT / "docs" / "profiles.md"
BEGIN, END = "<!-- reading: by benchmarks/profile_reading.py -->", "<!-- end of reading -->"
CASES = (("gzip", 0.25e9, 0.0), ("gzip", 1e9, 0.0), ("plain", 1e9, 0.0), ("gzip", 0.25e9, 1.0))
"""How it is written, bytes of text, share of the steps that hold a `nan`."""
MARGIN_US = 100.0
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
IMPORTS = "import sys; from pathlib import Path; from draftworth.profiles.read import read_profile"
READ = f"{IMPORTS}; print(read_profile([Path(sys.argv[1])]).steps)"


def one_step() -> tuple[list[dict[str, Any]], float]:
    """Return the events of one decode step, and how long it lasts, in µs."""
    told = json.loads(gzip.decompress(SOURCE.read_bytes()))["traceEvents"]
    marks = sorted(one["ts"] for one in told if str(one["name"]).startswith("execute_context"))
    begin, end = marks[0] - MARGIN_US, marks[1] - MARGIN_US
    host = [one for one in told if one["cat"] not in ON_GPU and begin <= one["ts"] < end]
    launched = {one["args"]["correlation"] for one in host if "correlation" in one.get("args", {})}
    gpu = [one for one in told if one["cat"] in ON_GPU and one["args"]["correlation"] in launched]
    arrows = []
    for one in gpu:
        arrow = {"id": one["args"]["correlation"], "pid": one["pid"], "tid": one["tid"], "ts": one["ts"]}
        arrows += [{"ph": ph, **arrow, "cat": "ac2g", "name": "ac2g"} for ph in ("s", "f")]
    return [*host, *gpu, *arrows], end - begin


def texts(size: float, broken: float) -> Iterator[str]:
    """Yield a trace of at least so many bytes: its head, then step after step."""
    events, long = one_step()
    yield '{\n  "schemaVersion": 1,\n  "traceEvents": [\n'
    links = sorted({one.get("args", {}).get("correlation", one.get("id", 0)) for one in events})
    pieces = []
    for event in events:
        text = re.sub("^", "  ", json.dumps(event, indent=2), flags=re.MULTILINE).replace("%", "%%")
        text = text.replace(f'"ts": {event["ts"]}', '"ts": %.3f', 1)
        link = event.get("args", {}).get("correlation", event.get("id"))
        for name in ("correlation", "id") if link is not None else ():
            text = text.replace(f'"{name}": {link}', f'"{name}": %d', 1)
        order = sorted((text.find(sign), what) for sign, what in (("%.3f", "ts"), ("%d", "link")) if sign in text)
        pieces.append((text, [(what, event["ts"] if what == "ts" else links.index(link)) for _, what in order]))
    template = ",\n".join(text for text, _ in pieces)
    wanted = [one for _, some in pieces for one in some]
    done = number = 0
    while done < size:
        first = number * len(links) + 1
        values = [value + number * long if what == "ts" else first + value for what, value in wanted]
        text = template % tuple(values)
        if number < broken * size / max(len(text), 1):
            text = text.replace('"est. achieved occupancy %": 0', '"est. achieved occupancy %": nan', 1)
        done += len(text)
        yield text if not number else f",\n{text}"
        number += 1
    yield "\n  ]\n}\n"


def write(path: Path, how: str, size: float, broken: float) -> dict[str, float]:
    """Write a trace. Returns its bytes of text, events and steps."""
    events = len(one_step()[0])
    length = steps = 0
    with open_to(path, how) as file:
        for number, text in enumerate(texts(size, broken)):
            file.write(text.encode())
            length += len(text)
            steps = number
    return {"bytes": length, "steps": steps - 1, "events": events * (steps - 1)}


def open_to(path: Path, how: str) -> "gzip.GzipFile | BufferedWriter":
    """Open a file that is written plain or through gzip."""
    return gzip.open(path, "wb", compresslevel=1) if how == "gzip" else path.open("wb")


def measured(path: Path) -> dict[str, float]:
    """Read a trace in a process of its own. Returns seconds of processor time, and MB of memory at most."""
    with subprocess.Popen([sys.executable, "-c", READ, str(path)], stdout=subprocess.PIPE) as process:
        told = process.stdout.read().decode() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{path}: not read")
    return {"seconds": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1e3, "told_steps": int(told)}


def idle() -> dict[str, float]:
    """Return what a process takes that reads nothing: Python and its imports."""
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1e3}


def measure() -> None:
    """Write, read and remove each trace, and keep what that took."""
    found: dict[str, Any] = {"nothing": idle(), "cases": []}
    for how, size, broken in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"rank0.1.pt.trace.json{'.gz' if how == 'gzip' else ''}"
            case = {"how": how, "nan": broken > 0, **write(path, how, size, broken)}
            case |= {"file_bytes": path.stat().st_size, **measured(path)}
        print(json.dumps(case), flush=True)
        found["cases"].append(case)
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def table(found: dict[str, Any]) -> list[str]:
    """Return the page's table."""
    rows = [
        "| trace | text | events | processor time | text a second | memory at most |",
        "|---|---|---|---|---|---|",
    ]
    for one in found["cases"]:
        what = f"{one['how']}{', a `nan` in each step' if one['nan'] else ''}"
        rows.append(
            f"| {what} | {one['bytes'] / 1e9:.2f} GB | {one['events'] / 1e6:.1f} M | {one['seconds']:.1f} s | "
            f"{one['bytes'] / 1e6 / one['seconds']:.0f} MB | {one['mb']:.0f} MB |"
        )
    return rows


def page() -> None:
    """Write the table into the page."""
    write_between(PAGE, (BEGIN, END), table(json.loads(RESULT.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the page of what was measured before")
    if not parser.parse_args().page:
        measure()
    page()
