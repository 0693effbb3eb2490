"""The page of a training: one HTML file that needs nothing else; while the training runs it looks for a newer one."""

from datetime import UTC, datetime
from html import escape

import draftworth
from draftworth.reports.page import document, tiles
from draftworth.reports.training.base import Subject
from draftworth.reports.training.tables import epochs_html, settings_html, stages_html
from draftworth.reports.training.told import findings_of, headline, lede, tiles_of
from draftworth.reports.trial.parts import section
from draftworth.reports.trial.style import CSS
from draftworth.reports.words import plural

_MARKS = {"running": "flat", "done": "good", "interrupted": "open", "failed": "bad"}
_BESIDE = "Beside this page: progress.jsonl has every figure, fit_worker.log what the trainer printed."
_CSS = """
.stages :is(th, td):nth-child(2) { text-align: left; }
@media (max-width: 40rem) { .stages :is(th, td) { padding-left: .4rem; padding-right: .4rem; }
  .stages tbody th { white-space: nowrap; min-width: 0; }
  .stages tbody td:nth-child(3) { white-space: normal; }
  .stages tbody td:last-child { min-width: 9rem; } }
.state { font-weight: 600; color: var(--soft); margin: 0; }
.running .state::before { content: "● "; color: var(--good); }
"""


def page_of(subject: Subject, curves: str, *, curves_note: str = "") -> str:
    """Return the page of a training.

    Args:
        subject: what was read.
        curves: the section of the plots, of `curves.drawn`; empty where none was drawn yet.
        curves_note: what to say of how old they are.
    """
    standing, name = subject.standing, subject.recipe.target.name or str(subject.recipe.target)
    running = standing.status == "running"
    words = "".join(f'<p class="lede">{escape(one)}</p>' for one in lede(subject))
    note = f'<p class="note">{escape(curves_note)}</p>' if curves_note else ""
    body = [
        f'<header class="{_MARKS[standing.status]} {standing.status}"><p class="state">{escape(standing.status)}</p>',
        f"<h1>{escape(headline(subject))}</h1>",
        f'<p class="about">EAGLE-3 head for {escape(name)}. {escape(_written(subject))}</p>',
        words,
        f"{tiles(tiles_of(subject))}</header><main>",
        _findings(subject),
        stages_html(subject),
        curves,
        note,
        epochs_html(subject),
        settings_html(subject),
        f"</main><footer>Draftworth {escape(draftworth.__version__)}. {_BESIDE}</footer>",
    ]
    text = "\n".join(part for part in body if part)
    dark = ""
    if "<svg" in text:
        from draftworth.reports.charts import DARK  # noqa: PLC0415 - lazy: it was imported for the plots already

        dark = DARK
    page = document(f"{headline(subject)} · {name}", text, f"{CSS}{_CSS}{dark}")
    return _refreshing(page, standing.every_s) if running else page


def _refreshing(page: str, seconds: int) -> str:
    """Have a browser look for a newer page by itself; the policy that forbids loading anything allows that."""
    head = '<meta charset="utf-8">\n'
    return page.replace(head, f'{head}<meta http-equiv="refresh" content="{seconds}">\n', 1)


def _written(subject: Subject) -> str:
    standing = subject.standing
    at = datetime.fromtimestamp(standing.written, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if standing.status != "running":
        return f"Ended {at}." if standing.status == "done" else f"{standing.status.capitalize()} {at}."
    return (
        f"As of {at}; this page looks for newer figures every {plural(standing.every_s, 'second')}. Where that time "
        "stands still for minutes, the process is gone: the same command goes on."
    )


def _findings(subject: Subject) -> str:
    found = findings_of(subject)
    rows = "".join(f'<li class="{kind}"><b>{kind}</b>{escape(text)}</li>' for kind, text in found)
    return section("To look at", f'<ul class="findings">{rows}</ul>' if rows else "", key="findings")
