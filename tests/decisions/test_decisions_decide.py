import json
import multiprocessing
from pathlib import Path

import pytest
from tests.decisions.decisions_lab import ARMS, DEMO, ROOT, demo, edited, keep, record, run, tree

from draftworth.costs.base import Costs
from draftworth.decisions.conclude import conclude
from draftworth.decisions.records import read_all
from draftworth.errors import UsageError
from draftworth.explain.base import Account, BreakEven, Change, Explained, Part
from draftworth.predict.base import Range
from draftworth.trials.record import read

ONE = '[[options]]\nname = "A"\ntitle = "n-gram"\nmethod = "ngram"\narm = "ngram-5"\n'


def body(home: Path, number: int = 1) -> str:
    return next((home / "decisions").glob(f"{number:04}-*.md")).read_text(encoding="utf-8")


def test_the_demo_is_adopted_on_its_own_figures(tmp_path: Path) -> None:
    keep(tmp_path, demo())
    done = run(tmp_path, "decide", "latest", "--json")
    assert done.code == 0, done.err
    assert (done.json["option"], done.json["before"], done.json["state"]) == ("ngram-5", "open", "adopted")
    (one,) = read_all(tmp_path / "decisions")
    found = one.decision
    assert found.ratio is not None
    assert (round(found.ratio.value, 4), round(found.ratio.low or 0, 4), round(found.ratio.high or 0, 4)) == (
        0.7504,
        0.5650,
        0.9498,
    )
    assert (found.trial, found.arm, found.verdict, found.pairs) == ("20261130-085228", "ngram-5", "faster", 10)
    held = found.assumptions
    assert (held.engine, held.version, held.runner, held.hardware) == (
        "vllm",
        "0.32.0",
        "V1",
        "processor AMD EPYC, cores 2",
    )
    assert held.model.endswith("SmolLM2-135M-Instruct")
    assert held.categories == {"coding": 2, "editing": 2, "explanation": 2, "math": 2, "structured": 2}
    assert json.loads(held.setting)["speculative_config"]["num_speculative_tokens"] == 5
    text = body(tmp_path)
    for said in (
        "TPOT ratio to the baseline 0.750 (95 % interval 0.565 to 0.950) over 10 prompts: the whole interval is a gain",
        # 186 / 639 = 0.291, 330 / 927 = 0.356, 1 + 330 / 186 = 2.774
        "186 of 639 steps drafted (29 %); 330 of 927 drafted tokens accepted (36 %); acceptance length 2.77",
        "category coding, editing, explanation, math, structured: 2 prompts each: nothing can be said.\n",
        "Hardware: processor AMD EPYC, cores 2; GPU not recorded\n",
        "Output: same: none of 960 tokens lies beyond near ties",
        "warning baseline_drift: TPOT of the last baseline is 1.050 times",
        "Another engine version than vllm 0.32.0.",
        "lies below a speed-up of 0.98",
        "There is no account of its milliseconds: `draftworth explain 20261130-085228` makes it.",
    ):
        assert said in text, said


@pytest.mark.parametrize(
    ("verdict", "ratio", "state", "said"),
    [
        (
            "faster",
            (0.75, 0.6, 0.9),
            "adopted",
            "ratio to the baseline 0.750 (95 % interval 0.600 to 0.900) over 10 prompts",
        ),
        (
            "slower",
            (1.2, 1.1, 1.3),
            "ruled out",
            "ratio to the baseline 1.200 (95 % interval 1.100 to 1.300) over 10 prompts",
        ),
        ("no difference", (1.0, 0.99, 1.01), "ruled out", "the whole interval lies within the margin of 2 %"),
        (
            "inconclusive",
            (0.95, 0.85, 1.06),
            "pending",
            "ratio to the baseline 0.950 (95 % interval 0.850 to 1.060) over 10 prompts",
        ),
    ],
)
def test_every_verdict_has_its_state(
    tmp_path: Path, verdict: str, ratio: tuple[float, float, float], state: str, said: str
) -> None:
    keep(tmp_path, edited(verdict, ratio))
    tree(tmp_path, ONE)
    done = run(tmp_path, "decide", "20261201-100000")
    assert done.code == 0, done.err
    assert done.out.startswith(f"A: open → {state}\n")
    assert said in body(tmp_path)
    assert (read_all(tmp_path / "decisions")[0].decision.reopen_at_speed_up) == {
        "adopted": 0.98,
        "ruled out": 1.02,
    }.get(state)


def test_what_is_inconclusive_says_how_much_would_do() -> None:
    found = conclude(record(edited("inconclusive", (0.95, 0.85, 1.06))))
    # log(1.06 / 0.85) / 2 / 1.96 = 0.0563 in all; restarts 7 and 8 % with 2 and 1 starts are 0.0941, more than all.
    assert len(found.needs) == 1
    # What the trial was to see (verdict.difference), more than it saw: 1 / 0.95 - 1.
    assert "to show a difference of 10 % (it saw 5.3 %) in 80 of 100 trials: more starts and prompts" in found.needs[0]
    assert "verdict.starts = 12, with at least" in found.needs[0]
    assert "restarts 59 %, sd 9.4 %" in found.needs[0]  # 0.0941^2 / (0.0941^2 + 0.25^2 / 10)


def test_prompts_are_asked_for_where_they_are_enough() -> None:
    data = edited("inconclusive", (0.95, 0.85, 1.06))
    data["config"]["verdict"] |= {"restart_sd_baseline": 0.001, "restart_sd_variant": 0.001}
    (need,) = conclude(record(data)).needs
    # log(1.06 / 0.85) / 2 = 0.1104 is 2.262 (t of 9 degrees) standard errors: sd 0.0488 sqrt(10) = 0.154. Of a normal
    # test with 80 % power the prompts are ((1.96 + 0.84) 0.154 / log(1.1)) ** 2 = 20.5; the t-test adds a few.
    assert "spread between prompts dominates (prompts 100 % of the variance, sd 15 % a prompt" in need
    prompts = int(need.split("more prompts: ")[1].split(" with")[0])
    assert 21 <= prompts <= 25
    assert "it had 10;" in need


def test_a_trial_that_failed_is_pending_with_its_reason(tmp_path: Path) -> None:
    data = edited("error", error="the server of ngram-5 did not start:\nout of memory", error_tail=["CUDA OOM"])
    data |= {"comparison": None, "comparisons": [], "arms": data["arms"][:1], "best": None}
    keep(tmp_path, data)
    done = run(tmp_path, "decide", "latest")
    assert done.code == 0, done.err
    (one,) = read_all(tmp_path / "decisions")
    assert (one.decision.state, one.decision.verdict, one.decision.ratio) == ("pending", "error", None)
    assert one.decision.needs == (
        (
            "a trial that can be measured: the server of ngram-5 did not start: out of memory; "
            "the server's last line: CUDA OOM"
        ),
    )


@pytest.mark.parametrize(
    ("code", "arm", "state"),
    [
        ("client_saturated", "ngram-5", "pending"),
        ("foreign_requests", "other", "pending"),
        ("output_suspect", "ngram-5", "pending"),
        ("output_unchecked", "ngram-5", "pending"),
        ("client_saturated", "other", "adopted"),
        ("baseline_drift", None, "adopted"),
    ],
)
def test_a_finding_takes_back_what_is_faster(code: str, arm: str | None, state: str) -> None:
    finding = {"code": code, "severity": "warning", "message": "seen 3 times", "advice": "mend it", "arm": arm}
    found = conclude(record(edited(findings=[finding])))
    assert found.state == state
    if state == "pending":
        assert found.needs == (f"{code}: mend it",)
        assert f"taken back by a finding: {code}: seen 3 times." in found.outcome[0]


def test_a_verdict_that_a_finding_weakened_asks_for_the_finding_and_not_for_prompts() -> None:
    finding = {"code": "client_saturated", "severity": "warning", "message": "m", "advice": "a core", "arm": "ngram-5"}
    found = conclude(record(edited("inconclusive", (0.75, 0.6, 0.9), findings=[finding])))
    assert found.outcome[0].endswith(
        "0.750 (95 % interval 0.600 to 0.900) over 10 prompts: client_saturated keeps it from deciding."
    )
    assert found.needs == ("client_saturated: a core",)


def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    keep(tmp_path, edited("slower", (1.2, 1.1, 1.3)))
    assert run(tmp_path, "decide", "latest", "--state", "adopted").code == 1
    assert not (tmp_path / "decisions" / "tree.toml").exists()


def test_an_option_that_is_begun_says_what_it_is(tmp_path: Path) -> None:
    keep(tmp_path, edited())
    assert run(tmp_path, "decide", "latest").code == 0
    assert 'title = "ngram, k = 5 (ngram-5)"' in (tmp_path / "decisions" / "tree.toml").read_text(encoding="utf-8")


def test_an_output_check_that_was_switched_off_takes_nothing_back() -> None:
    finding = {"code": "output_unchecked", "severity": "warning", "message": "m", "advice": "a", "arm": "ngram-5"}
    data = edited(findings=[finding])
    data["config"]["verdict"]["output_check"] = False
    assert conclude(record(data)).state == "adopted"


def test_arms_that_measure_a_cost_decide_nothing() -> None:
    trial = read(ARMS)
    with pytest.raises(UsageError, match="null-draft drafts only where 60 tokens repeat, a null draft"):
        conclude(trial, "null-draft")
    with pytest.raises(UsageError, match="synthetic-5 accepts drafts by a configured rate"):
        conclude(trial, "synthetic-5")
    # Its verdict is about a synthetic arm: which variant is meant must be said.
    with pytest.raises(UsageError, match="name one with --arm: ngram-1, ngram-3, ngram-5, ngram-8"):
        conclude(trial)
    found = conclude(trial, "ngram-3")
    assert (found.state, found.verdict) == ("ruled out", "slower")
    assert "2.412 (99.29 % interval 1.722 to 3.378)" in found.outcome[0]


def test_no_such_arm_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="has no variant 'x'; its variants: ngram-5"):
        conclude(record(demo()), "x")


def explained(trial: str) -> Explained:
    def figure(value: float) -> Range:
        return Range(value=value, low=value - 0.1, high=value + 0.1)

    parts = (
        Part(cause="engine mode", ms=figure(1.5), evidence=("null-draft",), measured=True),
        Part(cause="rest", ms=figure(0.05)),
    )
    change = Change(
        text="k = 1 instead of 5.", arguments=("--spec", "k1"), speed_up=Range(value=1.08, low=1.03, high=1.12)
    )
    account = Account(
        arm="ngram-5",
        concurrency=1,
        baseline_ms=14,
        arm_ms=16,
        difference=figure(2),
        parts=parts,
        assigned=0.97,
        of_difference=0.97,
        steps_per_token=0.7,
        baseline_step_ms=14,
        arm_step_ms=20,
        break_even=BreakEven(length=3, measured_length=2.7, longest=6),
        main_cause="The engine's mode costs 1.5 ms a token (1.4 to 1.6)",
        changes=(change,),
    )
    return Explained(trial=trial, accounts=(account,))


def test_the_account_of_the_milliseconds_is_told(tmp_path: Path) -> None:
    folder = keep(tmp_path, edited("slower", (1.2, 1.1, 1.3)))
    (folder / "explained.json").write_text(explained("20261201-100000").model_dump_json())
    assert run(tmp_path, "decide", "latest").code == 0
    text = body(tmp_path)
    assert "- Cause: The engine's mode costs 1.5 ms a token (1.4 to 1.6).\n" in text
    assert "- engine mode: +1.50 ms a token (+1.40 to +1.60), measured here.\n" in text
    assert "- rest: +0.05 ms a token (-0.05 to +0.15).\n" in text
    assert (
        "- Would change it: k = 1 instead of 5. Predicted speed-up 1.080 (1.030 to 1.120). Start it with: --spec k1\n"
        in text
    )
    page = run(tmp_path, "decisions", "next").out
    assert "- ngram-5: k = 1 instead of 5. Predicted speed-up 1.080 (1.030 to 1.120). Start it with: --spec k1" in page


def test_a_damaged_account_is_told_and_the_record_written(tmp_path: Path) -> None:
    folder = keep(tmp_path, edited())
    (folder / "explained.json").write_text("{")
    done = run(tmp_path, "decide", "latest")
    assert done.code == 0
    assert "the record has no cause: " in done.err
    assert "explained.json: damaged" in done.err


def test_an_account_that_comes_later_is_put_into_the_same_record(tmp_path: Path) -> None:
    folder = keep(tmp_path, edited())
    assert run(tmp_path, "decide", "latest", "--cite", "Someone's blog, 2026-05: 1.3 times faster").code == 0
    path = next((tmp_path / "decisions").glob("0001*"))
    path.write_text(path.read_text(encoding="utf-8") + "We saw it too.\n", encoding="utf-8")
    (folder / "explained.json").write_text(explained("20261201-100000").model_dump_json())
    done = run(tmp_path, "decide", "latest", "--json")
    assert done.json["written_again"] is True
    (one,) = read_all(tmp_path / "decisions")
    assert "Cause: The engine's mode" in one.body
    assert one.notes.endswith("We saw it too.\n")
    assert [(each.kind, each.ours) for each in one.decision.evidence] == [("trial", True), ("published", False)]
    assert "published: 1.3 times faster [not ours: Someone's blog, 2026-05]" in one.body


def test_a_newer_trial_reopens_before_it_decides_otherwise(tmp_path: Path) -> None:
    keep(tmp_path, edited("faster"))
    run(tmp_path, "decide", "20261201-100000")
    keep(tmp_path, edited("slower", (1.2, 1.1, 1.3), trial="20261202-100000"))
    done = run(tmp_path, "decide", "latest", "--json")
    assert done.code == 0, done.err
    assert len(done.json["files"]) == 2
    states = [(one.decision.before, one.decision.state) for one in read_all(tmp_path / "decisions")]
    assert states == [("open", "adopted"), ("adopted", "reopened"), ("reopened", "ruled out")]
    assert "A newer trial says otherwise: ngram-5 is ruled out for this setting: TPOT ratio" in body(tmp_path, 2)
    stale = run(tmp_path, "decide", "20261201-100000")
    assert stale.code == 1
    assert "rests on trial 20261202-100000, which is later than 20261201-100000" in stale.err


def test_a_person_may_be_more_careful_than_the_figures_and_not_less(tmp_path: Path) -> None:
    keep(tmp_path, edited("faster"))
    done = run(tmp_path, "decide", "latest", "--state", "pending")
    assert done.code == 0, done.err
    (one,) = read_all(tmp_path / "decisions")
    assert (one.decision.by, one.decision.state) == ("person", "pending")
    assert "The figures alone say adopted; a person chose pending." in one.body
    keep(tmp_path, edited("slower", (1.2, 1.1, 1.3), trial="20261203-100000"))
    done = run(tmp_path, "decide", "latest", "--state", "adopted")
    assert done.code == 1
    assert "ngram-5 cannot be adopted on this: ngram-5 is ruled out for this setting: TPOT ratio" in done.err
    assert len(read_all(tmp_path / "decisions")) == 1


def test_without_a_trial_nothing_is_adopted(tmp_path: Path) -> None:
    tree(tmp_path, ONE)
    done = run(tmp_path, "decide", "--option", "A", "--state", "adopted")
    assert (done.code, "only a trial can make it adopted" in done.err) == (1, True)
    assert run(tmp_path, "decide", "--option", "A", "--state", "running").code == 0
    assert "A  running" in run(tmp_path, "decisions").out
    assert "which trial?" in run(tmp_path, "decide").err


def _decide(home: str, option: str) -> None:
    for _ in range(3):
        assert run(Path(home), "decide", "--option", option, "--state", "pending").code == 0


def test_decisions_at_once_each_have_their_number(tmp_path: Path) -> None:
    options = [f"o{at}" for at in range(4)]
    tree(tmp_path, "".join(f'[[options]]\nname = "{one}"\ntitle = "{one}"\n' for one in options))
    context = multiprocessing.get_context("fork")
    some = [context.Process(target=_decide, args=(str(tmp_path), one)) for one in options]
    for one in some:
        one.start()
    for one in some:
        one.join()
        assert one.exitcode == 0
    found = read_all(tmp_path / "decisions")
    assert [one.decision.number for one in found] == list(range(1, 13))
    assert run(tmp_path, "decisions", "--json").json["history"] == []


def test_wrong_words_are_one_line(tmp_path: Path) -> None:
    keep(tmp_path, edited())
    tree(tmp_path, ONE)
    for words, told in (
        (("--option", "a"), "no option 'a' in tree.toml; the tree has: A"),
        (
            ("--state", "done"),
            "--state: must be one of open, pending, running, ruled out, adopted, reopened, not 'done'",
        ),
        (("--cite", "some blog"), "--cite: 'some blog' is no trial's id, no file, and no published result"),
        (("--cite", "x, 2026-13: y"), "--cite: date must be YYYY, YYYY-MM or YYYY-MM-DD, not '2026-13'"),
        (("--arm", "baseline"), "has no variant 'baseline'; its variants: ngram-5"),
    ):
        done = run(tmp_path, "decide", "latest", *words)
        assert (done.code, told in done.err, done.err.count("\n")) == (1, True, 1), done.err
    assert read_all(tmp_path / "decisions") == []


def test_cited_files_are_told_by_what_they_are(tmp_path: Path) -> None:
    keep(tmp_path, edited())
    keep(tmp_path, edited(trial="20261101-101010"))
    costs = tmp_path / "costs" / "c.json"
    costs.parent.mkdir()
    costs.write_text(Costs(created="2026-12-03T00:00:00Z").model_dump_json())
    profile = DEMO.parent / "h200_profile" / "read-baseline-1.json"
    trace = ROOT / "tests" / "profiles" / "data" / "vllm_cpu_base_rank0.pt.trace.json.gz"
    reported = ROOT / "examples" / "kimi-k2.5" / "evidence" / "ngram-5.json"
    cites = [word for one in (costs, "20261101-101010", profile, trace, reported) for word in ("--cite", one)]
    done = run(tmp_path, "decide", "latest", *cites)
    assert done.code == 0, done.err
    (one,) = read_all(tmp_path / "decisions")
    evidence = one.decision.evidence
    assert [(each.kind, each.path or each.trial) for each in evidence[:3]] == [
        ("trial", "20261201-100000"),
        ("costs", "costs/c.json"),
        ("trial", "20261101-101010"),
    ]
    assert [(each.kind, each.ours) for each in evidence[3:]] == [
        ("profile", True),
        ("profile", True),
        ("reported", False),
    ]
    # A record is meant for git: no path of this machine, and each leads to its file.
    for each in evidence[3:]:
        assert each.path is not None
        assert not Path(each.path).is_absolute()
        assert (tmp_path / each.path).is_file()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("no.json", "hello", "no.json is no prediction, no costs file, no profile and no reported trial"),
        ("empty.json", "", "nothing in it is evidence"),
        ("list.json", "[1]", "nothing in it is evidence"),
        ("costs.json", '{"points": []}', "created"),
        ("half.json", '{"settings": [], "verdict": ""}', "nothing in it is evidence"),
        ("other.bin", "\x00\x01", "nothing in it is evidence"),
    ],
)
def test_a_cited_file_that_is_no_evidence_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    keep(tmp_path, edited())
    path = tmp_path / "pr" / name
    path.parent.mkdir()
    path.write_text(text)
    done = run(tmp_path, "decide", "latest", "--cite", path)
    assert (done.code, told in done.err, done.err.count("\n")) == (1, True, 1), done.err
    assert read_all(tmp_path / "decisions") == []


def test_a_cited_trial_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    keep(tmp_path, edited())
    done = run(tmp_path, "decide", "latest", "--cite", "20250101-000000")
    assert (done.code, "--cite: no trial 20250101-000000 in " in done.err) == (1, True)
    assert read_all(tmp_path / "decisions") == []


def test_records_of_older_versions_are_decided_on() -> None:
    old = read(DEMO.parent / "h200_moe_trial")
    found = conclude(old)
    assert found.state == "adopted"
    assert "0.327 (95 % interval 0.297 to 0.361)" in found.outcome[0]
    assert found.assumptions.model == "/tmp/o/model"
    # Every confounder is told, with both values.
    assert sum("Not declared, but different" in line for line in found.consequences) == 4
