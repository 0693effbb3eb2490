"""The probe of a trial's baseline (`diagnostics = ["probe"]`): what its steps cost, for the explanation.

It runs while the baseline is up anyway, behind its first measurement (between endpoints behind everything), and so
costs no start. What goes wrong with it loses a part of the explanation and never the trial.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import Access, Closed, RequestRow
from draftworth.findings import Code, Finding, find
from draftworth.trials.bugs import told

if TYPE_CHECKING:
    from draftworth.bench.points import Point
    from draftworth.costs.base import Costs

COSTS = "costs.json"
BUDGET_S = 45.0
_LEAST_S = 10.0
_REPEATS = 4
_BLOCK = 128
"""Tokens of a block of vLLM's KV cache on a CPU; blocks on GPUs divide it."""
_MOST = 64
"""Most streams at a time: the service that is probed may be in use, and more say little that is new."""
_SEATS = re.compile(r"--(?:max[-_]num[-_]seqs|max[-_]running[-_]requests|parallel)(?:=(\d+))?")
_TOLD = ("args.max_num_seqs", "max_num_seqs", "scheduler_config.max_num_seqs")


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
    seats: int | None,
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
        seats: most requests the server runs at a time, where that is known.
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
    contexts = [(row.prompt_tokens or 0) + (row.tokens or 0) // 2 for row in rows if row.ok]
    mean = sum(contexts) / len(contexts) if contexts else _BLOCK
    # A cached prefix is one of whole blocks: of another length no prefix could be timed.
    context = max(1, round(mean / _BLOCK)) * _BLOCK
    options = Options(
        concurrency=sizes_of(loads, configs, seats=seats),
        contexts=(context,),
        repeats=_REPEATS,
        budget_s=min(seconds, BUDGET_S),
    )
    try:
        found = subject(url, access=access, model=model, log=log if log is not None and log.exists() else None)
        costs: Costs = probe(found, options, on_cell=tell)
        save_costs(costs, folder / COSTS)
    except Exception as error:  # noqa: BLE001 - a bug in what the verdict does not need
        return _not(told(error, folder))
    return None


def sizes_of(
    loads: Iterable[int], configs: Iterable[Mapping[str, Any] | None], *, seats: int | None = None
) -> tuple[int, ...]:
    """Return the numbers of streams that are probed, sorted.

    They reach as far as the longest step of a variant: the largest load times k + 1; never beyond what the server runs
    at a time, and never beyond 64.

    Args:
        loads: concurrencies of the trial.
        configs: speculative configurations of the variants.
        seats: most requests the server runs at a time, where that is known.
    """
    wanted = [one for one in loads if one > 0]
    most = max([*wanted, 1]) * (1 + max((_k(one) for one in configs), default=1))
    most = max(1, min(most, _MOST, seats or _MOST))
    return tuple(sorted({one for one in (1, 2, *wanted, most, *(2**at for at in range(7))) if one <= most}))


def about_probe(sizes: Sequence[int]) -> str:
    """Return what a probe does, for a plan: its time, its streams, and its requests at most."""
    from draftworth.costs.prefix import SHOTS  # noqa: PLC0415 - lazy
    from draftworth.costs.probe import Options  # noqa: PLC0415 - lazy

    behind = len(Options().tokens)  # one new token, and each number but the one that the others are compared with
    requests = (_REPEATS + 1) * sum(sizes) + behind * (2 * SHOTS * _REPEATS + 2) + 3
    return (
        f"probe what a step of the baseline costs: up to {BUDGET_S:g} s, up to {max(sizes)} streams at a time, at most "
        f"{requests} short requests beside the measured ones"
    )


def seats_in(command: Sequence[str], config: Mapping[str, str]) -> int | None:
    """Return how many requests a server runs at a time at most, where its log or its command says it.

    Args:
        command: what starts it.
        config: what its log tells of its configuration.
    """
    for name in _TOLD:
        value = config.get(name, "").strip("'\"")
        if value.isdigit() and int(value):
            return int(value)
    words = " ".join(command).split()  # a shell's line is one word of the command
    for at, word in enumerate(words):
        found = _SEATS.fullmatch(word)
        value = (found[1] or "".join(words[at + 1 : at + 2])) if found else ""
        if value.isdigit() and int(value):
            return int(value)
    return None


def loads_of(sweep: Iterable["Point"]) -> list[int]:
    """Return the concurrencies of a sweep; an open loop has none."""
    return [point.load.concurrency for point in sweep if isinstance(point.load, Closed)]


def _k(config: Mapping[str, Any] | None) -> int:
    value = (config or {}).get("num_speculative_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _not(why: str) -> Finding:
    return find(Code.NOT_PROBED, f"the baseline was not probed: {why}")
