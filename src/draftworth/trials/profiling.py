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
from dataclasses import replace
from functools import partial
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
"""Requests under the profiler, or as many as are sent at a time where that is more: a trace grows by steps, not by the
requests in them, and that of a long run takes minutes to write and to read."""
_ASIDE = 4
"""One of so many prompts is kept for warming up, and of few prompts at least one."""
_WARM = "Name ten towns and say a word about each."
"""Sent to warm up where a trial has one prompt only."""
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
        at_once: concurrency; as many requests run at a time as there are prompts for it.
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

    warming, chosen = warm_and_profiled(prompts, at_once)
    rows: list[RequestRow] = []
    try:
        for profiled, some in ((False, warming), (True, chosen)):  # the first run warms up: compiled kernels
            if profiled:
                tell("profiling")
                ask(START, 60.0)
            measured = bounded(
                partial(
                    run.measure,
                    target,
                    prompts=some,
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


def warm_and_profiled(prompts: Sequence[Prompt], at_once: int) -> tuple[list[Prompt], list[Prompt]]:
    """Return what a server is warmed up with, and what is sent under its profiler: no prompt is in both.

    Suffix decoding keeps finished answers and drafts from them: of prompts that it has answered, temperature 0, every
    draft would be accepted.

    Args:
        prompts: to choose from, of every category; the same choice of the same prompts.
        at_once: requests at a time.
    """
    aside = max(1, len(prompts) // _ASIDE) if len(prompts) > 1 else 0
    many = max(1, min(max(REQUESTS, at_once), len(prompts) - aside))
    places = [at * len(prompts) // many for at in range(many)]
    chosen = [prompts[at] for at in places] if prompts else []
    seen = [(one.messages, one.token_ids) for one in chosen]
    others = [one for one in prompts if (one.messages, one.token_ids) not in seen]
    if not others:
        others = [Prompt(id="warm", category="warm", messages=({"role": "user", "content": _WARM},))]
    warming = [replace(others[at % len(others)], id=f"warm-{at}") for at in range(max(len(chosen), 1))]
    return warming, chosen


def read_taken(folder: Path) -> list[Finding]:
    """Read the traces that a trial took and nobody has read, and keep each profile as `profiles/<arm>.json`.

    Returns:
        What could not be read, and why. It is not tried again before its trace or Draftworth's version is another.
    """
    found = []
    for taken in sorted((folder / FOLDER).glob(f"*{_TAKEN}")):
        arm = taken.name.removesuffix(_TAKEN)
        if not (folder / FOLDER / f"{arm}.json").exists() and _known_why(folder, arm) is None:
            _, why = _read(folder, arm)
            found += [_not(arm, why)] if why else []
    return found


def kept_or_lost(folder: Path, arm: str) -> "tuple[Profile | None, Finding | None]":
    """Return a profile as `kept` does, or why a trial that profiled the arm has none; neither where it did not."""
    profile, why = _kept(folder, arm)
    return profile, _not(arm, why) if why else None


def _read(folder: Path, arm: str) -> "tuple[Profile | None, str]":
    """Read an arm's traces, and keep what they tell, or why they tell nothing, where that can be written."""
    from draftworth.profiles.read import read_profile  # noqa: PLC0415 - lazy

    here = folder / FOLDER
    try:
        tokens = json.loads((here / f"{arm}{_TAKEN}").read_text(encoding="utf-8"))["tokens"]
        profile = read_profile([here / arm], tokens=float(tokens) if tokens else None)
    except Exception as error:  # noqa: BLE001 - a bug in reading, kept for a report of it
        why = told(error, folder).replace(f"{folder}{os.sep}", "")
        with contextlib.suppress(OSError):
            _write(here / f"{arm}{_UNREAD}", f"{_state(folder, arm)}\n{why}\n")
        return None, why
    # Of a trial on a disk that is full, or not one's own, the profile is told all the same.
    with contextlib.suppress(OSError):
        _write(here / f"{arm}.json", profile.model_dump_json(indent=1) + "\n")
        (here / f"{arm}{_UNREAD}").unlink(missing_ok=True)
    return profile, ""


def _known_why(folder: Path, arm: str) -> str | None:
    """Return why an arm's traces, as they are now, could not be read by this version; None where nobody has tried."""
    try:
        state, _, why = (folder / FOLDER / f"{arm}{_UNREAD}").read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return why.strip() if state == _state(folder, arm) else None


def _state(folder: Path, arm: str) -> str:
    """Return what a trial's traces of an arm are told apart by: who reads them, their sizes and names."""
    from draftworth import __version__  # noqa: PLC0415 - lazy

    here = folder / FOLDER / arm
    files = sorted(here.iterdir()) if here.is_dir() else []
    told_by = ", ".join(f"{one.name} {one.stat().st_size}" for one in files)
    return f"draftworth {__version__}: {told_by or 'no traces'}"


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
    """Return a profile of a trial; None where there is none, which `kept_or_lost` tells the reason of.

    Where nobody has read its trace, it is read now and kept beside it, where that can be written.
    """
    return _kept(folder, arm)[0]


def _kept(folder: Path, arm: str) -> "tuple[Profile | None, str]":
    """Return a profile, or why a trial that took one has none."""
    from draftworth.profiles.base import Profile  # noqa: PLC0415 - lazy

    path, damaged = folder / FOLDER / f"{arm}.json", ""
    try:
        return Profile.model_validate_json(path.read_text(encoding="utf-8")), ""
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        damaged = f"{FOLDER}/{path.name} is damaged; without it, it is read from its trace again"
    if damaged or not (folder / FOLDER / f"{arm}{_TAKEN}").exists():
        return None, damaged
    why = _known_why(folder, arm)
    return (None, why) if why is not None else _read(folder, arm)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _not(arm: str, why: str) -> Finding:
    return find(Code.NOT_PROFILED, f"{arm}: no profile: {why}", arm=arm)
