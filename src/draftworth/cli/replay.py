"""`draftworth replay`: the acceptance a drafter's settings would have had on recorded traffic."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
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
    check_has_arms,
    chosen_drafter,
    chosen_settings,
    replay_progress,
)
from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.drafters.base import Drafter, Setting

DEFAULT = "vllm-ngram-v1"
"""What is replayed where no drafter is named: what `predict` takes where nothing is known of the engine."""


def replay(
    trace: TraceFile = None,
    /,
    *,
    drafter: Annotated[
        str | None, Parameter(help="Which algorithm; --list names them. Default: vllm-ngram-v1, and that is said.")
    ] = None,
    k: MostDrafted = None,
    min: Shortest = None,  # noqa: A002
    max: Longest = None,  # noqa: A002
    set: More = None,  # noqa: A002 - the word people know
    grid: Annotated[bool, Parameter(negative="", help="The settings worth trying, instead of naming any.")] = False,
    concurrency: Annotated[
        int, Parameter(help="Requests decoded at a time; matters where requests share what was learned.")
    ] = 1,
    max_model_len: MaxModelLen = None,
    max_tokens: Annotated[
        int | None,
        Parameter(help="The requests' limit on output tokens, to which llama.cpp cuts drafts; default: no bound."),
    ] = None,
    vocabulary: Vocabulary = None,
    tokenizer: TokenizerFile = None,
    model: OneModel = None,
    arm: OneArm = None,
    category: Annotated[
        list[str] | None, Parameter(negative="", help="Only these categories, e.g. coding,math; may be repeated.")
    ] = None,
    top: Annotated[int, Parameter(help="Rows of the table.")] = 20,
    list: Annotated[bool, Parameter(negative="", help="Name the drafters with their defaults.")] = False,  # noqa: A002
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Count what a drafter would have drafted on recorded traffic, and how much of it would have been accepted.

    No server is needed and nothing is estimated: the drafts are the engine's own, token by token. Without settings the
    engine's defaults are replayed; several values make a grid, which is read in one pass.

    Exits 0 when replayed, 1 for wrong input.
    """
    if list:
        return _list(as_json=as_json)
    if trace is None:
        raise UsageError("which trace? `draftworth trace record` makes one; --list names the drafters")
    for name, value in (
        ("concurrency", concurrency),
        ("max-model-len", max_model_len),
        ("max-tokens", max_tokens),
        ("vocabulary", vocabulary),
        ("top", top),
    ):
        if value is not None and value < 1:
            raise UsageError(f"--{name}: must be at least 1, not {value}")
    from draftworth.drafters.limits import check_at_a_time  # noqa: PLC0415 - lazy

    check_at_a_time([concurrency])
    if drafter is None:
        print(f"No --drafter was named, so it is {DEFAULT}; --list names the others.", file=sys.stderr)
    chosen = chosen_drafter(drafter or DEFAULT)
    if max_tokens is not None and chosen.engine != "llamacpp":
        raise UsageError(f"--max-tokens: {chosen.name} does not cut drafts there, only llama.cpp does; leave it out")
    settings = chosen_settings(chosen, k=k, shortest=min, longest=max, more=set or (), grid=grid)
    return _replay(
        trace,
        chosen,
        settings,
        concurrency=concurrency,
        max_model_len=max_model_len,
        max_tokens=max_tokens,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        model=model,
        arm=arm,
        grid=grid,
        categories=[name.strip() for text in category or () for name in text.split(",") if name.strip()],
        top=top,
        as_json=as_json,
    )


def _replay(
    path: Path,
    drafter: "Drafter",
    settings: Sequence["Setting"],
    *,
    concurrency: int,
    max_model_len: int | None,
    max_tokens: int | None,
    vocabulary: int | None,
    tokenizer: Path | None,
    model: str | None,
    arm: str | None,
    grid: bool,
    categories: Sequence[str],
    top: int,
    as_json: bool,
) -> int:
    from draftworth.drafters.base import Limits  # noqa: PLC0415 - lazy
    from draftworth.drafters.remarks import remarks  # noqa: PLC0415 - lazy
    from draftworth.drafters.replay import replay as replay_trace  # noqa: PLC0415 - lazy
    from draftworth.drafters.rows import OfCategories  # noqa: PLC0415 - lazy
    from draftworth.reports.replay import document, lines  # noqa: PLC0415 - lazy
    from draftworth.traces.store import open_trace  # noqa: PLC0415 - lazy

    limits = Limits(max_model_len=max_model_len, concurrency=concurrency, vocabulary=vocabulary, max_tokens=max_tokens)
    whole = open_trace(path, tokenizer=tokenizer, model=model, arm=arm)
    if arm is not None:
        check_has_arms(whole)
    some = OfCategories(whole, categories) if categories else None
    with replay_progress(whole.requests, len(settings)) as tell:
        replayed = replay_trace(some or whole, drafter, settings, limits, progress=tell)
    found = remarks(replayed, drafter, limits)
    others = some.others if some else 0
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            said = document(replayed, drafter, limits, found, path=str(path), requests=whole.requests, others=others)
            print(json.dumps(said, indent=1, allow_nan=False))
        else:
            print("\n".join(lines(replayed, drafter, found, path=str(path), others=others, most=top, grid=grid)))
        sys.stdout.flush()
    return 0


def _list(*, as_json: bool) -> int:
    from draftworth.drafters import CHOICES, drafter  # noqa: PLC0415 - lazy
    from draftworth.reports.replay import drafter_lines, list_document  # noqa: PLC0415 - lazy

    every = [drafter(name) for name in CHOICES]
    with suppress(BrokenPipeError):
        if as_json:
            print(json.dumps(list_document(every), indent=1))
        else:
            print("\n".join(drafter_lines(every)))
        sys.stdout.flush()
    return 0
