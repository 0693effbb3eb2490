"""How often do real prompts look random or repeating? `prompt_shape.py FILE`, e.g. Spec-Bench's question.jsonl.

The thresholds of workloads/shape.py were set on such files; none may be flagged.
"""

import argparse
import sys

from draftworth import workloads
from draftworth.workloads.shape import shape


def main() -> int:
    """Print what is flagged. Returns 1 where anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    prompts = workloads.load(parser.parse_args().file).prompts
    whole = shape(prompts)
    alone = [(prompt, shape([prompt])) for prompt in prompts]
    random = [prompt.id for prompt, found in alone if found.looks_random]
    repeating = [prompt.id for prompt, found in alone if found.repeats]
    print(f"{len(prompts)} prompts; looked at one by one: {len(random)} look random, {len(repeating)} repeat")
    print(f"as a workload: random {whole.looks_random}, repeating {whole.repeats}; {whole.evidence}")
    return 1 if random or repeating or whole.looks_random or whole.repeats else 0


if __name__ == "__main__":
    sys.exit(main())
