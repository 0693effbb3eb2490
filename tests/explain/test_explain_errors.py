"""The errors of an account: of prompts that parts share, of the steps, and of what starts of a server differ by."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.explain.simulated_batch import Arm, Engine, write
from tests.explain.test_explain_batch import ARMS, NGRAM, costs
from tests.explain.test_explain_trial import ARMS as TEXT_ARMS
from tests.explain.test_explain_trial import costs as text_costs
from tests.predict.simulated_trial import simulated

from draftworth.bench.base import RequestRow
from draftworth.explain.base import Account
from draftworth.explain.beside import Spread, spread_of
from draftworth.explain.draws import clusters_of, interval, joint
from draftworth.explain.steps import ArmSteps, steps_of
from draftworth.explain.whole import explain_trial
from draftworth.predict.requests import Requests
from draftworth.predict.trialrows import measured
from draftworth.trials.record import TrialRecord, read
from draftworth.verdicts.compare import compare
from draftworth.verdicts.rules import Rules


def edited(folder: Path, **more: Any) -> TrialRecord:
    """Change a trial's record."""
    record = json.loads((folder / "trial.json").read_text()) | more
    (folder / "trial.json").write_text(json.dumps(record))
    return read(folder)


def restarted(folder: Path, factors: tuple[float, ...], *, arms: tuple[str, ...] = ("baseline", "ngram-3")) -> Path:
    """A trial whose variant took so many times as long in each of its starts; the baseline's starts are alike."""
    write(folder, Engine(shared=0.2, pieces=0.2, sampling=0.2, noise=0.02), ARMS, batch=1, requests=64, seed=0)
    rows = []
    for row in pq.read_table(folder / "requests.parquet").to_pylist():
        for start, factor in enumerate(factors if row["arm"] in arms else (1.0,), 1):
            times = factor if row["arm"] == "ngram-3" else 1.0
            changed = {"start": start, "block": 10 * row["block"] + start}
            rows.append(row | changed | {name: row[name] * times for name in ("decode_ms", "tpot_ms")})
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    record = json.loads((folder / "trial.json").read_text())
    record["config"]["verdict"] = {}
    for arm in record["arms"]:
        if arm["name"] in arms:
            arm["starts"] = [
                {"block": at, "start": at, "seconds": 1.0, "log": "", "rows": 64} for at in range(1, len(factors) + 1)
            ]
    (folder / "trial.json").write_text(json.dumps(record))
    return folder


def account(folder: Path) -> Account:
    return next(one for one in explain_trial(folder, costs(Engine())).accounts if one.arm == "ngram-3")


# --- prompts and steps


def test_steps_that_prompts_differ_by_are_in_the_tokens_gained(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "20260101-000000", TEXT_ARMS, 40)
    one = next(each for each in explain_trial(folder, text_costs()).accounts if each.arm == "ngram-3")
    trial = measured(folder)
    load = trial.loads["ngram-3", one.point]
    steps = steps_of(trial, load, sorted(load.place.sums.prompts)).requests
    each = steps.hist.sum(axis=1) / steps.tokens
    # By hand: T is the same for every prompt, so the part is spread as r is, and no less.
    own = 1.96 * each.std(ddof=1) / math.sqrt(len(each)) * one.baseline_step_ms
    gained = one.parts[-2].ms
    assert gained.high - gained.low == pytest.approx(2 * own, rel=0.15)


def test_where_only_totals_are_known_the_steps_have_an_error_too(tmp_path: Path) -> None:
    write(tmp_path / "t", Engine(noise=0.02), ARMS, batch=1, requests=96, seed=0)
    one = account(tmp_path / "t")
    gained = one.parts[-2].ms
    # By hand: steps that accept 0 to 3 tokens by chance have an sd near 0.9 of a mean of 1.5; some 6,000 were taken.
    assert gained.high - gained.low > 2 * 1.96 * 0.9 / 1.5 / math.sqrt(6000) * one.steps_per_token * 10


def test_the_rest_has_no_error_that_its_parts_share() -> None:
    """Prompts that need more steps take longer: that moves difference and parts alike, and leaves nothing."""
    random = np.random.default_rng(1)
    tokens, r = np.full(60, 100.0), 0.3 + 0.5 * random.random(60)
    steps = ArmSteps(Requests(np.stack([0 * r, r * tokens], axis=1), tokens), "told", 1, tuple(map(str, range(60))))
    base, arm = np.full(60, 10.0), 12.0 * r
    drawn = joint(base, arm, [str(at) for at in range(60)], steps, Spread(0.0, 0.0))
    difference, gained = drawn.arm - drawn.base, (drawn.r - 1) * drawn.base
    rest = interval(0.0, difference - gained - 2.0 * drawn.r)
    assert difference.std() > 0.2
    assert rest.high - rest.low < 1e-9


def test_turns_of_one_conversation_are_drawn_together() -> None:
    assert clusters_of(["a", "a#2", "b", "c#1", "a#3"]).tolist() == [0, 0, 1, 2, 0]


# --- starts


def blocks(folder: Path, arm: str) -> list[list[RequestRow]]:
    """The rows of an arm, by start, as a verdict takes them."""
    found: dict[int, list[RequestRow]] = {}
    for row in pq.read_table(folder / "requests.parquet").to_pylist():
        if row["arm"] == arm:
            known = {
                name: row[name] for name in ("arm", "block", "start", "prompt_id", "tokens", "decode_ms", "tpot_ms")
            }
            more: dict[str, Any] = {
                "category": "",
                "repeat": 1,
                "started_unix": 1.0,
                "ok": True,
                "first_chunk_tokens": 1,
            }
            times: dict[str, Any] = {"ttft_ms": 50.0, "e2e_ms": 50 + row["decode_ms"]}
            found.setdefault(row["block"], []).append(RequestRow(**known, **more, **times))
    return [found[block] for block in sorted(found)]


@pytest.mark.parametrize("factors", [(0.8, 1.0, 1.22), (0.99, 1.0, 1.01), (1.0, 1.02), (0.8, 1.2), (1.0,)])
def test_the_difference_has_the_interval_of_the_verdict(tmp_path: Path, factors: tuple[float, ...]) -> None:
    """Three starts are believed, two where they contradict the prior, and one is not asked."""
    folder = restarted(tmp_path / "20260101-000000", factors)
    ratio = compare(blocks(folder, "baseline"), blocks(folder, "ngram-3"), Rules()).comparison.tpot_ratio
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    one = account(folder)
    assert one.difference.value / one.baseline_ms == pytest.approx(ratio.estimate - 1)
    width = ratio.high - ratio.low
    assert one.difference.low / one.baseline_ms == pytest.approx(ratio.low - 1, abs=0.12 * width)
    assert one.difference.high / one.baseline_ms == pytest.approx(ratio.high - 1, abs=0.12 * width)
    assert ("it may be nothing" in one.main_cause) is (ratio.low <= 1 <= ratio.high)


def test_starts_that_agree_narrow_what_a_prior_would_say(tmp_path: Path) -> None:
    alike = account(restarted(tmp_path / "20260101-000000", (0.99, 1.0, 1.01)))
    once = account(restarted(tmp_path / "20260102-000000", (1.0,)))
    assert alike.difference.high - alike.difference.low < (once.difference.high - once.difference.low) / 2


def test_a_mode_is_of_one_start_however_often_the_variant_was_started(tmp_path: Path) -> None:
    found = {}
    for count in (1, 2):
        folder = restarted(tmp_path / f"2026010{count}-000000", (1.0,) * count)
        found[count] = spread_of(measured(folder), "ngram-3")
    assert found[2].arm == pytest.approx(0.08 / math.sqrt(2))
    assert found[2].other == found[1].other == 0.08


@pytest.mark.parametrize(
    ("command", "device", "base"),
    [
        (["numactl", "--cpunodebind=0", "vllm", "serve", "m"], "cuda", 0.006),
        (["vllm", "serve", "m", "--cpu-offload-gb", "8"], "cuda", 0.006),
        (["/opt/vllm/bin/vllm", "serve", "m"], "cpu", 0.07),
        (["/home/you/vllm-cpu/bin/vllm", "serve", "m"], None, 0.006),
    ],
)
def test_the_device_is_what_the_log_told_and_no_word_of_the_command(
    tmp_path: Path, command: list[str], device: str | None, base: float
) -> None:
    folder = tmp_path / "20260101-000000"
    write(folder, Engine(), {"baseline": Arm(None), "ngram-3": Arm(NGRAM, 0.4, 0.5)}, batch=1, requests=8, seed=0)
    record = json.loads((folder / "trial.json").read_text())
    record["config"]["verdict"] = {}
    for arm in record["arms"]:
        arm |= {"command": command, "device": device}
    edited(folder, **record)
    assert spread_of(measured(folder), "ngram-3").base == base


def test_a_break_even_has_the_errors_of_both_steps(tmp_path: Path) -> None:
    folder = restarted(tmp_path / "20260101-000000", (1.0,))
    even = account(folder).break_even
    assert even.length is not None
    assert even.low is not None
    assert even.high is not None
    # By hand: S has 8 % from one start, so of S / T near 1.05 it is 0.16 either way, over a coverage of 0.4.
    assert even.high - even.low == pytest.approx(2 * 1.96 * 0.08 * 1.05 / 0.4, rel=0.25)
    assert even.low < even.length < even.high
