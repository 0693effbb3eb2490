"""What verbs over a trace share: their options, which drafter, which settings, and how far a replay is."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.drafters.base import Drafter, Setting
    from draftworth.traces.base import Trace

TraceFile = Annotated[Path | None, Parameter(help="A trace: Parquet, JSONL, a folder of them, or a trial's folder.")]
MostDrafted = Annotated[str | None, Parameter(help="Most tokens drafted a step, e.g. 1,2,3,5.")]
Shortest = Annotated[str | None, Parameter(help="Shortest n-gram looked up, e.g. 2,3.")]
Longest = Annotated[str | None, Parameter(help="Longest n-gram looked up, e.g. 4,5.")]
More = Annotated[
    list[str] | None,
    Parameter(negative="", help="Another parameter by the engine's own name, `name=v1,v2`; may be repeated."),
]
MaxModelLen = Annotated[int | None, Parameter(help="The server's longest context; default: no bound.")]
Vocabulary = Annotated[int | None, Parameter(help="Leave out requests with ids at or above this.")]
TokenizerFile = Annotated[Path | None, Parameter(help="Of a trace of text: the model's folder or tokenizer.json.")]
OneModel = Annotated[str | None, Parameter(help="Of a trace of several models: only this one's requests.")]
OneArm = Annotated[str | None, Parameter(help="Of a trial's folder: this arm's answers; default: the baseline's.")]

_MOST = 1_000_000
"""Beyond any draft or n-gram; what is larger is a typing error."""


def chosen_drafter(name: str | None) -> "Drafter":
    """Return the drafter that was named.

    Raises:
        UsageError: none was, or there is none of that name; lists them.
    """
    from draftworth.drafters import CHOICES, drafter  # noqa: PLC0415 - lazy

    if name is None:
        raise UsageError(f"--drafter: which one? {', '.join(CHOICES)}")
    return drafter(name)


def chosen_settings(
    drafter: "Drafter", *, k: str | None, shortest: str | None, longest: str | None, more: Sequence[str], grid: bool
) -> Sequence["Setting"]:
    """Return the settings that flags ask for."""
    if grid:
        if k or shortest or longest or more:
            raise UsageError("--grid takes the settings worth trying; leave out --k, --min, --max and --set, or --grid")
        return drafter.grid()
    named: dict[str, list[float]] = {}
    for text in more:
        name, equals, values = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set: must be like name=1,2, not {text!r}")
        named[name.strip()] = numbers(f"--set {name.strip()}", values)
    ks, least, most = whole_numbers("--k", k), whole_numbers("--min", shortest), whole_numbers("--max", longest)
    try:
        return drafter.settings(k=ks, min=least, max=most, more=named or None)
    except UsageError as error:
        # An engine has its own names for these; a person knows what they typed.
        flags = (("--k", k), ("--min", shortest), ("--max", longest), *(("--set", text) for text in more))
        typed = " ".join(f"{flag} {text}" for flag, text in flags if text is not None)
        raise UsageError(f"{typed}: {error}" if typed else str(error)) from None


def arm_configs(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what arms were started with, from `--speculation ARM=JSON`.

    Raises:
        UsageError: a text is none.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        arm, equals, value = text.partition("=")
        try:
            config = json.loads(value) if equals else None
        except ValueError:
            config = None
        if not isinstance(config, dict):
            raise UsageError(f'--speculation: must be like ngram-5={{"method": "ngram", …}}, not {text!r}')
        found[arm] = config
    return found


def check_has_arms(trace: "Trace") -> None:
    """Check that a trace has arms to choose from.

    Raises:
        UsageError: it is not that of a trial.
    """
    from draftworth.traces.trial import TrialTrace  # noqa: PLC0415 - lazy

    if not isinstance(trace, TrialTrace):
        raise UsageError(f"--arm: {trace.path} is no trial's folder, so it has no arms; leave it out")


def whole_numbers(flag: str, text: str | None) -> list[int] | None:
    """Return the whole numbers of `1,2,5`, each once."""
    if text is None:
        return None
    try:
        found = [*dict.fromkeys(int(part) for part in text.split(","))]
    except ValueError:
        raise UsageError(f"{flag}: must be whole numbers like 1,2,5, not {text!r}") from None
    for one in found:
        if not 1 <= one <= _MOST:
            raise UsageError(f"{flag}: must be from 1 to {_MOST:,}, not {one}")
    return found


def numbers(flag: str, text: str) -> list[float]:
    """Return the numbers of `0.1,0.5`, each once."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(map(math.isfinite, found)):
        raise UsageError(f"{flag}: must be numbers like 0.1,0.5, not {text!r}")
    return [*dict.fromkeys(found)]


@contextmanager
def replay_progress(total: int | None, settings: int) -> Iterator[Callable[[int, int], None]]:
    """Show how far a trace is replayed. Yields what takes the requests and tokens read so far."""
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy

    began = time.monotonic()
    with Progress(sys.stderr, kinds=["replay"]) as progress:
        progress.step(f"replay {settings} setting{'s' * (settings != 1)}")

        def tell(requests: int, tokens: int) -> None:
            rate = tokens / max(time.monotonic() - began, 1e-9)
            of = total or requests
            said = f"request{'s' * (of != 1)} read; {tokens:,} tokens, {rate:,.0f} tokens/s"
            if total:
                progress.count(requests, total, said)
            else:
                progress.now(f"{requests:,} {said}")

        yield tell
