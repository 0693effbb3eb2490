"""The answer of a page: why, what next, and what takes it back; of trials that did not end, and of arms given up."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.reports.reports_trials import (
    account,
    around,
    comparison,
    counts,
    explained,
    folder_of,
    journal,
    record,
    rows,
)

from draftworth.bench.rows import write_rows
from draftworth.explain.base import Account, Change, Explained
from draftworth.findings import Code, find
from draftworth.predict.base import Range
from draftworth.reports.compare import compared, lines
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.gather import gather
from draftworth.reports.trial.head import best_account, cause_of, head_html, headline
from draftworth.reports.trial.next import next_step
from draftworth.reports.trial.timeline import acts_of
from draftworth.reports.trial.variants import overview_html
from draftworth.reports.trial_page import page_of, trial_page
from draftworth.trials.record import ArmRecord, TrialRecord
from draftworth.verdicts.base import Verdict

K3 = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
K5 = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5}')


def plain(text: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", text))


def judged_as(verdict: Verdict, ratio: float, *codes: Code, **other: Any) -> TrialRecord:
    """A trial of ngram-5 with this verdict, its interval 10 % to either side, and findings of the arm."""
    found = comparison("ngram-5", ratio, verdict)
    findings = tuple(find(code, "seen", arm="ngram-5") for code in codes)
    figures = {"verdict": verdict, "best": "ngram-5", "comparison": found, "comparisons": (found,)}
    return record(("ngram-5",), findings=findings, **{**figures, **other})


def accounted(ratio: float, *changes: Change, loads: tuple[int, ...] = (4,)) -> Explained:
    some = [account("ngram-5", ratio, n).model_copy(update={"changes": changes}) for n in loads]
    return Explained(trial="20261202-101010", accounts=tuple(some))


def setting(value: float, half: float = 0.02, arguments: tuple[str, ...] = K3) -> Change:
    return Change(text="k = 3 is predicted to pay.", arguments=arguments, speed_up=around(value, half))


# --- the headline


@pytest.mark.parametrize(
    ("ratio", "codes", "says"),
    [
        (0.95, (), "which may be chance"),
        (0.75, (Code.CLIENT_SATURATED,), "but the client could not keep up"),
        (0.75, (Code.OUTPUT_UNCHECKED,), "but its output was not checked"),
        (0.95, (Code.CLIENT_SATURATED,), "which may be chance"),
        (0.75, (Code.FEW_STARTS,), "which the trial does not take for decided"),
    ],
)
def test_chance_is_named_only_where_the_interval_holds_1(ratio: float, codes: tuple[Code, ...], says: str) -> None:
    found = headline(Subject(judged_as(Verdict.INCONCLUSIVE, ratio, *codes)))
    assert found.endswith(f"less time per token, over all 3 loads, {says}")


# --- what next


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.FASTER])
@pytest.mark.parametrize("code", [Code.CLIENT_SATURATED, Code.OUTPUT_SUSPECT, Code.FOREIGN_REQUESTS])
def test_what_takes_a_verdict_back_is_mended_first(verdict: Verdict, code: Code) -> None:
    found = judged_as(verdict, 0.75, code)
    words = next_step(Subject(found, accounted(0.75, setting(1.9))))
    assert plain(words).startswith(find(code, "").advice[:40].capitalize()[:1])
    assert find(code, "").advice[1:40] in plain(words)
    assert "setting" not in words.split(".")[0]
    assert "prompts_per_category" not in words, "the interval decides; more prompts would not help"


def test_an_open_interval_asks_for_more_beside_what_is_to_be_mended() -> None:
    words = plain(next_step(Subject(judged_as(Verdict.INCONCLUSIVE, 0.97, Code.CLIENT_SATURATED))))
    assert "free core" in words
    # What `decide` says too (decisions/more.py): how much more, and whether prompts or restarts dominate.
    assert "prompts 45 % of the variance" in words
    assert "restarts 55 %" in words


def test_an_output_check_that_was_switched_off_takes_nothing_back() -> None:
    found = judged_as(Verdict.FASTER, 0.75, Code.OUTPUT_UNCHECKED, config={"verdict": {"output_check": False}})
    assert next_step(Subject(found)).startswith("Start the service with the command of ngram-5")


@pytest.mark.parametrize(
    ("ratio", "predicted", "proposed"),
    [
        (0.97, 1.20, True),  # measured 1.03 times as fast
        (0.75, 1.20, False),  # measured 1.33
        (0.75, 1.40, True),
        (1.40, 1.10, True),
        (1.40, 0.99, False),
    ],
)
def test_a_setting_is_proposed_only_where_it_beats_what_was_measured(
    ratio: float, predicted: float, *, proposed: bool
) -> None:
    verdict = Verdict.SLOWER if ratio > 1 else Verdict.INCONCLUSIVE
    words = plain(next_step(Subject(judged_as(verdict, ratio), accounted(ratio, setting(predicted)))))
    assert words.startswith(("Try another setting", "Another setting may pay")) is proposed
    if proposed:
        assert f"more than the {1 / ratio:.2f} times as fast that ngram-5 was measured at" in words


def test_a_setting_whose_interval_reaches_what_was_measured_may_pay() -> None:
    words = next_step(Subject(judged_as(Verdict.SLOWER, 1.4), accounted(1.4, setting(1.05, 0.1))))
    assert words.startswith("Another setting may pay.")


def test_the_setting_that_was_measured_is_not_proposed_again() -> None:
    found = Subject(judged_as(Verdict.SLOWER, 1.4), accounted(1.4, setting(1.3, arguments=K5)))
    assert "setting" not in next_step(found).replace("settings", "")


def test_slower_settings_do_not_stand_among_what_would_change_it() -> None:
    found = Subject(judged_as(Verdict.FASTER, 0.75), accounted(0.75, setting(1.2)))
    assert "k = 3 is predicted to pay" not in page_of(found)


# --- why


def test_the_cause_is_of_the_arm_the_verdict_is_about_or_not_known() -> None:
    # eagle3 is best; only ngram-5 has an account, and the summary is about it.
    told = Explained(
        trial="20261202-101010",
        accounts=(account("ngram-5", 1.4, 4),),
        summary="ngram-5 pays for the engine's mode.",
        left_out=("ngram-2 at 4: nothing drafted", "eagle3 at 4 at a time: no prompt was answered by both arms"),
    )
    words = cause_of(Subject(record(), told))
    assert words.startswith("Not known yet.")
    assert "eagle3 at 4 at a time: no prompt was answered by both arms." in words
    assert "ngram" not in words
    assert "There is no account of eagle3." in cause_of(Subject(record(), told.model_copy(update={"left_out": ()})))


def test_the_cause_is_at_a_load_at_which_the_arm_did_what_the_verdict_says() -> None:
    slower, faster = account("ngram-5", 1.1, 1), account("ngram-5", 0.6, 16)
    found = Subject(judged_as(Verdict.SLOWER, 1.2), Explained(trial="t", accounts=(slower, faster)))
    assert best_account(found) == slower
    assert cause_of(found) == (
        "ngram-5 pays 6.00 ms for the engine's mode at 1 at a time. That is at 1 at a time; the verdict is over all "
        "loads. But it takes 40% less time a token at 16 at a time."
    )
    found = Subject(judged_as(Verdict.FASTER, 0.9), Explained(trial="t", accounts=(slower, faster)))
    assert best_account(found) == faster


def test_every_figure_of_the_first_screen_names_its_load() -> None:
    text = plain(head_html(Subject(judged_as(Verdict.SLOWER, 1.2), accounted(1.2, loads=(1, 16)))))
    assert "ngram-5 is slower: 20 % more time per token, over all 3 loads" in text
    assert "baseline → ngram-5, over all 3 loads" in text
    assert "interval 1.08 to 1.32, over all 3 loads" in text.replace("1.080", "1.08").replace("1.320", "1.32")
    assert "the verdict is over all loads" in text


def test_parts_of_several_arms_are_those_of_one_load() -> None:
    some = (account("ngram-5", 1.4, 1), account("ngram-5", 1.1, 16), account("eagle3", 1.5, 16))
    here = record(("ngram-5", "eagle3"), best="ngram-5")
    text = plain(overview_html(Subject(here, Explained(trial="t", accounts=some))))
    assert "Parts at 1 at a time" in text
    # The other arm was not accounted for there: nothing of another load stands in its row.
    assert text.count("+6.00") == 1
    whole = plain(overview_html(Subject(here, Explained(trial="t", accounts=(*some, account("eagle3", 1.25, 1))))))
    assert whole.count("+6.00") == 2


def test_a_verdict_about_something_else_than_tpot_says_so() -> None:
    one = comparison("ngram-5", 0.9, Verdict.FASTER)
    one = one.model_copy(update={"metric": "ttft", "ttft_ratio": one.tpot_ratio})
    found = judged_as(Verdict.FASTER, 0.9, comparison=one, comparisons=(one,))
    assert cause_of(Subject(found, accounted(0.9))).startswith("Of TPOT, while the verdict is about TTFT: ngram-5 pays")


@pytest.mark.parametrize(("share", "shown"), [(0.962, "96 %"), (-0.25, "0 %"), (None, "")])
def test_the_tile_is_of_the_difference_with_the_rests_interval(share: float | None, shown: str) -> None:
    one = account("ngram-5", 1.4, 4).model_copy(update={"of_difference": share})
    text = plain(head_html(Subject(judged_as(Verdict.SLOWER, 1.4), Explained(trial="t", accounts=(one,)))))
    # 8.00 of difference less 6 + 3 + 1 - 12 is 10, known to 10.2 either side.
    assert (f"Explained{shown} of the difference; not known: +10.00 ms (\u22120.20 to +20.2)" in text) is bool(shown)


# --- a trial that did not end


def unfinished(**other: Any) -> TrialRecord:
    lost = {"verdict": Verdict.ERROR, "best": None, "comparison": None, "comparisons": (), "categories": ()}
    return record(("ngram-5",)).model_copy(update={**lost, "error": "the time was over", **other})


def test_what_a_trial_measured_before_it_failed_is_shown(tmp_path: Path) -> None:
    write_rows([row for row in rows(("ngram-5",)) if row.block <= 2], tmp_path)
    text = plain(trial_page(tmp_path, unfinished(), None))
    assert "The trial did not end: the time was over. It measured some of ngram-5: draftworth explain" in text
    assert "nothing to explain" not in text
    assert "nothing was measured to the end" not in text
    assert "What was measured by prompt" in text
    assert "Table: 12 prompts, one by one" in text
    assert "1.40" in text  # 28 over 20 ms for each prompt
    assert "there is no interval" in text


def test_the_account_of_a_trial_that_failed_is_shown_and_says_so(tmp_path: Path) -> None:
    write_rows([row for row in rows(("ngram-5",)) if row.block <= 2], tmp_path)
    text = plain(trial_page(tmp_path, unfinished(), explained(("ngram-5",))))
    assert "The trial did not end: the time was over. Of what it measured of ngram-5: ngram-5 pays 6.00 ms" in text
    assert "Where the milliseconds went" in text


# --- arms that only measure, and were given up


def with_null_draft(*findings: Any) -> TrialRecord:
    config = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 60, "prompt_lookup_max": 60}
    found = record(("eagle3",))
    null = ArmRecord(
        name="null-draft", engine="vllm", declared={"speculative_config": config}, acceptance=counts(), requests=1
    )
    return found.model_copy(update={"arms": (*found.arms, null), "findings": tuple(findings)})


def test_arms_that_only_measure_stand_folded_under_one_heading_after_the_others() -> None:
    found = with_null_draft()
    done = comparison("null-draft", 1.2, Verdict.SLOWER)
    found = found.model_copy(update={"comparisons": (*found.comparisons, done)})
    text = page_of(Subject(found))
    titles = re.findall("<h2>([^<]*)</h2>", text)
    assert titles[:3] == ["All variants, the best first", "eagle3: faster", "What only measures"]
    assert '<details class="arm" id="arm-null-draft"><summary>null-draft: TPOT ratio 1.200 (1.080 to 1.320)' in text


def test_an_arm_that_was_given_up_is_marked_wherever_it_is_named(tmp_path: Path) -> None:
    found = with_null_draft(find(Code.DIAGNOSTIC_FAILED, "null-draft was given up: no port", arm="null-draft"))
    done = comparison("null-draft", 1.2, Verdict.SLOWER)
    found = found.model_copy(update={"comparisons": (*found.comparisons, done)})
    events: list[tuple[float, str, str, dict[str, Any]]] = [
        (1.0, "intent", "07-start-null-draft", {}),
        (9.0, "failure", "07-start-null-draft", {"error": "no port"}),
        (10.0, "intent", "07-start-null-draft-give-up", {}),
        (12.0, "effect", "07-start-null-draft-give-up", {"remarks": []}),
    ]
    folder_of(tmp_path / "t", ("eagle3",))
    (tmp_path / "t" / "journal.db").unlink()
    journal(tmp_path / "t", events)
    text = trial_page(tmp_path / "t", found, None)
    named = [one for one in re.findall(r">([^<>]*null-draft[^<>]*)<", text) if "start" not in one]
    assert len(named) >= 5
    for one in named:
        assert one.startswith(("null-draft (given up)", "null-draft was given up", "* null-draft")), one
    assert text.count("* given up before its end.") == 2
    side = compared([(found, None)])
    assert [one.given_up for one in side.groups[0].arms] == [False, True]
    assert "only measures, given up" in "\n".join(lines(side))


# --- the steps of a trial


def test_probe_and_profile_are_kinds_of_their_own_and_giving_up_is_a_stop(tmp_path: Path) -> None:
    names = (
        "03-probe-baseline",
        "08-profile-profile-ngram-5",
        "07-start-null-draft-give-up",
        "06-start-profile-ngram-5",
    )
    events: list[tuple[float, str, str, dict[str, Any]]] = [
        (float(at), kind, name, {}) for at, name in enumerate(names) for kind in ("intent", "effect")
    ]
    journal(tmp_path, events)
    found = {one.name: (one.kind, one.server) for one in acts_of(gather(tmp_path, record(), None).events)}
    assert found == {
        "03-probe-baseline": ("probe", "baseline"),
        "08-profile-profile-ngram-5": ("profile", "profile-ngram-5"),
        "07-start-null-draft-give-up": ("stop", "null-draft"),
        "06-start-profile-ngram-5": ("start", "profile-ngram-5"),
    }


def test_what_adding_up_leaves_is_nothing() -> None:
    one = account("ngram-5", 1.4, 4)
    parts = (*one.parts[:-1], one.parts[-1].model_copy(update={"ms": Range(value=8.9e-16, low=-0.1, high=0.1)}))
    told = Explained(trial="t", accounts=(Account(**{**dict(one), "parts": parts}),))
    assert "e-16" not in page_of(Subject(judged_as(Verdict.SLOWER, 1.4), told))


def test_each_part_of_a_part_has_its_interval() -> None:
    text = plain(page_of(Subject(judged_as(Verdict.SLOWER, 1.4), accounted(1.4))))
    assert "steps that draft nothing+2.00+1.70 to +2.30" in text
