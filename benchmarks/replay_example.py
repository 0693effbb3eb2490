"""Writes what docs/replay.md shows of `draftworth replay`, from a trial that is kept here.

`--check` fails where the page is old. Run: `python benchmarks/replay_example.py`. Takes seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "replay.md"
EXAMPLE = "benchmarks/data/demo_trial --drafter vllm-ngram-v1 --k 1,3,5 --min 2 --max 4"
END = "<!-- end -->"


def output(arguments: str) -> str:
    """Return a call of replay with what it prints on standard output."""
    env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "draftworth", "replay", *arguments.split()]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return f"```console\n$ draftworth replay {arguments}\n{done.stdout.rstrip()}\n```"


def page(old: str) -> str:
    """Return the page with its blocks made again."""
    for name, arguments in (("replay", EXAMPLE), ("drafters", "--list")):
        head, mark, rest = old.partition(f"<!-- {name} -->")
        _, _, tail = rest.partition(END)
        old = f"{head}{mark}\n{output(arguments)}\n{END}{tail}"
    return old


def main() -> int:
    """Write or check the page. Returns an exit code."""
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in sys.argv[1:]:
        if new != old:
            print(f"{PAGE.name} is old; run: python benchmarks/replay_example.py", file=sys.stderr)
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
