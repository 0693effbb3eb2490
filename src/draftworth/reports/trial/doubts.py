"""What stands against taking the figures as they are: differences nobody declared, findings, what the logs say."""

from html import escape

from draftworth.findings import Finding
from draftworth.reports.page import html_table
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import fold, plain_table, section, short
from draftworth.reports.words import ended, plural, sentence
from draftworth.verdicts.base import OutputCheck

_SEVERITIES = ("breach", "warning", "info")
_OPEN = 12
"""Rows of a table that stand unfolded."""


def confounders_html(subject: Subject) -> str:
    """Return the differences between the arms beyond the declared one."""
    found = subject.record.confounders
    if not found:
        words = "None was found beyond the declared difference."
        return section("Differences beyond the declared one", f"<p>{words}</p>", key="confounders")
    rows = [(one.name, [short(one.baseline), short(one.variant), one.note or ""]) for one in found]
    table = plain_table("Confounders", ["baseline", "variant", "note"], rows)
    body = html_table(table, heading=False) if len(rows) <= _OPEN else fold(table, "trial.json")
    about = "Part of the difference may come from these. Those that speculation itself brings say so."
    return section("Differences beyond the declared one", f'<div class="words">{body}</div>', about, key="confounders")


def findings_html(subject: Subject) -> str:
    """Return findings and lines of the servers' logs, the gravest first, each once and with its advice."""
    items = [_item(one, messages) for one, messages in _grouped(subject)]
    seen: dict[tuple[str, str, str], list[str]] = {}
    for arm in subject.record.arms:
        for warning in arm.warnings:
            names = seen.setdefault((warning.code, warning.line, warning.advice), [])
            if arm.name not in names:
                names.append(arm.name)
    logged = [
        f'<li class="info"><b>Log of {escape(", ".join(names))}:</b>{escape(ended(line))} '
        f'<span class="advice">{escape(sentence(advice))}</span> <code>{escape(code)}</code></li>'
        for (code, line, advice), names in seen.items()
    ]
    counts = [
        plural(some, severity, "info" if severity == "info" else "")
        for severity in _SEVERITIES
        if (some := sum(one.severity == severity for one in subject.record.findings))
    ]
    counts += [plural(len(logged), "log line")] if logged else []
    if not items and not logged:
        return section("Warnings", "<p>None.</p>", key="warnings")
    body = f'<ul class="findings">{"".join([*items, *logged])}</ul>'
    return section(f"Warnings: {', '.join(counts)}", body, key="warnings")


def _grouped(subject: Subject) -> list[tuple[Finding, list[str]]]:
    """Return findings with the messages of each code, so that eight arms do not say one thing eight times."""
    found: dict[str, tuple[Finding, list[str]]] = {}
    for one in sorted(subject.record.findings, key=lambda one: _SEVERITIES.index(one.severity)):
        messages = found.setdefault(f"{one.code} {one.severity}", (one, []))[1]
        if one.message not in messages:
            messages.append(one.message)
    return list(found.values())


def _item(one: Finding, messages: list[str]) -> str:
    said = " ".join(escape(ended(message)) for message in messages)
    return (
        f'<li class="{one.severity}"><b>{one.severity.capitalize()}:</b>{said} '
        f'<span class="advice">{escape(sentence(one.advice))}</span> <code>{escape(one.code)}</code></li>'
    )


def output_text(check: OutputCheck) -> str:
    """Return what the output check found, in sentences."""
    text = f"Output check: {check.status}; {ended(check.reason)}"
    if check.compared_outputs:
        text += (
            f" Token for token the same: {check.identical_outputs} of {check.compared_outputs} (reported, not judged: "
            "near ties flip under any change of batch shape)."
        )
    return text
