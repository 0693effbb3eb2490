"""Reads what a log of SGLang tells of speculation, line by line.

`Decode batch` lines come every `--decode-log-interval` (40) decode steps of a scheduler. Layouts, each between
`#running-req: 3, #token: 1234, token usage: 0.05, ` and `gen throughput (token/s): …`:
- 0.4.6 to 0.5.3: `Decode batch. … accept len: 2.31, `.
- 0.5.4 to 0.5.14: `Decode batch, … accept len: 2.31, accept rate: 0.44, ` (`Decode batch [123], ` with
  SGLANG_LOG_FORWARD_ITERS).
- 0.5.16 on also `cap len: 3.00, `, `block accept len: 2.50, ` where verification has a variable length.

Counts cannot be had from them: a line gives ratios of two decimals, and not how many request-steps they are of
(`#running-req` is what ran at the end, not in each of the 40 steps). With the overlap scheduler the last, discarded
step of a request that had ended is in the ratio.
"""

import math
import re

from draftworth.engines.base import Told, Window
from draftworth.engines.sglang import log_lines, releases, server_args
from draftworth.engines.shown import shortened
from draftworth.findings import Code, Finding, find

NEEDLES: tuple[bytes, ...] = (b"accept len: ", b"avg_spec_accept_length=", b"server_args=")

_DECODE = re.compile(r"Decode batch(?: \[\d+\])?[.,] ")
_VALUE = re.compile(r"\d+\.\d\d")
_AVERAGE = re.compile(r"avg_spec_accept_length=(?P<value>\S*)")
_SERVER_ARGS = "server_args="
_LENGTH, _RATE = "accept len", "accept rate"
_FORMULAS = {
    _LENGTH: releases.LENGTH,
    "cap len": "draft slots that were allowed / steps (variable-length verification)",
    "block accept len": "tokens that block verification would accept / steps",
}
_NAMES = frozenset({*_FORMULAS, _RATE})
_INTERVAL = "40"


class SGLangWindowReader:
    """Takes the lines of one log.

    A `server_args=` line tells N and the log interval, which decide what the next lines' rate is made of where the
    release is not known.
    """

    told_only: str | None = "accept len: "

    def __init__(self, version: str | None = None) -> None:
        self._version = version
        self._width: int | None = None
        self._interval = _INTERVAL

    def take(self, line: str) -> Window | Finding | None:
        """Take one line as it stands in the file. Never raises.

        Returns:
            What it tells; a finding where it tells of speculation and cannot be read; None for every other line.
        """
        # journald's export writes a message with colours as numbers, in which no word can be looked for.
        if not any(word in line for word in (_LENGTH, "avg_spec_accept_length=", _SERVER_ARGS, '"MESSAGE"')):
            return None
        parsed = log_lines.parse(line)
        message = parsed.message
        if message.startswith(_SERVER_ARGS):
            self._configure(message)
        elif _DECODE.match(message) and _LENGTH in message:
            return self._decode(parsed)
        elif average := _AVERAGE.match(message):
            value = _number(average["value"])
            if value is None or value < 1:
                return _unreadable(message)
            average_told = Told(
                name="avg_spec_accept_length", value=value, formula=releases.LENGTH, scope="until a reset, one rank"
            )
            return Window(at=parsed.at, told=(average_told,), line=message)
        return None

    def _configure(self, message: str) -> None:
        config = server_args.parse(message.removeprefix(_SERVER_ARGS))
        self._width = server_args.width(config)
        interval = config.get("decode_log_interval", "")
        self._interval = interval if interval.isdecimal() else _INTERVAL

    def _decode(self, line: log_lines.Line) -> Window | Finding:
        values: dict[str, float] = {}
        parts = line.message.split(", ")
        for index, part in enumerate(parts):
            name, _, text = part.partition(": ")
            if name not in _NAMES:
                continue
            # Every layout has something behind its figures: one at the end was cut off, and its digits may be too.
            if name in values or index == len(parts) - 1 or not _VALUE.fullmatch(text):
                return _unreadable(line.message)
            values[name] = float(text)
        length, rate = values.get(_LENGTH), values.get(_RATE)
        if length is None or length < 1:
            return _unreadable(line.message)
        if rate is not None and rate > 1:
            why = f"an accept rate of {rate:g} is above 1 (PR #11572 mended that): {_shown(line.message)}"
            return find(Code.COUNTS_CONTRADICT, why)
        scope = f"window of {self._interval} decode steps"
        if line.rank:
            scope = f"{scope} of {line.rank}"
        formulas = {**_FORMULAS, _RATE: releases.rate_formula(self._version, length, rate, self._width)}
        told = tuple(
            Told(name=name, value=value, formula=formulas[name], scope=scope) for name, value in values.items()
        )
        return Window(at=line.at, told=told, line=line.message)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 and "_" not in text else None


def _unreadable(message: str) -> Finding:
    return find(Code.LINES_UNREADABLE, f"a line's acceptance cannot be read: {_shown(message)}")


def _shown(message: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in message)
    return shortened(text)
