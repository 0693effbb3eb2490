"""A trial's page on the break-even curve that arms of synthetic acceptance measured."""

import re
from pathlib import Path

import pytest
from tests.reports.reports_trials import explained, folder_of, record

from draftworth.explain.base import EvenCurve, EvenPoint
from draftworth.predict.base import Range
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.evencurves import even_curves_html
from draftworth.reports.trial_page import trial_page


def point(arm: str, length: float, times: float) -> EvenPoint:
    return EvenPoint(arm=arm, length=length, speed_up=Range(value=times, low=times - 0.04, high=times + 0.04))


CROSSES = EvenCurve(
    concurrency=4,
    k=5,
    points=(point("synthetic-5-1.5", 1.5, 0.9), point("synthetic-5-2.5", 2.5, 1.1)),
    length=2.0,
    low=1.8,
    high=None,
    text="With k = 5 at 4 at a time a drafting step pays from 2.00 tokens on, as measured.",
)
ALONE = EvenCurve(concurrency=8, k=1, points=(point("synthetic-1", 1.5, 0.45),), length=None, text="It does not pay.")


def shown(*curves: EvenCurve) -> str:
    account = explained().model_copy(update={"even_curves": curves})
    return even_curves_html(Subject(record(), account))


def test_each_load_and_k_is_a_plot_with_its_figures_and_the_answer() -> None:
    html = shown(CROSSES, ALONE)
    assert html.count("<svg") == 2
    assert CROSSES.text in html
    assert ALONE.text in html
    assert "<h3>4 at a time, k = 5</h3>" in html
    assert "<td>2.50</td><td>1.100</td><td>1.06 to 1.14</td>" in html.replace("<td class=g>", "<td>")
    assert html.count("Dashed: ") == 1, "only where it crosses"
    assert 'aria-label="Times as fast as the baseline by tokens per drafting step, 4 at a time, k = 5"' in html


def test_one_length_is_drawn_at_its_place_on_an_axis_from_one_on() -> None:
    html = shown(ALONE)
    assert html.count("<svg") == 1
    assert ">1.5<" in html


def test_where_the_crossing_lies_is_shaded_to_the_end_where_its_end_is_not_known() -> None:
    """The axis goes from 1 to 2.62, 318 pixels; the interval begins at 1.8."""
    ((left, right),) = re.findall(r'd="M([\d.]+),0h([\d.]+)v190[^"]*" fill="#5c656f"', shown(CROSSES))
    assert float(left) == pytest.approx(318 * 0.8 / 1.62, abs=1)
    assert float(left) + float(right) == pytest.approx(318, abs=1)


def test_it_is_on_the_page_and_nothing_stands_there_without_such_arms(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "trial")
    account = explained()
    assert 'id="acceptance-pays"' not in trial_page(folder, record(), account)
    assert even_curves_html(Subject(record(), None)) == ""
    assert 'id="acceptance-pays"' in trial_page(
        folder, record(), account.model_copy(update={"even_curves": (CROSSES,)})
    )
