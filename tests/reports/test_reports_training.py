"""The page of a training: the right figures, what it says of bad input, and how it is kept while a command works."""

import json
import math
import re
import time
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.reports.reports_records import HOSTILE
from tests.reports.reports_trainings import END_S, STEP_S, finish, lines, recipe, subject_of, write_lines
from tests.training.training_making import Said

from draftworth.errors import TrialError
from draftworth.reports.training import live
from draftworth.reports.training.base import PAGE, Subject
from draftworth.reports.training.curves import drawn
from draftworth.reports.training.figures import Step, Tail, binned, time_left
from draftworth.reports.training.live import LivePage
from draftworth.reports.training.page import page_of
from draftworth.training.base import StageName

BEFORE = (StageName.DATA, StageName.STATES, StageName.VOCAB)
PAYS = {"acceptance": 1.87, "k": 3}


class Tags(HTMLParser):
    """Fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def plain(text: str) -> str:
    shown = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", shown)))


def running(folder: Path, **more: Any) -> Subject:
    """In its third epoch of ten, of 50 steps each, with the longest walk after the first."""
    made = recipe(folder, plan=PAYS)
    finish(folder, *BEFORE)
    write_lines(folder, lines(120, 50, (2.05, 1.72)))
    return subject_of(made, steps_left=380, now="epoch 3/10, loss 3.4", **more)


def test_a_running_training_has_the_right_figures(tmp_path: Path) -> None:
    subject = running(tmp_path / "run")
    page = page_of(subject, drawn(subject))
    Tags(page)
    said = plain(page)
    assert "Training: epoch 3 of 10, step 120 of about 500" in said
    # 380 steps of 2 s, and the ends of eight epochs of 30 s each: the third's and those of seven behind it.
    left = 380 * STEP_S + 8 * END_S
    assert left == 1000
    assert (
        "About 16 min 40 s left, if all 10 epochs are trained at the pace of the last 117 steps (2.00 s each)" in said
    )
    assert "with 30.0 s at each epoch's end" in said
    assert "It ends earlier where 3 epochs in a row bring no longer walk." in said
    assert "Longest walk on held-out conversations: 2.05 tokens per drafting step at k = 3, epoch 1" in said
    assert "more than what pays (1.87)" in said
    assert "24 %" in said, "of 500 steps"
    assert "9,000 samples to train on with 4,500,000 learned tokens, 1,000 held out" in said
    assert "32,000 of 49,152 tokens, 99.3 % of the learned" in said
    assert re.search(r"states done 12 min 34 s", said)
    assert re.search(r"fit now 5 min 00 s", said), "120 steps of 2 s and two ends of 30 s"
    assert re.search(r"eval to come", said)
    assert re.search(r"1 \(best\) 50 2\.05 880", said)
    assert page.count("<svg") == 5
    assert "Best: 2.05 at epoch 1; last: 1.72. Pays from 1.87." in unescape(page)


def test_it_loads_nothing_and_looks_for_a_newer_one_only_while_it_runs(tmp_path: Path) -> None:
    subject = running(tmp_path / "run")
    page = page_of(subject, drawn(subject))
    assert not re.search(r"(?:\bsrc=|href=|url\((?!#)|@import|https?:|<script|<link)", page)
    assert page.count("http-equiv") == 2
    assert '<meta http-equiv="refresh" content="10">' in page
    for status in ("done", "interrupted", "failed"):
        over = page_of(subject_of(subject.recipe, status, steps_left=380), "")
        assert "refresh" not in over.replace("looks for newer", "")


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("interrupted", "", "The training was interrupted in epoch 3 of 10, step 120"),
        ("failed", f"out of memory {HOSTILE}", "The training failed in epoch 3 of 10, step 120"),
    ],
)
def test_how_it_ended(tmp_path: Path, status: Any, reason: str, words: str) -> None:
    subject = running(tmp_path / "run")
    page = page_of(subject_of(subject.recipe, status, reason=reason), "")
    Tags(page)
    assert words in plain(page)
    assert "at most five minutes are lost" in plain(page)
    assert re.search(rf"fit {status}", plain(page))
    assert HOSTILE not in page
    if reason:
        assert "Out of memory" in plain(page)


def test_ended_early_by_patience_and_the_stage_behind_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = recipe(folder, epochs=10, patience=3)
    finish(folder, *BEFORE)
    write_lines(folder, lines(250, 50, (1.5, 1.9, 1.8, 1.85, 1.7)))
    finish(folder, StageName.FIT, facts={"stopped_early": True})
    said = plain(page_of(subject_of(made, "running", StageName.EVAL, now="walking"), ""))
    assert "Trained: ended early after 5 of 10 epochs; the stage eval runs" in said
    assert "No walk was longer in the 3 epochs since epoch 2 (fit.patience = 3); the best is kept." in said
    assert "What it must reach to pay is not known" in said
    finish(folder, StageName.EVAL, StageName.EXPORT)
    over = plain(page_of(subject_of(made, "done", StageName.EXPORT), ""))
    assert "Trained: ended early after 5 of 10 epochs EAGLE-3 head for SmolLM2-135M-Instruct. Ended 20" in over
    assert "5 epochs, 250 steps on cuda; best: epoch 2, 1.90 tokens per drafting step" in over
    assert "1.61 at k = 1, 2.13 at k = 3, - at k = 5" in over


def test_results_of_another_head_are_still_to_come(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = recipe(folder)
    finish(folder, *BEFORE)
    write_lines(folder, lines(50, 50, (1.5,)))
    finish(folder, StageName.FIT, StageName.EVAL, StageName.EXPORT)
    path = folder / "fit" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "key": "sha256:another"}), "utf-8")
    said = plain(page_of(subject_of(made, "running", StageName.EVAL), ""))
    assert re.search(r"eval now", said)
    assert re.search(r"export to come", said)


def test_a_loss_that_is_no_number_is_told_and_left_out_of_the_plots(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    some = lines(60, 50, (1.5,))
    for one in some[-4:]:
        one["loss"] = math.nan
    write_lines(folder, some)
    subject = subject_of(recipe(folder))
    page = page_of(subject, drawn(subject))
    assert "The loss was no number (4 lines of 60, first at step 56)." in plain(page)
    assert "lower fit.lr" in plain(page)
    assert "NaN" not in page
    assert page.count("<svg") == 5
    some[10]["loss"], some[-4:] = math.inf, lines(60, 50, (1.5,))[-4:]
    write_lines(folder, some)
    assert "It went on with finite losses" in plain(page_of(subject_of(recipe(folder)), ""))


def test_all_losses_no_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_lines(folder, [{**one, "loss": math.nan, "accuracy": [math.nan] * 3} for one in lines(5, 50, ())])
    subject = subject_of(recipe(folder))
    page = page_of(subject, drawn(subject))
    Tags(page)
    assert "5 lines of 5" in plain(page)


@pytest.mark.parametrize("text", [None, "", '{"kind": "step", "st'])
def test_before_the_first_step(tmp_path: Path, text: str | None) -> None:
    folder = tmp_path / "run"
    finish(folder, *BEFORE)
    if text is not None:
        write_lines(folder, [], text)
    subject = subject_of(recipe(folder), now="laying out the rows")
    assert drawn(subject) == ""
    page = page_of(subject, "")
    Tags(page)
    assert "The training is being prepared" in plain(page)
    assert "Now: laying out the rows." in plain(page)
    assert "How long it takes is told once some steps are done." in plain(page)


def test_nothing_could_be_walked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_lines(folder, lines(50, 50, (None,)))
    subject = subject_of(recipe(folder, plan=PAYS))
    page = plain(page_of(subject, drawn(subject)))
    assert "No held-out conversation was long enough to be walked. To pay, the head must reach 1.87." in page


def test_a_length_for_another_k_is_no_line_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_lines(folder, lines(50, 50, (1.5,)))
    subject = subject_of(recipe(folder, plan={"acceptance": 2.0, "k": 5}))
    assert subject.needs.lengths == ()
    said = plain(page_of(subject, drawn(subject)))
    assert "not known: known at k = 5 only, and the walk is at k = 3 (fit.ttt_steps)" in said
    assert "Dashed" not in said


# --- the progress file


def test_the_file_is_read_as_it_grows_and_anew_where_it_was_cut(tmp_path: Path) -> None:
    every = lines(4, 2, (1.5, 1.6))
    path = write_lines(tmp_path, every[:3])
    tail = Tail(path)
    tail.read()
    assert ([one.step for one in tail.steps], len(tail.epochs)) == ([0, 1], 1)
    text = json.dumps(every[3]) + "\n"
    with path.open("a") as file:
        file.write(text[:20])
        file.flush()
        tail.read()
        assert len(tail.steps) == 2, "a line without its end is left for the next time"
        file.write(text[20:] + "no line\n" + '{"kind": "step", "step": 9}\n{"kind": "later"}\n')
    tail.read()
    assert [one.step for one in tail.steps] == [0, 1, 2]
    assert tail.unread == 2, "lines of a kind of a later version are none of these"
    beside = path.with_name("new")  # as `ProgressFile.resume` does
    beside.write_text(json.dumps(every[0]) + "\n")
    beside.replace(path)
    tail.read()
    assert ([one.step for one in tail.steps], tail.epochs, tail.unread) == ([0], [], 0)
    path.unlink()
    tail.read()
    assert tail.steps == []


def test_many_lines_become_few_points_with_their_means() -> None:
    values = [(step, float(step)) for step in range(1000)]
    values[500] = (500, math.nan)
    bins = binned(values, most=10)
    assert len(bins) == 10
    assert sum(one.count for one in bins) == 999
    assert (bins[0].first, bins[0].last, bins[0].mean) == (0, 99, 49.5)
    assert bins[0].low == pytest.approx(9.9)  # of 0 … 99, in straight lines
    assert bins[0].high == pytest.approx(89.1)
    assert binned([(0, None), (1, math.inf)]) == []


def test_the_time_left_is_of_this_process_alone() -> None:
    def step(number: int, epoch: int, at: float) -> Step:
        return Step(number, epoch, 1.0, (), None, None, at)

    before = [step(at, 0, 100.0 + 50 * at) for at in range(10)]  # on a slow machine
    own = [step(10 * at, 1, 1000.0 + 5 * at) for at in range(1, 5)]  # each tenth is written: half a second a step
    found = time_left([*before, *own], 900.0, 100, epochs=3)
    assert found is not None
    assert found.seconds == pytest.approx(50)
    assert (found.steps, found.each_s) == (30, 0.5)
    assert found.end_s is None
    after = [*own, step(50, 2, 1040.0), step(60, 2, 1045.0)]
    found = time_left([*before, *after], 900.0, 80, epochs=3)
    assert found is not None
    assert found.end_s == pytest.approx(15)  # 20 s between them, 5 of which are the steps'
    assert found.seconds == pytest.approx(80 * 0.5 + 15)
    assert time_left(before, 900.0, 100, 3) is None


# --- while a command works


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAFTWORTH_PAGE", raising=False)


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def works(folder: Path, error: BaseException | None = None) -> tuple[Said, str]:
    """Train with a fake that writes lines; return what was told and the last page."""
    made, said = recipe(folder, epochs=2), Said()
    finish(folder, *BEFORE)
    names = [StageName.FIT, StageName.EVAL]
    try:
        with LivePage(made, names, said, every_s=0.02) as page:
            page.step("fit: training of the head (it has not run yet)")
            assert not page.path.exists(), "the folder is not the training's own yet"
            StageName.FIT.folder(folder).mkdir(exist_ok=True)
            page.now("training")
            write_lines(folder, lines(20, 20, (1.5,)))
            page.count(20, 40, "epoch 1 of 2, loss 4.000")
            until = time.monotonic() + 10
            while not (page.path.exists() and "step 20 of about 40" in page.path.read_text("utf-8")):
                assert time.monotonic() < until
                time.sleep(0.01)
            assert 'http-equiv="refresh"' in page.path.read_text("utf-8")
            _raise(error)
            finish(folder, StageName.FIT)
            page.step("eval: walk acceptance")
            finish(folder, StageName.EVAL)
    except BaseException as raised:
        if raised is not error:
            raise
    return said, (folder / "fit" / PAGE).read_text("utf-8")


def test_the_page_is_kept_while_it_works_and_ends_without_looking_for_a_newer_one(tmp_path: Path) -> None:
    said, page = works(tmp_path / "run")
    assert said.lines == [f"page: {tmp_path / 'run' / 'fit' / PAGE}"]
    assert said.steps == ["fit: training of the head (it has not run yet)", "eval: walk acceptance"]
    assert "Trained: 1 epoch" in plain(page)
    assert 'http-equiv="refresh"' not in page
    assert page.count("<svg") == 5
    assert [one.name for one in (tmp_path / "run" / "fit").iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "The training was interrupted in epoch 1 of 2, step 20"),
        (TrialError("fit_worker failed: no memory (see its log)"), "Fit_worker failed: no memory (see its log)."),
        (ValueError("a bug"), "ValueError: a bug"),
    ],
)
def test_the_last_page_says_how_it_ended(tmp_path: Path, error: BaseException, words: str) -> None:
    _, page = works(tmp_path / "run", error)
    assert words in plain(page)
    assert 'http-equiv="refresh"' not in page


def test_a_page_that_cannot_be_written_ends_nothing_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(live, "page_of", full)
    made, said = recipe(tmp_path / "run"), Said()
    StageName.FIT.folder(made.folder).mkdir(parents=True)
    with LivePage(made, [StageName.FIT], said, every_s=0.01) as page:
        page.step("fit")
        page.now("training")
        time.sleep(0.1)
    assert len([line for line in said.lines if "No space left" in line]) == 1


def test_it_can_be_switched_off_and_other_stages_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, said = recipe(tmp_path / "run"), Said()
    with LivePage(made, [StageName.DATA, StageName.STATES], said) as page:
        page.step("data")
        page.now("reading")
        page.skip()
    monkeypatch.setenv("DRAFTWORTH_PAGE", "off")
    StageName.FIT.folder(made.folder).mkdir(parents=True)
    with LivePage(made, [StageName.FIT], said) as page:
        page.step("fit")
        page.now("training")
    assert said.lines == []
    assert list(made.folder.rglob("*.html")) == []


def test_plots_are_drawn_as_rarely_as_they_cost_little(tmp_path: Path) -> None:
    write_lines(tmp_path, lines(20, 20, (1.5,)))
    page = LivePage(recipe(tmp_path), [StageName.FIT], Said())
    page._tail.read()
    assert not page._may_draw(), "not in the first seconds"
    page._clock -= 125
    assert page._may_draw()
    page._curves, page._plots_cost, page._plots_spent = "drawn", 0.4, 0.4
    assert not page._may_draw()
    page._clock -= 0.8 / 0.005
    assert page._may_draw()
