"""`draftworth bench`: measure one server that runs, under one load or a sweep of them."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_CTRL_C, DraftworthError, UsageError

if TYPE_CHECKING:
    from draftworth.bench.config import WorkloadConfig
    from draftworth.bench.session import BenchPlan, BenchRun


def bench(
    url: Annotated[str, Parameter(help="The server's URL, with its base path; `/v1` may be left out.")],
    file: Annotated[
        Path | None, Parameter(help="Prompts, conversations or a trace; default: the built-in prompts.")
    ] = None,
    /,
    *,
    model: Annotated[str | None, Parameter(help="The served model's name; default: the first.")] = None,
    engine: Annotated[str | None, Parameter(help="vllm, sglang, llamacpp or trtllm; default: recognised.")] = None,
    concurrency: Annotated[
        str | None, Parameter(help="Closed loop: requests at a time, e.g. 1,8,32; default 1.")
    ] = None,
    rate: Annotated[str | None, Parameter(help="Open loop: requests a second (Poisson), e.g. 2,4,8.")] = None,
    replay: Annotated[
        float | None, Parameter(help="Send a trace at its recorded times, this many times as fast (1: as recorded).")
    ] = None,
    max_tokens: Annotated[str, Parameter(help="Most tokens of an answer, e.g. 128,1024.")] = "192",
    context_tokens: Annotated[
        str | None, Parameter(help="Fill prompts up with text to about so many tokens, e.g. 1000,8000.")
    ] = None,
    format: Annotated[  # noqa: A002 - the word people know
        str | None,
        Parameter(help="The file's layout: trace, sharegpt, speed-bench, spec-bench or plain; else recognised."),
    ] = None,
    categories: Annotated[str | None, Parameter(help="Only these categories, e.g. coding,math.")] = None,
    prompts_per_category: Annotated[int | None, Parameter(help="At most this many prompts of each.")] = None,
    limit: Annotated[int | None, Parameter(help="At most this many prompts.")] = None,
    order_seed: Annotated[int | None, Parameter(help="Shuffle the prompts by this seed.")] = None,
    first_turn_only: Annotated[bool, Parameter(help="Send only the first turn of conversations.", negative="")] = False,
    recorded_lengths: Annotated[
        bool, Parameter(help="Of a trace: no answer longer than the recorded one.", negative="")
    ] = False,
    repeats: Annotated[int, Parameter(help="How often each prompt is sent at each point.")] = 1,
    temperature: Annotated[float, Parameter(help="Sampling temperature; 0 is greedy.")] = 0.0,
    seed: Annotated[int, Parameter(help="Of sampling and of arrival times.")] = 0,
    ignore_eos: Annotated[
        bool, Parameter(help="Generate past the end token; changes what is measured.", negative="")
    ] = False,
    warmup: Annotated[int, Parameter(help="Requests before the first measured one.")] = 2,
    retries: Annotated[int, Parameter(help="How often a request refused with 429 or 5xx is sent again.")] = 2,
    slo_ttft_ms: Annotated[float | None, Parameter(help="Goodput: most milliseconds to the first token.")] = None,
    slo_tpot_ms: Annotated[float | None, Parameter(help="Goodput: most milliseconds a token after it.")] = None,
    slo_e2e_ms: Annotated[float | None, Parameter(help="Goodput: most milliseconds to the end.")] = None,
    token_timeout: Annotated[float, Parameter(help="Seconds without any event until a request has failed.")] = 120.0,
    failed_share: Annotated[float, Parameter(help="Share of failed requests above which it ends.")] = 0.1,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Measure a server that runs: time per token, time to the first token, throughput, acceptance, and what to doubt.

    Several values of an option are a sweep. Requests go to requests.parquet, the record to bench.json, a page with
    plots to report.html, in $DRAFTWORTH_HOME/benches.

    Exits 0 when measured, 1 for wrong input, 6 where too many requests failed, 130 after Ctrl-C; what was measured
    until then is kept.
    """
    from draftworth.bench.session import prepare  # noqa: PLC0415 - lazy
    from draftworth.cli.sources import access_of  # noqa: PLC0415 - lazy
    from draftworth.verdicts.rules import Limits  # noqa: PLC0415 - lazy

    for name, value in (
        ("token-timeout", token_timeout),
        *(
            (f"slo-{name}-ms", value)
            for name, value in (("ttft", slo_ttft_ms), ("tpot", slo_tpot_ms), ("e2e", slo_e2e_ms))
        ),
    ):
        if value is not None and not value > 0:
            raise UsageError(f"--{name}: must be above 0, not {value:g}")
    if not 0 <= failed_share <= 1:
        raise UsageError(f"--failed-share: must lie between 0 and 1, not at {failed_share:g}")
    options: dict[str, Any] = {
        "source": "builtin" if file is None else str(file),
        "format": format,
        "categories": _words(categories),
        "prompts_per_category": prompts_per_category,
        "limit": limit,
        "order_seed": order_seed,
        "first_turn_only": first_turn_only,
        "recorded_lengths": recorded_lengths,
        "repeats": repeats,
        "temperature": temperature,
        "seed": seed,
        "ignore_eos": ignore_eos,
        "warmup": warmup,
        "retries": retries,
        "max_tokens": _numbers("max-tokens", max_tokens, int),
        "context_tokens": _numbers("context-tokens", context_tokens, int),
        "concurrency": _numbers("concurrency", concurrency, int),
        "rate": _numbers("rate", rate, float),
        "replay_speed": replay,
    }
    plan = prepare(
        url,
        _work({name: value for name, value in options.items() if value is not None}),
        access=access_of(api_key_env=api_key_env, header=header, ca_file=ca_file),
        model=model,
        limits=Limits(ttft_ms=slo_ttft_ms, tpot_ms=slo_tpot_ms, e2e_ms=slo_e2e_ms),
        token_timeout_s=token_timeout,
        failed_share=failed_share,
        engine=engine,
    )
    return _measure(plan, as_json=as_json)


def _measure(plan: "BenchPlan", *, as_json: bool) -> int:
    """Measure with progress on standard error, print the result, return the exit code."""
    from draftworth.bench.session import BenchRun, new_bench  # noqa: PLC0415 - lazy: heavy imports
    from draftworth.reports.bench import HTML, lines, write_html  # noqa: PLC0415 - lazy

    began_unix = time.time()
    folder = new_bench()
    run = BenchRun(plan, folder=folder)
    crash: Exception | None = None
    interrupted = False
    try:
        interrupted = _run(run)
    except Exception as error:  # noqa: BLE001 - a bug: raised again once everything is written
        run.error = f"a bug in Draftworth ended it: {type(error).__name__}: {error}; what was measured is kept"
        crash = error
    record = run.finish(began_unix=began_unix, folder=folder)
    if crash is not None:
        print(f"draftworth: what was measured is kept in {folder}", file=sys.stderr)
        raise crash
    write_html(record, folder)
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(record.model_dump_json(indent=1) if as_json else "\n".join(lines(record)))
        if not as_json:
            print(f"Report: {folder / HTML}")
        sys.stdout.flush()
    if interrupted:
        return EXIT_CTRL_C
    return record.exit_code


def _run(run: "BenchRun") -> bool:
    """Run a benchmark and keep what ended it early. Returns whether a person ended it."""
    from draftworth.trials.interrupts import Interrupt, Interrupts  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    interrupts = Interrupts(lambda _: None, first="what was measured is kept", what="the benchmark")
    points = run.plan.sweep
    with interrupts.installed(), Progress(sys.stderr, kinds=["point"] * len(points)) as progress:
        interrupts.tell = progress.line

        def count(done: int, total: int, note: str) -> None:
            interrupts.check()
            each = max(1, total // len(points))
            number = min(len(run.windows), len(points)) or 1
            progress.count(max(0, done - each * (number - 1)), each, note)

        try:
            run.measure(on_count=count, on_point=lambda label: progress.step(f"measure {label}"))
        except Interrupt as interrupt:
            run.error = f"interrupted by {interrupt}; what was measured is kept"
            return True
        except DraftworthError as error:
            run.error = str(error)
        finally:
            interrupts.hold()
    return False


def _work(options: dict[str, Any]) -> "WorkloadConfig":
    """Return the workload that options ask for."""
    from pydantic import ValidationError  # noqa: PLC0415 - lazy

    from draftworth.bench.config import WorkloadConfig  # noqa: PLC0415 - lazy

    try:
        return WorkloadConfig.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]).replace("_", "-") if first["loc"] else ""
        name = {"replay-speed": "replay"}.get(name, name)
        message = str(first["msg"]).removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        raise UsageError(f"--{name}: {message}, not {first['input']!r}" if name else message) from None


def _numbers(option: str, text: str | None, kind: type) -> list[Any] | None:
    """Return the numbers of `1,8,32`."""
    if text is None:
        return None
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        example = "1,8,32" if kind is int else "0.5,2,8"
        raise UsageError(f"--{option}: must be numbers like {example}, not {text!r}") from None
    return found


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]
