"""`draftworth probe`: what a step costs on a server that runs, by the tokens in it."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_CTRL_C, EXIT_DONE, RefusedError, UsageError

if TYPE_CHECKING:
    from draftworth.costs.base import Costs, StepCost
    from draftworth.costs.probe import Options
    from draftworth.costs.subject import Subject
    from draftworth.trials.record import TrialRecord

_FAR = 1.5
"""How many times as long as in the costs a trial's baseline may take for a step, or as short."""


def probe(
    url: Annotated[
        str | None, Parameter(help="The baseline's URL; may be left out with --add-trial, to add to --out.")
    ] = None,
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="The costs file; default: costs/<time>.json under $DRAFTWORTH_HOME.")
    ] = None,
    concurrency: Annotated[str, Parameter(help="Streams at a time.")] = "1,2,4,8,16,32",
    tokens: Annotated[
        str, Parameter(help="New tokens behind a cached prefix, with one token out; 0 for none.")
    ] = "2,3,4,6,9",
    context: Annotated[str, Parameter(help="Tokens of each request in the KV cache, e.g. 512,4096.")] = "512",
    prefix_batch: Annotated[str, Parameter(help="Prefixes at a time.")] = "1",
    repeats: Annotated[int, Parameter(help="Rounds over everything; from 6 on intervals assume no shape.")] = 6,
    output: Annotated[int, Parameter(help="Tokens of each stream.")] = 64,
    budget: Annotated[float, Parameter(help="Seconds after which no more is measured.")] = 120.0,
    max_load: Annotated[int, Parameter(help="Requests of others that may be at hand.")] = 0,
    wait: Annotated[float, Parameter(help="Seconds to wait for others' requests to end.")] = 10.0,
    anyway: Annotated[
        bool, Parameter(help="Measure a busy or a speculating server, and note it.", negative="")
    ] = False,
    log: Annotated[Path | None, Parameter(help="The server's log: CUDA-graph sizes, runner, time of a start.")] = None,
    add_trial: Annotated[
        list[Path] | None,
        Parameter(negative="", help="Add engine modes from a finished trial's null-draft and synthetic arms."),
    ] = None,
    model: Annotated[str | None, Parameter(help="The served model's name; default: the first.")] = None,
    engine: Annotated[str | None, Parameter(help="vllm, sglang, llamacpp or trtllm; default: recognised.")] = None,
    seed: Annotated[int, Parameter(help="Of prompts and orders.")] = 0,
    token_timeout: Annotated[float, Parameter(help="Seconds without any event until a request has failed.")] = 120.0,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="The costs file on standard output, nothing else there.")
    ] = False,
) -> int:
    """Measure what a step of a running baseline costs, without restarting it, and write a costs file.

    By concurrency: B streams, timed while all decode. By cached prefix: n new tokens behind it, one token out.
    All cells in random order, several rounds.

    Exits 0 when measured, 1 for wrong input, 2 where the server is busy or speculates, or a trial is of another server,
    6 where nothing could be measured, 130 after Ctrl-C (what was measured until then is kept).
    """
    if url is None and (not add_trial or out is None):
        raise UsageError("give the URL of a running baseline; or --add-trial TRIAL and --out FILE, to add to a file")
    options = _options(
        concurrency=concurrency,
        tokens=tokens,
        context=context,
        prefix_batch=prefix_batch,
        repeats=repeats,
        output=output,
        budget=budget,
        max_load=max_load,
        wait=wait,
        anyway=anyway,
        seed=seed,
    )
    _check_out(out, adds=url is None)
    if url is None:
        assert out is not None
        from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy

        costs = load_costs(out)
    else:
        from draftworth.cli.sources import access_of  # noqa: PLC0415 - lazy
        from draftworth.costs.subject import subject  # noqa: PLC0415 - lazy

        found = subject(
            url,
            access=access_of(api_key_env=api_key_env, header=header, ca_file=ca_file),
            model=model,
            engine=engine,
            log=log,
            token_timeout_s=token_timeout,
        )
        costs = measured(found, options)
    for trial in add_trial or ():
        costs = _with_trial(costs, trial, anyway=anyway)
    code = _written(costs, out, as_json=as_json)
    return EXIT_CTRL_C if any(note.startswith("interrupted") for note in costs.notes) and url else code


def _options(
    *,
    concurrency: str,
    tokens: str,
    context: str,
    prefix_batch: str,
    repeats: int,
    output: int,
    budget: float,
    max_load: int,
    wait: float,
    anyway: bool,
    seed: int,
) -> "Options":
    from draftworth.costs.concurrency import FEWEST_STEPS  # noqa: PLC0415 - lazy
    from draftworth.costs.probe import Options  # noqa: PLC0415 - lazy

    for name, value, least in (
        ("repeats", repeats, 2),
        ("output", output, 2 * FEWEST_STEPS),
        ("max-load", max_load, 0),
        ("wait", wait, 0),
    ):
        if not value >= least:
            raise UsageError(f"--{name}: must be at least {least}, not {value:g}")
    if not 0 < budget < float("inf"):
        raise UsageError(f"--budget: must be seconds above 0, not {budget:g}")
    return Options(
        concurrency=_numbers("concurrency", concurrency),
        tokens=() if tokens.strip() == "0" else _numbers("tokens", tokens),
        contexts=_numbers("context", context),
        prefix_batch=_numbers("prefix-batch", prefix_batch),
        repeats=repeats,
        output=output,
        budget_s=budget,
        max_load=max_load,
        wait_s=wait,
        anyway=anyway,
        seed=seed,
    )


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"--{option}: must be whole numbers like 1,2,4, not {text!r}") from None
    if min(found) < 1:
        raise UsageError(f"--{option}: must be whole numbers of at least 1, not {text!r}")
    return found


def measured(found: "Subject", options: "Options") -> "Costs":
    """Measure, with progress.

    Raises:
        UsageError: the server takes no request as long as the contexts that were asked for.
        RefusedError: it is busy, or speculates.
        MeasureError: nothing could be measured.
    """
    from draftworth.costs.probe import probe as measure  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    most = found.max_model_len
    if most is not None and min(options.contexts) + 1 >= most:
        raise UsageError(f"--context {min(options.contexts)}: the server takes at most {most:,} tokens a request")
    with Progress(sys.stderr, kinds=["probe"]) as progress:
        progress.step("probe the running baseline")
        return measure(found, options, on_cell=lambda what, done, whole: progress.count(done, whole, what))


def _with_trial(costs: "Costs", trial: Path, *, anyway: bool) -> "Costs":
    """Add what a trial's arms tell of engine modes.

    Raises:
        UsageError: there is no such trial.
        RefusedError: it is of another server.
    """
    from draftworth.costs.file import merge, modes_from_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    folder = trial if trial.is_dir() else find_trial(str(trial))
    told: list[str] = []
    modes, points = modes_from_trial(
        folder,
        costs.points,
        engine=costs.engine,
        graph_sizes=costs.graph_sizes,
        prefills=costs.prefills,
        explain=told,
        known_modes=costs.modes,
    )
    other = _another(costs, read(folder), points)
    if other and not anyway:
        raise RefusedError(f"{folder}: {other}; it is of another server; --anyway adds it all the same")
    told += [f"{folder.name}: {other}"] if other else []
    told += [
        f"{one.source} at {one.batch}: left out: its steps come out {-one.ms:.2f} ms shorter than the baseline's of as "
        "many tokens, so T of those is too dear here"
        for one in modes
        if one.high < 0
    ]
    return merge(costs, [one for one in modes if one.high >= 0], points, told)


def _another(costs: "Costs", record: "TrialRecord", points: Sequence["StepCost"]) -> str | None:
    """Return why a trial is of another server than the costs, None where nothing says so."""
    if not record.arms:
        return None
    baseline = record.arms[0]
    for what, here, there in (("engine", costs.engine, baseline.engine), ("version", costs.version, baseline.version)):
        if here and there and here != there:
            return f"its {what} is {there}, that of the costs {here}"
    known = {one.batch: one.ms for one in costs.points if one.tokens == 1}
    for one in points:
        if one.batch in known and not 1 / _FAR < one.ms / known[one.batch] < _FAR:
            mine = known[one.batch]
            return f"a step of its baseline takes {one.ms:.2f} ms at {one.batch} at a time, in the costs {mine:.2f}"
    return None


def _check_out(out: Path | None, *, adds: bool) -> None:
    """Refuse a place before anything is measured.

    Raises:
        UsageError: it is there already and nothing is added to it, or it cannot be written.
    """
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder: name a file")
    if adds:
        return
    if out.exists():
        raise UsageError(f"{out} is there already: choose another name, or remove it (its engine modes would be lost)")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent}: no such folder")
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"{out.parent}: cannot be written")


def _written(costs: "Costs", out: Path | None, *, as_json: bool) -> int:
    from draftworth.costs.file import new_costs, save_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.ladder import lines  # noqa: PLC0415 - lazy

    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(costs.model_dump_json(indent=1) if as_json else "\n".join(lines(costs)))
        sys.stdout.flush()
    path = out or new_costs()
    save_costs(costs, path)
    with suppress(BrokenPipeError):
        if not as_json:
            print(f"\nCosts: {path}")
        sys.stdout.flush()
    return EXIT_DONE
