"""The case of Kimi-K2.5, n-gram k = 5: what its reported figures imply, and what k = 1 to 4 would have given.

Reported: TPOT of both arms by prompt, acceptance length 1.86 to 2.55, survival 40 to 56 % at position 1 and 4 to
13 % at position 5. Not reported: coverage, and a curve of T. The curve is the public one of Kimi-K2.6 on the same GPUs
without speculation (T of 1, 2, 4, 8 streams: 11.5, 13.8, 17.1, 22.8 ms), read between those both ways: linear, and as
the staircase that captured CUDA graphs make of it (a step of 6 tokens runs as 8). Coverage is assumed.

    python benchmarks/prediction_case.py [--json]

Writes the table of docs/predict.md too.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from draftworth.predict.implied import Implied, geometric, implied, length_of

PROMPTS = {"coding": (62.6, 46.4), "math": (78.0, 64.8), "structured": (76.1, 65.5), "explanatory": (79.5, 72.5)}
"""Tokens a second without and with n-gram."""
LOW, HIGH = (0.40, 0.04), (0.56, 0.13)
"""Survival at positions 1 and 5: the least and the best that was reported."""
STREAMS, STEP_MS = (1, 2, 4, 8), (11.5, 13.8, 17.1, 22.8)
COVERAGES = (0.5, 0.75, 1.0)
K = 5
SHOWN = 0.75
"""The coverage of the table in docs/predict.md."""
PAGE = Path(__file__).parents[1] / "docs" / "predict.md"
BEGIN, END = "<!-- case: by benchmarks/prediction_case.py -->", "<!-- end of case -->"


def curves() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return T(n) / T(1) for n = 1 to k + 1, linear between what was measured, and as a staircase."""
    tokens = np.arange(1, K + 2)
    linear = np.interp(tokens, STREAMS, STEP_MS)
    stairs = [STEP_MS[next(at for at, size in enumerate(STREAMS) if size >= n)] for n in tokens]
    first = STEP_MS[0]
    return tuple(float(one) / first for one in linear), tuple(one / first for one in stairs)


@dataclass(frozen=True)
class Row:
    """What one prompt implies, at one reported acceptance and one assumed coverage, with T read both ways."""

    prompt: str
    length: float
    coverage: float
    told: tuple[Implied, Implied]

    def ends(self, k: int) -> tuple[float, float]:
        """Return the least and the best speed-up of a k, over both readings of T and both of what it leaves."""
        values = [each for one in self.told for each in (one.if_mode[k - 1], one.if_verify[k - 1])]
        return min(values), max(values)


def rows() -> list[Row]:
    """Return one row a prompt, survival and coverage."""
    return [
        Row(
            prompt,
            length_of(geometric(*ends, K)),
            coverage,
            _both(1000 / before, 1000 / after, geometric(*ends, K), coverage),
        )
        for prompt, (before, after) in PROMPTS.items()
        for ends in (LOW, HIGH)
        for coverage in COVERAGES
    ]


def _both(base_ms: float, variant_ms: float, survival: Sequence[float], coverage: float) -> tuple[Implied, Implied]:
    linear, stairs = (implied(base_ms, variant_ms, survival, coverage, one) for one in curves())
    return linear, stairs


def table(coverages: Sequence[float] = COVERAGES) -> list[str]:
    """Return the rows of some coverages as a Markdown table; of k = 1 to 4 both ends."""
    names = ["prompt", "acceptance length", "coverage", "step, baseline's", "T alone", "what is left, ms"]
    names += ["break-even length", "k = 1", "2", "3", "4"]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for one in rows():
        if one.coverage in coverages:
            linear, stairs = one.told
            gains = " | ".join(f"{low:.2f} to {high:.2f}" for low, high in (one.ends(k) for k in range(1, K)))
            alone, left = (linear.verify_cost, stairs.verify_cost), (stairs.mode_ms, linear.mode_ms)
            lines.append(
                f"| {one.prompt} | {one.length:.2f} | {one.coverage:.0%} | {linear.step_cost:.2f} | "
                f"{alone[0]:.2f} to {alone[1]:.2f} | {left[0]:.1f} to {left[1]:.1f} | "
                f"{linear.break_even_length:.2f} | {gains} |"
            )
    return lines


def main() -> int:
    """Print the table, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    if parser.parse_args().json:
        print(json.dumps([asdict(one) for one in rows()], indent=1))
        return 0
    print("\n".join(table()))
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(table((SHOWN,)))}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
