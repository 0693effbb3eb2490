"""Reads Prometheus text into sums, for every engine alike, and says what is wrong with it instead of guessing.

A page may be cut off in the middle of a line, hold NaN or values below zero, series of several models, or be another
program's. What is wrong is left out, and a count that would need it is not given: a sum without one of its parts would
be a wrong number.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftworth.engines.base import MetricsSnapshot
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding, find

_CREATED = "_created"
_SAME_TIME = 1e-3  # seconds
_COUNTED = ("_total", "_count", "_sum")
_COUNTING_KINDS = frozenset({"counter", "histogram", "summary"})
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)")
_ENDS_IN_A_NUMBER = re.compile(r"^[a-zA-Z_:][\w:]*(?:\{.*\})?\s+[-+]?(?:\d[\d.eE+-]*|NaN|Inf)\s*$")
_MODEL_LABELS = ("model_name", "model")
_SHOWN = 3
_POSITION_DIGITS = 5
"""No draft has ten thousand tokens: a longer number is damage, and a list up to it would fill the memory."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What of a page is an engine's.

    Attributes:
        title: the engine's name for a person.
        prefix: what its series' names begin with: `vllm:`.
        per_position: the counter of accepted tokens by position; None for an engine without.
        position_label: its label.
        gauges: gauges worth keeping.
        rank_labels: labels that tell the ranks of one server apart.
        together: counters that every rank exports together: where one lacks a rank of another, the page is not whole.
        fixed_series: whether the engine makes every series when it starts.
        hint: what to check where there is nothing of this engine on the page.
    """

    title: str
    prefix: str
    per_position: str | None = None
    position_label: str = "position"
    gauges: frozenset[str] = frozenset()
    rank_labels: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    fixed_series: bool = False
    hint: str = "does the URL lead to it?"


@dataclass(slots=True)
class _Page:
    layout: Layout
    model: str | None
    counters: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    positions: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    created: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, list[float]] = field(default_factory=dict)
    ranks: set[tuple[str, ...]] = field(default_factory=set)
    models: dict[str, None] = field(default_factory=dict)
    spoilt: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    series: dict[str, dict[str, None]] = field(default_factory=dict)
    rank_sets: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    position_ranks: dict[int, set[tuple[str, ...]]] = field(default_factory=dict)


def read(text: str, layout: Layout, *, model: str | None = None) -> MetricsSnapshot:
    """Read a page: every counter and histogram of an engine, summed over its label sets, buckets left out.

    Args:
        text: the page.
        layout: what of it is the engine's.
        model: take only series of this model; None for all.

    Raises:
        MeasureError: nothing of this engine is there, or no series of that model.
    """
    page = _Page(layout, model)
    findings: list[Finding] = []
    lines = text.splitlines()
    # The text format ends every line; a page that does not was cut off, and its last number with it.
    cut = bool(text) and not text.endswith(("\n", "\r")) and not lines[-1].startswith("# EOF")
    if cut:
        findings.append(find(Code.METRICS_CUT, f"the page ends in the middle of a line: {_shown(lines[-1])}"))
    bad: list[str] = []
    for line in lines[:-1] if cut else lines:
        if line.startswith("#"):
            _kind(page, line)
        elif line.startswith(layout.prefix):
            problem = _take(page, line)
            if problem:
                bad.append(problem)
    if cut:
        _spoil_cut(page, lines[-1])
    findings += _not_whole(page)
    if bad:
        more = f", and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        findings.append(find(Code.METRICS_UNREADABLE, f"{'; '.join(bad[:_SHOWN])}{more}"))
    other_models = model is not None and model not in page.models
    if other_models or not (page.counters or page.gauges or page.spoilt):
        _refuse(text, page)
    if len(page.models) > 1 and model is None:
        names = ", ".join(sorted(page.models))
        findings.append(find(Code.SEVERAL_MODELS, f"the page has series of {len(page.models)} models: {names}"))
    last = max(page.positions, default=-1)
    whole = layout.per_position not in page.spoilt
    return MetricsSnapshot(
        counters={name: value for name, value in page.counters.items() if name not in page.spoilt},
        per_position=tuple(page.positions[i] for i in range(last + 1)) if page.positions and whole else None,
        engines=max(1, len(page.ranks)),
        created=page.created,
        gauges={name: tuple(values) for name, values in page.gauges.items()},
        models=tuple(page.models) if model is None else (model,),
        series={name: tuple(sets) for name, sets in page.series.items() if name not in page.spoilt},
        fixed_series=layout.fixed_series,
        findings=tuple(findings),
    )


def _refuse(text: str, page: _Page) -> None:
    layout = page.layout
    if page.model is not None and page.model not in page.models and (page.counters or page.gauges or page.models):
        served = f"it has those of {', '.join(sorted(page.models))}" if page.models else "its series name no model"
        raise MeasureError(f"/metrics has no series of the model {page.model!r}; {served}")
    others = dict.fromkeys(
        found["name"] for line in text.splitlines() if not line.startswith("#") and (found := _SAMPLE.match(line))
    )
    other = f" (there are {_shown(', '.join(list(others)[:_SHOWN]))})" if others else ""
    what = f"/metrics shows no {layout.prefix} counters{other}"
    if not others or "<" in text.lstrip()[:1] or not _looks_like_samples(text):
        what = f"this is no Prometheus text: it begins with {_shown(text.lstrip()[:60])!r}" if text.strip() else what
    raise MeasureError(f"{what}; {layout.hint}")


def _spoil_cut(page: _Page, line: str) -> None:
    """Give up the counter the page was cut off in; where its name was cut, every counter it may be."""
    match = _SAMPLE.match(line)
    if match is None or not (line.startswith(page.layout.prefix) or page.layout.prefix.startswith(line)):
        return
    why = "the page ends in the middle of one of its lines"
    page.spoilt[match["name"]] = why
    if match.end() == len(line):
        page.spoilt |= {name: why for name in page.counters if name.startswith(line)}


def _not_whole(page: _Page) -> list[Finding]:
    """Give up counters that lack a rank others have. Returns what is said of it."""
    names = [name for name in page.layout.together if name in page.counters and name not in page.spoilt]
    sets = [page.rank_sets.get(name, set()) for name in names]
    if not sets:
        return []
    positions = list(page.position_ranks.values())
    if all(one == sets[0] for one in (*sets, *positions)):
        return []
    everybody = len(set().union(*sets, *positions))
    for name in (*names, *([page.layout.per_position] if page.layout.per_position else [])):
        page.spoilt[name] = "the page has it of some ranks only"
    message = f"{', '.join(names)} are not there of each of {everybody} ranks; the page is cut off, or a rank is gone"
    return [find(Code.PARTIAL_RANKS, message)]


def _looks_like_samples(text: str) -> bool:
    """Whether text of another program is Prometheus text: comments of the format, or lines that end in a number."""
    lines = [line for line in text.splitlines()[:50] if line.strip()]
    numbers = sum(bool(_ENDS_IN_A_NUMBER.search(line)) for line in lines if not line.startswith("#"))
    return any(line.startswith(("# HELP ", "# TYPE ")) for line in lines) or numbers * 2 > len(lines)


def _kind(page: _Page, line: str) -> None:
    words = line.split(maxsplit=3)
    if len(words) == 4 and words[1] == "TYPE" and words[2].startswith(page.layout.prefix):  # noqa: PLR2004 - `# TYPE name kind`
        page.kinds[words[2]] = words[3].strip()


def _take(page: _Page, line: str) -> str | None:
    """Take one sample. Returns what is wrong with it, or None."""
    try:
        name, labels, value = _sample(line)
    except ValueError as error:
        if found := _SAMPLE.match(line):
            page.spoilt[found["name"]] = str(error)
        return f"{_shown(line)}: {error}"
    said = next((labels[label] for label in _MODEL_LABELS if label in labels), None)
    if said is not None:
        page.models[said] = None
    if said is None or page.model is None or said == page.model:
        return _add(page, name, labels, value)
    return None


def _add(page: _Page, name: str, labels: Mapping[str, str], value: float) -> str | None:
    """Add one sample to the sums. Returns what is wrong with it, or None."""
    layout = page.layout
    if name.endswith(_CREATED):
        page.created[name] = max(value, page.created.get(name, value))
    elif name in layout.gauges:
        page.gauges.setdefault(name, []).append(value)
    elif _counts(page, name) and "quantile" not in labels:
        if not (math.isfinite(value) and value >= 0):
            page.spoilt[name] = f"one of its series is {value}"
            return f"{name} is {value}"
        labelled = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        series = page.series.setdefault(name, {})
        if labelled in series:
            page.spoilt[name] = "one of its series stands there twice"
            return f"{name}{{{_shown(labelled)}}} stands there twice (two pages in one file?)"
        series[labelled] = None
        page.counters[name] += value
        if not math.isfinite(page.counters[name]):
            page.spoilt[name] = "its sum is no number"
        rank = tuple(labels[label] for label in layout.rank_labels if label in labels)
        if rank:
            page.ranks.add(rank)
        page.rank_sets.setdefault(name, set()).add(rank)
        if name == layout.per_position:
            position = labels.get(layout.position_label, "")
            if not (position.isdecimal() and len(position) < _POSITION_DIGITS):
                page.spoilt[name] = f"one of its positions is {_shown(position)!r}"
                return f"{name}: {_shown(position)!r} is no position of a draft"
            page.positions[int(position)] += value
            page.position_ranks.setdefault(int(position), set()).add(rank)
    return None


def _counts(page: _Page, name: str) -> bool:
    if name.endswith("_bucket"):
        return False
    family = re.sub(r"_(?:total|count|sum)$", "", name)
    kind = page.kinds.get(name) or page.kinds.get(family) or page.kinds.get(f"{family}_total")
    if kind in (None, "unknown", "untyped"):  # a proxy took the TYPE lines out
        return name.endswith(_COUNTED)
    return kind in _COUNTING_KINDS


def _sample(line: str) -> tuple[str, Mapping[str, str], float]:
    """Take a sample's line apart. Raises ValueError with what is wrong.

    Line by line, since the parser gives a whole page up for one bad line.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - lazy: only when measuring

    try:
        samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(_shown(str(error)) or "it cannot be read") from None
    if len(samples) != 1:
        raise ValueError("it is no sample")
    return samples[0].name, samples[0].labels, float(samples[0].value)


def _shown(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else "?" for c in text).split())
    return text if len(text) <= 120 else text[:120] + "…"  # noqa: PLR2004 - characters of a message


def delta(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> int | None:
    """Return by how much a counter grew between two pages, or None where neither has it.

    Raises:
        MeasureError: it fell, appeared or went, or the server was started anew.
    """
    old, new = before.counters.get(name), after.counters.get(name)
    if old is None and new is None:
        return None
    if old is None or new is None:
        raise MeasureError(
            f"{name} {'appeared' if old is None else 'went'} between two scrapes of /metrics; "
            "the server was restarted with another configuration"
        )
    _check_created(before, after, name)
    _check_series(before, after, name)
    if new < old:
        raise MeasureError(f"{name} fell from {old:.0f} to {new:.0f} between two scrapes; the server was restarted")
    return round(new - old)


def _check_series(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> None:
    old, new = set(before.series.get(name, ())), set(after.series.get(name, ()))
    if not old or not new:
        return  # pages from before series were kept
    gone, come = old - new, new - old
    if gone or (come and after.fixed_series):
        what = f"{_shown(min(gone))} went" if gone else f"{_shown(min(come))} appeared"
        raise MeasureError(f"{name}: the series {what} between two scrapes; a rank, a replica or a model came or went")


def _check_created(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> None:
    key = re.sub(r"_(?:total|count|sum)$", "", name) + _CREATED
    old, new = before.created.get(key), after.created.get(key)
    if old is not None and new is not None and abs(new - old) > _SAME_TIME:
        raise MeasureError(f"{key} changed from {old:.3f} to {new:.3f} between two scrapes; the server was restarted")


def positions(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> tuple[int, ...] | None:
    """Return by how much each position's counter grew, or None where a page has none.

    Raises:
        MeasureError: the server was started anew, or has another number of positions.
    """
    delta(before, after, name)  # a restart is the same for every position
    if before.per_position is None or after.per_position is None:
        return None
    if len(before.per_position) != len(after.per_position):
        raise MeasureError(
            f"{name} has {len(after.per_position)} positions after {len(before.per_position)} before; "
            "the server was restarted with another number of speculative tokens"
        )
    return tuple(round(new - old) for old, new in zip(before.per_position, after.per_position, strict=True))


def since_start(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Return the page before the server's first request: the same series, all at zero."""
    return snapshot.model_copy(
        update={
            "counters": dict.fromkeys(snapshot.counters, 0.0),
            "per_position": None if snapshot.per_position is None else (0.0,) * len(snapshot.per_position),
            "findings": (),
        }
    )


def first_of(snapshot: MetricsSnapshot, names: Sequence[str]) -> str:
    """Return the first of several names of one series that a page has; the first name where it has none."""
    return next((name for name in names if name in snapshot.counters), names[0])
