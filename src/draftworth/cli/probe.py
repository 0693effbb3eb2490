"""`draftworth probe`: what a step costs on a server that runs, by the tokens in it."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from draftworth.costs.base import Costs
    from draftworth.costs.probe import Options
    from draftworth.costs.subject import Subject


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

    Exits 0 when measured, 1 for wrong input, 2 where the server is busy or speculates, 6 where nothing could be
    measured.
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
        costs = _with_trial(costs, trial)
    return _written(costs, out, as_json=as_json)


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
    """Measure, with progress on a terminal."""
    from draftworth.costs.probe import probe as measure  # noqa: PLC0415 - lazy

    live = sys.stderr.isatty()

    def say(what: str, done: int, most: int) -> None:
        if live:
            print(f"\r\x1b[2K{done} of {most}: {what}", end="", file=sys.stderr, flush=True)

    try:
        return measure(found, options, on_cell=say)
    finally:
        if live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _with_trial(costs: "Costs", trial: Path) -> "Costs":
    from draftworth.costs.file import merge, modes_from_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy

    folder = trial if trial.is_dir() else find_trial(str(trial))
    told: list[str] = []
    modes, points = modes_from_trial(
        folder, costs.points, engine=costs.engine, graph_sizes=costs.graph_sizes, explain=told
    )
    return merge(costs, modes, points, told)


def _written(costs: "Costs", out: Path | None, *, as_json: bool) -> int:
    from draftworth.costs.file import new_costs, save_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.ladder import lines  # noqa: PLC0415 - lazy

    path = out or new_costs()
    save_costs(costs, path)
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(costs.model_dump_json(indent=1) if as_json else "\n".join(lines(costs)))
        if not as_json:
            print(f"\nCosts: {path}")
        sys.stdout.flush()
    return EXIT_DONE
