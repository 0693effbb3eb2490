"""The situations of public reports in a few words: commands, streams, metrics pages and rows by hand."""

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from draftworth import cli
from draftworth.bench.base import RequestRow
from draftworth.bench.sse import decode
from draftworth.bench.timing import StreamTimer
from draftworth.engines.base import AcceptanceCounts
from draftworth.engines.vllm import VLLM
from draftworth.verdicts.compare import Compared, compare
from draftworth.verdicts.rules import Rules


def spec(k: int) -> dict[str, Any]:
    """Return a speculative configuration that drafts k tokens."""
    return {"method": "ngram", "num_speculative_tokens": k}


# --- commands


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The record it printed."""
        return json.loads(self.out)


def draftworth(*arguments: str) -> Ran:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.run(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


def bench(url: str, *arguments: str) -> Any:
    """Return the record of `draftworth bench`."""
    ran = draftworth("bench", url, *arguments, "--json")
    assert ran.code == 0, ran.err
    return ran.json


def bench_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the requests of the only benchmark of a test."""
    (found,) = (folder / "home" / "benches").iterdir()
    rows: list[dict[str, Any]] = pq.read_table(found / "requests.parquet").to_pylist()
    return rows


def trial(
    folder: Path,
    baseline: str,
    variants: Mapping[str, str],
    *,
    service: str = "looks = 1",
    workload: str = "prompts_per_category = 2\nmax_tokens = 24",
    verdict: str = "",
) -> Any:
    """Return the record of a trial between servers that run already."""
    arms = "".join(f'[[arms]]\nname = "{name}"\nurl = "{url}"\n' for name, url in variants.items())
    file = folder / "draftworth.toml"
    file.write_text(
        f'[service]\ntype = "endpoints"\nbaseline = "{baseline}"\n{service}\n{arms}'
        f"[workload]\nwarmup = 1\n{workload}\n[verdict]\n{verdict}\n",
        encoding="utf-8",
    )
    ran = draftworth("trial", "run", str(file), "--json")
    assert ran.out, ran.err
    return ran.json


def codes(record: Any) -> set[str]:
    """Return the codes of a record's findings."""
    return {finding["code"] for finding in record["findings"]}


def advice(record: Any, code: str) -> str:
    """Return what a record says and advises under a code."""
    return next(f"{one['message']}; {one['advice']}" for one in record["findings"] if one["code"] == code)


def acceptance(holder: Any) -> AcceptanceCounts:
    """Return the server's counts of a point or an arm of a record."""
    return AcceptanceCounts.model_validate(holder["acceptance"])


# --- one stream


def stream(*events: tuple[float, dict[str, Any]]) -> RequestRow:
    """Return the row of a stream whose events arrived at these milliseconds after the request was sent."""
    timer = StreamTimer()
    for at_ms, event in events:
        timer.add(at_ms / 1000, decode(json.dumps(event).encode()))
    row = RequestRow(arm="", block=1, prompt_id="p", category="c", repeat=0, started_unix=0.0)
    timer.fill(row, started=0.0, ended=events[-1][0] / 1000)
    row.ok = True
    return row


def text(tokens: int, **delta: Any) -> dict[str, Any]:
    """Return an event that carries so many tokens, as content unless told otherwise."""
    return {"choices": [{"delta": delta or {"content": "x"}, "token_ids": [7] * tokens}]}


def usage(tokens: int) -> dict[str, Any]:
    """Return the closing event."""
    return {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


def packed(sizes: Sequence[int], token_ms: float, first_ms: float = 100.0) -> RequestRow:
    """Return the row of an answer whose tokens took `token_ms` each and came in chunks of these sizes."""
    at, events = first_ms, []
    for i, size in enumerate(sizes):
        at += token_ms * size if i else 0.0
        events.append((at, text(size)))
    return stream(*events, (at, usage(sum(sizes))))


# --- a page of /metrics


@dataclass(frozen=True)
class Series:
    """What one engine has counted so far."""

    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int = 0
    generated: int = 0
    first: int = 0


def page(*engines: Series) -> str:
    """Return the page of a server with these engines (data-parallel ranks)."""
    names = {
        "vllm:spec_decode_num_drafts_total": ("counter", "drafts"),
        "vllm:spec_decode_num_draft_tokens_total": ("counter", "drafted"),
        "vllm:spec_decode_num_accepted_tokens_total": ("counter", "accepted"),
        "vllm:inter_token_latency_seconds": ("histogram", "steps"),
        "vllm:generation_tokens_total": ("counter", "generated"),
        "vllm:time_to_first_token_seconds": ("histogram", "first"),
    }
    lines = []
    for name, (kind, field) in names.items():
        told = [(i, getattr(one, field)) for i, one in enumerate(engines) if getattr(one, field) is not None]
        suffix = "_count" if kind == "histogram" else ""
        lines += [f"# TYPE {name} {kind}"] * bool(told)
        lines += [f'{name}{suffix}{{engine="{i}",model_name="m"}} {value}' for i, value in told]
    return "\n".join([*lines, ""])


def counted(*engines: Series) -> AcceptanceCounts:
    """Return the counts between a page of zeros and one of these engines."""
    zeros = [
        dataclasses.replace(one, **{f.name: 0 for f in dataclasses.fields(one) if getattr(one, f.name) is not None})
        for one in engines
    ]
    vllm = VLLM("0.32.0")
    return vllm.counts(vllm.parse_metrics(page(*zeros)), vllm.parse_metrics(page(*engines)))


# --- rows of a comparison

SPREAD = (0.8, 1.2, 0.9, 1.1, 1.0, 0.95, 1.05, 0.85, 1.15, 0.98, 1.02, 1.0)
"""How twelve prompts differ in speed; their mean is 1."""


def rows(arm: str, tpot_ms: float, *, start: int = 1, tokens: int = 101) -> list[RequestRow]:
    """Return twelve answers of one start whose mean TPOT is `tpot_ms`."""
    return [
        RequestRow(
            arm=arm,
            block=start,
            start=start,
            prompt_id=f"p{i:02}",
            category="c",
            repeat=0,
            started_unix=0.0,
            ok=True,
            tokens=tokens,
            token_source="usage",
            first_chunk_tokens=1,
            ttft_ms=50.0,
            tpot_ms=tpot_ms * factor,
            decode_ms=tpot_ms * factor * (tokens - 1),
            e2e_ms=50.0 + tpot_ms * factor * (tokens - 1),
        )
        for i, factor in enumerate(SPREAD)
    ]


def judged(baseline: Sequence[float], variant: Sequence[float], **rules: Any) -> Compared:
    """Return the comparison of two arms by the mean TPOT of each of their starts, in milliseconds."""
    one, other = (
        [rows(arm, tpot, start=start) for start, tpot in enumerate(tpots, 1)]
        for arm, tpots in (("baseline", baseline), ("spec", variant))
    )
    return compare(one, other, Rules(**rules))
