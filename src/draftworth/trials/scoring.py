"""The output check of a trial: how much may be scored without endangering the server, and the scoring itself."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from draftworth.bench.base import RequestRow, ScoredOutput, Target
from draftworth.errors import MeasureError
from draftworth.trials.ask import score

_VOCABULARY_UNKNOWN = 262_144  # larger than the vocabularies in common use, so the bound errs on the safe side
_SMALLEST_USEFUL = 16


def vocabulary(model_path: Path | None) -> int:
    """Return the vocabulary's size from a model folder's config.json; a safe over-estimate where it cannot be read."""
    if model_path is None:
        return _VOCABULARY_UNKNOWN
    try:
        data = json.loads((model_path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return _VOCABULARY_UNKNOWN
    for place in (data, data.get("text_config", {})):
        size = place.get("vocab_size")
        if isinstance(size, int) and size > 0:
            return size
    return _VOCABULARY_UNKNOWN


def free_memory(device: str | None, pids: Sequence[int]) -> int | None:
    """Return the bytes free where the server's logits live: the machine's for a CPU, the fullest of its GPUs else.

    Args:
        device: the engine's own word (`cpu`, `cuda`), or None where its log did not tell.
        pids: the server's processes, to find its GPUs.
    """
    if device == "cpu":
        import psutil  # noqa: PLC0415 - lazy

        return int(psutil.virtual_memory().available)
    return _free_gpu_memory(set(pids))


def _free_gpu_memory(pids: set[int]) -> int | None:
    try:
        import pynvml  # noqa: PLC0415 - optional: only hosts with an NVIDIA driver have a use for it
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        free: list[int] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            users = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
            if users & pids:
                free.append(int(pynvml.nvmlDeviceGetMemoryInfo(handle).free))
    except pynvml.NVMLError:
        return None
    return min(free, default=None)


def score_all(
    target: Target,
    rows: dict[str, Sequence[RequestRow]],
    *,
    limit: int,
    most: int,
    timeout_s: float,
    on_count: Callable[[int, int, str], None],
) -> dict[str, list[ScoredOutput]]:
    """Score each arm's outputs on one server.

    Args:
        target: the baseline server.
        rows: arm to its greedy answers.
        limit: most positions of prompt and output together.
        most: most outputs of each arm.
        timeout_s: seconds it may take.
        on_count: takes outputs done, in all, and whose.

    Raises:
        MeasureError: the server refused, or the time was up.
    """
    if limit < _SMALLEST_USEFUL:
        raise MeasureError(f"only {limit} positions fit into the server's free memory")
    chosen = {
        arm: [row for row in some if row.ok and row.token_ids and row.repeat == 0][:most] for arm, some in rows.items()
    }
    total = sum(map(len, chosen.values()))
    done = 0
    scored: dict[str, list[ScoredOutput]] = {}
    for arm, some in chosen.items():

        def count(_done: int, _total: int, *, arm: str = arm) -> None:
            nonlocal done
            done += 1
            on_count(done, total, f"outputs of {arm}")

        scored[arm] = score(target, some, max_positions=limit, on_done=count, timeout_s=timeout_s)
    return scored
