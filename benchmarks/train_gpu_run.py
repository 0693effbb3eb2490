"""The stages `data`, `fit`, `walk`, `export` of benchmarks/train_gpu.py: a run folder as `draftworth train run` has it.

Samples, vocabulary and export are made by the tool's own stages. Training and walks run in the tool's workers, with
states that are made on the fly (`training/workers/on_the_fly.py`), so that the run folder holds ids and a head alone.
"""

import json
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.train_gpu_carry import cut
from benchmarks.train_gpu_ids import Answers, Prompts, kind, samples

from draftworth.heads.files.safetensors import read_header
from draftworth.training import export, vocab
from draftworth.training.base import StageName
from draftworth.training.columns import SampleWriter
from draftworth.training.evaluate import export_dtype
from draftworth.training.fit import BEST, PROGRESS, WINDOW
from draftworth.training.recipe import Recipe
from draftworth.training.recipe_file import load_recipe
from draftworth.training.samples import Sample
from draftworth.training.shape import target_shape
from draftworth.training.stages import file_digest, prepare, required, target_inputs, write_manifest
from draftworth.training.target import vocabulary_of
from draftworth.training.tensors import write_safetensors
from draftworth.training.worker import run_worker

RECIPE = """# Written by benchmarks/train_gpu.py; the answers are those that the target wrote there.
target = "{target}"
out = "."
[data]
held_out = 0.1
[[data.sources]]
path = "{prompts}"
format = "chat"
[states]
way = "transformers"
[vocab]
{size}
[fit]
epochs = {epochs}
batch_tokens = {batch_tokens}
optimizer = "{optimizer}"
patience = 0
device = "{device}"
[eval]
k = [1, 2, 3, 4, 5, 6, 7, 8]
"""
CHECKPOINTS, STATE, SETTINGS = "checkpoints", "state", "made_from.json"


@dataclass(frozen=True)
class Python:
    """An interpreter that trains.

    Attributes:
        executable: with torch.
        site: a folder with what it lacks; None where it lacks nothing.
    """

    executable: Path
    site: Path | None

    @property
    def env(self) -> dict[str, str]:
        """The variables it is started with."""
        return {"PYTHONPATH": str(self.site)} if self.site else {}


class Told:
    """Prints what a stage tells, with the time; of a count, a line now and then."""

    def __init__(self, every: float = 10.0) -> None:
        self._every, self._last = every, 0.0

    def now(self, text: str) -> None:
        """What is happening."""
        self.line(text)

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far it is."""
        if time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self.line(f"{done:,} of {total:,}  {note}")

    def line(self, text: str) -> None:
        """A line."""
        print(f"{time.strftime('%X')} {text}", flush=True)


def lay_out(
    run: Path,
    target: Path,
    prompts_file: Path,
    parts: Path,
    *,
    settings: Mapping[str, Any],
    tell: Told,
) -> dict[str, Any]:
    """Make the run folder's samples and vocabulary of prompts and answers; the same files give the same.

    Args:
        run: the run folder.
        target: the target.
        prompts_file: what the stage `prompts` wrote.
        parts: the folder of the answers.
        settings: `vocab` (None: the usual size), `epochs`, `batch_tokens`, `optimizer`, `device`.
        tell: takes lines.
    """
    began = time.monotonic()
    prompts = Prompts.load(prompts_file)
    answers = Answers.joined([Answers.load(one) for one in sorted(parts.glob("part-*.npz"))])
    run.mkdir(parents=True, exist_ok=True)
    size = f"size = {settings['vocab']}" if settings.get("vocab") else ""
    text = RECIPE.format(target=target.resolve(), prompts=prompts_file.resolve(), **{**settings, "size": size})
    (run / "recipe.toml").write_text(text, encoding="utf-8")
    recipe = load_recipe(run / "recipe.toml")
    own = StageName.DATA.folder(run)
    prepare(own)
    counts: Counter[str] = Counter()
    sources: dict[str, Counter[str]] = {"train": Counter(), "held_out": Counter()}
    with SampleWriter(own / "train.parquet") as train, SampleWriter(own / "held_out.parquet") as held:
        for is_held, name, source, ids, begins, greedy in samples(prompts, answers):
            split = "held_out" if is_held else "train"
            mask = (_positions(len(ids)) >= begins).astype("u1")
            (held if is_held else train).add(name, kind(source), kind(source), Sample(ids, mask, exact=True))
            counts[f"{split}_samples"] += 1
            counts[f"{split}_greedy"] += greedy
            counts[f"{split}_tokens"] += len(ids)
            counts[f"{split}_loss_tokens"] += len(ids) - begins
            counts[f"{split}_longest"] = max(counts[f"{split}_longest"], len(ids))
            sources[split][kind(source)] += 1
    write_manifest(
        own,
        StageName.DATA,
        inputs={
            "prompts": file_digest(prompts_file),
            **{one.name: file_digest(one) for one in sorted(parts.glob("part-*.npz"))},
            **target_inputs(target),
        },
        counts=counts,
        facts={
            "vocabulary": vocabulary_of(target),
            "sources": {name: dict(one) for name, one in sources.items()},
            "prompts": prompts.counts,
        },
        began=began,
    )
    chosen = vocab.run(recipe, run, tell)
    told = {**counts, "draft_vocab": chosen.counts["size"], "coverage": chosen.facts["coverage_train"]}
    tell.line(json.dumps(told))
    return told


def fit(run: Path, python: Python, *, limit_s: float, settings: Mapping[str, Any], tell: Told) -> dict[str, Any]:
    """Train until the epochs are done or the time is up; the state is left in pieces in `RUN/state`.

    Args:
        run: the run folder.
        python: what runs the worker.
        limit_s: seconds from now for everything in here.
        settings: `epochs`, `lr`, `seed`, `walk_samples`, `held_out_limit`, `save_every_s`, `ttt_steps`.
        tell: takes lines.
    """
    began = time.monotonic()
    recipe, own = load_recipe(run / "recipe.toml"), StageName.FIT.folder(run)
    data, maps = required(run, StageName.DATA), required(run, StageName.VOCAB)
    shape = target_shape(recipe.target, None)
    longest = max(data.counts["train_longest"], data.counts["held_out_longest"])
    if longest > recipe.fit.batch_tokens:
        raise SystemExit(f"a sample has {longest:,} tokens, and a batch {recipe.fit.batch_tokens:,}")
    own.mkdir(parents=True, exist_ok=True)
    made_from = {
        "data": data.key,
        "vocab": maps.key,
        **{name: settings[name] for name in ("epochs", "lr", "seed", "ttt_steps")},
        "batch_tokens": recipe.fit.batch_tokens,
        "optimizer": recipe.fit.optimizer,
    }
    check_same(own / SETTINGS, made_from)
    folder = StageName.VOCAB.folder(run)
    request = {
        **_frozen(run, recipe, shape.aux),
        "task": "train",
        "folder": str(own),
        "dtype": "bf16",
        "train": str(StageName.DATA.folder(run) / "train.parquet"),
        "held_out": str(StageName.DATA.folder(run) / "held_out.parquet"),
        "held_out_states": str(own),
        "held_out_limit": settings["held_out_limit"],
        "train_rows": data.counts["train_samples"],
        "held_out_rows": data.counts["held_out_samples"],
        "d2t": str(folder / vocab.D2T),
        "t2d": str(folder / vocab.T2D),
        "draft_vocab": maps.counts["size"],
        "window": WINDOW,
        "walk_samples": settings["walk_samples"],
        "walk_k": settings["ttt_steps"],
        "warmup": recipe.fit.warmup,
        "save_every_s": settings["save_every_s"],
        "batch_tokens": recipe.fit.batch_tokens,
        "optimizer": recipe.fit.optimizer,
        "patience": 0,
        "processes": 1,
        **{name: settings[name] for name in ("epochs", "lr", "seed", "ttt_steps")},
        "limit_s": limit_s - (time.monotonic() - began),
    }
    found = run_worker(python.executable, "on_the_fly", request, folder=own, tell=tell, env=python.env)
    write_manifest(
        own,
        StageName.FIT,
        inputs={name: str(value) for name, value in made_from.items()},
        counts={"epochs": found["epochs"], "steps": found["steps"], "trainable": found["trainable"]},
        facts={**found, "layers": list(shape.aux)},
        began=began,
    )
    pieces = keep(run)
    tell.line(f"{json.dumps(found)}; state in {len(pieces)} pieces")
    return {**found, "pieces": len(pieces)}


def walk(run: Path, python: Python, *, limit: int | None, parquet: Path | None, tell: Told) -> dict[str, Any]:
    """Walk held-out samples with the best checkpoint, or other samples with the exported head.

    Args:
        run: the run folder.
        python: see `fit`.
        limit: samples at most.
        parquet: other samples; None for those that are held out.
        tell: takes lines.
    """
    began = time.monotonic()
    recipe, own = load_recipe(run / "recipe.toml"), StageName.EVAL.folder(run)
    shape = target_shape(recipe.target, None)
    checkpoint = StageName.EXPORT.folder(run) if parquet else StageName.FIT.folder(run) / BEST
    own.mkdir(parents=True, exist_ok=True)
    request = {
        **_frozen(run, recipe, shape.aux),
        "task": "walk",
        "checkpoint": str(checkpoint),
        "parquet": str(parquet or StageName.DATA.folder(run) / "held_out.parquet"),
        "states": str(own),
        "k": list(recipe.eval.k),
        "limit": limit,
        "dtype": export_dtype(recipe.target),
    }
    found = run_worker(python.executable, "on_the_fly", request, folder=own, tell=tell, env=python.env)
    (own / ("served-walk.json" if parquet else "walk.json")).write_text(json.dumps(found), encoding="utf-8")
    lengths = {str(one["k"]): length_of(one) for one in found["total"]}
    tell.line(f"{found['samples']} samples: {json.dumps(lengths)}")
    if parquet is None:
        write_manifest(
            own,
            StageName.EVAL,
            inputs={"fit": required(run, StageName.FIT).key},
            counts={name: found[name] for name in ("samples", "loss_tokens", "first_choices")},
            facts={"acceptance_length": lengths, "checkpoint": f"fit/{BEST}"},
            began=began,
        )
    return {"lengths": lengths, "first_choices": found["first_choices"] / max(1, found["loss_tokens"])}


def write_head(run: Path, tell: Told) -> Path:
    """Export the best checkpoint, checked as `draftworth head check` does; returns the folder."""
    export.run(load_recipe(run / "recipe.toml"), run, tell)
    return StageName.EXPORT.folder(run)


def keep(run: Path) -> list[Path]:
    """Write the training's state in pieces: the last checkpoint without the target's embedding, and the best one.

    Of the best one, where it is not the last, the weights in the type of the export: nothing is trained from it.
    """
    own, beside = StageName.FIT.folder(run), run / ".state"
    shutil.rmtree(beside, ignore_errors=True)
    numbers = sorted(int(one.name) for one in (own / CHECKPOINTS).iterdir() if one.name.isdigit() and one.is_dir())
    best = int((own / BEST).readlink().name) if (own / BEST).is_symlink() else None
    maps, dtype = StageName.VOCAB.folder(run), export_dtype(load_recipe(run / "recipe.toml").target)
    for number in {numbers[-1], *([best] if best in numbers else [])}:
        from_, to = own / CHECKPOINTS / str(number), beside / CHECKPOINTS / str(number)
        to.mkdir(parents=True)
        for file in from_.iterdir():
            if file.name not in {export.WEIGHTS, "optimizer_state_dict.pt"} or number == numbers[-1]:
                shutil.copyfile(file, to / file.name)
        if number == numbers[-1]:
            _without_embedding(to / export.WEIGHTS)
        else:
            header = read_header(from_ / export.WEIGHTS)
            pruned = "d2t" in header
            write_safetensors(
                to / export.WEIGHTS, export.exported(header, maps, dtype, pruned=pruned), {"format": "pt"}
            )
            with zipfile.ZipFile(to / "optimizer_state_dict.pt", "w") as stub:
                stub.writestr("none", b"")
    for name in (PROGRESS, SETTINGS, "manifest.json"):
        if (own / name).exists():
            shutil.copyfile(own / name, beside / name)
    if best is not None:
        (beside / BEST).symlink_to(Path(CHECKPOINTS, str(best)))
    pieces = cut(beside, sorted(one.name for one in beside.iterdir()), run / STATE)
    shutil.rmtree(beside)
    return pieces


def check_same(path: Path, made_from: Mapping[str, Any]) -> None:
    """Keep what a training is made from; refuse to go on with one that was made from something else.

    Raises:
        SystemExit: names what changed.
    """
    try:
        before = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        path.write_text(json.dumps(dict(made_from), indent=1), encoding="utf-8")
        return
    changed = sorted(name for name in {*before, *made_from} if before.get(name) != made_from.get(name))
    if changed:
        raise SystemExit(f"{path.parent}: trained from something else ({', '.join(changed)}); name another run folder")


def length_of(counts: Mapping[str, Any]) -> float | None:
    """Return the acceptance length per drafting step of a walk's counts."""
    return 1 + sum(counts["accepted_at"]) / counts["full_steps"] if counts["full_steps"] else None


def _frozen(_run: Path, recipe: Recipe, aux: Sequence[int]) -> dict[str, Any]:
    return {"target": str(recipe.target), "device": recipe.fit.device, "layers": list(aux)}


def _positions(count: int) -> Any:
    import numpy as np  # noqa: PLC0415 - only here

    return np.arange(count)


def _without_embedding(path: Path) -> None:
    """Leave the target's embedding out of a checkpoint: it is loaded from the target."""
    from safetensors import safe_open  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
    from safetensors.torch import save_file  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys() if "embed_tokens" not in name}  # noqa: SIM118
    beside = path.with_name(f".{path.name}.new")
    save_file(tensors, beside, {"format": "pt"})
    beside.replace(path)
