"""The bench as a trial uses it: synchronous, each call bounded in time."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from draftworth.bench.base import Access, RequestRow, ScoredOutput, Target
from draftworth.errors import TrialError

if TYPE_CHECKING:
    from draftworth.trials.config import AccessConfig

T = TypeVar("T")


def bounded(work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """Run asynchronous work to its end or its deadline.

    Raises:
        TrialError: the deadline passed.
    """
    from draftworth.bench.loop import run_on_loop  # noqa: PLC0415 - lazy

    async def main() -> T:
        async with asyncio.timeout(timeout_s):
            return await work()

    try:
        return run_on_loop(main)
    except TimeoutError:
        raise TrialError(
            "limits.downtime_s was reached while requests were running; raise it, or send fewer requests"
        ) from None


def access_of(service: "AccessConfig") -> Access:
    """Return what lets the tool into a service, keys read from the environment.

    Raises:
        UsageError: a variable is not set, or a header is none.
    """
    from draftworth.bench.access import access  # noqa: PLC0415 - lazy

    return access(
        api_key_env=service.api_key_env,
        headers=service.headers,
        headers_env=service.headers_env,
        ca_file=service.ca_file,
        key_name="service.api_key_env",
    )


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


def model_length(target: Target) -> int | None:
    """Return the served model's longest context in tokens, or None where the server does not tell.

    Raises:
        MeasureError: the server did not answer.
    """
    from draftworth.bench.probes import fetch_text  # noqa: PLC0415 - lazy: aiohttp

    data = json.loads(bounded(lambda: fetch_text(target.base_url, "/v1/models", access=target.access), 30.0))
    for entry in data.get("data", []):
        if entry.get("id") == target.model and isinstance(entry.get("max_model_len"), int):
            return int(entry["max_model_len"])
    return None
