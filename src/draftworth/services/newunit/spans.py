"""Spans of time as people and systemd write them, and the start limit that follows from them."""

import re

from draftworth.errors import UsageError

_UNITS = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400}
_PART = re.compile(r"(\d+)\s*([a-z]*)\s*")
_LONGEST = 7 * 86400

RESTART_S = 30
"""Seconds between a failure and the next start."""
BURST = 3
"""Starts within the limit's interval, the first included; after that the unit is `failed` and stays so."""

_STEPS_S = 60
_ROUND_TO_S = 600


def seconds(text: str, what: str) -> int:
    """Read a span such as `2h`, `90min`, `1h 30min`, `45s`, `5400`.

    Args:
        text: the span.
        what: the option's name, for the error.

    Raises:
        UsageError: it is none, or not between one second and seven days.
    """
    rest, total = text.strip().lower(), 0
    while rest:
        part = _PART.match(rest)
        if part is None or part[2] not in _UNITS:
            raise UsageError(f"{what}: {text!r} is no span of time; write it like 2h, 90min, 1h30min or 45s")
        total += int(part[1]) * _UNITS[part[2]]
        rest = rest[part.end() :]
    if not 0 < total <= _LONGEST:
        raise UsageError(f"{what}: {text!r} must be between 1s and 7d")
    return total


def span(total: int) -> str:
    """Return seconds the way systemd reads them back to the same: 7200 is `2h`, 5430 is `1h30min30s`."""
    parts = ((total // 3600, "h"), (total // 60 % 60, "min"), (total % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def start_limit_interval(*, load_s: int, stop_s: int, wait_s: int) -> int:
    """Return a StartLimitIntervalSec= in seconds within which `BURST` failing starts always fit.

    systemd counts starts from the first of a series; the limit can only be met if the whole series fits into the
    interval. The longest cycle is: wait for GPU memory, load up to the time-out, be stopped (SIGTERM, then SIGKILL),
    pause. A shorter interval would be over before the last start, and the loop would go on for ever.
    """
    cycle = wait_s + _STEPS_S + load_s + 2 * stop_s + RESTART_S
    return (BURST * cycle // _ROUND_TO_S + 1) * _ROUND_TO_S
