"""`draftworth doctor`: what is there, and what planned arms will meet, before anything is touched."""

import difflib
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.sources import ApiKeyEnv, CaFile, Headers
from draftworth.errors import EXIT_DONE, EXIT_REFUSED, UsageError

_RELEASE = re.compile(r"[vb]?\d[\w.+!-]*")
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "min_tokens", "logit_bias", "bad_words"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs", "prompt_logprobs"),
    *("structured_outputs", "allowed_token_ids", "logits_processors"),
)
"""What requests may set, as far as an engine's rules look at it."""


def doctor(
    source: Annotated[
        str,
        Parameter(
            help="A trial's file (.toml), a server's URL, a log, a saved page of metrics or JSON, or `-`.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    plan: Annotated[Path | None, Parameter(help="A trial's file: examine its arms on what SOURCE shows.")] = None,
    arm: Annotated[
        list[str] | None,
        Parameter(negative="", help="A planned speculative configuration as JSON; may be given several times."),
    ] = None,
    log: Annotated[Path | None, Parameter(help="The server's log beside SOURCE.")] = None,
    sampling: Annotated[
        str | None, Parameter(help="What requests set, e.g. min_p,logit_bias,structured_outputs.")
    ] = None,
    release: Annotated[
        str | None, Parameter(help="Judge by this release of the engine, e.g. before an upgrade.")
    ] = None,
    engine: Annotated[str | None, Parameter(help="vllm, sglang, llamacpp or trtllm; default: recognised.")] = None,
    api_key_env: ApiKeyEnv = None,
    header: Headers = None,
    ca_file: CaFile = None,
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
    ] = False,
) -> int:
    """Say which engine, version, runner and mode are there, what they will tell, and what planned arms will meet.

    Reads only: nothing is started and no prompt is sent.

    Exits 0, or 2 where the engine will refuse a planned arm; 1 where nothing could be read.
    """
    from draftworth.cli.sources import access_of, file_of, is_url, reading_progress  # noqa: PLC0415 - lazy
    from draftworth.doctor import gather  # noqa: PLC0415 - lazy: heavy imports
    from draftworth.doctor.examine import examine  # noqa: PLC0415 - lazy
    from draftworth.reports.doctor import lines  # noqa: PLC0415 - lazy

    access = access_of(api_key_env=api_key_env, header=header, ca_file=ca_file)
    own = access if api_key_env or header or ca_file else None
    found = gather.Gathered(source, engine=engine)
    if release:
        if not _RELEASE.fullmatch(release):
            raise UsageError(f"--release: must be like 0.32.0 (llama.cpp: b11434), not {release!r}")
        found.versions.append(("--release", release))
    if is_url(source):
        gather.gather_url(found, source, access)
    else:
        path = file_of(source)
        if path is not None and path.suffix == ".toml":
            gather.gather_trial(found, path, access=own)
        else:
            with reading_progress(path) as on_block:
                gather.gather_file(found, path, on_block)
    if log is not None:
        with reading_progress(log) as on_block:
            gather.gather_log(found, log, on_block)
    if plan is not None:
        gather.gather_trial(found, plan, access=own, look=False)
    found.arms += gather.arms_from_text(arm or [])
    asked = _parameters(sampling or "")
    arms = [one.model_copy(update={"sampling": asked}) for one in gather.distinct(found.arms)]
    diagnosis = examine(
        found.adapter(), found.readings, arms, source=source, versions=found.versions, findings=found.findings
    )
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(diagnosis.model_dump_json(indent=1) if as_json else "\n".join(lines(diagnosis)))
        sys.stdout.flush()
    return EXIT_REFUSED if diagnosis.refused else EXIT_DONE


def _parameters(text: str) -> frozenset[str]:
    """Return the sampling parameters a person named. Raises UsageError for one that is none."""
    asked = frozenset(word.strip() for word in text.split(",") if word.strip())
    for word in sorted(asked - set(SAMPLING)):
        near = difflib.get_close_matches(word, SAMPLING, 1, 0.5)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"--sampling: {word!r} is not known{meant} Known are {', '.join(SAMPLING)}")
    return asked
