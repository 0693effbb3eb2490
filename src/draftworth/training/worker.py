"""Runs a worker in the training environment and takes what it tells, line by line."""

import json
import os
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.engines.install.children import child_env, end
from draftworth.errors import RefusedError, TrialError
from draftworth.training.base import Tell
from draftworth.training.environment import BOOT
from draftworth.training.stages import write_atomically

GRACE_S = 20.0
"""Seconds that a worker or a server has to end before it is killed: a checkpoint may be at work."""
_TAIL = 3
_INTERRUPTED = 3


def run_worker(
    python: Path,
    module: str,
    request: Mapping[str, Any],
    *,
    folder: Path,
    tell: Tell,
    processes: int = 1,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run one worker to its end.

    More than one process runs under torchrun; that was written, and not run on two GPUs here.

    Args:
        python: the environment's interpreter.
        module: which module of `workers`.
        request: what it is to do; JSON.
        folder: where its request and its log are put.
        tell: takes what it tells.
        processes: one for each GPU.
        env: variables beside this process's own.

    Returns:
        Its result.

    Raises:
        RefusedError: it refused, before anything costly.
        TrialError: it failed; names its log.
    """
    asked, log = folder / f"{module}.request.json", folder / f"{module}.log"
    write_atomically(asked, json.dumps(dict(request), indent=1).encode())
    command: list[str | Path] = [python]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command += [BOOT, module, asked]
    environ = {**child_env(os.environ), **_VARIABLES, **(env or {})}
    with log.open("ab") as errors:
        errors.write(f"\n--- {time.strftime('%Y-%m-%d %H:%M:%S')} {module}\n".encode())
        errors.flush()
        child = subprocess.Popen(
            [str(one) for one in command],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            result, failure = _follow(child, tell)
            code = child.wait()
        finally:
            end(child, GRACE_S)
    if failure is not None:
        if failure[0] == "refused":
            raise RefusedError(failure[1])
        raise TrialError(f"{module} failed: {failure[1]} (all it printed is in {log})")
    if result is None:
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        how = f"exit {code}" if code >= 0 else f"ended by signal {-code}"
        raise TrialError(f"{module} ended without a result ({how}): {last_words(log)} (all it printed is in {log})")
    return result


_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def _follow(child: "subprocess.Popen[str]", tell: Tell) -> tuple[dict[str, Any] | None, tuple[str, str] | None]:
    result: dict[str, Any] | None = None
    failure: tuple[str, str] | None = None
    assert child.stdout is not None
    with child.stdout as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # not the worker's: torchrun's
            match event:
                case {"event": "now"}:
                    tell.now(str(event["text"]))
                case {"event": "count"}:
                    tell.count(int(event["done"]), int(event["total"]), str(event["note"]))
                case {"event": "line"}:
                    tell.line(str(event["text"]))
                case {"event": "result"}:
                    result = event["result"]
                case {"event": "failed"}:
                    failure = (str(event["kind"]), str(event["text"]))
    return result, failure


def last_words(log: Path) -> str:
    """Return the last lines of a log as one."""
    with log.open(encoding="utf-8", errors="replace") as file:
        lines: Sequence[str] = deque((line.strip() for line in file if line.strip()), maxlen=_TAIL)
    return " / ".join(lines) or "it printed nothing"
