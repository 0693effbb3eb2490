"""`draftworth trace`: recorded prompts and outputs as token ids."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from draftworth.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from draftworth.traces.base import BadRows, Trace

app = App(
    name="trace",
    help="Recorded prompts and outputs as token ids: record, import, look at, redact.",
    help_format="plaintext",
)
app.command("draftworth.cli.trace_live:record", name="record", help="Send a workload, and record the answers' ids.")
app.command("draftworth.cli.trace_live:proxy", name="proxy", help="Record live traffic on its way to a server.")

Source = Annotated[
    Path, Parameter(name="TRACE", help="A trace (Parquet, JSON lines, a folder of Parquet), or a trial's folder.")
]
Out = Annotated[Path, Parameter(help="The Parquet trace to write; never written over.")]
Model = Annotated[str | None, Parameter(help="Of a trace of several models, the one to take.")]
Arm = Annotated[str | None, Parameter(help="Of a trial, whose answers; default: the baseline's.")]
Vocabulary = Annotated[int | None, Parameter(help="Leave out rows with ids at or above this.")]
Folder = Annotated[
    Path | None, Parameter(name="--tokenizer", help="A model's folder, to make ids of text; they are marked inexact.")
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON document on standard output.")]


@app.command
def stats(
    trace: Source,
    /,
    *,
    model: Model = None,
    arm: Arm = None,
    tokenizer: Folder = None,
    vocabulary: Vocabulary = None,
    as_json: Json = False,
) -> int:
    """Show what a trace holds: requests, tokens, categories, exactness, how repetitive it is, and what is left out.

    Exits 0, or 1 where the trace cannot be read.
    """
    from draftworth.traces.stats import lines  # noqa: PLC0415 - lazy
    from draftworth.traces.stats import stats as counted  # noqa: PLC0415 - lazy
    from draftworth.traces.store import open_trace  # noqa: PLC0415 - lazy

    found = counted(open_trace(trace, tokenizer=tokenizer, model=model, arm=arm, vocabulary=_positive(vocabulary)))
    _print(json.dumps(found.document(), indent=1) if as_json else "\n".join(lines(found)))
    return EXIT_DONE


@app.command(name="import")
def import_(
    file: Annotated[Path, Parameter(name="FILE", help="A log or a data set; also packed by gzip or zstd.")],
    /,
    *,
    out: Out,
    form: Annotated[
        str | None,
        Parameter(
            name="--format",
            help="openai, openai-batch, vllm-log, sglang-log, sharegpt, otel, vllm-vcr or plain; default: recognised.",
        ),
    ] = None,
    tokenizer: Folder = None,
    requests: Annotated[Path | None, Parameter(help="Of openai-batch: the batch's input, with the prompts.")] = None,
    outputs_only: Annotated[
        bool, Parameter(negative="", help="Of vllm-vcr: take outputs whose prompts were not recorded.")
    ] = False,
    model: Model = None,
    arm: Arm = None,
    vocabulary: Vocabulary = None,
    as_json: Json = False,
) -> int:
    """Make a trace of a log, of a data set, or of a trial. What is left out is counted, each reason with its first row.

    Exits 0, or 1 where nothing could be used.
    """
    from draftworth.reports.words import plural  # noqa: PLC0415 - lazy
    from draftworth.traces.redact import rows_of  # noqa: PLC0415 - lazy
    from draftworth.traces.writing import TraceWriter  # noqa: PLC0415 - lazy

    source, name = _opened(
        file,
        form,
        tokenizer,
        model=model,
        arm=arm,
        vocabulary=_positive(vocabulary),
        requests=requests,
        outputs_only=outputs_only,
    )
    exact = 0
    with TraceWriter(out) as writer:
        for batch in source.batches():
            exact += int(batch.exact.sum())
            for row in rows_of(batch):
                writer.add_row(row)
    if as_json:
        _print(
            json.dumps(
                {
                    "schema_version": 1,
                    "out": str(out),
                    "format": name,
                    "requests": writer.rows,
                    "exact": exact,
                    "tokens": writer.tokens,
                    **_left_out(source.bad),
                },
                indent=1,
            )
        )
    else:
        counts = f"{plural(writer.rows, 'request')}, {plural(writer.tokens, 'token')}, {exact:,} exact"
        said = f"{out}: {counts}, read as {name}"
        _print("\n".join([said, *source.bad.lines()]))
    return EXIT_DONE


@app.command
def redact(
    trace: Source,
    /,
    *,
    out: Out,
    keep_ids: Annotated[
        bool, Parameter(negative="", help="Keep token ids; anyone with the tokenizer can read them.")
    ] = False,
    permute: Annotated[
        int | None, Parameter(help="The seed of the permutation, to make it again; default: one that nobody knows.")
    ] = None,
    keep_categories: Annotated[bool, Parameter(negative="", help="Keep the categories' names.")] = False,
    model: Model = None,
    arm: Arm = None,
    vocabulary: Vocabulary = None,
    as_json: Json = False,
) -> int:
    """Write a trace that can be given away: token ids permuted, requests numbered, categories numbered.

    Drafters that compare ids give the same results on it. A permutation is no encryption: how often each id occurs
    stays, and gives common words away. docs/traces.md says what else stays.
    """
    from draftworth.reports.words import plural  # noqa: PLC0415 - lazy
    from draftworth.traces.base import BadRows  # noqa: PLC0415 - lazy
    from draftworth.traces.redact import redact as redacted  # noqa: PLC0415 - lazy
    from draftworth.traces.store import open_trace  # noqa: PLC0415 - lazy

    if keep_ids and permute is not None:
        raise UsageError("--keep-ids and --permute do not go together: ids are either kept or permuted")
    if permute is not None and permute < 0:
        raise UsageError(f"--permute: must be a whole number from 0, not {permute}")
    source = open_trace(trace, model=model, arm=arm, vocabulary=_positive(vocabulary))
    found = redacted(source, out, keep_ids=keep_ids, seed=permute, keep_categories=keep_categories)
    if as_json:
        _print(json.dumps({"schema_version": 1, "out": str(out), **found.model_dump(mode="json")}, indent=1))
    else:
        ids = (
            "ids kept: anyone with the tokenizer can read them" if found.ids is None else f"{found.ids:,} ids permuted"
        )
        said = f"{out}: {plural(found.requests, 'request')}, {plural(found.tokens, 'token')}, {ids}"
        _print("\n".join([said, *BadRows(found.left_out, found.left_out_first).lines()]))
    return EXIT_DONE


def _opened(
    file: Path,
    form: str | None,
    tokenizer: Path | None,
    *,
    model: str | None,
    arm: str | None,
    vocabulary: int | None,
    requests: Path | None,
    outputs_only: bool,
) -> "tuple[Trace, str]":
    """Return what is to be imported, and how it was understood."""
    from draftworth.traces.imports import ImportedTrace, importers, recognised  # noqa: PLC0415 - lazy
    from draftworth.traces.store import is_trace, open_trace  # noqa: PLC0415 - lazy
    from draftworth.traces.tokenizing import Tokenizer  # noqa: PLC0415 - lazy

    if form in {None, "plain"} and is_trace(file, arm=arm):
        return open_trace(file, model=model, arm=arm, vocabulary=vocabulary), "a trace"
    importer = recognised(file, importers(requests=requests, outputs_only=outputs_only), form)
    made = Tokenizer(tokenizer) if tokenizer is not None else None
    if made is not None and vocabulary is None:
        vocabulary = made.vocabulary
    return ImportedTrace(file, importer, made, model=model, vocabulary=vocabulary), importer.name


def _left_out(bad: "BadRows") -> dict[str, dict[str, int] | dict[str, str]]:
    return {"left_out": dict(bad.counts), "left_out_first": dict(bad.first)}


def _positive(vocabulary: int | None) -> int | None:
    if vocabulary is not None and vocabulary < 1:
        raise UsageError(f"--vocabulary: must be at least 1, not {vocabulary}")
    return vocabulary


def _print(text: str) -> None:
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(text)
        sys.stdout.flush()
