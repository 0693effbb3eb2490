"""The pages in a real Chromium: nothing overlaps, nothing is cut, no plot is empty, nothing is said on the console."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
from tests.real.browser import Browser, Tab
from tests.reports.reports_records import HOSTILE
from tests.reports.reports_trials import around, explained, folder_of, record

from draftworth.explain.base import EvenCurve, EvenPoint, Explained
from draftworth.reports.compare import compared
from draftworth.reports.compare import page as compare_page
from draftworth.reports.trial_page import trial_page
from draftworth.trials.record import TrialRecord, read
from draftworth.verdicts.base import Verdict

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
SHOTS = os.environ.get("DRAFTWORTH_SHOTS")
"""A folder that screenshots are written to, for who wants to look."""
WIDTHS = ((1280, 800), (390, 844))
SMALLEST_TEXT = 8.5
"""Pixels of the smallest letters' font at the width of a phone."""

LOOK = """
(() => {
  const wrong = [], eps = 1.5;
  const box = one => one.getBoundingClientRect();
  const told = one => JSON.stringify(one.textContent.trim().slice(0, 40));
  const wide = document.documentElement.scrollWidth;
  if (wide > window.innerWidth) wrong.push(`scrolls sideways: ${wide} of ${window.innerWidth}`);
  for (const one of document.querySelectorAll('body *')) {
    if (one.closest('.scroll, svg, details:not([open])')) continue;
    const here = box(one);
    if (here.width && here.right > window.innerWidth + 1)
      wrong.push(`reaches out of the window: ${one.tagName} ${told(one)}`);
  }
  for (const svg of document.querySelectorAll('svg')) {
    const name = svg.getAttribute('aria-label') || '?', frame = box(svg);
    if (!frame.width) continue;
    if (name === '?') wrong.push('a plot without a label for who cannot see it');
    const marks = [...svg.querySelectorAll('.role-mark:not(.mark-text) > *')].map(box)
      .filter(r => r.width + r.height > 0.5);
    if (!marks.length) wrong.push(`empty plot: ${name}`);
    const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim() && getComputedStyle(t).opacity > 0)
      .filter(t => box(t).width);
    for (const t of texts) {
      const r = box(t);
      if (r.left < frame.left - eps || r.right > frame.right + eps
          || r.top < frame.top - eps || r.bottom > frame.bottom + eps)
        wrong.push(`cut label ${told(t)} in ${name}`);
    }
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const a = box(texts[i]), b = box(texts[j]);
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > eps && down > 0.25 * Math.min(a.height, b.height))
        wrong.push(`overlap of ${told(texts[i])} and ${told(texts[j])} in ${name}`);
    }
    for (const r of marks)
      if (r.left < frame.left - 4 || r.right > frame.right + 4) {
        wrong.push(`a mark leaves the plot: ${name}`);
        break;
      }
  }
  return wrong;
})()
"""

SMALL = """
(() => {
  const sizes = [...document.querySelectorAll('svg')].flatMap(svg => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return [...svg.querySelectorAll('text')].map(t => parseFloat(getComputedStyle(t).fontSize) * scale);
  }).filter(size => size > 0);
  return sizes.length ? Math.min(...sizes) : 99;
})()
"""

CONTRAST = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const ground = one => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length && (colour.length < 4 || colour[3] > .99)) return colour;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const found = {};
  const texts = 'svg text, p, h1, h2, h3, dd, dt, li, td, th, summary, code, figcaption, a';
  for (const one of document.querySelectorAll(texts)) {
    if (!one.textContent.trim() || !one.getBoundingClientRect().width) continue;
    const style = getComputedStyle(one);
    const colour = parse(one.tagName === 'text' ? style.fill : style.color);
    const value = ratio(colour, ground(one.tagName === 'text' ? one.closest('svg').parentElement : one));
    if (value < 4.5) found[`${one.tagName} ${colour}`] = value;
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes a page once, whoever asks for it."""

    @cache
    def make(name: str) -> str:
        return str(PAGES[name](tmp_path_factory.mktemp(name) / "trial"))

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def whole(folder: Path) -> str:
    return trial_page(folder_of(folder), record(), explained())


def not_restored(folder: Path) -> str:
    broken = record(
        ("ngram-5",), restored=False, restore="its port is held by another", restore_commands=("systemctl start llm",)
    )
    return trial_page(folder_of(folder, ("ngram-5",)), broken, explained(("ngram-5",)))


def failed(folder: Path) -> str:
    folder.mkdir(parents=True)
    lost = record(("ngram-5",)).model_copy(
        update={
            "verdict": Verdict.ERROR,
            "best": None,
            "comparison": None,
            "categories": (),
            "comparisons": (),
            "arms": (),
            "error": "the server ended while it started: torch.OutOfMemoryError",
            "error_tail": ("EngineCore failed to start. " * 9, "/a/very/long/path" * 20),
        }
    )
    return trial_page(folder, lost, None)


def hostile(folder: Path) -> str:
    bad = record(("ngram-5",), reason=HOSTILE * 3, id="20261202-101010", restore=HOSTILE)
    arms = tuple(one.model_copy(update={"engine": HOSTILE, "version": HOSTILE}) for one in bad.arms)
    found = bad.comparisons[0]
    groups = tuple(one.model_copy(update={"category": f"{HOSTILE}{at}"}) for at, one in enumerate(found.categories))
    found = found.model_copy(update={"categories": groups})
    bad = bad.model_copy(update={"arms": arms, "comparisons": (found,), "comparison": found})
    return trial_page(folder_of(folder, ("ngram-5",)), bad, explained(("ngram-5",)))


def stored(name: str) -> Any:
    def make(_: Path) -> str:
        from draftworth.explain.whole import explain_trial  # noqa: PLC0415 - numba takes a while

        return trial_page(DATA / name, read(DATA / name), explain_trial(DATA / name))

    return make


def profiled(folder: Path) -> str:
    """Profiles of a baseline and two arms, one of them of a few steps, and one that cannot be read."""
    from tests.profiles.profiles_traces import DATA as TRACES  # noqa: PLC0415 - of this page alone

    names = ("ngram-5", "eagle3", "ngram-2")
    kept = folder_of(folder, names) / "profiles"
    kept.mkdir()
    for arm, profile in (("baseline", "baseline-8"), ("ngram-5", "synthetic-8")):
        shutil.copy(DATA / "h200_profile" / f"read-{profile}.json", kept / f"profile-{arm}.json")
    for arm, text in (("eagle3", None), ("ngram-2", b"\x1f\x8b")):
        traces = kept / f"profile-{arm}"
        traces.mkdir()
        trace = traces / "rank0.1.pt.trace.json.gz"
        trace.write_bytes((TRACES / "vllm_h200_moe_null-draft.pt.trace.json.gz").read_bytes() if text is None else text)
        (kept / f"profile-{arm}.taken.json").write_text('{"tokens": 3}')
    page = trial_page(folder, record(names), explained(names))
    assert page.count('id="profiles"') == 1
    assert "profile-ngram-2: no profile" in page
    return page


def paying(folder: Path) -> str:
    """Arms of synthetic acceptance at several loads, with a break-even and without."""

    def point(length: float, times: float) -> EvenPoint:
        return EvenPoint(arm=f"synthetic-5-{length}", length=length, speed_up=around(times, 0.05))

    crossing = EvenCurve(
        concurrency=1, k=5, points=(point(1.5, 0.9), point(4.1, 1.6)), length=1.87, low=1.6, high=2.2, text="It pays."
    )
    open_ = crossing.model_copy(update={"concurrency": 4, "high": None})
    alone = EvenCurve(concurrency=64, k=1, points=(point(1.93, 0.4),), length=None, text="It does not pay. " * 6)
    account = explained().model_copy(update={"even_curves": (crossing, open_, alone)})
    return trial_page(folder_of(folder), record(), account)


def long_names(folder: Path) -> str:
    """Arms named as a search names them: alike but for their ends."""
    names = ("draft_model-k3-SmolLM2-135M-Instruct", "draft_model-k3-cut", "medusa-k3")
    arms = dict(zip(("ngram-5", "eagle3", "ngram-2"), names, strict=True))
    text = folder_of(folder), record().model_dump_json(), explained().model_dump_json()
    told, account = (reduce(lambda one, arm: one.replace(*arm), arms.items(), each) for each in text[1:])
    return trial_page(text[0], TrialRecord.model_validate_json(told), Explained.model_validate_json(account))


def several(_: Path) -> str:
    names = ("demo_trial", "h200_moe_trial", "prediction/h200-smollm2-a/all-1", "prediction/h200-smollm2-a/all-8")
    trials = [(read(DATA / name), None) for name in names]
    return compare_page(compared([*trials, (record(), explained())]), "0.2.0")


PAGES = {
    "whole": whole,
    "not-restored": not_restored,
    "failed": failed,
    "hostile": hostile,
    "demo": stored("demo_trial"),
    "moe": stored("h200_moe_trial"),
    "eight-arms": stored("prediction/h200-smollm2-a/all-8"),
    "thirteen-categories": stored("prediction/cpu-smollm2-a/all-4"),
    "several": several,
    "profiled": profiled,
    "paying": paying,
    "long-names": long_names,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_in_every_window(
    browser: Browser, made: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    tab = opened(browser, tmp_path, made(name))
    for dark in (False, True):
        for width, height in WIDTHS:
            tab.look(width, height, dark=dark)
            if SHOTS:
                tab.screenshot(Path(SHOTS) / f"{name}-{width}{'-dark' * dark}.png")
            assert tab.evaluate(LOOK) == [], (width, dark)
        assert tab.evaluate(CONTRAST) == {}, "text is told from what is behind it, 4.5 to 1"
    assert tab.evaluate(SMALL) >= SMALLEST_TEXT, "letters of plots can be read on a phone"
    assert tab.said == []
    browser.close(tab)


def test_tables_that_are_unfolded_stay_in_the_window(
    browser: Browser, made: Callable[[str], str], tmp_path: Path
) -> None:
    tab = opened(browser, tmp_path, made("whole"))
    tab.look(390, 844)
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert tab.evaluate(LOOK) == []
    browser.close(tab)


@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("name", ["whole", "not-restored", "failed", "eight-arms"])
def test_verdict_cause_and_next_step_are_on_the_first_screen(
    browser: Browser, made: Callable[[str], str], tmp_path: Path, name: str, size: tuple[int, int]
) -> None:
    tab = opened(browser, tmp_path, made(name))
    tab.look(*size)
    ends = "[...document.querySelectorAll('h1, .lede, .answer dd')].map(one => one.getBoundingClientRect().bottom)"
    found = tab.evaluate(ends)
    assert len(found) == 4
    assert max(found) <= size[1]
    browser.close(tab)


def test_it_prints_on_landscape_pages_without_scroll_bars_or_folds(
    browser: Browser, made: Callable[[str], str], tmp_path: Path
) -> None:
    tab = opened(browser, tmp_path, made("whole"))
    tab.look(1024, 700, media="print")
    assert tab.evaluate(LOOK) == []
    assert tab.evaluate("getComputedStyle(document.querySelector('details')).display") == "none"
    tab.look(1024, 700)
    tab.pdf(tmp_path / "report.pdf")
    printed = (tmp_path / "report.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert 1 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page/") <= 12
    browser.close(tab)


def test_dark_and_light_differ_and_plots_follow(browser: Browser, made: Callable[[str], str], tmp_path: Path) -> None:
    tab = opened(browser, tmp_path, made("whole"))
    ask = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
    light = tab.evaluate(ask)
    tab.look(1280, 800, dark=True)
    dark = tab.evaluate(ask)
    assert light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))
    browser.close(tab)


def opened(browser: Browser, folder: Path, text: str) -> Tab:
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return browser.open(path)


@dataclass
class Flaw:
    """Something the checks must find."""

    body: str
    says: str


FLAWS = {
    "overlap": Flaw('<text x="10" y="20">one label</text><text x="14" y="21">other</text>', "overlap"),
    "cut": Flaw('<text x="180" y="20">a label beyond the edge</text>', "cut label"),
    "empty": Flaw('<text x="10" y="20">nothing</text>', "empty plot"),
    "wide": Flaw("</svg><div style='width:500px'>wide</div><svg>", "scrolls sideways"),
}


@pytest.mark.parametrize("name", FLAWS)
def test_the_checks_find_what_is_wrong(browser: Browser, tmp_path: Path, name: str) -> None:
    flaw = FLAWS[name]
    text = f'<!doctype html><svg aria-label="plot" viewBox="0 0 200 50" width="200" height="50">{flaw.body}</svg>'
    tab = opened(browser, tmp_path, text)
    tab.look(390, 844)
    assert any(flaw.says in one for one in tab.evaluate(LOOK))
    browser.close(tab)


def test_what_a_page_says_and_asks_for_is_heard(browser: Browser, tmp_path: Path) -> None:
    text = (
        '<!doctype html><script>console.error("no"); undefined_function()</script><img src="http://127.0.0.1:9/x.png">'
    )
    tab = opened(browser, tmp_path, text)
    tab.evaluate("1")
    assert any(one.startswith("error") for one in tab.said)
    assert any(one.startswith("exception") for one in tab.said)
    assert any("127.0.0.1:9" in one for one in tab.said)
    browser.close(tab)
