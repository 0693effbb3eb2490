"""Output tokens of the decode steps: what the trace tells, what was stated, and what is possible at all.

A step emits at least one token for each request in it and at most those it carried.
"""

from dataclasses import dataclass

from draftworth.errors import UsageError
from draftworth.profiles.steps import Decode

_ENDED = 0.05
"""Part of the least by which stated tokens may lie below it: with asynchronous scheduling a request may be in one more
step after it has ended."""


@dataclass(frozen=True)
class Emitted:
    """Output tokens of the decode steps that were looked at.

    Attributes:
        tokens: how many; None where not known.
        notes: what is to be said of them.
        refused: why stated tokens were not used.
    """

    tokens: float | None = None
    notes: tuple[str, ...] = ()
    refused: str = ""


def emitted(decode: Decode, stated: float | None, *, complete: bool = True, steps: int | None = None) -> Emitted:
    """Return the output tokens of the decode steps.

    Steps that carry one token a request emit as many; steps that verify drafts do not tell how many were accepted.

    Args:
        decode: the steps.
        stated: output tokens of the whole profile, less one for each request.
        complete: whether the file was read to its end.
        steps: how many steps were stated, where the trace does not tell them.
    """
    why = "" if stated is None else _impossible(decode, stated, complete=complete, steps=steps)
    if decode.carried and decode.carried == decode.request_steps:
        notes: tuple[str, ...] = ()
        if why and stated is not None:
            told = f"the trace tells its output tokens itself, {decode.carried:,} in these steps"
            notes = (f"{told}; --tokens {stated:g} is not used",)
        return Emitted(float(decode.carried), notes)
    if stated is None:
        return Emitted()
    if why:
        return Emitted(notes=(f"{why}; no figures per token",), refused=why)
    part = (decode.request_steps or 0) / decode.all_request_steps if decode.all_request_steps else 1.0
    tokens = stated * part
    said = [f"of {stated:g} tokens, {tokens:.1f} fall on these steps by their requests"] if part < 1 else []
    most = tokens if decode.carried is None else float(decode.carried)
    clipped = min(max(tokens, float(decode.request_steps or 0)), most)
    if abs(clipped - tokens) > 1e-9 * tokens:
        said.append(f"{clipped:g} are taken, as these steps emit {_range(decode.request_steps or 0, decode.carried)}")
    return Emitted(clipped, tuple(said))


def check_tokens(source: str, found: Emitted) -> None:
    """Refuse stated tokens that these steps cannot have emitted.

    Raises:
        UsageError: they cannot.
    """
    if found.refused:
        raise UsageError(f"{source}: {found.refused}")


def _impossible(decode: Decode, stated: float, *, complete: bool, steps: int | None) -> str:
    """Return why the decode steps of the file cannot have emitted so many tokens; nothing where they can."""
    least, most = decode.all_request_steps or decode.steps or steps or 0, decode.all_carried
    if stated >= least * (1 - _ENDED) and (most is None or stated <= most):
        return ""
    cut = "" if complete else " (it was not read to its end)"
    return (
        f"--tokens {stated:g}: not possible, the decode steps in this file{cut} emit {_range(least, most)}; state the "
        "output tokens of the requests in this very profile, less one for each"
    )


def _range(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least:,} tokens (one a request and step)"
    if least == most:
        return f"{least:,} tokens (one a request and step, no drafts)"
    return f"{least:,} (one a request and step) to {most:,} tokens (every draft accepted)"
