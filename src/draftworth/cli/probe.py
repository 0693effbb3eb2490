"""`draftworth probe`: what a step costs on a server that runs, by the tokens in it."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_CTRL_C, EXIT_DONE, DraftworthError, RefusedError, UsageError

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
    from draftworth.cli.probe_options import options_of  # noqa: PLC0415 - lazy

    options = options_of(
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
    if out is not None:
        _check_place(out, adds=url is None)
    trials = [_folder(trial) for trial in add_trial or ()]
    if url is None:
        assert out is not None
        from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy

        costs = load_costs(out)
    else:
        from draftworth.cli.sources import access_of  # noqa: PLC0415 - lazy
        from draftworth.costs.file import new_costs  # noqa: PLC0415 - lazy
        from draftworth.costs.subject import subject  # noqa: PLC0415 - lazy

        found = subject(
            url,
            access=access_of(api_key_env=api_key_env, header=header, ca_file=ca_file),
            model=model,
            engine=engine,
            log=log,
            token_timeout_s=token_timeout,
        )
        if out is None:
            _check_place(new_costs(), adds=False)
        costs = measured(found, options)
    try:
        for trial in trials:
            costs = _with_trial(costs, trial, anyway=anyway)
    except DraftworthError:
        if url is not None:
            _keep(costs, out)
        raise
    code = _written(costs, out, as_json=as_json)
    return EXIT_CTRL_C if any(note.startswith("interrupted") for note in costs.notes) and url else code


def measured(found: "Subject", options: "Options") -> "Costs":
    """Measure, with progress. A signal ends it: what has an interval by then is returned, with a note.

    Raises:
        UsageError: the server takes no request as long as the contexts that were asked for.
        RefusedError: it is busy, or speculates.
        MeasureError: nothing could be measured.
        KeyboardInterrupt: a signal came before any cell had an interval; that was said.
    """
    from draftworth.cli.probe_options import check_fits  # noqa: PLC0415 - lazy
    from draftworth.costs.probe import probe as measure  # noqa: PLC0415 - lazy
    from draftworth.trials.interrupts import Interrupts  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    check_fits(found, options)
    interrupts = Interrupts(lambda _: None, first="what was measured is kept", what="the probe")
    with _handlers_kept(), interrupts.installed(), Progress(sys.stderr, kinds=["probe"]) as progress:
        interrupts.tell = progress.line

        def on_cell(what: str, done: int, whole: int) -> None:
            interrupts.check()
            progress.count(done, whole, what)

        progress.step("probe the running baseline")
        try:
            return measure(found, options, on_cell=on_cell)
        except KeyboardInterrupt:
            progress.line("nothing is kept: no cell was measured in two rounds yet, and one value has no interval")
            raise
        finally:
            interrupts.hold()


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Put the signals' handlers back behind the block: what follows the probe may be interrupted too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _folder(trial: Path) -> Path:
    """Return a trial's folder. Raises UsageError where there is no such trial, or it cannot be read."""
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    folder = trial if trial.is_dir() else find_trial(str(trial))
    read(folder)
    return folder


def _with_trial(costs: "Costs", folder: Path, *, anyway: bool) -> "Costs":
    """Add what a trial's arms tell of engine modes.

    Raises:
        UsageError: there is no such trial.
        RefusedError: it is of another server.
    """
    from draftworth.costs.file import merge, modes_from_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

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


def _check_place(path: Path, *, adds: bool) -> None:
    """Refuse a place before anything is measured; that it can be written to is tried.

    Raises:
        UsageError: it is there already and nothing is added to it, or it cannot be written.
    """
    from draftworth.traces.places import try_folder  # noqa: PLC0415 - lazy

    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file")
        if adds and not path.exists():
            return  # reading it says so
        if not adds and path.exists():
            lost = "its engine modes would be lost"
            raise UsageError(f"{path} is there already: choose another name, or remove it ({lost})")
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent}: no such folder")
        try_folder(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None


def _keep(costs: "Costs", out: Path | None) -> None:
    """Write what was measured, and say where, before something else fails."""
    from draftworth.costs.file import new_costs, save_costs  # noqa: PLC0415 - lazy

    path = out or new_costs()
    save_costs(costs, path)
    print(f"draftworth: what was measured is kept in {path}", file=sys.stderr)


def _written(costs: "Costs", out: Path | None, *, as_json: bool) -> int:
    """Write and show the costs; what cannot be written is shown, unless a document alone may be.

    Raises:
        UsageError: it cannot be written.
    """
    from draftworth.costs.file import new_costs, save_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.ladder import lines  # noqa: PLC0415 - lazy

    kept = False
    try:
        path = out or new_costs()
        save_costs(costs, path)
        kept = True
    finally:
        with suppress(BrokenPipeError):  # whoever read the output has gone
            if as_json and kept:
                print(costs.model_dump_json(indent=1))
            elif not as_json:
                print("\n".join([*lines(costs), *(["", f"Costs: {path}"] if kept else [])]))
            sys.stdout.flush()
    return EXIT_DONE
