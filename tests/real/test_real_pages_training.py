"""The page of a training in a real Chromium: while it runs and when it has ended, and that it looks for a newer one."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.browser import Browser
from tests.real.test_real_pages import CONTRAST, LOOK, SHOTS, SMALL, SMALLEST_TEXT, WIDTHS
from tests.reports.reports_trainings import finish, lines, recipe, subject_of, write_lines

from draftworth.reports.training.curves import drawn
from draftworth.reports.training.page import page_of
from draftworth.training.base import StageName


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def running(folder: Path, steps: int = 1234) -> str:
    """A long reason's worth of everything: findings, several loads' lengths that pay, a long name."""
    made = recipe(folder, plan={"acceptance": 1.87, "k": 3})
    finish(folder, StageName.DATA, StageName.STATES, StageName.VOCAB)
    some = lines(steps, 410, (1.42, 1.7, 1.91))
    some[40]["loss"] = float("nan")
    write_lines(folder, some, '{"kind": "st')
    now = "epoch 4/10, loss 2.1, walk 1.91"
    subject = subject_of(made, steps_left=4100 - steps, now=now, every_s=1)
    return page_of(subject, drawn(subject), curves_note="Curves as of 12:00:00 UTC.")


def failed(folder: Path) -> str:
    made = recipe(folder)
    finish(folder, StageName.DATA, StageName.STATES, StageName.VOCAB)
    write_lines(folder, lines(2, 410, ()))
    reason = f"fit_worker failed: torch.OutOfMemoryError (all it printed is in {'/a/very/long/path' * 9})"
    subject = subject_of(made, "failed", reason=reason)
    return page_of(subject, drawn(subject))


def ended(folder: Path) -> str:
    made = recipe(folder, epochs=60, ttt_steps=3, plan={"acceptance": 1.3, "k": 3})
    finish(folder, StageName.DATA, StageName.STATES, StageName.VOCAB)
    lengths = [1.2 + 0.02 * at - 0.0003 * at * at for at in range(48)]
    write_lines(folder, lines(48 * 30, 30, lengths))
    finish(folder, StageName.FIT, facts={"stopped_early": True, "best_epoch": 33, "acceptance_length": 1.53})
    finish(folder, StageName.EVAL, StageName.EXPORT)
    subject = subject_of(made, "done", StageName.EXPORT)
    return page_of(subject, drawn(subject))


PAGES = {"running": running, "failed": failed, "ended": ended}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_in_every_window(browser: Browser, tmp_path: Path, name: str) -> None:
    path = tmp_path / "progress.html"
    # Of one that looks for a newer one, what is looked at would be gone in the middle.
    path.write_text(PAGES[name](tmp_path / "run").replace('http-equiv="refresh"', 'name="refresh"'), "utf-8")
    tab = browser.open(path)
    for dark in (False, True):
        for width, height in WIDTHS:
            tab.look(width, height, dark=dark)
            if SHOTS:
                tab.screenshot(Path(SHOTS) / f"training-{name}-{width}{'-dark' * dark}.png")
            assert tab.evaluate(LOOK) == [], (width, dark)
        assert tab.evaluate(CONTRAST) == {}, "text is told from what is behind it, 4.5 to 1"
    assert tab.evaluate(SMALL) >= SMALLEST_TEXT, "letters of plots can be read on a phone"
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert tab.evaluate(LOOK) == [], "tables that are unfolded stay in the window"
    tab.look(1024, 700, media="print")
    assert tab.evaluate(LOOK) == []
    tab.look(1024, 700)
    tab.pdf(tmp_path / "page.pdf")
    printed = (tmp_path / "page.pdf").read_bytes()
    if SHOTS:
        (Path(SHOTS) / f"training-{name}.pdf").write_bytes(printed)
    assert 1 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page/") <= 6
    assert tab.said == []
    browser.close(tab)


def test_a_running_page_looks_for_a_newer_one_from_a_file(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "progress.html"
    path.write_text(running(tmp_path / "run", 120), "utf-8")
    tab = browser.open(path)
    assert "epoch 1 of 10" in tab.evaluate("document.querySelector('h1').textContent")
    beside = tmp_path / "beside"
    beside.write_text(running(tmp_path / "run"), "utf-8")
    beside.replace(path)
    until = time.monotonic() + 10
    while "epoch 4 of 10" not in (tab.evaluate("document.querySelector('h1')?.textContent") or ""):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert tab.said == [], "the page's own policy lets it"
    browser.close(tab)
