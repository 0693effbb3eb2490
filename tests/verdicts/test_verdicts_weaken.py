import pytest

from draftworth.findings import Code, find
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
