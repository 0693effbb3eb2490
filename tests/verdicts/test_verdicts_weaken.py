import pytest

from draftworth.findings import Code, Finding, find
from draftworth.verdicts.base import CategoryComparison, Comparison, Interval, Verdict
from draftworth.verdicts.weaken import weaken

RATIO = Interval(estimate=0.8, low=0.7, high=0.9)


def compared(verdict: Verdict) -> Comparison:
    return Comparison(tpot_ratio=RATIO, pairs=12, verdict=verdict, reason="TPOT 10 → 8 ms")


@pytest.mark.parametrize("verdict", [Verdict.FASTER, Verdict.SLOWER])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.FOREIGN_REQUESTS, "somebody else used the server"),
        (Code.SPECULATION_OFF, "the variant did not speculate"),
        (Code.BASELINE_SPECULATES, "the baseline speculates too"),
        (Code.PREFIX_CACHE_WARMER, "the prefix cache was warmer in one arm"),
        (Code.SYNTHETIC_ACCEPTANCE, "drafts were accepted by a configured rate"),
        (Code.CLIENT_SATURATED, "the client could not keep up"),
        (Code.DRAFTS_REMEMBERED, "the drafter had met these prompts' answers before"),
        (Code.SAMPLED_DIVERGED, "its sampled answers come from another distribution than the baseline's"),
    ],
)
def test_what_was_not_measured_as_claimed_is_inconclusive_and_keeps_its_figures(
    verdict: Verdict, code: Code, words: str
) -> None:
    found = weaken(compared(verdict), [find(code, "x"), find(code, "y")])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason.startswith(f"{verdict}, but {words}")
    assert found.reason.endswith("Measured speed: TPOT 10 → 8 ms")
    assert found.reason.count(words) == 1
    assert (found.tpot_ratio, found.pairs) == (RATIO, 12)


def late(share: float | None, arm: str = "a") -> Finding:
    return find(Code.CLIENT_SATURATED, "x", arm=arm, accounts_for=share)


@pytest.mark.parametrize(
    ("findings", "stands"),
    [
        # The interval ends at 0.9: -log(0.9) = 0.105.
        ([late(0.10)], True),
        ([late(0.11)], False),
        ([late(0.06, "baseline"), late(0.05)], False),
        ([late(0.05), late(0.06), late(0.04)], True),  # points of one arm: the worst of them
        ([late(0.01), late(None)], False),
        ([late(0.01), find(Code.FOREIGN_REQUESTS, "y")], False),
    ],
)
def test_a_hiccup_takes_back_what_it_can_account_for(findings: list[Finding], *, stands: bool) -> None:
    found = weaken(compared(Verdict.FASTER), findings)
    assert (found.verdict is Verdict.FASTER) == stands


def test_slower_is_taken_back_by_what_can_account_for_it() -> None:
    slower = compared(Verdict.SLOWER).model_copy(update={"tpot_ratio": Interval(estimate=2.0, low=1.2, high=3.0)})
    assert weaken(slower, [late(0.15)]) == slower  # log(1.2) = 0.18
    assert weaken(slower, [late(0.2)]).verdict is Verdict.INCONCLUSIVE
    unknown = slower.model_copy(update={"tpot_ratio": Interval(estimate=2.0, low=None, high=None)})
    assert weaken(unknown, [late(0.01)]).verdict is Verdict.INCONCLUSIVE


def test_two_reasons_are_both_told() -> None:
    found = weaken(compared(Verdict.FASTER), [find(Code.SPECULATION_OFF, "x"), find(Code.FOREIGN_REQUESTS, "y")])
    assert "the variant did not speculate and somebody else used the server" in found.reason


@pytest.mark.parametrize("verdict", [Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.ERROR])
def test_other_verdicts_stay(verdict: Verdict) -> None:
    assert weaken(compared(verdict), [find(code, "x") for code in Code]) == compared(verdict)


def test_other_findings_leave_a_verdict() -> None:
    weakening = {
        *(Code.FOREIGN_REQUESTS, Code.SPECULATION_OFF, Code.BASELINE_SPECULATES),
        *(Code.PREFIX_CACHE_WARMER, Code.SYNTHETIC_ACCEPTANCE, Code.CLIENT_SATURATED),
        *(Code.DRAFTS_REMEMBERED, Code.SAMPLED_DIVERGED),
    }
    others = [find(code, "x") for code in Code if code not in weakening]
    assert weaken(compared(Verdict.FASTER), others) == compared(Verdict.FASTER)


def test_a_category_stays_a_category() -> None:
    one = CategoryComparison(category="chat", verdict=Verdict.SLOWER)
    found = weaken(one, [find(Code.FOREIGN_REQUESTS, "x")])
    assert (found.category, found.verdict) == ("chat", Verdict.INCONCLUSIVE)


def test_a_colder_cache_takes_only_a_slowdown_back() -> None:
    colder = [find(Code.PREFIX_CACHE_COLDER, "x")]
    assert weaken(compared(Verdict.FASTER), colder) == compared(Verdict.FASTER)
    found = weaken(compared(Verdict.SLOWER), colder)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the baseline's prefix cache was warmer" in found.reason
