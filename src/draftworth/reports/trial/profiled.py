"""Where a step's time went, by class of kernel: the profiles that a trial made of its baseline and a variant."""

from collections.abc import Mapping, Sequence

from draftworth.profiles.base import MEANING, Compared, Difference, Profile
from draftworth.profiles.compare import compare, like_loads
from draftworth.reports.profile import rounded
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import bullets, panel, panels, plain_table, section
from draftworth.reports.words import NONE, number, several

_LIKE = 0.25
"""A profile stands for loads within this share of its own."""
_SEEN = 0.002
"""Classes below this share of the whole have no bar that could be seen; the table has them."""
_HOST = {"idle": "nothing ran and the host was not seen busy", "host": "nothing ran while the host ran or launched"}


def profiles_html(subject: Subject) -> str:
    """Return the section of the profiles; nothing where the trial made none."""
    base = subject.profiles.get(subject.baseline)
    if base is None:
        return ""
    shown = [
        panels([_panel(subject.baseline, name, compare(base, profile))])
        for name, profile in subject.profiles.items()
        if name != subject.baseline
    ]
    about = (
        "Of runs of their own under the engine's profiler, which slows the host: compare classes, not these times with "
        "others."
    )
    return section(
        "Where a step's time goes",
        "".join(shown) or panels([_alone(subject.baseline, base)]),
        " ".join([about, *_load(subject, base)]),
        key="profiles",
    )


def _load(subject: Subject, base: Profile) -> list[str]:
    """Return how many requests were in a profiled step, beside the trial's own loads."""
    if not base.steps or not base.request_steps:
        return []
    requests = base.request_steps / base.steps
    told = f"A profiled step of {subject.baseline} carries {number(requests)} requests"
    work = subject.record.config.get("workload")
    loads = work.get("concurrency") if isinstance(work, Mapping) and work.get("rate") is None else None
    some = [one for one in (loads if isinstance(loads, list | tuple) else [loads]) if isinstance(one, int)]
    if not some:
        return [f"{told}."]
    told = f"{told}; the trial was measured with {several(some)} at a time"
    like = [one for one in some if abs(requests / max(one, 1) - 1) <= _LIKE]
    if like == some:
        return [f"{told}."]
    where = "at the other loads" if like else "there"
    return [f"{told}, and {where} steps take other times and classes other shares."]


def _panel(base: str, arm: str, found: Compared) -> str:
    """Return an arm's profile beside the baseline's: of an output token, which decides, and of a step."""
    doubts = bullets(_doubts(found))
    if not found.per_step and not found.per_token:
        lines = [(name, [f"{one:.0%}", f"{other:.0%}", NONE]) for name, one, other in found.shares]
        table = plain_table("Table: shares of the span", [base, arm, "difference"], lines)
        return panel(f"{arm} beside {base}", _told_by(found), "", table, doubts)
    shown = []
    # Of unlike loads, a token of the one shares its step with more requests: that is no difference of the arms.
    if found.per_token and like_loads(found.base, found.variant):
        words = f"{_words('An output token', found.per_token, unit='ms of the server')} {_gives(found)}".strip()
        shown.append(_drawn((base, arm), "an output token", found.per_token, words, doubts))
    if found.per_step:
        words = f"{_words('One decode step', found.per_step)} {_told_by(found)}"
        shown.append(_drawn((base, arm), "a decode step", found.per_step, words, "" if shown else doubts))
    return "".join(shown)


def _drawn(arms: tuple[str, str], of: str, rows: Sequence[Difference], words: str, rest: str) -> str:
    """Return the milliseconds of one unit by class, as bars and as a table."""
    from draftworth.reports.trial import curves  # noqa: PLC0415 - lazy: altair takes a while

    base, arm = arms
    whole = max((ms for one in rows for ms in (one.base_ms, one.variant_ms) if ms is not None), default=0.0)
    bars = [
        {"class": one.name, "arm": name, "ms": ms}
        for one in rows
        if one.name != "total" and max(one.base_ms or 0.0, one.variant_ms or 0.0) >= _SEEN * whole
        for name, ms in ((base, one.base_ms), (arm, one.variant_ms))
        if ms is not None
    ]
    table = plain_table(
        f"Table: milliseconds {of}, by class",
        [base, arm, "difference"],
        ((_title(one), [_ms(one.base_ms), _ms(one.variant_ms), _difference(one, whole)]) for one in rows),
    )
    chart = curves.by_class(bars, [base, arm], f"ms {of}")
    svg = curves.finished(chart, f"Milliseconds {of} of {base} and {arm}, by class of kernel")
    return panel(f"{arm} beside {base}: {of}", words, svg, table, rest)


def _words(what: str, rows: Sequence[Difference], unit: str = "ms") -> str:
    """Return how long one unit takes in both, and by how much that differs, as a sentence."""
    total = next(one for one in rows if one.name == "total")
    told = f"{what} takes {_ms(total.variant_ms)} {unit} instead of {_ms(total.base_ms)}"
    if not total.base_ms or total.difference_ms is None:
        return f"{told}."
    share = 100 * total.difference_ms / total.base_ms
    if total.interval is None:
        return f"{told}: {share:+.0f}\N{NO-BREAK SPACE}%."
    low, high = (100 * end / total.base_ms for end in (total.interval.low_ms, total.interval.high_ms))
    return f"{told}: {share:+.0f}\N{NO-BREAK SPACE}% ({low:+.1f} to {high:+.1f} over the steps of these runs)."


def _gives(found: Compared) -> str:
    """Return how many tokens a step gives a request, where it is more than one."""
    told = [
        one.tokens / one.request_steps if one.tokens and one.request_steps else None
        for one in (found.base, found.variant)
    ]
    if told[0] is None or told[1] is None:
        return ""
    return f"A step gives a request {told[1]:.2f} tokens instead of {told[0]:.2f}."


def _told_by(found: Compared) -> str:
    return f"{found.base.told_by.rstrip('.')}."


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
