"""The search replayed over grids with a known best: reloads it takes, whether it finds the winner, what it loses.

    python -m benchmarks.search_replay [--grids 40]

Reads benchmarks/data/prediction/ (search_grids.py says what of a grid is measured and what is drawn); writes
benchmarks/results/search.json and the tables of docs/search.md.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.pages import write_between
from benchmarks.search_draws import Grid, as_measured, draw, within_of
from benchmarks.search_grids import Run, load_run

from draftworth.search.base import LogSpeed, Observation
from draftworth.search.belief import Sizes
from draftworth.search.policy import next_candidate
from draftworth.search.rules import Rules
from draftworth.trials.config_search import SearchConfig
from draftworth.verdicts.rules import restart_priors

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "prediction"
RESULT = ROOT / "benchmarks" / "results" / "search.json"
PAGE = ROOT / "docs" / "search.md"
BEGIN, END = "<!-- search: by benchmarks/search_replay.py -->", "<!-- end of search -->"
LIGHT = 0.15
"""What the H200's n-gram mode is multiplied by in grids of an engine that was not measured."""
MEASURE_S = 300.0
SEED = 8
THIRD = 1 / 3
PLAIN = frozenset({"h200-smollm2-a", "h200-smollm2-b"})
"""Runs in which every setting halves the speed: a search has nothing to decide there, so they are not pooled."""
TWICE = ("search", "predicted order, as many reloads", "random order, as many reloads")


@dataclass(frozen=True)
class Outcome:
    """How one order of measuring ended on one grid.

    Attributes:
        reloads: candidates that were started.
        share: of the whole grid's.
        exact: whether its winner is the one of the whole grid, by what was measured, mean over the loads.
        alike: the same, or slower by no more than one sd of the difference of two starts.
        loads_exact: share of the loads whose own winner is the whole grid's.
        loads_alike: the same within one sd of the difference.
        lost: log speed, as measured, that its winner lacks to the whole grid's.
        lost_true: the same without the errors of starts: below 0 where the whole grid picked a lucky start.
        lost_best: true log speed that its winner lacks to the truly best setting.
    """

    reloads: int
    share: float
    exact: bool
    alike: bool
    loads_exact: float
    loads_alike: float
    lost: float
    lost_true: float
    lost_best: float


def outcome(grid: Grid, tried: Sequence[int]) -> Outcome:
    """Return how the winner of some of a grid's candidates, or the baseline, compares with that of all."""
    measured, true = (np.vstack([np.zeros(each.shape[1]), each]) for each in (grid.measured, grid.true))
    mine = [0, *(at + 1 for at in tried)]
    noise = math.sqrt(2) * grid.start_sd
    mean, loads = measured.mean(axis=1), measured.shape[1]
    full, found = int(mean.argmax()), mine[int(mean[mine].argmax())]
    by_load = measured.max(axis=0) - measured[mine].max(axis=0)
    lost = float(mean[full] - mean[found])
    truth = true.mean(axis=1)
    return Outcome(
        reloads=len(tried),
        share=len(tried) / len(grid.candidates),
        exact=full == found,
        alike=lost <= noise / math.sqrt(loads),
        loads_exact=float((by_load == 0).mean()),
        loads_alike=float((by_load <= noise).mean()),
        lost=lost,
        lost_true=float(truth[full] - truth[found]),
        lost_best=float(truth.max() - truth[found]),
    )


def rules_of(run: Run) -> Rules:
    """Return what the tool would decide by on this machine: the defaults of `[search]`."""
    baseline, variant = restart_priors("cpu" if run.cpu else None)
    asked = SearchConfig()
    return Rules(
        loads=run.loads,
        together=asked.together,
        min_gain=asked.min_gain,
        min_chance=asked.min_chance,
        measure_s=MEASURE_S,
        start_sd=variant,
        baseline_sd=baseline,
    )


def searched(grid: Grid, rules: Rules, pick: Callable[[list[int]], int] | None = None) -> list[int]:
    """Return the candidates in the order in which they were started, until the search ends.

    Args:
        grid: what measuring gives.
        rules: what to decide by.
        pick: chooses among those that are left, in place of the search; when to end is still the search's.
    """
    names = [one.name for one in grid.candidates]
    tried: list[int] = []
    while True:
        seen = [observation(grid, at, rules) for at in tried]
        choice = next_candidate(grid.candidates, seen, rules)
        if choice.next is None:
            return tried
        left = [at for at in range(len(names)) if at not in tried]
        tried.append(names.index(choice.next) if pick is None else pick(left))


def by_prediction(grid: Grid, count: int) -> list[int]:
    """Return the first candidates by predicted speed, mean over the loads."""
    means = [-float(np.mean([one.value for one in (each.predicted or {}).values()])) for each in grid.candidates]
    return sorted(range(len(means)), key=lambda at: (means[at], grid.candidates[at].name))[:count]


def observation(grid: Grid, at: int, rules: Rules) -> Observation:
    """Return what a start of a candidate shows, with the standard error that the tool would state."""
    measured = {
        load: LogSpeed(
            value=float(grid.measured[at, number]), sd=math.hypot(rules.start_sd, float(grid.prompt_sd[at, number]))
        )
        for number, load in enumerate(grid.run.loads)
    }
    return Observation(candidate=grid.candidates[at].name, measured=measured)


def runs() -> list[Run]:
    """Return the measured runs, and the H200's with a cheaper engine mode."""
    found = [load_run(DATA / name) for name in ("cpu-smollm2-a", "cpu-smollm2-b", "h200-smollm2-a", "h200-smollm2-b")]
    return [*found, *(load_run(DATA / name, mode=LIGHT) for name in ("h200-smollm2-a", "h200-smollm2-b"))]


def without_suffix(run: Run) -> Run:
    """Return a run with n-gram settings alone: where suffix drafting is in the grid it wins by far."""
    kept = {name: one for name, one in run.arms.items() if one.method == "ngram"}
    return replace(run, name=f"{run.name}, n-gram alone", arms=kept, real=run.real & kept.keys())


Outcomes = dict[str, dict[str, list[Outcome]]]
"""Kind of grid to order of measuring to how each grid ended."""


def replayed(kinds: Sequence[Run], grids: int, *, wider: float = 1.0) -> Outcomes:
    """Replay every order over drawn grids.

    Args:
        kinds: what grids are made of.
        grids: of each kind.
        wider: what errors of arms and starts are multiplied by.
    """
    sizes = within(kinds)
    found: Outcomes = {}
    for number, run in enumerate(kinds):
        orders: dict[str, list[Outcome]] = {}
        for at in range(grids):
            rng = np.random.default_rng([SEED, number, at])
            grid = draw(run, wider * sizes[run.cpu], rng)
            for name, tried in _orders(grid, rng).items():
                orders.setdefault(name, []).append(outcome(grid, tried))
        found[run.name] = orders
    return found


def within(kinds: Sequence[Run]) -> dict[bool, float]:
    """Return the sd of arms' errors around their group's, of CPUs (True) and GPUs."""
    return {cpu: within_of([run for run in kinds if run.cpu is cpu]) for cpu in (True, False)}


def _orders(grid: Grid, rng: np.random.Generator) -> dict[str, list[int]]:
    rules = rules_of(grid.run)
    apart = replace(rules, together=False)
    mine = searched(grid, rules)
    return {
        "search": mine,
        "random order, same stopping": searched(grid, rules, lambda left: int(rng.choice(left))),
        "random order, as many reloads": [int(at) for at in rng.permutation(len(grid.candidates))[: len(mine)]],
        "predicted order, as many reloads": by_prediction(grid, len(mine)),
        "best predicted alone": by_prediction(grid, 1),
        "search, gain of 0.5 %": searched(grid, replace(rules, min_gain=0.005)),
        "search, gain of 1 %": searched(grid, replace(rules, min_gain=0.01)),
        "search, a best for each load": searched(grid, apart),
        "search, a best for each load, gain of 0.5 %": searched(grid, replace(apart, min_gain=0.005)),
    }


def summary(some: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of a table's line."""
    columns = {key: np.array([getattr(one, key) for one in some], dtype=np.float64) for key in asdict(some[0])}
    return {
        "grids": len(some),
        "reloads": float(columns["reloads"].mean()),
        "share": float(columns["share"].mean()),
        "share_p90": float(np.quantile(columns["share"], 0.9)),
        "within_a_third": float((columns["share"] <= THIRD).mean()),
        **{key: float(columns[key].mean()) for key in ("exact", "alike", "loads_exact", "loads_alike", "lost")},
        "lost_p95": float(np.quantile(columns["lost"], 0.95)),
        **{key: float(columns[key].mean()) for key in ("lost_true", "lost_best")},
    }


def line(name: str, one: dict[str, float]) -> str:
    """Return a table's line."""
    return (
        f"| {name} | {one['grids']:.0f} | {one['reloads']:.1f} | {one['share']:.0%} | {one['within_a_third']:.0%} | "
        f"{one['exact']:.0%} | {one['alike']:.0%} | {one['loads_exact']:.0%} | {one['loads_alike']:.0%} | "
        f"{one['lost']:.1%} ({one['lost_p95']:.1%}) | {one['lost_true']:+.1%} | {one['lost_best']:.1%} |"
    )


RULE = "|" + "---|" * 12
HEAD = (
    "| {} | grids | reloads | of the grid | at most a third | winner the same | or within noise | by load | "
    "or within noise | lost as measured, mean (95th) | lost in truth | lost to the truly best |"
)


def real_lines(kinds: Sequence[Run]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the table of grids that are nothing but measured arms."""
    lines = ["| run | loads | arms | started | winner | of all arms | lost as measured |", "|" + "---|" * 7]
    told = []
    for run in kinds:
        grid = as_measured(run)
        tried = searched(grid, rules_of(run))
        names = ["baseline", *(one.name for one in grid.candidates)]
        mean = np.append(0.0, grid.measured.mean(axis=1))
        best = max([0, *(at + 1 for at in tried)], key=lambda at: mean[at])
        full = int(mean.argmax())
        started = [names[at + 1] for at in tried]
        lost = float(mean[full] - mean[best])
        loads = ", ".join(map(str, run.loads))
        lines.append(
            f"| {run.name} | {loads} | {len(names) - 1} | {', '.join(started) or 'none'} | {names[best]} | "
            f"{names[full]} | {lost:.1%} |"
        )
        told.append({"run": run.name, "started": started, "winner": names[best], "of_all": names[full], "lost": lost})
    return lines, told


def main() -> int:
    """Replay, and write the figures and the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=int, default=40, help="of each kind")
    args = parser.parse_args()
    every = runs()
    kinds = [every[0], without_suffix(every[1]), *every[1:]]
    found = replayed(kinds, args.grids)
    open_ = [name for name in found if name not in PLAIN]
    doubled = replayed([run for run in kinds if run.name in open_], args.grids, wider=2.0)
    by_order = pooled({name: found[name] for name in open_})
    wide = {f"{order}, errors twice as large": one for order, one in pooled(doubled).items() if order in TWICE}
    by_kind = {name: summary(orders["search"]) for name, orders in found.items()}
    real, told = real_lines(every[:4])
    tables = [HEAD.format("order"), RULE, *(line(name, one) for name, one in (by_order | wide).items()), ""]
    tables += [HEAD.format("search, grids of"), RULE, *(line(name, one) for name, one in by_kind.items()), "", *real]
    print("\n".join(tables))
    whole = {
        "schema_version": 1,
        "seed": SEED,
        "grids_each": args.grids,
        "light_mode": LIGHT,
        "within_sd": {"cpu" if cpu else "h200": one for cpu, one in within(kinds).items()},
        "sizes": asdict(Sizes()),
        "pooled_over": open_,
        "orders": by_order,
        "errors_twice_as_large": pooled(doubled),
        "kinds": {name: {order: summary(some) for order, some in orders.items()} for name, orders in found.items()},
        "measured_alone": told,
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    write_between(PAGE, (BEGIN, END), tables)
    return 0


def pooled(found: Outcomes) -> dict[str, dict[str, float]]:
    """Return each order's figures over all kinds."""
    orders = next(iter(found.values()))
    return {order: summary([one for kind in found.values() for one in kind[order]]) for order in orders}


if __name__ == "__main__":
    sys.exit(main())
