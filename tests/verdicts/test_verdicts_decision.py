import subprocess
import sys

import pytest

from draftworth.verdicts.base import CategoryComparison, Comparison, Interval, OutputCheck, Verdict
from draftworth.verdicts.decision import decide, override


def judged(low: float | None, high: float | None) -> Verdict:
    return decide(Interval(estimate=1.0, low=low, high=high), 0.02)[0]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.66, 0.81, Verdict.FASTER),
        (0.97, 0.9999, Verdict.FASTER),
        (1.001, 1.30, Verdict.SLOWER),
        (0.985, 0.995, Verdict.NO_DIFFERENCE),
        (0.981, 1.019, Verdict.NO_DIFFERENCE),
        (1.001, 1.019, Verdict.NO_DIFFERENCE),
        (0.98, 1.0, Verdict.INCONCLUSIVE),
        (0.99, 1.03, Verdict.INCONCLUSIVE),
        (0.5, 1.5, Verdict.INCONCLUSIVE),
        (None, None, Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdict_follows_from_the_interval(low: float | None, high: float | None, verdict: Verdict) -> None:
    assert judged(low, high) is verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.10, 1.30, Verdict.FASTER),
        (0.70, 0.90, Verdict.SLOWER),
        (0.99, 1.01, Verdict.NO_DIFFERENCE),
        (0.90, 1.10, Verdict.INCONCLUSIVE),
    ],
)
def test_more_is_better_for_throughput_and_goodput(low: float, high: float, verdict: Verdict) -> None:
    interval = Interval(estimate=1.0, low=low, high=high)
    assert decide(interval, 0.02, "throughput")[0] is verdict
    assert decide(interval, 0.02, "goodput")[0] is verdict


# --- the output check has the last word -----------------------------------------------------------------------------

FASTER = Comparison(verdict=Verdict.FASTER, reason="TPOT 13.9 → 10.2 ms (ratio 0.734)")


@pytest.mark.parametrize(
    ("status", "before", "after"),
    [
        ("same", Verdict.FASTER, Verdict.FASTER),
        ("suspect", Verdict.FASTER, Verdict.INCONCLUSIVE),
        ("unchecked", Verdict.FASTER, Verdict.INCONCLUSIVE),
        ("suspect", Verdict.SLOWER, Verdict.SLOWER),
        ("unchecked", Verdict.NO_DIFFERENCE, Verdict.NO_DIFFERENCE),
        ("diverged", Verdict.FASTER, Verdict.ERROR),
        ("diverged", Verdict.SLOWER, Verdict.ERROR),
        ("diverged", Verdict.NO_DIFFERENCE, Verdict.ERROR),
    ],
)
def test_output_overrides_speed(status: str, before: Verdict, after: Verdict) -> None:
    comparison = FASTER.model_copy(update={"verdict": before})
    result = override(comparison, OutputCheck(status=status, reason="678 of 6,559 tokens"))
    assert result.verdict is after
    if before is after:
        assert result == comparison
    else:
        assert "678 of 6,559 tokens" in result.reason
        assert "TPOT 13.9 → 10.2 ms (ratio 0.734)" in result.reason


def test_a_wrong_output_says_so_first() -> None:
    result = override(FASTER, OutputCheck(status="diverged", reason="many"))
    assert result.reason.startswith("wrong output")


def test_overriding_a_category_keeps_it_a_category() -> None:
    group = CategoryComparison(category="code", verdict=Verdict.FASTER)
    result = override(group, OutputCheck(status="unchecked", reason="off"))
    assert isinstance(result, CategoryComparison)
    assert result.category == "code"


def test_importing_the_package_loads_no_numpy() -> None:
    code = (
        "import sys, draftworth.verdicts, draftworth.verdicts.output_check as checks\n"
        "checks.judge([], [])\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
