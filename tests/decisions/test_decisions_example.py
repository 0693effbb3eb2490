"""The Kimi example: its record and its page are what its tree and evidence give, and its figures are the case's."""

import shutil
import statistics
from pathlib import Path

import pytest
from tests.decisions.decisions_lab import ROOT, run

from benchmarks import prediction_case
from draftworth.decisions.check import check
from draftworth.decisions.conclude import Conclusion
from draftworth.decisions.decide import Wish, decide
from draftworth.decisions.known import Known
from draftworth.decisions.nextpage import next_steps, page
from draftworth.decisions.records import read_all
from draftworth.decisions.reported import conclude_reported, load_reported
from draftworth.decisions.tree import load_tree
from draftworth.errors import UsageError

EXAMPLE = ROOT / "examples" / "kimi-k2.5"
REPORTED = "evidence/ngram-5.json"


def concluded() -> Conclusion:
    return conclude_reported(load_reported(EXAMPLE / REPORTED), REPORTED)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "home")
    return tmp_path / "home"


def test_deciding_from_nothing_gives_the_same_record(home: Path) -> None:
    (there,) = read_all(EXAMPLE / "decisions")
    assert not there.edited
    (home / "decisions" / there.path.name).unlink()
    decide(concluded(), Wish(today=there.decision.date, option="A"), home / "decisions", method="ngram")
    (made,) = read_all(home / "decisions")
    assert made.path.name == there.path.name
    assert (made.decision, made.body) == (there.decision, there.body)


def test_deciding_again_changes_no_byte_of_the_record_or_the_page(home: Path) -> None:
    done = run(home, "decide", home / REPORTED, "--option", "A", "--json")
    assert (done.code, done.json["written_again"]) == (0, True), done.err
    assert run(home, "decisions", "next", "--out", home / "next.md").code == 0
    for path in sorted(one for one in EXAMPLE.rglob("*") if one.is_file() and one.name != ".last"):
        assert (home / path.relative_to(EXAMPLE)).read_bytes() == path.read_bytes(), path


def test_the_page_is_that_of_the_tree() -> None:
    known = Known.read(EXAMPLE / "decisions")
    assert page(next_steps(known, check(known))) == (EXAMPLE / "next.md").read_text(encoding="utf-8")


def test_figures_of_a_are_the_reported_ones() -> None:
    told = load_reported(EXAMPLE / REPORTED)
    assert [(one.baseline, one.variant) for one in told.rows] == list(prediction_case.PROMPTS.values())
    found = concluded()
    assert (found.state, found.by) == ("ruled out", "reported")
    # Mean of 1000 / tokens a second: 16.77 ms with, 13.84 ms without.
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(16.768 / 13.841, rel=1e-3)
    assert (found.ratio.low, found.ratio.high) == (None, None)  # none was reported, and none is made up
    assert "1.097 to 1.349 by prompt" in found.outcome[0]  # 79.5 / 72.5 and 62.6 / 46.4


def test_figures_of_the_tree_are_those_of_the_pages() -> None:
    options = {one.name: one for one in load_tree(EXAMPLE / "decisions").options}
    rows = [one for one in prediction_case.rows() if one.coverage == prediction_case.SHOWN]
    even = [one.told[0].break_even_length for one in rows]
    (length,) = [one.length for one in options["A"].evidence if one.kind == "break-even"]
    assert length is not None
    assert (length.value, length.low, length.high) == tuple(
        round(one, 2) for one in (statistics.median(even), min(even), max(even))
    )
    gains = [one for row in rows for told in row.told for one in (told.if_mode[2], told.if_verify[2])]
    gain = options["A1"].gain
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == tuple(
        round(one, 2) for one in (statistics.median(gains), min(gains), max(gains))
    )
    (length,) = [one.length for one in options["C"].evidence if one.kind == "break-even"]
    assert length is not None
    steps = dict(zip(prediction_case.STREAMS, prediction_case.STEP_MS, strict=True))
    free = steps[4] / steps[1]
    assert (length.low, length.value, length.high) == (
        round(free, 2),
        round(free + 3 * 0.05, 2),
        round(free + 3 * 0.05 + 0.77, 2),
    )


def test_c_hangs_on_the_head_and_not_on_n_gram(home: Path) -> None:
    found = {one["option"]: one for one in run(home, "decisions", "--json").json["options"]}
    assert {name: one["state"] for name, one in found.items()} == {
        "A": "ruled out",
        "A1": "open",
        "B": "open",
        "C": "pending",
        "D": "open",
        "D1": "open",
    }
    assert found["C"]["holds"]["holds"] is None
    assert (
        "was trained for Kimi-K2 (not ours: its model page, 2026), not for Kimi-K2.5" in found["C"]["holds"]["reason"]
    )
    assert found["C"]["remarks"] == []
    path = home / "decisions" / "tree.toml"
    text = path.read_text(encoding="utf-8")
    before, rest = text.split('instead_of = "if n-gram works"')
    gate = before.rindex("all = [\n")
    as_it_was = f'{before[:gate]}all = [{{ trial = "ngram-5", verdict = "faster" }}]\n'
    path.write_text(as_it_was + rest.split("\n", 2)[2], encoding="utf-8")
    (remark,) = [
        one for one in run(home, "decisions", "check").out.splitlines() if one.startswith("C: C: ") or "hangs" in one
    ]
    assert "its gate hangs on ngram-5, which drafts by ngram: that says nothing of what a head (eagle3)" in remark


@pytest.mark.parametrize(
    ("reached", "word"), [("value = 2.6", "yes"), ("value = 2.0", "not known"), ("value = 1.3", "no")]
)
def test_c_opens_once_its_head_was_checked_and_measured(home: Path, reached: str, word: str) -> None:
    (home / "evidence" / "head-check.json").write_text("{}")
    path = home / "decisions" / "tree.toml"
    text = path.read_text(encoding="utf-8")
    old = 'trained_for = "Kimi-K2"\n'
    path.write_text(text.replace(old, f"{old}k = 3\nlength = {{ {reached} }}\n"), encoding="utf-8")
    (line,) = [one for one in run(home, "decisions", "check").out.splitlines() if one.startswith("C: gate")]
    assert line.startswith(f"C: gate {word}: ")


@pytest.mark.parametrize(
    ("rates", "state", "needs"),
    [
        ((1.3, 1.2), "pending", True),
        ((1.3, 0.8), "pending", True),
        ((0.9, 0.8), "ruled out", False),
        ((0.99, 0.8), "pending", True),
    ],
)
def test_what_others_reported_never_adopts(rates: tuple[float, ...], state: str, *, needs: bool) -> None:
    told = load_reported(EXAMPLE / REPORTED)
    rows = tuple(
        one.model_copy(update={"variant": one.baseline * rate}) for one, rate in zip(told.rows, rates, strict=False)
    )
    found = conclude_reported(told.model_copy(update={"rows": rows}), REPORTED)
    assert (found.state, bool(found.needs)) == (state, needs)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no reported trial that can be read"),
        ('{"points": []}', 'it does not say "kind": "reported trial"'),
        ('{"kind": "reported trial", "source": "s", "date": "2026", "arm": "a", "rows": []}', "rows: "),
        (
            """{"kind": "reported trial", "source": "s", "date": "2026", "arm": "a",
            "rows": [{"prompt": "p", "baseline": 1, "variant": 0}]}""",
            r"rows\[0\]\.variant: Input should be greater than 0",
        ),
    ],
)
def test_a_report_that_is_none_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        load_reported(path)
