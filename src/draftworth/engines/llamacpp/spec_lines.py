"""Reads what a log tells of speculation: one window a request, exact, and each implementation's own statistics.

`print_timings` of `tools/server/server-context.cpp` writes these when a request ends, in this order:

- `prompt eval time = …`, `       eval time = 312.93 ms /    80 tokens (…`, `      total time = …`: the tokens with the
  first one. In 9093 and 9113 the three stand in one message without a slot in front of each, since 9246 in three.
- `draft acceptance = 0.77778 (   49 accepted /    63 generated)` where something was drafted; `draft acceptance rate =`
  in 9093 and 9113; with `, mean len =  7.12` since 9837, 1 + accepted / verified drafts.
- `statistics        ngram-mod: #calls(b,g,a) =    1     32      7, #gen drafts = …, #gen tokens = …, #acc tokens = …`
  of each implementation since the server's start; at verbosity 4 (`-lv 4`) since 9837, always before.
- `slot      release: … | stop processing: …`: the request is over.

A request without the acceptance line drafted nothing; it is a window too, once the log has shown that the server
speculates: by a draft, by statistics, by `speculative decoding context initialized`. Those of a start that came before
that are added to the next window, so that a sum does not depend on which request drafted first; where nothing ever
shows it, they are no windows. Statistics are shown as they are and never added to the windows: they count the same
tokens again.
"""

import math
import re
from typing import NamedTuple

from draftworth.engines.base import AcceptanceCounts, Told, Window
from draftworth.engines.llamacpp import log_lines, rounding
from draftworth.engines.llamacpp.per_request import STEPS_MEAN, older_meaning
from draftworth.engines.shown import LONGEST, shortened
from draftworth.findings import Code, Finding, find

NEEDLES: tuple[bytes, ...] = (
    b"draft acceptance",
    b"build: ",
    b"build_info: ",
    b"common_params_print_info: ",
    b"  eval time = ",
    b"stop processing: n_tokens",
    b": #calls(b,g,a) = ",
    b"peculative ",
)

_ACCEPTANCE = re.compile(
    r"draft acceptance(?: rate)? = (?P<rate>\d+\.\d{5}) \( *(?P<accepted>\d+) accepted / +(?P<drafted>\d+) generated\)"
    # `mean acceptance length` is how the pull request 24536 wrote it first; forks of it may.
    r"(?:, mean (?:len|acceptance length) = +(?P<length>\d+\.\d\d)(?:, .*)?)?$"
)
_EVALUATED = re.compile(r" *(?P<prompt>prompt )?eval time = .*? / +(?P<tokens>\d+) tokens\b")
_STATISTICS = re.compile(
    r"statistics +(?P<type>[\w-]+): #calls\((?:b,g,a)\) = +(?P<begun>\d+) +(?P<asked>\d+) +(?P<verified>\d+), "
    r"#gen drafts = +(?P<drafts>\d+), #acc drafts = +(?P<good>\d+), "
    r"#gen tokens = +(?P<drafted>\d+), #acc tokens = +(?P<accepted>\d+)"
    r"(?:, #mean acc len = (?P<length>\d+\.\d\d))?"
)
_SPECULATES = "speculative decoding context initialized"
_RELEASED = re.compile(r"stop processing: n_tokens")
_RATE_HALF = 5.1e-6  # five decimals of a single precision quotient
_NO_MEAN = "builds before b9837 do not log verified drafts"
_NO_POSITIONS = "the log gives them only rounded, at verbosity 4; /metrics counts them"
_NO_TOKENS = "the line with the request's tokens (eval time) is not in front of it"
_SINCE = "since the start"
_MOST_OPEN = 4096
"""Slots whose lines are kept until their request ends; a server has far fewer."""


class _Undrafted(NamedTuple):
    """Requests of a start without a draft, from before the log showed that the server speculates."""

    requests: int = 0
    emitted: int = 0


class SpecReader:
    """Reads one log line by line.

    Attributes:
        told_only: None; a request's line gives counts.
    """

    told_only: str | None = None

    def __init__(self) -> None:
        self._tokens: dict[tuple[int, int] | None, int] = {}
        self._speculates = False
        self._before = _Undrafted()
        self._build: int | None = None
        self._served = False

    def take(self, line: str) -> Window | Finding | None:
        """Take one line as it stands in the file. Never raises."""
        parsed = log_lines.parse(line)
        message = parsed.message
        if "draft acceptance" in message:
            return self._accepted(parsed)
        if "eval time = " in message:
            self._evaluated(parsed)
        elif log_lines.begins(message):
            self._tokens.clear()
            self._speculates = False
            self._before = _Undrafted()
            # A start has up to three such lines; the build stands in one of them, or in none.
            self._build = log_lines.build_in(message) or (None if self._served else self._build)
            self._served = False
        elif build := log_lines.build_in(message):
            self._build, self._served = build, False
        elif _SPECULATES in message:
            self._speculates = True
        elif "#calls(b,g,a) = " in message:
            found = _statistics(parsed)
            self._speculates |= isinstance(found, Window)
            return found
        elif parsed.slot is not None and _RELEASED.match(message):
            return self._released(parsed)
        return None

    def _evaluated(self, line: log_lines.Line) -> None:
        match = _EVALUATED.match(line.message)
        if match is None or match["prompt"]:
            return
        if len(self._tokens) >= _MOST_OPEN:
            self._tokens.clear()
        self._served = True
        self._tokens[line.slot] = int(match["tokens"])

    def _accepted(self, line: log_lines.Line) -> Window | Finding:
        match = _ACCEPTANCE.search(line.message)
        if match is None:
            return _unreadable(line.message, "it is not of a form this tool knows")
        accepted, drafted, length = int(match["accepted"]), int(match["drafted"]), match["length"]
        if accepted > drafted or not drafted:
            return _unreadable(line.message, f"{accepted} tokens accepted of {drafted}")
        if not math.isclose(float(match["rate"]), accepted / drafted, rel_tol=0, abs_tol=_RATE_HALF):
            return _unreadable(line.message, f"{accepted} of {drafted} is not {match['rate']}")
        steps = None
        if length is not None:
            steps = rounding.drafting_steps(accepted, drafted, length)
            if steps is None:
                return _unreadable(line.message, f"no number of verified drafts has the mean length {length}")
        self._speculates = True
        tokens = self._tokens.pop(line.slot, None)
        told = () if length is None else (_mean(float(length), "this request"),)
        return Window(
            at=line.at,
            counts=self._counts(tokens, accepted, drafted, steps, "a request's log line"),
            told=told,
            line=match[0],
        )

    def _released(self, line: log_lines.Line) -> Window | None:
        tokens = self._tokens.pop(line.slot, None)
        if tokens is None:  # lines of a message of several have no slot; they stand right in front
            tokens = self._tokens.pop(None, None)
        if tokens is None:
            return None
        if not self._speculates:
            self._before = _Undrafted(self._before.requests + 1, self._before.emitted + max(0, tokens - 1))
            return None
        return Window(
            at=line.at,
            counts=self._counts(tokens, 0, 0, (0, 0), "a request's log lines, which tell of no draft"),
            line=line.message[:LONGEST],
        )

    def _counts(
        self, tokens: int | None, accepted: int, drafted: int, steps: tuple[int, int] | None, source: str
    ) -> AcceptanceCounts:
        not_given = {"accepted_per_position": _NO_POSITIONS}
        if steps is None:
            not_given["drafting_steps"] = _NO_MEAN
        if tokens is None:
            not_given |= {"steps": _NO_TOKENS, "emitted": _NO_TOKENS}
        exact = steps is not None and steps[0] == steps[1]
        before, self._before = self._before, _Undrafted()  # each of their tokens took a step
        if before.requests:
            source += f", and the {before.requests:,} requests of this start before it, without a draft,"
        return AcceptanceCounts(
            steps=None if tokens is None else before.emitted + _steps(tokens, accepted, steps),
            drafting_steps=steps[0] if steps is not None and exact else None,
            drafted=drafted,
            accepted=accepted,
            emitted=None if tokens is None else before.emitted + max(0, tokens - 1),
            source=f"{source} of llama.cpp",
            between={"drafting_steps": steps} if steps is not None and not exact else {},
            not_given=not_given,
            meaning={"steps": STEPS_MEAN, **older_meaning(self._build)},
        )


def _steps(tokens: int, accepted: int, drafting: tuple[int, int] | None) -> int:
    return max(tokens - 1 - accepted, drafting[0] if drafting else min(1, accepted), 0)


def _mean(value: float, scope: str, of: str = "") -> Told:
    return Told(name=f"{of}mean len", value=value, formula="1 + accepted / verified drafts", scope=scope)


def _statistics(line: log_lines.Line) -> Window | Finding:
    match = _STATISTICS.search(line.message)
    if match is None:
        return _unreadable(line.message, "it is not of a form this tool knows")
    kind = match["type"]
    told = [
        Told(name=f"{kind} #gen tokens", value=int(match["drafted"]), formula="tokens it drafted", scope=_SINCE),
        Told(name=f"{kind} #acc tokens", value=int(match["accepted"]), formula="of them accepted", scope=_SINCE),
        Told(name=f"{kind} #calls(a)", value=int(match["verified"]), formula="its drafts verified", scope=_SINCE),
    ]
    if match["length"] is not None:
        told.append(_mean(float(match["length"]), _SINCE, f"{kind} "))
    return Window(at=line.at, told=tuple(told), line=match[0])


def _unreadable(message: str, why: str) -> Finding:
    text = "".join(c if c.isprintable() else "?" for c in message)
    return find(Code.LINES_UNREADABLE, f"{shortened(text)}: {why}")
