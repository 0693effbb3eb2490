"""Sampled answers of two arms: alike, shifted, tampered with, too few."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.trials.test_trials_outcome import row

from draftworth.bench.base import RequestRow
from draftworth.verdicts.sampled_check import judge_sampled

VOCABULARY = 12
ROOT = Path(__file__).parents[2]


def answers(arm: str, seed: int, *, prompts: int = 20, repeats: int = 12, away: float = 0.0) -> list[RequestRow]:
    """Answers of a little language model, each prompt with its own distribution; a share `away` is of another one."""
    random = np.random.default_rng(seed)
    made = []
    for prompt, repeat in itertools.product(range(prompts), range(repeats)):
        weights = np.random.default_rng(1000 + prompt).dirichlet(np.full(VOCABULARY, 0.3), size=VOCABULARY)
        other = random.random() < away
        token, written = prompt % VOCABULARY, []
        for _ in range(8):
            token = int(random.integers(VOCABULARY)) if other else int(random.choice(VOCABULARY, p=weights[token]))
            written.append(token)
        made.append(row(arm, f"p{prompt:02}", token_ids=written, repeat=repeat))
    return made


def test_the_distance_is_that_of_a_plain_double_loop() -> None:
    one, other = answers("baseline", 1, prompts=2, repeats=4), answers("v", 2, prompts=2, repeats=4)

    def common(a: RequestRow, b: RequestRow) -> int:
        pairs = zip(a.token_ids, b.token_ids, strict=True)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    expected = 0.0
    for prompt in ("p00", "p01"):
        mine, theirs = ([r for r in rows if r.prompt_id == prompt] for rows in (one, other))
        for i, j in itertools.permutations(range(4), 2):
            four = common(mine[i], mine[j]) + common(theirs[i], theirs[j])
            expected += (four - common(mine[i], theirs[j]) - common(mine[j], theirs[i])) / (4 * 3)
    assert judge_sampled(one, other).distance == pytest.approx(expected / 2)


def test_arms_that_sample_alike_are_called_different_one_time_in_a_hundred() -> None:
    found = [
        judge_sampled(answers("baseline", 2 * n, prompts=6, repeats=6), answers("v", 2 * n + 1, prompts=6, repeats=6))
        for n in range(120)
    ]
    values = np.array([one.p_value for one in found])
    assert np.mean(values < 0.1) == pytest.approx(0.1, abs=0.08)
    assert np.mean([one.status == "diverged" for one in found]) <= 0.05


def test_a_share_that_is_called_detectable_is_detected() -> None:
    same = judge_sampled(answers("baseline", 0), answers("v", 1))
    assert same.status == "same"
    assert same.detectable is not None
    assert 0.1 < same.detectable < 0.6
    assert f"{same.detectable:.0%} of its answers" in same.reason
    caught = [
        judge_sampled(answers("baseline", 2 * n), answers("v", 2 * n + 1, away=same.detectable)).status == "diverged"
        for n in range(1, 21)
    ]
    assert np.mean(caught) >= 0.7


def test_seeds_in_common_do_not_make_a_difference() -> None:
    base = answers("baseline", 5)
    twins = [replace(one, arm="v") for one in base]
    found = judge_sampled(base, twins)
    assert (found.status, found.p_value) == ("same", 1.0)
    assert found.distance == pytest.approx(0.0)
    # A variant that is greedy where the baseline samples.
    greedy = [
        replace(one, arm="v", token_ids=next(r.token_ids for r in base if r.prompt_id == one.prompt_id)) for one in base
    ]
    assert judge_sampled(base, greedy).status == "diverged"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"repeats": 2}, "raise workload.repeats"),
        ({"prompts": 1, "repeats": 3}, "too few"),
    ],
)
def test_too_few_answers_say_so(change: dict[str, int], why: str) -> None:
    found = judge_sampled(answers("baseline", 0, **change), answers("v", 1, **change))
    assert found.status == "unchecked"
    assert why in found.reason


def test_greedy_answers_are_no_samples() -> None:
    alike = [replace(one, token_ids=[1, 2, 3]) for one in answers("baseline", 0)]
    assert "nothing was sampled" in judge_sampled(alike, alike).reason
    assert judge_sampled([], []).status == "unchecked"


def test_a_record_gives_the_same_again_in_whatever_order_and_process() -> None:
    base, other = answers("baseline", 0, repeats=4), answers("v", 1, repeats=4)
    found = judge_sampled(base, other)
    assert judge_sampled(base[::-1], other[::-1]) == found
    code = (
        "from tests.verdicts.test_verdicts_sampled_check import answers, judge_sampled as judge\n"
        "print(judge(answers('baseline', 0, repeats=4), answers('v', 1, repeats=4)).p_value)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT, stdout=subprocess.PIPE,
            text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert told == {str(found.p_value)}


def everywhere(rows: list[RequestRow], points: tuple[str, ...], starts: int) -> list[RequestRow]:
    """The same answers at each point and start: engines draw from a request's seed alone."""
    return [
        replace(one, point=point, start=start, block=start)
        for start, point in itertools.product(range(1, starts + 1), points)
        for one in rows
    ]


@pytest.mark.parametrize(("points", "starts"), [(("1", "4", "8"), 1), (("",), 3), (("1", "4"), 2)])
def test_a_seed_that_is_sent_again_at_another_load_or_start_is_no_further_evidence(
    points: tuple[str, ...], starts: int
) -> None:
    base, other = answers("baseline", 0, repeats=4), answers("v", 1, repeats=4)
    once = judge_sampled(base, other)
    # The baseline has one start more than the variant, as a trial may have.
    again = judge_sampled(everywhere(base, points, starts + 1), everywhere(other, points, starts))
    assert (again.status, again.p_value, again.detectable) == (once.status, once.p_value, once.detectable)
    assert again.distance == pytest.approx(once.distance)
    assert again.pairs == 80 * len(points) * starts
    assert "of 80 seeds" in again.reason
    assert "seeds" not in once.reason


def test_one_repeat_at_many_loads_is_one_answer() -> None:
    base, other = (
        everywhere(answers(arm, n, repeats=1), ("1", "4", "8"), 2) for n, arm in enumerate(("baseline", "v"))
    )
    found = judge_sampled(base, other)
    assert found.status == "unchecked"
    assert "raise workload.repeats" in found.reason


def test_equal_arms_over_a_sweep_and_starts_are_seldom_called_different() -> None:
    found = [
        judge_sampled(
            everywhere(answers("baseline", 2 * n, prompts=6, repeats=6), ("1", "4", "8"), 2),
            everywhere(answers("v", 2 * n + 1, prompts=6, repeats=6), ("1", "4", "8"), 2),
        ).p_value
        for n in range(60)
    ]
    assert np.mean([value is not None and value < 0.1 for value in found]) == pytest.approx(0.1, abs=0.1)
    assert np.mean([value is not None and value < 0.01 for value in found]) <= 0.05


def test_a_fault_at_one_load_of_a_sweep_is_seen() -> None:
    base = everywhere(answers("baseline", 0, repeats=36), ("1", "8"), 1)
    good, bad = (answers("v", 1, repeats=36, away=away) for away in (0.0, 1.0))
    assert judge_sampled(base, everywhere(good, ("1", "8"), 1)).status == "same"
    faulty = [*everywhere(good, ("1",), 1), *everywhere(bad, ("8",), 1)]
    assert judge_sampled(base, faulty).status == "diverged"


def test_answers_of_different_loads_are_never_paired() -> None:
    base, other = answers("baseline", 0), answers("v", 1)
    found = judge_sampled(everywhere(base, ("1",), 1), everywhere(other, ("8",), 1))
    assert found.status == "unchecked"


def test_the_distance_over_clusters_is_that_of_a_plain_loop_over_different_seeds() -> None:
    base = [
        replace(one, point=point) for n, point in enumerate(("1", "4")) for one in answers("b", n, prompts=1, repeats=4)
    ]
    other = [
        replace(one, point=point)
        for n, point in enumerate(("1", "4"))
        for one in answers("v", 5 + n, prompts=1, repeats=4)
    ]

    def common(a: RequestRow, b: RequestRow) -> int:
        pairs = zip(a.token_ids, b.token_ids, strict=True)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    terms = [
        common(base[i], base[j]) + common(other[i], other[j]) - common(base[i], other[j]) - common(base[j], other[i])
        for i, j in itertools.permutations(range(8), 2)
        if base[i].repeat != base[j].repeat
    ]
    assert len(terms) == 8 * 6
    assert judge_sampled(base, other).distance == pytest.approx(sum(terms) / len(terms))


def test_arms_that_draw_otherwise_from_a_seed_in_common_keep_the_level() -> None:
    # The least symmetric: three answers, and the variant gives the next one round for each seed.
    values = []
    for trial in range(200):
        random = np.random.default_rng(trial)
        drawn = [(f"p{prompt:02}", repeat, int(random.integers(3))) for prompt in range(20) for repeat in range(3)]
        base, other = (
            [row(arm, prompt, token_ids=[(token + more) % 3] * 8, repeat=repeat) for prompt, repeat, token in drawn]
            for arm, more in (("baseline", 0), ("v", 1))
        )
        values.append(judge_sampled(base, other).p_value or 1.0)
    assert np.mean(np.array(values) < 0.1) == pytest.approx(0.1, abs=0.06)
    assert np.mean(np.array(values) < 0.01) <= 0.03


def test_several_variants_share_the_level() -> None:
    base = answers("baseline", 0)
    shifted = answers("v", 1, away=0.3)
    alone = judge_sampled(base, shifted)
    assert alone.p_value is not None
    many = judge_sampled(base, shifted, arms=10_000)
    assert many.p_value == alone.p_value
    assert many.status != "diverged"


def test_short_answers_end_where_they_end() -> None:
    base = [replace(one, token_ids=one.token_ids[:2]) for one in answers("baseline", 3)]
    other = [replace(one, token_ids=one.token_ids[:3]) for one in answers("v", 4)]
    assert judge_sampled(base, other).status == "diverged"  # one of them always stops earlier
