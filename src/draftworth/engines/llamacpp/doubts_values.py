"""Numbers that llama.cpp does not take, or takes and can do nothing with.

Limits of `common/arg.cpp` (9093 and 11434; between them only `--spec-draft-n-max` got one) and of
`common_speculative_synth_rates_resolve`; what happens beyond them is in `common/speculative.cpp` of 9093 and 11434. A
whole number is read by `std::stoi`, which stops at the first character that is no digit.
"""

import math
import re
from collections.abc import Iterator

from draftworth.engines.base import Doubt
from draftworth.engines.llamacpp import releases
from draftworth.engines.llamacpp.planned import Arm

_MOST = 1024
_SIZE = (1, _MOST)
_LIMITS: dict[str, tuple[int, int | None]] = {
    **{f"--spec-ngram-{kind}-size-{size}": _SIZE for kind in ("simple", "map-k", "map-k4v") for size in "nm"},
    **{f"--spec-ngram-{kind}-min-hits": (1, None) for kind in ("simple", "map-k", "map-k4v")},
    "--spec-ngram-mod-n-match": _SIZE,
    "--spec-ngram-mod-n-min": (0, _MOST),
    "--spec-ngram-mod-n-max": (0, _MOST),
}
"""A flag to the least and the most the server takes, in every build read."""
_N_MAX, _N_MIN, _P_MIN = "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min"
_WHOLE = re.compile(r"\s*[+-]?\d{1,9}")
_UNKNOWN = re.compile(r"[${}]")  # the value is decided elsewhere


def doubts(arm: Arm) -> Iterator[Doubt]:
    """Yield what is wrong with the numbers of an arm."""
    for name in sorted({*_LIMITS, _N_MAX, _N_MIN} & arm.flags.keys()):
        yield from _whole(arm, name, arm.flags[name])
    yield from _draft(arm)
    yield from _probability(arm)
    yield from _synthetic(arm)


def _whole(arm: Arm, name: str, text: str) -> Iterator[Doubt]:
    if _UNKNOWN.search(text):
        return
    match = _WHOLE.match(text)
    if match is None:
        yield _refused(name, text, "is no whole number", "write a whole number")
        return
    value = int(match[0])
    if match.end() < len(text.rstrip()):
        yield _changed(name, text, f"is read as {value}", "write a whole number")
    low, high = _LIMITS.get(name, (0, None) if name == _N_MAX and arm.since(releases.N_MAX_CHECKED) else (None, None))
    if low is not None and (value < low or (high is not None and value > high)):
        allowed = f"{low} or more" if high is None else f"{low} to {high:,}"
        yield _refused(name, text, f"is not {allowed}", f"write {allowed}")
    elif value == 0 and name.endswith("n-max"):
        drafts = "nothing is ever drafted" if "ngram" in name else "at most one token is drafted"
        yield _changed(name, text, f"is taken, and {drafts}", "write 1 or more; plan the baseline as an arm of its own")
    elif value < 0 and name == _N_MAX:
        since = f"before {releases.named(releases.N_MAX_CHECKED)}"
        what = f"is taken {since} as if it were 0, and stops the server from then on"
        yield _changed(name, text, what, "write 1 or more")


def _draft(arm: Arm) -> Iterator[Doubt]:
    least, most = _read(arm, _N_MIN), _read(arm, _N_MAX)
    if _N_MAX not in arm.flags and arm.since(releases.DRAFT_DEFAULTS):
        most = 3
    if least is None:
        return
    if least < 0:
        yield _changed(_N_MIN, str(least), "is taken, and every draft is thrown away as too short", "write 0 or more")
    elif most is not None and least > most >= 0:
        what = f"is more than {_N_MAX} {most}: every draft is thrown away as too short"
        yield _changed(_N_MIN, str(least), what, f"keep it at {most} or less")


def _read(arm: Arm, name: str) -> int | None:
    match = _WHOLE.match(arm.flags.get(name, ""))
    return int(match[0]) if match else None


def _probability(arm: Arm) -> Iterator[Doubt]:
    text = arm.flags.get(_P_MIN)
    if text is None or _UNKNOWN.search(text):
        return
    value = _number(text)
    if value is None:
        yield _refused(_P_MIN, text, "is no number", "write a number from 0 to 1")
    elif not 0 <= value <= 1:
        means = "0" if value < 0 else "never to draft, since no probability is above 1"
        what = f"is no probability; the server takes it, and it means {means}"
        yield _changed(_P_MIN, text, what, "write a number from 0 to 1")


def _synthetic(arm: Arm) -> Iterator[Doubt]:
    for name, least, most in (("--spec-synth-len", 1.0, math.inf), ("--spec-synth-rates", 0.0, 1.0)):
        text = arm.flags.get(name)
        if text is None or _UNKNOWN.search(text):
            continue
        values = [_number(one) for one in text.split(",")]
        if any(one is None or not (math.isfinite(one) and least <= one <= most) for one in values):
            allowed = "1 or more" if most == math.inf else "rates from 0 to 1"
            yield _refused(name, text, f"is not {allowed}", f"write {allowed}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _refused(name: str, text: str, what: str, fix: str) -> Doubt:
    return Doubt(code="impossible_value", severity="refused", what=f"{name} {text} {what}: no server starts", fix=fix)


def _changed(name: str, text: str, what: str, fix: str) -> Doubt:
    return Doubt(code="impossible_value", severity="changed", what=f"{name} {text} {what}", fix=fix)
