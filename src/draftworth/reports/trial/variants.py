"""Every variant beside the others, and a section for each, the best first."""

from collections.abc import Sequence
from html import escape
from typing import Any

from draftworth.explain.base import CAUSES
from draftworth.reports.page import Column, Row, Table, html_table
from draftworth.reports.trial.acceptance import acceptance_panels, changes_html
from draftworth.reports.trial.base import Subject, foremost, load_of
from draftworth.reports.trial.doubts import output_text
from draftworth.reports.trial.paired import MARGIN, how, margin_of, paired_panels
from draftworth.reports.trial.parts import beside, panel, panels, section
from draftworth.reports.trial.waterfall import CAUSE_WORDS, signed, waterfall_panels
from draftworth.reports.words import METRICS, NONE, interval, judged, sentence
from draftworth.verdicts.base import Interval, Verdict


def overview_html(subject: Subject) -> str:
    """Return all variants in one plot and one table; nothing for a single one."""
    names = subject.variants
    if len(names) < 2:  # noqa: PLR2004 - nothing to compare
        return ""
    metric = next((one.metric for one in subject.record.comparisons), "tpot")
    found = [(name, one) for name in names if (one := subject.comparison(name)) is not None and judged(one) is not None]
    drawn = ""
    if found:
        some = [(name, ratio, one.verdict) for name, one in found if (ratio := judged(one)) is not None]
        caption = "Each variant over the baseline, with its interval; the grey band is no difference."
        drawn = panel("Every variant", caption, forest_of(some, metric, margin_of(subject)))
    return section(
        "All variants, the best first",
        beside(drawn, html_table(_table(subject, metric), heading=False)),
        key="variants",
    )


def forest_of(some: Sequence[tuple[str, Interval, Verdict]], metric: str, margin: float = MARGIN) -> str:
    """Return ratios with their intervals as SVG, one a row.

    Args:
        some: name, ratio, and the verdict that gives the colour.
        metric: that is judged.
        margin: what is no difference.
    """
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: altair takes a while

    rows: list[dict[str, Any]] = []
    for name, ratio, verdict in some:
        known = ratio.low is not None and ratio.high is not None
        rows.append(
            {
                "name": name,
                "value": ratio.estimate,
                "low": ratio.low if known else None,
                "high": ratio.high if known else None,
                "how": how(verdict),
                "text": f"{ratio.estimate:.2f}",
            }
        )
    title = f"{METRICS[metric]} ratio"
    return draw.finished(draw.forest(rows, [], title, margin), f"{title} of each arm to its baseline")


def _table(subject: Subject, metric: str) -> Table:
    """Return every variant's verdict, ratio, and the parts of its difference."""
    accounts = {name: one for name in subject.variants if (one := foremost(subject.accounts(name))) is not None}
    told = {part.cause for one in accounts.values() for part in one.parts if part.ms.value or part.cause == "rest"}
    causes = [cause for cause in CAUSES if cause in told]
    columns = [Column("", "verdict"), Column("", f"{METRICS[metric]} ratio")]
    columns += [Column("ms per token over the baseline", CAUSE_WORDS[cause]) for cause in causes]
    rows = []
    for name in subject.variants:
        found, account = subject.comparison(name), accounts.get(name)
        parts = {part.cause: signed(part.ms.value) for part in account.parts} if account else {}
        first = (str(found.verdict), interval(judged(found))) if found is not None else ("not measured", NONE)
        if found is not None and subject.diagnostic(name):
            first = ("only measures", first[1])
        rows.append(Row(name, (*first, *(parts.get(cause, NONE) for cause in causes))))
    loads = {load_of(one) for one in accounts.values()}
    several = any(len(subject.accounts(name)) > 1 for name in accounts)
    note = f"Parts at the load where a variant differs most ({', '.join(sorted(loads))})." if several else ""
    return Table("Variants", tuple(columns), tuple(rows), note)


def variant_html(subject: Subject, name: str) -> str:
    """Return the section of a variant."""
    found = subject.comparison(name)
    accounts = subject.accounts(name)
    words = [subject.diagnostic(name)]
    if found is not None:
        words += [sentence(found.reason) if found.reason not in {"", subject.reason} else ""]
        if found.shift_ms is not None:
            words.append(f"Shift of TPOT (Hodges-Lehmann): {interval(found.shift_ms, ' ms')}.")
        if found.output_check is not None:
            words.append(output_text(found.output_check))
    drawn = [
        *waterfall_panels(subject, name),
        *acceptance_panels(subject, name),
        *paired_panels(subject, name),
    ]
    about = "".join(f"<p>{escape(one)}</p>" for one in words if one)
    title = f"{name}: {found.verdict}" if found is not None else f"{name}: not compared"
    changes = "" if subject.diagnostic(name) else changes_html(accounts)
    body = f'<div class="text">{about}</div>{panels(drawn)}{changes}'
    if found is None and not drawn:
        body = "<p>Nothing of this arm could be compared with the baseline.</p>" + body
    return section(title, body, key=f"arm-{name}")
