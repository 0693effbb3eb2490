"""Metrics, points, looks and drift of whole comparisons."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from draftworth.bench.base import RequestRow
from draftworth.findings import Code, Finding
from draftworth.verdicts.base import CategoryComparison, Comparison, Verdict
from draftworth.verdicts.compare import Compared, compare
from draftworth.verdicts.measures import level
from draftworth.verdicts.pairing import meets
from draftworth.verdicts.rules import Limits, Rules

LOOSE = Limits(ttft_ms=1e6)


def row(prompt: str, seconds: float = 1.0, **other: Any) -> RequestRow:
    """100 tokens in that many seconds, a tenth of them before the first token."""
    tokens = other.pop("tokens", 100)
    fields: dict[str, Any] = {
        "arm": "baseline",
        "block": 1,
        "category": "chat",
        "repeat": 0,
        "started_unix": 0.0,
        "ok": True,
        "tokens": tokens,
        "first_chunk_tokens": 1,
        "token_source": "usage",
        "ttft_ms": 100 * seconds,
        "decode_ms": 900 * seconds,
        "tpot_ms": 900 * seconds / (tokens - 1),
        "e2e_ms": 1000 * seconds,
    }
    return RequestRow(prompt_id=prompt, **{**fields, **other})


def failed(prompt: str, **other: Any) -> RequestRow:
    return row(prompt, ok=False, error="HTTP 503", ttft_ms=None, decode_ms=None, tpot_ms=None, e2e_ms=None, **other)


def block(seconds: Sequence[float], **other: Any) -> list[RequestRow]:
    return [row(f"p{i:02}", one, **other) for i, one in enumerate(seconds)]


def quiet(**rules: Any) -> Rules:
    return Rules(**{"prior_baseline": 0.0, "prior_variant": 0.0, "prior_ttft": 0.0, **rules})


def messages(compared: Compared, code: Code) -> list[Finding]:
    return [finding for finding in compared.findings if finding.code is code]


SPREAD = tuple(1 + 0.1 * (i % 5) + 0.01 * i for i in range(20))
HALVED = tuple(0.5 * one * (1 + 0.02 * (-1) ** i) for i, one in enumerate(SPREAD))


# --- throughput -----------------------------------------------------------------------------------------------------


def test_throughput_is_all_tokens_over_all_request_time() -> None:
    # (100 + 300) / (1 + 7) = 50; (100 + 100) / (1 + 1) = 100: twice, though the mean of the two ratios is 1.67.
    base = [row("a", 1.0), row("b", 7.0, tokens=300)]
    comparison = compare([base], [[row("a", 1.0), row("b", 1.0)]]).comparison
    assert comparison.baseline_throughput == pytest.approx(50.0)
    assert comparison.variant_throughput == pytest.approx(100.0)
    assert comparison.throughput_ratio is not None
    assert comparison.throughput_ratio.estimate == pytest.approx(2.0)


def test_more_throughput_is_faster() -> None:
    comparison = compare([block(SPREAD)], [block(HALVED)], quiet(metric="throughput")).comparison
    assert comparison.verdict is Verdict.FASTER
    assert comparison.ratio == comparison.throughput_ratio
    assert comparison.ratio is not None
    assert comparison.ratio.low is not None
    assert comparison.ratio.low > 1
    assert "tokens a second of request time" in comparison.reason
    assert compare([block(HALVED)], [block(SPREAD)], quiet(metric="throughput")).comparison.verdict is Verdict.SLOWER


def test_the_verdict_may_be_about_the_first_token() -> None:
    late = [dataclasses.replace(one, ttft_ms=2 * (one.ttft_ms or 0)) for one in block(HALVED)]
    rows = [block(SPREAD)], [late]
    assert compare(*rows, quiet()).comparison.verdict is Verdict.FASTER
    told = compare(*rows, quiet(metric="ttft")).comparison
    assert told.verdict is Verdict.NO_DIFFERENCE
    assert told.baseline_ttft_ms == pytest.approx(100 * sum(SPREAD) / 20)
    assert told.reason.startswith("TTFT ")


@pytest.mark.parametrize("metric", ["tpot", "goodput"])
def test_an_open_loop_has_no_throughput(metric: str) -> None:
    found = compare([block(SPREAD)], [block(HALVED)], quiet(metric=metric, limits=LOOSE, open_loop=True)).comparison
    assert (found.throughput_ratio, found.baseline_throughput, found.variant_throughput) == (None, None, None)
    with pytest.raises(ValueError, match="throughput needs a closed loop"):
        quiet(metric="throughput", open_loop=True)


# --- restart priors ---------------------------------------------------------------------------------------------------


def reach(rules: Rules) -> float:
    """Half the width of the log interval of what the verdict is about: 100 prompts alike in both arms, one start."""
    rows = [row(f"p{i:03}") for i in range(100)]
    ratio = compare([rows], [rows], rules).comparison.ratio
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    return float(np.log(ratio.high / ratio.low)) / 2


def test_the_default_priors_are_the_largest_spread_measured() -> None:
    # 1.959964 sqrt(0.006^2 + 0.08^2), and sqrt(2) 0.1 where the first token counts.
    assert reach(Rules()) == pytest.approx(1.959964 * 0.0802247, rel=1e-4)
    assert reach(Rules(metric="throughput")) == pytest.approx(1.959964 * 0.0802247, rel=1e-4)
    assert reach(Rules(metric="ttft")) == pytest.approx(1.959964 * 0.1414214, rel=1e-4)
    # With half a request either way of 100: 1 / 100^2.
    assert reach(Rules(metric="goodput", limits=LOOSE)) == pytest.approx(1.959964 * np.sqrt(0.02 + 1e-4), rel=1e-4)


def test_the_prior_of_ttft_is_its_own() -> None:
    rules = Rules(metric="ttft", prior_baseline=0.0, prior_variant=0.0, prior_ttft=0.03)
    assert reach(rules) == pytest.approx(1.959964 * 0.03 * np.sqrt(2), rel=1e-4)
    assert reach(Rules(prior_baseline=0.0, prior_variant=0.03, prior_ttft=0.5)) == pytest.approx(0.0587989, rel=1e-4)


def test_the_remark_on_starts_is_about_the_judged_metric() -> None:
    rows = block(SPREAD)
    (told,) = messages(compare([rows], [rows], Rules(metric="ttft")), Code.FEW_STARTS)
    # 1.96 x 14.1 %.
    assert "restarts (sd 14 %) alone make a 95 % interval of about +/- 28 %" in told.message


# --- goodput --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "other", "good"),
    [
        (Limits(ttft_ms=100), {}, True),
        (Limits(ttft_ms=99.9), {}, False),
        (Limits(e2e_ms=1000), {}, True),
        (Limits(ttft_ms=100, e2e_ms=999), {}, False),
        (Limits(tpot_ms=9.0), {}, False),  # 900 / 99 = 9.09
        (Limits(tpot_ms=9.1), {}, True),
        (Limits(tpot_ms=9.0), {"tpot_ms": None}, True),
        (Limits(ttft_ms=100), {"ttft_ms": None}, False),
        (Limits(ttft_ms=100), {"retries": 1}, False),
        (Limits(ttft_ms=100), {"ok": False}, False),
    ],
)
def test_a_request_is_good_where_it_meets_every_limit(limits: Limits, other: dict[str, Any], good: bool) -> None:  # noqa: FBT001
    assert meets(row("a", **other), limits) is good


def test_goodput_of_a_closed_loop_is_good_requests_over_the_same_time() -> None:
    # 1, 1, 3, 3 s and a limit of 2 s: 2 good in 8 s; the variant 4 good in 4 s.
    limits = Limits(e2e_ms=2000)
    comparison = compare([block([1, 1, 3, 3])], [block([1, 1, 1, 1])], quiet(limits=limits)).comparison
    assert comparison.baseline_goodput == pytest.approx(2 / 8)
    assert comparison.variant_goodput == pytest.approx(4 / 4)
    assert comparison.goodput_ratio is not None
    assert comparison.goodput_ratio.estimate == pytest.approx(4.0)
    assert compare([block([1, 1])], [block([1, 1])], quiet()).comparison.goodput_ratio is None


def test_failed_and_retried_requests_count_against_goodput_and_add_no_time() -> None:
    rows = [row("a"), row("b"), failed("c"), row("d", 9.0, retries=1)]
    good = [row(prompt) for prompt in "abcd"]
    closed = compare([rows], [good], quiet(limits=LOOSE)).comparison
    # Half of the requests x one timed request a second.
    assert closed.baseline_goodput == pytest.approx(0.5)
    assert closed.variant_goodput == pytest.approx(1.0)
    assert closed.baseline_throughput == pytest.approx(100.0)
    assert closed.pairs == 2
    opened = compare([rows], [good], quiet(limits=LOOSE, open_loop=True)).comparison
    assert opened.baseline_goodput == pytest.approx(0.5)


def test_goodput_may_be_the_verdict_under_an_open_loop() -> None:
    limits = Limits(e2e_ms=1000)
    rules = quiet(limits=limits, open_loop=True, metric="goodput")
    found = compare([block(SPREAD * 3)], [block(HALVED * 3)], rules).comparison
    assert found.verdict is Verdict.FASTER
    assert found.reason.startswith("goodput 5 % → 100 % of the requests with end to end at most 1000 ms")


def test_a_limit_that_nobody_met_has_no_ratio_and_no_verdict() -> None:
    rules = quiet(limits=Limits(ttft_ms=1), metric="goodput")
    found = compare([block(SPREAD)], [block(HALVED)], rules)
    assert found.comparison.verdict is Verdict.INCONCLUSIVE
    assert found.comparison.goodput_ratio is None
    assert "no request of the baseline and of the variant met the limits (TTFT at most 1 ms)" in found.comparison.reason
    assert messages(found, Code.LIMIT_NEVER_MET)
    assert not messages(compare([block(SPREAD)], [block(HALVED)], quiet()), Code.LIMIT_NEVER_MET)


def test_all_requests_good_in_both_arms_is_no_certainty() -> None:
    # 20 of 20 in each: half a request either way on each side, sd sqrt(2 * 0.5) / 20 = 0.05; z = 1.96.
    rules = quiet(limits=LOOSE, open_loop=True, metric="goodput")
    ratio = compare([block(SPREAD)], [block(SPREAD)], rules).comparison.goodput_ratio
    assert ratio is not None
    assert ratio.low == pytest.approx(np.exp(-0.098), abs=1e-4)
    assert ratio.high == pytest.approx(np.exp(0.098), abs=1e-4)


def test_goodput_as_the_verdict_needs_a_limit() -> None:
    with pytest.raises(ValueError, match="at least one limit"):
        Rules(metric="goodput")
    with pytest.raises(ValueError, match="above 0"):
        Limits(ttft_ms=0.0)


# --- starts, blocks, points -----------------------------------------------------------------------------------------


def test_blocks_of_one_start_are_one_start() -> None:
    halves = [block(SPREAD, block=1), block(SPREAD, block=3)]
    found = compare(halves, [block(HALVED)])
    assert "the baseline was started once" in messages(found, Code.FEW_STARTS)[0].message
    assert found.drift is None
    two = [block(SPREAD, block=1), block(SPREAD, block=3, start=2)]
    assert "the baseline was started 2 times" in messages(compare(two, [block(HALVED)]), Code.FEW_STARTS)[0].message


def test_an_arm_that_slows_down_within_a_start_is_told() -> None:
    later = [1.2 * one * (1 + 0.01 * (-1) ** i) for i, one in enumerate(SPREAD)]
    found = compare([block(SPREAD), block(SPREAD, block=3)], [block(HALVED, block=2), block(later, block=4)])
    (drift,) = messages(found, Code.BLOCK_DRIFT)
    assert "TPOT of baseline in the later half of the repeats within a start is 2." in drift.message
    assert not messages(compare([block(SPREAD), block(SPREAD, block=3)], [block(HALVED)]), Code.BLOCK_DRIFT)
    fresh = [row(f"q{i}", 3.0, block=4) for i in range(20)]
    assert not messages(compare([block(SPREAD), fresh], [block(HALVED)]), Code.BLOCK_DRIFT)


def repeated(factors: Sequence[float], **other: Any) -> list[RequestRow]:
    """One block in which every prompt is sent as often as there are factors, that much slower."""
    rows = [
        row(f"p{i:02}", factor * one * (1 + 0.01 * (-1) ** (i + repeat)), repeat=repeat, **other)
        for repeat, factor in enumerate(factors)
        for i, one in enumerate(SPREAD)
    ]
    random.Random(0).shuffle(rows)
    return rows


def block_drifts(rows: list[list[RequestRow]]) -> list[Finding]:
    return messages(compare(rows, [block(HALVED)]), Code.BLOCK_DRIFT)


def test_an_arm_that_slows_down_within_one_block_is_told_where_prompts_repeat() -> None:
    # 1.0 and 1.1, then 1.2 and 1.32: 2.52 / 2.1 = 1.2.
    (drift,) = block_drifts([repeated([1.0, 1.1, 1.2, 1.32])])
    assert drift.arm == "baseline"
    assert drift.message.startswith("TPOT of baseline in the later half of the repeats within a start is 1.200 times")
    assert not block_drifts([repeated([1.0, 1.0, 1.01, 1.0])]), "within the margin"
    assert not block_drifts([block(SPREAD)]), "nothing repeats"


def test_the_middle_one_of_an_odd_number_of_repeats_is_left_out() -> None:
    (drift,) = block_drifts([repeated([1.0, 9.0, 1.3])])
    assert "is 1.300 times" in drift.message


def test_repeats_of_several_starts_and_of_blocks_with_fresh_prompts_count_together() -> None:
    starts = [repeated([1.0, 1.1], start=start, block=start) for start in (1, 2)]
    (drift,) = block_drifts(starts)
    assert "is 1.100 times" in drift.message
    fresh = [dataclasses.replace(one, prompt_id=f"q{one.prompt_id}", block=2) for one in repeated([1.0, 1.1])]
    (drift,) = block_drifts([repeated([1.0, 1.1]), fresh])
    assert "is 1.100 times" in drift.message


def test_a_failed_repeat_keeps_its_place() -> None:
    rows = [
        failed(one.prompt_id, repeat=one.repeat) if one.prompt_id == "p00" and one.repeat < 2 else one
        for one in repeated([1.0, 1.0, 1.0, 5.0])
    ]
    # p00 was not measured in the earlier half, so its fourth is not set against its third. (1 + 5) / 2.
    (drift,) = block_drifts([rows])
    assert "is 3.00" in drift.message


def test_points_of_a_sweep_are_judged_apart_and_every_group_is_corrected_for() -> None:
    kinds = ("chat", "code")

    def sweep(low: float, high: float) -> list[RequestRow]:
        return [
            row(f"p{i:02}", factor * one * (1 + 0.01 * (-1) ** i), point=point, category=kinds[i % 2])
            for point, factor in (("1 at a time", low), ("64 at a time", high))
            for i, one in enumerate(SPREAD)
        ]

    found = compare([sweep(1.0, 2.0)], [sweep(0.5, 4.0)], quiet())
    assert [(one.kind, one.category, one.verdict) for one in found.categories[2:]] == [
        ("point", "1 at a time", Verdict.FASTER),
        ("point", "64 at a time", Verdict.SLOWER),
    ]
    assert [one.kind for one in found.categories[:2]] == ["category"] * 2
    assert found.comparison.pairs == 20, "the prompt is the unit, whatever the number of points"
    assert found.comparison.tpot_ratio is not None
    assert found.comparison.tpot_ratio.estimate == pytest.approx(4.5 / 3)
    # Two categories and two points: 1 - 0.05 / 4.
    assert level(Rules(), 1, 4).confidence == pytest.approx(0.9875)


def test_old_records_keep_loading() -> None:
    old = {"tpot_ratio": {"estimate": 0.8}, "pairs": 3, "verdict": "faster", "reason": "", "category": "code"}
    group = CategoryComparison.model_validate(old)
    assert (group.kind, group.metric, group.goodput_ratio) == ("category", "tpot", None)


# --- looks ----------------------------------------------------------------------------------------------------------


def test_a_look_uses_its_nominal_level_and_says_so() -> None:
    ratio = compare([block(SPREAD)], [block(HALVED)], Rules(look=2, looks=5)).comparison.tpot_ratio
    assert ratio is not None
    assert ratio.confidence == pytest.approx(1 - 0.0127037, abs=1e-6)
    assert ratio.method.endswith("; look 2 of 5 (linear spending)")


def test_the_whole_and_the_groups_are_two_families_of_the_stated_level() -> None:
    # 2 variants and 4 groups: 2 x 0.025 over all prompts, and 2 x 4 x 0.00625 in the groups.
    whole, group = level(Rules(), 2, 1), level(Rules(), 2, 4)
    assert 2 * (1 - whole.confidence) == pytest.approx(0.05)
    assert 2 * 4 * (1 - group.confidence) == pytest.approx(0.05)


def test_looks_share_what_the_correction_for_variants_leaves() -> None:
    assert level(Rules(looks=5), 2, 1).confidence == pytest.approx(1 - 0.05 / 2 / 5)


@pytest.mark.parametrize(
    "wrong", [{"look": 2}, {"look": 0}, {"prior_variant": -1.0}, {"prior_ttft": -1.0}, {"metric": "speed"}]
)
def test_impossible_rules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"look|prior|verdict is about"):
        Rules(**wrong)


# --- determinism ----------------------------------------------------------------------------------------------------


def mixed() -> tuple[list[list[RequestRow]], list[list[RequestRow]]]:
    """Two starts of two blocks each, with repeats, turns, failures and odd numbers."""
    rng = np.random.default_rng(1)

    def arm(name: str, factor: float) -> list[list[RequestRow]]:
        return [
            [
                row(
                    f"p{i:02}" + "#2" * (turn == 2),
                    float(factor * np.exp(rng.normal(0, 0.3))),
                    arm=name,
                    start=start,
                    block=2 * start + half,
                    turn=turn,
                    repeat=repeat,
                    category=("chat", "code", "math")[i % 3],
                    ok=bool(rng.random() > 0.02),
                )
                for i in range(12)
                for turn in (1, 2)
                for repeat in range(3)
            ]
            for start in (1, 2)
            for half in (0, 1)
        ]

    return arm("baseline", 1.0), arm("v", 0.8)


def test_the_order_of_rows_and_blocks_changes_nothing() -> None:
    base, other = mixed()
    rules = Rules(limits=Limits(e2e_ms=1000))
    first = compare(base, other, rules)
    for seed in range(5):
        order = random.Random(seed)
        turned = [[order.sample(rows, len(rows)) for rows in order.sample(arm, len(arm))] for arm in (base, other)]
        assert compare(turned[0], turned[1], rules) == first


def test_the_seed_of_pythons_hashes_changes_nothing() -> None:
    code = (
        "import json, sys; sys.path.insert(0, 'tests/verdicts')\n"
        "from test_verdicts_metrics import mixed, told\n"
        "print(json.dumps(told(*mixed())))"
    )
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] == told(*mixed())


def told(base: list[list[RequestRow]], other: list[list[RequestRow]]) -> list[Any]:
    found = compare(base, other, Rules(limits=Limits(e2e_ms=1000)))
    parts: list[Comparison | Finding] = [found.comparison, *found.categories, *found.findings]
    return [part.model_dump(mode="json") for part in parts]
