"""What an account tells a person: every load, the scheduling, the same drafts elsewhere, and nothing twice."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.explain.simulated_batch import Engine, write
from tests.explain.test_explain_batch import ARMS as BATCH_ARMS
from tests.explain.test_explain_batch import costs as batch_costs
from tests.explain.test_explain_inputs import ARMS
from tests.explain.test_explain_trial import costs
from tests.predict.simulated_trial import IDLE, T, simulated

from draftworth.costs.base import StepCost
from draftworth.costs.file import save_costs
from draftworth.costs.mixed_steps import KindCost
from draftworth.costs.prefill import prefill_share
from draftworth.explain.base import BreakEven, Explained
from draftworth.explain.changes import changes
from draftworth.explain.mode import mode_part
from draftworth.explain.whole import explain_trial, of_unfinished, summary
from draftworth.explain.words import how_much, less_time
from draftworth.predict.base import Range
from draftworth.reports.explain import lines
from draftworth.trials.record import read


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arms = {**ARMS, "sync": None}
    folder = simulated(tmp_path_factory.mktemp("home") / "trials" / "20260101-000000", arms, 12)
    record = json.loads((folder / "trial.json").read_text())
    record["arms"][-1] |= {"declared": {"args": ["--no-async-scheduling"]}, "acceptance": None}
    (folder / "trial.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def explained(trial: Path) -> Explained:
    return explain_trial(trial, costs())


def test_an_arm_of_the_scheduling_alone_says_what_it_adds(explained: Explained) -> None:
    line = next(one for one in explained.left_out if one.startswith("sync at "))
    # The simulated server has nothing of it: its steps are the baseline's.
    assert "its scheduling alone adds +0.00 ms to a step of 10.00 ms" in line


def kinds() -> list[KindCost]:
    zero = (0.0, 0.0, 0.0)
    idle = KindCost("idle", 0.5, zero, (2.0, 1.9, 2.1), ("null-draft",), True, True)  # noqa: FBT003 - of the type
    drafting = KindCost("drafting", 0.5, zero, (3.0, 2.9, 3.1), ("synthetic",), True, True)  # noqa: FBT003
    return [idle, drafting]


def test_a_split_that_is_left_out_is_said() -> None:
    told = mode_part(kinds(), 1.0, Range(value=0.1, low=-0.2, high=0.4), graphs=True)
    assert [one.name for one in told.details] == ["steps that draft nothing", "steps that verify drafts"]
    assert any("+0.10 ms to a step (-0.20 to +0.40), which may be nothing" in one for one in told.evidence)
    split = mode_part(kinds(), 1.0, Range(value=1.0, low=0.8, high=1.2), graphs=True)
    assert split.details[0].name == "no asynchronous scheduling"
    assert not any("scheduling alone" in one for one in split.evidence)
    unknown = mode_part(kinds(), 1.0, None, graphs=True)
    assert not any("scheduling alone" in one for one in unknown.evidence)
    always = mode_part(kinds()[1:], 1.0, Range(value=1.0, low=0.8, high=1.2), graphs=True)
    assert any("no step of this arm drafts nothing" in one for one in always.evidence)


def test_without_the_mode_is_of_the_parts_and_not_of_the_rest(trial: Path, tmp_path: Path) -> None:
    """9 ms a token that nobody knows the cause of are no reason why the same drafts would be slow elsewhere."""
    import pyarrow as pa  # noqa: PLC0415 - this test alone
    import pyarrow.parquet as pq  # noqa: PLC0415 - this test alone

    folder = Path(shutil.copytree(trial, tmp_path / "20260101-000001"))
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    for row in rows:
        if row["arm"] == "ngram-3":
            row["decode_ms"] += 9.0 * (row["tokens"] - 1)
            row["tpot_ms"] += 9.0
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    record = json.loads((folder / "trial.json").read_text())
    # Starts are alike, so that the mode is above 0.
    record["config"]["verdict"] = {"restart_sd_baseline": 0.0, "restart_sd_variant": 0.0}
    (folder / "trial.json").write_text(json.dumps(record))
    one = next(one for one in explain_trial(folder, costs()).accounts if one.arm == "ngram-3")
    change = next(each for each in one.changes if each.kind == "engine")
    ms = {part.cause: part.ms.value for part in one.parts}
    assert ms["rest"] > 8
    right = one.baseline_ms / (one.baseline_ms + ms["tokens gained"] + ms["verification"])
    assert right > 1
    assert change.speed_up is not None
    assert change.speed_up.value == pytest.approx(right)
    assert change.speed_up.low <= right <= change.speed_up.high
    # No step is shorter than the baseline's.
    assert change.speed_up.high <= one.baseline_ms / (one.steps_per_token * T[1]) + 1e-9


def test_a_null_draft_has_no_drafts_that_could_pay_elsewhere(explained: Explained) -> None:
    null = next(one for one in explained.accounts if one.arm == "null-draft")
    assert null.difference.value == pytest.approx(IDLE)
    assert not [one for one in null.changes if one.kind == "engine"]


def test_the_cause_of_several_loads_says_where_it_is_the_other_way_round(explained: Explained) -> None:
    slower = next(one for one in explained.accounts if one.arm == "ngram-3").model_copy(
        update={
            "baseline_ms": 10.0,
            "difference": Range(value=4.0, low=3.0, high=5.0),
            "main_cause": "ngram-3 takes 40% more time a token at 8 at a time.",
        }
    )
    update = {"point": "at rest", "difference": Range(value=-1.0, low=-2.0, high=-0.5), "main_cause": "faster."}
    found = summary([slower, slower.model_copy(update=update)], "ngram-3")
    assert found == "ngram-3 takes 40% more time a token at 8 at a time. But it takes 10% less time a token at at rest."
    assert summary([slower], "ngram-3") == slower.main_cause


def test_what_is_the_same_for_several_arms_is_told_once(explained: Explained) -> None:
    told = lines(explained)
    text = "\n".join(told)
    assert text.count("T(B, n) of the baseline's points") == 1
    assert text.count("the drafter's own time is in it") == 1
    assert (
        "- verification of more tokens: T(B, n) of the baseline's points, at the tokens of the arm's own steps [all]"
        in told
    )
    settings = [one for one in told if one.startswith("- Of ") or "is predicted" in one]
    assert len(settings) == len(set(settings))


def test_an_account_without_a_verdict_is_not_headed_as_none(explained: Explained, trial: Path) -> None:
    assert explained.summary == ""
    assert "No arm could be accounted for." not in lines(explained)
    assert lines(explained)[1].startswith("The trial's verdict is about none of these arms")
    only = explained.model_copy(update={"accounts": tuple(one for one in explained.accounts if one.diagnostic)})
    assert lines(only)[1].startswith("Its arms only measure")
    assert lines(explained.model_copy(update={"accounts": ()}))[1] == "No arm could be accounted for."
    record = read(trial)
    assert of_unfinished(explained, record) is explained
    ended = of_unfinished(explained, record.model_copy(update={"error": "ended by\nCtrl-C"}))
    assert lines(ended)[1].startswith("The trial did not end")
    assert ended.left_out[0].startswith("the trial did not end (ended by Ctrl-C)")


def test_the_summary_tells_a_load_at_which_the_arm_did_what_the_verdict_says(explained: Explained) -> None:
    """At 16 at a time it differs most, but the verdict over all loads is faster."""
    own = next(one for one in explained.accounts if one.arm == "ngram-3").model_copy(update={"baseline_ms": 10.0})
    accounts = [
        own.model_copy(
            update={
                "point": f"{load} at a time",
                "difference": Range(value=value, low=value - 0.5, high=value + 0.5),
                "main_cause": f"At {load}.",
            }
        )
        for load, value in ((1, -3.0), (16, 4.0))
    ]
    faster = summary(accounts, "ngram-3", slower=False)
    assert faster == "At 1. But it takes 40% more time a token at 16 at a time."
    assert summary(accounts, "ngram-3", slower=True).startswith("At 16. But it takes 30% less time a token")
    assert summary(accounts, "ngram-3").startswith("At 16.")


def test_causes_and_changes_tell_time_a_token_on_one_scale() -> None:
    assert how_much(-2.70, 4.02) == "67% less time"
    assert how_much(5.6, 4.0) == "140% more time"
    speed = Range(value=4.0, low=2.0, high=5.0)
    assert less_time(speed) == "75% less time a token than the baseline (4.00 times as fast, 2.00 to 5.00)"


def test_what_is_taken_for_prefills_is_said_where_the_points_are_not_of_the_trial(tmp_path: Path) -> None:
    """A trial whose server was 15 % slower than the probe's looks like one whose requests wait for prefills."""
    engine = Engine(prefill_ms=60.0, noise=0.02)
    write(tmp_path / "t", engine, BATCH_ARMS, batch=16, requests=96, seed=0)
    given = explain_trial(tmp_path / "t", batch_costs(engine))
    one = next(each for each in given.accounts if each.arm == "ngram-3")
    assert one.prefill_ms > 0.1 * one.baseline_step_ms
    said = [text for text in given.left_out if text.startswith("ngram-3 at") and "prefills of other requests" in text]
    assert len(said) == 1
    assert f"{one.prefill_ms:.2f} of the baseline's {one.baseline_ms:.2f} ms" in said[0]
    save_costs(batch_costs(engine), tmp_path / "t" / "costs.json")
    own = explain_trial(tmp_path / "t")
    assert not any("prefills of other requests" in text for text in own.left_out)


def test_a_probe_of_another_start_leaves_its_own_spread_in_what_prefills_add() -> None:
    place = SimpleNamespace(batch=4, ttft_ms=200.0, tokens=128.0)
    point = StepCost(batch=4, tokens=1, context=128, ms=10, low=9.9, high=10.1, repeats=4, how="concurrency")
    alike = prefill_share(place, 14.0, [point])  # what it reads of one
    assert alike == pytest.approx((4.0, 3.9, 4.1))
    value, low, high = prefill_share(place, 14.0, [point], restart_sd=0.07)
    # By hand: 1.96 x 0.07 x 10 = 1.37 and the probe's own 0.1; at most 3 (200 - 14) / 125 = 4.46.
    assert (value, low, high) == pytest.approx((4.0, 2.62, 4.46), abs=0.01)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-3.0, 20.0, "9.00 tokens to pay (1.00 to 20.00): a drafting step can yield 4 at most, so it may be that no"),
        (6.0, 12.0, "9.00 tokens to pay (6.00 to 12.00): a drafting step can yield 4 at most, so no acceptance pays."),
        (None, None, "9.00 tokens to pay: a drafting step can yield 4 at most, so no acceptance pays."),
    ],
)
def test_no_acceptance_pays_only_where_the_break_evens_whole_interval_says_so(
    explained: Explained, low: float | None, high: float | None, says: str
) -> None:
    one = next(each for each in explained.accounts if each.arm == "ngram-3")
    even = BreakEven(length=9.0, low=low, high=high, measured_length=1.5, longest=4)
    slower = one.model_copy(update={"difference": Range(value=4.0, low=3.0, high=5.0), "break_even": even})
    told = next(change for change in changes(slower, None, []) if change.kind == "acceptance")
    assert says in told.text
