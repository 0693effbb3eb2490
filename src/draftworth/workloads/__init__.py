"""Which requests are sent: the built-in ones, or a file's in one of the layouts there are."""

from contextlib import closing
from difflib import get_close_matches
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.workloads import builtin, fields, select
from draftworth.workloads.base import Layout, Row, Selection, Skipped, SkipRow, Workload
from draftworth.workloads.plain import Plain
from draftworth.workloads.rows import rows
from draftworth.workloads.sharegpt import ShareGPT
from draftworth.workloads.spec_bench import SpecBench
from draftworth.workloads.speed_bench import SpeedBench
from draftworth.workloads.trace import Trace

__all__ = ["LAYOUTS", "Selection", "Skipped", "Workload", "load"]

_CONTENT_KEYS = ("prompt", "messages", "turns", "conversations", "prompt_token_ids")
_CONTENT = '"prompt", "messages", "turns", "conversations" and "prompt_token_ids"'
_KINDS: tuple[Layout, ...] = (Trace(), ShareGPT(), SpeedBench(), SpecBench(), Plain())

LAYOUTS = tuple(kind.name for kind in _KINDS)
"""The layouts a file may have, in the order in which they are tried: the most particular first."""


def load(
    source: str | Path,
    selection: Selection | None = None,
    *,
    layout: str | None = None,
    recorded_lengths: bool = False,
    max_tokens: int | None = None,
) -> Workload:
    """Return the prompts of a source.

    A file is read once, row by row. Held are the prompts that are chosen, at most twice as many while choosing where
    `limit` or `prompts_per_category` bounds them, and the number of prompts of each category. In the order of the file
    (no seed, no arrival times) reading stops as soon as the choice is decided: at the limit where the first row has no
    category; where categories are chosen, when each has given its share. Otherwise the whole file is read.

    Args:
        source: `builtin`, or the path of a file: JSON lines (also packed by gzip), a JSON list, or Parquet.
        selection: what is taken; everything by default.
        layout: one of `LAYOUTS`; None recognises it by the first row's keys.
        recorded_lengths: for traces: bound each answer to the length of the recorded one.
        max_tokens: the sampling's bound in tokens, which a recorded length never exceeds.

    Raises:
        UsageError: the file cannot be read, is wrong or empty, or the selection cannot be met; one line that names
            the file, the row and the field.
    """
    selection = selection or Selection()
    select.check(selection)
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"unknown format {layout!r}: {select.there_are(layout, LAYOUTS)}")
    if str(source) == builtin.NAME:
        if layout is not None or recorded_lengths:
            raise UsageError("the built-in prompts are no file: leave format and recorded lengths out")
        return _built_in(selection)
    path = Path(source)
    chosen: Layout | None = None
    chooser: select.Chooser | None = None
    skipped: dict[str, Skipped] = {}
    read_all = True
    with closing(rows(path)) as entries:
        for row in entries:
            if chosen is None or chooser is None:
                chosen = _layout(row, layout, recorded_lengths=recorded_lengths, max_tokens=max_tokens)
                chooser = select.Chooser(
                    selection, in_turn="category" in row.data, skips_repeated_ids=chosen.skips_repeated_ids
                )
            try:
                chooser.add(chosen.prompt(row), row.where)
            except SkipRow as reason:
                before = skipped.get(str(reason), Skipped(str(reason), 0, row.where))
                skipped[before.reason] = Skipped(before.reason, before.count + 1, before.first)
            if chooser.decided:
                read_all = next(entries, None) is None
                break
    if chosen is None or chooser is None:
        raise UsageError(f'{path} has no prompts: write one JSON object a line, e.g. {{"prompt": "Hello"}}')
    if not chooser.counts:
        reasons = "; ".join(f"{entry.count} because {entry.reason}" for entry in skipped.values())
        first = next(iter(skipped.values())).first
        raise UsageError(f"{path} has no prompts: every row was skipped, {reasons}; the first is {first}")
    prompts, turns = chooser.result(str(path))
    return Workload(
        prompts,
        layout=chosen.name,
        source=str(path),
        skipped=tuple(skipped.values()),
        categories=chooser.counts,
        turns_left_out=turns,
        read_all=read_all,
    )


def _built_in(selection: Selection) -> Workload:
    builtin.check(selection)
    chooser = select.Chooser(selection, in_turn=True)
    for prompt in builtin.prompts():
        chooser.add(prompt, prompt.id)
    prompts, turns = chooser.result(builtin.NAME)
    return Workload(prompts, layout=builtin.NAME, source=builtin.NAME, categories=chooser.counts, turns_left_out=turns)


def _layout(row: Row, name: str | None, *, recorded_lengths: bool, max_tokens: int | None) -> Layout:
    """Return the layout asked for, or the first that fits the file's first row."""
    keys = frozenset(row.data)
    found = next((kind for kind in _KINDS if (kind.name == name if name else kind.fits(keys))), None)
    if found is None:
        names = ", ".join(fields.short(key) for key in list(row.data)[:8]) or "none"
        near = next((hit for key in row.data for hit in get_close_matches(key.lower(), _CONTENT_KEYS, 1, 0.8)), None)
        hint = f': did you mean "{near}"?' if near else ""
        raise UsageError(
            f"{row.where}: give exactly one of {_CONTENT}; it has none of these, its keys are: {names}{hint}"
        )
    if isinstance(found, Trace):
        return Trace(recorded_lengths=recorded_lengths, max_tokens=max_tokens)
    if recorded_lengths:
        raise UsageError(
            f"{row.where}: only a trace has recorded lengths in tokens, this was read as {found.name!r}; "
            "leave recorded lengths out"
        )
    return found
