import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.decisions.decisions_lab import ROOT

from draftworth.decisions.base import Decision, Option, Tree
from draftworth.decisions.records import Record, history_remarks, state_of
from draftworth.decisions.states import DECIDED, LEGAL, STATES, State, check_change, way
from draftworth.errors import UsageError


def test_no_way_leads_out_of_a_decision_but_by_reopening() -> None:
    for before in DECIDED:
        assert LEGAL[before] == {before, "reopened"}
    assert all("reopened" not in LEGAL[one] for one in STATES if one not in DECIDED)


def test_what_was_decided_is_reopened_on_the_way() -> None:
    assert way("ruled out", "adopted") == ("reopened", "adopted")
    assert way("adopted", "pending") == ("reopened", "pending")
    assert way("open", "adopted") == ("adopted",)
    assert way("ruled out", "ruled out") == ("ruled out",)


def test_an_illegal_change_says_what_is_legal() -> None:
    with pytest.raises(UsageError, match=r"option A: open cannot become reopened; it can become: adopted, pending"):
        check_change("A", "open", "reopened")


class History(RuleBasedStateMachine):
    """Records written one after the other: the state is always the last one's, and the history always whole."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree(options=(Option(name="A", title="a"), Option(name="B", title="b", state="pending")))
        self.records: list[Record] = []
        self.model: dict[str, State] = {"A": "open", "B": "pending"}

    @rule(option=st.sampled_from(["A", "B"]), after=st.sampled_from(STATES))
    def change(self, option: str, after: State) -> None:
        before = self.model[option]
        try:
            steps = way(before, after)
        except UsageError:
            assert after not in LEGAL[before]
            return
        for step in steps:
            check_change(option, before, step)
            number = len(self.records) + 1
            decision = Decision(
                number=number, date="2026-01-01", option=option, title="t", state=step, before=before, by="person"
            )
            self.records.append(Record(ROOT / f"{number:04}-t.md", decision, ""))
            before = step
        self.model[option] = before

    @precondition(lambda self: self.model["A"] in DECIDED)
    @rule()
    def a_decision_never_just_goes_away(self) -> None:
        with pytest.raises(UsageError):
            check_change("A", self.model["A"], "open")

    @invariant()
    def the_newest_record_says_the_state(self) -> None:
        for name, state in self.model.items():
            assert state_of(self.tree, self.records, name) == state

    @invariant()
    def the_history_is_whole(self) -> None:
        assert history_remarks(self.tree, self.records) == []


History.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
TestHistory = History.TestCase
