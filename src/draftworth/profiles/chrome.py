"""PyTorch's profiler: a Chrome trace, one file a rank, plain or gzip.

Categories and fields as Kineto writes them (libkineto, output_json.cpp, ActivityType.cpp): `kernel`, `gpu_memcpy` and
`gpu_memset` with their device and stream, `cuda_runtime` and `cuda_driver` calls with the correlation their kernels
carry too, `cpu_op`, `user_annotation` and, where a GPU followed one, `gpu_user_annotation`.
"""

from pathlib import Path

from draftworth.errors import UsageError
from draftworth.profiles.events import NO_LINK, Recorded, Spans, interval_of, link_of
from draftworth.profiles.gunzip import Gunzip, Readable
from draftworth.profiles.scan import Event, Scan

GZIP = b"\x1f\x8b"
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_OPS = frozenset({"cpu_op", "operator"})


def read_chrome(path: Path) -> Recorded:
    """Read a Chrome trace; a damaged or cut file gives what could be read, with `complete` false and a note.

    Raises:
        UsageError: not a trace, or nothing in it.
    """
    with path.open("rb") as file:
        start = file.read(len(GZIP))
        file.seek(0)
        if start == GZIP:
            return _read(Gunzip(file), path)
        return _read(file, path)


def _read(file: Readable, path: Path) -> Recorded:
    scan = Scan(file, str(path))
    found = Recorded(source=str(path))
    seen = timeless = 0
    for events in scan.batches():
        seen += len(events)
        for event in events:
            if event.ph == "X":
                timeless += not _take(found, event)
            elif event.ph == "M" and event.name == "process_name" and event.args and event.args.name:
                found.meta.setdefault("processes", []).append(event.args.name)
    found.meta |= scan.head
    found.complete = scan.complete
    if not seen:
        raise UsageError(f"{path}: a trace without events{'; ' + scan.broken if scan.broken else ''}")
    if not scan.complete:
        found.notes.append(
            f"{scan.broken}: {scan.read / 1e6:,.1f} MB of text with {seen:,} events were read, the rest is missing"
        )
    if scan.unread:
        found.notes.append(f"{scan.unread:,} events are no JSON and were left out")
    if timeless:
        found.notes.append(f"left out, their time or duration cannot be one: {timeless:,} of the events")
    return found


def _take(found: Recorded, event: Event) -> bool:
    """Keep what is wanted of an event. Returns whether its time can be one."""
    category = (event.cat or "").lower()
    if event.ts is None or category in {"python_function", "", "trace"}:
        return True
    when = interval_of(event.ts, event.dur)
    if when is None:
        return False
    args = event.args
    link = NO_LINK if args is None else link_of(args.correlation)
    if category in _ON_DEVICE:
        name = str(event.name)
        if args is not None and args.collective and "Generic" in name:
            name = f"{name} {args.collective}"
        target = found.device(_number(found, event.pid if args is None or args.device is None else args.device))
        lane = event.tid if args is None or args.stream is None else args.stream
    elif category in _OPS:
        name, target, lane = str(event.name), found.ops, event.tid
    elif category == "user_annotation":
        name, target, lane = str(event.name), found.marks, event.tid
    elif category == "gpu_user_annotation":
        target = found.device_marks.setdefault(_number(found, event.pid), Spans())
        name, lane = str(event.name), event.tid
    elif category.endswith(("runtime", "driver")):
        name, target, lane = str(event.name), found.calls, event.tid
    else:
        return True
    found.seen(*when)
    target.add(*when, found.names(name), found.lanes(str(lane)), link)
    return True


def _number(found: Recorded, device: int | str | None) -> int:
    try:
        return int(device or 0)
    except ValueError:
        return 1000 + found.lanes(str(device))
