"""Numbers for people: what is not known is said so, never shown as zero."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.verdicts.base import Comparison, Interval

NONE = "-"
"""What a cell of a table shows where nothing is known."""
METRICS = {"tpot": "TPOT", "ttft": "TTFT", "throughput": "throughput", "goodput": "goodput"}
"""What a verdict may be about, in words."""
_HIGHER_IS_BETTER = frozenset({"throughput", "goodput"})
_LIMITS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "end to end"}


def number(value: float | None) -> str:
    """Return a number with a sensible number of digits."""
    if value is None:
        return "not known"
    if abs(value) >= 100:  # noqa: PLR2004 - three digits say enough
        return f"{value:,.0f}"
    if abs(value) >= 10:  # noqa: PLR2004 - the same
        return f"{value:.1f}"
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:.2f}"  # noqa: PLR2004 - small is not zero


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    if share is None:
        return "not known"
    return f"{100 * share:.2g} %" if 0 < share < 0.005 else f"{100 * share:.0f} %"  # noqa: PLR2004 - small is not zero


def interval(found: Interval | None, unit: str = "") -> str:
    """Return an estimate with its interval."""
    if found is None:
        return "not known"
    if found.low is None or found.high is None:
        return f"{found.estimate:.3f}{unit} (too few prompts for an interval)"
    return f"{found.estimate:.3f}{unit} ({found.low:.3f} to {found.high:.3f})"


def cell(value: float | None) -> str:
    """Return a number for a table."""
    return NONE if value is None else number(value)


def share(value: float | None) -> str:
    """Return a share for a table."""
    return NONE if value is None else percent(value)


def mean(middle: float | None, low: float | None, high: float | None) -> str:
    """Return a mean with its interval, for a table."""
    if middle is None:
        return NONE
    return number(middle) if low is None or high is None else f"{number(middle)} ({number(low)} to {number(high)})"


def ended(text: str) -> str:
    """Return a text with a full stop; it may begin with a name, so its first letter stays."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def sentence(text: str) -> str:
    """Return a text that begins as a sentence and ends as one."""
    text = ended(text)
    return text[:1].upper() + text[1:]


def plural(count: int, one: str, many: str = "") -> str:
    """Return `1 warning`, `2 warnings`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def judged(found: Comparison) -> Interval | None:
    """Return the ratio that a verdict is about."""
    ratio: Interval | None = getattr(found, f"{found.metric}_ratio", None)
    return ratio


def gain(ratio: float, metric: str = "tpot") -> str:
    """Return what a ratio means, for a person."""
    more = {
        "tpot": "time per token than the baseline (TPOT: time per output token)",
        "ttft": "time to the first token than the baseline (TTFT)",
        "throughput": "tokens a second of request time than the baseline (throughput)",
        "goodput": "good requests than the baseline (goodput: those within the limits)",
    }[metric]
    if round(abs(ratio - 1), 3) == 0:
        equal = {"throughput": "many", "goodput": "many"}.get(metric, "much")
        return f"as {equal} {more.replace(' than the', ' as the')}"
    less = "fewer" if metric in _HIGHER_IS_BETTER else "less"
    return f"{abs(1 - ratio):.0%} {less if ratio < 1 else 'more'} {more}"


def better(metric: str) -> str:
    """Return which side of 1 is a gain."""
    return "above 1" if metric in _HIGHER_IS_BETTER else "below 1"


def limits(stated: Mapping[str, float]) -> str:
    """Return the limits of goodput in words, empty where none is stated."""
    return ", ".join(f"{_LIMITS.get(name, name)} at most {value:g} ms" for name, value in stated.items() if value)


def several(values: Any) -> str:
    """Return one value or a list of them as text; nothing for None."""
    some = values if isinstance(values, list | tuple) else [values]
    return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in some if one is not None)


def workload(work: Mapping[str, Any], source: str = "") -> str:
    """Return the requests of a record in words, from its own dump of them; old records have single numbers."""
    if work.get("replay_speed") is not None:
        load = f"replayed as recorded, {work['replay_speed']:g} times as fast"
    elif work.get("rate") is not None:
        load = f"{several(work['rate'])} requests a second (Poisson)"
    else:
        load = f"{several(work.get('concurrency'))} at a time"
    parts = [
        source or str(work.get("source")),
        f"up to {several(work.get('max_tokens'))} tokens",
        f"temperature {work.get('temperature')}, seed {work.get('seed')}",
        load,
        plural(int(work.get("repeats") or 1), "repeat"),
    ]
    if work.get("context_tokens"):
        parts.insert(1, f"prompts filled up to {several(work['context_tokens'])} tokens")
    if work.get("first_turn_only"):
        parts.append("first turns only")
    if work.get("recorded_lengths"):
        parts.append("no answer longer than recorded")
    if work.get("ignore_eos"):
        parts.append("ignore_eos: answers go on past their end")
    return "; ".join(parts)


def machine(found: Mapping[str, Any]) -> str:
    """Return what a measurement ran on, in words."""
    words = {"processor": "{}", "cores": "{} cores", "gpus": "{}", "memory_gib": "{} GiB memory", "python": "Python {}"}
    known = {name: value for name, value in found.items() if value is not None}
    order = sorted(known, key=lambda name: list(words).index(name) if name in words else len(words))
    said = {
        name: " and ".join(map(str, value)) if isinstance(value, list | tuple) else value
        for name, value in known.items()
    }
    return ", ".join(words.get(name, name.replace("_", " ") + " {}").format(said[name]) for name in order)


def moment(iso: str) -> str:
    """Return an ISO 8601 moment as people write it."""
    return f"{iso[:10]} {iso[11:16]} UTC" if iso.endswith("Z") else iso


def duration(seconds: float) -> str:
    """Return a duration in the unit that fits it."""
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{number(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"  # noqa: PLR2004 - two hours


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines whose columns stand below each other; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = [
        [f"{row[0]:<{widths[0]}}", *(f"{text:>{width}}" for text, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    ]
    return ["  " + "  ".join(row).rstrip() for row in cells]
