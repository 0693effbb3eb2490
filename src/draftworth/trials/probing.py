"""The probe of a trial's baseline (`diagnostics = ["probe"]`): what its steps cost, for the explanation.

It runs while the baseline is up anyway, behind its first measurement, and so costs no start. What goes wrong with it
loses a part of the explanation and never the trial.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import Access, Closed, RequestRow
from draftworth.errors import DraftworthError
from draftworth.findings import Code, Finding, find

if TYPE_CHECKING:
    from draftworth.bench.points import Point
    from draftworth.costs.base import Costs

COSTS = "costs.json"
BUDGET_S = 45.0
_LEAST_S = 10.0
_REPEATS = 4


def probe_baseline(
    url: str,
    folder: Path,
    rows: Sequence[RequestRow],
    *,
    access: Access,
    model: str,
    log: Path | None,
    loads: Iterable[int],
    configs: Iterable[dict[str, Any] | None],
    seconds: float,
    tell: Callable[[str, int, int], None],
) -> Finding | None:
    """Probe a baseline and write `costs.json` into the trial's folder.

    Args:
        url: where it answers.
        folder: the trial's.
        rows: what was measured of it, for the context.
        access: what lets the tool in.
        model: the served name.
        log: its log, for graph sizes and runner; None where there is none to read.
        loads: concurrencies of the trial.
        configs: speculative configurations of the variants, for the longest step.
        seconds: most it may take.
        tell: takes progress: what, done, of how many.

    Returns:
        None where it was probed, else why not.
    """
    from draftworth.costs.file import save_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.probe import Options, probe  # noqa: PLC0415 - lazy
    from draftworth.costs.subject import subject  # noqa: PLC0415 - lazy

    if seconds < _LEAST_S:
        return _not("there was no time left for it")
    most = max([*loads, 1])
    longest = 1 + max((_k(one) for one in configs), default=1)
    sizes = {1, 2, *loads, *(2**at for at in range((most * longest - 1).bit_length() + 1))}
    contexts = [(row.prompt_tokens or 0) + (row.tokens or 0) // 2 for row in rows if row.ok]
    context = max(16, sum(contexts) // len(contexts)) if contexts else 256
    options = Options(
        concurrency=tuple(sorted(sizes)), contexts=(context,), repeats=_REPEATS, budget_s=min(seconds, BUDGET_S)
    )
    try:
        found = subject(url, access=access, model=model, log=log if log is not None and log.exists() else None)
        costs: Costs = probe(found, options, on_cell=tell)
        save_costs(costs, folder / COSTS)
    except (DraftworthError, OSError) as error:
        return _not(str(error))
    return None


def loads_of(sweep: Iterable["Point"]) -> list[int]:
    """Return the concurrencies of a sweep; an open loop has none."""
    return [point.load.concurrency for point in sweep if isinstance(point.load, Closed)]


def _k(config: dict[str, Any] | None) -> int:
    value = (config or {}).get("num_speculative_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _not(why: str) -> Finding:
    return find(Code.NOT_PROBED, f"the baseline was not probed: {why}")
