"""Records and evidence held against what they rest on."""

import json
import shutil
from pathlib import Path

import pytest
from tests.decisions.decisions_lab import ARMS, ROOT, edited, keep, run, tree
from tests.decisions.test_decisions_decide import explained

from draftworth.decisions.conclude import conclude
from draftworth.decisions.records import read_all
from draftworth.errors import UsageError
from draftworth.predict.base import Range
from draftworth.trials.record import read

ONE = '[[options]]\nname = "A"\ntitle = "n-gram"\nmethod = "ngram"\narm = "ngram-5"\n'
SLOWER = (1.2, 1.1, 1.3)


@pytest.fixture
def ruled_out(tmp_path: Path) -> Path:
    keep(tmp_path, edited("slower", SLOWER))
    tree(tmp_path, ONE)
    assert run(tmp_path, "decide", "latest").code == 0
    return tmp_path


def edit(home: Path, old: str, new: str) -> None:
    (path,) = (home / "decisions").glob("0001-*")
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


# --- a record that was edited


def test_a_state_that_was_edited_is_to_be_reopened_everywhere(ruled_out: Path) -> None:
    edit(ruled_out, 'state = "ruled out"', 'state = "adopted"')
    said = "was edited by hand and says adopted, the trial ruled out (trial 20261201-100000: ngram-5 is ruled out"
    done = run(ruled_out, "decisions", "check")
    assert (done.code, "Nothing is to be reopened" in done.out) == (0, False)
    assert done.out.startswith("Reopen A (adopted, 0001-")
    assert said in done.out
    page = run(ruled_out, "decisions", "next").out
    assert "## Should be reopened" in page
    assert said in page
    assert "should be reopened, see above)" in page.split("## Decided")[1]
    assert said in run(ruled_out, "decisions").out
    assert run(ruled_out, "decisions", "check", "--apply").code == 0
    assert "A  reopened" in run(ruled_out, "decisions").out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('verdict = "slower"', 'verdict = "faster"', "says verdict faster, the trial slower"),
        ("value = 1.2\n", "value = 1.15\n", "says ratio 1.150 or another interval, the trial 1.200"),
        ("low = 1.1\n", "low = 1.19\n", "says ratio 1.200 or another interval"),
    ],
)
def test_figures_that_were_edited_too(ruled_out: Path, old: str, new: str, said: str) -> None:
    edit(ruled_out, old, new)
    assert said in run(ruled_out, "decisions", "check").out


def test_a_state_edited_to_one_that_is_not_decided_is_told(ruled_out: Path) -> None:
    edit(ruled_out, 'state = "ruled out"', 'state = "open"')
    assert "says open, the trial ruled out" in run(ruled_out, "decisions", "check").out
    assert "says open, the trial ruled out" in run(ruled_out, "decisions", "next").out


def test_text_that_was_edited_and_agrees_with_its_trial_reopens_nothing(ruled_out: Path) -> None:
    edit(ruled_out, "the whole interval is a loss", "it is a loss")
    out = run(ruled_out, "decisions", "check").out
    assert "Nothing is to be reopened." in out
    assert "what was made from figures was edited by hand" in out


def test_an_edited_record_whose_trial_is_not_here_is_marked(ruled_out: Path) -> None:
    edit(ruled_out, 'state = "ruled out"', 'state = "adopted"')
    shutil.rmtree(ruled_out / "trials")
    out = run(ruled_out, "decisions", "check").out
    assert "was edited by hand, and trial 20261201-100000 is not here to hold it against" in out
    assert "option A: trial 20261201-100000 is not in " in out


def test_a_reported_trial_holds_its_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(ROOT / "examples" / "kimi-k2.5", home)
    assert "Nothing is to be reopened." in run(home, "decisions", "check").out
    edit(home, 'state = "ruled out"', 'state = "adopted"')
    assert "says adopted, the trial ruled out (evidence/ngram-5.json" in run(home, "decisions", "check").out


def test_a_person_may_have_been_more_careful(tmp_path: Path) -> None:
    keep(tmp_path, edited("faster"))
    assert run(tmp_path, "decide", "latest", "--state", "ruled out").code == 0
    assert "Nothing is to be reopened." in run(tmp_path, "decisions", "check").out


# --- evidence that leads nowhere


def test_evidence_of_the_tree_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    tree(
        tmp_path,
        ONE
        + '[[options.evidence]]\nkind = "trial"\ntrial = "20260101-000000"\n'
        + '[[options.evidence]]\nkind = "profile"\npath = "/nowhere/x.json"\n'
        + '[[options.evidence]]\nkind = "prediction"\npath = "predictions/none.json"\n',
    )
    for words in (("decisions",), ("decisions", "check"), ("decisions", "next")):
        out = run(tmp_path, *words).out
        for said in (
            "tree.toml, option A: trial 20260101-000000 is not in ",
            "tree.toml, option A: there is no file /nowhere/x.json in ",
            "tree.toml, option A: there is no file predictions/none.json in ",
        ):
            assert out.count(said) == 1, (words, said)


# --- a failed trial


@pytest.mark.parametrize(("verdict", "ratio"), [("inconclusive", (0.95, 0.85, 1.06)), ("faster", (0.75, 0.6, 0.9))])
def test_a_failed_trial_does_not_take_the_place_of_figures(
    tmp_path: Path, verdict: str, ratio: tuple[float, float, float]
) -> None:
    keep(tmp_path, edited(verdict, ratio))
    tree(tmp_path, ONE)
    assert run(tmp_path, "decide", "latest").code == 0
    assert run(tmp_path, "decide", "--option", "A", "--state", "running").code == (verdict == "faster")
    keep(tmp_path, edited("error", trial="20261202-100000", error="interrupted"))
    # It is not asked for either.
    assert "20261202-100000" not in run(tmp_path, "decisions", "check").out
    before = read_all(tmp_path / "decisions")
    for words in ((), ("--state", "pending")):
        done = run(tmp_path, "decide", "latest", *words)
        assert done.code == 1
        assert "trial 20261202-100000 could not be measured, so it says nothing of option A: 0001-" in done.err
        assert "stands, with the figures of 20261201-100000" in done.err
    assert read_all(tmp_path / "decisions") == before


# --- what is next


def test_the_gain_is_what_the_arms_account_predicts(tmp_path: Path) -> None:
    folder = keep(tmp_path, edited("inconclusive", (0.95, 0.85, 1.06)))
    told = explained("20261201-100000")
    (account,) = told.accounts
    change = account.changes[0].model_copy(
        update={"text": "k = 12 instead of 5.", "speed_up": Range(value=1.38, low=1.0, high=1.91)}
    )
    more = told.model_copy(update={"accounts": (account.model_copy(update={"changes": (change, *account.changes)}),)})
    (folder / "explained.json").write_text(more.model_dump_json())
    tree(tmp_path, ONE)
    assert run(tmp_path, "decide", "latest").code == 0
    page = run(tmp_path, "decisions", "next").out
    source = "the account of trial 20261201-100000: k = 12 instead of 5."
    assert f"- Expected speed-up: 1.38 (1 to 1.91), {source}\n" in page


def test_what_is_reopened_says_what_it_needs(ruled_out: Path) -> None:
    assert run(ruled_out, "decide", "--option", "A", "--state", "reopened").code == 0
    page = run(ruled_out, "decisions", "next").out
    assert "- Needs: a new trial of ngram-5, decided on with --option A: By hand; no trial." in page


# --- gates that wait for each other


def test_gates_that_wait_for_each_other_are_named(tmp_path: Path) -> None:
    def option(name: str, other: str, state: str = "adopted") -> str:
        gate = f'[options.gate]\nwords = "w"\nall = [{{ any = [{{ option = "{other}", state = ["{state}"] }}] }}]\n'
        return f'[[options]]\nname = "{name}"\ntitle = "t"\n{gate}'

    tree(tmp_path, option("A", "B") + option("B", "C") + option("C", "A") + option("D", "A") + option("E", "E"))
    out = run(tmp_path, "decisions", "check").out
    assert "A: its gate waits for B, which waits for C, which waits for A: none of these gates can open" in out
    assert "B: its gate waits for C, which waits for A, which waits for B:" in out
    assert "E: its gate waits for E:" in out
    assert "D: its gate waits" not in out
    assert "Needs: its gate waits for B, which waits for C" in run(tmp_path, "decisions", "next").out
    tree(tmp_path, option("A", "B") + option("B", "A", "open"))
    assert "waits for" not in run(tmp_path, "decisions", "check").out, "B's gate holds: A is open"


# --- words


def test_what_a_person_chose_is_what_is_said(tmp_path: Path) -> None:
    keep(tmp_path, edited("faster"))
    assert run(tmp_path, "decide", "latest").code == 0
    done = run(tmp_path, "decide", "latest", "--state", "pending")
    assert done.out.startswith(
        "ngram-5: adopted → pending\nngram-5 is pending, as a person chose. The figures alone say"
    )
    assert "ngram-5 is adopted" not in done.out
    reopened = read_all(tmp_path / "decisions")[1]
    assert "A newer trial says otherwise" not in reopened.body
    assert "The figures alone say adopted; a person chose pending." in reopened.body


def test_a_wrong_arm_names_those_that_can_be_decided_on() -> None:
    with pytest.raises(UsageError, match=r"has no variant 'nope'; its variants: ngram-1, ngram-3, ngram-5, ngram-8$"):
        conclude(read(ARMS), "nope")


def test_a_trials_other_variants_were_considered_too(tmp_path: Path) -> None:
    assert run(tmp_path, "decide", ARMS, "--arm", "ngram-3").code == 0
    (one,) = read_all(tmp_path / "decisions")
    considered = one.body.split("## Considered options")[1].split("##")[0]
    for name in ("ngram-1", "ngram-5", "ngram-8"):
        verdict = next(each.verdict for each in read(ARMS).comparisons if each.arm == name)
        assert f"- Variant {name} of the same trial: {verdict}, TPOT ratio " in considered
    assert "null-draft" not in considered
    assert "synthetic" not in considered


def test_a_person_is_told_of_variants_that_were_not_decided_on(tmp_path: Path) -> None:
    told = "3 further variants are in the trial and not decided on by this: --arm NAME decides on one of them"
    verdict_of_one = ARMS.parents[1] / "h200-smollm2-b" / "all-4"
    assert told in run(tmp_path, "decide", verdict_of_one).err
    assert "further variant" not in run(tmp_path, "decide", verdict_of_one, "--arm", "ngram-1").err


def test_help_of_state_names_every_state(tmp_path: Path) -> None:
    out = " ".join(run(tmp_path, "decide", "--help").out.replace("│", " ").split())
    assert "running, ruled out, adopted, reopened" in out


def test_a_gpu_that_is_recorded_is_told(tmp_path: Path) -> None:
    data = edited()
    data["machine"]["gpus"] = ["1 x NVIDIA H200"]
    keep(tmp_path, json.loads(json.dumps(data)))
    assert run(tmp_path, "decide", "latest").code == 0
    assert "GPU not recorded" not in read_all(tmp_path / "decisions")[0].body
