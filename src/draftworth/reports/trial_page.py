"""The page of a trial: one HTML file that needs nothing else, for people who decide by it.

Whatever a trial has left is shown, and what is missing is said. The same trial gives the same bytes.
"""

from html import escape
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.explain.base import Explained
from draftworth.reports.page import document
from draftworth.reports.plots import dark
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.conditions import arms_html, conditions_html, missing_html
from draftworth.reports.trial.costs import costs_html
from draftworth.reports.trial.doubts import confounders_html, findings_html
from draftworth.reports.trial.drift import drift_html
from draftworth.reports.trial.evencurves import even_curves_html
from draftworth.reports.trial.gather import gather
from draftworth.reports.trial.head import head_html, headline
from draftworth.reports.trial.loads import loads_html
from draftworth.reports.trial.parts import row
from draftworth.reports.trial.profiled import profiles_html
from draftworth.reports.trial.search import search_html
from draftworth.reports.trial.style import CSS
from draftworth.reports.trial.timeline import timeline_html
from draftworth.reports.trial.variants import overview_html, variants_html
from draftworth.trials.record import TrialRecord, write_text

HTML = "report.html"
_BESIDE = "Beside this page: trial.json has every figure, requests.parquet a row for each request."


def trial_page(folder: Path, record: TrialRecord, explained: Explained | None) -> str:
    """Return a trial's page.

    Args:
        folder: the trial's, with what it left of requests.parquet and journal.db; nothing is written there but
            profiles whose traces nobody has read.
        record: the trial.
        explained: where its milliseconds went; None: the page says that this is not known.
    """
    return page_of(gather(folder, record, explained))


def page_of(subject: Subject) -> str:
    """Return the page of a trial that was read."""
    record = subject.record
    body = [
        head_html(subject),
        "<main>",
        search_html(subject),
        overview_html(subject),
        variants_html(subject),
        row(loads_html(subject), costs_html(subject), even_curves_html(subject), drift_html(subject)),
        profiles_html(subject),
        confounders_html(subject),
        findings_html(subject),
        timeline_html(subject),
        arms_html(subject),
        conditions_html(subject),
        missing_html(subject),
        f"</main><footer>Draftworth {escape(record.draftworth)}, trial {escape(record.id)}. {_BESIDE}</footer>",
    ]
    text = "\n".join(part for part in body if part)
    return document(f"{headline(subject)} · trial {record.id}", text, CSS + (dark() if "<svg" in text else ""))


def write_page(path: Path, text: str) -> Path:
    """Write a page whole or not at all. Returns its path.

    Raises:
        UsageError: it cannot be written there.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file")
    try:
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path
