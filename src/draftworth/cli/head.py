"""`draftworth head`: whether a head or draft model fits a target, before anything is loaded."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from draftworth.errors import EXIT_DONE, EXIT_REFUSED, UsageError

app = App(name="head", help="Heads and draft models, from their files alone: check.", help_format="markdown")


@app.command
def check(
    checkpoint: Annotated[
        Path, Parameter(help="The folder of the head or draft model; for MTP the target's own. It has a config.json.")
    ],
    /,
    *,
    target: Annotated[Path, Parameter(help="The folder of the model it drafts for, also in the hub's cache.")],
    method: Annotated[
        str | None,
        Parameter(help="eagle3, eagle, medusa, mtp, draft_model or dflash; default: what its files tell."),
    ] = None,
    engine: Annotated[str, Parameter(help="What serves it: vllm.")] = "vllm",
    engine_version: Annotated[
        str | None, Parameter(help="The engine's release, e.g. 0.25.0; default: the newest that is known here.")
    ] = None,
    max_model_len: Annotated[
        int | None, Parameter(help="The server's --max-model-len; default: the target's max_position_embeddings.")
    ] = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Tell whether a draft can be served with a target, from config.json, headers and slices of the weights.

    Nothing is loaded: it takes seconds and little memory, whatever the size of the files. What could not be checked is
    listed with the reason.

    Exits 0 when no check failed, 2 with the name of every check that did, 1 for wrong input.
    """
    if max_model_len is not None and max_model_len < 1:
        raise UsageError(f"--max-model-len: must be at least 1, not {max_model_len}")
    from draftworth.heads.check import check_head  # noqa: PLC0415 - lazy
    from draftworth.heads.lines import lines  # noqa: PLC0415 - lazy

    report = check_head(
        checkpoint, target, method=method, engine=engine, version=engine_version, max_model_len=max_model_len
    )
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(report.model_dump_json(indent=1) if as_json else "\n".join(lines(report)))
        sys.stdout.flush()
    return EXIT_DONE if report.fits else EXIT_REFUSED
