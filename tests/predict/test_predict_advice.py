"""What a prediction advises: the verdict, the arms worth a reload, k by batch size, and what a finished arm implies."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import prediction, prediction_case, prediction_tables
from draftworth.drafters import drafter
from draftworth.drafters.base import Setting
from draftworth.predict.advice import reloads, verdict
from draftworth.predict.base import Limit, Parts, Predicted, Range
from draftworth.predict.implied import geometric, implied, length_of
from draftworth.predict.schedule import per_batch_size, ranges
from draftworth.predict.speculation import mode_arms


def told(
    k: int,
    concurrency: int,
    speed: float,
    *,
    width: float = 0.05,
    window: tuple[int, int] = (2, 4),
    limit: Limit = "nothing",
    idle: float = 0.6,
    more: dict[str, float] | None = None,
    probed: bool = True,
) -> Predicted:
    return Predicted(
        k=k,
        min=window[0],
        max=window[1],
        concurrency=concurrency,
        more=more or {},
        steps_per_token=Range(value=1 / 1.3, low=0.7, high=0.85),
        length_per_step=1.3,
        coverage=0.4,
        length_per_drafting_step=1.75,
        step_ms=Range(value=7.0, low=6.5, high=7.5),
        idle_speed_up=idle,
        base_measured=probed,
        speed_up=Range(value=speed, low=speed - width, high=speed + width),
        tpot_ratio=Range(value=1 / speed, low=1 / (speed + width), high=1 / (speed - width)),
        parts=Parts(base_ms=4.0, verify_ms=1.0, mode_ms=2.0),
        break_even_length=2.4,
        limit=limit if speed <= 1 else "nothing",
    )


def test_none_pays_and_how_far_the_nearest_is() -> None:
    said = verdict([told(1, 1, 0.95, limit="acceptance"), told(5, 1, 0.8, limit="verification")])
    wide = verdict([told(1, 1, 0.9, width=0.2, limit="engine mode")])
    assert said.startswith("None of them pays. The nearest, k = 1 (n-grams of 2 to 4) at 1 at a time")
    assert "predicted 0.95 times as fast (0.90 to 1.00)" in said
    assert wide.startswith(
        "It cannot be told yet; by its best value none pays. The nearest, k = 1 (n-grams of 2 to 4) at 1 at a time"
    )
    assert "The engine's mode adds 2.00 ms to a step of 4.00 ms" in wide
    assert "an acceptance length of 2.40 is needed, and it has 1.75." in said
    assert reloads([told(1, 1, 0.95)], drafter("vllm-ngram-v1"), 1800.0) == ()


def test_within_the_margin_nothing_is_advised() -> None:
    near = [told(3, 1, 1.004, width=0.01)]
    assert "is predicted to make no difference: 1.00 times as fast" in verdict(near)
    assert reloads(near, drafter("vllm-ngram-v1"), None) == ()


def test_the_best_is_named_with_where_it_does_not_pay() -> None:
    said = verdict([told(3, 1, 1.4), told(3, 8, 0.9, limit="engine mode"), told(1, 1, 1.2)])
    assert said == (
        "It pays: k = 3 (n-grams of 2 to 4) is predicted 1.40 times as fast (1.35 to 1.45) at 1 at a time; "
        "nothing pays at 8 at a time."
    )
    assert "its interval reaches below 1.02, so a trial decides" in verdict([told(3, 1, 1.04)])


def test_a_load_that_was_not_probed_does_not_make_the_headline() -> None:
    said = verdict([told(3, 1, 1.2), told(3, 64, 5.0, probed=False)])
    assert "1.20 times as fast (1.15 to 1.25) at 1 at a time" in said


def test_reloads_are_few_different_and_priced() -> None:
    found = reloads(
        [
            told(3, 1, 1.4),
            told(3, 1, 1.39, window=(2, 3)),
            told(5, 4, 1.3),
            told(8, 1, 1.25),
            told(2, 1, 1.2),
            told(1, 1, 0.9),
        ],
        drafter("vllm-ngram-v1"),
        1800.0,
    )
    assert [one.k for one in found] == [3, 5, 8]
    flag, config = found[0].arguments
    assert flag == "--speculative-config"
    assert json.loads(config) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    assert found[1].at == 4
    assert {one.seconds for one in found} == {3600.0}  # there and back
    assert reloads([told(3, 1, 1.4)], drafter("vllm-ngram-v1"), None)[0].seconds is None


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        # Flags of llama.cpp b11434's common/arg.cpp and SGLang 0.5.23's server_args.py, written by hand.
        (
            "llamacpp-ngram-simple",
            Setting(8, more={"size_n": 4}),
            "--spec-type ngram-simple --spec-ngram-simple-size-m 8 --spec-ngram-simple-size-n 4",
        ),
        ("llamacpp-ngram-cache", Setting(8), "--spec-type ngram-cache"),
        (
            "sglang-ngram",
            Setting(7, more={"speculative-ngram-match-type": 1, "speculative-ngram-capacity": 5_000_000}),
            (
                "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8 --speculative-ngram-match-type PROB "
                "--speculative-ngram-capacity 5000000"
            ),
        ),
        ("hf-prompt-lookup", Setting(10), ""),
    ],
)
def test_arguments_are_what_the_engine_takes(name: str, setting: Setting, words: str) -> None:
    assert " ".join(drafter(name).arguments(setting)) == words


def test_arms_that_measure_the_mode_are_those_the_engine_has() -> None:
    assert list(mode_arms(drafter("vllm-ngram-v1"))) == ["null-draft", "synthetic-5"]
    assert list(mode_arms(drafter("vllm-ngram-v1"), "cpu")) == ["null-draft"], "vLLM refuses synthetic on a CPU"
    assert list(mode_arms(drafter("vllm-ngram-v2"))) == ["synthetic-5"], "it drafts in every step"
    assert mode_arms(drafter("sglang-ngram")) == {}


def test_k_by_batch_size_is_vllms_table() -> None:
    speeds = {(5, 1): 1.5, (1, 1): 1.2, (5, 4): 0.9, (1, 4): 1.1, (5, 16): 0.5, (1, 16): 0.55}
    table = per_batch_size([told(k, load, speed, idle=0.9) for (k, load), speed in speeds.items()])
    assert table is not None
    assert table.table == ((1, 2, 5), (3, 8, 1), (9, 16, 0))
    assert table.unsure == (16,)
    assert table.loads == (1, 4, 16)
    assert table.gain == pytest.approx((math.log(1.5) + math.log(1.1) + math.log(0.9)) / 3)


def test_off_is_not_free_in_a_server_that_speculates() -> None:
    """What is won at 1 is lost at 8, where k = 0 keeps the engine's mode and runs at 0.6: no table is advised."""
    assert per_batch_size([told(3, 1, 1.5), told(3, 8, 0.97)]) is None
    assert per_batch_size([told(3, 1, 1.1), told(3, 8, 0.5)]) is None
    table = per_batch_size([told(3, 1, 1.5, idle=0.9), told(3, 8, 0.97, idle=0.9)])
    assert table is not None
    assert table.table == ((1, 2, 3), (3, 8, 0))


def test_a_table_drafts_only_where_that_pays_beyond_doubt_and_was_predicted() -> None:
    """No range reaches beyond the loads: vLLM carries the last k on, so that the last entry is 0 (0.32, `utils.py`)."""
    table = per_batch_size([told(2, 4, 1.3), told(2, 8, 1.2), told(2, 16, 1.1, width=0.3, idle=0.95)])
    assert table is not None
    assert table.table == ((1, 3, 0), (4, 11, 2), (12, 16, 0))
    assert (table.loads, table.unsure) == ((4, 8, 16), (16,))
    assert table.gain == pytest.approx((math.log(1.3) + math.log(1.2) + math.log(0.95)) / 3)
    alone = per_batch_size([told(2, 4, 1.3)])
    assert alone is not None
    assert alone.table == ((1, 3, 0), (4, 4, 2), (5, 5, 0))
    assert per_batch_size([told(4, 1, 1.15, width=0.4), told(4, 2, 1.13, width=0.4)]) is None


def test_a_table_holds_settings_of_one_server() -> None:
    some = [told(3, 1, 1.5, more={"factor": 1.0}), told(5, 4, 1.4, more={"factor": 4.0})]
    table = per_batch_size(some)
    assert table is not None
    assert len(table.loads) == 1


def test_a_table_is_of_one_drafter_and_says_all_that_a_server_is_started_with() -> None:
    """V1 pays at 1 and V2 at 4: neither server has both, and without its window a table is another server's."""
    names = ("vllm-ngram-v1", "vllm-ngram-v2")
    some = [
        one.model_copy(update={"drafter": name})
        for name, one in zip(
            names * 2, (told(5, 1, 1.5), told(3, 1, 0.5), told(5, 4, 0.9), told(3, 4, 1.6)), strict=True
        )
    ]
    table = per_batch_size(
        [one.model_copy(update={"idle_speed_up": 1.0}) for one in some], {n: drafter(n) for n in names}
    )
    assert table is not None
    assert table.drafter == "vllm-ngram-v2"
    assert (table.k, table.min, table.max) == (3, 2, 4)
    assert table.table == ((1, 2, 0), (3, 4, 3), (5, 5, 0))
    flag, config = table.arguments
    assert flag == "--speculative-config"
    assert json.loads(config) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
        "num_speculative_tokens_per_batch_size": [[1, 2, 0], [3, 4, 3], [5, 5, 0]],
    }


@given(st.dictionaries(st.integers(1, 512), st.integers(0, 8), min_size=1, max_size=12))
def test_ranges_cover_every_batch_size_once_and_keep_what_was_predicted(k_at: dict[int, int]) -> None:
    found = ranges(k_at)
    assert found[0][0] == 1
    assert found[-1][1] == max(k_at) + (k_at[max(k_at)] > 0)
    assert found[-1][2] == 0 or found[-1][1] == max(k_at)
    for (_, last, k), (first, _, other) in pairwise(found):
        assert (first, other != k) == (last + 1, True)
    for size, k in k_at.items():
        assert [value for first, last, value in found if first <= size <= last] == [k]


def test_what_an_arm_implies_by_hand() -> None:
    # 10 ms without, 12 ms with; half of the steps draft 2 and 0.5 and 0.3 of those are accepted; T(3) = 1.5.
    found = implied(10.0, 12.0, (0.5, 0.3), 0.5, (1.0, 1.2, 1.5))
    assert found.tokens_per_step == pytest.approx(1.4)
    assert found.step_ms == pytest.approx(16.8)
    assert found.verify_cost == pytest.approx(1.25)
    assert found.mode_ms == pytest.approx(4.3)
    assert found.break_even_length == pytest.approx(1 + 0.68 / 0.5)
    assert found.if_mode == pytest.approx((10 * 1.25 / (11 + 4.3), 10 / 12))
    growth = 0.68 / 0.25
    assert found.if_verify == pytest.approx((1.25 / (1 + growth * 0.1), 10 / 12))


@given(st.floats(0.2, 0.9), st.floats(0.05, 0.19), st.integers(2, 8))
def test_interpolated_survival_has_the_ends_that_were_reported(first: float, last: float, k: int) -> None:
    found = geometric(first, last, k)
    assert (len(found), found[0]) == (k, first)
    assert found[-1] == pytest.approx(last)
    assert list(found) == sorted(found, reverse=True)
    assert length_of(found) == pytest.approx(1 + sum(found))


def test_the_case_in_the_docs_is_what_its_script_makes() -> None:
    page = prediction_case.PAGE.read_text(encoding="utf-8")
    block = page.split(prediction_case.BEGIN)[1].split(prediction_case.END)[0].strip().splitlines()
    assert block == prediction_case.table((prediction_case.SHOWN,))
    linear, stairs = prediction_case.curves()
    assert linear[5] == pytest.approx((17.1 + 0.5 * 5.7) / 11.5)
    assert stairs[5] == pytest.approx(22.8 / 11.5), "a step of 6 tokens runs as 8"
    # Coding, k = 5: 62.6 against 46.4 tokens a second.
    assert prediction_case.rows()[0].told[0].if_mode[-1] == pytest.approx(46.4 / 62.6)


def test_the_error_in_the_docs_is_what_its_script_makes() -> None:
    page = prediction.PAGE.read_text(encoding="utf-8")
    block = page.split(prediction.BEGIN)[1].split(prediction.END)[0].strip().splitlines()
    assert block == prediction_tables.table(prediction.runs())
