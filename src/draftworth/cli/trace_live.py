"""`draftworth trace record` and `draftworth trace proxy`: traces from a running server."""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_NOT_MEASURED, DraftworthError, UsageError

if TYPE_CHECKING:
    from draftworth.bench.base import RequestRow
    from draftworth.traces.proxy.base import ProxyPlan
    from draftworth.traces.proxy.run import Proxy
    from draftworth.traces.record import RecordPlan, RecordReport

_EXIT_CTRL_C = 130

_Out = Annotated[Path, Parameter(help="The trace to write (Parquet); an existing one is never written over.")]
_Tokenizer = Annotated[
    Path | None,
    Parameter(help="The model's folder or tokenizer.json: answers without ids are kept as inexact ids of their text."),
]
_Json = Annotated[
    bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
]


def record(
    url: Annotated[str, Parameter(help="The server's URL, with its base path; `/v1` may be left out.")],
    workload: Annotated[
        Path | None, Parameter(help="Prompts, conversations or a trace; default: the built-in prompts.")
    ] = None,
    /,
    *,
    out: _Out,
    model: Annotated[str | None, Parameter(help="The served model's name; default: the first.")] = None,
    engine: Annotated[str | None, Parameter(help="vllm, sglang, llamacpp or trtllm; default: recognised.")] = None,
    concurrency: Annotated[int, Parameter(help="Requests at a time.")] = 8,
    max_tokens: Annotated[int, Parameter(help="Most tokens of an answer.")] = 512,
    temperature: Annotated[float, Parameter(help="Sampling temperature; 0 is greedy.")] = 0.0,
    seed: Annotated[int, Parameter(help="Of sampling.")] = 0,
    repeats: Annotated[int, Parameter(help="How often each prompt is sent.")] = 1,
    format: Annotated[  # noqa: A002 - the word people know
        str | None,
        Parameter(help="The file's layout: trace, sharegpt, speed-bench, spec-bench or plain; else recognised."),
    ] = None,
    categories: Annotated[str | None, Parameter(help="Only these categories, e.g. coding,math.")] = None,
    limit: Annotated[int | None, Parameter(help="At most this many prompts.")] = None,
    first_turn_only: Annotated[bool, Parameter(help="Send only the first turn of conversations.", negative="")] = False,
    context_tokens: Annotated[int | None, Parameter(help="Fill prompts up with text to about so many tokens.")] = None,
    tokenizer: _Tokenizer = None,
    token_timeout: Annotated[float, Parameter(help="Seconds without any event until a request has failed.")] = 120.0,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: _Json = False,
) -> int:
    """Send a workload to a server and keep prompts and answers as a trace, with the server's own token ids.

    vLLM and SGLang tell ids when asked, and are. What a server does not tell is not made up: without --tokenizer the
    command then ends with 1. Text is never stored.

    Exits 0 when recorded, 1 for wrong input or a server without ids, 6 where nothing was recorded or the server was
    gone before the end, 130 after Ctrl-C; what was recorded until then is in the trace.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - lazy

    from draftworth.bench.config import WorkloadConfig  # noqa: PLC0415 - lazy
    from draftworth.cli.sources import access_of  # noqa: PLC0415 - lazy
    from draftworth.traces.record import prepare  # noqa: PLC0415 - lazy

    if not token_timeout > 0:
        raise UsageError(f"--token-timeout: must be above 0, not {token_timeout:g}")
    options: dict[str, Any] = {
        "source": "builtin" if workload is None else str(workload),
        "format": format,
        "categories": None if categories is None else [one.strip() for one in categories.split(",") if one.strip()],
        "limit": limit,
        "first_turn_only": first_turn_only,
        "repeats": repeats,
        "temperature": temperature,
        "seed": seed,
        "max_tokens": max_tokens,
        "context_tokens": context_tokens,
        "concurrency": concurrency,
        "warmup": 0,
    }
    try:
        work = WorkloadConfig.model_validate({name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]).replace("_", "-") if first["loc"] else ""
        message = str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(f"--{name}: {message[:1].lower()}{message[1:]}, not {first['input']!r}") from None
    plan = prepare(
        url,
        work,
        out,
        access=access_of(api_key_env=api_key_env, header=header, ca_file=ca_file),
        model=model,
        engine=engine,
        tokenizer=tokenizer,
        token_timeout_s=token_timeout,
    )
    return _record(plan, as_json=as_json)


def _record(plan: "RecordPlan", *, as_json: bool) -> int:
    """Record with progress on standard error. Returns the exit code."""
    from draftworth.traces import record as recording  # noqa: PLC0415 - lazy
    from draftworth.trials.interrupts import Interrupt, Interrupts  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    code = 0
    interrupts = Interrupts(lambda _: None, first="what was recorded is kept", what="the recording")
    tokens = 0
    done = 0
    with interrupts.installed(), Progress(sys.stderr, kinds=["record"]) as progress:
        interrupts.tell = progress.line

        def on_row(row: "RequestRow", ended: int, _total: int) -> None:
            nonlocal tokens, done
            tokens += row.tokens or 0
            done = ended

        def on_tick() -> None:
            interrupts.check()
            progress.count(done, plan.requests, f"requests, {tokens:,} tokens")

        progress.step(f"record {plan.source}")
        try:
            report = recording.record(plan, on_row=on_row, on_tick=on_tick)
        except Interrupt as interrupt:
            found = getattr(interrupt, "report", None)
            if found is None:
                return _EXIT_CTRL_C
            report, code = found, _EXIT_CTRL_C
        except DraftworthError as error:
            found = getattr(error, "report", None)
            if found is None:
                raise
            report, code = found, error.exit_code
            if as_json:
                progress.line(f"ended early: {report.ended_early}")
        finally:
            interrupts.hold()
    _say(json.dumps(report.document(), indent=1) if as_json else "\n".join(_recorded(report)))
    return code


def _recorded(report: "RecordReport") -> list[str]:
    from draftworth.reports.words import plural  # noqa: PLC0415 - lazy

    inexact = f", {report.inexact:,} of them inexact (from text)" if report.inexact else ""
    early = [] if report.ended_early is None else [f"ended early: {report.ended_early}; what was recorded is kept"]
    bad = report.bad.total
    left = [f"{bad:,} of {plural(report.ended, 'request')} left out of the trace:"] if bad else []
    return [
        *early,
        f"{report.out}: {plural(report.rows, 'request')}{inexact}",
        f"{report.prompt_tokens:,} prompt and {report.output_tokens:,} output tokens",
        *left,
        *report.bad.lines(),
    ]


def proxy(
    *,
    upstream: Annotated[str, Parameter(help="The server behind, e.g. http://127.0.0.1:8000.")],
    out: _Out,
    listen: Annotated[
        str, Parameter(help="Where clients connect: HOST:PORT, or a port of 127.0.0.1.")
    ] = "127.0.0.1:8001",
    sample: Annotated[float, Parameter(help="Share of the completion requests to record, e.g. 0.1.")] = 1.0,
    seed: Annotated[int, Parameter(help="Decides which requests the sample takes.")] = 0,
    max_requests: Annotated[int | None, Parameter(help="The recording is complete after so many requests.")] = None,
    duration: Annotated[float | None, Parameter(help="The recording is complete after so many seconds.")] = None,
    exit: Annotated[  # noqa: A002 - the word people know
        bool,
        Parameter(
            name="--exit",
            negative="",
            help="End when the recording is complete; otherwise traffic is passed on until Ctrl-C.",
        ),
    ] = False,
    ask_ids: Annotated[
        bool,
        Parameter(
            negative="",
            help="Ask the server (vLLM, SGLang) for token ids in each sampled request. Clients then see the ids in "
            "their answers, as further fields. Without it only requests whose clients ask for ids are recorded.",
        ),
    ] = False,
    tokenizer: _Tokenizer = None,
    rewrite_host: Annotated[
        bool | None,
        Parameter(help="Set the Host header to the upstream's. Default: only where the upstream is https."),
    ] = None,
    drain: Annotated[float, Parameter(help="At the end: seconds that running streams may go on.")] = 30.0,
    queue_mb: Annotated[
        int, Parameter(help="Most MB that wait to be recorded; more is not recorded, and counted.")
    ] = 64,
    model: Annotated[str | None, Parameter(help="With --ask-ids: the model to probe with.")] = None,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: _Json = False,
) -> int:
    """Pass traffic on to a server, byte by byte, and record its completions as a trace of token ids.

    Example: draftworth trace proxy --upstream http://127.0.0.1:8000 --out t.parquet --ask-ids --sample 0.1

    Requests and answers go through unchanged and undelayed, whatever they are; a second process reads copies of them
    and writes the trace. Nothing that goes wrong there (a full disk, an odd answer, too much at once) touches traffic:
    it is counted and said. Headers, keys and text are never stored. A key given here is used for the probe of
    --ask-ids only; clients' keys go through.

    Ctrl-C or SIGTERM ends it: no new connection is taken, running streams end, the trace is closed. A second one ends
    them at once.

    Exits 0 when a trace was recorded, 1 for wrong input, 6 where nothing was recorded.
    """
    from draftworth.bench.address import address_of, clean_url  # noqa: PLC0415 - lazy
    from draftworth.cli.sources import access_of  # noqa: PLC0415 - lazy
    from draftworth.traces.proxy.base import ProxyPlan  # noqa: PLC0415 - lazy
    from draftworth.traces.proxy.itself import leads_to_itself  # noqa: PLC0415 - lazy
    from draftworth.traces.writing import refuse_out  # noqa: PLC0415 - lazy

    for name, value, good in (
        ("sample", sample, 0 < sample <= 1),
        ("max-requests", max_requests, max_requests is None or max_requests > 0),
        ("duration", duration, duration is None or duration > 0),
        ("drain", drain, drain >= 0),
        ("queue-mb", queue_mb, queue_mb > 0),
    ):
        if not good:
            limits = "above 0, and at most 1" if name == "sample" else "0 or more" if name == "drain" else "above 0"
            raise UsageError(f"--{name}: must be {limits}, not {value}")
    if exit and max_requests is None and duration is None:
        raise UsageError("--exit needs --max-requests or --duration: otherwise the recording is never complete")
    url = clean_url(upstream)
    address = address_of(url)
    if address.path:
        raise UsageError(f"--upstream {upstream}: paths are passed on as they are; give the URL without {address.path}")
    host, port = _listen(listen)
    if leads_to_itself(address, host, port):
        raise UsageError(f"--upstream {upstream} is where the proxy itself would listen: choose another port, --listen")
    access = access_of(api_key_env=api_key_env, header=header, ca_file=ca_file)
    refuse_out(out)
    asked = None
    if ask_ids:
        from draftworth.traces.proxy.probing import ask_how_sync  # noqa: PLC0415 - lazy

        asked = ask_how_sync(url, access, model)
    plan = ProxyPlan(
        upstream=address,
        host=host,
        port=port,
        out=out,
        access=access,
        sample=sample,
        seed=seed,
        max_requests=max_requests,
        duration_s=duration,
        asked=asked,
        rewrite_host=address.tls if rewrite_host is None else rewrite_host,
        ends=exit,
        drain_s=drain,
        queue_bytes=queue_mb * 2**20,
        tokenizer=tokenizer,
    )
    return _proxy(plan, as_json=as_json)


def _listen(text: str) -> tuple[str, int]:
    """Take HOST:PORT, [IPv6]:PORT or PORT apart."""
    host, colon, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004 - the largest port
        raise UsageError(f"--listen: must be like 127.0.0.1:8001, not {text!r}")
    return (host.strip("[]") or "0.0.0.0") if colon else "127.0.0.1", int(port)  # noqa: S104 - `:8001` means all


def _proxy(plan: "ProxyPlan", *, as_json: bool) -> int:
    """Run a proxy with its state on standard error. Returns the exit code."""
    from draftworth.traces.proxy.run import run_proxy  # noqa: PLC0415 - lazy
    from draftworth.traces.proxy.shown import Shown, document, summary  # noqa: PLC0415 - lazy

    shown = Shown(sys.stderr)
    began = time.monotonic()
    try:
        ended = run_proxy(plan, on_tick=shown.tick, on_listening=shown.listening)
    finally:
        shown.close()
    seconds = time.monotonic() - began
    _say(json.dumps(document(ended, seconds), indent=1) if as_json else "\n".join(summary(ended)))
    return _exit_code(ended)


def _exit_code(ended: "Proxy") -> int:
    return 0 if ended.recording.rows else EXIT_NOT_MEASURED


def _say(text: str) -> None:
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(text)
        sys.stdout.flush()
