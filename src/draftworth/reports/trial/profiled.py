"""Where a step's time went, by class of kernel: the profiles that a trial made of its baseline and a variant."""

from draftworth.profiles.base import MEANING, Compared, Difference, Profile
from draftworth.profiles.compare import compare
from draftworth.reports.profile import rounded
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import bullets, panel, panels, plain_table, section
from draftworth.reports.words import NONE, number

_HOST = {"idle": "nothing ran and the host was not seen busy", "host": "nothing ran while the host ran or launched"}


def profiles_html(subject: Subject) -> str:
    """Return the section of the profiles; nothing where the trial made none."""
    base = subject.profiles.get(subject.baseline)
    if base is None:
        return ""
    shown = [
        _panel(subject.baseline, name, compare(base, profile))
        for name, profile in subject.profiles.items()
        if name != subject.baseline
    ]
    return section(
        "Where a step's time goes",
        panels(shown or [_alone(subject.baseline, base)]),
        "Of runs of their own under the engine's profiler, which slows the host: compare classes, not these times with "
        "others.",
        key="profiles",
    )


def _panel(base: str, arm: str, found: Compared) -> str:
    rows = found.per_step or ()
    per = "a decode step" if rows else "of the span"
    if not rows:
        lines = [(name, [f"{one:.0%}", f"{other:.0%}", NONE]) for name, one, other in found.shares]
        table = plain_table("Table: shares of the span", [base, arm, "difference"], lines)
        return panel(f"{arm} beside {base}", _words(found), "", table, bullets(_doubts(found)))
    from draftworth.reports.trial import curves  # noqa: PLC0415 - lazy: altair takes a while

    drawn = [
        {"class": one.name, "arm": name, "ms": ms}
        for one in rows
        if one.name != "total"
        for name, ms in ((base, one.base_ms), (arm, one.variant_ms))
        if ms is not None
    ]
    chart = curves.by_class(drawn, [base, arm], f"ms {per}")
    whole = max((ms for one in rows for ms in (one.base_ms, one.variant_ms) if ms is not None), default=0.0)
    table = plain_table(
        "Table: milliseconds a decode step, by class",
        [base, arm, "difference"],
        ((_title(one), [_ms(one.base_ms), _ms(one.variant_ms), _difference(one, whole)]) for one in rows),
    )
    svg = curves.finished(chart, f"Milliseconds a decode step of {base} and {arm}, by class of kernel")
    return panel(f"{arm} beside {base}", _words(found), svg, table, bullets(_doubts(found)))


def _words(found: Compared) -> str:
    total = next((one for one in found.per_step if one.name == "total"), None)
    told = f"One decode step takes {_ms(total.variant_ms)} ms instead of {_ms(total.base_ms)}. " if total else ""
    return f"{told}{found.base.told_by.rstrip('.')}."


def _alone(name: str, profile: Profile) -> str:
    steps = profile.steps or 0
    lines = [(one.name, [_ms(one.ms / steps) if steps else NONE, f"{one.share:.0%}"]) for one in profile.classes]
    table = plain_table("Table: by class", ["ms a decode step", "share"], lines)
    return panel(name, profile.told_by, "", table, bullets(profile.notes))


def _title(one: Difference) -> str:
    meaning: dict[str, str] = {str(name): text for name, text in MEANING.items()} | _HOST
    return f"{one.name}: {meaning[one.name]}" if one.name in meaning else one.name


def _doubts(found: Compared) -> tuple[str, ...]:
    return (*found.base.warnings, *found.variant.warnings, *found.notes)


def _difference(one: Difference, whole: float) -> str:
    """Return a difference with its interval over steps; where these are too few, rounded by the whole step."""
    ms = one.difference_ms
    if ms is None:
        return NONE
    if one.interval is None:
        return rounded(ms, whole, sign=True)
    return f"{ms:+.3f} ({one.interval.low_ms:+.3f} to {one.interval.high_ms:+.3f})"


def _ms(value: float | None) -> str:
    return NONE if value is None else number(value)
