"""What a replay gives, as lines for a terminal and as one JSON document."""

from collections.abc import Sequence
from typing import Any

from draftworth.drafters.base import Drafter, Limits, Setting
from draftworth.drafters.counts import SettingCounts, Tally
from draftworth.drafters.gathered import OTHERS, Seen
from draftworth.drafters.remarks import FEW_REQUESTS, different
from draftworth.drafters.replay import Replayed
from draftworth.findings import Finding
from draftworth.reports.words import NONE, aligned, cell, mean, number, percent, plural, share

SCHEMA_VERSION = 1
_MOST_PARTS = 12
_POSITIONS = 10
_WORTH_A_LOOK = 1.05
"""Tokens per step below which there is less to gain than most services' own noise."""
_BASIC = frozenset({"k", "min", "max"})
_NAMES = {"thinking": "thinking", "answer": "answer", "not_known": "phase not known"}


def document(
    replayed: Replayed,
    drafter: Drafter,
    limits: Limits,
    findings: Sequence[Finding],
    *,
    path: str,
    requests: int | None,
    others: int = 0,
) -> dict[str, Any]:
    """Return a replay as one JSON document.

    Args:
        replayed: what it gave.
        drafter: what was replayed.
        limits: what bounded drafts.
        findings: what to be careful with.
        path: the trace's.
        requests: how many rows the trace says it has, None where only reading tells.
        others: requests of categories that were not asked for.
    """
    seen = replayed.seen
    return {
        "schema_version": SCHEMA_VERSION,
        "trace": {
            "path": path,
            "rows": requests,
            "models": seen.models,
            "tokenizer_hashes": seen.tokenizer_hashes,
            "prompt_tokens": seen.prompt_tokens,
            "output_tokens": seen.output_tokens,
            "categories": seen.categories,
            "exact": not seen.inexact,
        },
        "drafter": {
            **facts(drafter),
            "concurrency": limits.concurrency,
            "max_model_len": limits.max_model_len,
            "max_tokens": limits.max_tokens,
        },
        "settings": [one.document() for one in replayed.settings],
        "interval": replayed.method,
        "requests": seen.requests,
        "left_out": left_out(replayed, others),
        "findings": [one.model_dump(mode="json", exclude={"arm"}) for one in findings],
    }


def facts(drafter: Drafter) -> dict[str, Any]:
    """Return what a drafter says of itself, for a JSON document."""
    return {
        "name": drafter.name,
        "title": drafter.title,
        "engine": drafter.engine,
        "source": drafter.source,
        "shared": drafter.shared,
        "always_verifies": drafter.always_verifies,
    }


def left_out(replayed: Replayed, others: int = 0) -> list[dict[str, Any]]:
    """Return what was not replayed, by reason, with how many and where the first is, where that was kept."""
    bad, seen = replayed.bad, replayed.seen
    found: list[dict[str, Any]] = [
        {"reason": reason, "count": count, "first": bad.first[reason]} for reason, count in bad.counts.items()
    ]
    for reason, count in (
        ("no output tokens, so no steps", seen.no_output),
        ("one output token, which comes from prefill, so no steps", seen.one_token),
        ("other categories", others),
    ):
        if count:
            found.append({"reason": reason, "count": count, "first": None})
    return found


def lines(
    replayed: Replayed,
    drafter: Drafter,
    findings: Sequence[Finding],
    *,
    path: str,
    others: int = 0,
    most: int = 20,
    grid: bool = False,
) -> list[str]:
    """Return a replay for a person: settings by tokens per step, the best in parts, and what to do next.

    Args:
        replayed: what it gave.
        drafter: what was replayed.
        findings: what to be careful with.
        path: the trace's.
        others: requests of categories that were not asked for.
        most: rows of the table.
        grid: whether these settings are all that are worth trying, so that they speak for the drafter.
    """
    seen = replayed.seen
    ranked = sorted(replayed.settings, key=lambda one: (-(one.total.length_per_step or 0), one.total.drafted))
    best = ranked[0]
    tokens = f"{seen.prompt_tokens:,} prompt and {seen.output_tokens:,} output tokens"
    without = left_out(replayed, others)
    rows = seen.requests + sum(one["count"] for one in without)
    of = f"{seen.requests:,} of {plural(rows, 'request')}" if without else plural(rows, "request")
    found = [f"{path}: {of} replayed, {tokens}", f"{drafter.title} ({drafter.source})"]
    for one in without:
        first = f" (first: {one['first']})" if one["first"] else ""
        found.append(f"  {one['count']:,} left out: {one['reason']}{first}")
    found += ["", *_table(ranked[:most], replayed.settings)]
    if len(ranked) > most:
        found.append(f"  {plural(len(ranked) - most, 'further setting')}: --top {len(ranked)}, or --json")
    found += [
        f"  Interval: 95 %, {replayed.method}.",
        "",
        *_parts(best, _columns([one.setting for one in ranked])),
        *_by_position(best.total),
        "",
    ]
    for finding in findings:
        found += [f"{finding.severity}: {finding.message}", f"  {finding.advice}"]
    return [*found, *_next(best, seen, grid=grid)]


def label(setting: Setting, names: Sequence[str] | None = None) -> str:
    """Return a setting in a few words, `k 3, min 2, max 5`; only these parameters where some are named."""
    values = _values(setting)
    return ", ".join(
        f"{name} {_value(values[name])}" for name in (values if names is None else names) if name in values
    )


def drafter_lines(drafters: Sequence[Drafter]) -> list[str]:
    """Return every drafter with what it is, its source and its defaults."""
    found: list[str] = []
    for one in drafters:
        defaults = "; ".join(label(setting) for setting in one.settings())
        notes = [text for text, is_so in _notes(one) if is_so]
        found += [
            f"{one.name}",
            f"  {one.title}",
            f"  engine {one.engine}; read from {one.source}",
            f"  defaults: {defaults}",
            *(f"  {note}" for note in notes),
        ]
    return found


def list_document(drafters: Sequence[Drafter]) -> dict[str, Any]:
    """Return every drafter as one JSON document."""
    return {"schema_version": SCHEMA_VERSION, "drafters": [drafter_document(one) for one in drafters]}


def drafter_document(drafter: Drafter) -> dict[str, Any]:
    """Return a drafter with its defaults, for a JSON document."""
    defaults = [{"k": one.k, "min": one.min, "max": one.max, "more": dict(one.more)} for one in drafter.settings()]
    return {**facts(drafter), "defaults": defaults}


def _notes(drafter: Drafter) -> list[tuple[str, bool]]:
    return [
        ("requests share what was learned: their order and --concurrency matter", drafter.shared),
        ("every step verifies k tokens, matched or not", drafter.always_verifies),
    ]


def _table(shown: Sequence[SettingCounts], every: Sequence[SettingCounts]) -> list[str]:
    settings = [one.setting for one in every]
    names = _columns(settings)
    rows = [("", *names, "steps", "drafting", "drafted", "accepted", "rate", "per drafting step", "tokens per step")]
    for at, one in enumerate(shown):
        total, values = one.total, _values(one.setting)
        rows.append(
            (
                "best" if at == 0 and len(every) > 1 else "",
                *(_value(values.get(name)) for name in names),
                f"{total.steps:,}",
                share(total.coverage),
                f"{total.drafted:,}",
                f"{total.accepted:,}",
                share(total.acceptance_rate),
                cell(total.length_per_drafting_step),
                mean(total.length_per_step, one.low, one.high),
            )
        )
    return [*aligned(rows), *_in_all(settings, names)]


def _columns(settings: Sequence[Setting]) -> list[str]:
    """Return k, min, max as far as the algorithm has them, and the parameters that differ among settings."""
    names = dict.fromkeys(name for one in settings for name in _values(one))
    return [name for name in names if name in _BASIC or len({_values(one).get(name) for one in settings}) > 1]


def _in_all(settings: Sequence[Setting], columns: Sequence[str]) -> list[str]:
    """Return the parameters that are no columns, since all settings have the same."""
    same = [name for name in _values(settings[0]) if name not in columns]
    return [f"  With {label(settings[0], same)}."] if same else []


def _values(setting: Setting) -> dict[str, float]:
    basic = {"k": setting.k, "min": setting.min, "max": setting.max}
    return {**{name: value for name, value in basic.items() if value is not None}, **setting.more}


def _value(value: float | None) -> str:
    if value is None:
        return NONE
    return str(int(value)) if value == int(value) else f"{value:g}"


def _parts(best: SettingCounts, columns: Sequence[str]) -> list[str]:
    """Return the best setting's figures by category and by phase, where there is more than one."""
    rows = [(f"of {label(best.setting, columns)}", "steps", "drafting", "rate", "per drafting step", "tokens per step")]
    parts: list[tuple[str, Tally]] = []
    if len(best.by_category) > 1:
        some = sorted(best.by_category.items(), key=lambda part: -part[1].emitted)
        parts += [(name or "(no category)", tally) for name, tally in some[:_MOST_PARTS]]
    if len(best.by_phase) > 1:
        parts += [(_NAMES[name], tally) for name, tally in best.by_phase.items()]
    for name, one in parts:
        per = cell(one.length_per_drafting_step)
        rows.append(
            (name, f"{one.steps:,}", share(one.coverage), share(one.acceptance_rate), per, cell(one.length_per_step))
        )
    if not parts:
        if len(best.by_category) == 1 and OTHERS in best.by_category:
            return [
                "  Categories are counted together: with so many settings of so long drafts their tables do not fit.",
                "",
            ]
        return []
    more = len(best.by_category) - _MOST_PARTS
    rest = [f"  {plural(more, 'smaller category', 'smaller categories')} not shown: --json"] if more > 0 else []
    return [*aligned(rows), *rest, ""]


def _by_position(total: Tally) -> list[str]:
    if not total.drafting_steps:
        return ["  No step drafted anything."]
    reached = [i for i, count in enumerate(total.accepted_per_position) if count]
    shown = min(len(total.accepted_per_position), (reached[-1] if reached else 0) + 2, _POSITIONS)
    survival = [share(count / total.drafting_steps) for count in total.accepted_per_position[:shown]]
    rows = [
        ("position", *(str(i + 1) for i in range(shown))),
        ("accepted of drafting steps", *survival),
        ("of those that got there", *map(share, total.conditional[:shown])),
    ]
    return aligned(rows)


def _next(best: SettingCounts, seen: Seen, *, grid: bool) -> list[str]:
    """Return what the figures bound, and what to do next."""
    length = best.total.length_per_step or 1.0
    bound = f"At most {percent(length - 1)} faster: {number(length)} tokens per step, if verifying drafts cost nothing."
    if length < _WORTH_A_LOOK and (some := different(seen)) < FEW_REQUESTS:
        which = "different request" if seen.repeated else "request"
        return [f"{bound} That is no verdict: {plural(some, which)} with steps; {FEW_REQUESTS} are needed."]
    if best.high is not None and best.high < _WORTH_A_LOOK:
        if grid:
            return [f"{bound} This drafter is not worth a reload on this traffic."]
        return [f"{bound} Not worth a reload with these settings; try --grid."]
    return [
        f"{bound} It does cost:",
        "`draftworth probe URL` measures what steps cost on your server as it runs, then `draftworth predict TRACE",
        "--costs FILE` says which setting is fastest and by how much, or that none pays.",
    ]
