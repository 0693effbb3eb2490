"""Recording a trace: a workload is sent to a server, and what it was sent and what it answered is kept as token ids.

vLLM tells ids in each answer (`return_token_ids`), SGLang in `sglext` of a chat and as vLLM does on `/v1/completions`;
both are asked for both. A server that tells none can be recorded from its text with a tokenizer, inexactly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from draftworth import redact
from draftworth.bench.base import Access, Prompt, RequestRow, Sampling, Target
from draftworth.bench.config import WorkloadConfig
from draftworth.errors import MeasureError, UsageError
from draftworth.traces.base import BadRows
from draftworth.traces.columns import BadRow
from draftworth.traces.watching import Reasons, Watch, whole

if TYPE_CHECKING:
    from draftworth.bench.points import Point
    from draftworth.bench.requests import Requests

SGLANG_FIELDS: Mapping[str, Any] = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True}
"""Fields of SGLang's chats, read in 0.5.23; earlier releases do not look at them."""
NOT_ALL = "the answer's ids are not all of its tokens"
NO_TEXT = "neither token ids nor text"
_COUNTED = ("usage",)

OnRow = Callable[[RequestRow, int, int], None]


class Tokenizes(Protocol):
    """Makes ids of text (see `proxy.text.RequestTokenizer`)."""

    def prompt(self, request: Mapping[str, Any], at: int) -> Sequence[int]:
        """Return the ids of a request's prompt."""

    def text(self, text: str) -> Sequence[int]:
        """Return the ids of an answer."""


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """A recording that could start now.

    Attributes:
        out: the trace.
        work: the requests as asked for.
        target: the server.
        engine: what runs there; None where nothing says it.
        prompts: what is sent.
        point: how.
        source: where the prompts come from.
        tokenizer: for answers without ids.
        tokenizer_hash: what names it.
        requests: how many requests there will be.
    """

    out: Path
    work: WorkloadConfig
    target: Target
    engine: str | None
    prompts: Sequence[Prompt]
    point: "Point"
    source: str
    requests: int
    tokenizer: Tokenizes | None = None
    tokenizer_hash: str | None = None


@dataclass(slots=True)
class RecordReport:
    """What was recorded.

    Attributes:
        out: the trace.
        rows: its rows.
        prompt_tokens: tokens of their prompts.
        output_tokens: tokens of their answers.
        inexact: rows whose ids were made from text.
        bad: requests that are not in it.
        ended_early: why not everything was sent; None where it was.
        ended: requests that were sent and have ended.
    """

    out: Path
    rows: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    inexact: int = 0
    bad: BadRows = field(default_factory=BadRows)
    ended_early: str | None = None
    ended: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "trace": str(self.out),
            "rows": self.rows,
            "ended": self.ended,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "inexact": self.inexact,
            "left_out": [
                {"reason": reason, "count": count, "first": self.bad.first[reason]}
                for reason, count in self.bad.counts.items()
            ],
            "ended_early": self.ended_early,
        }


def prepare(
    url: str,
    work: WorkloadConfig,
    out: Path,
    *,
    access: Access,
    model: str | None = None,
    engine: str | None = None,
    tokenizer: Path | None = None,
    token_timeout_s: float = 120.0,
) -> RecordPlan:
    """Read the workload and ask the server what it serves.

    Args:
        url: the server's, with or without `/v1`.
        work: the requests; no sweep.
        out: the trace to write.
        access: what lets the client in.
        model: the served name, None for the first there is.
        engine: what runs there; None to recognise it.
        tokenizer: a model's folder or its tokenizer.json, for answers without ids.
        token_timeout_s: seconds without any event after which a request has failed.

    Raises:
        UsageError: the workload is wrong, is a sweep or does not fit the server's context, the URL leads to no such
            server, the model is not served, the tokenizer cannot be read, or no trace can be written there.
    """
    from draftworth.bench.requests import Requests, load_workload, requests_in, sweep_of  # noqa: PLC0415 - lazy
    from draftworth.bench.server import check_fits, look_at  # noqa: PLC0415 - lazy
    from draftworth.traces.writing import refuse_out  # noqa: PLC0415 - lazy

    refuse_out(out)
    sweep = sweep_of(work)
    if len(sweep) != 1:
        raise UsageError(f"a trace is recorded under one load, not under a sweep of {len(sweep)}: give one value each")
    workload = load_workload(work)
    found = look_at(url, access=access, model=model, token_timeout_s=token_timeout_s, engine=engine)
    requests = Requests(work, workload.prompts)
    prompts = _filled(requests, sweep[0], found.target)
    check_fits(found, prompts, sweep)
    made, named = _tokenizer(tokenizer)
    return RecordPlan(
        out=out,
        work=work,
        target=_asking(found.target, found.engine),
        # What shows nothing of itself is read as vLLM, which nobody said.
        engine=found.engine if engine or found.version or found.engine != "vllm" else None,
        prompts=prompts,
        point=sweep[0],
        source=f"{workload.source} ({workload.layout}), {len(workload.prompts)} prompts",
        requests=requests_in(prompts) * work.repeats,
        tokenizer=made,
        tokenizer_hash=named,
    )


def _filled(requests: "Requests", point: "Point", target: Target) -> Sequence[Prompt]:
    return requests.at(point, target)


def _tokenizer(path: Path | None) -> tuple[Tokenizes | None, str | None]:
    if path is None:
        return None, None
    from draftworth.traces.proxy.text import tokenizer  # noqa: PLC0415 - lazy: only where asked for

    return tokenizer(path)


def _asking(target: Target, engine: str) -> Target:
    """Return the target with what makes it tell ids; `return_token_ids` is always sent."""
    if engine != "sglang":
        return target
    return replace(target, fields={**target.fields, **SGLANG_FIELDS}, stats_of=lambda answer: answer.get("sglext"))


def record(plan: RecordPlan, *, on_row: OnRow | None = None, on_tick: Callable[[], None] | None = None) -> RecordReport:
    """Send the workload and write the trace.

    Rows are in the order in which the answers ended. Whatever ends the run early, what was recorded until then is in
    the trace: a signal's exception is raised again once it is closed, with the report as its `report`.

    Args:
        plan: what to do.
        on_row: sees each request when it has ended: its row, how many have, how many there will be.
        on_tick: called about every 0.2 s; what it raises ends the run.

    Returns:
        What was recorded.

    Raises:
        UsageError: the server tells no ids and there is no tokenizer, or the trace is there already or cannot be
            written.
        MeasureError: the server is gone, which ends the run after `watching.REFUSED` requests in a row that could not
            connect; its `report` says what was recorded until then. Or no request made a row: then there is no trace.
    """
    from draftworth.bench.run import measure_sync  # noqa: PLC0415 - lazy
    from draftworth.traces.writing import TraceWriter  # noqa: PLC0415 - lazy

    work, point = plan.work, plan.point
    report = RecordReport(plan.out)
    sent = {prompt.id: prompt for prompt in plan.prompts}
    watch, reasons = Watch(plan.target), Reasons()
    ended: BaseException | None = None
    with TraceWriter(plan.out, parts=True) as writer:

        def keep(row: RequestRow, done: int, total: int) -> None:
            report.ended = done
            try:
                _add(plan, row, sent, writer, report)
            except BadRow as reason:
                report.bad.add(reasons.of(str(reason)), _name(row, work.repeats))
            row.token_ids = row.prompt_token_ids = ()  # they are in the trace: not kept twice
            row.spec_stats = None
            if on_row is not None:
                on_row(row, done, total)
            watch.see(row)

        try:
            measure_sync(
                plan.target,
                plan.prompts,
                Sampling(point.max_tokens, work.temperature, work.seed, work.ignore_eos),
                arm="record",
                block=1,
                load=point.load,
                repeats=work.repeats,
                warmup=work.warmup,
                retries=work.retries,
                on_row=keep,
                on_tick=on_tick,
            )
            watch.end()
        except BaseException as error:
            if not report.rows:
                if isinstance(error, MeasureError):
                    raise MeasureError(f"nothing was recorded: {error}") from error
                raise
            ended = error
            report.ended_early = redact.text(str(error) or type(error).__name__)
        if not report.rows:
            raise MeasureError(f"{plan.target.base_url}: nothing was recorded: {'; '.join(report.bad.lines())}")
    if ended is not None:
        ended.report = report  # type: ignore[attr-defined]
        raise ended
    return report


def _name(row: RequestRow, repeats: int) -> str:
    return row.prompt_id if repeats == 1 else f"{row.prompt_id}/{row.repeat + 1}"


def _add(plan: RecordPlan, row: RequestRow, sent: Mapping[str, Prompt], writer: Any, report: RecordReport) -> None:
    """Write a row.

    Raises:
        BadRow: it cannot be replayed.
        UsageError: the first answer has no ids and there is no tokenizer.
    """
    if not row.ok:
        raise BadRow(whole(redact.text(row.error or "failed")))
    prompt, output = _ids(row)
    prompt = prompt or sent.get(row.prompt_id, Prompt("", "")).token_ids or ()
    exact = bool(prompt and output)
    if exact and row.token_source in _COUNTED and row.tokens != len(output):
        raise BadRow(NOT_ALL)
    if not exact:
        prompt, output = _from_text(plan, row, sent, report)
    writer.add(
        request_id=_name(row, plan.work.repeats),
        prompt=prompt,
        output=output,
        thinking=row.reasoning_tokens if exact else None,
        category=row.category,
        temperature=plan.work.temperature,
        model=plan.target.model,
        tokenizer_hash=None if exact else plan.tokenizer_hash,
        exact=exact,
    )
    report.rows += 1
    report.prompt_tokens += len(prompt)
    report.output_tokens += len(output)
    report.inexact += not exact


def _ids(row: RequestRow) -> tuple[Sequence[int], Sequence[int]]:
    if row.token_ids or row.spec_stats is None:
        return row.prompt_token_ids, row.token_ids
    outputs = row.spec_stats.get("output_ids")
    return row.spec_stats.get("input_ids") or row.prompt_token_ids, outputs[0] if outputs else ()


def _from_text(
    plan: RecordPlan, row: RequestRow, sent: Mapping[str, Prompt], report: RecordReport
) -> tuple[Sequence[int], Sequence[int]]:
    if plan.tokenizer is None:
        if not report.rows:
            engine = f" ({plan.engine})" if plan.engine else ""
            raise UsageError(
                f"{plan.target.base_url}{engine} tells no token ids, so a trace of it would not be exact; give "
                "--tokenizer DIR (the model's folder) to record its text as inexact ids"
            )
        raise BadRow("the answer has no token ids")
    if row.tool_calls or not (row.text or row.reasoning):
        raise BadRow(NO_TEXT)
    prompt = sent.get(row.prompt_id)
    if prompt is None:
        raise BadRow("a later turn, whose prompt is not known as text")
    ids = prompt.token_ids or plan.tokenizer.prompt({"messages": list(prompt.messages)}, 0)
    return ids, plan.tokenizer.text(row.reasoning + row.text)
