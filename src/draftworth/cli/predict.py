"""`draftworth predict`: the speed-up of every setting before any reload, and how far earlier predictions were off."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli.settings import (
    Longest,
    MaxModelLen,
    More,
    MostDrafted,
    OneArm,
    OneModel,
    Shortest,
    TokenizerFile,
    TraceFile,
    Vocabulary,
    arm_configs,
    check_has_arms,
    chosen_drafter,
    chosen_settings,
    replay_progress,
    whole_numbers,
)
from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_DONE, EXIT_NOT_MEASURED, UsageError

if TYPE_CHECKING:
    from draftworth.costs.base import Costs
    from draftworth.costs.subject import Subject
    from draftworth.drafters.base import Drafter, Limits, Setting
    from draftworth.drafters.replay import Replayed
    from draftworth.predict.base import Prediction
    from draftworth.predict.requests import Requests
    from draftworth.traces.base import Trace

_PROBE_S = 90.0
"""Seconds a probe takes at most where a URL is given."""
_LONGEST_MS = 3_600_000.0
"""Of a time to the first token: an hour."""


def predict(
    trace: TraceFile = None,
    /,
    *,
    costs: Annotated[Path | None, Parameter(help="A costs file, as `draftworth probe` writes it.")] = None,
    url: Annotated[
        str | None,
        Parameter(help="Instead: a running baseline, which is probed first: up to 90 s of load. The costs are kept."),
    ] = None,
    log: Annotated[Path | None, Parameter(help="With --url: the server's log, for graph sizes and runner.")] = None,
    drafter: Annotated[
        str | None,
        Parameter(
            help="Which algorithm, see `draftworth replay --list`; several are compared: `vllm-ngram-v1,vllm-suffix`. "
            "Default: the engine's own n-gram drafting."
        ),
    ] = None,
    k: MostDrafted = None,
    min: Shortest = None,  # noqa: A002
    max: Longest = None,  # noqa: A002
    set: More = None,  # noqa: A002 - the word people know
    grid: Annotated[
        bool, Parameter(negative="", help="The settings worth trying; the default where none are named.")
    ] = False,
    concurrency: Annotated[str, Parameter(help="Requests that run at a time, e.g. 1,4,16; at most 4,096.")] = "1,2,4,8",
    context: Annotated[
        int | None, Parameter(help="Tokens of a request in the KV cache; default: the trace's, half-way an answer.")
    ] = None,
    ttft: Annotated[
        float | None,
        Parameter(
            help="The baseline's time to the first token for such prompts, one at a time, in ms: what the prefills of "
            "other requests add to each token. Default: not counted, with a note."
        ),
    ] = None,
    max_model_len: MaxModelLen = None,
    model_config: Annotated[
        Path | None,
        Parameter(help="The model's config.json or folder: its experts and KV cache, beyond what was probed."),
    ] = None,
    heads: Annotated[
        bool, Parameter(negative="", help="Also what a head or draft model that does not exist yet must reach to pay.")
    ] = False,
    draft_share: Annotated[
        float, Parameter(help="With --heads: time of drafting one token over a step of the baseline.")
    ] = 0.05,
    tokenizer: TokenizerFile = None,
    model: OneModel = None,
    arm: OneArm = None,
    vocabulary: Vocabulary = None,
    check: Annotated[
        list[Path] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="Instead: finished trials, by id or folder, one or several; their arms, predicted against measured.",
        ),
    ] = None,
    speculation: Annotated[
        list[str] | None,
        Parameter(negative="", help="With --check: what an arm's server was started with, `ARM=JSON`. Repeatable."),
    ] = None,
    before_reload: Annotated[
        bool,
        Parameter(
            negative="",
            help="With --check: leave out engine modes that the trials' own arms measured, as before any reload.",
        ),
    ] = False,
    top: Annotated[int, Parameter(help="Rows of the table at each load.")] = 10,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Predict the speed-up of every setting from recorded traffic and the costs of the running baseline's steps.

    No server is restarted. "None of them pays" is an answer, with how far the nearest is.

    Exits 0 when predicted, 1 for wrong input; with --url also 2 where the server is busy or speculates, 6 where nothing
    could be measured; with --check also 6 where no arm could be judged.
    """
    if check is not None:
        if not check:
            raise UsageError("--check: which trials? Their ids or folders come behind it")
        if trace is not None or url is not None:
            raise UsageError("--check takes the traffic from the trials: leave out the trace and --url")
        return _check(check, costs, speculation or (), before_reload=before_reload, as_json=as_json)
    if speculation or before_reload:
        raise UsageError(f"--{'speculation' if speculation else 'before-reload'} goes with --check")
    if trace is None:
        raise UsageError("which trace? `draftworth trace record` makes one")
    if ttft is not None and not 0 < ttft < _LONGEST_MS:
        raise UsageError(f"--ttft: must be above 0 and below {_LONGEST_MS:,.0f} ms, not {ttft:g}")
    _check_values(
        costs,
        url,
        draft_share,
        {"context": context, "max-model-len": max_model_len, "vocabulary": vocabulary, "top": top},
    )
    loads = whole_numbers("--concurrency", concurrency) or []
    from draftworth.cli.sources import access_of  # noqa: PLC0415 - lazy
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.paper.config import read_shape  # noqa: PLC0415 - lazy
    from draftworth.costs.subject import subject  # noqa: PLC0415 - lazy
    from draftworth.drafters.base import Limits  # noqa: PLC0415 - lazy
    from draftworth.drafters.limits import check_at_a_time  # noqa: PLC0415 - lazy
    from draftworth.predict.speculation import default_drafter  # noqa: PLC0415 - lazy
    from draftworth.predict.whole import Run, check_engine, context_of, predicted  # noqa: PLC0415 - lazy
    from draftworth.traces.store import open_trace  # noqa: PLC0415 - lazy

    check_at_a_time(loads)
    shape = None if model_config is None else read_shape(model_config)
    opened = open_trace(trace, tokenizer=tokenizer, model=model, arm=arm, vocabulary=vocabulary)
    if arm is not None:
        check_has_arms(opened)
    access = access_of(api_key_env=api_key_env, header=header, ca_file=ca_file)
    server = None if url is None else subject(url, access=access, log=log)
    known = load_costs(costs or Path()) if server is None else _before(server)
    names = drafter or default_drafter(known.engine, known.version, known.runner)
    chosen = [chosen_drafter(name) for name in dict.fromkeys(one.strip() for one in names.split(","))]
    for one in chosen:
        check_engine(one, known)
    named = any(value is not None for value in (k, min, max, set))
    settings = [
        chosen_settings(one, k=k, shortest=min, longest=max, more=set or (), grid=grid or not named) for one in chosen
    ]
    limits = Limits(max_model_len=max_model_len, vocabulary=vocabulary)
    runs = [Run(one, _replayed(opened, one, some, loads, limits)) for one, some in zip(chosen, settings, strict=True)]
    if server is not None:
        depth = context or context_of(runs[0])
        known = _probed(server, depth, loads, [one.k for some in settings for one in some])
    share = draft_share if heads else None
    prediction = predicted(trace, runs, known, shape=shape, context=context, draft_share=share, ttft_ms=ttft)
    _show(prediction, top=top, as_json=as_json)
    return EXIT_DONE


def _check_values(costs: Path | None, url: str | None, draft_share: float, counts: Mapping[str, int | None]) -> None:
    if (costs is None) == (url is None):
        raise UsageError("what does a step cost? Give --costs FILE (from `draftworth probe`) or --url URL, one of them")
    if not 0 <= draft_share <= 1:
        raise UsageError(f"--draft-share: must be from 0 to 1, not {draft_share:g}")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UsageError(f"--{name}: must be at least 1, not {value}")


def _before(found: "Subject") -> "Costs":
    """Return what is known of a server before it is probed."""
    from draftworth.costs.base import Costs  # noqa: PLC0415 - lazy

    return Costs(created="", engine=found.live.engine.name, version=found.version, runner=found.facts.runner)


def _probed(found: "Subject", context: int, loads: Sequence[int], ks: Sequence[int]) -> "Costs":
    """Probe a baseline at the trace's context, up to the steps that will be predicted, and keep the costs."""
    from draftworth.cli.probe import measured  # noqa: PLC0415 - lazy
    from draftworth.costs.file import new_costs, save_costs  # noqa: PLC0415 - lazy
    from draftworth.costs.probe import Options  # noqa: PLC0415 - lazy
    from draftworth.drafters.limits import MOST_AT_A_TIME  # noqa: PLC0415 - lazy

    # In doublings: T is a staircase with wide treads up there.
    most = max(loads) * (1 + max(ks))
    doublings = (2**at for at in range(most.bit_length() + 1))
    sizes = {1, 2, *loads, *(one for one in doublings if one <= MOST_AT_A_TIME)}
    options = Options(concurrency=tuple(sorted(sizes)), contexts=(context,), budget_s=_PROBE_S)
    costs = measured(found, options)
    path = new_costs()
    save_costs(costs, path)
    print(f"Costs: {path}", file=sys.stderr)
    return costs


def _replayed(
    opened: "Trace", drafter: "Drafter", settings: Sequence["Setting"], loads: Sequence[int], limits: "Limits"
) -> "dict[int, tuple[Replayed, list[Requests]]]":
    """Replay once for all loads, or once for each where requests share what was learned."""
    from draftworth.predict.requests import replay_requests  # noqa: PLC0415 - lazy

    found: dict[int, tuple[Replayed, list[Requests]]] = {}
    for load in loads if drafter.shared else loads[:1]:
        here = replace(limits, concurrency=load if drafter.shared else 1)
        with replay_progress(opened.requests, len(settings)) as tell:
            found[load] = replay_requests(opened, drafter, settings, here, progress=tell)
    return {load: found.get(load, found[loads[0]]) for load in loads}


def _show(prediction: "Prediction", *, top: int, as_json: bool) -> None:
    from draftworth.reports.predict import lines  # noqa: PLC0415 - lazy

    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            print(json.dumps(prediction.model_dump(mode="json"), indent=1, allow_nan=False))
        else:
            print("\n".join(lines(prediction, most=top)))
        sys.stdout.flush()


def _check(
    trials: Sequence[Path], costs: Path | None, speculation: Sequence[str], *, before_reload: bool, as_json: bool
) -> int:
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy
    from draftworth.predict.check import check_trials  # noqa: PLC0415 - lazy
    from draftworth.reports.predict import check_lines  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy

    configs = arm_configs(speculation)
    folders = [trial if trial.is_dir() else find_trial(str(trial)) for trial in trials]
    known = None if costs is None else load_costs(costs)
    checked = check_trials(folders, known, configs, before_reload=before_reload)
    with suppress(BrokenPipeError):
        if as_json:
            print(json.dumps(checked.model_dump(mode="json"), indent=1, allow_nan=False))
        else:
            print("\n".join(check_lines(checked)))
        sys.stdout.flush()
    return EXIT_DONE if checked.cells else EXIT_NOT_MEASURED
