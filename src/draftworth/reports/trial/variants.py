"""Every variant beside the others, and a section for each, the best first."""

from collections.abc import Sequence
from html import escape
from typing import Any

from draftworth.explain.base import CAUSES, Account
from draftworth.reports.page import Column, Row, Table, html_table
from draftworth.reports.trial.acceptance import acceptance_panels, changes_html
from draftworth.reports.trial.accounts import load_of, told_account
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.doubts import output_text
from draftworth.reports.trial.head import best_account
from draftworth.reports.trial.paired import MARGIN, how, margin_of, paired_panels, unjudged_panels
from draftworth.reports.trial.parts import beside, panel, panels, section, stack
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
        # The colour is that of a verdict, and there is none about an arm that only measures.
        some = [
            (subject.lane(name), ratio, Verdict.INCONCLUSIVE if subject.diagnostic(name) else one.verdict)
            for name, one in found
            if (ratio := judged(one)) is not None
        ]
        caption = "Each variant over the baseline, with its interval; the grey band is no difference."
        caption += subject.lanes_note([name for name, _ in found])
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
    load, accounts = _at_one_load(subject)
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
        rows.append(Row(subject.label(name), (*first, *(parts.get(cause, NONE) for cause in causes))))
    several = any(len(subject.accounts(name)) > 1 for name in subject.variants)
    note = f"Parts at {load}, for every arm that was measured there; the ratio is over all loads." if several else ""
    return Table("Variants", tuple(columns), tuple(rows), note)


def _at_one_load(subject: Subject) -> tuple[str, dict[str, Account]]:
    """Return a load, and each variant's account there: parts of another load are not to be compared with them."""
    first = next((name for name in subject.variants if subject.accounts(name)), "")
    chosen = best_account(subject) or told_account(subject, first)
    if chosen is None:
        return "", {}
    load = load_of(chosen)
    found = {name: one for name in subject.variants for one in subject.accounts(name) if load_of(one) == load}
    return load, found


def variants_html(subject: Subject) -> str:
    """Return a section for each variant, the best first, and one for all arms that only measure."""
    only_measure = [name for name in subject.variants if subject.diagnostic(name)]
    if len(only_measure) == len(subject.variants):
        only_measure = []
    found = [_section(subject, name) for name in subject.variants if name not in only_measure]
    folded = "".join(_folded(subject, name) for name in only_measure)
    about = "What these arms cost tells the engine's mode and what acceptance pays; the verdict is never about them."
    return "\n".join([*found, section("What only measures", folded, about, key="diagnostics")])


def _section(subject: Subject, name: str) -> str:
    return section(_title(subject, name), _body(subject, name), key=f"arm-{name}")


def _folded(subject: Subject, name: str) -> str:
    title = escape(_title(subject, name))
    return f'<details class="arm" id="arm-{escape(name)}"><summary>{title}</summary>{_body(subject, name)}</details>'


def _title(subject: Subject, name: str) -> str:
    found = subject.comparison(name)
    if found is None:
        return f"{subject.label(name)}: not compared"
    ratio = judged(found)
    if subject.diagnostic(name):
        told = f"{METRICS[found.metric]} ratio {interval(ratio)}" if ratio is not None else "only measures"
        return f"{subject.label(name)}: {told}"
    return f"{subject.label(name)}: {found.verdict}"


def _body(subject: Subject, name: str) -> str:
    found = subject.comparison(name)
    accounts = subject.accounts(name)
    words = [subject.diagnostic(name)]
    if subject.given_up(name):
        words.append("It was given up before its end, so what it measured is not the whole of it.")
    if found is not None:
        words += ["" if found.reason in subject.reason else sentence(found.reason)]
        if found.shift_ms is not None:
            words.append(f"Shift of TPOT (Hodges-Lehmann): {interval(found.shift_ms, ' ms')}.")
        if found.output_check is not None:
            words.append(output_text(found.output_check))
        if found.sampled_check is not None:
            words.append(f"Sampled output: {found.sampled_check.status}; {sentence(found.sampled_check.reason)}")
    drawn = [
        *waterfall_panels(subject, name),
        *stack(acceptance_panels(subject, name)),
        *(paired_panels(subject, name) if found is not None else unjudged_panels(subject, name)),
    ]
    about = "".join(f"<p>{escape(one)}</p>" for one in words if one)
    changes = "" if subject.diagnostic(name) else changes_html(accounts)
    body = f'<div class="text">{about}</div>{panels(drawn)}{changes}'
    if found is None and not drawn:
        body = "<p>Nothing of this arm could be compared with the baseline.</p>" + body
    return body
