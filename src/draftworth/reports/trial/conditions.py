"""What was run: the arms with their commands, the workload, the machine; and what is not on the page."""

import shlex
from html import escape

from draftworth.reports.page import Column, Row, Table, facts, html_table
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import bullets, section
from draftworth.reports.words import cell, duration, ended, machine, moment, share, workload


def arms_html(subject: Subject) -> str:
    """Return the arms with what they measured, and how each was started."""
    arms = subject.record.arms
    if not arms:
        return section("Arms", "<p>No arm was measured.</p>", key="arms")
    columns = (
        Column("", "engine"),
        Column("", "starts"),
        Column("requests", "answered"),
        Column("requests", "failed"),
        Column("requests", "retried"),
        Column("", "tokens"),
        Column("ms", "TPOT"),
        Column("ms", "TTFT p50"),
        Column("", "prefix cached"),
    )
    rows = tuple(
        Row(
            subject.label(arm.name),
            (
                f"{arm.engine} {arm.version or '(version not known)'}{f', runner {arm.runner}' if arm.runner else ''}",
                str(len({one.start for one in arm.starts}) or "-"),
                f"{arm.requests:,}",
                f"{arm.failed:,}",
                f"{arm.retried:,}",
                "-" if arm.tokens is None else f"{arm.tokens:,}",
                cell(arm.tpot_ms),
                cell(arm.ttft_ms),
                share(arm.cache_share),
            ),
        )
        for arm in arms
    )
    commands = "".join(
        f"<dt>{escape(subject.label(arm.name))}</dt>"
        f"<dd><code>{escape(_how(arm.command, arm.declared.get('url')))}</code></dd>"
        for arm in arms
        if arm.command or arm.declared.get("url")
    )
    folded = f'<details><summary>Commands</summary><dl class="facts">{commands}</dl></details>' if commands else ""
    return section("Arms", f"{html_table(Table('Arms', columns, rows), heading=False)}{folded}", key="arms")


def _how(command: tuple[str, ...], url: object) -> str:
    return shlex.join(command) if command else str(url)


def conditions_html(subject: Subject) -> str:
    """Return the conditions of the trial."""
    record = subject.record
    work = record.config.get("workload") or {}
    ended_ = moment(record.finished) if record.finished else "not known"
    took = f", {duration(record.seconds)}" if record.seconds is not None else ""
    some = [
        ("Workload", workload(work) if work else ""),
        ("Machine", machine(record.machine)),
        ("Time", f"{moment(record.created)} to {ended_}{took}"),
        ("Looks at the evidence", f"{record.look} of {record.looks}" if record.looks > 1 else ""),
        ("Written by", f"Draftworth {record.draftworth}"),
    ]
    return section("Conditions", facts(some), key="conditions")


def missing_html(subject: Subject) -> str:
    """Return what is not on the page, and why."""
    if not subject.missing:
        return ""
    return section("What is not known", bullets(ended(one) for one in subject.missing), key="missing")
