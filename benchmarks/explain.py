"""How much of the difference between arms has a cause: the real trials that are kept, explained.

Reads benchmarks/data/prediction/<run>/ as prediction.py does: each trial is explained with the run's costs file and the
engine modes of all its trials; arms that a mode was fitted to are left out, since they have no rest by construction.

    python -m benchmarks.explain [RUN …]

Without a RUN it writes docs/explain.md's tables, and the cause that README.md quotes of h200-smollm2-a/all-4.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.pages import write_between

from draftworth.costs.file import load_costs
from draftworth.explain.base import Account
from draftworth.explain.whole import explain_trial
from draftworth.predict.trialcosts import costs_of
from draftworth.trials.record import read

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "prediction"
PAGE = ROOT / "docs" / "explain.md"
QUOTE = "<!-- cause: by benchmarks/explain.py -->", "<!-- end of cause -->"
ASSIGNED, NARROW = 0.9, 0.1
"""The goals: so much of the difference has a cause, and the rest's interval is at most so wide beside it."""
BEGIN, END = "<!-- shares: by benchmarks/explain.py -->", "<!-- end of shares -->"


def accounts(run: Path) -> list[Account]:
    """Return the accounts of a run's variants; arms that only measure are left out, where they do not stand for others.

    Where a run has trials whose names begin with `fit-`, these alone tell modes, and the synthetic arms of the others
    are explained.
    """
    trials = sorted(path.parent for path in run.glob("*/trial.json"))
    costs = load_costs(run / "costs-baseline.json")
    fits = [one for one in trials if one.name.startswith("fit-")]
    if fits:
        costs = costs_of(fits, [read(one) for one in fits], costs, [])[0]
        each = [explain_trial(one, costs, []) for one in trials if one not in fits]
        return [one for found in each for one in found.accounts]
    each = [explain_trial(one, costs, [other for other in trials if other != one]) for one in trials]
    return [one for found in each for one in found.accounts if not one.diagnostic]


def table(found: dict[str, list[Account]]) -> list[str]:
    """Return the tables of the page."""
    names = ["run", "arms and loads", "share of the difference with a cause, median (least)", "at least 90 %"]
    names += ["rest's interval holds 0", "its width over the difference, median", "at most 10 %"]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for name, some in found.items():
        shares = [one.of_difference or 0.0 for one in some]
        rests = [one.parts[-1].ms for one in some]
        holds = sum(rest.low <= 0 <= rest.high for rest in rests)
        widths = [(rest.high - rest.low) / abs(one.difference.value) for rest, one in zip(rests, some, strict=True)]
        lines.append(
            f"| {name} | {len(some)} | {np.median(shares):.0%} ({min(shares):.0%}) | "
            f"{sum(one >= ASSIGNED for one in shares)} of {len(some)} | {holds} of {len(some)} | "
            f"{np.median(widths):.0%} | {sum(one <= NARROW for one in widths)} of {len(some)} |"
        )
    parts = ["engine mode", "verification", "tokens gained", "rest"]
    lines += ["", f"| run | arm | at a time | TPOT, ms | {' | '.join(parts)} (95 %) | with a cause |", "|" + "---|" * 9]
    lines += [_row(name, one) for name, some in found.items() for one in some]
    return lines


def _row(run: str, one: Account) -> str:
    ms = {part.cause: part.ms for part in one.parts}
    rest = ms["rest"]
    told = [f"{ms[cause].value:+.2f}" for cause in ("engine mode", "verification", "tokens gained")]
    told.append(f"{rest.value:+.2f} ({rest.low:+.2f} to {rest.high:+.2f})")
    share = "-" if one.of_difference is None else f"{one.of_difference:.0%}"
    tpot = f"{one.baseline_ms:.2f} to {one.arm_ms:.2f}"
    return f"| {run} | {one.arm} | {one.concurrency} | {tpot} | {' | '.join(told)} | {share} |"


def quoted(run: str, arm: str, concurrency: int) -> list[str]:
    """Return an arm's cause as a quotation in Markdown."""
    one = next(each for each in accounts(DATA / run) if (each.arm, each.concurrency) == (arm, concurrency))
    return textwrap.wrap(one.main_cause, 120, initial_indent="> ", subsequent_indent="> ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Explain the kept trials and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="names below benchmarks/data/prediction; default: all")
    args = parser.parse_args(arguments)
    runs = [DATA / name for name in args.runs] or sorted(path for path in DATA.iterdir() if path.is_dir())
    found = {run.name: accounts(run) for run in runs}
    lines = table(found)
    print("\n".join(lines))
    if not args.runs:
        write_between(PAGE, (BEGIN, END), lines)
        write_between(ROOT / "README.md", QUOTE, quoted("h200-smollm2-a", "ngram-5", 4))
        kept = {
            name: [one.model_dump(mode="json", exclude={"changes"}) for one in some] for name, some in found.items()
        }
        results = ROOT / "benchmarks" / "results" / "explain.json"
        results.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
