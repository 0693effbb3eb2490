"""The output check of a trial: how much may be scored without endangering the server, and the scoring itself."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from draftworth.bench.base import RequestRow, ScoredOutput, Target
from draftworth.errors import MeasureError, TrialError
from draftworth.trials.ask import model_length, score
from draftworth.trials.config import BASELINE

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

T = TypeVar("T")

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
    import pynvml  # noqa: PLC0415 - lazy: only where a server does not run on the CPU

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


def check_scores(engine: "Engine") -> None:
    """Refuse to score on an engine that cannot.

    Raises:
        MeasureError: it cannot; says what to do.
    """
    if not engine.scores:
        raise MeasureError(
            f"{engine.title} does not tell the log-probabilities of given tokens; compare the answers yourself and set "
            "verdict.output_check = false for a verdict on speed alone"
        )


def score_limit(device: str | None, pids: Sequence[int], model_path: Path | None, target: Target) -> int:
    """Return the most positions (prompt and output together) that may be scored without endangering the server.

    Args:
        device: the engine's own word for where it runs, or None.
        pids: the server's processes.
        model_path: the model's folder, for its vocabulary, or None.
        target: the server.

    Raises:
        MeasureError: the free memory cannot be read, or the server does not answer.
    """
    from draftworth.bench.score import scored_length_limit  # noqa: PLC0415 - lazy: aiohttp

    free = free_memory(device, pids)
    if free is None:
        raise MeasureError(
            f"the free memory of the server's device ({device or 'unknown'}) cannot be read, and prompt "
            "log-probabilities must not endanger it"
        )
    limit = scored_length_limit(vocabulary(model_path), free)
    return within_context(limit, target)


def within_context(limit: int, target: Target) -> int:
    """Return a limit of positions that also fits the served model's context.

    Raises:
        MeasureError: the server does not answer.
    """
    try:
        longest = model_length(target)
    except MeasureError:
        raise
    except TrialError as error:
        raise MeasureError(f"/v1/models did not answer in time: {error}") from None
    return min(limit, longest - 1) if longest else limit


def score_all(
    target: Target,
    rows: Mapping[str, Sequence[RequestRow]],
    *,
    limit: int,
    most: int,
    timeout_s: float,
    on_count: Callable[[int, int, str], None],
) -> dict[str, list[ScoredOutput]]:
    """Score each arm's outputs on one server.

    The same prompts are scored for every arm, see `checked`.

    Args:
        target: the baseline server.
        rows: arm to its greedy answers.
        limit: most positions of prompt and output together.
        most: most outputs of each arm.
        timeout_s: seconds all arms together may take.
        on_count: takes outputs done, in all, and whose.

    Raises:
        MeasureError: the server refused, or the time was up.
    """
    deadline = time.monotonic() + timeout_s
    if limit < _SMALLEST_USEFUL:
        raise MeasureError(f"only {limit} positions fit into the server's free memory")
    chosen = checked(rows, most)
    total = sum(map(len, chosen.values()))
    done = 0
    scored: dict[str, list[ScoredOutput]] = {}
    for arm, some in chosen.items():

        def count(_done: int, _total: int, *, arm: str = arm) -> None:
            nonlocal done
            done += 1
            on_count(done, total, f"outputs of {arm}")

        try:
            left = max(0.0, deadline - time.monotonic())
            scored[arm] = score(target, some, max_positions=limit, on_done=count, timeout_s=left)
        except MeasureError:
            raise
        except TrialError:
            raise MeasureError(
                f"the time was up after {done} of {total} outputs were scored; raise limits.downtime_s, or lower "
                "verdict.output_check_prompts"
            ) from None
    return scored


def checked(rows: Mapping[str, Sequence[RequestRow]], most: int) -> dict[str, list[RequestRow]]:
    """Return the answers to score: to the same prompts in every arm, spread over the categories.

    Answers come in as they finish, the longest last, so the first ones would be other prompts in each arm and the
    short answers of all. Chosen are prompts that every arm answered with token ids (an arm that has none at all
    is left out of this), in the order in which the baseline was sent them.

    Args:
        rows: arm to its answers, in any order.
        most: most prompts.
    """
    usable = {
        arm: {row.prompt_id: row for row in some if row.ok and row.token_ids and row.repeat == 0}
        for arm, some in rows.items()
    }
    told = {arm: some for arm, some in usable.items() if some}
    first = told.get(BASELINE) or next(iter(told.values()), {})
    common = [row for name, row in first.items() if all(name in some for some in told.values())]
    common.sort(key=lambda row: row.started_unix)
    prompts = [row.prompt_id for row in spread(common, most, category=lambda row: row.category)]
    return {arm: [some[name] for name in prompts if name in some] for arm, some in usable.items()}


def spread(items: Sequence[T], most: int, *, category: Callable[[T], str]) -> list[T]:
    """Return at most `most` items, one of each category in turn, and each category's in the order given."""
    columns: dict[str, list[T]] = {}
    for item in items:
        columns.setdefault(category(item), []).append(item)
    longest = max(map(len, columns.values()), default=0)
    turns = [column[index] for index in range(longest) for column in columns.values() if index < len(column)]
    return turns[:most]
