import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from draftworth.bench.base import RequestRow
from draftworth.findings import Code, Finding
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.compare import Compared, category_of, compare
from draftworth.verdicts.pairing import pair, starts_of
from draftworth.verdicts.rules import Metric, Rules

SPREAD = (10.0, 12.0, 14.0, 11.0, 13.0, 15.0, 9.0, 12.5, 13.5, 10.5, 11.5, 14.5)


def row(prompt: str, tpot: float, *, arm: str = "baseline", tokens: int = 101, category: str = "chat") -> RequestRow:
    return RequestRow(
        arm=arm,
        block=0,
        prompt_id=prompt,
        category=category,
        repeat=0,
        started_unix=0.0,
        ok=True,
        tokens=tokens,
        first_chunk_tokens=1,
        token_source="usage",
        ttft_ms=8 * tpot,
        decode_ms=tpot * (tokens - 1),
        tpot_ms=tpot,
    )


def failed(prompt: str, *, arm: str = "baseline", error: str | None = "timed out") -> RequestRow:
    return dataclasses.replace(row(prompt, 1.0, arm=arm), ok=False, error=error, tpot_ms=None, decode_ms=None)


def block(
    tpots: Sequence[float], *, arm: str = "baseline", tokens: int = 101, categories: Sequence[str] = ("chat",)
) -> list[RequestRow]:
    return [
        row(f"p{i:02}", tpot, arm=arm, tokens=tokens, category=categories[i % len(categories)])
        for i, tpot in enumerate(tpots)
    ]


def scaled(factor: float, wobble: float = 0.02) -> list[float]:
    """SPREAD times a factor, prompts differing a little, with the mean kept exactly."""
    raw = [value * (1 + wobble * (-1) ** i) for i, value in enumerate(SPREAD)]
    return [factor * value * sum(SPREAD) / sum(raw) for value in raw]


def numbered(blocks: Sequence[Sequence[RequestRow]]) -> list[list[RequestRow]]:
    """Each block a start of its own."""
    return [[dataclasses.replace(row, start=start) for row in rows] for start, rows in enumerate(blocks, 1)]


def judge(base: Sequence[Sequence[RequestRow]], other: Sequence[Sequence[RequestRow]], **rules: Any) -> Compared:
    return compare(numbered(base), numbered(other), Rules(**rules))


def values(rows: Sequence[RequestRow], metric: Metric = "tpot") -> dict[str, float]:
    """The value of each prompt in one start."""
    start = starts_of([rows])
    paired = pair(start, start, metric)
    return dict(zip(paired.ids, paired.values()[0].tolist(), strict=True))


def codes(compared: Compared) -> list[Code]:
    return [finding.code for finding in compared.findings]


def finding(compared: Compared, code: Code) -> Finding:
    return next(finding for finding in compared.findings if finding.code is code)


# --- values of a prompt ---------------------------------------------------------------------------------------------


def test_a_prompts_tpot_is_all_its_time_over_all_its_tokens() -> None:
    # 1000 ms for 100 tokens and 100 ms for 50 tokens: 1100 / 150, not the mean of 10 and 2.
    rows = [row("a", 10.0), row("a", 2.0, tokens=51), row("b", 7.0)]
    assert values(rows) == {"a": pytest.approx(1100 / 150), "b": pytest.approx(7.0)}


def test_rows_without_a_tpot_do_not_count_and_approximate_ones_do() -> None:
    single_chunk = dataclasses.replace(row("a", 10.0), tpot_ms=None, decode_ms=0.0)
    approximate = dataclasses.replace(row("c", 5.0), token_source="chunks")
    again = dataclasses.replace(row("d", 5.0), retries=1)
    assert values([single_chunk, failed("b"), approximate, again]) == {"c": pytest.approx(5.0)}


def test_a_prompt_whose_clock_stood_still_is_missing_not_zero() -> None:
    stuck = dataclasses.replace(row("a", 10.0), tpot_ms=0.0, decode_ms=0.0)
    assert values([stuck]) == {}


def test_ttft_is_the_mean_over_repeats() -> None:
    silent = dataclasses.replace(row("b", 1.0), ttft_ms=None)
    assert values([row("a", 10.0), row("a", 20.0), silent, failed("c")], "ttft") == {"a": pytest.approx(120.0)}


def test_turns_of_a_conversation_are_one_prompt_and_a_hash_of_its_own_is_none() -> None:
    second = dataclasses.replace(row("a#2", 20.0), turn=2)
    named = row("b#2", 7.0)
    assert values([row("a", 10.0), second, named]) == {"a": pytest.approx(15.0), "b#2": pytest.approx(7.0)}


def test_a_turn_that_one_arm_lacks_is_left_out_of_both() -> None:
    # Otherwise the variant would be compared on its first turn alone, which is the faster one.
    base = [row("a", 10.0), dataclasses.replace(row("a#2", 30.0), turn=2)]
    paired = pair(starts_of([base]), starts_of([[row("a", 8.0)]]), "tpot")
    assert [arm.tolist() for arm in paired.values()] == [[pytest.approx(10.0)], [pytest.approx(8.0)]]


def test_categories_come_from_the_rows_even_of_failed_ones() -> None:
    assert category_of([failed("a"), row("b", 1.0, category="code")]) == {"a": "chat", "b": "code"}


# --- the verdict ----------------------------------------------------------------------------------------------------


def test_a_clear_gain_is_faster_and_the_reason_has_the_figures() -> None:
    compared = judge([block(SPREAD), block(SPREAD)], [block(scaled(0.7), arm="ngram")])
    comparison = compared.comparison
    assert comparison.verdict is Verdict.FASTER
    assert comparison.baseline_tpot_ms == pytest.approx(12.208, abs=0.001)  # 146.5 / 12
    assert comparison.variant_tpot_ms == pytest.approx(8.546, abs=0.001)
    assert comparison.pairs == 12
    assert comparison.tpot_ratio is not None
    assert comparison.tpot_ratio.estimate == pytest.approx(0.7)
    assert comparison.ttft_ratio is not None
    assert comparison.ttft_ratio.estimate == pytest.approx(0.7)
    assert comparison.shift_ms is not None
    assert comparison.shift_ms.estimate == pytest.approx(-3.66, abs=0.1)
    assert "TPOT 12.2 → 8.55 ms (ratio 0.700, 95 % interval 0.5" in comparison.reason
    assert "12 prompts): the whole interval lies below 1" in comparison.reason


def test_a_clear_loss_is_slower() -> None:
    assert judge([block(SPREAD)], [block(scaled(1.4))]).comparison.verdict is Verdict.SLOWER


def test_equal_arms_are_inconclusive_under_the_prior_and_no_difference_with_three_quiet_starts() -> None:
    once = judge([block(SPREAD)] * 2, [block(scaled(1.0))])
    assert once.comparison.verdict is Verdict.INCONCLUSIVE
    starts = [block(scaled(factor, 0.002)) for factor in (1.0, 1.001, 0.999)]
    three = judge([block(SPREAD)] * 3, starts)
    assert three.comparison.verdict is Verdict.NO_DIFFERENCE
    assert Code.FEW_STARTS in codes(once)
    assert Code.FEW_STARTS not in codes(three)


def test_the_margin_is_the_callers() -> None:
    arms = ([block(SPREAD)] * 2, [block(scaled(1.0))])
    assert judge(*arms, margin=0.2).comparison.verdict is Verdict.NO_DIFFERENCE


def test_one_prompt_is_inconclusive_with_its_figures() -> None:
    comparison = judge([block([10.0])], [block([5.0])]).comparison
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.tpot_ratio is not None
    assert comparison.tpot_ratio.estimate == pytest.approx(0.5)
    assert (comparison.tpot_ratio.low, comparison.tpot_ratio.method) == (None, "one prompt: no interval")
    assert "10.0 → 5.00 ms (ratio 0.500, no interval, 1 prompt)" in comparison.reason


@pytest.mark.parametrize(
    ("baseline", "variant"),
    [
        ([], []),
        ([block(SPREAD)], []),
        ([block(SPREAD)], [[]]),
        ([block(SPREAD)], [[failed("p00", arm="ngram")]]),
        ([[row("a", 1.0)]], [[row("b", 1.0)]]),
    ],
)
def test_nothing_paired_is_an_error_not_a_number(
    baseline: list[list[RequestRow]], variant: list[list[RequestRow]]
) -> None:
    compared = judge(baseline, variant)
    assert compared.comparison.verdict is Verdict.ERROR
    assert compared.comparison.tpot_ratio is None
    assert compared.comparison.baseline_tpot_ms is None
    assert "no prompt was measured in every start of both arms" in compared.comparison.reason


@pytest.mark.parametrize("wrong", [{"margin": 0.0}, {"margin": 2.0}, {"confidence": 95.0}, {"variants": 0}])
def test_impossible_settings_are_refused(wrong: Mapping[str, float]) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1|at least one variant"):
        judge([block(SPREAD)], [block(SPREAD)], **wrong)


def test_the_same_record_gives_the_same_result_in_any_order_of_rows() -> None:
    base, other = [block(SPREAD), block(scaled(1.01))], [block(scaled(0.8), arm="ngram")]
    turned = [list(reversed(rows)) for rows in base]
    assert judge(turned, [list(reversed(other[0]))]) == judge(base, other)


# --- pairing, drift -------------------------------------------------------------------------------------------------


def test_linear_drift_of_the_baseline_cancels_and_is_reported() -> None:
    # The machine slows down evenly: 1.00, 1.05, 1.10. The variant in the middle is as fast as the baseline.
    compared = judge([block(SPREAD), block(scaled(1.10))], [block(scaled(1.05), arm="ngram")])
    assert compared.comparison.tpot_ratio is not None
    assert compared.comparison.tpot_ratio.estimate == pytest.approx(1.0)
    assert compared.drift is not None
    assert compared.drift.estimate == pytest.approx(1.10)
    assert "1.100 times that of the first" in finding(compared, Code.BASELINE_DRIFT).message


def test_drift_within_the_margin_is_no_finding_and_one_start_has_none() -> None:
    small = judge([block(SPREAD), block(scaled(1.015, 0.0))], [block(SPREAD)])
    assert small.drift is not None
    assert small.drift.estimate == pytest.approx(1.015)
    assert Code.BASELINE_DRIFT not in codes(small)
    assert judge([block(SPREAD)], [block(SPREAD)]).drift is None


def test_drift_runs_from_the_first_start_to_the_last() -> None:
    compared = judge([block(SPREAD), block(SPREAD), block(scaled(1.3))], [block(SPREAD)])
    assert compared.drift is not None
    assert compared.drift.estimate == pytest.approx(1.3)


def test_noise_of_the_baseline_is_no_drift() -> None:
    noisy = [value * (1.5 if i % 2 else 0.7) for i, value in enumerate(SPREAD)]
    assert Code.BASELINE_DRIFT not in codes(judge([block(SPREAD), block(noisy)], [block(SPREAD)]))


def test_baselines_that_disagree_widen_the_interval() -> None:
    def width(last: float) -> float:
        ratio = judge([block(SPREAD), block(scaled(last))], [block(scaled(1.0))]).comparison.tpot_ratio
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        return math.log(ratio.high / ratio.low)

    # Two starts 20 % apart: half of ln 1.2 = 0.091 joins the prior of 0.08, so half as wide again.
    assert width(1.2) > 1.4 * width(1.0)


def test_only_prompts_measured_in_every_start_are_compared() -> None:
    second = block(SPREAD)
    second[3] = failed("p03", error="HTTP 503")
    variant = block(scaled(0.5), arm="ngram")
    variant[5] = dataclasses.replace(variant[5], tpot_ms=None)
    compared = judge([block(SPREAD), second], [variant])
    assert compared.comparison.pairs == 10
    assert "2 of 12 prompts were left out" in finding(compared, Code.FEW_PAIRS).message
    lost = finding(compared, Code.REQUESTS_FAILED)
    assert lost.arm == "baseline"
    assert lost.message == "1 of 24 requests failed; the first with a reason: HTTP 503"


# --- other findings -------------------------------------------------------------------------------------------------


def test_a_clean_trial_has_only_the_remark_on_starts() -> None:
    compared = judge([block(SPREAD), block(SPREAD)], [block(scaled(0.7), arm="ngram")])
    assert codes(compared) == [Code.FEW_STARTS]
    # 1.96 * sqrt(0.006^2 / 2 + 0.08^2) = 15.7 %
    assert "started 2 times and the variant once" in compared.findings[0].message
    assert "+/- 16 %" in compared.findings[0].message


def test_three_starts_of_one_arm_only_are_still_few() -> None:
    assert Code.FEW_STARTS in codes(judge([block(SPREAD)] * 3, [block(SPREAD)]))


@pytest.mark.parametrize(("tokens", "remarked"), [(103, False), (104, True), (98, True)])
def test_lengths_more_than_2_percent_apart_are_remarked(tokens: int, remarked: bool) -> None:  # noqa: FBT001
    # Two starts of the baseline against one of the variant: lengths of an answer count, not totals. 103/101 = 1.0198.
    compared = judge([block(SPREAD)] * 2, [block(SPREAD, tokens=tokens)])
    assert (Code.LENGTHS_DIFFER in codes(compared)) is remarked


def test_approximate_tokens_are_counted_by_arm() -> None:
    rough = [dataclasses.replace(row, token_source="chunks") for row in block(scaled(0.7), arm="ngram")]
    seen = finding(judge([block(SPREAD)], [rough]), Code.APPROXIMATE_TOKENS)
    assert seen.arm == "ngram"
    assert seen.message.startswith("12 of 12 answers")


@pytest.mark.parametrize(("prompts", "remarked"), [(7, True), (8, False)])
def test_few_prompts_are_remarked(prompts: int, remarked: bool) -> None:  # noqa: FBT001
    compared = judge([block(SPREAD[:prompts])], [block(SPREAD[:prompts])])
    assert (Code.FEW_PAIRS in codes(compared)) is remarked


# --- several comparisons at once ------------------------------------------------------------------------------------


def test_categories_are_judged_apart_at_a_corrected_level() -> None:
    kinds = ("chat", "code")
    variant = [value * (0.5 if i % 2 else 1.5) for i, value in enumerate(SPREAD)]
    compared = judge([block(SPREAD, categories=kinds)] * 2, [block(variant, categories=kinds)], variants=2)
    chat, code = compared.categories
    assert (chat.category, chat.pairs, chat.verdict) == ("chat", 6, Verdict.SLOWER)
    assert (code.category, code.pairs, code.verdict) == ("code", 6, Verdict.FASTER)
    assert chat.tpot_ratio is not None
    assert code.tpot_ratio is not None
    assert compared.comparison.tpot_ratio is not None
    assert code.tpot_ratio.estimate == pytest.approx(0.5)
    assert code.tpot_ratio.confidence == pytest.approx(0.95), "a category's interval is shown as a description"
    assert compared.comparison.tpot_ratio.confidence == pytest.approx(0.975)
    assert compared.comparison.tpot_ratio.method.endswith("level corrected for 2 variants (Bonferroni)")


def test_a_category_that_only_the_plain_level_calls_faster_is_inconclusive() -> None:
    # Six prompts: the 95 % interval lies below 1, that at 1 - 0.05 / 20 does not.
    noise = (0.80, 0.99, 0.84, 1.01, 0.86, 0.90)
    base = [row(f"{kind}{i}", 10.0, category=kind) for kind in "abcde" for i in range(6)]
    other = [row(f"{kind}{i}", 10.0 * noise[i], arm="v", category=kind) for kind in "abcde" for i in range(6)]
    first = judge([base, base], [other], variants=4, prior_baseline=0.0, prior_variant=0.0).categories[0]
    assert first.tpot_ratio is not None
    assert first.tpot_ratio.high is not None
    assert first.tpot_ratio.high < 1
    assert first.verdict is Verdict.INCONCLUSIVE
    assert "inconclusive at 99.75 %" in first.reason
    assert "corrected for 4 variants x 5 groups" in first.reason


def test_a_category_without_pairs_is_an_error_and_one_with_a_single_pair_inconclusive() -> None:
    base = [*block(SPREAD), row("x", 9.0, category="json"), row("y", 9.0, category="math")]
    other = [*block(scaled(0.7)), failed("x", arm="ngram"), row("y", 4.5, category="math")]
    other[12] = dataclasses.replace(other[12], category="json")
    compared = judge([base], [other])
    verdicts = {group.category: group.verdict for group in compared.categories}
    assert verdicts == {"chat": Verdict.FASTER, "json": Verdict.ERROR, "math": Verdict.INCONCLUSIVE}
    assert any("no interval for the categories json, math" in found.message for found in compared.findings)
