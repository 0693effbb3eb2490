"""A profile, and what differs between two, as lines for a terminal."""

import math
from collections.abc import Sequence
from pathlib import Path

from draftworth.profiles.base import MEANING, Compared, Difference, Profile, Spread
from draftworth.profiles.spread import few_steps
from draftworth.reports.words import NONE, aligned, cell, number, percent, plural

_NAME = 76
_FEW = 5


def lines(profile: Profile, *, most: int = _FEW) -> list[str]:
    """Return a profile for a person: what the span was, the time by class, the ranks, what was not recognised.

    Args:
        profile: what was read.
        most: names of what was not recognised, and names told of each class with `most` above the default.
    """
    found = [*_head(profile), *(f"Warning: {text}" for text in profile.warnings), "", *_classes(profile), ""]
    if profile.ranks:
        found += [*_ranks(profile), ""]
    found += _names(profile, most)
    if profile.scopes:
        found.append("Of the same time, in ranges the engine named on the host, whatever ran within:")
        found += [*_kernels([(one.name, one.ms, one.count) for one in profile.scopes]), ""]
    if profile.unknown:
        found.append(f"Not recognised, {plural(len(profile.unknown), 'name')} (--kernels FILE adds patterns):")
        found += _kernels([(one.name, one.ms, one.count) for one in profile.unknown[:most]])
        if len(profile.unknown) > most:
            found.append(f"  and {len(profile.unknown) - most} more: --top {len(profile.unknown)}, or --json")
        found.append("")
    found += [f"Note: {text}" for text in profile.notes]
    return found[:-1] if found and not found[-1] else found


def compared_lines(found: Compared) -> list[str]:
    """Return a comparison for a person: the answer first, then each class a step and a token."""
    said = []
    for title, profile in (("Base", found.base), ("Variant", found.variant)):
        said.append(f"{title}: {'; '.join(_head(profile))}")
        few = few_steps(profile.steps, profile.per_step)  # the comparison's own note says it of both
        said += [f"Warning, {title.lower()}: {text}" for text in profile.warnings if text not in few]
    said += [*(f"Warning: {text}" for text in found.notes), ""]
    rough = _rough(found.base) or _rough(found.variant)
    for what, differences in (("step", found.per_step), ("output token", found.per_token)):
        if differences:
            said += [_answer(what, differences, rough=rough), *_differences(differences, rough=rough), ""]
    if not found.per_step and not found.per_token:
        rows = [("share of the span", "base", "variant")]
        rows += [(name, percent(one), percent(other)) for name, one, other in found.shares]
        said += [*aligned(rows), ""]
    said += [f"Note, base: {text}" for text in found.base.notes]
    said += [f"Note, variant: {text}" for text in found.variant.notes]
    return said[:-1] if not said[-1] else said


def _head(profile: Profile) -> list[str]:
    what = ", ".join(part for part in (profile.engine, profile.device) if part)
    if profile.ranks:
        what += f", {len(profile.ranks)} ranks; the slowest" + (
            "" if profile.rank is None else f", rank {profile.rank}"
        )
    elif profile.rank is not None:
        what += f", rank {profile.rank}"
    counts = f"{number(profile.span_ms)} ms of {number(profile.whole_ms)} ms"
    if profile.steps:
        counts += f", {plural(profile.steps, 'decode step')} of {_mean_step(profile)}"
    if profile.steps and profile.request_steps:
        counts += f" with {profile.request_steps / profile.steps:.2f} requests"
        if profile.carried is not None:
            counts += f" and {profile.carried / profile.steps:.2f} tokens"
    return [f"{profile.source}: {what}", counts, f"Told by {profile.told_by}"]


def _mean_step(profile: Profile) -> str:
    total = next((one for one in profile.per_step if one.name == "total"), None)
    ms = profile.span_ms / (profile.steps or 1)
    if total is None or total.interval is None:
        return f"about {rounded(ms, ms)} ms"
    return f"{ms:.3f} ms ({total.interval.low_ms:.3f} to {total.interval.high_ms:.3f})"


def _rough(profile: Profile) -> bool:
    """Return whether there are too few steps for intervals: figures a step are rounded then."""
    return all(one.interval is None for one in profile.per_step)


def rounded(ms: float, whole: float, *, sign: bool = False) -> str:
    """Return milliseconds to two digits of the whole that they are a part of."""
    digits = 2 - 1 - math.floor(math.log10(abs(whole))) if whole else 0
    value = round(ms, digits) + 0.0
    return f"{value:{'+' if sign else ''}.{max(digits, 0)}f}"


def _interval(found: Spread | None, *, sign: bool = False) -> str:
    if found is None:
        return NONE
    form = "+.3f" if sign else ".3f"
    return f"{found.low_ms:{form}} to {found.high_ms:{form}}"


def _classes(profile: Profile) -> list[str]:
    rough = _rough(profile)
    spread = {one.name: one.interval for one in profile.per_step}
    per: list[tuple[str, float]] = [("a step, ms", profile.steps)] if profile.steps else []
    per += [("a token, ms", profile.tokens)] if profile.tokens else []
    last = "kernels" if profile.device != "cpu" else "operations"
    middle = [title for title, _ in per]
    rows = [("", "ms", "share", *(middle if rough else [middle[0], "95 % of it", *middle[1:]]), last)]
    entries: list[tuple[str, float | None, int | None]] = [(one.name, one.ms, one.count) for one in profile.classes]
    entries += [("idle", profile.idle_ms, None), ("host", profile.host_ms, None), ("span", profile.span_ms, None)]
    for name, ms, count in entries:
        share = NONE if ms is None or not profile.span_ms else percent(ms / profile.span_ms)
        each = [
            NONE if ms is None else rounded(ms / many, profile.span_ms / many) if rough else f"{ms / many:.3f}"
            for _, many in per
        ]
        if not rough:
            each.insert(1, _interval(spread.get("total" if name == "span" else name)))
        rows.append((name, cell(ms), share, *each, "" if count is None else f"{count:,}"))
    return aligned(rows)


def _ranks(profile: Profile) -> list[str]:
    names = [one for one in MEANING if any(of.name == one for rank in profile.ranks for of in rank.classes)]
    per_step = all(rank.steps for rank in profile.ranks)
    rough = per_step and any(_rough(rank) for rank in profile.ranks)

    def shown(ms: float, one: Profile) -> str:
        steps = (per_step and one.steps) or 1
        return rounded(ms / steps, one.span_ms / steps) if rough else f"{ms / steps:.3f}"

    rows = [("ms a step" if per_step else "ms", *(_rank_name(one) for one in profile.ranks))]
    rows += [(name, *(shown(one.of(name), one) for one in profile.ranks)) for name in names]
    for title, values in (
        ("idle", [one.idle_ms for one in profile.ranks]),
        ("host", [one.host_ms for one in profile.ranks]),
        ("span", [one.span_ms for one in profile.ranks]),
    ):
        scaled = [NONE if ms is None else shown(ms, one) for ms, one in zip(values, profile.ranks, strict=True)]
        rows.append((title, *scaled))
    return aligned(rows)


def _rank_name(one: Profile) -> str:
    return f"rank {one.rank}" if one.rank is not None else Path(one.source).name


def _names(profile: Profile, most: int) -> list[str]:
    classes = [one for one in profile.classes if one.name != "not recognised" and one.top]
    if most <= _FEW:
        tops = [one.top[0] for one in classes]
        rows = [("longest of each class", "ms", "times")]
        rows += [(one.name, number(top.ms), f"{top.count:,}") for one, top in zip(classes, tops, strict=True)]
        return [*_named(rows, [top.name for top in tops]), ""] if tops else []
    found = []
    for one in classes:
        found += [f"{one.name}: {MEANING[one.name]}", *_kernels([(top.name, top.ms, top.count) for top in one.top]), ""]
    return found


def _named(rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Return a table with a name behind each row but the first, at the left."""
    return [f"{line}  {_short(name)}".rstrip() for line, name in zip(aligned(rows), ["", *names], strict=True)]


def _kernels(entries: Sequence[tuple[str, float, int]]) -> list[str]:
    rows = [("ms", "times"), *((number(ms), f"{count:,}") for _, ms, count in entries)]
    return _named(rows, [name for name, _, _ in entries])


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _answer(what: str, differences: Sequence[Difference], *, rough: bool) -> str:
    total = differences[-1]
    base, variant = total.base_ms or 0.0, total.variant_ms or 0.0
    whole = max(base, variant)
    parts = sorted(differences[:-1], key=lambda one: -abs(one.difference_ms or 0.0))
    signed = [(one.name, one.difference_ms) for one in parts[:3] if one.difference_ms]
    if rough:
        most = [f"{name} {rounded(ms, whole, sign=True)}" for name, ms in signed if _rounds(ms, whole)]
        ratio = f" ({variant / base:.1f} times)" if base else ""
        said = f"One {what} takes about {rounded(variant, whole)} ms instead of {rounded(base, whole)}{ratio}"
        said += f", {rounded(variant - base, whole, sign=True)} ms"
    else:
        most = [f"{name} {ms:+.3f}" for name, ms in signed]
        ratio = f" ({variant / base:.2f} times)" if base else ""
        said = f"One {what} takes {variant:.3f} ms instead of {base:.3f}{ratio}, {variant - base:+.3f} ms"
        said += f" ({_interval(total.interval, sign=True)})" if total.interval else ""
    return f"{said}: {', '.join(most)}." if most else f"{said}."


def _rounds(ms: float, whole: float) -> bool:
    """Return whether a part is more than nothing when it is rounded."""
    return float(rounded(ms, whole)) != 0


def _differences(differences: Sequence[Difference], *, rough: bool) -> list[str]:
    head = ("ms", "base", "variant", "difference", *(() if rough else ("95 % of it",)))
    rows: list[tuple[str, ...]] = [(*head, "share of base", "share of variant")]
    total = differences[-1]
    whole = max(total.base_ms or 0.0, total.variant_ms or 0.0)

    def shown(ms: float | None, *, sign: bool = False) -> str:
        if ms is None:
            return NONE
        return rounded(ms, whole, sign=sign) if rough else f"{ms:{'+' if sign else ''}.3f}"

    rows += [
        (
            one.name,
            shown(one.base_ms),
            shown(one.variant_ms),
            shown(one.difference_ms, sign=True),
            *(() if rough else (_interval(one.interval, sign=True),)),
            _part(one.base_ms, total.base_ms),
            _part(one.variant_ms, total.variant_ms),
        )
        for one in differences
    ]
    return aligned(rows)


def _part(value: float | None, whole: float | None) -> str:
    return NONE if value is None or not whole else percent(value / whole)
