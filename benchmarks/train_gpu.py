"""An EAGLE-3 head for a small target, trained and served on a machine with one GPU that has no network.

Made for SmolLM2-135M-Instruct on one H200 that is lent for half an hour at a time, in calls of at most ten minutes with
at most 64 MB in and 8 files of 16 MB out. Every stage has a time limit and goes on from what is there; what must
outlast the machine travels in pieces (`bring` there, `take` where it is needed again). W is a folder there that all
calls share, OUT what comes back, P = `python3 -m benchmarks.train_gpu` with the repository's src and root and SITE,
where the wheels are, on PYTHONPATH. Tried on a CPU with Python 3.12, torch 2.11.0+cu130 and transformers 5.17.0, which
speculators 0.9 takes as they are. Seconds are expectations: (a) assumed, (m) measured elsewhere.

At home:
    P prompts --prompts FILE --target MODEL --unseen spec_bench_questions.jsonl --out prompts.npz       5 s, 2 MB
    P pack --out BUNDLES --bundle model=MODEL vllm=FOLDER              60 s; `train` is 10 MB, SmolLM2 9 pieces of 32 MB
    BUNDLES/<name>/index.json and one piece-NNN are carried a call (`train` with prompts.npz), copied to W/in/<name>/.

Session 1, answers and the training step's figures (about 1,400 of 1,800 s):
    18 calls that carry: train 1, model 9, vllm 8                                                        18 x 5 s (m)
    P unpack --source W/in/train --to W/whl --site SITE; P unpack --source W/in/model --to W/model …; P check   60 s
    P answers --model W/model/MODEL --prompts W/prompts.npz --parts W/parts --limit 430                 500 s: 80 s to
        start (m), then 60,000 tokens/s at 512 at a time (a: 8 ms a step), 12 million tokens in 200 s; a second call
        goes on
    P bring --source W/answers-state --out OUT                                                          10 s: 25 MB (a)
    P data --run W/run --target W/model/MODEL --prompts W/prompts.npz --parts W/parts --vocab 16384     60 s
    P step --run W/run --limit 450 --out OUT/step.json                                                  500 s
Session 2, training (about 1,550 s):
    11 calls that carry train, model, answers (OUT of session 1, put into one folder)                    11 x 5 s (m)
    P unpack …; P take --source W/in/answers --to W; P data … --epochs N                                100 s
    P fit --run W/run --site SITE --epochs N --limit 520, twice; the second goes on from the first     600 s each: 60 to
        100 s of them compile (a); tokens/s as `step` tells them, 100,000 with the target's states (a)
    P bring --source W/run/state --out OUT --part 0; the same with --part 1                          2 x 12 s (a): 80 MB
    N = 0.8 x seconds of training in all sessions x tokens/s / tokens of `data`: the learning rate falls to 0 there.
Session 3, the rest (about 1,600 s without `fit`):
    22 calls that carry train, model, answers, state, vllm                                               22 x 5 s (m)
    P unpack …; P take …; P data … --epochs N; P take --source W/in/state --to W/run/fit                100 s
    P fit … --limit 400 (500 s, or none); P walk --run W/run --site SITE (100 s); P export --run W/run  5 s
    P bring --source W/run/head-state --out OUT                                                         10 s: 30 MB
    P serve --model W/model/MODEL --head W/run/export --questions FILE --out W/serve                2 x 550 s: 4 servers
        in 160 s (m), an arm 50 s for 100 questions of 256 tokens at 2 ms (m), trials at 1 and 4 at a time
    P walk … --served W/serve/answers-eagle3-3.parquet; P compare --run W/run --out W/serve             30 s
    W/serve (records, counters, costs-baseline.json) and W/run/eval come back as one archive.
Where `fit` is needed in session 3 too, serving is a session of its own: train, model, vllm, head-state, 1,500 s.
"""

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE_PARTS = 4
"""Pieces that come back in one call beside their index: 62 MB, 5 files."""
SERVER = "--dtype bfloat16 --gpu-memory-utilization 0.1 --max-num-seqs 64 --kv-cache-memory-bytes 1073741824"


def prompts(args: argparse.Namespace) -> dict[str, Any]:
    """Choose and split the prompts."""
    from benchmarks.train_gpu_prompts import read_rows, select  # noqa: PLC0415 - each stage imports its own

    found = select(
        read_rows(args.prompts, args.rows), args.target, args.unseen, whole=args.whole, share=0.1, most=args.most
    )
    found.save(args.out)
    return {**found.counts, "prompt_tokens": int(found.ids.lengths.sum()), "bytes": args.out.stat().st_size}


def answers(args: argparse.Namespace) -> dict[str, Any]:
    """Write the answers; leave them in pieces."""
    from benchmarks.train_gpu_answers import answer  # noqa: PLC0415 - as above
    from benchmarks.train_gpu_carry import cut  # noqa: PLC0415 - as above
    from benchmarks.train_gpu_ids import Prompts  # noqa: PLC0415 - as above

    told = answer(
        args.model,
        Prompts.load(args.prompts),
        args.parts,
        limit_s=args.limit,
        goal=args.goal,
        engine=json.loads(args.engine),
        at_a_time=args.at_a_time,
        chunk=args.chunk,
        rounds=args.rounds,
        sampled=args.sampled,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
    )
    (args.parts / "told.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    told["pieces"] = len(cut(args.parts.parent, [args.parts.name], args.parts.parent / "answers-state"))
    return told


def data(args: argparse.Namespace) -> dict[str, Any]:
    """Lay out the run folder."""
    from benchmarks.train_gpu_run import Told, lay_out  # noqa: PLC0415 - as above

    settings = {
        "vocab": args.vocab,
        "epochs": args.epochs,
        "batch_tokens": args.batch_tokens,
        "optimizer": args.optimizer,
        "device": args.device,
    }
    return lay_out(args.run, args.target, args.prompts, args.parts, settings=settings, tell=Told())


def fit(args: argparse.Namespace) -> dict[str, Any]:
    """Train for a while."""
    from benchmarks.train_gpu_run import Python, Told  # noqa: PLC0415 - as above
    from benchmarks.train_gpu_run import fit as train  # noqa: PLC0415 - as above

    settings = {
        "epochs": args.epochs,
        "lr": args.lr,
        "seed": 0,
        "ttt_steps": 3,
        "walk_samples": args.walk_samples,
        "held_out_limit": args.validated,
        "save_every_s": args.save_every,
    }
    return train(args.run, Python(args.python, args.site), limit_s=args.limit, settings=settings, tell=Told())


def walk(args: argparse.Namespace) -> dict[str, Any]:
    """Walk held-out samples, or what a server wrote."""
    from benchmarks.train_gpu_run import Python, Told  # noqa: PLC0415 - as above
    from benchmarks.train_gpu_run import walk as walked  # noqa: PLC0415 - as above

    return walked(args.run, Python(args.python, args.site), limit=args.samples, parquet=args.served, tell=Told())


def export(args: argparse.Namespace) -> dict[str, Any]:
    """Write the head; in pieces too."""
    from benchmarks.train_gpu_carry import cut  # noqa: PLC0415 - as above
    from benchmarks.train_gpu_run import Told, write_head  # noqa: PLC0415 - as above

    head = write_head(args.run, Told())
    return {"head": str(head), "pieces": len(cut(args.run, [head.name, "eval"], args.run / "head-state"))}


def bring(args: argparse.Namespace) -> dict[str, Any]:
    """Copy a part of some pieces to where they are taken from."""
    from benchmarks.train_gpu_carry import copy  # noqa: PLC0415 - as above

    return {"part": args.part, "of": copy(args.source, args.out, args.part, args.each)}


def take(args: argparse.Namespace) -> dict[str, Any]:
    """Put pieces together again."""
    from benchmarks.train_gpu_carry import join  # noqa: PLC0415 - as above

    if args.to.name == "fit" and args.to.exists():
        shutil.rmtree(args.to)
    return {"files": len(join(args.source, args.to))}


def step(args: argparse.Namespace) -> dict[str, Any]:
    """Time the training step."""
    from benchmarks.train_gpu_step import measure  # noqa: PLC0415 - as above

    from draftworth.training.recipe_file import load_recipe  # noqa: PLC0415 - as above
    from draftworth.training.shape import target_shape  # noqa: PLC0415 - as above

    target = load_recipe(args.run / "recipe.toml").target
    return measure(
        target,
        args.run / "data" / "held_out.parquet",  # of the same sources, and quicker to read than what is learned
        args.run / "vocab",
        target_shape(target, None).aux,
        sizes=args.sizes,
        device=args.device,
        repeats=args.repeats,
        limit_s=args.limit,
        out=args.out,
    )


def serve(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the head in vLLM."""
    from benchmarks.train_gpu_serve import run_serve  # noqa: PLC0415 - as above

    return run_serve(
        args.model,
        args.head,
        args.questions,
        args.out,
        count=args.count,
        ks=args.ks,
        loads=args.loads,
        max_tokens=args.max_tokens,
        max_model_len=args.max_model_len,
        start_s=args.start,
        limit_s=args.limit,
        command=shlex.split(args.server),
        probe_s=args.probe,
        port=args.port,
    )


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Hold the walk over a server's answers against its counters."""
    from benchmarks.train_gpu_serve import compared  # noqa: PLC0415 - as above

    walked = json.loads((args.run / "eval" / "served-walk.json").read_text("utf-8"))
    by_k = {one["k"]: one for one in walked["total"]}
    found = {}
    for path in sorted(args.out.glob("counters-eagle3-*.json")):
        k = int(path.stem.rpartition("-")[2])
        found[f"k = {k}"] = compared(json.loads(path.read_text("utf-8")), by_k[k])
    return found


def pack(args: argparse.Namespace) -> dict[str, Any]:
    """Download wheels and write the bundles."""
    from benchmarks import train_gpu_pack  # noqa: PLC0415 - as above

    folder = args.out / "whl"
    told: dict[str, Any] = {} if args.no_wheels else {"wheels": train_gpu_pack.wheels(folder)}
    bundles = dict(one.split("=", 1) for one in args.bundle)
    every = {name: Path(path).resolve() for name, path in bundles.items()}
    return {**told, **train_gpu_pack.pack(args.out, every if args.no_wheels else {"train": folder, **every})}


def unpack(args: argparse.Namespace) -> dict[str, Any]:
    """Put a bundle together, and install its wheels."""
    from benchmarks import train_gpu_pack  # noqa: PLC0415 - as above

    train_gpu_pack.unpack(args.source, args.to, args.site)
    return {"unpacked": str(args.to)}


def check(_args: argparse.Namespace) -> dict[str, Any]:
    """Import what will be needed."""
    from benchmarks import train_gpu_pack  # noqa: PLC0415 - as above

    return dict(train_gpu_pack.check())


def parser() -> argparse.ArgumentParser:
    """Return the command line: a sub-command a stage."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = made.add_subparsers(dest="verb", required=True)

    def verb(function: Callable[[argparse.Namespace], dict[str, Any]], **options: Any) -> None:
        one = verbs.add_parser(function.__name__, help=function.__doc__)
        one.set_defaults(run_verb=function)
        for name, told in options.items():
            if isinstance(told, dict):
                one.add_argument(f"--{name.replace('_', '-')}", **told)
            elif told is Path or told is int:
                one.add_argument(f"--{name.replace('_', '-')}", type=told, required=True)
            else:
                one.add_argument(f"--{name.replace('_', '-')}", type=type(told), default=told)

    path = {"type": Path}
    python = {"type": Path, "default": Path(sys.executable), "help": "the interpreter that trains"}
    limit = {"type": float, "default": 480.0, "help": "seconds after which it ends in order"}
    device = {"choices": ("cuda", "cpu"), "default": "cuda"}
    verb(
        prompts,
        prompts=Path,
        target=Path,
        unseen={"type": Path, "nargs": "*", "default": []},
        out=Path,
        whole="humaneval",
        most=1200,
        rows={"type": int},
    )
    verb(
        answers,
        model=Path,
        prompts=Path,
        parts=Path,
        limit=limit,
        goal=12_000_000,
        rounds=8,
        sampled=2,
        chunk=2000,
        at_a_time=512,
        max_tokens=320,
        temperature=0.8,
        engine={
            "default": '{"dtype": "bfloat16", "gpu_memory_utilization": 0.8, "enable_prefix_caching": true, '
            '"max_num_batched_tokens": 16384, "compilation_config": {"max_cudagraph_capture_size": 512}}',
            "help": "further arguments of vllm.LLM, JSON",
        },
    )
    verb(
        data,
        run=Path,
        target=Path,
        prompts=Path,
        parts=Path,
        vocab={"type": int},
        epochs=10,
        batch_tokens=16_384,
        optimizer={"choices": ("muon", "adamw"), "default": "muon"},
        device=device,
    )
    verb(
        fit,
        run=Path,
        site=path,
        python=python,
        limit=limit,
        epochs=int,
        lr=1e-3,
        walk_samples=200,
        validated=800,
        save_every=120.0,
    )
    verb(walk, run=Path, site=path, python=python, samples={"type": int}, served=path)
    verb(export, run=Path)
    verb(bring, source=Path, out=Path, part=0, each=STATE_PARTS)
    verb(take, source=Path, to=Path)
    verb(
        step,
        run=Path,
        sizes={"type": int, "nargs": "+", "default": [8192, 32_768]},
        device=device,
        repeats=20,
        limit=limit,
        out=Path,
    )
    verb(
        serve,
        model=Path,
        head=Path,
        questions=Path,
        out=Path,
        count=100,
        ks={"type": int, "nargs": "+", "default": [1, 3]},
        loads={"type": int, "nargs": "+", "default": [1, 4]},
        max_tokens=256,
        max_model_len=4096,
        start=300.0,
        limit=limit,
        probe=40,
        port=8801,
        server={"default": SERVER, "help": "further arguments of every server"},
    )
    verb(compare, run=Path, out=Path)
    verb(pack, out=Path, bundle={"nargs": "*", "default": []}, no_wheels={"action": "store_true"})
    verb(unpack, source=Path, to=Path, site=path)
    verb(check)
    return made


def main(words: list[str] | None = None) -> int:
    """Run a stage; its result is printed as JSON, the last line."""
    args = parser().parse_args(words)
    found = args.run_verb(args)
    print(json.dumps(found), flush=True)
    return 1 if "failed" in found else 0


if __name__ == "__main__":
    sys.exit(main())
