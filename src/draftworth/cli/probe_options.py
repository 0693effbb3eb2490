"""What `draftworth probe` is asked for, and what is refused of it before a request is sent."""

import resource
from typing import TYPE_CHECKING

from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.costs.probe import Options
    from draftworth.costs.subject import Subject

_MOST_STREAMS = 4096
_MOST_TOKENS = 10_000_000
_OTHER_FILES = 64
"""Files that the process has open beside its streams."""


def options_of(
    *,
    concurrency: str,
    tokens: str,
    context: str,
    prefix_batch: str,
    repeats: int,
    output: int,
    budget: float,
    max_load: int,
    wait: float,
    anyway: bool,
    seed: int,
) -> "Options":
    """Return the options of a probe.

    Raises:
        UsageError: one makes no sense, or is more than can be measured.
    """
    from draftworth.costs.concurrency import FEWEST_STEPS  # noqa: PLC0415 - lazy
    from draftworth.costs.probe import Options  # noqa: PLC0415 - lazy

    for name, value, least in (
        ("repeats", repeats, 2),
        ("output", output, 2 * FEWEST_STEPS),
        ("max-load", max_load, 0),
        ("wait", wait, 0),
    ):
        if not value >= least:
            raise UsageError(f"--{name}: must be at least {least}, not {value:g}")
    if not 0 < budget < float("inf"):
        raise UsageError(f"--budget: must be seconds above 0, not {budget:g}")
    # Behind a cached prefix, twice as many streams are timed.
    batches = _numbers("prefix-batch", prefix_batch, most=_MOST_STREAMS // 2)
    streams = _numbers("concurrency", concurrency, most=_MOST_STREAMS)
    news = () if tokens.strip() == "0" else _numbers("tokens", tokens, most=_MOST_TOKENS)
    _check_files(max([*streams, *(2 * one for one in batches if news)]))
    return Options(
        concurrency=streams,
        tokens=news,
        contexts=_numbers("context", context, most=_MOST_TOKENS),
        prefix_batch=batches,
        repeats=repeats,
        output=output,
        budget_s=budget,
        max_load=max_load,
        wait_s=wait,
        anyway=anyway,
        seed=seed,
    )


def _numbers(option: str, text: str, *, most: int) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"--{option}: must be whole numbers like 1,2,4, not {text!r}") from None
    if min(found) < 1:
        raise UsageError(f"--{option}: must be whole numbers of at least 1, not {text!r}")
    if max(found) > most:
        raise UsageError(f"--{option}: must be at most {most:,}, not {max(found)}")
    return found


def _check_files(streams: int) -> None:
    """Refuse more streams than the system lets the process have files open, each being one.

    Raises:
        UsageError: there are too many.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and streams + _OTHER_FILES > hard:
        raise UsageError(f"{streams:,} streams at a time: the system allows {hard:,} open files (`ulimit -Hn`)")


def check_fits(found: "Subject", options: "Options") -> None:
    """Refuse what the server would not take.

    Raises:
        UsageError: its longest context is too short for the contexts, or for the answers behind the shortest of them.
    """
    most, context = found.max_model_len, min(options.contexts)
    if most is None:
        return
    if context + 1 >= most:
        raise UsageError(f"--context {context}: the server takes at most {most:,} tokens a request")
    if context + options.output > most:
        raise UsageError(
            f"--output {options.output}: behind a context of {context:,} (--context) the server generates at most "
            f"{most - context:,} tokens (max_model_len {most:,})"
        )
