"""A short run under the engine's own profiler (`diagnostics = ["profile"]`): vLLM's torch profiler.

The profiler has to be configured when the server starts and slows what it watches, so the baseline and the first
variant get a start of their own for it, whose times are compared with nothing else. Traces are read once the service is
back: that takes up to minutes of a processor. Source: vLLM's `--profiler-config` and its `/start_profile` and
`/stop_profile` (0.25 and 0.32).
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.bench.base import Closed, Prompt, RequestRow, Sampling, Target
from draftworth.errors import DraftworthError, MeasureError, TrialError
from draftworth.findings import Code, Finding, find
from draftworth.profiles.vllm import START, STOP, profiler_arguments
from draftworth.trials.ask import bounded
from draftworth.trials.bugs import told

if TYPE_CHECKING:
    from draftworth.profiles.base import Profile

_TAKEN, _UNREAD = ".taken.json", ".unread.txt"
FOLDER = "profiles"
TRIAL = "{trial}"
"""Stands for the trial's folder in an arm's flags, which are made before there is one."""
REQUESTS = 8
"""As many as this, all at a time: the trace of a long run takes minutes to write and to read."""
TOKENS = 64
_OK = 200
_STOP_S = 600.0
"""Writing the trace of some hundred steps with all ranks takes up to minutes."""


def profiler_flags(arm: str) -> tuple[str, ...]:
    """Return what vLLM is started with, so that its profiler writes into the trial's folder."""
    return tuple(profiler_arguments(Path(TRIAL) / FOLDER / arm))


def profile_server(
    target: Target,
    prompts: Sequence[Prompt],
    folder: Path,
    arm: str,
    *,
    at_once: int,
    seconds: float,
    tell: Callable[[str], None],
) -> Finding | None:
    """Profile some requests. The trace is kept below `profiles/<arm>`, for `read_taken`.

    Args:
        target: the server, started with `profiler_flags`.
        prompts: to choose from.
        folder: the trial's.
        arm: its name.
        at_once: concurrency.
        seconds: most it may take.
        tell: takes what is happening now.

    Returns:
        None where it was profiled, else why not.
    """
    from draftworth.bench import run  # noqa: PLC0415 - lazy: the load generator

    traces, until = folder / FOLDER / arm, time.monotonic() + seconds
    traces.mkdir(parents=True, exist_ok=True)

    def ask(path: str, most: float) -> None:
        try:
            bounded(lambda: _post(target, path), max(1.0, min(most, until - time.monotonic())))
        except TrialError:
            raise MeasureError(f"POST {path}: no answer in {most:g} s, or limits.downtime_s was reached") from None

    rows: list[RequestRow] = []
    try:
        for profiled in (False, True):  # the first run warms up: compiled kernels, prefix cache
            if profiled:
                tell("profiling")
                ask(START, 60.0)
            measured = bounded(
                lambda: run.measure(
                    target,
                    prompts=list(prompts)[:REQUESTS],
                    sampling=Sampling(max_tokens=TOKENS, temperature=0.0, seed=0, ignore_eos=True),
                    arm=arm,
                    block=0,
                    load=Closed(at_once),
                    warmup=0,
                ),
                max(1.0, until - time.monotonic()),
            )
            rows = measured.rows
        tell("the profiler writes its trace")
        ask(STOP, _STOP_S)
        answered = [row for row in rows if row.ok and row.tokens]
        tokens = sum((row.tokens or 1) - 1 for row in answered)
        (folder / FOLDER / f"{arm}{_TAKEN}").write_text(json.dumps({"tokens": tokens}) + "\n", encoding="utf-8")
    except (DraftworthError, OSError) as error:
        return _not(arm, str(error))
    return None


def read_taken(folder: Path) -> list[Finding]:
    """Read the traces that a trial took and nobody has read, and keep each profile as `profiles/<arm>.json`.

    Returns:
        What could not be read, and why. It is not tried again.
    """
    from draftworth.profiles.read import read_profile  # noqa: PLC0415 - lazy

    found = []
    for taken in sorted((folder / FOLDER).glob(f"*{_TAKEN}")):
        arm = taken.name.removesuffix(_TAKEN)
        kept_as, unread = taken.with_name(f"{arm}.json"), taken.with_name(f"{arm}{_UNREAD}")
        if kept_as.exists() or unread.exists():
            continue
        try:
            tokens = json.loads(taken.read_text(encoding="utf-8"))["tokens"]
            profile = read_profile([taken.with_name(arm)], tokens=float(tokens) if tokens else None)
            _write(kept_as, profile.model_dump_json(indent=1) + "\n")
        except Exception as error:  # noqa: BLE001 - a bug in reading, kept for a report of it
            found.append(_not(arm, told(error, folder)))
            with contextlib.suppress(OSError):
                _write(unread, found[-1].message + "\n")
    return found


async def _post(target: Target, path: str) -> None:
    """POST without a body.

    Raises:
        MeasureError: no answer, or none that says it was done.
    """
    import aiohttp  # noqa: PLC0415 - lazy

    from draftworth.bench.failures import status_line  # noqa: PLC0415 - lazy
    from draftworth.bench.probes import failure, new_session  # noqa: PLC0415 - lazy

    try:
        async with new_session(access=target.access) as session, session.post(f"{target.base_url}{path}") as answer:
            text = await answer.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise MeasureError(f"POST {path}: {failure(error)}") from error
    if answer.status != _OK:
        why = status_line(answer.status, text, location=None, has_key=bool(target.access.headers))
        raise MeasureError(f"POST {path}: {why}")


def kept(folder: Path, arm: str) -> "Profile | None":
    """Return a profile of a finished trial; None where there is none. Its trace is read where nobody has read it."""
    from draftworth.profiles.base import Profile  # noqa: PLC0415 - lazy

    if (folder / FOLDER / f"{arm}{_TAKEN}").exists():
        read_taken(folder)
    try:
        return Profile.model_validate_json((folder / FOLDER / f"{arm}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _not(arm: str, why: str) -> Finding:
    return find(Code.NOT_PROFILED, f"{arm}: no profile: {why}", arm=arm)
