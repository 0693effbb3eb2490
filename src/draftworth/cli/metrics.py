"""`draftworth metrics`: what a running server, a saved page or a log tells of speculation."""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.bench.base import Access
    from draftworth.readings.base import Reading


def metrics(
    source: Annotated[
        str,
        Parameter(
            help="A server's URL; or a log, a saved page of metrics or JSON, `-` for standard input.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    log: Annotated[Path | None, Parameter(help="The server's log beside its URL or page.")] = None,
    since: Annotated[
        Path | None, Parameter(help="An earlier saved page of the same server: the counts between the two.")
    ] = None,
    watch: Annotated[bool, Parameter(help="Of a URL: show what is new again and again.", negative="")] = False,
    interval: Annotated[float, Parameter(help="With --watch: seconds between two readings.")] = 10.0,
    engine: Annotated[str | None, Parameter(help="vllm, sglang, llamacpp or trtllm; default: recognised.")] = None,
    model: Annotated[str | None, Parameter(help="Only series of this model, where a page has several.")] = None,
    windows: Annotated[int, Parameter(help="Keep this many of a log's newest windows.")] = 1000,
    all_starts: Annotated[
        bool, Parameter(help="Add the windows of every start in a log, not only of the last.", negative="")
    ] = False,
    only: Annotated[str | None, Parameter(help="Of a log: only lines that hold this text, e.g. pid=812.")] = None,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document; with --watch one a line.")
    ] = False,
) -> int:
    """Show the raw counts of speculation, what is derived from them, and what the engine does not tell.

    Reads only: no prompt is sent. A log may be gzipped and of any size; journald's JSON is understood.

    Exits 0 when read, 1 where nothing could be; Ctrl-C ends --watch.
    """
    from draftworth.cli.sources import access_of, is_url  # noqa: PLC0415 - lazy

    if windows < 1:
        raise UsageError(f"--windows: must be at least 1, not {windows}")
    if not interval > 0:
        raise UsageError(f"--interval: must be above 0, not {interval:g}")
    access = access_of(api_key_env=api_key_env, header=header, ca_file=ca_file)
    url = is_url(source)
    if watch and not url:
        raise UsageError("--watch needs the URL of a server; a file does not change its past")
    if since is not None and url:
        raise UsageError("--since compares two saved pages; for a URL use --watch, or save a page first")
    if watch:
        if log is not None:
            raise UsageError("--watch and --log do not go together; read the log on its own")
        return _watch(source, access, engine, model, interval, as_json=as_json)
    reading = _read(source, access, engine, model, since=since, windows=windows, all_starts=all_starts, only=only)
    if log is not None:
        reading = _with_log(reading, log, windows=windows, all_starts=all_starts, only=only)
    _show(reading, as_json=as_json)
    return 0


def _read(
    source: str,
    access: "Access",
    engine: str | None,
    model: str | None,
    *,
    since: Path | None,
    windows: int,
    all_starts: bool,
    only: str | None,
) -> "Reading":
    from draftworth.cli.sources import file_of, is_url, reading_progress  # noqa: PLC0415 - lazy
    from draftworth.readings.file import read_file, read_two  # noqa: PLC0415 - lazy
    from draftworth.readings.server import find_server, read_server  # noqa: PLC0415 - lazy

    if is_url(source):
        return read_server(find_server(source, access=access, name=engine, model=model))
    path = file_of(source)
    if since is not None:
        if path is None:
            raise UsageError("--since needs two files; save the newer page first")
        return read_two(since, path, name=engine, model=model)
    with reading_progress(path) as on_block:
        return read_file(
            path, name=engine, model=model, windows=windows, all_starts=all_starts, only=only, on_block=on_block
        )


def _with_log(reading: "Reading", log: Path, *, windows: int, all_starts: bool, only: str | None) -> "Reading":
    from draftworth.cli.sources import reading_progress  # noqa: PLC0415 - lazy
    from draftworth.readings.join import with_log  # noqa: PLC0415 - lazy
    from draftworth.readings.log import read_log  # noqa: PLC0415 - lazy

    with reading_progress(log) as on_block:
        told = read_log(log, name=reading.engine, windows=windows, all_starts=all_starts, only=only, on_block=on_block)
    return with_log(reading, told)


def _show(reading: "Reading", *, as_json: bool) -> None:
    from draftworth.reports.reading import lines  # noqa: PLC0415 - lazy

    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(json.dumps(reading.document(), indent=1) if as_json else "\n".join(lines(reading)))
        sys.stdout.flush()


def _watch(url: str, access: "Access", engine: str | None, model: str | None, interval: float, *, as_json: bool) -> int:
    """Show what is new since the last reading until a person ends it."""
    from draftworth.errors import MeasureError  # noqa: PLC0415 - lazy
    from draftworth.readings.page import of_difference  # noqa: PLC0415 - lazy
    from draftworth.readings.server import find_server, read_server  # noqa: PLC0415 - lazy
    from draftworth.reports.reading import heading, watch_line  # noqa: PLC0415 - lazy

    live = find_server(url, access=access, name=engine, model=model)
    if live.snapshot is None:
        raise UsageError(f"{live.base_url}: no metrics to watch: {live.why}")
    first, before = read_server(live), live.snapshot
    try:
        if not as_json:
            print(f"{heading(first)}; every {interval:g} s, Ctrl-C ends", flush=True)
            print(watch_line(None), flush=True)
        while True:
            time.sleep(interval)
            now = time.strftime("%H:%M:%S")
            try:
                after = live.scrape(model)
            except MeasureError as error:
                print(json.dumps({"at": now, "error": str(error)}) if as_json else f"{now}  {error}", flush=True)
                continue
            reading = of_difference(live.engine, before, after, source=live.base_url)
            line = json.dumps({"at": now, **reading.document()}) if as_json else f"{now}  {watch_line(reading)}"
            print(line, flush=True)
            before = after
    except (KeyboardInterrupt, BrokenPipeError):
        return 0
