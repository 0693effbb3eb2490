"""The case of Kimi-K2.5, n-gram k = 5: what its reported figures imply, and what k = 1 to 4 would have given.

Reported: TPOT of both arms by prompt, acceptance length 1.86 to 2.55, survival 40 to 56 % at position 1 and 4 to
13 % at position 5. Not reported: coverage, and a curve of T. The curve is the public one of Kimi-K2.6 on the same GPUs
without speculation (T of 1, 2, 4, 8 streams: 11.5, 13.8, 17.1, 22.8 ms), linear between; coverage is assumed.

    python benchmarks/prediction_case.py [--json]
"""

import argparse
import json
import sys

import numpy as np

from draftworth.predict.implied import geometric, implied, length_of

PROMPTS = {"coding": (62.6, 46.4), "math": (78.0, 64.8), "structured": (76.1, 65.5), "explanatory": (79.5, 72.5)}
"""Tokens a second without and with n-gram."""
LOW, HIGH = (0.40, 0.04), (0.56, 0.13)
"""Survival at positions 1 and 5: the least and the best that was reported."""
STREAMS, STEP_MS = (1, 2, 4, 8), (11.5, 13.8, 17.1, 22.8)
COVERAGES = (0.5, 0.75, 1.0)
K = 5


def curve() -> tuple[float, ...]:
    """Return T(n) / T(1) for n = 1 to k + 1."""
    steps = np.interp(np.arange(1, K + 2), STREAMS, STEP_MS)
    return tuple(float(one) for one in steps / steps[0])


def rows() -> list[dict[str, object]]:
    """Return one row a prompt, survival and coverage."""
    found: list[dict[str, object]] = []
    for prompt, (before, after) in PROMPTS.items():
        for name, (first, last) in (("least", LOW), ("best", HIGH)):
            survival = geometric(first, last, K)
            for coverage in COVERAGES:
                told = implied(1000 / before, 1000 / after, survival, coverage, curve())
                found.append(
                    {
                        "prompt": prompt,
                        "acceptance": name,
                        "length": length_of(survival),
                        "coverage": coverage,
                        "base_ms": 1000 / before,
                        "variant_ms": 1000 / after,
                        "step_cost": told.step_cost,
                        "verify_cost": told.verify_cost,
                        "mode_ms": told.mode_ms,
                        "break_even_length": told.break_even_length,
                        "if_mode": told.if_mode,
                        "if_verify": told.if_verify,
                    }
                )
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    found = rows()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return 0
    print(
        "| prompt | acceptance length | coverage | step, baseline's | T alone | mode at most, ms | break-even | "
        "k = 1 | 2 | 3 | 4 |"
    )
    print("|" + "---|" * 11)
    for one in found:
        ends = zip(one["if_mode"], one["if_verify"], strict=True)  # type: ignore[call-overload]
        gains = " | ".join(f"{min(pair):.2f} to {max(pair):.2f}" for pair in list(ends)[:-1])
        print(
            f"| {one['prompt']} | {one['length']:.2f} | {one['coverage']:.0%} | {one['step_cost']:.2f} | "
            f"{one['verify_cost']:.2f} | {one['mode_ms']:.1f} | {one['break_even_length']:.2f} | {gains} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
