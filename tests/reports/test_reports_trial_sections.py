"""The sections of a trial's page: figures by hand, from rows, counts, accounts and journals."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reports.reports_trials import BEGAN, EVENTS, account, arm, explained, folder_of, record, rows

from draftworth.engines.base import AcceptanceCounts
from draftworth.explain.base import CAUSES, BreakEven
from draftworth.reports.page import Table
from draftworth.reports.trial import waterfall
from draftworth.reports.trial.acceptance import _pays, acceptance_panels, even_of, even_share
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.costs import costs_html
from draftworth.reports.trial.drift import drift_html
from draftworth.reports.trial.gather import gather
from draftworth.reports.trial.loads import loads_html
from draftworth.reports.trial.paired import paired_panels, pairs_of
from draftworth.reports.trial.parts import fold, plain_table
from draftworth.reports.trial.timeline import acts_of, timeline_html
from draftworth.trials.journal import Event, Kind
from draftworth.verdicts.base import Verdict

ONE = ("eagle3",)


def subject(names: tuple[str, ...] = ONE, prompts: int = 12, **other: Any) -> Subject:
    return Subject(record(names), explained(names), tuple(rows(names, prompts)), **other)


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in re.findall(r"<tr[ >].*?</tr>", html, re.DOTALL)]


def texts(html: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", html)


# --- paired


def test_a_prompts_ratio_is_that_of_its_mean_times() -> None:
    trial = subject()
    found = {
        one.prompt: one for one in pairs_of(trial, trial.record.comparisons[0].arm, trial.record.comparisons[0].metric)
    }
    assert len(found) == 12
    for number in range(12):
        mine = [row for row in trial.rows if row.prompt_id == f"p{number}"]
        per_arm = {
            name: sum(r.decode_ms or 0 for r in mine if r.arm == name) / sum(100 for r in mine if r.arm == name)
            for name in ("baseline", "eagle3")
        }
        assert found[f"p{number}"].baseline == pytest.approx(per_arm["baseline"])
        assert found[f"p{number}"].ratio == pytest.approx(per_arm["eagle3"] / per_arm["baseline"])
        assert found[f"p{number}"].ratio == pytest.approx(0.75)


def test_a_prompt_that_one_arm_did_not_answer_is_in_no_pair() -> None:
    trial = subject()
    for row in trial.rows:
        if row.prompt_id == "p3" and row.arm == "eagle3":
            row.ok = False
    assert {
        one.prompt for one in pairs_of(trial, trial.record.comparisons[0].arm, trial.record.comparisons[0].metric)
    } == {f"p{n}" for n in range(12)} - {"p3"}


def test_categories_are_sorted_by_gain_with_intervals_and_prompts_behind_them() -> None:
    drawn = paired_panels(subject(), "eagle3")
    assert len(drawn) == 2, "by prompt and category, and by load"
    table = [row for row in cells(drawn[0]) if row and row[0] in {"all", "coding", "math"}]
    assert table[0] == ["all", "12", "20.0", "15.0", "0.750", "0.675 to 0.825", "faster"]
    assert table[1] == ["coding", "4", "20.0", "15.0", "0.750", "0.525 to 0.975", "faster"]
    assert "p0" in [row[0] for row in cells(drawn[0]) if row]
    assert drawn[0].count('aria-roledescription="point"') == 0
    words = texts(drawn[0])
    assert "all 12 prompts" in words
    assert "0.75" in words


def test_five_hundred_prompts_are_drawn_one_by_one_and_more_only_as_spread() -> None:
    few, many = (paired_panels(subject(prompts=n), "eagle3")[0] for n in (500, 501))
    assert "Each pale point is a prompt." in few
    assert "Pale bars" in many
    assert len(many) < len(few)
    assert len(re.findall("<path", many)) < 200
    assert len(re.findall("<path", few)) > 500


def test_goodput_has_no_ratio_of_one_prompt() -> None:
    found = record(ONE).comparisons[0].model_copy(update={"metric": "goodput"})
    assert pairs_of(subject(), found.arm, found.metric) == []


def test_a_table_has_two_hundred_rows_and_says_where_the_rest_is() -> None:
    long = plain_table("Table: many", ["figure"], ((f"r{n}", [str(n)]) for n in range(1201)))
    assert "1,001 more in requests.parquet" in fold(long)
    assert fold(long).count("<tr") == 2 + 200
    short = Table("Table: few", long.columns, long.rows[:200])
    assert "more in" not in fold(short)


# --- acceptance


def test_the_even_acceptance_by_hand() -> None:
    assert even_share(0.4, 1) == pytest.approx(0.4)
    assert even_share(0.75, 2) == pytest.approx(0.5)  # 1/2 + 1/4
    assert even_share(5, 5) == pytest.approx(1.0)
    assert even_share(0, 3) == pytest.approx(0.0)
    assert even_share(5.1, 5) is None
    assert even_share(-0.1, 5) is None


@given(st.floats(0, 1), st.integers(1, 12))
def test_the_even_acceptance_is_the_one_that_gives_the_tokens(share: float, k: int) -> None:
    tokens = math.fsum(share**at for at in range(1, k + 1))
    found = even_share(tokens, k)
    assert found is not None
    assert found == pytest.approx(share, abs=1e-6)


def test_positions_are_shown_as_counted_with_the_break_even_beside_them() -> None:
    by_position, lengths = acceptance_panels(subject(), "eagle3")
    table = {row[0]: row[1:] for row in cells(by_position) if row}
    # 800 drafting steps: 400, 200, 100, 50, 25 accepted; every draft was whole, so the chain is conditional too.
    assert table["1"][:3] == ["400", "50 %", "50 %"]
    assert table["3"][:3] == ["100", "12 %", "50 %"]
    even = even_share(1.2, 5)
    assert even is not None
    assert f"break-even: {100 * even:.0f} % at each" in texts(by_position)
    assert "1.97 / 2.20" in texts(lengths)


def test_counts_that_an_engine_does_not_give_are_said_and_not_drawn() -> None:
    silent = AcceptanceCounts(
        steps=10,
        drafting_steps=8,
        drafted=40,
        accepted=9,
        source="a log",
        not_given={"accepted_per_position": "this release exports no positions"},
    )
    found = record(ONE)
    told = found.model_copy(
        update={"arms": (found.arms[0], found.arms[1].model_copy(update={"acceptance": silent, "per_request": None}))}
    )
    drawn = acceptance_panels(Subject(told), "eagle3")
    assert len(drawn) == 1
    assert "<svg" not in drawn[0]
    assert "this release exports no positions" in drawn[0]


@pytest.mark.parametrize(
    ("reached", "low", "high", "pays"),
    [(1.97, 1.5, 2.9, None), (1.97, 2.0, 2.4, False), (2.6, 2.0, 2.4, True), (1.97, None, None, False)],
)
def test_a_dot_says_nothing_where_the_break_evens_interval_holds_it(
    reached: float, low: float | None, high: float | None, *, pays: bool | None
) -> None:
    found = BreakEven(length=2.2, low=low, high=high, measured_length=reached, longest=6)
    assert _pays(found) is pays
    assert even_of(found) == ("2.20" if low is None else f"2.20 ({low:.2f} to {high:.2f})")


def test_a_break_even_beyond_every_acceptance_is_said() -> None:
    accounts = explained(ONE).accounts
    far = tuple(
        one.model_copy(update={"break_even": BreakEven(length=9.0, measured_length=1.97, longest=6)})
        for one in accounts
    )
    trial = Subject(record(ONE), explained(ONE).model_copy(update={"accounts": far}))
    assert "no acceptance is high enough" in acceptance_panels(trial, "eagle3")[0]


def test_arms_that_drafted_nothing_have_no_acceptance() -> None:
    found = record(ONE, arms=(arm("baseline", 1, None), arm("eagle3", 1, None)))
    assert acceptance_panels(Subject(found), "eagle3") == []


# --- the waterfall


def test_bars_lead_from_the_baseline_to_the_variant_without_a_gap() -> None:
    one = account("ngram-5", 1.4, 4)
    found = waterfall._rows(one)
    assert [row["name"] for row in found] == [
        "baseline",
        "engine mode",
        "verification",
        "drafter",
        "tokens gained",
        "not known",
        "ngram-5",
    ]
    assert found[0]["end"] == 20.0
    for before, after in pairwise(found[:-1]):
        assert after["start"] == pytest.approx(before["end"])
    assert found[-2]["end"] == pytest.approx(found[-1]["end"]) == pytest.approx(28.0)
    for row, part in zip(found[1:-1], one.parts, strict=True):
        assert row["high"] - row["low"] == pytest.approx(part.ms.high - part.ms.low)
        assert row["how"] == ("neither" if part.cause == "rest" else "slower" if part.ms.value > 0 else "faster")
    assert len(one.parts) == len(CAUSES)


def test_every_part_is_told_with_interval_and_evidence() -> None:
    drawn = waterfall.waterfall_panels(subject(("ngram-5",)), "ngram-5")
    assert len(drawn) == 3, "one a load"
    table = {row[0]: row[1:] for row in cells(drawn[0]) if row}
    assert table["engine mode"] == ["+6.00", "+5.50 to +6.50", "yes", "null-draft of this trial"]
    assert table["verification"] == ["+3.00", "+2.60 to +3.40", "no", "costs.json"]
    assert table["tokens gained"] == ["\u221212.0", "\u221212.6 to \u221211.4", "yes", "its counts"]
    assert table["not known"][0] == "+10.00"
    assert table["steps that draft nothing"][0] == "+2.00"
    assert "Carried over, not measured on this server at this setting: verification." in drawn[0]
    assert "0 % of the difference has a cause" in drawn[0]  # 1 - |8 + 2| / 8 is below nothing


def test_of_many_loads_four_are_drawn_and_all_are_in_tables() -> None:
    many = tuple(account("eagle3", 0.75, n) for n in (1, 2, 4, 8, 16, 32, 64))
    trial = Subject(record(ONE), explained(ONE).model_copy(update={"accounts": many}))
    drawn = waterfall.waterfall_panels(trial, "eagle3")
    assert len(drawn) == 7
    assert ["<svg" in one for one in drawn] == [True, False, True, False, True, False, True]
    assert all("<table" in one for one in drawn)


def test_small_parts_of_a_long_step_are_seen_and_the_cut_axis_is_said() -> None:
    one = account("eagle3", 0.75, 1)
    small = one.model_copy(
        update={
            "baseline_ms": 400.0,
            "arm_ms": 395.0,
            "parts": tuple(part.model_copy(update={"ms": part.ms}) for part in one.parts),
        }
    )
    trial = Subject(record(ONE), explained(ONE).model_copy(update={"accounts": (small,)}))
    assert "ms per output token, not from 0" in texts(waterfall.waterfall_panels(trial, "eagle3")[0])
    whole = Subject(record(ONE), explained(ONE).model_copy(update={"accounts": (one,)}))
    assert "ms per output token" in texts(waterfall.waterfall_panels(whole, "eagle3")[0])


# --- step costs, loads, drift


def test_the_staircase_has_every_arm_and_its_figures() -> None:
    html = costs_html(subject(("ngram-5", "eagle3")))
    assert {"baseline", "ngram-5", "eagle3"} <= set(texts(html))
    table = {row[0]: row[1:] for row in cells(html) if row}
    assert table["arm: ngram-5"] == ["24", "28.0", "27.5 to 28.5"]
    assert table["baseline: baseline"] == ["4", "20.4", "20.2 to 20.6"]
    assert costs_html(Subject(record())) == ""


def test_loads_are_drawn_where_there_are_several_and_told_where_there_is_one() -> None:
    html = loads_html(subject())
    assert html.count("<svg") == 2
    table = [row for row in cells(html) if row and row[0] == "4 at a time"]
    assert table[0][:2] == ["4 at a time", "baseline"]
    assert table[1][4] == "17.2 (16.4 to 18.1)"  # 0.75 x 23, 5 % around it
    found = record(ONE, arms=(arm("baseline", 1, None, loads=False), arm("eagle3", 1, 5, loads=False)))
    assert loads_html(Subject(found)) == ""


def test_each_baseline_is_shown_with_its_mean_over_prompts() -> None:
    html = drift_html(subject())
    table = [row for row in cells(html) if row and row[0].startswith("block")]
    mean = sum(20 * (1 + 0.01 * (n % 7)) for n in range(12)) / 12
    assert [row[1] for row in table] == ["baseline", "eagle3", "baseline"]
    assert table[0][5].startswith(f"{mean:.1f} (")
    assert [row[4] for row in table] == ["0.0", "10.0", "20.0"]
    assert "over its first: 1.010 (1.000 to 1.020)" in html


def test_one_baseline_has_no_drift_and_that_is_said() -> None:
    trial = Subject(
        record(ONE).model_copy(
            update={"comparisons": (record(ONE).comparisons[0].model_copy(update={"drift": None}),)},
        ),
        None,
        tuple(row for row in rows(ONE) if row.block == 1),
    )
    html = drift_html(trial)
    assert "The baseline was measured once, so its drift is not known." in html
    assert "<svg" not in html


# --- the timeline


def events(some: Sequence[tuple[float, str, str, dict[str, Any]]] = EVENTS) -> list[Event]:
    return [
        Event(at, BEGAN + seconds, cast("Kind", kind), step, data)
        for at, (seconds, kind, step, data) in enumerate(some, start=1)
    ]


def test_acts_are_intents_with_what_followed_and_a_start_lasts_until_a_token() -> None:
    found = {one.name: one for one in acts_of(events())}
    assert list(found) == [
        "01-measure-baseline",
        "02-stop-original",
        "03-start-ngram-5",
        "04-measure-ngram-5",
        "restore",
        "start-original",
    ]
    start = found["03-start-ngram-5"]
    assert (start.begin - BEGAN, (start.end or 0) - BEGAN) == (317, 380)
    assert (start.kind, start.server, start.result) == ("start", "ngram-5", "has generated a token with llama")
    assert found["01-measure-baseline"].result == "36 requests, 1 failed"
    assert (found["02-stop-original"].kind, found["02-stop-original"].server) == ("stop", "original")
    assert found["02-stop-original"].result == "it took 5 s"
    assert found["04-measure-ngram-5"].failed
    assert found["04-measure-ngram-5"].result == "failed: MeasureError: the server died"
    assert found["restore"].result == "the original runs, pid 8"


def test_a_step_without_an_end_says_so() -> None:
    found = acts_of(events(EVENTS[:8]))
    assert found[-1].name == "03-start-ngram-5"
    assert found[-1].end is None
    assert found[-1].result == "its process ran and was not seen to generate a token"
    killed = acts_of(events(EVENTS[:3]))
    assert (killed[-1].end, killed[-1].result) == (None, "no end is in the journal")


def test_a_restore_that_was_tried_twice_is_two_acts() -> None:
    some = (
        (1, "intent", "restore", {"attempt": 1}),
        (2, "failure", "restore", {"error": "port held"}),
        (3, "intent", "restore", {"attempt": 2}),
        (9, "effect", "restore", {"how": "runs"}),
    )
    assert [(one.result, one.failed) for one in acts_of(events(some))] == [("failed: port held", True), ("runs", False)]


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e5),
            st.sampled_from(["begin", "intent", "effect", "failure", "note", "end"]),
            st.sampled_from(["", "01-start-a", "02-measure-a", "restore", "start-original", "x", "-", "99-"]),
            st.dictionaries(
                st.sampled_from(["how", "error", "requests", "remarks", "model"]), st.integers() | st.text()
            ),
        ),
        max_size=20,
    )
)
def test_any_journal_gives_as_many_acts_as_intents(some: list[tuple[float, str, str, dict[str, Any]]]) -> None:
    found = acts_of(events(tuple(some)))
    assert len(found) == sum(kind == "intent" for _, kind, _, _ in some)


def test_the_timeline_tells_how_the_service_was_left(tmp_path: Path) -> None:
    html = timeline_html(gather(folder_of(tmp_path), record(), None))
    assert "The service is restored: the original runs, pid 7" in html
    assert "1 failed" in html
    assert {"original", "ngram-5", "baseline"} <= set(texts(html))
    table = {row[0]: row[1:] for row in cells(html) if row}
    assert table["02-stop-original"] == ["301.0", "5.0", "it took 5 s"]
    left = timeline_html(
        Subject(record(restored=False, restore="it did not start", restore_commands=("vllm serve m",)))
    )
    assert "NOT RESTORED" in left
    assert "vllm serve m" in left


def test_without_a_journal_the_starts_of_the_record_are_shown() -> None:
    html = timeline_html(Subject(record()))
    assert "There is no journal" in html
    assert ["eagle3, block 1", "31.0", "12"] in cells(html)
    running = record(config={"service": {"type": "endpoints"}}, restore="nothing was started or stopped")
    html = timeline_html(Subject(running))
    assert "Nothing was started or stopped." in html
    assert "no journal" not in html


def test_the_order_of_variants_is_the_best_first() -> None:
    assert Subject(record()).variants == ("eagle3", "ngram-2", "ngram-5")
    lost = record().model_copy(update={"best": None, "verdict": Verdict.ERROR})
    assert Subject(lost).variants == ("eagle3", "ngram-2", "ngram-5")
