"""The bench as a trial uses it: synchronous, each call bounded in time."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from draftworth.bench.base import Prompt, RequestRow, ScoredOutput, Target
from draftworth.errors import TrialError, UsageError

T = TypeVar("T")


def bounded(work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """Run asynchronous work to its end or its deadline.

    Raises:
        TrialError: the deadline passed.
    """

    async def main() -> T:
        async with asyncio.timeout(timeout_s):
            return await work()

    try:
        return asyncio.run(main())
    except TimeoutError:
        raise TrialError(
            "limits.downtime_s was reached while requests were running; raise it, or send fewer requests"
        ) from None


def score(
    target: Target,
    rows: Sequence[RequestRow],
    *,
    max_positions: int,
    timeout_s: float,
    on_done: Callable[[int, int], None],
) -> list[ScoredOutput]:
    """Score outputs on a server; see `bench.score.score`."""
    from draftworth.bench import score as scoring  # noqa: PLC0415 - lazy: aiohttp

    return bounded(lambda: scoring.score(target, rows, max_positions=max_positions, on_done=on_done), timeout_s)


def model_length(url: str, model: str) -> int | None:
    """Return the served model's longest context in tokens, or None where the server does not tell.

    Raises:
        MeasureError: the server did not answer.
    """
    from draftworth.bench.probes import fetch_text  # noqa: PLC0415 - lazy: aiohttp

    data = json.loads(bounded(lambda: fetch_text(url, "/v1/models"), 30.0))
    for entry in data.get("data", []):
        if entry.get("id") == model and isinstance(entry.get("max_model_len"), int):
            return int(entry["max_model_len"])
    return None


def load_prompts(source: str, categories: Sequence[str] | None, per_category: int | None) -> tuple[Prompt, ...]:
    """Return a workload's prompts.

    Args:
        source: `builtin` or the path of a JSONL file.
        categories: only these, None for all.
        per_category: at most this many of each, None for all.

    Raises:
        UsageError: the file is wrong, or a category is not in it.
    """
    from draftworth.bench import workload  # noqa: PLC0415 - lazy

    if source == "builtin":
        return workload.builtin(categories, per_category)
    prompts = workload.from_jsonl(source)
    known = list(dict.fromkeys(prompt.category for prompt in prompts))
    for name in categories or ():
        if name not in known:
            raise UsageError(f"{source}: no prompt is of category {name!r}; there are: {', '.join(known)}")
    chosen: list[Prompt] = []
    taken: dict[str, int] = {}
    for prompt in prompts:
        if categories is not None and prompt.category not in categories:
            continue
        taken[prompt.category] = taken.get(prompt.category, 0) + 1
        if per_category is None or taken[prompt.category] <= per_category:
            chosen.append(prompt)
    return tuple(chosen)
