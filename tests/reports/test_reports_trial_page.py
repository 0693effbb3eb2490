"""The page of a trial: what it says first, in which order, and what it does with what is missing or hostile."""

import re
import time
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.reports.reports_records import HOSTILE
from tests.reports.reports_trials import comparison, explained, folder_of, journal, record, rows

from draftworth.bench.rows import NAME as ROWS
from draftworth.bench.rows import write_part, write_rows
from draftworth.errors import UsageError
from draftworth.explain.base import Change, Explained
from draftworth.explain.kept import load
from draftworth.findings import Code, find
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.gather import gather
from draftworth.reports.trial.head import headline
from draftworth.reports.trial.next import next_step
from draftworth.reports.trial_page import trial_page, write_page
from draftworth.trials.record import TrialRecord, read
from draftworth.verdicts.base import Verdict

OLD = Path(__file__).parent / "data" / "demo_trial"


class Page(HTMLParser):
    """What a reader gets: headings in order, texts, attributes; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[tuple[int, str]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        found = dict(attrs)
        self.ids += [str(found["id"])] if "id" in found else []
        self.links += [str(found["href"])] if "href" in found else []
        if tag != "meta":
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            level, text = self.headings[-1]
            self.headings[-1] = level, text + data


@cache
def whole() -> str:
    with TemporaryDirectory() as folder:
        return trial_page(folder_of(Path(folder)), record(), explained())


def subject_of(found: TrialRecord, account: Explained | None = None) -> Subject:
    return Subject(found, account)


def plain(text: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", text))


# --- the first screen


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (record(), "eagle3 is faster: 25 % less time per token, over all 3 loads"),
        (record(("ngram-5",)), "ngram-5 is slower: 40 % more time per token, over all 3 loads"),
        (
            record(("ngram-5", "ngram-2")),
            "None of 2 variants is faster; the best, ngram-2, makes no difference to time per token",
        ),
        (
            record(("ngram-5",)).model_copy(update={"verdict": Verdict.ERROR, "comparison": None, "comparisons": ()}),
            "The trial could not be measured",
        ),
    ],
)
def test_the_verdict_is_a_sentence(found: TrialRecord, says: str) -> None:
    assert headline(subject_of(found)) == says


def test_an_open_verdict_says_so_before_any_figure() -> None:
    open_ = comparison("ngram-5", 0.95, Verdict.INCONCLUSIVE)  # 0.855 to 1.045
    found = record(("ngram-5",), verdict=Verdict.INCONCLUSIVE, comparison=open_, comparisons=(open_,))
    assert (
        headline(subject_of(found))
        == "Inconclusive: ngram-5 measured 5 % less time per token, over all 3 loads, which may be chance"
    )


@pytest.mark.parametrize(
    ("metric", "ratio", "says"),
    [
        ("throughput", 1.25, "x is faster: 25 % more tokens a second"),
        ("goodput", 1.1, "x is faster: 10 % more good requests"),
        ("ttft", 0.9, "x is faster: 10 % less time to the first token"),
    ],
)
def test_each_metric_has_its_own_words(metric: str, ratio: float, says: str) -> None:
    plain_one = comparison("x", ratio, Verdict.FASTER)
    one = plain_one.model_copy(update={"metric": metric, f"{metric}_ratio": plain_one.tpot_ratio})
    found = record(("ngram-5",), verdict=Verdict.FASTER, best="x", comparison=one, comparisons=(one,))
    assert headline(subject_of(found)) == says


def test_verdict_reason_cause_and_next_step_come_before_everything_else() -> None:
    text = whole()
    places = [
        text.index(words) for words in ("<h1>eagle3 is faster", "TPOT 20.0 → 15.0", "<dd>eagle3 pays 6.00 ms", "<h2")
    ]
    assert places == sorted(places)
    assert text.index("which is under") < text.index("<h2")
    assert "1.97" in text[: text.index("<h2")]
    assert "break-even 2.20, at most 6" in text[: text.index("<h2")]


def test_without_an_account_the_cause_is_not_known_and_what_would_tell_is_named(tmp_path: Path) -> None:
    text = plain(trial_page(folder_of(tmp_path), record(), None))
    assert "Not known yet. It drafted in 80 % of steps" in text
    assert "draftworth explain 20261202-101010" in text
    assert "The account of the milliseconds" in text[text.index("What is not known") :]


def test_a_service_that_is_not_back_comes_first_with_its_commands() -> None:
    commands = ("kill 7", "systemctl start llm")
    lost = record(("eagle3",), restored=False, restore="its port is held", restore_commands=commands)
    text = trial_page(Path("/nowhere"), lost, None)
    assert text.index("NOT RESTORED") < text.index("<h1>")
    assert text.index("kill 7\nsystemctl start llm") < text.index("<h1>")
    assert "draftworth trial restore 20261202-101010" in text
    assert next_step(subject_of(lost)).startswith("Restore the service first")


# --- the next step


def slower(**other: Any) -> TrialRecord:
    return record(("ngram-5",), **other)


def told(*changes: Change) -> Explained:
    found = explained(("ngram-5",))
    return found.model_copy(
        update={"accounts": tuple(one.model_copy(update={"changes": changes}) for one in found.accounts)}
    )


def test_a_slower_variant_leads_to_the_setting_that_is_predicted_to_pay() -> None:
    words = next_step(subject_of(slower(), explained(("ngram-5",))))
    assert words.startswith("Try another setting. k 3 is predicted to pay.")
    assert "1.20 times as fast as the baseline (1.10 to 1.30)" in words
    assert '<code class="flags">--speculative-config' in words


def test_what_is_not_measured_is_measured_before_anything_is_given_up() -> None:
    words = next_step(subject_of(slower(), told(Change(kind="measure", text="Measure a null draft"))))
    assert words == "Keep speculation off, and measure what is not known yet. Measure a null draft."


def test_an_engine_that_does_not_exist_is_no_next_step() -> None:
    engine = Change(kind="engine", text="With another engine", speed_up=explained().accounts[0].changes[0].speed_up)
    assert "With another engine" not in next_step(subject_of(slower(), told(engine)))
    assert "draftworth predict" in next_step(subject_of(slower(), told(engine)))


def test_a_systemd_unit_is_adopted_and_servers_that_ran_already_are_not_restarted_by_us() -> None:
    unit = record(config={"service": {"type": "systemd"}})
    assert "draftworth trial adopt 20261202-101010" in next_step(subject_of(unit))
    servers = record(config={"service": {"type": "endpoints"}})
    assert "adopt" not in next_step(subject_of(servers))


def test_an_open_verdict_asks_for_what_would_close_it() -> None:
    few = slower(verdict=Verdict.INCONCLUSIVE)
    assert "spread between restarts dominates" in next_step(subject_of(few))
    busy = slower(verdict=Verdict.INCONCLUSIVE, findings=(find(Code.CLIENT_SATURATED, "the client was busy"),))
    assert "free core" in next_step(subject_of(busy))


# --- what is on it


def test_every_section_is_there_in_order() -> None:
    titles = [text for level, text in Page(whole()).headings if level == 2]
    assert titles == [
        "All variants, the best first",
        "eagle3: faster",
        "ngram-2: no difference",
        "ngram-5: slower",
        "Latency by load",
        "What a step costs",
        "Drift between baselines",
        "Differences beyond the declared one",
        "Warnings: 1 warning, 1 info, 1 log line",
        "What was done to the service",
        "Arms",
        "Conditions",
    ]


def test_headings_go_down_one_level_at_a_time() -> None:
    levels = [level for level, _ in Page(whole()).headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_plot_has_a_name_a_caption_and_its_figures() -> None:
    panels = re.findall(r'<div class="panel">(.*?)</figure>(.*?)(?=<div class="panel">|</section>)', whole(), re.DOTALL)
    drawn = [(inside, behind) for inside, behind in panels if "<svg" in inside]
    assert len(drawn) == whole().count("<svg") > 20
    for inside, behind in drawn:
        assert re.search(r'role="img" aria-label="[^"]{20,}"', inside)
        assert re.search(r"<h3>[^<]+</h3>", inside)
        assert re.search(r"<figcaption>[^<]{10,}", inside)
        assert "<table" in behind, inside[:80]


def test_links_lead_to_something_on_the_page() -> None:
    page = Page(trial_page(Path("/nowhere"), record(), None))
    assert page.links
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(set(page.ids)) == len(page.ids)


def test_findings_have_their_advice_and_the_log_is_told_once_for_all_arms() -> None:
    text = plain(whole())
    assert "the baseline drifted by 3 %. The baseline itself changed between its two measurements" in text
    assert text.count("Async scheduling is off. Compare without it.") == 1
    assert "Log of baseline, ngram-5, eagle3, ngram-2" in text


def test_diagnostic_arms_come_last_and_are_never_the_answer() -> None:
    found = read(Path(__file__).parents[2] / "benchmarks/data/prediction/h200-smollm2-a/all-8")
    subject = subject_of(found)
    assert found.best == "synthetic-5"
    assert subject.best == "ngram-5"
    assert subject.verdict is Verdict.SLOWER
    assert set(subject.variants[-3:]) == {"synthetic-5", "synthetic-1", "null-draft"}
    assert headline(subject) == "None of 4 variants is faster; the best, ngram-5, is slower: 147 % more time per token"
    assert "the record's own verdict, inconclusive, is about synthetic-5" in subject.reason


# --- what it is as a file


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = whole()
    page = Page(text)
    assert not {name for name, _ in page.attributes} & {"src", "xlink:href", "srcset", "action", "onload", "onclick"}
    assert not re.search(r"url\((?!#)|@import|<link|<script|<iframe|https?://", text)
    assert "default-src 'none'" in text


def test_nothing_of_a_record_becomes_markup(tmp_path: Path) -> None:
    bad = record(("ngram-5",), reason=HOSTILE, restore=HOSTILE, machine={"processor": HOSTILE}, created=HOSTILE)
    arms = tuple(one.model_copy(update={"engine": HOSTILE, "command": (HOSTILE,)}) for one in bad.arms)
    found = bad.comparisons[0]
    groups = tuple(one.model_copy(update={"category": HOSTILE}) for one in found.categories[:1])
    found = found.model_copy(update={"categories": groups, "reason": HOSTILE})
    account = explained(("ngram-5",)).model_copy(update={"summary": HOSTILE, "left_out": (HOSTILE,)})
    journal(tmp_path, [(1, "intent", HOSTILE, {}), (2, "failure", HOSTILE, {"error": HOSTILE})])
    bad = bad.model_copy(update={"arms": arms, "comparisons": (found,), "comparison": found, "error_tail": (HOSTILE,)})
    text = trial_page(tmp_path, bad, account)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 10
    Page(text)


def test_the_same_trial_gives_the_same_bytes(tmp_path: Path) -> None:
    folder, one = folder_of(tmp_path, ("eagle3",)), ("eagle3",)
    before = sorted(path.name for path in folder.iterdir())
    assert trial_page(folder, record(one), explained(one)) == trial_page(folder, record(one), explained(one))
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is written into the folder"


def test_ten_thousand_requests_make_a_small_page_in_three_seconds(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ("ngram-5", "eagle3"), prompts=3334)
    began = time.process_time()
    text = trial_page(folder, record(("ngram-5", "eagle3")), explained(("ngram-5", "eagle3")))
    assert time.process_time() - began < 3
    assert len(text.encode()) < 1_500_000
    assert "3,134 more in requests.parquet" in text
    assert "Pale bars: where 50 % and 90 % of the prompts lie" in text


# --- what is missing


def failed(**other: Any) -> TrialRecord:
    found = record(("ngram-5",))
    lost = {"verdict": Verdict.ERROR, "best": None, "comparison": None, "comparisons": (), "categories": ()}
    return found.model_copy(update={**lost, "error": "ngram-5 ended while it started", **other})


def test_a_trial_that_failed_half_way_shows_what_it_has(tmp_path: Path) -> None:
    write_rows([row for row in rows() if row.arm == "baseline"], tmp_path)
    journal(
        tmp_path, [(1, "intent", "01-start-baseline", {}), (9, "failure", "01-start-baseline", {"error": "no GPU"})]
    )
    text = plain(trial_page(tmp_path, failed(error_tail=("CUDA error",)), None))
    for words in (
        "The trial could not be measured",
        "ngram-5 ended while it started.",
        "CUDA error",
        "ngram-5: not compared",
        "The baseline over time",
        "failed: no GPU",
        "nothing was measured to the end",
    ):
        assert words in text, words


def test_an_empty_folder_still_makes_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    text = plain(trial_page(tmp_path, failed(arms=()), None))
    assert "No arm was measured." in text
    assert "requests.parquet: no request was kept" in text
    assert "journal.db: the steps of the trial and their times are not shown" in text


def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_bytes(b"PAR1 and no more")
    (tmp_path / "journal.db").write_bytes(b"no database at all" * 300)
    found = gather(tmp_path, record(), explained())
    assert found.rows == ()
    assert found.events == ()
    assert any(one.startswith("requests.parquet: cannot be read") for one in found.missing)
    assert any(one.startswith("journal.db: cannot be read") for one in found.missing)
    assert "eagle3: faster" in trial_page(tmp_path, record(), explained())


def test_what_a_killed_trial_left_in_parts_is_shown_and_a_damaged_part_is_named(tmp_path: Path) -> None:
    write_part(rows()[:12], tmp_path, block=1, number=1)
    write_part(rows()[12:24], tmp_path, block=2, number=1)
    (tmp_path / "rows" / "2-1.parquet").write_bytes(b"half")
    found = gather(tmp_path, record(), None)
    assert len(found.rows) == 12
    assert any("rows/2-1.parquet: cannot be read" in one for one in found.missing)


def test_rows_without_times_or_with_nonsense_are_in_no_figure(tmp_path: Path) -> None:
    bad = rows(("eagle3",))
    for at, value in enumerate((float("nan"), None, -3.0, float("inf"))):
        bad[at].tpot_ms = bad[at].decode_ms = value
    write_rows(bad, tmp_path)
    Page(trial_page(tmp_path, record(("eagle3",)), explained(("eagle3",))))


def test_old_records_have_a_page() -> None:
    text = plain(trial_page(OLD, read(OLD), None))
    assert "is faster" in text
    assert "What is not known" in text


def test_an_account_that_is_damaged_or_of_a_later_version_is_refused(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    path = tmp_path / "explained.json"
    path.write_text("{")
    with pytest.raises(UsageError, match="draftworth explain"):
        load(tmp_path)
    path.write_text(explained().model_copy(update={"schema_version": 99}).model_dump_json())
    with pytest.raises(UsageError, match="schema_version 99"):
        load(tmp_path)
    path.write_text(explained().model_dump_json())
    assert load(tmp_path) == explained()


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(UsageError, match="is a folder"):
        write_page(tmp_path, "new")
    with pytest.raises(UsageError, match="cannot be written"):
        write_page(tmp_path / "no" / "report.html", "new")
